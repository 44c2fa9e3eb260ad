"""Reading NICs on a node: ethtool's answers from a played kernel, and the time that a reading takes."""

import ctypes
import errno
import json
import struct
import time
from pathlib import Path

import pytest

from shakedown.onnode import counters, ethtool_stats
from shakedown.onnode import counters as modules
from shakedown.onnode.ethtool_stats import NoStatisticsError, fec_counters, statistics
from shakedown.run.nic_counters import read_counters
from tests.kit.cases import cases
from tests.unit.nics.healthy import names


class Kernel:
    """Answers ETHTOOL_GSSET_INFO, GSTRINGS and GSTATS as net/ethtool/ioctl.c does."""

    def __init__(self, answers, *, later=None):
        self.answers, self.later = answers, later

    def __call__(self, _socket, _request, argument):
        """Fill in what is asked for."""
        address = struct.unpack_from("=Q", argument, 16)[0]
        command = ctypes.c_uint32.from_address(address).value
        if command == 0x37:
            content = struct.pack("=IIQI", command, 0, 2 if self.answers else 0, len(self.answers))
        elif command == 0x1B:
            content = struct.pack("=III", command, 1, len(self.answers))
            content += b"".join(name.encode().ljust(32, b"\0") for name, _ in self.answers)
        else:
            answers = self.later if self.later is not None else self.answers
            content = struct.pack("=II", command, len(answers))
            content += struct.pack(f"={len(answers)}Q", *(value for _, value in answers))
        ctypes.memmove(address, content, len(content))
        return 0


def test_counters_of_the_port_are_read_and_rings_left_out():
    """Catches: values under the wrong names, 64 bits cut, or thousands of ring counters kept for each job."""
    kernel = Kernel(
        [
            ("rx_packets", 5),
            ("rx_crc_errors_phy", 2**64 - 1),
            ("rx0_packets", 3),
            ("tx17_3_cqes", 3),
            ("ch2_poll", 3),
            ("[7]: rx_discards", 4),
            ("rx_prio3_pause", 9),
            ("rx_64_bytes_phy", 8),
        ]
    )
    assert statistics("eth0", kernel) == {
        "rx_packets": 5,
        "rx_crc_errors_phy": 2**64 - 1,
        "rx_prio3_pause": 9,
        "rx_64_bytes_phy": 8,
    }


def test_names_that_stand_twice_tell_nothing():
    """Catches: vmxnet3's counters, which repeat for each queue, taken for the first or the last queue's."""
    kernel = Kernel(
        [("Tx Queue#", 0), ("  ring full", 7), ("Tx Queue#", 1), ("  ring full", 0), ("other", 1)]
    )
    assert statistics("eth0", kernel) == {"other": 1}


@pytest.mark.parametrize(
    "kernel",
    [Kernel([]), Kernel([("a", 1), ("b", 2)], later=[("a", 1)]), Kernel([("a", 1)], later=[("a", 1)] * 2)],
)
def test_what_cannot_be_trusted_is_refused(kernel):
    """Catches: a device without statistics, or whose queues changed while it was read, told as zeros."""
    with pytest.raises(NoStatisticsError):
        statistics("eth0", kernel)


def test_fec_totals_are_read_from_netlink():
    """Catches: lanes taken for the total, or an answer cut in an attribute read beyond its end."""

    def attribute(kind, content):
        return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)

    totals = attribute(2, struct.pack("=3Q", 10, 6, 4)) + attribute(3, struct.pack("=Q", 2))
    reply = attribute(1, b"\1\2\3\4") + attribute(0x8005, totals)
    assert fec_counters(reply) == {"corrected_blocks": 10, "uncorrectable_blocks": 2}
    assert fec_counters(reply[:-3]) == {}


def test_devlink_reporters_are_counted_by_device():
    """Catches: errors of a port's reporter told as the device's, or other output of devlink taken in."""
    printed = {
        "health": {
            "pci/0000:1a:00.0": [{"reporter": "fw", "state": "healthy", "error": 2, "recover": 2}, "x"],
            "pci/0000:1a:00.0/65535": [{"reporter": "tx", "error": 4}],
            "auxiliary/mlx5_core.eth.0": [{"reporter": "rx", "error": 1}],
        }
    }
    assert counters.health_errors(printed) == {"0000:1a:00.0": {"devlink.fw_errors": 2}}
    assert counters.health_errors([]) == {}


def host(root, nics=11):
    """A copy of sysfs with that many NICs: HGX H100 has eleven RDMA devices, eight of them of the fabric."""
    for number in range(nics):
        device = root / f"sys/class/infiniband/mlx5_{number}"
        netdev = f"eth{number}"
        interface = root / "sys/class/net" / netdev
        files = {device / "ports/1/gid_attrs/ndevs/0": netdev, interface / "ifindex": number + 2}
        files |= {interface / "speed": 400000, interface / "carrier_down_count": 1}
        files |= {interface / "carrier_up_count": 2}
        files |= {device / f"ports/1/hw_counters/{n[5:]}": 1 for n in names("mlx5") if n.startswith("rdma.")}
        files |= {device / f"ports/1/counters/port_{n}": 1 for n in range(20)}
        files |= {interface / f"statistics/{n}": 1 for n in [f"rx_{i}" for i in range(24)]}
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
        driver = root / "sys/bus/pci/drivers/mlx5_core"
        driver.mkdir(parents=True, exist_ok=True)
        pci = root / f"sys/devices/0000:{number:02x}:00.0"
        pci.mkdir(parents=True)
        (pci / "driver").symlink_to(driver)
        (device / "device").symlink_to(pci)


def test_a_host_is_read_as_its_record_takes_it(tmp_path, monkeypatch):
    """Catches: a reading that collection refuses, or whose driver, link or health it does not have."""
    host(tmp_path, 2)
    monkeypatch.setattr(ethtool_stats, "ethtool_family", lambda: 21)
    monkeypatch.setattr(ethtool_stats, "statistics", lambda _netdev: {"rx_crc_errors_phy": 4})
    monkeypatch.setattr(ethtool_stats, "fec", lambda _netdev, _family: {"uncorrectable_blocks": 5})
    monkeypatch.setattr(counters, "devlink_health", lambda: {"0000:01:00.0": {"devlink.fw_errors": 6}})
    found = counters.read_devices(tmp_path, live=True)
    file = tmp_path / "counters.n1.before.json"
    file.write_text(json.dumps({"node": "n1", "when": "before", "took_s": 0.1, "devices": found}))
    read = read_counters(file)
    last = read.devices["mlx5_1"]
    assert (read.about["mlx5_1"].driver, read.about["mlx5_1"].speed_mbps) == ("mlx5_core", 400000)
    assert (last["ethtool.rx_crc_errors_phy"], last["fec.uncorrectable_blocks"]) == (4, 5)
    assert (last["devlink.fw_errors"], last["netdev.carrier_down_count"]) == (6, 1)
    assert "devlink.fw_errors" not in read.devices["mlx5_0"]


def test_a_nic_that_refuses_costs_only_itself(tmp_path, monkeypatch):
    """Catches: one dead NIC that ends the reading of the whole node, or that is silent about it."""
    host(tmp_path, 2)

    def refuse(netdev):
        if netdev == "eth0":
            raise OSError(5, "Input/output error")
        return {"rx_crc_errors_phy": 1}

    monkeypatch.setattr(ethtool_stats, "ethtool_family", lambda: 0)
    monkeypatch.setattr(ethtool_stats, "statistics", refuse)
    monkeypatch.setattr(counters, "devlink_health", dict)
    first, second = counters.read_devices(tmp_path, live=True)
    assert first["unread"] == {"ethtool.": "ethtool -S eth0: Input/output error"}
    assert second["unread"] == {} and second["counters"]["ethtool.rx_crc_errors_phy"] == 1


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOENT, 524])
def test_what_a_nic_has_not_is_no_failure(number, tmp_path, monkeypatch):
    """Catches: a NIC whose driver has no FEC or statistics told as one whose counters could not be read."""
    host(tmp_path, 1)

    def refuse(*_):
        raise OSError(number, "not here")

    monkeypatch.setattr(ethtool_stats, "ethtool_family", lambda: 21)
    monkeypatch.setattr(ethtool_stats, "statistics", refuse)
    monkeypatch.setattr(ethtool_stats, "fec", refuse)
    monkeypatch.setattr(counters, "devlink_health", dict)
    (only,) = counters.read_devices(tmp_path, live=True)
    assert only["unread"] == {}
    assert only["flaws"] == ["ethtool -S eth0: not here", "ethtool -I --show-fec eth0: not here"]
    monkeypatch.setattr(ethtool_stats, "ethtool_family", refuse)
    (only,) = counters.read_devices(tmp_path, live=True)
    assert only["unread"] == {}


def test_every_source_that_fails_says_so(tmp_path, monkeypatch):
    """Catches: netlink, devlink, a file of sysfs or the modules' reader that fails as if there were none."""
    host(tmp_path, 1)

    def refuse(words):
        def fail(*_):
            raise words

        return fail

    monkeypatch.setattr(ethtool_stats, "ethtool_family", refuse(TimeoutError("timed out")))
    monkeypatch.setattr(ethtool_stats, "statistics", lambda _netdev: {"a": 1})
    monkeypatch.setattr(counters, "devlink_health", refuse(counters.UnreadError("devlink: dead")))
    monkeypatch.setattr(modules, "readings", lambda: {"eth0": ({"unread": 1}, "its reader has stopped")})
    file, read = tmp_path / "sys/class/net/eth0/carrier_down_count", Path.read_bytes

    def broken(path):
        if path == file:
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", broken)
    (only,) = counters.read_devices(tmp_path, live=True)
    assert only["unread"] == {
        "fec.": "netlink family of ethtool: timed out",
        "devlink.": "devlink: dead",
        "dom.": "module of eth0: its reader has stopped",
        "netdev.carrier_down_count": f"{file}: Input/output error",
    }


@cases(
    "script, has_devlink, says",
    ("echo '{}'", True, None),
    ("exit 0", True, None),
    ("echo 'Object \"health\" not found' >&2; exit 254", True, None),
    ("echo 'kernel answers: Operation not supported' >&2; exit 1", True, None),
    ("echo 'Failed to connect to devlink Netlink' >&2; exit 1", False, None),
    ("echo 'Failed to connect to devlink Netlink' >&2; exit 1", True, "Failed to connect"),
    ("echo 'kernel answers: Connection timed out' >&2; exit 1", True, "Connection timed out"),
    ("exit 3", True, "exit status 3"),
    ("echo '{'", True, "no JSON"),
    ("sleep 9", True, "no answer within"),
)
def test_devlink_that_fails_is_no_devlink_without_reporters(script, has_devlink, says, tmp_path, monkeypatch):
    """Catches: firmware errors that nobody could ask for told as if no NIC counted them; old hosts blamed."""
    tool = tmp_path / "devlink"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(counters, "_DEVLINK_SECONDS", 0.5)

    def family(_name):
        if not has_devlink:
            raise OSError(errno.ENOENT, "No such file or directory")
        return 22

    monkeypatch.setattr(ethtool_stats, "netlink_family", family)
    if says is None:
        assert counters.devlink_health() == {}
    else:
        with pytest.raises(counters.UnreadError, match=says):
            counters.devlink_health()


@pytest.mark.slow
def test_eleven_nics_are_read_within_300_ms(tmp_path, monkeypatch):
    """Catches: NICs read one after the other: each takes 20 ms for its statistics and 5 for FEC here."""
    host(tmp_path)

    def slow(seconds, found):
        time.sleep(seconds)
        return found

    of_mlx5 = {name.removeprefix("ethtool."): 1 for name in names("mlx5") if name.startswith("ethtool.")}
    monkeypatch.setattr(ethtool_stats, "ethtool_family", lambda: 21)
    monkeypatch.setattr(ethtool_stats, "statistics", lambda _netdev: slow(0.02, of_mlx5))
    monkeypatch.setattr(ethtool_stats, "fec", lambda _netdev, _family: slow(0.005, {"corrected_bits": 1}))
    monkeypatch.setattr(counters, "devlink_health", lambda: slow(0.02, {}))
    lanes = {f"{what}.lane{n}": 7_000 for what in ("bias_ua", "tx_power_nw", "rx_power_nw") for n in range(8)}
    told = {"values": {"alarms": 0, "warnings": 0, **lanes}, "why": ""}
    document = {"schema": 1, "taken_s": time.time(), "netdevs": {f"eth{n}": told for n in range(11)}}
    (tmp_path / "modules.json").write_text(json.dumps(document))
    readings = modules.readings
    monkeypatch.setattr(modules, "readings", lambda: readings(tmp_path / "modules.json"))
    took = []
    for _ in range(5):
        began = time.monotonic()
        found = counters.read_devices(tmp_path, live=True)
        assert [device["counters"]["dom.alarms"] for device in found] == [0] * 11
        took.append(time.monotonic() - began)
    # The quickest of five: what the reading itself costs on a machine that has other work.
    print(f"11 NICs: {1000 * min(took):.0f} ms, at worst {1000 * max(took):.0f} ms")
    assert min(took) <= 0.3

"""What optical modules say of themselves: read by the node's timer, taken by a job beside its counters."""

import json
from pathlib import Path

import pytest
from host_settings import cli, modules
from host_settings.system import Done, System, ToolError

from shakedown.onnode import counters
from shakedown.onnode import counters as of_node
from tests.kit.cases import cases

# Made after ethtool's sources: qsfp.c (SFF-8636), cmis.c and sfpdiag.c (SFF-8472).
QSFP = (Path(__file__).parent / "printed/qsfp.txt").read_text()
HEALTHY = QSFP.replace(": On", ": Off")
COPPER = "\tIdentifier                                : 0x11 (QSFP28)\n\tPassive Cu cmplnce.        : 0x01\n"


class Node(System):
    """A host with three NICs and a bridge; `said` is what ethtool prints of each NIC."""

    def __init__(self, root: Path, **said: Done | ToolError) -> None:
        super().__init__(str(root))
        self.said, self.ran = said, []
        for name in said:
            (root / "sys/class/net" / name / "device/driver").mkdir(parents=True, exist_ok=True)
        (root / "sys/class/net/br0").mkdir(parents=True, exist_ok=True)

    def run(self, *argv):  # noqa: D102
        self.ran.append(argv)
        told = self.said[argv[2]]
        if isinstance(told, ToolError):
            raise told
        return told


def test_flags_and_values_are_read_and_thresholds_are_no_flags():
    """Catches: an alarm that is missed, a threshold's line taken for a value or a flag, a wrong unit."""
    assert modules.parse(QSFP) == {
        "alarms": 1,
        "warnings": 1,
        "temperature_mc": 41_700,
        "voltage_uv": 3_294_700,
        "bias_ua.lane1": 6_750,
        "tx_power_nw.lane1": 891_300,
        "rx_power_nw.lane1": 10_200,
    }
    single = "\tReceiver signal average optical power     : 0.3195 mW / -4.96 dBm\n"
    assert modules.parse(single) == {"rx_power_nw": 319_500}


# What sff-common.c prints of thresholds, and four lanes of which none raises a flag.
LIMITS = (Path(__file__).parent / "printed/limits.txt").read_text()


def lanes(third="6.750 mA|0.8913|0.9110"):
    """A module of four lanes, with the third one's current, sent light and received light (mW)."""
    lines = ["\tModule temperature : 41.70 degrees C / 107.05 degrees F", "\tModule voltage : 3.2947 V"]
    for lane in range(1, 5):
        bias, sent, received = (third if lane == 3 else "6.750 mA|0.8913|0.9110").split("|")
        lines += [
            f"\tLaser bias current (Channel {lane})            : {bias}",
            f"\tTransmit avg optical power (Channel {lane})    : {sent} mW / -0.50 dBm",
            f"\tRcvr signal avg optical power(Channel {lane})  : {received} mW / -0.40 dBm",
        ]
    return "\n".join(lines) + "\n" + LIMITS


@pytest.mark.parametrize("flags", [HEALTHY.splitlines()[4:7], []], ids=["flags-off", "no-flags"])
@cases(
    "third, alarms, warnings",
    ("6.750 mA|0.8913|0.9110", 0, 0),
    ("6.750 mA|0.8913|0.0400", 0, 1),
    ("6.750 mA|0.8913|0.0102", 1, 1),
    ("6.750 mA|2.5000|0.9110", 1, 0),
    ("14.100 mA|0.8913|0.9110", 1, 0),
    ("0.000 mA|0.0000|0.0000", 0, 0),
    ids=["healthy", "weak", "dark", "bright", "worn-out", "switched-off"],
)
def test_one_lane_beyond_the_modules_own_threshold_is_up_without_a_flag(flags, third, alarms, warnings):
    """Catches: weak light of one lane passed since no flag is on; a lane that is not used taken for weak."""
    found = modules.parse(lanes(third) + "\n".join(flags) + "\n")
    assert (found["alarms"], found["warnings"]) == (alarms, warnings)


def test_a_hot_module_and_thresholds_that_are_none():
    """Catches: heat beyond the module's own limit, or a module without thresholds that always alarms."""
    hot = modules.parse(lanes().replace(": 41.70 degrees", ": 76.10 degrees"))
    assert (hot["alarms"], hot["warnings"]) == (1, 1)
    none = lanes().partition("\tLaser bias current high alarm threshold")[0]
    assert "alarms" not in modules.parse(none)


def test_a_flag_between_two_jobs_readings_is_not_lost(tmp_path):
    """Catches: a latched alarm that the next reading of the timer clears in mid-job."""
    node = Node(tmp_path, fab0=Done(0, QSFP, ""))
    modules.write(node)
    node.said["fab0"] = Done(0, HEALTHY, "")
    modules.write(node)
    ((values, why),) = of_node.readings(tmp_path / "run/shakedown/modules.json").values()
    assert (values["alarms"], values["alarms_seen"], why) == (0, 1, "")


@cases(
    "failed", Done(1, "", "netlink error: Input/output error"), ToolError("ethtool did not end within 30 s")
)
def test_a_module_that_can_be_read_no_more_is_no_copper(tmp_path, failed):
    """Catches: a module whose EEPROM answers no more, taken for one that never had anything to say."""
    node, file = Node(tmp_path, fab0=Done(0, QSFP, ""), fab1=failed), tmp_path / "run/shakedown/modules.json"
    modules.write(node)
    first = of_node.readings(file)["fab0"][0]
    node.said["fab0"] = failed
    for _ in range(2):  # not only the next time
        modules.write(node)
        found = of_node.readings(file)
        assert found["fab0"][0].keys() == {"alarms_seen", "warnings_seen", "unread"} and found["fab0"][1]
        assert found["fab1"][0] == {}
    node.said["fab0"] = Done(0, HEALTHY, "")
    modules.write(node)
    again = of_node.readings(file)["fab0"][0]
    assert "unread" not in again and again["alarms_seen"] == first["alarms_seen"]
    node.said["fab0"] = Done(0, COPPER, "")  # another was plugged in
    modules.write(node)
    node.said["fab0"] = failed
    modules.write(node)
    assert of_node.readings(file)["fab0"][0] == {}


def test_copper_and_refusals_are_said_and_only_nics_are_asked(tmp_path):
    """Catches: copper that fails, a bridge that is asked, one NIC that hides the others."""
    node = Node(
        tmp_path,
        fab0=Done(0, COPPER, ""),
        fab1=Done(1, "", "netlink error: Operation not supported"),
        fab2=ToolError("ethtool is not installed"),
    )
    told = modules.document(node)["netdevs"]
    assert {name: entry["why"] for name, entry in told.items()} == {
        "fab0": "the module has no diagnostics",
        "fab1": "netlink error: Operation not supported",
        "fab2": "ethtool is not installed",
    }
    assert all(entry["values"] == {} for entry in told.values())
    assert node.ran == [("ethtool", "-m", name) for name in ("fab0", "fab1", "fab2")]


def test_the_reader_takes_nothing_in_and_has_one_right():
    """Catches: a user who tells it what to read or starts it, and a right beside the one that it takes."""
    units = Path(__file__).parents[4] / "roles/host_settings/files/systemd"
    unit = (units / "host-settings-modules.service").read_text()
    assert "ExecStart=/usr/local/libexec/shakedown/host-settings modules\n" in unit
    assert "CapabilityBoundingSet=CAP_NET_ADMIN\n" in unit and "NoNewPrivileges=yes" in unit
    assert "ReadWritePaths=/run/shakedown\n" in unit and "ProtectSystem=strict" in unit
    assert not (units / "host-settings-modules.socket").exists()


def test_the_program_ignores_what_it_is_told(tmp_path, monkeypatch):
    """Catches: a file or NIC named from outside."""
    monkeypatch.setattr(cli, "System", lambda root, probes: Node(tmp_path, fab0=Done(0, QSFP, "")))
    assert cli.main(["modules", "/etc/shadow"]) == 0
    document = json.loads((tmp_path / "run/shakedown/modules.json").read_text())
    assert list(document["netdevs"]) == ["fab0"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"taken_s": 1}', '{"taken_s": "x", "netdevs": {}}', '{"taken_s": 1, "netdevs": {"a": 1}}'],
)
def test_a_damaged_file_is_no_reading(tmp_path, text):
    """Catches: a job that ends because of what a reader left half-written."""
    file = tmp_path / "modules.json"
    file.write_text(text)
    assert of_node.readings(file) == {}


def test_an_old_reading_counts_for_nothing_and_is_said(tmp_path):
    """Catches: a timer that stopped a month ago, whose values pass as today's."""
    file = tmp_path / "modules.json"
    values = {"alarms": 0, "rx_power_nw.lane1": 5, "Bad Name": 1, "warnings": -1}
    file.write_text(json.dumps({"taken_s": 1000.0, "netdevs": {"fab0": {"values": values, "why": ""}}}))
    fresh = of_node.readings(file, now_s=1060.0)
    assert fresh == {"fab0": ({"alarms": 0, "rx_power_nw.lane1": 5}, "")}
    why = "read 8000 s ago: its reader has stopped"
    assert of_node.readings(file, now_s=9000.0)["fab0"] == ({"unread": 1}, why)


def test_a_jobs_reading_has_them_beside_the_counters(tmp_path, monkeypatch):
    """Catches: alarms that are read and never collected, copper that is not said."""
    for number in range(2):
        port = tmp_path / f"sys/class/infiniband/mlx5_{number}/ports/1/gid_attrs/ndevs"
        port.mkdir(parents=True)
        (port / "0").write_text(f"fab{number}\n")
    told = {"fab0": ({"alarms": 1}, ""), "fab1": ({}, "the module has no diagnostics")}
    monkeypatch.setattr(of_node, "readings", lambda: told)
    monkeypatch.setattr(counters.ethtool_stats, "ethtool_family", lambda: 0)
    monkeypatch.setattr(counters, "devlink_health", dict)
    one, other = counters.read_devices(tmp_path, live=True)
    assert one["counters"]["dom.alarms"] == 1
    assert "module of fab1: the module has no diagnostics" in other["flaws"]

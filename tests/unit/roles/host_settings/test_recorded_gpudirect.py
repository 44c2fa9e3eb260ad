"""The target gpudirect on recorded machines: which modules, which bridges and which NICs it touches."""

import json
import re
import struct

import fake_host
import pytest
from host_settings import arp, drivers, engine, targets

from shakedown.onnode import topology_probe
from shakedown.topology.host_map import acs_bridges, parse_topology
from tests.kit.cases import cases
from tests.machines.recorded import CASES, Machine, bdf_of

_RULES = {"mlx5_core": "mlx5", "bnxt_en": "bnxt"}


@pytest.fixture(params=CASES, ids="-".join)
def planted(request, tmp_path, fake_system):
    """A recorded machine, the program's view of it, and the target as the role would write it."""
    machine, root = Machine(*request.param), tmp_path / "root"
    machine.plant(root)
    state = {"registers": machine.registers(), "modules_on_disk": machine.stack.get("modules_on_disk", {})}
    fake = fake_host.Fake(state)
    fake.root = root
    wanted = {
        "schema": 1,
        "nics": [nic["netdev"] for nic in machine.fabric],
        # As the role's filter gives them.
        "acs_bridges": acs_bridges(parse_topology(json.dumps(topology_probe.document(root)))),
        "max_read_request": 4096,
        "min_payload": 256,
        "min_bar_mib": 1024,
        "peer_memory": "auto",
    }
    folder = tmp_path / "desired"
    folder.mkdir()
    (folder / "gpudirect.json").write_text(json.dumps(wanted))
    system = fake_system(fake)
    return machine, fake, system, targets.load_target(system, "gpudirect", folder)


def test_modules_are_those_of_the_stack_and_foreign_nics_stay_as_they_are(planted):
    """Catches: a peer module that this stack does not need or cannot load; a storage NIC's register set."""
    machine, fake, system, target = planted
    report = engine.apply(system, target)
    assert report["ok"], [s for s in report["settings"] if not s["ok"]]
    words = [" ".join(argv) for argv in fake.log]
    assert [w.removeprefix("modprobe ") for w in words if w.startswith("modprobe")] == machine.stack["loads"]
    touched = {found[1] for w in words if (found := re.match(r"setpci -s (\S+) ", w))}
    assert touched == {bdf_of(nic["path"]) for nic in machine.fabric} | set(machine.between())
    before = dict(machine.registers())
    engine.rollback(system, target)
    assert fake.state["registers"] == before
    assert not list((fake.root / "etc/modules-load.d").glob("*"))


def test_every_nic_has_the_rules_of_its_driver(planted):
    """Catches: a management NIC of another driver configured as RoCE's, a fabric NIC that is refused."""
    machine, _, system, _ = planted
    for nic in machine.fabric:
        assert drivers.driver_for(system, nic["netdev"]).__name__ == f"host_settings.{_RULES[nic['driver']]}"
    for nic in machine.others:
        if nic["driver"] not in _RULES:
            with pytest.raises(targets.BadDesired, match="which has no rules here"):
                drivers.driver_for(system, nic["netdev"])


MAC, STRANGER = "52:54:00:0b:02:00", "52:54:00:02:09:01"
ADDRESS = bytes([10, 10, 0, 1])
RXE = {"netdev": "fab0", "rdma_device": "rxe0", "ipv4": "10.10.0.1/24", "link_speed_gbps": 1}


def frame(sender: str, address: bytes = ADDRESS, *, what: int = 2, ether: int = 0x0806) -> bytes:
    """An ARP message as it arrives."""
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, what) + bytes.fromhex(sender.replace(":", ""))
    return bytes(12) + struct.pack("!H", ether) + body + address + bytes(10) + bytes(18)


def test_a_probe_claims_nothing():
    """Catches: a question that itself takes the address in every cache of the rail (RFC 5227, 2.1.1)."""
    sent = arp.probe(bytes.fromhex(MAC.replace(":", "")), ADDRESS)
    assert sent[:6] == b"\xff" * 6
    assert sent[12:22].hex() == "08060001080006040001"
    assert sent[28:32] == bytes(4), "the sender's address is zero"
    assert sent[38:42] == ADDRESS
    assert len(sent) == 42


@cases(
    "heard, owner",
    (frame(STRANGER), STRANGER),
    (frame(STRANGER, what=1), STRANGER),  # a request from that address claims it as well
    (frame(STRANGER, bytes([10, 10, 0, 2])), None),
    (frame(STRANGER, bytes(4), what=1), None),  # another's probe
    (frame(STRANGER, ether=0x0800), None),
    (frame(STRANGER)[:30], None),
    (b"", None),
)
def test_only_who_claims_the_address_owns_it(heard, owner):
    """Catches: a passer-by taken for an owner, or a cut frame that ends the program."""
    assert arp.owner(heard, ADDRESS) == owner


class Wire:
    """A packet socket on a network where others answer."""

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.sent, self.bound = list(answers), [], ()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def bind(self, where):
        """Note the NIC."""
        self.bound = where

    def settimeout(self, seconds):
        """Refuse what a socket refuses."""
        assert seconds > 0

    def send(self, sent):
        """Note the probe."""
        self.sent.append(sent)

    def recv(self, _size):
        """Return the next answer."""
        if not self.answers:
            raise arp.socket.timeout
        return self.answers.pop(0)


def test_every_other_owner_is_told_once(monkeypatch):
    """Catches: the NIC's own announcement as a second owner, or only the first answer heard."""
    monkeypatch.setattr(arp, "LISTEN_S", 0.1)
    wire = Wire(frame(MAC), frame(STRANGER), frame(STRANGER), frame("52:54:00:00:00:05"))
    monkeypatch.setattr(arp.socket, "socket", lambda *_: wire)
    assert arp.owners("fab0", MAC, "10.10.0.1") == ["52:54:00:00:00:05", STRANGER]
    assert wire.sent
    assert wire.bound == ("fab0", 0x0806)


@pytest.fixture
def probing(host, monkeypatch):
    """A host with a NIC that may ask the network; what it hears is given."""
    nic = host("virtio_rxe", **RXE)
    nic("apply")
    nic.fake.write("/sys/class/net/fab0/address", MAC)
    nic.system.probes = True

    def heard(*found):
        def owners(*_):
            if found and isinstance(found[0], OSError):
                raise found[0]
            return list(found)

        monkeypatch.setattr(arp, "owners", owners)
        return nic("check")

    return heard


def differs(report):
    """What is not as wanted, by key."""
    return {s["key"]: s["found"] for s in report["settings"] if not s["ok"]}


def test_a_second_owner_is_a_difference(probing):
    """Catches: a duplicate address that the read-back passes over."""
    assert differs(probing()) == {}
    assert differs(probing(STRANGER)) == {"ipv4.duplicates": [STRANGER]}
    assert differs(probing(MAC)) == {}, "another NIC of this machine is no second owner"


def test_without_the_rights_it_says_so(probing):
    """Catches: no right to ask, read as nobody else."""
    report = probing(PermissionError(1, "Operation not permitted"))
    reasons = {e["key"]: e["reason"] for e in report["not_applicable"]}
    assert "Operation not permitted" in reasons["ipv4.duplicates"]
    assert "ipv4.duplicates" not in [s["key"] for s in report["settings"]]


def test_nothing_is_asked_of_the_network_unless_told(host, monkeypatch):
    """Catches: a start of the machine that waits a second for every NIC."""
    nic = host("virtio_rxe", **RXE)
    monkeypatch.setattr(arp, "owners", lambda *_: pytest.fail("asked"))
    nic("apply")
    assert "ipv4.duplicates" not in [s["key"] for s in nic("check")["settings"]]


def test_a_further_address_and_its_gid_are_differences(host):
    """Catches: an address that nobody planned, passed because the planned one is there."""
    nic = host("virtio_rxe", **RXE)
    nic("apply")
    nic.fake.state["ipv4_more"] = ["10.10.0.99/24"]
    nic.fake.write("/sys/class/infiniband/rxe0/ports/1/gids/2", "0000:0000:0000:0000:0000:ffff:0a0a:0063")
    nic.fake.write("/sys/class/infiniband/rxe0/ports/1/gids/0", "fe80:0000:0000:0000:5054:00ff:fe0b:0200")
    assert differs(nic("check")) == {"ipv4.others": ["10.10.0.99/24"], "gid.others": ["10.10.0.99"]}

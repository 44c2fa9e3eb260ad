"""The target gpudirect on recorded machines: which modules, which bridges and which NICs it touches."""

import json
import re

import fake_host
import pytest
from host_settings import drivers, engine, targets

from shakedown.onnode import topology_probe
from shakedown.topology.host_map import acs_bridges, parse_topology
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

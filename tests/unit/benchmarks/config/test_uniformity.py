"""Like parts must be alike, and clocks: what differs is found on the node that differs, and told."""

import importlib.util
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from shakedown.benchmarks.config.odd_parts import odd_parts
from shakedown.collect.run import collect
from shakedown.judge.verdict import judge
from shakedown.records.results import ClockReading, Snapshot
from shakedown.references.catalogue import Catalogue
from shakedown.run.folder import Run
from tests.kit.cases import cases
from tests.kit.run import gather, write_run
from tests.kit.site import fabric, plan_site, with_nics

NODE = {"product": "XE9680", "bios_version": "2.4.4", "kernel": "6.8.0-45"}
NIC = {"driver": "mlx5_core", "psid": "MT_0000000838", "firmware": "28.39.1002"}
NIC |= {"mtu_bytes": "9000", "speed_mbps": "400000"}


def inventory(**changes) -> Snapshot:
    """Four nodes with a NIC and a tool each, and a switch; `changes` by host and kind, such as n2_nic."""
    parts = []
    for host in ("n1", "n2", "n3", "n4"):
        for kind, name, attributes in (
            ("node", host, NODE),
            ("nic", "eth2", NIC),
            ("software", "perftest", {"version": "6.24"}),
            *([("gpu", "gpu0", {})] if f"{host}_gpu" in changes else []),
        ):
            mine = attributes | changes.get(f"{host}_{kind}", {})
            parts.append({"host": host, "kind": kind, "name": name, "attributes": mine})
    parts.append({"host": "leaf0", "kind": "switch", "name": "leaf0", "attributes": {"bios_version": "9"}})
    parts.append({"host": "leaf0", "kind": "nic", "name": "swp1", "attributes": {"psid": "MT_0000000838"}})
    return Snapshot.model_validate({"schema": 1, "run": "r1", "taken": "now", "components": parts})


def odd(found: Snapshot) -> dict[tuple[str, str], str]:
    """What is odd, by host and kind."""
    return {(host, kind): why for host, kind, count, why in odd_parts(found) if count}


def test_like_nodes_are_alike_and_switches_no_part_of_it():
    """Catches a switch's ports taken for NICs of the nodes' class."""
    assert odd(inventory()) == {}
    assert {host for host, *_ in odd_parts(inventory())} == {"n1", "n2", "n3", "n4"}


@cases(
    "changes, where, words",
    (
        {"n2_nic": {"firmware": "28.38.1900"}},
        ("n2", "nic"),
        "eth2 firmware is 28.38.1900, 28.39.1002 on 3 others",
    ),
    ({"n3_node": {"bios_version": "2.3.0"}}, ("n3", "node"), "bios_version is 2.3.0, 2.4.4 on 3 others"),
    ({"n4_software": {"version": "6.20"}}, ("n4", "software"), "perftest version is 6.20, 6.24 on 3 others"),
    ({"n1_nic": {"firmware": ""}}, ("n1", "nic"), "eth2 firmware is not there, 28.39.1002 on 3 others"),
)
def test_the_odd_one_is_named(changes, where, words):
    """Each entry is a node that was forgotten when the others were updated."""
    assert odd(inventory(**changes)) == {where: words}


MEMORY = {"memory_kib": "2113533440", "cpus": "192"}


@cases(
    "n2, words",
    # Of 32 modules of 64 GiB one is missing; the kernel of n3 keeps 0.2 % more for itself.
    ({**MEMORY, "memory_kib": "2046424576"}, "memory_kib is 2046424576, 2113533440 on 3 others"),
    ({**MEMORY, "cpus": "96"}, "cpus is 96, 192 on 3 others"),
    (MEMORY, None),
)
def test_a_node_with_less_memory_or_fewer_cpus_than_its_like_is_named(n2, words):
    """Catches: a node that was delivered with a DIMM or half of its CPUs less, and passes."""
    nodes = {f"n{n}_node": MEMORY for n in (1, 4)}
    n3 = {**MEMORY, "memory_kib": "2109306368"}
    found = odd(inventory(**nodes, n2_node=n2, n3_node=n3))
    assert found == ({("n2", "node"): words} if words else {})


def test_a_node_with_fewer_gpus_or_others_is_named():
    """Catches: a GPU that fell off the bus before anybody looked, and one of another model."""
    found = inventory()
    gpus = [
        {"host": f"n{n}", "kind": "gpu", "name": f"gpu{i}", "attributes": {"name": "NVIDIA H200"}}
        for n in (1, 2, 3, 4)
        for i in range(8 if n != 2 else 7)
    ]
    gpus[-1]["attributes"] = {"name": "NVIDIA A10"}
    more = Snapshot.model_validate({**found.model_dump(by_alias=True), "components": gpus}).components
    assert odd(found.model_copy(update={"components": (*found.components, *more)})) == {
        ("n2", "node"): "gpus is 7 x NVIDIA H200, 8 x NVIDIA H200 on 2 others",
        ("n4", "node"): "gpus is 1 x NVIDIA A10, 7 x NVIDIA H200, 8 x NVIDIA H200 on 2 others",
    }


@cases(
    "where, narrow, wide",
    ("nic", {"pcie": "32.0 GT/s x8 of 32.0 GT/s x16"}, {"pcie": "32.0 GT/s x16"}),
    ("node", {"iommu": "DMA-FQ"}, {"iommu": "identity"}),
    ("node", {"kernel_options": "pci=noats"}, {"kernel_options": "iommu=pt"}),
    ("gpu", {"power_limit_w": "500.00"}, {"power_limit_w": "700.00"}),
    ("gpu", {"mig_mode_current": "Enabled"}, {"mig_mode_current": "Disabled"}),
)
def test_a_narrow_link_or_another_iommu_is_named_without_the_reader_of_settings(where, narrow, wide):
    """Catches: a NIC in half of its lanes that is only slow where nothing of ours may be installed."""
    found = odd(inventory(**{f"n{n}_{where}": narrow if n == 2 else wide for n in (1, 2, 3, 4)}))
    assert list(found) == [("n2", where)]
    ((name, value),) = narrow.items()
    assert f"{name} is {value}, {wide[name]} on" in found["n2", where]


def test_a_submit_host_may_have_less_than_a_node():
    """Catches: a login node blamed for its memory, or nodes for the login node's."""
    small = {"memory_kib": "65536000", "cpus": "8"}
    nodes = {f"n{n}_node": MEMORY for n in (1, 2, 3)}
    found = inventory(**nodes, n4_node=small)
    assert not [why for host, _, count, why in odd_parts(found, {"n1", "n2", "n3"}) if count]


def test_nics_of_another_board_are_another_class():
    """Catches two models in one node blamed for different firmware."""
    assert odd(inventory(n2_nic={"psid": "MT_0000000999", "firmware": "22.1"})) == {}


def without(found: Snapshot, *gone: tuple[str, str, str]) -> Snapshot:
    """The same without some components, each as host, kind and name."""
    kept = (c for c in found.components if (c.host, c.kind, c.name) not in gone)
    return found.model_copy(update={"components": tuple(kept)})


def with_tools(found: Snapshot, *tools: tuple[str, str]) -> Snapshot:
    """The same with further tools, each as host and name."""
    more = (
        {"host": host, "kind": "software", "name": name, "attributes": {"version": "1"}}
        for host, name in tools
    )
    everything = [*(c.model_dump() for c in found.components), *more]
    return Snapshot.model_validate({"schema": 1, "run": "r1", "taken": "now", "components": everything})


def test_a_tool_that_one_node_lacks_is_odd():
    """Catches: a node without a tool, or whose tool told no version, compared with nobody."""
    every = with_tools(inventory(), *((f"n{i}", "ucx") for i in range(1, 5)))
    assert odd(every) == {}
    found = odd(without(every, ("n3", "software", "ucx")))
    assert found == {("n3", "software"): "ucx version is not there, 1 on 3 others"}
    # One that only a single node has is odd there, and not at all others.
    assert set(odd(with_tools(inventory(), ("n2", "ucx")))) == {("n2", "software")}


def test_who_need_not_have_a_tool_is_not_blamed():
    """Catches: a submit host, another product or a node that told of no tool held against the others."""
    every = with_tools(inventory(), *((f"n{i}", "ucx") for i in range(1, 4)))
    assert {h: w for h, _, c, w in odd_parts(every, {"n1", "n2", "n3"}) if c} == {}
    other = inventory(n4_node={"product": "R760"})
    assert odd(with_tools(other, *((f"n{i}", "ucx") for i in range(1, 4)))) == {}
    silent = without(inventory(), ("n4", "software", "perftest"))
    assert odd(silent) == {} and ("n4", "software") not in {(h, k) for h, k, *_ in odd_parts(silent)}


RDMA = {"rdma_device": "mlx5_0"}


@cases(
    "gone",
    {"psid": "", "firmware": ""},  # devlink and ethtool -i told only the driver
    {"psid": "", "firmware": "", "driver": ""},  # neither told anything
)
def test_a_nic_that_tells_nothing_is_not_alone_in_a_class_of_its_own(gone):
    """Catches: the one NIC without a firmware version, which is like all others that tell as little."""
    all_rdma = {f"n{i}_nic": RDMA for i in range(1, 5)}
    found = odd(inventory(**{**all_rdma, "n2_nic": RDMA | gone}))
    assert set(found) == {("n2", "nic")}
    assert found["n2", "nic"].endswith("eth2 firmware is not there, 28.39.1002 on 3 others")


def test_nics_whose_driver_tells_no_firmware_are_alike():
    """Catches: virtual NICs, which have no firmware, blamed for it; or NICs that are not of the fabric."""
    virtual = {f"n{i}_nic": RDMA | {"driver": "virtio_net", "psid": "", "firmware": ""} for i in range(1, 5)}
    assert odd(inventory(**virtual)) == {}
    assert odd(inventory(n2_nic={"driver": "igc", "psid": "", "firmware": ""})) == {}


def test_without_a_majority_all_are_odd():
    """Catches half a cluster taken for the standard by the order of names."""
    halves = {f"n{i}_nic": {"firmware": "1" if i < 3 else "2"} for i in range(1, 5)}
    assert sorted(host for host, _ in odd(inventory(**halves))) == ["n1", "n2", "n3", "n4"]


@pytest.fixture
def run(tmp_path):
    """A run of four nodes with an inventory; returns the cells that did not pass."""
    plan, jobs = plan_site(with_nics(fabric(), ("n1", "n2", "n3", "n4")), Catalogue([]))
    write_run(tmp_path, plan, jobs)
    (tmp_path / "raw").mkdir()

    def judged(found: Snapshot | None, of: tuple[str, ...] = ("inventory",)) -> dict[str, tuple[str, str]]:
        if found:
            (tmp_path / "inventory.json").write_text(found.model_dump_json(by_alias=True))
        collect(tmp_path)
        verdict = judge(plan, list(Run(tmp_path).measurements()), [])
        return {c.cell: (c.outcome.value, c.reason) for c in verdict.cells if c.cell.split("/")[1] in of}

    return judged


def test_mixed_firmware_fails_the_run_on_the_node_that_has_it(run):
    """Catches an inventory that is taken and judged by nobody."""
    assert run(inventory()) == {}
    [(cell, (outcome, reason))] = run(inventory(n2_nic={"firmware": "28.38.1900"})).items()
    assert (cell, outcome) == ("config/inventory/odd/n2/-/-/part=nic", "FAIL")
    assert "28.38.1900" in reason


@cases(
    "changed, words",
    ({"mtu_bytes": "1500"}, "eth2 mtu_bytes is 1500, the intent has 9000"),
    ({"speed_mbps": "200000"}, "eth2 speed_mbps is 200000, the intent has 400000"),
    ({"speed_mbps": ""}, "eth2 speed_mbps is not there, the intent has 400000"),
    ({"mac": "52:54:00:00:00:07"}, "eth2 mac is 52:54:00:00:00:07, the read-back has 52:54:00:00:00:02"),
)
def test_a_nic_unlike_what_its_settings_are_fails(run, tmp_path, changed, words):
    """Catches: two witnesses of one NIC, the snapshot and the read-back, of which one is never looked at."""
    report = {"settings": [{"key": "mac", "found": "52:54:00:00:00:02"}]}
    (tmp_path / "raw/config.settings.a1").mkdir()
    (tmp_path / "raw/config.settings.a1/settings.n2.eth2.json").write_text(json.dumps(report))
    healthy = {"mac": "52:54:00:00:00:02"}
    assert run(inventory(n2_nic=healthy)) == {}
    [(cell, (outcome, reason))] = run(inventory(n2_nic=healthy | changed)).items()
    assert (cell, outcome) == ("config/inventory/odd/n2/-/-/part=nic", "FAIL")
    assert words in reason


def test_no_inventory_is_not_run(run):
    """Catches a run without an inventory whose uniformity passes."""
    cells = run(None)
    assert len(cells) == 12
    assert {outcome for outcome, _ in cells.values()} == {"NOT-RUN"}
    assert json.dumps(cells)


MACHINES = {
    f"n{i}": {
        "machine_id": f"m{i}",
        "boot_id": f"b{i}",
        "serial": "To be filled by O.E.M.",
        "board_serial": f"S{i}",
        "ssh_host_keys": "SHA256:one-image",  # nodes without disks boot one image, its keys included
    }
    for i in range(1, 5)
}
SAME = MACHINES["n1"]


def machines(**changes: dict[str, str]) -> Snapshot:
    """Four machines; a host's attributes can be changed, its NIC's by `HOST_nic`."""
    parts = []
    for i, (host, own) in enumerate(MACHINES.items(), start=1):
        guid = f"5054:00ff:fe00:000{i}"
        nic = {"mac": f"52:54:00:00:00:0{i}", "node_guid": guid, "pci": "0000:17:00.0"}
        usb = {"mac": "6e:1a:00:00:00:01", "pci": "usb-0000:00:14.0-1"}  # the BMC's, alike in every server
        of_node, of_nic = {**own, **changes.get(host, {})}, {**nic, **changes.get(f"{host}_nic", {})}
        for kind, name, attributes in (
            ("node", host, of_node),
            ("nic", "eth2", of_nic),
            ("nic", "usb0", usb),
        ):
            parts.append({"host": host, "kind": kind, "name": name, "attributes": attributes})
    # The submit host may be a node as well.
    parts.append({"host": "head", "kind": "node", "name": "head", "attributes": SAME})
    document = {"schema": 1, "run": "r1", "taken": "2026-11-20T00:00:00Z", "components": parts}
    return Snapshot.model_validate(document)


def test_machines_of_one_image_are_different_machines(run):
    """Catches: good nodes accused for what all machines of a vendor, or of an image, have in common."""
    assert run(machines(), ("identity",)) == {}


@cases(
    "changes, words",
    (
        {"n2": SAME, "n2_nic": {"mac": "52:54:00:00:00:01", "node_guid": "5054:00ff:fe00:0001"}},
        "n1 and n2 are one machine: same machine id, same boot id, same serial number of the board, same "
        "MAC address 52:54:00:00:00:01, same RDMA node GUID 5054:00ff:fe00:0001, same SSH host keys",
    ),
    ({"n2": {"boot_id": "b1"}}, "n1 and n2 are one machine: same boot id"),
    (
        {"n2": {"machine_id": "m1", "ssh_host_keys": "SHA256:own"}},
        "n1 and n2 have the same machine id, but nothing else in common: cloned images: give each its "
        "own (rm /etc/machine-id && systemd-machine-id-setup",
    ),
    ({"n2": {"board_serial": "S1"}}, "n1 and n2 look like one machine: same serial number of the board"),
    ({"n2_nic": {"mac": "52:54:00:00:00:01"}}, "n1 and n2 look like one machine: same MAC address 52:54"),
    ({"n2_nic": {"node_guid": "5054:00ff:fe00:0001"}}, "same RDMA node GUID 5054:00ff:fe00:0001"),
)
def test_two_hosts_that_are_one_machine_fail_and_both_are_named(run, changes, words):
    """Catches: one machine under two names, measured against itself, that passes as two."""
    changed = {host: {**MACHINES.get(host, {}), **values} for host, values in changes.items()}
    cells = run(machines(**changed), ("identity",))
    assert sorted(cells) == [f"config/identity/shared/{host}/-/-/-" for host in ("n1", "n2")]
    for outcome, reason in cells.values():
        assert outcome == "FAIL"
        assert words in reason


def test_a_machine_that_nothing_identifies_is_undecided(run):
    """Catches: a host whose snapshot is empty, certified as a machine of its own."""
    nothing = dict.fromkeys(SAME, "")
    no_nic = {"mac": "00:00:00:00:00:00", "node_guid": ""}
    [(cell, (outcome, reason))] = run(machines(n3=nothing, n3_nic=no_nic), ("identity",)).items()
    assert (cell, outcome) == ("config/identity/shared/n3/-/-/-", "INCONCLUSIVE")
    assert "nothing tells it from another machine" in reason


def test_a_damaged_snapshot_costs_its_own_cells(run, tmp_path):
    """Catches: half an inventory.json that stops the whole run."""
    (tmp_path / "inventory.json").write_text('{"schema": 1, "run"')
    cells = run(None, ("identity", "inventory"))
    assert len(cells) == 16
    assert {outcome for outcome, _ in cells.values()} == {"INCONCLUSIVE"}
    assert all("inventory.json: " in reason for _, reason in cells.values())


CHECKOUT = Path(__file__).resolve().parents[4]
CELL = "config/clock/offset/n2/-/-/-"


def reading_of_the_role():
    """Load the role's plugin."""
    path = CHECKOUT / "roles/inventory_snapshot/action_plugins/read_clock.py"
    spec = importlib.util.spec_from_file_location("read_clock", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_round_trips_narrow_each_other():
    """Catches: an offset that is no better known than by the slowest of its round trips."""
    bounds = reading_of_the_role().bounds
    # 90 s ahead; the first round trip waits after the clock was read, the second before it.
    assert bounds([(10.0, 100.1, 12.0), (20.0, 111.9, 22.0)]) == pytest.approx((89.9, 90.1))


def test_a_clock_that_was_set_meanwhile_tells_nothing():
    """Catches: bounds that exclude each other, taken for a reading."""
    bounds = reading_of_the_role().bounds
    assert bounds([(10.0, 10.1, 10.2), (20.0, 50.1, 20.2)]) is None and bounds([]) is None


@pytest.fixture
def verdict(tmp_path):
    """Judge a run of two nodes and a submit host; call it with n2's bounds in seconds."""

    def judged(*clocks: tuple[str, float, float, str], **config: float):
        plan, jobs = plan_site(
            with_nics(fabric(), ("n1", "n2"), acceptance={"config": config}), Catalogue([])
        )
        (tmp_path / "raw").mkdir(exist_ok=True)
        write_run(tmp_path, plan, jobs)
        parts = [{"host": n, "kind": "node", "name": n, "attributes": {"boot_id": n}} for n in plan.nodes]
        found = [dict(zip(("host", "low_s", "high_s", "munge"), clock, strict=True)) for clock in clocks]
        document = {"schema": 1, "run": "r1", "taken": "2026-11-20T00:00:00Z", "components": parts}
        (tmp_path / "inventory.json").write_text(json.dumps(document | {"submit": "head", "clocks": found}))
        measurements, counters = gather(tmp_path)
        return judge(plan, measurements, counters)

    return judged


HEAD = ("head", -0.05, 0.05, "Success")
NEAR = ("n1", -0.1, 0.1, "Success")


def cell(found, name=CELL):
    """Return a cell that did not pass, or None."""
    return next((c for c in found.cells if c.cell == name), None)


def test_a_clock_an_hour_ahead_is_the_first_sentence(verdict):
    """Catches: Slurm's state of the node as the whole story, when its clock is an hour off."""
    found = verdict(HEAD, NEAR, ("n2", 3599.9, 3600.1, "Expired credential"))
    assert found.outcome == "FAIL"
    assert found.reason.startswith(
        "n2's clock is 3600 s ahead of head's (± 0.15 s), at most 1 s allowed; "
        "munge refuses credentials: Expired credential"
    ), found.reason
    assert cell(found, CELL.replace("n2", "n1")) is None


def test_a_clock_behind_is_said_so(verdict):
    """Catches: an offset whose direction is lost or turned round."""
    found = verdict(HEAD, NEAR, ("n2", -90.2, -89.8, "Success"))
    assert "n2's clock is 90 s behind head's" in found.reason and "munge" not in found.reason


@cases(
    "low, high, outcome",
    (-0.5, 0.5, None),
    (0.8, 0.9, None),  # within 0.75 to 0.95 of the submit host's
    (0.9, 1.5, "NOT-RUN"),  # on both sides of the limit
    (-30.0, 30.0, "NOT-RUN"),
    (1.01, 1.04, "NOT-RUN"),  # 0.96 to 1.09: the submit host's own reading has bounds too
    (1.06, 1.1, "FAIL"),
    (-1.1, -1.06, "FAIL"),
)
def test_only_what_the_round_trips_prove_is_decided(verdict, low, high, outcome):
    """Catches: a slow connection that passes or fails a clock by chance."""
    found = cell(verdict(HEAD, NEAR, ("n2", low, high, "")))
    assert (found and found.outcome) == outcome, found
    if outcome == "NOT-RUN":
        assert "cannot be told" in found.reason


def test_a_site_may_set_its_own_limit(verdict):
    """Catches: a key of acceptance.yml that is read and not used."""
    clock = ("n2", 1.9, 2.1, "")
    assert cell(verdict(HEAD, NEAR, clock)).outcome == "FAIL"
    assert cell(verdict(HEAD, NEAR, clock, clock_offset_s=3.0)) is None


def test_a_clock_that_was_not_read_is_not_run_and_required(verdict):
    """Catches: a pass without a reading, of the node or of the host that it is held against."""
    assert "the clock of n2 was not read" in cell(verdict(HEAD, NEAR)).reason
    found = cell(verdict(NEAR, ("n2", 0.0, 0.1, "")))
    assert found.outcome == "NOT-RUN" and "the clock of the submit host was not read" in found.reason


@pytest.mark.parametrize("bounds", [(1.0, 0.0), (float("nan"), 0.0), (0.0, float("inf"))])
def test_bounds_that_are_none_are_refused(bounds):
    """Catches: a reading in the wrong order or not finite, with which every comparison is false."""
    with pytest.raises(ValidationError):
        ClockReading(host="n1", low_s=bounds[0], high_s=bounds[1])


def test_an_old_snapshot_without_clocks_is_still_read():
    """Catches: runs of before that can no longer be judged."""
    old = Snapshot.model_validate({"schema": 1, "run": "r", "taken": "then", "components": []})
    assert old.ahead_s("n1") is None

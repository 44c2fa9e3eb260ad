"""What is planned of switches, by what each system tells: silence is never taken for zero loss."""

import pytest

from shakedown.benchmarks.planning import site_of
from shakedown.records.reading import BadInput
from shakedown.references.files import load_catalogue
from tests.kit.site import WHERE, document, hosts, plan_site


def switch_cells(nos: str, *, mpi: bool = True) -> dict[tuple[str, str], list]:
    """The planned items of one switch with two ports on a rail, by stage and counter."""
    inventory = document()
    ports = [
        {"port": f"swp{2 * r + n}", "host": f"n{n}", "netdev": f"fab{r}", "rail": f"rail{r}"}
        for r in (0, 1)
        for n in (1, 2)
    ]
    inventory["switches"] = {"hosts": ["leaf0"]}
    inventory["_meta"]["hostvars"]["leaf0"] = {"roce_switch_nos": nos, "leaf_ports": ports}
    if not mpi:
        for host in hosts(inventory):
            host.get("acceptance", {})["mpi"] = {}
    site = site_of(inventory, WHERE)
    entries = load_catalogue(["lab", "roce_switches"]).entries
    # The lab judges the same counters by itself; here the general profile is looked at.
    catalogue = load_catalogue(["lab", "roce_switches"])
    catalogue.entries.clear()
    catalogue.entries.update({k: e for k, e in entries.items() if not k.startswith("lab-leaf")})
    plan, _ = plan_site(site, catalogue)
    found: dict[tuple[str, str], list] = {}
    for item in plan.items:
        if item.test == "switches":
            found.setdefault((item.stage.value, item.metric.removeprefix("counter.")), []).append(item)
    return found


@pytest.mark.parametrize("nos", ["linux", "sonic", "enterprise_sonic", "cumulus", "eos", "nxos", "os10"])
def test_drops_of_the_lossless_queue_are_required_on_every_system_that_is_read(nos):
    """Catches a fabric passed without anybody having asked its switches for loss."""
    items = switch_cells(nos)["fabric", "roce_queue_drops"]
    assert all(item.required and item.not_run is None for item in items)
    assert {item.params["port"] for item in items} == {"swp1", "swp2", "swp3", "swp4"}


def test_where_queues_tell_nothing_the_whole_port_must_lose_nothing():
    """Catches OS9, which tells nothing of its queues, passed as lossless without a question; and its ports'
    rule held against systems that count their queues, where a lossy class may drop.
    """
    found = switch_cells("os9")
    for name in ("roce_queue_drops", "roce_ingress_drops", "pfc_rx_ppm", "ecn_marked_ppm", "watchdog_events"):
        for item in found["fabric", name]:
            assert (item.required, item.not_run) == (False, f"os9 does not report {name}")
    for name in ("rx_drops", "tx_drops", "rx_errors", "tx_errors"):
        items = found["fabric", name]
        assert {item.params["port"] for item in items} == {"swp1", "swp2", "swp3", "swp4"}
        assert all(item.required and item.not_run is None for item in items)
    assert all(item.if_reported for item in found["fabric", "fec_uncorrectable"])
    for nos in ("sonic", "os10"):
        assert not {("fabric", "rx_drops"), ("fabric", "tx_drops")} & switch_cells(nos).keys()


def test_a_system_that_is_not_read_leaves_the_run_open():
    """Catches a system whose counters nobody reads passed as lossless."""
    found = switch_cells("unheard_of")
    assert found
    assert all(
        item.required and "zero loss cannot be claimed" in item.not_run
        for items in found.values()
        for item in items
    )


def test_what_a_system_does_not_count_is_listed_and_not_required():
    """Catches a cell that no reading can ever fill, and one that is dropped without a word."""
    (watchdog, *_) = switch_cells("linux")["fabric", "watchdog_events"]
    assert (watchdog.required, watchdog.not_run) == (False, "linux does not report watchdog_events")
    (watchdog, *_) = switch_cells("sonic")["fabric", "watchdog_events"]
    assert (watchdog.required, watchdog.not_run) == (True, None)
    assert switch_cells("sonic")["fabric", "pfc_rx_ppm"][0].required
    assert switch_cells("eos")["fabric", "ecn_marked_ppm"][0].required


def test_a_link_that_goes_down_and_up_again_is_required_not_to_where_it_is_counted():
    """Catches an uplink that flaps during the mesh, which routing hides: nothing asked for its changes."""
    for nos in ("linux", "cumulus", "eos", "nxos"):
        items = switch_cells(nos)["fabric", "link_flaps"]
        assert all(item.required and not item.if_reported for item in items), nos
    (flaps, *_) = switch_cells("os10")["fabric", "link_flaps"]
    assert (flaps.required, flaps.not_run) == (False, "os10 does not report link_flaps")


@pytest.mark.parametrize("nos", ["sonic", "enterprise_sonic"])
@pytest.mark.parametrize("counter", ["link_flaps", "fec_uncorrectable"])
def test_what_some_platforms_count_is_judged_where_it_is_there(nos, counter):
    """Catches a link that flaps or loses frames past FEC, which SONiC counts and nothing judged."""
    items = switch_cells(nos)["fabric", counter]
    assert len(items) == 4
    assert all(item.required and item.if_reported and item.not_run is None for item in items)


def test_packets_lost_inside_a_switch_are_one_cell_a_rail():
    """Catches a counter of a rail planned by port, which no reading has."""
    items = switch_cells("linux")["fabric", "roce_lost_packets"]
    assert [(item.rails, item.params["port"]) for item in items] == [
        (("rail0",), "rail0"),
        (("rail1",), "rail1"),
    ]
    assert ("fabric", "roce_lost_packets") not in switch_cells("sonic")


def test_loss_is_forbidden_above_the_fabric_stage_too():
    """Catches a collective that loses packets on a fabric whose own stage was clean."""
    assert ("collective", "roce_queue_drops") in switch_cells("sonic")
    assert ("collective", "roce_queue_drops") not in switch_cells("sonic", mpi=False)


def test_two_profiles_that_judge_one_counter_are_refused_by_both_names():
    """Catches: "internal error: cell planned twice" for a site that names a profile too many."""
    inventory = document()
    inventory["switches"] = {"hosts": ["leaf0"]}
    ports = [{"port": "swp1", "host": "n1", "netdev": "fab0", "rail": "rail0"}]
    inventory["_meta"]["hostvars"]["leaf0"] = {"roce_switch_nos": "linux", "leaf_ports": ports}
    catalogue = load_catalogue(["lab", "roce_switches"])
    with pytest.raises(BadInput, match=r"references lab-leaf-.* and switch-.* both judge counter") as refused:
        plan_site(inventory, catalogue)
    assert "leave one of the two profiles out" in str(refused.value)

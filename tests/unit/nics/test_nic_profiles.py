"""What NICs count is judged at every site by their driver: from readings of a job to a verdict."""

import copy
import functools
import json
import random
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from shakedown.benchmarks.planning import read_site, site_of
from shakedown.collect.counters import counted, nic_readings, read_nodes
from shakedown.judge.verdict import judge
from shakedown.nics.counter_sets import ETHTOOL, RDMA
from shakedown.nics.families import BY_NAME
from shakedown.nics.rates import TWICE, arrived_twice
from shakedown.nics.witnesses import FAULTS, TOLD, seen, unseen
from shakedown.plan.jobs import counter_tests
from shakedown.records.base import Outcome, Stage
from shakedown.records.results import JobRecord
from shakedown.references.files import load_profile
from shakedown.references.of_site import catalogue_of_site
from shakedown.run.nic_counters import About, NodeCounters
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.site import WHERE, document, hosts, plan_site
from tests.unit.nics.healthy import healthy
from tests.unit.nics.healthy import names as names_of

INVENTORIES = Path(__file__).parents[3] / "inventories"
SITES = ("mlx5", "bnxt")
DRIVERS = {"mlx5": "mlx5_core", "bnxt": "bnxt_en", "irdma": "ice"}
# Of every netdev, by Linux 6.1 (sysfs-class-net-statistics).
KERNEL = (
    "collisions multicast rx_compressed rx_crc_errors rx_errors rx_fifo_errors rx_frame_errors rx_nohandler"
    " rx_length_errors rx_missed_errors rx_over_errors tx_aborted_errors tx_carrier_errors tx_compressed"
    " tx_errors tx_fifo_errors tx_heartbeat_errors tx_window_errors"
)
SECONDS, SPEED = 20.0, {"mlx5": 400_000, "bnxt": 100_000, "irdma": 100_000}


def site(family, speed_gbps=None, **acceptance):
    """A site of three nodes with NICs of that family, held to what physics says."""
    speed_gbps = speed_gbps or SPEED.get(family, 0) // 1000
    inventory = document(3)
    for host in hosts(inventory):
        host["fabric"] |= {"system": "acme", "profile": "physical", "link_speed_gbps": speed_gbps}
        host["acceptance"] |= {"mpi": {}, **acceptance}
        for number, nic in enumerate(host["fabric_nics"]):
            nic["rdma_device"] = f"{BY_NAME[family].device_prefix}{'_' if family == 'mlx5' else ''}{number}"
    return site_of(inventory, WHERE)


@functools.cache
def planned(family):
    """Its plan and jobs, as the command makes them."""
    return plan_of(site(family))


def plan_of(of, folder=Path()):
    """Plan and jobs of a site."""
    return plan_site(of, catalogue_of_site(of, folder))


@functools.cache
def job_of(family):
    """A job of the fabric stage, the test under which its counters stand, and how it ended."""
    _, jobs = planned(family)
    spec = next(spec for spec in jobs.jobs if spec.stage is Stage.FABRIC)
    ended = {"run": "r1", "stage": spec.stage, "test": spec.name, "nodes": spec.nodes, "exit_code": "0:0"}
    return spec, counter_tests(jobs.jobs)[spec.name], JobRecord(job="7", state="COMPLETED", **ended)


def readings_of(family, change=None):
    """The first NIC of n1 before and after that job, healthy but for what `change` does to it."""
    nic = planned(family)[1].nics["n1"][0]
    about = {"driver": DRIVERS[family], "ifindex": 4, "speed_mbps": SPEED[family], "netdev": nic.netdev}
    both = [
        {"device": nic.rdma_device, **about, "read_at_s": 50.0 + at * SECONDS, "counters": dict(counters)}
        for at, counters in enumerate(healthy(family, random.Random(7), SECONDS, SPEED[family]))
    ]
    if change:
        change(*both)
    return both


def cells(folder, family, change=None):
    """Verdict on the counters of that NIC, from the files that the node wrote."""
    plan, jobs = planned(family)
    spec, test, job = job_of(family)
    for when, device in zip(("before", "after"), readings_of(family, change), strict=True):
        text = json.dumps({"schema": 1, "node": "n1", "when": when, "took_s": 0.1, "devices": [device]})
        (folder / f"counters.n1.{when}.json").write_text(text)
    readings, flaws = read_nodes(folder, job, ("n1",))
    assert not flaws, flaws
    one = jobs.model_copy(update={"nics": {"n1": jobs.nics["n1"][:1]}})
    items = tuple(
        item.model_copy(update={"nodes": (("n1",),)})
        for item in plan.items
        if (item.stage, item.test, item.rails) == (spec.stage, test, ("rail0",))
        and item.metric.startswith("counter.")
    )
    part = plan.model_copy(update={"items": items, "nodes": ("n1",), "rails": ("rail0",)})
    return judge(part, (), counted(plan, one, folder, job, spec, test, readings)), items


def plant(*planted):
    """A change that lets counters grow while the test runs."""

    def change(before, after):
        for name, events in planted:
            after["counters"][name] = before["counters"][name] + events

    return change


@pytest.mark.parametrize("family", SITES)
def test_a_healthy_job_passes(family, tmp_path):
    """Catches: a limit that healthy NICs break, or a planned counter that no NIC of the driver has."""
    verdict, own = cells(tmp_path, family)
    assert verdict.outcome is Outcome.PASS, verdict.cells[:3]
    assert len({item.metric for item in own}) >= 29
    lacking = {cell.cell.split("/")[2] for cell in verdict.cells}
    # While PFC is on, mlx5 has no counters of global pause.
    assert lacking <= {f"counter.ethtool.{way}_global_pause" for way in ("rx", "tx")}, lacking


@pytest.mark.parametrize(
    ("family", "name"), [("mlx5", "rdma.packet_seq_err"), ("bnxt", "rdma.to_retransmits")]
)
def test_retransmissions_at_a_real_site_fail(family, name, tmp_path):
    """Catches: a site of which no profile has limits for NICs, whose lost packets pass unseen."""
    verdict, _ = cells(tmp_path, family, plant((name, 3)))
    assert verdict.outcome is Outcome.FAIL
    assert name in verdict.cells[0].cell and verdict.cells[0].value == 3


# What is read, for what is worked out: (counter, how much it grows in the test).
WORKED_OUT = {
    "mlx5": {
        "phy.pre_fec_ber_e12": ("ethtool.rx_corrected_bits_phy", int(3e-4 * 4e11 * SECONDS)),
        "phy.symbol_errors_e15": ("ethtool.rx_pcs_symbol_err_phy", 5000),
        "pause.prioN_tx_ppm": ("ethtool.tx_prio3_pause_duration", int(0.6e6 * SECONDS)),
        "pause.prioN_rx_ppm": ("ethtool.rx_prio3_pause_duration", int(0.6e6 * SECONDS)),
        "pause.prioN_unmarked_ppm": ("ethtool.tx_prio3_pause_duration", int(0.2e6 * SECONDS)),
        "class.prioN_missed_ppm": ("ethtool.rx_prio3_bytes", 1000),
        "class.prioN_tx_missed_ppm": ("ethtool.tx_prio3_bytes", 1000),
        "module.alarms": ("dom.alarms", 1),
        "module.warnings": ("dom.warnings", 1),
    },
    "bnxt": {
        "phy.pre_fec_ber_e12": ("ethtool.rx_corrected_bits", int(8e-5 * 1e11 * SECONDS)),
        "phy.symbol_errors_e15": ("ethtool.rx_pcs_symbol_err", 5000),
        "pause.prioN_tx_ppm": ("ethtool.pfc_pri3_tx_duration_us", int(0.6e6 * SECONDS)),
        "pause.prioN_rx_ppm": ("ethtool.pfc_pri3_rx_duration_us", int(0.6e6 * SECONDS)),
        "pause.prioN_unmarked_ppm": ("ethtool.pfc_pri3_tx_duration_us", int(0.2e6 * SECONDS)),
        "class.prioN_missed_ppm": ("ethtool.rx_bytes_pri3", 1000),
        "class.prioN_tx_missed_ppm": ("ethtool.tx_bytes_pri3", 1000),
        "module.alarms": ("dom.alarms", 1),
        "module.warnings": ("dom.warnings", 1),
    },
    "irdma": {"module.alarms": ("dom.alarms", 1), "module.warnings": ("dom.warnings", 1)},
}
MARKS = {"mlx5": "rdma.np_ecn_marked_roce_packets", "bnxt": "rdma.rx_ecn_marked_pkts"}


def of_fault(family, counter):
    """A change by which that counter, and no more than belongs to it, shows its fault."""
    read, amount = WORKED_OUT[family].get(counter, (counter.replace("prioN", "prio3"), 7))

    def change(before, after):
        if read.endswith("x_global_pause"):
            both = [f"ethtool.{way}_global_pause{x}" for way in ("rx", "tx") for x in ("", "_duration")]
            for device in (before, after):
                device["counters"] |= dict.fromkeys([*both, "ethtool.rx_global_pause_transition"], 0)
        if "unmarked" in counter:
            after["counters"][MARKS[family]] = before["counters"][MARKS[family]]
        plant((read, amount))(before, after)

    return change


@pytest.mark.slow
@pytest.mark.parametrize("family", [*SITES, "irdma"])
def test_each_witness_sees_its_fault(family, tmp_path):
    """Catches: a row of the table of witnesses whose counter is not collected, not planned or not judged."""
    for fault in FAULTS:
        for counter in set(fault.counters.get(family, ())) - {TWICE}:  # of several NICs: below
            verdict, _ = cells(tmp_path, family, of_fault(family, counter))
            failed = [c.cell.split("/")[2] for c in verdict.cells if c.outcome is Outcome.FAIL]
            assert f"counter.{counter.replace('prioN', 'prio3')}" in failed, (fault.name, counter, failed)


def test_coverage_of_the_table():
    """Catches: faults that nothing sees: at least 95 % have a judged witness on mlx5 and on bnxt."""
    for family in SITES:
        judged = {e.metric.removeprefix("counter.") for e in load_profile(f"nic_{family}").entries}
        assert {c for f in seen(family) for c in f.counters[family]} <= judged
        witnessed = [fault for fault in FAULTS if fault.witnessed(family)]
        assert len(witnessed) / len(FAULTS) >= 0.95, family
        assert all(fault.measured for fault in unseen(family))


# What guides and this project's own measurements give as signatures of faults, and the row that names each.
SIGNATURES = {
    "RDMA MTU 1024 or 2048: at most 370.3 or 384.6 Gb/s at 400G": "small-mtu",
    "Gen4 x16 or Gen5 x8 under a 400G NIC: at most 233.8 Gb/s": "narrow-pcie",
    "NVLS off on 8 x H200: 480 -> 367 GB/s": "nvls-off",
    "one of eight NICs at half rate: ring all_reduce about 196 GB/s": "half-rate",
    "TCP fallback: a few GB/s and NET/Socket": "tcp-fallback",
    "NET/IB without GDRDMA": "no-gpudirect",
    "RoCE bytes outside its priority": "wrong-class",
    "RoCE bytes sent outside its priority": "sent-in-wrong-class",
    "no pause counters of the priority": "pfc-off",
}
# Counters that must stay zero on a lossless fabric; `phy.` where only a ratio can be held to a limit.
MUST_BE_ZERO = {
    "mlx5": "ethtool.rx_discards_phy ethtool.rx_prioN_discards ethtool.rx_prioN_buf_discard"
    " ethtool.rx_prioN_cong_discard ethtool.tx_discards_phy ethtool.rx_crc_errors_phy phy.symbol_errors_e15"
    " ethtool.link_down_events_phy ethtool.tx_pause_storm_error_events ethtool.rx_oversize_pkts_phy"
    " rdma.packet_seq_err rdma.implied_nak_seq_err rdma.local_ack_timeout_err"
    " rdma.req_transport_retries_exceeded rdma.rx_icrc_encapsulated rdma.rp_cnp_ignored rdma.out_of_sequence"
    " ethtool.rx_global_pause ethtool.tx_global_pause",
    "bnxt": "rdma.to_retransmits rdma.seq_err_naks_rcvd rdma.max_retry_exceeded rdma.oos_drop_count"
    " rdma.missing_resp rdma.rx_roce_discards rdma.rx_roce_errors rdma.res_tx_pci_err rdma.res_rx_pci_err",
}


def test_every_known_signature_has_its_row_and_every_zero_its_witness():
    """Catches: a signature that a guide names and the table forgot, or a zero that witnesses nothing."""
    rows = {fault.name: fault for fault in FAULTS}
    for said, name in SIGNATURES.items():
        assert name in rows, said
        assert all(rows[name].witnessed(family) for family in SITES), said
    for family, counters in MUST_BE_ZERO.items():
        of_rows = {counter for fault in FAULTS for counter in fault.counters.get(family, ())}
        assert set(counters.split()) <= of_rows, set(counters.split()) - of_rows


@pytest.mark.parametrize("family", SITES)
def test_a_witness_that_is_no_counter_is_a_cell_that_is_required(family):
    """Catches: a fault said to be seen by a check or a setting that no plan has, or that is only shown."""
    inventory = copy.deepcopy(document(3))
    for host in hosts(inventory):
        host["fabric"] |= {"system": "acme", "profile": "physical", "link_speed_gbps": SPEED[family] // 1000}
        host["gpus"] = [{"index": 0}, {"index": 1}]
        host["acceptance"] = {
            "config": {},
            "perftest": [{"test": "ib_write_bw", "size_bytes": 65536, "duration_s": 10}],
            "gpudirect": {"operations": ["write"]},
            "incast": {"senders": 2},
            "nccl": {
                "expect": {"nvls": False, "gdr": True},
                "sweeps": [{"operations": ["all_reduce"], "min_bytes": 1 << 30, "max_bytes": 1 << 30}],
            },
        }
        for number, nic in enumerate(host["fabric_nics"]):
            nic["rdma_device"] = f"{BY_NAME[family].device_prefix}{'_' if family == 'mlx5' else ''}{number}"
    plan, _ = plan_of(site_of(inventory, WHERE))
    required = {
        (item.test, item.metric, str(of))
        for item in plan.items
        if item.required
        for of in ("", item.params.get("setting"), item.params.get("check"))
    }
    named = {tuple(cell) for fault in FAULTS for cell in fault.cells}
    assert len(named) >= 8
    assert named <= required, named - required


@pytest.mark.parametrize("family", SITES)
def test_a_counter_that_wraps_at_32_bits_is_no_restart(family, tmp_path):
    """Catches: a wrapped counter told as a reset, or a real loss lost with it; a reset told as a wrap."""
    wrapping = "rdma.packet_seq_err"
    if family == "mlx5":

        def change(before, after):
            before["counters"][wrapping], after["counters"][wrapping] = (1 << 32) - 2, 3

        verdict, _ = cells(tmp_path, family, change)
        assert (verdict.outcome, verdict.cells[0].value) == (Outcome.FAIL, 5)

    def back(before, after):
        name = wrapping if family == "mlx5" else "rdma.to_retransmits"
        before["counters"][name], after["counters"][name] = 900, 3

    verdict, _ = cells(tmp_path, family, back)
    assert verdict.outcome is Outcome.INCONCLUSIVE and "backwards" in verdict.cells[0].reason


def test_a_driver_that_was_loaded_again_is_told(tmp_path):
    """Catches: a reload between the readings whose counters, small before, hide it: the netdev is another."""

    def change(before, after):
        after["ifindex"] = 31
        for name in after["counters"]:
            if name.startswith(("rdma.", "ethtool.")):
                before["counters"][name], after["counters"][name] = 0, 0

    verdict, _ = cells(tmp_path, "mlx5", change)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "restarted" in verdict.cells[0].reason


def test_an_rdma_device_that_was_made_anew_is_told(tmp_path):
    """Catches: RDMA's driver loaded again under a netdev that stays: errors counted before it are gone."""

    def change(before, after):
        before["inode"], after["inode"] = 70_123, 81_456

    verdict, _ = cells(tmp_path, "mlx5", change)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "restarted" in verdict.cells[0].reason


@cases(
    "family, name, lost",
    ("mlx5", "ethtool.rx_packets_phy", "rdma.out_of_sequence"),
    ("mlx5", "ethtool.tx_bytes_phy", "rdma.out_of_sequence"),
    ("bnxt", "ethtool.rx_good_frames", "rdma.to_retransmits"),
    ("bnxt", "ethtool.tx_good_frames", "rdma.to_retransmits"),
    ("bnxt", "rdma.rx_bytes", "rdma.to_retransmits"),
    ("bnxt", "rdma.tx_pkts", "rdma.to_retransmits"),
)
def test_a_port_that_was_cleared_proves_nothing(family, name, lost, tmp_path):
    """Catches: a reset of the firmware in mid-test, after which errors that were zero are zero again."""

    def change(before, after):
        before["counters"][name], after["counters"][name] = 10**12, 10**9

    verdict, _ = cells(tmp_path, family, change)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    reset = [cell.cell for cell in verdict.cells if cell.rule == "counter-reset"]
    assert any(f"counter.{lost}/" in cell for cell in reset), reset


@pytest.mark.parametrize("value", [(1 << 64) - 1, (1 << 63) + 7, (1 << 32) - 1])
def test_what_a_device_did_not_answer_is_unread_and_blames_nobody(value, tmp_path):
    """Catches: minus one, which a driver gives for a device that did not answer, as 1.8e19 lost packets."""

    def change(before, after):
        after["counters"]["rdma.out_of_sequence"] = value

    verdict, _ = cells(tmp_path, "mlx5", change)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    mine = next(cell for cell in verdict.cells if "rdma.out_of_sequence/" in cell.cell)
    assert mine.outcome is Outcome.INCONCLUSIVE and f"the driver said {value}" in mine.reason


@cases(
    "family, name, more",
    ("mlx5", "rdma.packet_seq_err", 1 << 40),
    ("bnxt", "rdma.to_retransmits", 1 << 45),
    ("irdma", "ethtool.rx_crc_errors.nic", 1 << 52),
    ("bnxt", "ethtool.rx_fcs_err_frames", 1 << 52),
)
def test_more_than_can_have_happened_is_no_evidence(family, name, more, tmp_path):
    """Catches: more packets out of sequence than a NIC sent and received, or its link carries, as a loss."""
    verdict, _ = cells(tmp_path, family, plant((name, more)))
    mine = next(cell for cell in verdict.cells if f"{name}/" in cell.cell)
    assert (verdict.outcome, mine.outcome) == (Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE), mine
    assert f"grew by {more}, and " in mine.reason


@cases("family, name", ("mlx5", "rdma.packet_seq_err"), ("irdma", "ethtool.rx_crc_errors.nic"))
def test_a_loss_of_nearly_all_is_a_loss(family, name, tmp_path):
    """Catches: a cable that lets nothing through, called a counter that cannot be read."""
    verdict, _ = cells(tmp_path, family, plant((name, 1 << 18)))
    assert verdict.outcome is Outcome.FAIL


@cases(
    "family, counter, cell",
    ("mlx5", "corrected_bits", "phy.pre_fec_ber_e12"),
    ("bnxt", "corrected_bits", "phy.pre_fec_ber_e12"),
    ("mlx5", "symbol_err", "phy.symbol_errors_e15"),
    ("bnxt", "pfc_pri3_rx_duration_us", "pause.prio3_rx_ppm"),
    ("mlx5", "tx_prio3_pause_duration", "pause.prio3_tx_ppm"),
    ("bnxt", "dom.alarms", "module.alarms"),
)
@pytest.mark.parametrize("flaw", ["back", "gone", "new"])
def test_what_cannot_be_worked_out_is_not_as_if_never_counted(family, counter, cell, flaw, tmp_path):
    """Catches: a link's quality or pauses passed because their counters were cleared or lost in mid-test."""
    if flaw == "back" and cell == "module.alarms":
        pytest.skip("a state, no count")

    def change(before, after):
        names = [n for n in before["counters"] if counter in n and "seen" not in n]
        assert names
        for name in names:
            if flaw == "back":
                before["counters"][name], after["counters"][name] = 10**9, 3
            else:
                del (before if flaw == "new" else after)["counters"][name]

    verdict, _ = cells(tmp_path, family, change)
    assert verdict.outcome is Outcome.INCONCLUSIVE, verdict.reason
    assert any(f"counter.{cell}/" in found.cell for found in verdict.cells if found.outcome != "PASS")


def test_a_link_without_a_speed_has_no_quality(tmp_path):
    """Catches: bits that FEC corrected passed over because a link that is down has no speed."""

    def unknown(before, after):
        before["speed_mbps"] = after["speed_mbps"] = -1

    verdict, _ = cells(tmp_path, "mlx5", unknown)
    assert verdict.outcome is Outcome.INCONCLUSIVE

    def down_at_the_end(_before, after):
        after["speed_mbps"] = None

    verdict, _ = cells(tmp_path, "mlx5", down_at_the_end)
    assert verdict.outcome is Outcome.PASS


def test_a_module_whose_reader_stopped_is_no_quiet_module(tmp_path):
    """Catches: alarms that nobody reads any more told as none; one that was read lost with the other."""

    def stopped(before, after):
        for reading in (before, after):
            for name in [n for n in reading["counters"] if n.startswith("dom.")]:
                del reading["counters"][name]
            reading["counters"]["dom.unread"] = 1

    verdict, _ = cells(tmp_path, "mlx5", stopped)
    assert verdict.outcome is Outcome.INCONCLUSIVE

    def raised(before, after):
        before["counters"]["dom.alarms"] = 1
        for name in [n for n in after["counters"] if n.startswith("dom.")]:
            del after["counters"][name]

    verdict, _ = cells(tmp_path, "mlx5", raised)
    assert verdict.outcome is Outcome.FAIL


@cases(
    "family, lost",
    ("mlx5", ["rdma.packet_seq_err"]),
    ("mlx5", ["ethtool.rx_crc_errors_phy", "ethtool.rx_jabbers_phy"]),
    ("mlx5", "ethtool."),
    ("mlx5", "rdma."),
    ("bnxt", ["rdma.to_retransmits"]),
    ("bnxt", "ethtool."),
)
def test_a_reading_cut_in_the_middle_is_inconclusive(family, lost, tmp_path):
    """Catches: counters that a driver always reports gone from a reading, and the NIC passed."""

    def change(_before, after):
        for name in list(after["counters"]):
            if name.startswith(lost) if isinstance(lost, str) else name in lost:
                del after["counters"][name]

    verdict, _ = cells(tmp_path, family, change)
    assert verdict.outcome is Outcome.INCONCLUSIVE, verdict.reason


def test_what_a_nic_does_not_report_is_not_missed(tmp_path):
    """Catches: a kernel without a younger counter that can never pass, or one whose loss then passes."""
    optional = ("rdma.rx_icrc", "ethtool.module", "fec.", "devlink.", "ethtool.rx_prio3_buf")

    def change(before, after):
        for device in (before, after):
            for name in [n for n in device["counters"] if n.startswith(optional)]:
                del device["counters"][name]

    verdict, _ = cells(tmp_path, "mlx5", change)
    assert verdict.outcome is Outcome.PASS, verdict.cells[:2]
    assert all(cell.rule == "not-reported" for cell in verdict.cells)


def test_pfc_that_is_off_is_no_pass(tmp_path):
    """Catches: a NIC without PFC, which has no pause counters, passed as one that never paused."""

    def change(before, after):
        for device in (before, after):
            for name in [n for n in device["counters"] if "prio3_pause" in n]:
                del device["counters"][name]

    verdict, _ = cells(tmp_path, "mlx5", change)
    assert verdict.outcome is Outcome.NOT_RUN
    assert {c.cell.split("/")[2] for c in verdict.cells if c.rule == "not-measured"} == {
        f"counter.pause.prio3_{what}_ppm" for what in ("rx", "tx", "unmarked")
    }


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("family", SITES)
def test_global_pause_is_a_fault_only_beside_pfc(family, enabled):
    """Catches: a site that has global pause instead of PFC failed for pausing, one way or the other."""
    asked = site(family)
    roce = asked.fabric.roce
    roce = roce.model_copy(update={"pfc": roce.pfc.model_copy(update={"enabled": enabled})})
    of = asked.model_copy(update={"fabric": asked.fabric.model_copy(update={"roce": roce})})
    name = {"mlx5": "global_pause", "bnxt": "pause_frames"}[family]
    found = {item.metric for item in plan_of(of)[0].items}
    for way in ("rx", "tx"):
        assert (f"counter.ethtool.{way}_{name}" in found) is enabled


@cases(
    "netdev, device, driver, says",
    ("enp1s0", "ionic_0", None, "by the counters of 6 NICs of n1..n3"),
    ("enp1s0", "rocep1s0", "ionic", "by the counters of 6 NICs of n1..n3"),
    ("enp1s0", "rocep1s0", "ice", ""),
)
def test_an_unknown_family_is_told_in_one_line(netdev, device, driver, says):
    """Catches: AMD's or another's NICs left out unsaid."""
    inventory = document(3)
    for host in hosts(inventory):
        host["fabric"] |= {"system": "acme", "profile": "physical", "link_speed_gbps": 100}
        for number, nic in enumerate(host["fabric_nics"]):
            nic["netdev"], nic["rdma_device"] = f"{netdev[:-1]}{number}", f"{device[:-1]}{number}"
            nic.update({"driver": driver} if driver else {})
    found = [
        one.what for one in plan_of(site_of(inventory, WHERE))[0].not_covered if one.key == "fabric_nics"
    ]
    assert len(found) == bool(says) and all(says in one for one in found), found


def test_unknown_drivers_are_told_and_refused_only_if_the_site_asks(tmp_path):
    """Catches: NICs of an unknown driver left out in silence, or a site that cannot be planned for them."""
    mine = site("mlx5")
    names = ("rocep1s0", "rocep2s0")
    renamed = tuple(
        nic.model_copy(update={"rdma_device": name}) for nic, name in zip(mine.nics["n2"], names, strict=True)
    )
    other = mine.model_copy(update={"nics": {**mine.nics, "n2": renamed}})
    (told,) = [one for one in plan_of(other)[0].not_covered if "driver is not known" in one.why]
    assert "2 NICs of n2" in told.what
    strict = other.model_copy(
        update={"acceptance": other.acceptance.model_copy(update={"known_nics_only": True})}
    )
    refused("known_nics_only: the driver of NICs of n2", catalogue_of_site, strict, tmp_path)
    said = tuple(n.model_copy(update={"driver": "mlx5_core"}) for n in renamed)
    known = strict.model_copy(update={"nics": {**mine.nics, "n2": said}})
    assert not [one for one in plan_of(known)[0].not_covered if "driver is not known" in one.why]


@pytest.mark.parametrize("family", [*SITES, "rxe", "irdma"])
def test_every_row_of_a_profile_is_planned_somewhere(family):
    """Catches: a limit for NICs that no site is held to, whatever its speed."""
    wanted = {entry.id for entry in load_profile(f"nic_{family}").entries}
    for speed_gbps in (100, 400):
        wanted -= {item.reference for item in plan_of(site(family, speed_gbps))[0].items}
    assert wanted == set()


def test_the_plan_says_what_is_covered_and_what_not():
    """Catches: a plan that is silent on which NICs' counters are judged."""
    (line,) = planned("mlx5")[0].nic_counters
    assert "mlx5 NIC are judged, which see" in line and "tcp-fallback" in line


def test_a_fabric_that_reorders_is_not_blamed_for_it(tmp_path):
    """Catches: adaptive routing judged as loss, or all loss forgiven with it."""
    metrics = {e.metric for e in catalogue_of_site(site("mlx5", reorders=True), tmp_path).entries.values()}
    assert "counter.rdma.out_of_sequence" not in metrics and "counter.rdma.packet_seq_err" in metrics


@pytest.mark.slow
@cases(
    "name, metric",
    ("tolly_xe9680_z9664f", "counter.rdma.packet_seq_err"),
    ("pt_r7615_bcm57508", "counter.rdma.to_retransmits"),
)
def test_every_published_system_is_judged_by_its_nics(name, metric):
    """Catches: a shipped inventory without any limit for its NICs' counters, at the fabric or above it."""
    of = read_site(INVENTORIES / name)
    plan, _ = plan_of(of, INVENTORIES / name)
    judged = {item.stage.value for item in plan.items if item.metric == metric and item.required}
    asked = {item.stage.value for item in plan.items}
    assert judged and judged >= asked & {"fabric", "collective"}


def runs_that_fail(count, seed):
    """How many of so many simulated healthy runs of one node's NIC, of each family, break a limit."""
    draw, broken = random.Random(seed), []
    for family in (*SITES, "irdma"):
        limits = {}
        for item in planned(family)[0].items:
            if item.metric.startswith("counter.") and item.test != "switches":
                gate = planned(family)[0].references[item.reference].gate
                limits[item.metric.removeprefix("counter.")] = gate
        for number in range(count):
            seconds = draw.choice((5.0, 20.0, 120.0, 600.0))
            first, last = healthy(family, draw, seconds, SPEED[family])
            for name, value in worked(family, first, last, seconds).items():
                if name in limits and value > limits[name]:
                    broken.append((family, number, name, value))
    return broken


def worked(family, first, last, seconds):
    """What collection makes of two readings: the growth of every counter."""
    nic = next(iter(planned(family)[1].nics.values()))[0]
    about = [{nic.rdma_device: About(DRIVERS[family], 4, SPEED[family], at)} for at in (10.0, 10.0 + seconds)]
    both = [NodeCounters({nic.rdma_device: c}, about=a) for c, a in zip((first, last), about, strict=True)]
    told = nic_readings(both[0], both[1], nic, began_anew=False)
    assert all(None not in pair for pair in told.values())
    return {name: after - before for name, (before, after) in told.items()}


def test_some_healthy_runs_fail_nothing():
    """Catches: a limit within what healthy NICs count (the thousand runs are slow)."""
    assert runs_that_fail(10, seed=1) == []


@pytest.mark.slow
def test_a_thousand_healthy_runs_fail_nothing():
    """Catches: a false FAIL by counters in 1,000 healthy runs of each family, at realistic FEC rates."""
    assert runs_that_fail(1000, seed=25) == []


def test_names_of_the_sets_and_families_agree():
    """Catches: a family that names a set of counters that is not there."""
    assert len(names_of("mlx5")) > 150 and len(names_of("bnxt")) > 120
    assert set(BY_NAME) == {"mlx5", "bnxt", "rxe", "irdma"}


NUMBERED = re.compile(r"(?<=prio)[0-7]|(?<=pri)[0-7]|(?<=priority_)[0-7]|(?<=cos)[0-7]")


def why_told(family, counter):
    """Why no limit judges a counter; empty: nothing is said of it."""
    name = NUMBERED.sub("N", counter)
    told = [(why, patterns.split()) for of in (family, "any") for why, patterns in TOLD[of].items()]
    return next((why for why, patterns in told if any(fnmatchcase(name, x) for x in patterns)), "")


@pytest.mark.parametrize("family", BY_NAME)
def test_every_counter_is_judged_or_told_with_its_reason(family):
    """Catches: a counter that is read, and that nobody ever looked at: an error of it passes unseen."""
    judged = {e.metric.removeprefix("counter.") for e in load_profile(f"nic_{family}").entries}
    own = BY_NAME[family]
    read = set(names_of(family)) | {f"netdev.{name}" for name in KERNEL.split()}
    for prefix, driver, known in (("rdma.", own.rdma, RDMA), ("ethtool.", own.ethtool, ETHTOOL)):
        read |= {f"{prefix}{n}" for s in known if s.driver == driver for n in s.always.union(*s.together)}
    read |= {f"{way}.{x}" for way, x in (("link", "tx_utilisation_ppm"), ("reading", "both_ms"))}
    unknown = {n for n in read if not why_told(family, n) and re.sub(r"prio\d", "prioN", n) not in judged}
    assert not unknown


# q3 of the lab: netem duplicates 1 % of what n1 sends on rail0, and drops on rail1, where n2 repeats.
COPIED = {
    ("n1", "rxe0"): (0, 5100, 5143),
    ("n2", "rxe0"): (43, 5143, 5147),
    ("n1", "rxe1"): (0, 5153, 5058),
    ("n2", "rxe1"): (15, 5155, 5153),
}


def twice(planted):
    """What is told of these NICs, by their node and device."""
    names = ("rdma.duplicate_request", "rdma.sent_pkts", "rdma.rcvd_pkts")
    told = {
        nic: {name: (7, 7 + n) for name, n in zip(names, numbers, strict=True)}
        for nic, numbers in planted.items()
    }
    return arrived_twice(told, {nic: nic[1] for nic in planted})


def test_what_the_network_copies_is_told_from_what_a_sender_repeats():
    """Catches: 1 % of copied packets that pass; a sender's repeats, which a busy host makes, blamed on it."""
    found = twice(COPIED)
    assert found == {("n1", "rxe0"): 0, ("n2", "rxe0"): 8354, ("n1", "rxe1"): 0, ("n2", "rxe1"): 0}
    alone = {nic: n for nic, n in COPIED.items() if nic[1] == "rxe1"}
    assert set(twice(alone).values()) == {0}
    assert arrived_twice({}, {("n1", "rxe0"): "rail0"}) == {}


@pytest.mark.parametrize(("copied", "outcome"), [(0, Outcome.PASS), (700, Outcome.FAIL)])
def test_copied_packets_reach_the_verdict(copied, outcome, tmp_path):
    """Catches: a ratio that is worked out and that no cell of any plan judges."""
    plan, jobs = planned("mlx5")
    spec, test, job = job_of("mlx5")
    nics = {node: jobs.nics[node][:1] for node in spec.nodes}
    for node in spec.nodes:
        both = readings_of("mlx5")
        for at, device in enumerate(both):
            grown = {
                "rdma.duplicate_request": copied,
                "ethtool.rx_vport_rdma_unicast_packets": 10_000 + copied,
            }
            for name, amount in (grown | {"ethtool.tx_vport_rdma_unicast_packets": 10_000}).items():
                device["counters"][name] = 5 + at * amount
        for when, device in zip(("before", "after"), both, strict=True):
            text = json.dumps({"schema": 1, "node": node, "when": when, "took_s": 0.1, "devices": [device]})
            (tmp_path / f"counters.{node}.{when}.json").write_text(text)
    readings, _ = read_nodes(tmp_path, job, spec.nodes)
    items = tuple(
        item
        for item in plan.items
        if (item.stage, item.test, item.metric) == (spec.stage, test, f"counter.{TWICE}")
        and item.rails == ("rail0",)
    )
    assert items
    found = counted(plan, jobs.model_copy(update={"nics": nics}), tmp_path, job, spec, test, readings)
    verdict = judge(plan.model_copy(update={"items": items, "rails": ("rail0",)}), (), found)
    assert verdict.outcome is outcome, verdict.cells[:2]

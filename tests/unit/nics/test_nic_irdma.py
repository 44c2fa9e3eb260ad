"""Intel's ice and irdma: what an E810 counts is judged, and what it does not count is said."""

import pytest

from shakedown.collect.counters import nic_readings
from shakedown.judge.words import counter
from shakedown.nics.families import family_of
from shakedown.nics.rates import counts_errors
from shakedown.nics.witnesses import seen, unseen
from shakedown.onnode.counters import read_devices
from shakedown.records.base import Outcome
from shakedown.run.nic_counters import About, NodeCounters
from tests.kit.cases import cases
from tests.machines.recorded import put
from tests.unit.nics.test_nic_profiles import cells, plan_of, planned, plant, site


def test_a_healthy_e810_passes(tmp_path):
    """Catches: a limit that a healthy E810 breaks, or a required counter that only younger chips have."""
    verdict, items = cells(tmp_path, "irdma")
    assert verdict.outcome is Outcome.PASS, verdict.cells[:3]
    assert len({item.metric for item in items}) >= 20


@cases(
    "name",
    "ethtool.rx_crc_errors.nic",
    "ethtool.rx_dropped.nic",
    "rdma.cnpIgnored",
    "ethtool.mac_remote_faults.nic",
)
def test_what_an_e810_counts_fails(name, tmp_path):
    """Catches: a counter of ice or irdma that is read and judged by nothing."""
    verdict, _ = cells(tmp_path, "irdma", plant((name, 3)))
    failed = [cell.cell.split("/")[2] for cell in verdict.cells if cell.outcome is Outcome.FAIL]
    assert failed == [f"counter.{name}"]


@pytest.mark.parametrize("lost", ["ethtool.rx_crc_errors.nic", "rdma.cnpIgnored", "ethtool."])
def test_a_reading_of_an_e810_that_was_cut_is_inconclusive(lost, tmp_path):
    """Catches: an absent counter of a set that the driver reports whole taken for zero."""

    def change(_before, after):
        for name in [name for name in after["counters"] if name.startswith(lost)]:
            del after["counters"][name]

    verdict, _ = cells(tmp_path, "irdma", change)
    assert verdict.outcome is Outcome.INCONCLUSIVE, verdict.reason


def test_blocks_that_the_driver_mixes_up_blame_no_cable(tmp_path):
    """Catches: corrected blocks, which ice's first releases show as uncorrectable, failed as loss."""
    (tmp_path / "job").mkdir()
    verdict, _ = cells(tmp_path / "job", "irdma", plant(("fec.uncorrectable_blocks", 90_000)))
    assert verdict.outcome is Outcome.PASS
    device = planned("irdma")[1].nics["n1"][0]
    both = [NodeCounters({device.rdma_device: {"fec.uncorrectable_blocks": n}}) for n in (0, 90_000)]
    driven = [NodeCounters(b.devices, about={device.rdma_device: About("ice")}) for b in both]
    assert "fec.uncorrectable_blocks" not in nic_readings(*driven, device, began_anew=False)


def test_notices_of_congestion_are_no_errors_by_any_drivers_spelling():
    """Catches: irdma's cnpSent, cnpHandled taken for errors when a slow NIC's cause is looked for."""
    for name in (
        "rdma.cnpSent",
        "rdma.cnpHandled",
        "rdma.np_cnp_sent",
        "rdma.rp_cnp_handled",
        "rdma.RxECNMrkd",
    ):
        assert not counts_errors(name), name
    assert counts_errors("rdma.cnpIgnored") and counts_errors("ethtool.rx_crc_errors.nic")


@cases(
    "name, says",
    ("ethtool.rx_crc_errors.nic", "received frames with bit errors"),
    ("ethtool.mac_remote_faults.nic", "mac remote faults"),
    ("pause.prio3_rx_ppm", "its switch held it back in priority 3 (slow is what it sends to"),
    ("pause.prio5_tx_ppm", "it held its switch back in priority 5"),
    ("class.prio3_tx_missed_ppm", "sent RoCE bytes outside priority 3"),
    ("class.prio3_missed_ppm", "received RoCE bytes outside priority 3"),
    ("phy.pre_fec_ber_e12", "bit errors before FEC"),
)
def test_a_sentence_says_what_was_counted_and_who_is_slow(name, says):
    """Catches: a NIC that is only held back named as the slow one; "counted 3 nic"."""
    assert says in counter(name)


def test_the_plan_says_that_an_e810_counts_no_loss():
    """Catches: a plan that promises loss, pauses and error ratios seen by counters that the chip has not."""
    (line,) = planned("irdma")[0].nic_counters
    none = line.partition("none sees ")[2]
    for fault in (
        "loss",
        "reordering",
        "lost-answers",
        "pause-storm",
        "wrong-class",
        "high-ber",
        "uncorrectable",
    ):
        assert f"{fault} " in f"{none} ".replace(";", " "), fault
    assert len(seen("irdma")) + len(unseen("irdma")) >= 31


def test_an_e810_is_known_by_either_driver_and_younger_chips_names_can_be_kept(tmp_path):
    """Catches: a name with blanks (RNR sent) that makes the whole reading one that no record takes."""
    assert family_of("ice", "rocep65s0").name == family_of("irdma", "x").name == "irdma"
    rdma = tmp_path / "sys/class/infiniband/irdma0/ports/1"
    put(rdma / "gid_attrs/ndevs/0", "eth0")
    put(rdma / "hw_counters/RNR sent", "3")
    put(rdma / "hw_counters/Nak Sequence Error", "4")
    (device,) = read_devices(tmp_path, live=False)
    assert device["counters"] == {"rdma.RNR_sent": 3, "rdma.Nak_Sequence_Error": 4}


def test_global_pause_of_an_e810_is_a_fault_only_beside_pfc():
    """Catches: a site that has global pause instead of PFC failed for pausing."""
    asked = site("irdma")
    roce = asked.fabric.roce
    off = roce.model_copy(update={"pfc": roce.pfc.model_copy(update={"enabled": False})})
    of = asked.model_copy(update={"fabric": asked.fabric.model_copy(update={"roce": off})})
    name = "counter.ethtool.link_xoff_rx.nic"
    assert name in {item.metric for item in plan_of(asked)[0].items}
    assert name not in {item.metric for item in plan_of(of)[0].items}

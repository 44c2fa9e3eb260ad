"""Faults that hide in how a NIC was read: cleared, frozen or timeless counters, a class wrong at one end."""

import pytest

from shakedown.nics.counter_sets import unwrapped
from shakedown.nics.families import BY_NAME
from shakedown.records.base import Outcome
from tests.unit.nics.test_nic_profiles import MARKS, SECONDS, SITES, cells, plant

PAUSED_US = {"mlx5": "ethtool.tx_prio3_pause_duration", "bnxt": "ethtool.pfc_pri3_tx_duration_us"}
SENT_IN_CLASS = {"mlx5": "ethtool.tx_prio3_bytes", "bnxt": "ethtool.tx_bytes_pri3"}


def failed(verdict):
    """The counters whose cells failed."""
    return [cell.cell.split("/")[2] for cell in verdict.cells if cell.outcome is Outcome.FAIL]


def test_traffic_that_went_over_48_bits_is_no_reset(tmp_path):
    """Catches: a busy Broadcom NIC never judged because its bytes went over the chip's 48 bits."""
    name = "rdma.rx_bytes"

    def change(before, after):
        grown = after["counters"][name] - before["counters"][name]
        before["counters"][name] = (1 << 48) - 1000
        after["counters"][name] = grown - 1000

    verdict, _ = cells(tmp_path, "bnxt", change)
    assert verdict.outcome is Outcome.PASS, verdict.reason
    assert unwrapped(BY_NAME["bnxt"], name, (1 << 48) - 10, 5) == (1 << 48) + 5
    assert unwrapped(BY_NAME["mlx5"], name, (1 << 48) - 10, 5) == 5


@pytest.mark.parametrize("family", SITES)
def test_a_host_that_sends_in_another_class_is_named_itself(family, tmp_path):
    """Catches: one wrong host among many, which each receiver sees as a few per cent of what came."""
    verdict, _ = cells(tmp_path, family, plant((SENT_IN_CLASS[family], 1000)))
    assert failed(verdict) == ["counter.class.prio3_tx_missed_ppm"]
    assert "likely a program that marks its own DSCP, as GPU-driven puts do with 0" in verdict.reason
    assert "rdma resource show qp" in verdict.cells[0].reason


NOTICES = {
    "mlx5": {"rx": "rdma.rp_cnp_handled", "tx": "rdma.np_cnp_sent"},
    "bnxt": {"rx": "rdma.rx_cnp_pkts", "tx": "rdma.tx_cnp_pkts"},
}


@pytest.mark.parametrize("family", SITES)
@pytest.mark.parametrize("way", ["rx", "tx"])
@pytest.mark.parametrize(
    ("share", "noticed", "outcome"),
    [
        (0.45, 0, Outcome.FAIL),
        (0.03, 0, Outcome.FAIL),
        (0.1, 0, Outcome.FAIL),
        (0.49, 0, Outcome.FAIL),
        (0.02, 0, Outcome.FAIL),
        (0.03, None, Outcome.INCONCLUSIVE),
        (0.49, None, Outcome.INCONCLUSIVE),
        (0.3, 1, Outcome.PASS),
        (0.45, None, Outcome.INCONCLUSIVE),
    ],
)
def test_a_part_of_the_traffic_in_another_class(family, way, share, noticed, outcome, tmp_path):
    """Catches: up to half of RoCE in the lossy class taken for good, and congestion notices taken for it.

    `noticed`: how much of that part congestion notices are; None: their driver does not count them.
    """
    own = SENT_IN_CLASS[family].replace("tx_", f"{way}_")
    notices = NOTICES[family][way]

    def change(before, after):
        moved = int((after["counters"][own] - before["counters"][own]) * share)
        after["counters"][own] -= moved
        before["counters"][notices] = after["counters"][notices] = 5
        after["counters"][notices] += moved // 100 * (noticed or 0)
        if noticed is None:
            for reading in (before, after):
                for name in NOTICES[family].values():
                    reading["counters"].pop(name, None)

    verdict, _ = cells(tmp_path, family, change)
    told = [c for c in verdict.cells if "_missed_ppm" in c.cell]
    assert {c.outcome for c in told} == ({outcome} - {Outcome.PASS}), (told, verdict.reason)


@pytest.mark.parametrize("family", SITES)
@pytest.mark.parametrize(("marks", "outcome"), [(1, Outcome.FAIL), (100_000, Outcome.PASS)])
def test_a_few_marks_excuse_no_pause(family, marks, outcome, tmp_path):
    """Catches: a slow host that pauses its sender for 40 % of the time and passed for one marked packet."""

    def change(before, after):
        paused = {PAUSED_US[family]: int(0.4e6 * SECONDS), MARKS[family]: marks}
        for name, grown in paused.items():
            after["counters"][name] = before["counters"][name] + grown

    verdict, _ = cells(tmp_path, family, change)
    assert verdict.outcome is outcome, verdict.reason
    assert failed(verdict) == (["counter.pause.prio3_unmarked_ppm"] if outcome is Outcome.FAIL else [])


@pytest.mark.parametrize("family", SITES)
@pytest.mark.parametrize("later_s", [0.0, 0.5])  # a clock that goes back is refused before (collect)
def test_readings_without_time_between_tell_no_rate(family, later_s, tmp_path):
    """Catches: pauses and error ratios passed as never counted since the clock stood still."""

    def change(before, after):
        after["read_at_s"] = before["read_at_s"] + later_s

    verdict, _ = cells(tmp_path, family, change)
    assert verdict.outcome is Outcome.INCONCLUSIVE, verdict.reason


@pytest.mark.parametrize("family", SITES)
def test_statistics_that_stand_still_under_traffic_are_no_zero(family, tmp_path):
    """Catches: a driver that shows old numbers (failed firmware, statistics switched off) passed as clean."""

    def change(before, after):
        for device, words in ((before, 10), (after, 10**9)):
            device["counters"] |= {"ib.port_xmit_data": words, "ib.port_rcv_data": words}
        for name in [name for name in after["counters"] if name.startswith("ethtool.")]:
            after["counters"][name] = before["counters"][name]

    verdict, _ = cells(tmp_path, family, change)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    undecided = {c.cell.split("/")[2] for c in verdict.cells if c.outcome is Outcome.INCONCLUSIVE}
    flap = {"mlx5": "link_down_events_phy", "bnxt": "link_down_events"}[family]
    assert {f"counter.ethtool.{flap}", "counter.phy.symbol_errors_e15"} <= undecided
    assert not any("counter.rdma." in name for name in undecided)


@pytest.mark.parametrize("driver", ["virtio_net", "mlx5_core.sf", ""])
def test_another_drivers_name_hides_no_cut(driver, tmp_path):
    """Catches: a reading that lacks counters passed as not reported, for it names a driver of no family."""

    def change(before, after):
        for device in (before, after):
            device["driver"] = driver
            for name in [n for n in device["counters"] if n == "rdma.req_rnr_retries_exceeded"]:
                del device["counters"][name]

    verdict, _ = cells(tmp_path, "mlx5", change)
    assert verdict.outcome is Outcome.INCONCLUSIVE, verdict.reason

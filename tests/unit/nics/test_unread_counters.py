"""Counters that could not be read at both readings are undecided; what a NIC has not is not missed."""

import pytest

from shakedown.records.base import Outcome
from tests.kit.cases import cases
from tests.unit.nics.test_nic_profiles import cells

WORDS = "ethtool -I --show-fec eth1: Input/output error"


def without(prefix, unread_before, unread_after):
    """A change that takes all counters of a source away, with what each reading says of it."""

    def change(*both):
        for device, unread in zip(both, (unread_before, unread_after), strict=True):
            device["counters"] = {n: v for n, v in device["counters"].items() if not n.startswith(prefix)}
            device["unread"] = unread

    return change


def undecided(verdict):
    """The counters that are undecided, with the reasons."""
    return {c.cell.split("/")[2]: c.reason for c in verdict.cells if c.outcome is Outcome.INCONCLUSIVE}


@cases(
    "family, source, lost",
    ("mlx5", "fec.", {"counter.fec.uncorrectable_blocks"}),
    ("mlx5", "devlink.", {"counter.devlink.fw_errors", "counter.devlink.fw_fatal_errors"}),
    ("bnxt", "devlink.", {"counter.devlink.fw_errors", "counter.devlink.hw_errors"}),
    ("mlx5", "dom.", {"counter.module.alarms", "counter.module.warnings"}),
    ("irdma", "dom.", {"counter.module.alarms", "counter.module.warnings"}),
    ("mlx5", "netdev.carrier_down_count", {"counter.netdev.carrier_down_count"}),
)
def test_a_source_that_failed_at_both_readings_is_undecided(family, source, lost, tmp_path):
    """Catches: FEC, firmware errors or the module of a NIC that nobody could read, passed as not reported."""
    verdict, _ = cells(tmp_path, family, without(source, {source: WORDS}, {source: WORDS}))
    found = undecided(verdict)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert set(found) == lost
    assert all(f"not read before and after the test: {WORDS}" in reason for reason in found.values())


@pytest.mark.parametrize("unread", [({}, {}), ({"fec.": WORDS}, {}), ({}, {"fec.": WORDS})])
def test_a_nic_without_such_a_counter_is_not_missed(unread, tmp_path):
    """Catches: a host blamed whose NIC has no FEC counters: one good reading without them says so."""
    verdict, _ = cells(tmp_path, "mlx5", without("fec.", *unread))
    assert verdict.outcome is Outcome.PASS


def test_ethtool_that_failed_takes_what_is_worked_out_of_it(tmp_path):
    """Catches: error ratios and pauses of a NIC whose ethtool failed, passed as not reported."""
    why = {"ethtool.": "ethtool -S eth1: Input/output error"}
    verdict, _ = cells(tmp_path, "mlx5", without("ethtool.", why, why))
    found = undecided(verdict)
    assert {
        "counter.phy.symbol_errors_e15",
        "counter.class.prio3_missed_ppm",
        "counter.ethtool.module_unplug",
        "counter.ethtool.rx_crc_errors_phy",
    } <= set(found)
    assert all(why["ethtool."] in reason for reason in found.values())


def test_one_failed_reading_says_why(tmp_path):
    """Catches: a counter that is in one reading only told without the reason that the other one gives."""

    def change(_before, after):
        without("fec.", {}, {})(after, {"counters": {}})
        after["unread"] = {"fec.": WORDS}

    verdict, _ = cells(tmp_path, "mlx5", change)
    reason = undecided(verdict)["counter.fec.uncorrectable_blocks"]
    assert reason.endswith(f"counter was not read after the test: {WORDS}")

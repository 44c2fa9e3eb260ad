"""The search for the peak: pure steps, against servers whose peak is known."""

import random

import pytest

from loadgen_harness.search import End, Limits, SearchRun, Step, bracket, next_step, wasted_s

PROBE_S, CONFIRM_S = 3.0, 60.0


def search(
    meets, limits: Limits, runs: list[SearchRun] | None = None, most: int = 100
) -> tuple[End, list[SearchRun]]:
    """Carry out a search; `meets(kind, rate)` says whether a run at a rate meets the bound."""
    runs = list(runs or [])
    for _ in range(most):
        step = next_step(runs, limits)
        if isinstance(step, End):
            return step, runs
        wall = CONFIRM_S if step.kind == "confirm" else PROBE_S
        runs.append(SearchRun(step.kind, step.target_qps, meets(step.kind, step.target_qps), wall))
    raise AssertionError("the search does not end")


@pytest.mark.parametrize("peak", [41.0, 1234.5, 33_000.0, 63_594.0, 900_000.0])
@pytest.mark.parametrize("start", [0.5, 0.92, 1.0, 1.7])
def test_finds_the_peak_to_half_a_percent(peak, start):
    """Catches a bracket that closes on the wrong side, or a peak above what the server can do."""
    limits = Limits(start_qps=peak * start)
    end, runs = search(lambda kind, rate: rate <= peak, limits)
    assert end.peak_qps is not None
    assert peak * (1 - 0.0051) <= end.peak_qps <= peak
    confirmations = [r for r in runs if r.kind == "confirm"]
    assert len(confirmations) == 3 and all(r.target_qps == end.peak_qps for r in confirmations)


def test_short_probes_that_are_too_kind_are_found_out():
    """Catches a peak that only short probes reached: the full runs decide."""
    peak = 30_000.0
    end, runs = search(lambda kind, rate: rate <= peak * (1.04 if kind == "probe" else 1), Limits(27_600.0))
    assert end.peak_qps is not None and peak * 0.9949 <= end.peak_qps <= peak
    at_peak = [r for r in runs if r.kind == "confirm" and r.target_qps == end.peak_qps]
    assert len(at_peak) == 3 and all(r.valid for r in at_peak)


def test_one_failed_confirmation_is_enough():
    """Catches two good runs of three counted as a peak."""
    failed = []

    def meets(kind: str, rate: float) -> bool:
        if kind == "confirm" and not failed:
            failed.append(rate)
            return False
        return rate <= 1000

    end, _ = search(meets, Limits(900.0))
    assert failed and end.peak_qps is not None and end.peak_qps < failed[0]


def test_bound_that_is_never_met_has_no_peak():
    """Catches a search that goes on for ever, or reports its last guess."""
    end, runs = search(lambda kind, rate: False, Limits(1000.0, floor_qps=20.0))
    assert end.peak_qps is None and "never met" in end.reason
    assert min(r.target_qps for r in runs) < 40


def test_bound_never_met_in_full_runs_has_no_peak():
    """Catches a peak taken from probes when no full run met the bound."""
    end, _ = search(lambda kind, rate: kind == "probe" and rate <= 1000, Limits(900.0))
    assert end.peak_qps is None and "full run" in end.reason


@pytest.mark.parametrize("killed_after", range(0, 14))
def test_a_killed_search_goes_on_where_it_stopped(killed_after):
    """Catches a resumed search that starts again, or comes to another answer."""
    limits = Limits(start_qps=27_000.0)
    meets = lambda kind, rate: rate <= 31_415  # noqa: E731
    whole, runs = search(meets, limits)
    before = runs[:killed_after]
    end, resumed = search(meets, limits, before)
    assert end == whole and len(resumed) == len(runs)


def test_a_run_that_was_cut_off_says_nothing():
    """Catches a run whose end is missing counted as failed, or as met."""
    cut = SearchRun("probe", 920.0, valid=True, wall_s=3, finished=False)
    assert next_step([cut], Limits(920.0)) == Step("probe", 920.0)
    assert wasted_s([cut]) == 3


def test_noise_that_contradicts_itself_is_believed_where_it_fails():
    """Catches a bracket with its upper end below its lower one."""
    runs = [
        SearchRun("probe", 100, True, 1),
        SearchRun("probe", 110, True, 1),
        SearchRun("probe", 105, False, 1),
    ]
    found = bracket(runs, "probe")
    assert (found.low, found.high) == (100, 105)


@pytest.mark.parametrize("disturbed", range(1, 7))
def test_a_disturbed_beginning_does_not_lower_the_peak(disturbed):
    """Catches 29,300 queries/s told of a GPU that answers 62,000: seen on an H200 whose first probes failed
    while its host was busy, and bisection then never looked above the lowest failure again."""
    made = []

    def meets(kind: str, rate: float) -> bool:
        made.append(rate)
        return rate <= 62_000 and (len(made) > disturbed or rate < 28_000)

    end, runs = search(meets, Limits(63_100.0))
    assert end.peak_qps is not None and 62_000 * 0.994 <= end.peak_qps <= 62_000, runs


def test_a_failure_is_asked_twice_and_no_more():
    """Catches a rate that is asked until luck meets the bound."""
    end, runs = search(lambda kind, rate: rate <= 1000, Limits(1100.0))
    assert end.peak_qps is not None
    probes = [run.target_qps for run in runs if run.kind == "probe"]
    assert [probes.count(rate) for rate in set(probes) if probes.count(rate) > 1] == [2]
    twice = [SearchRun("probe", 100, True, 1), *[SearchRun("probe", 100.4, False, 1)] * 2]
    assert next_step(twice, Limits(92.0)) == Step("confirm", 100)


def test_every_search_ends():
    """Catches oscillation where runs near the peak are a lottery."""
    for seed in range(200):
        luck = random.Random(seed)
        limits = Limits(start_qps=luck.uniform(300, 2000))
        end, _ = search(lambda kind, rate: rate + luck.gauss(0, 15) <= 1000, limits)  # noqa: B023
        assert end.peak_qps is None or 900 < end.peak_qps < 1030


def test_little_time_is_wasted():
    """Catches probes at rates that are decided already: at most a quarter of the time may go there."""
    for seed in range(100):
        luck = random.Random(seed)
        peak = luck.uniform(300, 2000)
        _, runs = search(lambda kind, rate: rate * luck.gauss(1, 0.004) <= peak, Limits(0.92 * peak))  # noqa: B023
        assert wasted_s(runs) <= 0.25 * sum(run.wall_s for run in runs)


def test_waste_is_seen():
    """Catches a measure of waste that is always zero."""
    known = [SearchRun("probe", 100, True, 3), SearchRun("probe", 120, False, 3)]
    assert wasted_s([*known, SearchRun("probe", 90, True, 3)]) == 3
    assert wasted_s([*known, SearchRun("probe", 130, False, 3)]) == 3
    assert wasted_s([*known, SearchRun("probe", 110, False, 3)]) == 0

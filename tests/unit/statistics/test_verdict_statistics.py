"""Statistics: published worked numbers, and the false-alarm rate that the outlier rule claims."""

import random

import pytest
from scipy import special, stats

from shakedown.statistics.robust import (
    behind_fellows,
    benjamini_hochberg,
    median,
    median_interval,
    resolution,
    robust_z,
    smallest_p,
    student_t_tail,
    worse_outliers,
)


def test_three_against_three_is_never_significant():
    """Catches a test that claims significance from three samples against three."""
    assert smallest_p(3, 3) == pytest.approx(0.1)
    exact = stats.mannwhitneyu([1, 2, 3], [7, 8, 9], method="exact").pvalue
    assert smallest_p(3, 3) == pytest.approx(exact)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 8, 9, 12, 15, 20, 25])
def test_median_interval_covers_what_it_says(n):
    """Catches an interval one order statistic too narrow: compared with the binomial distribution."""
    values = list(range(1, n + 1))
    low, high, coverage = median_interval(values)
    assert coverage == pytest.approx(1 - 2 * stats.binom.cdf(low - 1, n, 0.5), abs=1e-12)
    if n < 6:
        assert (low, high) == (1, n) and coverage < 0.95
    else:
        assert coverage >= 0.95
        narrower = 1 - 2 * stats.binom.cdf(low, n, 0.5)
        assert narrower < 0.95


def test_median_interval_needs_six():
    """Catches a claim of 95 % from fewer than six samples."""
    assert median_interval([1, 2, 3, 4, 5])[2] == pytest.approx(0.9375)
    assert median_interval([1, 2, 3, 4, 5, 6])[2] == pytest.approx(0.96875)


def test_median_refuses_nothing():
    """Catches a median of no values that is 0."""
    with pytest.raises(ValueError, match="no values"):
        median([])


@pytest.mark.parametrize(
    ("values", "step"), [([97.5, 97.52], 0.01), ([391.0, 12.0], 1.0), ([1e-9], 1e-18), ([0.125], 0.001)]
)
def test_resolution(values, step):
    """Catches a resolution of 0, which makes a quiet class accuse everybody."""
    assert resolution(values) == pytest.approx(step)


def test_robust_z_matches_scipy():
    """Catches a wrong MAD scale."""
    values = [390.1, 390.3, 389.9, 391.0, 388.7, 390.2, 200.0]
    spread = stats.median_abs_deviation(values, scale="normal")
    expected = [(v - median(values)) / spread for v in values]
    assert robust_z(values, 0.0) == pytest.approx(expected, rel=1e-4)


def test_benjamini_hochberg_matches_scipy():
    """Catches a step-down instead of a step-up."""
    generator = random.Random(7)
    for _ in range(50):
        p = [generator.random() ** 3 for _ in range(generator.randint(1, 40))]
        adjusted = stats.false_discovery_control(p)
        assert benjamini_hochberg(p, 0.05) == [a <= 0.05 for a in adjusted]


def test_odd_member_is_found():
    """Catches an outlier rule that finds nothing."""
    values = [390.0 + 0.1 * (i % 7) for i in range(32)]
    values[9] = 381.0
    odd = worse_outliers(values, higher=True, min_effect=0.01)
    assert [i for i, is_odd in enumerate(odd) if is_odd] == [9]


def test_improvement_is_no_outlier():
    """Catches a two-sided rule: a faster node is not a fault."""
    values = [390.0 + 0.1 * (i % 7) for i in range(32)]
    values[9] = 399.0
    assert not any(worse_outliers(values, higher=True, min_effect=0.01))
    assert worse_outliers(values, higher=False, min_effect=0.01)[9]


def test_quiet_class_below_the_minimum_effect():
    """Catches blame for a difference that nobody would notice: identical values but one, by 0.3 %."""
    values = [390.00] * 31 + [388.83]
    assert not any(worse_outliers(values, higher=True, min_effect=0.01))


@pytest.mark.parametrize("n", [1, 3, 5])
def test_class_too_small(n):
    """Catches an accusation within a class in which nothing can be significant."""
    assert not any(worse_outliers([390.0] * (n - 1) + [200.0], higher=True, min_effect=0.01))


def test_median_of_zero_accuses_nobody():
    """Catches a division by zero for counters."""
    assert not any(worse_outliers([0.0] * 20 + [5.0], higher=False, min_effect=0.01))


@pytest.mark.parametrize("n", [6, 8, 16, 64, 256])
def test_false_alarms(n):
    """Catches tails that are too light for few values: the normal tail accuses somebody in 8 % of classes.

    Healthy normal classes with a minimum effect that is no help, at q = 0.01; the claim is about 1 %.
    """
    generator = random.Random(n)
    classes = 1500 if n < 100 else 300
    alarms = sum(
        any(worse_outliers([generator.gauss(100, 1) for _ in range(n)], higher=True, min_effect=1e-9))
        for _ in range(classes)
    )
    assert alarms / classes <= 0.02


def test_one_step_of_the_tool_is_no_outlier():
    """Catches a MAD of zero: a tool that prints whole microseconds makes 3 against 2 look like 50 % more."""
    assert not any(worse_outliers([2.0] * 20 + [3.0], higher=False, min_effect=0.1))
    assert worse_outliers([2.0] * 20 + [30.0], higher=False, min_effect=0.1)[20]


@pytest.mark.parametrize("freedom", [1.0, 1.85, 2.59, 7.5, 23.3, 94.4, 378.5, 3030.7, 30000.0])
def test_student_t_matches_scipy_and_the_incomplete_beta(freedom):
    """Catches the wrong tail or sign, and one that is wrong where it decides: far out, at few and many."""
    for t in (-40.0, -3.5, -0.1, 0.0, 0.1, 1.0, 2.0, 3.5, 4.7, 8.0, 20.0, 100.0, 1e4, 1e8):
        found = student_t_tail(t, freedom)
        assert found == pytest.approx(stats.t.sf(t, freedom), rel=1e-12, abs=1e-300)
        if t >= 2:  # where the beta function still has its digits, and where the outlier rule asks
            half = special.betainc(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2
            assert found == pytest.approx(half, rel=1e-12, abs=1e-300)


# Between cards of one model, as four healthy H200s at their power cap were measured: 0.85 %; work per clock
# cycle 0.3 %. What is published of each: deviation and cards.
RATE, PER_CYCLE = (0.0085, 0.0093, 8, 0.02), (0.003, 0.003, 13, 0.015)


@pytest.mark.parametrize(
    ("kind", "cards", "drop", "named"),
    [
        (RATE, 8, 0.05, 0.85),
        (RATE, 8, 0.10, 0.99),
        (RATE, 4, 0.05, 0.70),
        (RATE, 2, 0.08, 0.95),
        (PER_CYCLE, 2, 0.03, 0.99),
        (PER_CYCLE, 8, 0.03, 0.99),
    ],
)
def test_a_slow_card_is_named_or_undecided_and_healthy_ones_are_not_blamed(kind, cards, drop, named):
    """Catches: a rule that finds a card 5 % slow in 8 % of nodes, since healthy cards vary by 0.85 %."""
    deviation, spread, known, effect = kind
    generator, nodes = random.Random(7), 600

    def node(*, less: float = 0.0) -> list[bool | None]:
        rates = [660 * (1 + generator.gauss(0, deviation)) for _ in range(cards)]
        rates[0] *= 1 - less
        return behind_fellows(rates, spread=spread, cards=known, min_effect=effect)

    assert sum(True in node() for _ in range(nodes)) <= 0.01 * nodes
    found = [node(less=drop)[0] for _ in range(nodes)]
    assert found.count(True) >= named * nodes
    assert found.count(False) <= 0.02 * nodes  # a card so slow is not PASS because its fellows vary


def test_two_cards_of_an_unknown_model_decide_nothing():
    """Catches: a card blamed for being 3 % slower than one other, where nothing tells how cards differ."""
    assert behind_fellows([640.0, 660.0], spread=0.0, cards=0, min_effect=0.02) == [None, False]
    assert behind_fellows([0.0, 0.0], spread=0.0, cards=0, min_effect=0.02) == [False, False]


@pytest.mark.parametrize(
    ("well", "busy", "by_rate"),
    [((668.4, 1445.9), (652.3, 1491.3), None), ((664.2, 1451.6), (633.1, 1498.8), True)],
)
def test_a_real_card_with_another_process_does_less_in_each_cycle(well, busy, by_rate):
    """Catches: a process that takes 3 (or 8) of every 100 ms hidden by what cards differ by.

    Two H200 of one host, 28 November 2026, bf16: TFLOP/s and mean MHz; without it 668.5 and 670.4 TFLOP/s.
    """
    assert behind_fellows([668.5, 670.4], spread=0.0093, cards=8, min_effect=0.02) == [False, False]
    assert behind_fellows([well[0], busy[0]], spread=0.0093, cards=8, min_effect=0.02) == [False, by_rate]
    per_cycle = [rate / mhz for rate, mhz in (well, busy)]
    assert behind_fellows(per_cycle, spread=0.003, cards=13, min_effect=0.015) == [False, True]

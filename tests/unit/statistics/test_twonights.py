"""What two nights say of a step, and how rarely nights without one say it."""

import numpy as np
import pytest

from shakedown.daytwo.history.night_charts import Nights, limit
from shakedown.daytwo.history.night_noise import Tails, TailSide, both_sides, through_quantiles
from tests.kit.cases import cases

NORMAL = Tails(TailSide(300.0, 1.0, 0.5), TailSide(300.0, 1.0, 0.5))
HEAVY = Tails(TailSide(4.0, 0.75, 0.5), TailSide(4.0, 0.75, 0.5))
# Interference that only takes away: exponential beyond the level, hardly anything above it.
ONE_SIDED = Tails(TailSide(4.1, 1.15, 0.42), TailSide(300.0, 0.7, 0.58))


def ratios(away: np.ndarray, tails: Tails, lead: float = 0.0, odd: float = 1e-4) -> np.ndarray:
    """Return the log ratios of rows of three nights."""
    one = np.ones(len(away))
    return Nights(np.full((len(away), 2), lead), lead * one, 30 * one, odd * one, tails).log_ratio(away)


@pytest.mark.slow
@pytest.mark.parametrize("lead", [0.0, 0.5])
@pytest.mark.parametrize("tails", [HEAVY, ONE_SIDED])
def test_a_limit_is_reached_as_rarely_as_it_says(tails, lead):
    """Catches: a limit that holds in the noise it was chosen in only. One night in 20,000, counted."""
    rng = np.random.default_rng(1)
    nights = tails.quantile(rng.random((2_000_000, 3)))
    for night in (1, 2):
        nights[:, night] = lead * nights[:, night - 1] + np.sqrt(1 - lead**2) * nights[:, night]
    error = np.sqrt((1 + lead) / (1 - lead) / 30) * rng.standard_normal((len(nights), 1))
    # Only nights that are both far out can reach it.
    far = nights[(nights[:, 1:] > 1).all(axis=1)] + error[(nights[:, 1:] > 1).all(axis=1)]
    reached = int((ratios(far, tails, lead) > limit(lead, lead, 30.0, 1e-4, tails, 1 / 20_000)).sum())
    assert 70 <= reached <= 150


def test_one_sided_noise_needs_more_than_heavy_tails():
    """Catches: one limit for all noise: exponential interference reached 8.8 in 3 of 1,000 years."""
    assert limit(0.0, 0.0, 30.0, 1e-4, ONE_SIDED) > limit(0.0, 0.0, 30.0, 1e-4, HEAVY) + 0.5


@cases(
    "night_before, first, second, tails, step",
    (0.0, 7.0, 7.0, HEAVY, True),
    (0.0, 9.0, 3.0, HEAVY, False),  # as far out together, and not alike
    (0.0, 7.0, 7.0, NORMAL, True),
    (0.0, 4.0, 4.0, NORMAL, False),  # too small for two nights
    (0.0, -7.0, -7.0, HEAVY, False),
)
def test_two_nights_are_a_step_if_they_are_far_out_and_alike(night_before, first, second, tails, step):
    """Catches: an odd night beside a slow one, and an improvement, called a loss."""
    one = np.ones(1)
    nights = Nights(np.zeros((1, 2)), 0 * one, 30 * one, 1e-4 * one, tails)
    assert nights.is_step(np.array([[night_before, first, second]]))[0] == step


def test_what_the_night_before_leads_to_expect_is_no_step():
    """Catches: one shock that dies away over some nights, called a step as if each night came by itself."""
    shock = np.array([[0.0, 9.0, 6.3]])
    assert ratios(shock, HEAVY, 0.7)[0] < ratios(shock, HEAVY, 0.0)[0] - 5


def test_both_sides_are_learnt_apart():
    """Catches: the heavy side's tail believed of the light one, and of normal nights t tails."""
    rng = np.random.default_rng(2)
    losses = rng.standard_exponential(40_000) - 1
    tails = both_sides(losses)
    assert tails.worse.share == pytest.approx(np.exp(-1), abs=0.01)
    assert tails.worse.freedom < 6
    assert tails.better.freedom > 50
    drawn = tails.quantile((np.arange(100_000) + 0.5) / 100_000)
    for far in (3.0, 4.0):
        assert (drawn > far).mean() == pytest.approx((losses > far).mean(), rel=0.15)
    freedom, scale = through_quantiles(rng.standard_t(4, 60_000))
    assert (freedom, scale) == (pytest.approx(4, abs=0.5), pytest.approx(1, abs=0.03))

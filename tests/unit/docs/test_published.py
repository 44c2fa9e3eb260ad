"""The page of published figures: what it calls published was printed, and what it calls unjudged says why."""

from pathlib import Path

from generator import published

from shakedown.references.files import load_profile

ROOT = Path(__file__).parents[3]


def row(profile: str, name: str, use: published.Use) -> tuple[str, ...]:
    """The page's row of a reference that shipped plans use so."""
    found = load_profile(profile)
    (entry,) = (entry for entry in found.entries if entry.id == name)
    return published._row(entry, use, found)


def test_what_is_worked_out_is_not_called_published():
    """Catches: a gate of our own arithmetic, shown to the reader as a figure of the report."""
    one = published.Use(deciding=1, first="x")
    _, printed, ours, *_ = row("pt_r7615_bcm57508", "pt-a-sendrecv-256m", one)
    assert (printed, ours) == ("83 % less time than B", "5.882 GB/s (computed)")
    _, printed, ours, *_ = row("primergy_cdi", "primergy-h100nvl-none-1gpu", one)
    assert (printed, ours) == ("63,594 queries/s", "9.57 GB/s (computed)")


def test_a_figure_that_is_not_measured_says_what_is_missing():
    """Catches: power that "decides nothing" by its note, where the plan has no access to the BMCs."""
    bmc = published.Use(shown=1, first="x", not_run="no access to the servers' BMCs")
    said = row("pt_r7615_bcm57508", "pt-a-power-sendrecv-large", bmc)[-1]
    assert said.startswith("NOT-RUN in the shipped inventory, judged where this does not hold: No access to")
    told = row("tolly_xe9680_z9664f", "tolly-link-sent", published.Use(shown=1, first="x"))[-1]
    assert told.startswith("Shown, and decides nothing: ")

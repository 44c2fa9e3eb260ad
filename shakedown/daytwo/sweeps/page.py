"""A comparison of sweeps as a page: for each operation its time and its busbw.

The page is made of the report's own parts: its style sheet, its charts, no script and no request.
"""

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from shakedown.daytwo.sweeps import text as sweep_text
from shakedown.daytwo.sweeps.claims import Claim
from shakedown.daytwo.sweeps.pairs import Pairing, PairRow, SweepComparison, Value
from shakedown.records.base import Better
from shakedown.report import charts, text
from shakedown.report.html import TEMPLATES, environment
from shakedown.report.sweeps import FEWEST_SIZES, Chart, Curve

# Pairings beyond these are not drawn or not printed, and the page says so: --json has all of them.
MOST_DRAWN = 12
MOST_PRINTED = 48


def curves(found: SweepComparison) -> list[Chart]:
    """Return two charts for every pairing with enough sizes, time and busbw, in the order of the tables."""
    drawn = [p for p in found.pairings if len(p.rows) >= FEWEST_SIZES][:MOST_DRAWN]
    return [
        _chart(found, pairing, f"ab-{number}-{metric}", metric)
        for number, pairing in enumerate(drawn, 1)
        for metric in ("time", "busbw")
        if metric == "time" or any(value for row in pairing.rows for value in row.busbw_gb_per_s)
    ]


def _chart(found: SweepComparison, pairing: Pairing, name: str, metric: str) -> Chart:
    lower = metric == "time"
    of: Callable[[PairRow], tuple[Value | None, ...]] = (
        (lambda row: row.time_us) if lower else (lambda row: row.busbw_gb_per_s)
    )
    drawn = []
    for number, side in enumerate(found.sides):
        # A planned size without a number is a gap; one that this side steps over is none.
        values = [(float(row.size_bytes), of(row)[number]) for row in pairing.rows if row.planned[number]]
        drawn.append(
            Curve(
                side.name,
                "measured" if number else "baseline",
                tuple(size for size, _ in values),
                tuple(value.median if value else math.nan for _, value in values),
                tuple((size, v.least, v.most) for size, v in values if v and v.samples > 1),
            )
        )
    return Chart(
        id=name,
        title=f"{sweep_text.where(pairing)}: {'time' if lower else 'bandwidth'}",
        x_label="message size",
        y_label="time, µs" if lower else "busbw, GB/s",
        curves=tuple(drawn),
        better=Better.LOWER if lower else Better.HIGHER,
        caption=f"{'lower' if lower else 'higher'} is better; bars from the least to the most of the repeats",
    )


def page(found: SweepComparison, claims: Sequence[Claim] = (), unjudged: str = "") -> str:
    """Return the page, with the claims that were judged or why there are none."""
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    drawable = sum(len(p.rows) >= FEWEST_SIZES for p in found.pairings)
    base = found.sides[0].name
    ends = [
        (
            sweep_text.where(pairing),
            f"{side.name}/{base}",
            text.size(pairing.short_below_bytes),
            sweep_text.ends(extremes.time),
            sweep_text.ends(extremes.busbw),
        )
        for pairing in found.pairings
        for side, extremes in zip(found.sides[1:], pairing.extremes, strict=True)
    ]
    printed = found.pairings[:MOST_PRINTED]
    return (
        environment()
        .get_template("sweeps.html.j2")
        .render(
            found=found,
            names=[side.name for side in found.sides],
            overall=list(sweep_text.overall(found)),
            notes=sweep_text.notes(found),
            judgement=sweep_text.judgement(claims, unjudged),
            claims=[(claim, *sweep_text.claim_cells(claim)) for claim in claims],
            changes=sweep_text.changes(found),
            side_notes=[*found.unknown, *sweep_text.side_notes(found)],
            ends=ends,
            draws=sweep_text.draws(found),
            plots=curves(found),
            not_drawn=max(0, drawable - MOST_DRAWN),
            chart=charts.draw,
            header=sweep_text.header(found),
            tables=[(sweep_text.where(p), [sweep_text.cells(row) for row in p.rows]) for p in printed],
            not_printed=len(found.pairings) - len(printed),
            style=Markup(style),  # noqa: S704  (our own file)
        )
    )

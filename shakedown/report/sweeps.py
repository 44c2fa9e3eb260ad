"""Curves: a metric over message size against reference, gate and ceiling; the training loss over steps."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from shakedown.records.base import Better, Outcome, Stage
from shakedown.report import text
from shakedown.report.findings import site
from shakedown.report.source import CellPlace, ReportSource, margin

SIZE = "size_bytes"
FEWEST_SIZES = 3
MOST_CURVES = 4  # more series than this are drawn as a band around their median
MOST_CHARTS = 24
MOST_POINTS = 600  # per loss curve


@dataclass(frozen=True)
class Curve:
    """One line of a chart. Roles: measured, baseline, worst, missed, reference, gate, ceiling."""

    label: str
    role: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[tuple[float, float, float], ...] = ()  # (x, least, most) of repeats


@dataclass(frozen=True)
class Chart:
    """A chart and the table that says the same in words."""

    id: str
    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    band: tuple[tuple[float, float, float], ...] = ()  # (x, least, most)
    sizes: bool = True  # x is a message size, both axes are logarithmic
    better: Better = Better.HIGHER
    caption: str = ""
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def _points(pairs: Sequence[tuple[float, float | None]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Split pairs for logarithmic axes; a missing value stays as a gap, never bridged by a line."""
    return tuple(x for x, _ in pairs), tuple(math.nan if y is None or y <= 0 else y for _, y in pairs)


def _chart(source: ReportSource, key: tuple[Stage, str, str], indices: list[int], number: int) -> Chart:
    _, test, metric = key
    items = source.plan.items
    indices = sorted(indices, key=lambda i: float(items[i].params[SIZE]))
    item = items[indices[0]]
    limits: dict[str, list[tuple[float, float | None]]] = {"reference": [], "gate": [], "ceiling": []}
    series: dict[tuple[tuple[str, ...], str | None, str | None], list[tuple[float, float | None]]] = {}
    missed: list[tuple[float, float | None]] = []
    place_of: dict[tuple[tuple[str, ...], str | None, str | None], CellPlace] = {}
    worst_margin: dict[tuple[tuple[str, ...], str | None, str | None], float] = {}
    rows, band, medians = [], [], []
    for index in indices:
        size = float(items[index].params[SIZE])
        reference = source.reference(items[index])
        values = []
        for cell, (_, nodes, rail, direction) in zip(
            source.by_item[index], items[index].cells(), strict=True
        ):
            line = (nodes, rail, direction)
            place_of.setdefault(line, CellPlace(items[index], index, *line))
            series.setdefault(line, []).append((size, cell.value))
            if cell.outcome is not Outcome.PASS:
                missed.append((size, cell.value))
            if cell.value is None:
                continue
            values.append(cell.value)
            standing = margin(cell.value, reference.gate, item.better)
            worst_margin[line] = min(worst_margin.get(line, standing), standing)
        limits["reference"].append((size, reference.value))
        limits["gate"].append((size, reference.gate))
        limits["ceiling"].append((size, reference.ceiling))
        if values:
            band.append((size, min(values), max(values)))
            medians.append((size, statistics.median(values)))
        low, high = (min(values), max(values)) if values else (None, None)
        rows.append(
            (
                text.size(size),
                text.number(low if item.better is Better.HIGHER else high),
                text.number(statistics.median(values) if values else None),
                text.number(reference.gate),
                text.number(reference.value),
                text.number(reference.ceiling),
            )
        )
    curves: list[Curve] = []
    if len(series) <= MOST_CURVES:
        curves += [Curve(site(place_of[line]), "measured", *_points(found)) for line, found in series.items()]
        band = []
    else:
        curves.append(Curve(f"median of {len(series):,}", "measured", *_points(medians)))
        worst, _ = min(worst_margin.items(), key=lambda entry: entry[1])
        curves.append(Curve(f"worst: {site(place_of[worst])}", "worst", *_points(series[worst])))
    if missed:
        curves.append(Curve("did not pass", "missed", *_points(missed)))
    for role, pairs in limits.items():
        if any(limit is not None for _, limit in pairs):
            curves.append(Curve(role, role, *_points(pairs)))
    others = text.params({k: v for k, v in item.params.items() if k != SIZE})
    return Chart(
        id=f"sweep-{number}",
        title=f"{test} {metric}" + (f" ({others})" if others else ""),
        x_label="message size",
        y_label=f"{metric}, {item.unit}",
        curves=tuple(curves),
        band=tuple(band),
        better=item.better,
        caption=f"{'higher' if item.better is Better.HIGHER else 'lower'} is better",
        header=("size", "worst", "median", "gate", "reference", "ceiling"),
        rows=tuple(rows),
    )


def size_sweeps(source: ReportSource) -> tuple[tuple[Chart, ...], int]:
    """Return a chart for every test and metric measured at three sizes or more, and how many were left out.

    Those with a cell that did not pass come first, so that a cut never hides a failure.
    """
    grouped: dict[tuple[Stage, str, str, str], list[int]] = {}
    for index, item in enumerate(source.plan.items):
        size = item.params.get(SIZE)
        if (
            isinstance(size, int | float)
            and not isinstance(size, bool)
            and not item.metric.startswith("counter.")
        ):
            others = text.params({k: v for k, v in item.params.items() if k != SIZE})
            grouped.setdefault((item.stage, item.test, item.metric, others), []).append(index)
    eligible = [
        (key, indices)
        for key, indices in grouped.items()
        if len({source.plan.items[i].params[SIZE] for i in indices}) >= FEWEST_SIZES
        and any(source.verdict.groups[i].measured for i in indices)
        # What must be nil, such as wrong elements, has no place on a logarithmic axis; tables show it.
        and any(source.reference(source.plan.items[i]).value > 0 for i in indices)
    ]
    groups = enumerate(source.verdict.groups)
    failing = {i for i, group in groups if group.outcomes.get(Outcome.PASS, 0) < group.planned}
    eligible.sort(key=lambda entry: not failing.intersection(entry[1]))
    kept = eligible[:MOST_CHARTS]
    charts = tuple(_chart(source, key[:3], indices, n) for n, (key, indices) in enumerate(kept, 1))
    return charts, len(eligible) - len(kept)


def loss_charts(source: ReportSource) -> tuple[Chart, ...]:
    """Return the training loss over steps, thinned to what a page can show; the last step is always kept."""
    charts = []
    for number, series in enumerate(source.losses, 1):
        last = len(series.x) - 1
        drawn = sorted({*range(0, last + 1, max(1, -(-last // MOST_POINTS))), last})
        printed = sorted({*range(0, last + 1, max(1, last // 20)), last})
        curve = Curve(
            "loss", "measured", tuple(series.x[i] for i in drawn), tuple(series.y[i] for i in drawn)
        )
        absent = sum(1 for y in series.y if math.isnan(y))
        first_step, last_step = text.number(series.x[0]), text.number(series.x[last])
        charts.append(
            Chart(
                id=f"loss-{number}",
                title=series.label,
                x_label="step",
                y_label="training loss",
                curves=(curve,),
                sizes=False,
                better=Better.LOWER,
                caption=f"{text.number(series.y[0])} at step {first_step}, "
                f"{text.number(series.y[last])} at step {last_step}"
                + (f"; {text.counted(absent, 'step')} without a finite loss" if absent else ""),
                header=("step", "loss"),
                rows=tuple((text.number(series.x[i]), text.number(series.y[i])) for i in printed),
            )
        )
    return tuple(charts)

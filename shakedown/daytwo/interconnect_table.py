"""The table of the PRIMERGY CDI paper: data rate by path and GPUs, and as a multiple of a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shakedown.benchmarks.inference.peak import NOISE_FLOOR, difference, extrapolated
from shakedown.benchmarks.inference.report_data import INFERENCE_TEST
from shakedown.records.errors import BadInput
from shakedown.run.folder import Run


@dataclass(frozen=True)
class Cell:
    """One number of the table. Extrapolated ones were not measured."""

    gb_per_s: float
    extrapolated: bool
    ratio: float | None  # to the baseline at as many GPUs
    reading: str  # "baseline", "no difference", "-17.0%"; empty without a baseline


@dataclass(frozen=True)
class Row:
    """One path, by number of GPUs."""

    path: str
    cells: dict[int, Cell]


def table(
    rates: Mapping[str, Mapping[int, float]], baseline: str, noise_floor: float = NOISE_FLOOR
) -> tuple[Row, ...]:
    """Return a row for every path, the baseline first.

    A number of GPUs that one path has and another lacks is extrapolated for the other from its own rates, in
    a straight line, and marked, and so is a ratio to an extrapolated number.

    Args:
        rates: GB/s by path and number of GPUs, as measured.
        baseline: the path that is 1.00.
        noise_floor: differences below it are none.

    Raises:
        BadInput: the baseline was not measured.
    """
    if not rates.get(baseline):
        raise BadInput(
            f"no rates of the baseline {baseline!r}", fix=f"take one of {', '.join(sorted(rates))}"
        )
    counts = sorted({gpus for by_gpus in rates.values() for gpus in by_gpus})
    filled = {path: {gpus: _rate(by_gpus, gpus) for gpus in counts} for path, by_gpus in rates.items()}
    order = [baseline, *sorted(path for path in rates if path != baseline)]
    rows = []
    for path in order:
        cells = {}
        for gpus in counts:
            value, guessed = filled[path][gpus]
            base, base_guessed = filled[baseline][gpus]
            ratio = value / base
            reading = "baseline" if path == baseline else difference(ratio, noise_floor)
            cells[gpus] = Cell(value, guessed, ratio, reading + (" (extrapolated)" if base_guessed else ""))
        rows.append(Row(path, cells))
    return tuple(rows)


def _rate(by_gpus: Mapping[int, float], gpus: int) -> tuple[float, bool]:
    if gpus in by_gpus:
        return by_gpus[gpus], False
    guess = extrapolated(by_gpus, gpus)
    assert guess is not None
    return guess, True


def rates_of(folder: Path) -> dict[int, float]:
    """Return the data rate in GB/s by number of GPUs of a run on one node.

    Raises:
        BadInput: the run has no measured data rate, or several nodes have one.
    """
    found = [
        m
        for m in Run(folder).measurements()
        if m.test == INFERENCE_TEST
        and m.metric == "data_rate"
        and "gpus" in m.params
        and m.value is not None
        and m.problem is None
        and m.state == "COMPLETED"
    ]
    if not found:
        raise BadInput("no data rate of inference was measured", fix="see shakedown verdict", file=folder)
    if len({m.nodes for m in found}) > 1:
        raise BadInput("several nodes have inference", fix="compare runs of one node each", file=folder)
    return {int(m.params["gpus"]): float(m.value or 0) for m in found}

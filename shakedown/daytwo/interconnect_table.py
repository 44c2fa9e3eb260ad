"""The table of the PRIMERGY CDI paper: data rate by path and GPUs, and as a multiple of a baseline."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shakedown.benchmarks.inference.metrics import INFERENCE_TEST
from shakedown.benchmarks.inference.peak import NOISE_FLOOR, difference, extrapolated
from shakedown.plan.jobs import Jobs
from shakedown.records.reading import BadInput, read_record
from shakedown.records.wording import natural_key, number
from shakedown.run.folder import JOBS, Run

# Kinds of jobs, by which a node's path and the generation of its links are known.
INFERENCE, PCIE_PATH = "inference", "pcie_path"


@dataclass(frozen=True)
class TableCell:
    """One number of the table; extrapolated ones were not measured, and None has no line to it."""

    gb_per_s: float | None
    extrapolated: bool
    ratio: float | None  # to the baseline at as many GPUs
    reading: str  # "baseline", "no difference", "-17.0%"; empty without a baseline


@dataclass(frozen=True)
class TableRow:
    """One path, by number of GPUs."""

    path: str
    cells: dict[int, TableCell]


def table(
    rates: Mapping[str, Mapping[int, float]],  # GB/s by path and number of GPUs, as measured
    baseline: str,  # the path that is 1.00
    noise_floor: float = NOISE_FLOOR,  # differences below it are none
) -> tuple[TableRow, ...]:
    """Return a row for every path, the baseline first.

    A number of GPUs that one path has and another lacks is extrapolated for the other from its own rates, in
    a straight line, and marked, and so is a ratio to an extrapolated number. A path that its GPUs fill (less
    a GPU at the most than at the fewest) has no such line. Switches make nothing faster: a path that
    reads faster by no more than the baseline's own rates a GPU differ is no different.

    Raises BadInput: the baseline was not measured.
    """
    if not rates.get(baseline):
        raise BadInput(
            f"no rates of the baseline {baseline!r}", fix=f"take one of {', '.join(sorted(rates))}"
        )
    counts = sorted({gpus for by_gpus in rates.values() for gpus in by_gpus})
    filled = {
        path: {gpus: _rate(by_gpus, gpus, noise_floor) for gpus in counts} for path, by_gpus in rates.items()
    }
    order = [baseline, *sorted(path for path in rates if path != baseline)]
    rows = []
    each = [rate / gpus for gpus, rate in rates[baseline].items()]
    faster = max(noise_floor, max(each) / min(each) - 1)
    for path in order:
        cells = {}
        for gpus in counts:
            value, guessed = filled[path][gpus]
            base, base_guessed = filled[baseline][gpus]
            if value is None or base is None:
                cells[gpus] = TableCell(value, guessed, None, "")
                continue
            ratio = value / base
            floor = faster if ratio > 1 else noise_floor
            reading = "baseline" if path == baseline else difference(ratio, floor)
            cells[gpus] = TableCell(
                value, guessed, ratio, reading + (" (extrapolated)" if base_guessed else "")
            )
        rows.append(TableRow(path, cells))
    return tuple(rows)


def _rate(by_gpus: Mapping[int, float], gpus: int, noise_floor: float) -> tuple[float | None, bool]:
    """Return a rate and whether it is extrapolated; none beyond the GPUs that fill their way."""
    if gpus in by_gpus:
        return by_gpus[gpus], False
    few, many = min(by_gpus), max(by_gpus)
    full = by_gpus[many] / many < (1 - noise_floor) * by_gpus[few] / few
    return (None, False) if gpus > many and full else (extrapolated(by_gpus, gpus), True)


def rates_of(folder: Path) -> dict[int, float]:
    """Return the data rate in GB/s by number of GPUs of a run on one node.

    Raises BadInput: the run has no measured data rate, or several nodes have one.
    """
    by_node = _rates(folder)
    if len(by_node) > 1:
        raise BadInput(
            f"{len(by_node)} nodes have inference", fix=f"compare its own paths: {folder} alone", file=folder
        )
    return next(iter(by_node.values()))


def rates_by_path(folder: Path) -> dict[str, dict[str, dict[int, float]]]:
    """Return GB/s by PCIe generation, path and number of GPUs of a run whose nodes are on several paths.

    Raises BadInput: nothing was measured, or two nodes of one generation are on one path.
    """
    jobs = read_record(folder / JOBS, Jobs).jobs
    paths = {job.nodes[0]: str(job.settings["path"]) for job in jobs if job.kind == INFERENCE}
    generations = {
        job.nodes[0]: f"PCIe Gen{job.settings['path']['generation']}" for job in jobs if job.kind == PCIE_PATH
    }
    found: dict[str, dict[str, dict[int, float]]] = {}
    whose: dict[tuple[str, str], str] = {}
    for node, rates in sorted(_rates(folder).items(), key=lambda item: natural_key(item[0])):
        if node not in paths:
            raise BadInput(f"no job of inference was planned on {node}", file=folder / JOBS)
        at = generations.get(node, "PCIe"), paths[node]
        if at in whose:
            raise BadInput(
                f"{whose[at]} and {node} are both on path {at[1]}",
                fix="name each host's path in acceptance.inference.path",
                file=folder,
            )
        whose[at] = node
        found.setdefault(at[0], {})[at[1]] = rates
    return found


def _rates(folder: Path) -> dict[str, dict[int, float]]:
    """Return the data rate in GB/s by node and number of GPUs. Raises BadInput."""
    found: dict[str, dict[int, float]] = {}
    run = Run(folder)
    most = {
        (nodes[0], item.params.get("gpus")): run.plan.references[item.reference].ceiling
        for item in run.plan.items
        if (item.test, item.metric) == (INFERENCE_TEST, "data_rate")
        for nodes in item.nodes
    }
    for m in run.measurements():
        good = m.problem is None and m.state == "COMPLETED" and "gpus" in m.params
        if good and m.test == INFERENCE_TEST and m.metric == "data_rate" and m.value is not None:
            limit = most.get((m.nodes[0], m.params["gpus"]))
            if limit is not None and m.value > limit:
                what = f"{m.nodes[0]}, {m.params['gpus']} GPUs: {number(m.value)} GB/s"
                raise BadInput(
                    f"{what} is above the ceiling {number(limit)}", fix="measure it again", file=folder
                )
            found.setdefault(m.nodes[0], {})[int(m.params["gpus"])] = m.value
    if not found:
        raise BadInput("no data rate of inference was measured", fix="see shakedown verdict", file=folder)
    return found

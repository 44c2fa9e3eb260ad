"""`shakedown simulate FOLDER`: a run of a fabric that does not exist, with planted faults."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.arguments import command
from shakedown.records.reading import BadInput
from shakedown.records.wording import count

if TYPE_CHECKING:
    import numpy as np

    from shakedown.judge.localise.model import Cabling
    from shakedown.simulate.fabric import FaultKind, PlantedFault, Shape

NODES = (2, 4096)
RAILS = (1, 8)
AT_MOST = 6  # as records.plan.Remeasure has it


@command(
    "shakedown simulate reports/runs/rehearsal --nodes 16 --rails 2 --fault nic-tx:5%",
    "shakedown simulate reports/runs/mine --site inventories/lab --fault lossy-cable@n2/rail1",
)
def simulate(
    folder: Annotated[Path, typer.Argument(help="New run folder.")],
    nodes: Annotated[int, typer.Option(help=f"Number of nodes, {NODES[0]} to {NODES[1]}.")] = 64,
    rails: Annotated[int, typer.Option(help=f"Number of rails, {RAILS[0]} to {RAILS[1]}.")] = 8,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="KIND or KIND:LOSS, for example nic-tx:2% or spine:0.1, with --site also @NODE or "
            "@NODE/RAIL; may be repeated."
        ),
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option(help="Rehearse this inventory folder's own plan, in its place; --fault, --seed, --cv."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same run.")] = 1,
    pod: Annotated[int, typer.Option(min=1, help="Nodes on a leaf.")] = 16,
    spines: Annotated[int, typer.Option(min=1, max=1000, help="Spines of each rail.")] = 4,
    cv: Annotated[float, typer.Option(min=0.0, max=0.5, help="Noise of one measurement.")] = 0.003,
    dips: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Fraction of the results that are low by chance.")
    ] = 0.0,
    quick: Annotated[bool, typer.Option("--quick", help="Three random matchings, not all pairs.")] = False,
    remeasure: Annotated[
        bool,
        typer.Option("--remeasure", help="Measure cells outside their gate again, as a run's stage does."),
    ] = False,
) -> None:
    """Write plan, results, counters and inventory as a real run would, to rehearse all that follows.

    Verdict, report, localise and export take it, and say SIMULATED; nothing else does, and it cannot be
    sealed. With --site a cell without a reference is learnt, as plan --learn has it.

    Kinds: nic-tx, nic-rx, half-pcie, mtu-1024, lossy-cable, uplink, spine, slow-node, tcp-fallback, flapping,
    pair.
    """
    import numpy as np

    from shakedown.run.folder import run_name
    from shakedown.simulate.fabric import Shape, build_fabric, measure
    from shakedown.simulate.run import write_run

    run = run_name(folder)  # asked first: whatever comes next takes minutes for a large fabric
    if site is not None:
        return _rehearse(folder, site, fault or [], np.random.default_rng(seed), cv)
    for name, value, (low, high) in (("--nodes", nodes, NODES), ("--rails", rails, RAILS)):
        if not low <= value <= high:
            raise BadInput(f"{name} {value}", fix=f"use {low} to {high}")
    rng = np.random.default_rng(seed)
    shape = Shape(nodes, rails, pod=pod, spines=spines, cv=cv, dips=dips)
    fabric = build_fabric(shape, rng)
    faults = [_draw(text, shape, fabric, rng) for text in fault or []]
    sim = measure(shape, fabric, faults, rng, again=AT_MOST if remeasure else 0)
    if quick:
        _keep_matchings(sim.matrix.values, shape, seed)
    created = "2026-01-01T00:00:00Z"  # part of the run, so it may not depend on the clock
    results = write_run(folder, sim, run, created)
    planted = ", ".join(f"{f.kind.value} at {f.element} ({f.size:.1%})" for f in faults) or "no fault"
    sys.stdout.write(f"{results} results of {nodes} nodes x {rails} rails in {folder}; planted: {planted}\n")


def _rehearse(folder: Path, site: Path, given: list[str], rng: np.random.Generator, cv: float) -> None:
    from shakedown.benchmarks.planning import read_site
    from shakedown.commands.plan import made_now, refuse_used
    from shakedown.plan.scope import WantedScope
    from shakedown.references.catalogue import MissingReference
    from shakedown.simulate.rehearsal import site_fault, write_rehearsal

    refuse_used(folder)
    whole = read_site(site)
    try:
        made, jobs = made_now(whole, site, folder, WantedScope())
    except MissingReference:
        made, jobs = made_now(whole, site, folder, WantedScope(), learn=True)
    faults = []
    for text in given:
        what, _, place = text.partition("@")
        faults.append(site_fault(*_kind(what), place, made, rng))
    results = write_rehearsal(folder, made, jobs, faults, rng, cv)
    planted = ", ".join(map(str, faults)) or "no fault"
    sys.stdout.write(f"SIMULATED: {count(results, 'result')} of {site} in {folder}; planted: {planted}\n")


def _draw(text: str, shape: Shape, fabric: Cabling, rng: np.random.Generator) -> PlantedFault:
    from shakedown.simulate.fabric import FaultKind, draw_fault

    kind, size = _kind(text)
    if kind in (FaultKind.UPLINK, FaultKind.SPINE) and shape.pods < 2:
        raise BadInput(f"--fault {text!r}: one leaf has no uplink", fix="use more nodes or a smaller --pod")
    return draw_fault(kind, size, shape, fabric, rng)


def _kind(text: str) -> tuple[FaultKind, float]:
    """Return kind and loss of a fault. Raises BadInput."""
    from shakedown.simulate.fabric import FaultKind

    name, _, loss = text.partition(":")
    kinds = [k.value for k in FaultKind]
    if name not in kinds:
        raise BadInput(f"--fault {text!r}: unknown kind", fix=f"use one of {', '.join(kinds)}")
    try:
        size = float(loss.removesuffix("%")) / (100 if loss.endswith("%") else 1) if loss else 0.1
    except ValueError:
        size = -1.0
    if not 0 < size < 1:
        raise BadInput(f"--fault {text!r}: not a loss", fix="write a part between 0 and 1, or per cent")
    return FaultKind(name), size


def _keep_matchings(values: np.ndarray, shape: Shape, seed: int) -> None:
    import numpy as np

    from shakedown.benchmarks.perftest.mesh.schedule import random_matchings
    from shakedown.judge.localise.suspects import MATCHINGS

    names = shape.node_names
    index = {name: i for i, name in enumerate(names)}
    keep = np.zeros(values.shape[1:], dtype=bool)
    for matching in random_matchings(names, MATCHINGS, seed):
        for a, b in matching:
            keep[index[a], index[b]] = keep[index[b], index[a]] = True
    values[:, ~keep] = np.nan

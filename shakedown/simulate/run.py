"""Writes a simulated fabric as the files of a real run, to rehearse everything after the measurement."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from shakedown.judge.localise.model import Bools
from shakedown.physics.ethernet import payload_ceiling_gbps
from shakedown.plan.flow_paths import PATHS
from shakedown.plan.jobs import Jobs
from shakedown.records.base import Better, NicSpec, Stage, to_json
from shakedown.records.plan import Plan, PlanItem, Reference, ReferenceKind, Remeasure
from shakedown.records.reading import BadInput
from shakedown.records.results import Component, CounterReading, Snapshot
from shakedown.records.writing import write_aside
from shakedown.run.folder import (
    COUNTERS,
    JOBS,
    PLAN,
    RESULTS,
    SIMULATED,
    plan_to_json,
    write_inventory,
    write_lines,
)
from shakedown.simulate.fabric import MTU_BYTES, REACHED_OF_CEILING, Simulated
from shakedown.statistics.robust import MOST_OUTSIDE

CAVEAT = "Simulated: no hardware was measured. Nothing here says anything about a real cluster."
TEST = "ib_write_bw"
METRIC = "bandwidth"
SIZE_BYTES = 65536
REFERENCE = "simulated.write"
# A NIC whose median is so much worse than its class fails: less than the 5 % of the gate, more than the 3 %
# that a third kind of node may lose.
FLEET_MIN_EFFECT = 0.035
# What a line of results.jsonl and one of paths.jsonl take.
_RESULT_BYTES, _PATH_BYTES = 400, 90
_PARAMS = f'{{"size_bytes":{SIZE_BYTES},"rails_at_once":"one"}}'
_SYMBOL_ERRORS = 4000  # errors that a bad cable counts at both of its ends during one test
# As the NICs of a real run name them (nics/witnesses.py).
_COUNTERS = ("ethtool.rx_crc_errors_phy", "ethtool.link_down_events_phy")


def write_run(folder: Path, sim: Simulated, run: str, created: str) -> int:
    """Write plan, jobs, results, counters, inventory and paths; return the number of results.

    Raises BadInput: the folder holds a run already, the plan is too large to be read again, or the disk has
    no room.
    """
    if (folder / PLAN).exists():
        raise BadInput("a run is here already", fix="give another folder", file=folder)
    made = plan_of(sim, run, created)
    plan = plan_to_json(made)
    folder.mkdir(parents=True, exist_ok=True)
    results = int(np.isfinite(sim.matrix.values).sum())
    needed = results * (_RESULT_BYTES + _PATH_BYTES)
    free = shutil.disk_usage(folder).free
    if needed > free * 0.9:
        raise BadInput(
            f"{results} results need {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free",
            fix="simulate fewer nodes or rails, or use --quick",
            file=folder,
        )
    (folder / "raw").mkdir(exist_ok=True)
    _write_text(folder / PATHS, _paths(sim))
    _write_text(folder / RESULTS, _results(sim, run, created, made.references[REFERENCE].gate))
    write_lines(folder / COUNTERS, _counters(sim, run))
    write_inventory(folder, _inventory(sim, run, created))
    write_aside(folder / JOBS, to_json(Jobs(run=run, jobs=(), nics=_nics(sim))))
    write_aside(folder / PLAN, plan)
    return results


def plan_of(sim: Simulated, run: str, created: str) -> Plan:
    """Return the plan of a simulated run."""
    matrix = sim.matrix
    ceiling = payload_ceiling_gbps(sim.shape.link_gbps, rdma_mtu_bytes=MTU_BYTES)
    measured = (np.isfinite(matrix.values) | matrix.failed).any(axis=0)
    either = np.triu(measured | measured.T)
    pairs = tuple((matrix.nodes[a], matrix.nodes[b]) for a, b in zip(*np.nonzero(either), strict=True))
    reference = Reference(
        id=REFERENCE,
        value=round(REACHED_OF_CEILING * ceiling, 2),
        tolerance=0.05,
        ceiling=round(ceiling, 2),
        ceiling_source="shakedown ceiling roce",
        unit="Gb/s",
        better=Better.HIGHER,
        kind=ReferenceKind.PHYSICAL,
        source="shakedown simulate: what a healthy simulated fabric reaches",
        fleet_min_effect=FLEET_MIN_EFFECT if sim.again else None,
    )
    none = Reference(
        id="simulated.errors",
        value=0,
        limit=0,
        unit="1",
        better=Better.LOWER,
        kind=ReferenceKind.PHYSICAL,
        source="a healthy link damages no frame and does not go down",
    )
    items = [
        PlanItem(
            stage=Stage.FABRIC,
            test=TEST,
            metric=METRIC,
            unit="Gb/s",
            better=Better.HIGHER,
            nodes=pairs,
            rails=matrix.rails,
            directions=("forward", "reverse"),
            params={"size_bytes": SIZE_BYTES, "rails_at_once": "one"},
            reference=reference.id,
        )
    ]
    for r, rail in enumerate(matrix.rails):
        items += [
            PlanItem(
                stage=Stage.FABRIC,
                test=TEST,
                metric=f"counter.{counter}",
                unit="1",
                better=Better.LOWER,
                nodes=tuple((n,) for n in matrix.nodes),
                rails=(rail,),
                params={"port": f"mlx5_{r}"},
                reference=none.id,
            )
            for counter in _COUNTERS
        ]
    return Plan(
        run=run,
        system="simulated",
        created=created,
        nodes=matrix.nodes,
        rails=matrix.rails,
        items=tuple(items),
        references={reference.id: reference, none.id: none},
        remeasure=remeasure_rule(sim),
        caveats=(CAVEAT,),
        simulated=True,
    )


def remeasure_rule(sim: Simulated) -> Remeasure | None:
    """Return the rule by which a simulated run was measured again, if it was."""
    return Remeasure(tests=(TEST,), at_most=len(sim.again)) if sim.again else None


def attempts(
    sim: Simulated, gate: float, only: Bools | None = None
) -> Iterator[tuple[int, int, int, int, float]]:
    """Yield (rail, source, sink, attempt, value in Gb/s) of every measurement; nan: it gave no value.

    `only`: of these cells. A cell is measured again for its own results alone, so the others change nothing.

    Without re-measurements a result that failed is left out, as before. The driver's rule decides which cells
    are measured again (statistics.robust); a value is rounded as it is written before it is judged.
    """
    first = np.round(sim.matrix.values, 2)
    rule = remeasure_rule(sim)
    kept = np.isfinite(first) | (sim.matrix.failed if rule else False)
    if only is not None:
        kept = kept & only
    for r, a, b in zip(*np.nonzero(kept), strict=True):
        yield int(r), int(a), int(b), 1, float(first[r, a, b])
    if rule is None:
        return
    tried = np.ones(first.shape, dtype=np.int64)
    values, outside = np.isfinite(first).astype(np.int64), (first < gate).astype(np.int64)
    for again in sim.again:
        needed = np.maximum(rule.again + (outside > 0), 2 * outside + 1)
        doubtful = (outside > 0) | (values < tried)
        due = kept & doubtful & (outside <= MOST_OUTSIDE) & (values < needed)
        found = np.round(again, 2)
        tried[due] += 1
        values[due] += np.isfinite(found[due])
        outside[due] += found[due] < gate
        for r, a, b in zip(*np.nonzero(due), strict=True):
            yield int(r), int(a), int(b), int(tried[r, a, b]), float(found[r, a, b])


def _results(sim: Simulated, run: str, created: str, gate: float) -> Iterator[str]:
    """Yield the lines of results.jsonl, in the field order of records.Measurement.

    Formatted by hand: a full mesh of 1,024 nodes has 8 million lines, and the names are ours.
    """
    matrix = sim.matrix
    head = f'{{"schema":1,"run":"{run}","stage":"fabric","test":"{TEST}","metric":"{METRIC}","value":'
    problem = ',"problem":{"kind":"other","message":"simulated: the tool gave no value"}'
    for r, a, b, attempt, value in attempts(sim, gate):
        first, second = (a, b) if a < b else (b, a)
        known = np.isfinite(value)
        yield (
            f'{head}{f"{value:.2f}" if known else "null"},"unit":"Gb/s","better":"higher",'
            f'"nodes":["{matrix.nodes[first]}","{matrix.nodes[second]}"],"rail":"{matrix.rails[r]}",'
            f'"direction":"{"forward" if a < b else "reverse"}",'
            f'"params":{_PARAMS},"job":"{SIMULATED}","state":"COMPLETED","attempt":{attempt},'
            f'"started":"{created}","duration_s":2.0{"" if known else problem}}}\n'
        )


def _paths(sim: Simulated) -> Iterator[str]:
    matrix, fabric = sim.matrix, sim.fabric
    if fabric.spine is None:
        return
    known = (fabric.spine >= 0) & np.isfinite(matrix.values)
    for r, a, b in zip(*np.nonzero(known), strict=True):
        yield (
            f'{{"schema":1,"source":"{matrix.nodes[a]}","sink":"{matrix.nodes[b]}",'
            f'"rail":"{matrix.rails[r]}","spine":"{fabric.spines[fabric.spine[r, a, b]]}"}}\n'
        )


def _counters(sim: Simulated, run: str) -> Iterator[CounterReading]:
    """Yield every NIC's and leaf port's counters; only bad cables and flapping links count anything."""
    matrix = sim.matrix
    for r, rail in enumerate(matrix.rails):
        for i, node in enumerate(matrix.nodes):
            leaf, _, port = sim.fabric.ports[node, rail].partition(":")
            ends = (
                ("nic", node, f"mlx5_{r}", f"{leaf}/{port}"),
                ("switch_port", leaf, port, f"{node}/eth{r}"),
            )
            counts = {
                "ethtool.rx_crc_errors_phy": _SYMBOL_ERRORS if (r, i) in sim.lossy else 0,
                "ethtool.link_down_events_phy": 12 if (r, i) in sim.flapped else 0,
            }
            for kind, device, name, peer in ends:
                for counter in _COUNTERS:
                    if kind == "switch_port" and not counts[counter]:
                        continue
                    yield CounterReading(
                        run=run,
                        stage=Stage.FABRIC,
                        test=TEST,
                        kind="nic" if kind == "nic" else "switch_port",
                        device=device,
                        port=name,
                        rail=rail,
                        peer=peer,
                        counter=counter,
                        before=0,
                        after=counts[counter],
                    )


def _inventory(sim: Simulated, run: str, created: str) -> Snapshot:
    components = [
        Component(
            host=node,
            kind="nic",
            name=f"mlx5_{r}",
            attributes={"rail": rail, "port": sim.fabric.ports[node, rail], "firmware": _firmware(sim, r, i)},
        )
        for i, node in enumerate(sim.matrix.nodes)
        for r, rail in enumerate(sim.matrix.rails)
    ]
    components += [
        Component(host=leaf, kind="switch", name="nos", attributes={"version": "simulated"})
        for leaf in sim.fabric.leaves
    ]
    return Snapshot(run=run, taken=created, components=tuple(components))


def _firmware(sim: Simulated, rail: int, node: int) -> str:
    classes = sim.fabric.classes
    number = 0 if classes is None else int(classes[0, rail, node])
    return f"simulated-{number}" if number else "simulated"


def _nics(sim: Simulated) -> dict[str, tuple[NicSpec, ...]]:
    nics: dict[str, tuple[NicSpec, ...]] = {}
    for i, node in enumerate(sim.matrix.nodes):
        rails = []
        for r, rail in enumerate(sim.matrix.rails):
            leaf, _, port = sim.fabric.ports[node, rail].partition(":")
            ipv4 = f"10.{64 + r}.{i // 250}.{1 + i % 250}"
            rails.append(
                NicSpec(
                    rail=rail, rdma_device=f"mlx5_{r}", netdev=f"eth{r}", ipv4=ipv4, leaf=leaf, leaf_port=port
                )
            )
        nics[node] = tuple(rails)
    return nics


def _write_text(path: Path, lines: Iterator[str]) -> None:
    """Write lines aside and rename, without holding them all."""
    aside = path.with_name(f".{path.name}.new")
    try:
        with aside.open("w") as file:
            file.writelines(lines)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)

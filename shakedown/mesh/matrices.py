"""From the files of a run to what localisation works on: matrices, cabling and paths."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from typing import Literal

import numpy as np
from pydantic import ConfigDict, Field, ValidationError

from shakedown.core.jobs import Jobs
from shakedown.core.localise_model import Fabric, Matrix
from shakedown.core.mesh_spec import natural_key
from shakedown.core.records import Better, Measurement, Name, Record, Stage
from shakedown.errors import BadInput
from shakedown.runs import LONGEST_LINE, Run, open_plain, read_record

JOBS, PATHS = "jobs.json", "paths.jsonl"
# A tail percentile says more about its own luck than about the fabric.
_NOT_LOCALISED = frozenset({"latency_p99"})

_Place = tuple[str, str, str]  # rail, source, sink


class FlowPath(Record):
    """The spine that one flow crosses (a line of `paths.jsonl`), where a site knows its paths."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    source: Name
    sink: Name
    rail: Name
    spine: Name

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def read_mesh(run: Run) -> tuple[list[Matrix], Fabric]:
    """Return the matrices of all pair tests of a run, over the same nodes and rails, and its fabric.

    Raises:
        BadInput: a file of the run cannot be used, or the run has no pair test.
    """
    values: dict[str, dict[_Place, tuple[int, float]]] = defaultdict(dict)
    higher: dict[str, bool] = {}
    said: dict[tuple[str, str], str] = {}
    for m in run.measurements():
        if not _is_pair(m):
            continue
        assert m.rail is not None
        label = _label(m)
        higher[label] = m.better is Better.HIGHER
        source, sink = m.nodes if m.direction == "forward" else (m.nodes[1], m.nodes[0])
        earlier = values[label].get((m.rail, source, sink))
        if earlier is None or m.attempt >= earlier[0]:
            good = m.value is not None and math.isfinite(m.value) and m.value > 0 and m.problem is None
            values[label][m.rail, source, sink] = (m.attempt, m.value if good and m.value else math.nan)
        _listen(m, said)
    if not values:
        raise BadInput("no result of a pair of nodes", fix="name a run with a mesh", file=run.folder)
    places = [place for cells in values.values() for place in cells]
    nodes = tuple(sorted({n for _, *ends in places for n in ends}, key=natural_key))
    rails = tuple(sorted({rail for rail, *_ in places}, key=natural_key))
    matrices = [
        _matrix(label, higher[label], nodes, rails, {p: v for p, (_, v) in cells.items()}, said)
        for label, cells in sorted(values.items())
        if any(math.isfinite(v) for _, v in cells.values())
    ]
    return matrices, read_fabric(run, nodes, rails)


def read_fabric(run: Run, nodes: tuple[str, ...], rails: tuple[str, ...]) -> Fabric:
    """Return the cabling of `jobs.json` and the paths of `paths.jsonl`, as far as a run has them."""
    path = run.folder / JOBS
    jobs = read_record(path, Jobs) if os.path.lexists(path) else None
    cabled = {
        (node, nic.rail): (nic.leaf, nic.leaf_port)
        for node, nics in (jobs.nics.items() if jobs else ())
        for nic in nics
        if nic.leaf
    }
    leaves = tuple(sorted({leaf for leaf, _ in cabled.values() if leaf}, key=natural_key))
    leaf = np.full((len(rails), len(nodes)), -1, dtype=np.int64)
    for r, rail in enumerate(rails):
        for i, node in enumerate(nodes):
            name = cabled.get((node, rail), (None, None))[0]
            if name is not None:
                leaf[r, i] = leaves.index(name)
    ports = {key: f"{name}:{port}" for key, (name, port) in cabled.items() if port}
    spine, spines = _spines(run, nodes, rails)
    return Fabric(leaf, leaves, spine, spines, ports)


def _spines(
    run: Run, nodes: tuple[str, ...], rails: tuple[str, ...]
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    path = run.folder / PATHS
    if not os.path.lexists(path):
        return None, ()
    node_index, rail_index = {n: i for i, n in enumerate(nodes)}, {r: i for i, r in enumerate(rails)}
    spine = np.full((len(rails), len(nodes), len(nodes)), -1, dtype=np.int16)
    names: dict[str, int] = {}
    with open_plain(path) as file:
        number = 0
        while line := file.readline(LONGEST_LINE):
            number += 1
            try:
                flow = FlowPath.model_validate_json(line)
            except ValidationError as error:
                what = error.errors(include_url=False)[0]["msg"]
                raise BadInput(what, fix="correct or remove it", file=path, line=number) from None
            try:
                place = (rail_index[flow.rail], node_index[flow.source], node_index[flow.sink])
            except KeyError:
                continue  # a flow that was not measured
            spine[place] = names.setdefault(flow.spine, len(names))
    return spine, tuple(names)


def _is_pair(m: Measurement) -> bool:
    return (
        m.stage is Stage.FABRIC
        and len(m.nodes) == 2
        and m.rail is not None
        and m.direction in {"forward", "reverse"}
        and m.metric not in _NOT_LOCALISED
        and not m.metric.startswith("counter.")
    )


def _label(m: Measurement) -> str:
    return " ".join([m.test, m.metric, *(f"{k}={m.params[k]}" for k in sorted(m.params))])


def _listen(m: Measurement, said: dict[tuple[str, str], str]) -> None:
    """Take over what a node said of its own rail: the driver begins such a message with `NODE RAIL: `."""
    if m.problem is None or m.problem.kind != "setup":
        return
    for node in m.nodes:
        for rail in (m.rail or "").split(">"):
            prefix = f"{node} {rail}: "
            if m.problem.message.startswith(prefix):
                said[node, rail] = m.problem.message.removeprefix(prefix)


def _matrix(
    label: str,
    higher: bool,
    nodes: tuple[str, ...],
    rails: tuple[str, ...],
    cells: dict[_Place, float],
    said: dict[tuple[str, str], str],
) -> Matrix:
    node_index, rail_index = {n: i for i, n in enumerate(nodes)}, {r: i for i, r in enumerate(rails)}
    values = np.full((len(rails), len(nodes), len(nodes)), np.nan)
    tried = np.zeros(values.shape, dtype=bool)
    for (rail, source, sink), value in cells.items():
        place = (rail_index[rail], node_index[source], node_index[sink])
        values[place], tried[place] = value, True
    return Matrix(label, higher, nodes, rails, values, tried & ~np.isfinite(values), said)

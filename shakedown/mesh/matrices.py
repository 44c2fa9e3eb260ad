"""From the files of a run to what localisation works on: matrices, cabling and paths."""

from __future__ import annotations

import math
import os
from typing import Literal

import numpy as np
from pydantic import ConfigDict, Field, ValidationError

from shakedown.core.jobs import Jobs
from shakedown.core.localise_model import Fabric, Matrix
from shakedown.core.mesh_spec import natural_key
from shakedown.core.records import Name, Record
from shakedown.errors import BadInput
from shakedown.mesh.pair_results import PairResults, Place
from shakedown.runs import JOBS, LONGEST_LINE, Run, open_plain, read_record

PATHS = "paths.jsonl"


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
    return matrices_of(read_pairs(run), run)


def read_pairs(run: Run) -> PairResults:
    """Return the results of all pair tests of a run. Raises BadInput as `read_mesh` does."""
    pairs = PairResults()
    for m in run.measurements():
        pairs.add(m)
    if not pairs:
        raise BadInput("no result of a pair of nodes", fix="name a run with a mesh", file=run.folder)
    return pairs


def matrices_of(pairs: PairResults, run: Run) -> tuple[list[Matrix], Fabric]:
    """Return the matrices of results that were already read, and the run's fabric."""
    places = [place for cells in pairs.values.values() for place in cells]
    nodes = tuple(sorted({n for _, *ends in places for n in ends}, key=natural_key))
    rails = tuple(sorted({rail for rail, *_ in places}, key=natural_key))
    # What a dead node leaves unmeasured says nothing about its NICs, or anybody's.
    matrices = [
        _matrix(
            label,
            pairs.higher[label],
            nodes,
            rails,
            {p: v for p, (_, v) in cells.items() if (label, p) not in pairs.lost_places},
            pairs.said,
        )
        for label, cells in sorted(pairs.values.items())
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


def _matrix(
    label: str,
    higher: bool,
    nodes: tuple[str, ...],
    rails: tuple[str, ...],
    cells: dict[Place, float],
    said: dict[tuple[str, str], str],
) -> Matrix:
    node_index, rail_index = {n: i for i, n in enumerate(nodes)}, {r: i for i, r in enumerate(rails)}
    values = np.full((len(rails), len(nodes), len(nodes)), np.nan)
    tried = np.zeros(values.shape, dtype=bool)
    for (rail, source, sink), value in cells.items():
        place = (rail_index[rail], node_index[source], node_index[sink])
        values[place], tried[place] = value, True
    return Matrix(label, higher, nodes, rails, values, tried & ~np.isfinite(values), said)

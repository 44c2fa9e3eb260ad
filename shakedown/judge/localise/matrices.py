"""From the files of a run to what localisation works on: matrices, cabling, paths, NICs that are alike."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from shakedown.benchmarks.perftest.mesh.spec import rail_ends
from shakedown.judge.localise.model import Cabling, Ints, Matrix, Route
from shakedown.judge.localise.pair_results import PairResults, Place, PlannedPairs
from shakedown.plan.flow_paths import PATHS, only_spines, read_paths
from shakedown.plan.jobs import Jobs
from shakedown.records.reading import BadInput
from shakedown.records.results import Snapshot
from shakedown.records.wording import natural_key
from shakedown.run.folder import Run

_OF_NIC = ("psid", "board", "driver", "firmware", "driver_version")
_OF_NODE = ("product", "cpu")

Key = tuple[str, ...]


def classes_of(
    snapshot: Snapshot | None, jobs: Jobs | None, nodes: Sequence[str], rails: Sequence[str]
) -> Ints | None:
    """Return the number of each NIC's class, as `Fabric.classes` has it; None where all are of one.

    A NIC that the snapshot does not have is of a class with the others that it does not have.
    """
    if snapshot is None or jobs is None:
        return None
    of_node: dict[str, Key] = {}
    of_nic: dict[tuple[str, str], Key] = {}
    for part in snapshot.components:
        if part.kind == "node":
            of_node[part.host] = tuple(part.attributes.get(key, "") for key in _OF_NODE)
        elif part.kind == "nic":
            key = tuple(part.attributes.get(name, "") for name in _OF_NIC)
            for name in (part.name, *part.attributes.get("rdma_device", "").split()):
                of_nic[part.host, name] = key
    keys = {
        (node, nic.rail): (
            *of_node.get(node, ()),
            *of_nic.get((node, nic.rdma_device), of_nic.get((node, nic.netdev), ())),
        )
        for node, nics in jobs.nics.items()
        for nic in nics
    }
    return _numbers(keys, nodes, rails)


def _numbers(keys: Mapping[tuple[str, str], Key], nodes: Sequence[str], rails: Sequence[str]) -> Ints | None:
    ends = [rail_ends(rail) for rail in rails]
    number: dict[Key, int] = {}
    classes = np.array(
        [
            [
                [number.setdefault(keys.get((node, pair[end]), ()), len(number)) for node in nodes]
                for pair in ends
            ]
            for end in (0, 1)
        ],
        dtype=np.int64,
    )
    return classes if len(number) > 1 else None


# More results than 4,096 nodes x 8 rails have would need more memory than is sensible.
_MOST_PLACES = 4096 * 4096 * 8


def read_pairs(run: Run) -> PairResults:
    """Return the results of all planned pair tests of a run.

    Raises:
        BadInput: a file of the run cannot be used, or the run has no pair test.
    """
    planned = PlannedPairs(run.plan.items)
    pairs = PairResults(planned)
    for m in run.measurements():
        pairs.add(m)
    if not planned.count and not pairs:
        raise BadInput(
            "no test of a pair of nodes was planned", fix="name a run with a mesh", file=run.folder
        )
    return pairs


def routes_of(pairs: PairResults, run: Run | None) -> list[Route]:
    """Return the matrices of results that were already read, by route, and the run's fabric.

    Traffic that crosses rails takes another way, and reaches another rate, than traffic that stays on its
    rail, so each is compared with its like only.

    Args:
        pairs: the results.
        run: where cabling and paths are found; None: they are not known.

    Raises:
        BadInput: cabling or paths cannot be read, or there are too many nodes.
    """
    places = [place for cells in pairs.values.values() for place in cells]
    nodes = tuple(sorted({n for _, *ends in places for n in ends}, key=natural_key))
    rails = sorted({rail for rail, *_ in places}, key=natural_key)
    if len(rails) * len(nodes) ** 2 > _MOST_PLACES:
        raise BadInput(
            f"{len(nodes)} nodes x {len(rails)} rails are too many to localise at once",
            fix="measure them in parts, by rail or by pod",
            file=run.folder if run else None,
        )
    routes: list[Route] = []
    for crossing in (False, True):
        mine = tuple(rail for rail in rails if (len(set(rail_ends(rail))) > 1) is crossing)
        if mine:
            matrices = list(_matrices(pairs, nodes, mine, crossing=crossing))
            routes.append(Route(tuple(matrices), read_fabric(run, nodes, mine)))
    return [route for route in routes if route.matrices]


def _matrices(
    pairs: PairResults, nodes: tuple[str, ...], rails: tuple[str, ...], *, crossing: bool
) -> Iterator[Matrix]:
    said, wanted = pairs.own_words(), set(rails)
    for label in sorted(pairs.values):
        # What was not measured for want of a tool, or of a partner, says nothing of anybody's NIC.
        cells = {place: value for place, value in pairs.unspoilt(label) if place[0] in wanted}
        # Without any result there is nothing that the missing ones could be compared with.
        if any(map(math.isfinite, cells.values())):
            name = f"{label} across rails" if crossing else label
            yield _matrix(name, pairs, label, nodes, rails, cells, said)


def read_fabric(run: Run | None, nodes: tuple[str, ...], rails: tuple[str, ...]) -> Cabling:
    """Return the cabling of `jobs.json` and the paths of `paths.jsonl`, as far as a run has them.

    Of a rail `rail0>rail1` the cabling is rail0's where data leaves a node, and rail1's where it arrives.
    """
    if run is None:
        return Cabling.unknown(len(rails), len(nodes))
    jobs = run.jobs
    cabled = {
        (node, nic.rail): (nic.leaf, nic.leaf_port)
        for node, nics in (jobs.nics.items() if jobs else ())
        for nic in nics
        if nic.leaf
    }
    leaves = tuple(sorted({leaf for leaf, _ in cabled.values() if leaf}, key=natural_key))
    number = {name: i for i, name in enumerate(leaves)}
    leaf, into = (np.full((len(rails), len(nodes)), -1, dtype=np.int64) for _ in range(2))
    for r, rail in enumerate(rails):
        for end, of in zip(rail_ends(rail), (leaf, into), strict=True):
            for i, node in enumerate(nodes):
                of[r, i] = number.get(cabled.get((node, end), (None, None))[0] or "", -1)
    ports = {key: f"{name}:{port}" for key, (name, port) in cabled.items() if port}
    spine, spines = _spines(run, nodes, rails)
    if spine is None and jobs is not None and jobs.links:
        spine, spines = _spines_of_links(jobs, leaves, leaf, into)
    classes = classes_of(run.inventory, jobs, nodes, rails)
    return Cabling(leaf, leaves, spine, spines, ports, into, classes)


def _spines(
    run: Run, nodes: tuple[str, ...], rails: tuple[str, ...]
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    path = run.folder / PATHS
    if not os.path.lexists(path):
        return None, ()
    node_index, rail_index = {n: i for i, n in enumerate(nodes)}, {r: i for i, r in enumerate(rails)}
    spine = np.full((len(rails), len(nodes), len(nodes)), -1, dtype=np.int16)
    names: dict[str, int] = {}
    for flow in read_paths(path):
        try:
            place = (rail_index[flow.rail], node_index[flow.source], node_index[flow.sink])
        except KeyError:
            continue  # a flow that was not measured
        spine[place] = names.setdefault(flow.spine, len(names))
    return (spine, tuple(names)) if names else (None, ())  # a file that tells of no flow


def _spines_of_links(
    jobs: Jobs, leaves: tuple[str, ...], leaf: Ints, into: Ints
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Return the spine of every flow between leaves that have one in common, and no other."""
    number = {name: i for i, name in enumerate(leaves)}
    only = {ends: spine for ends, spine in only_spines(jobs).items() if set(ends) <= number.keys()}
    names = tuple(sorted(set(only.values()), key=natural_key))
    if not names:
        return None, ()
    between = np.full((len(leaves) + 1, len(leaves) + 1), -1, dtype=np.int16)  # the last: leaf not known
    for (one, other), spine in only.items():
        between[number[one], number[other]] = names.index(spine)
    return between[leaf[:, :, None], into[:, None, :]], names


def _matrix(
    name: str,
    pairs: PairResults,
    label: str,
    nodes: tuple[str, ...],
    rails: tuple[str, ...],
    cells: dict[Place, float],
    said: dict[tuple[str, str], str],
) -> Matrix:
    node_index, rail_index = {n: i for i, n in enumerate(nodes)}, {r: i for i, r in enumerate(rails)}
    values, when = (np.full((len(rails), len(nodes), len(nodes)), np.nan) for _ in range(2))
    tried = np.zeros(values.shape, dtype=bool)
    measured = pairs.values[label]
    for where, value in cells.items():
        rail, source, sink = where
        place = (rail_index[rail], node_index[source], node_index[sink])
        values[place], tried[place], when[place] = value, True, measured[where][2]
    failed = tried & ~np.isfinite(values)
    return Matrix(name, pairs.higher[label], nodes, rails, values, failed, said, when, pairs.loaded)

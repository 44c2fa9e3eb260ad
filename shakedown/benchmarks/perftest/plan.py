"""Plan the fabric stage: perftest over all pairs, every rail, both directions."""

from __future__ import annotations

from collections.abc import Mapping

from shakedown.benchmarks.perftest.mesh_order import Pair, mesh_settings, ring, ring_rounds
from shakedown.benchmarks.perftest.options import PerftestTest
from shakedown.plan.draft import Draft
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Params, Stage
from shakedown.records.errors import BadInput
from shakedown.records.expectation import NotCovered
from shakedown.records.pairs import AllPairs

# Metrics of one perftest test; the names are those of `shakedown.benchmarks.registry`.
_PERFTEST_METRICS = {"bw": ("bandwidth",), "lat": ("latency_typical", "latency_p99")}
# Scope `route` of a perftest reference: rail i to rail i under one leaf, or to rail i + 1 over a spine.
SAME_RAIL, CROSS_RAIL = "same-rail", "cross-rail"
# Start-up and teardown of one measurement on a slow host, and what a short one takes, for time limits only.
_OVERHEAD_S, _SHORT_S = 10, 5
# The same as expected: a job's own start and end, and what a slot takes beside its measurement.
_START_S, _SLOT_S = 10, 3.5
_SOURCE = (
    f"{_SLOT_S} s a slot of the mesh beside its duration: 14 s for 4 slots of ib_read_bw between emulated "
    "hosts (recorded run lab_healthy), so an upper bound; not measured on RDMA hardware"
)


def plan_perftest(draft: Draft, tests: tuple[PerftestTest, ...]) -> None:
    """Plan every test: all pairs, every rail, both directions, all rails at once before rail by rail."""
    for test in tests:
        # Several sizes of one test: a job for each.
        _plan_test(draft, test, several=sum(test.test == other.test for other in tests) > 1)


def _plan_test(draft: Draft, test: PerftestTest, *, several: bool) -> None:
    nodes = draft.nodes
    routes = {SAME_RAIL: draft.rails, **({CROSS_RAIL: _crossing(draft.rails)} if test.cross_rail else {})}
    neighbours = ring(nodes)
    everyone = AllPairs(all_pairs_of=nodes)
    few = test.one_rail_pairs == "ring" and len(neighbours) < len(everyone)
    for at_once in test.rails_at_once:
        params: Params = {"size_bytes": test.size_bytes, "rails_at_once": at_once}
        # How many NICs of a node are at work: each rail is one.
        nics = len(draft.rails) if at_once == "all" else 1
        for route, rails in routes.items():
            scope = {"size_bytes": test.size_bytes, "rails_at_once": at_once, "nics": nics, "route": route}
            for metric in _PERFTEST_METRICS[test.test.rpartition("_")[2]]:
                entry = draft.reference(test.test, metric, scope)
                draft.add(
                    entry,
                    test.test,
                    stage=Stage.FABRIC,
                    nodes=neighbours if few and at_once == "one" else everyone,
                    rails=rails,
                    directions=("forward", "reverse"),
                    params=params,
                )
            _utilisation_not_run(draft, test.test, scope, params)
    measured = tuple(rail for rails in routes.values() for rail in rails)
    # All rails at once come first: in a few slots every link has carried traffic.
    ways = tuple(way for way in ("all", "one") if way in test.rails_at_once)
    if few:
        _job(draft, test, measured, ("all",), several=several)
        _job(draft, test, measured, ("one",), several=several, pairs=neighbours)
        # Metrics of one test share pairs and rails, and a latency has two of them.
        blocks = len(_PERFTEST_METRICS[test.test.rpartition("_")[2]])
        left_out = 2 * len(measured) * (len(everyone) - len(neighbours)) * blocks
        draft.not_covered.append(
            NotCovered(
                what=f"{test.test} of {test.size_bytes} bytes rail by rail between "
                f"{len(everyone) - len(neighbours):,} of {len(everyone):,} pairs",
                why="every pair measures all rails at once, and neighbours in a ring rail by rail",
                cells=left_out,
                key="acceptance.perftest.one_rail_pairs",
            )
        )
    else:
        _job(draft, test, measured, ways, several=several)


def _job(
    draft: Draft,
    test: PerftestTest,
    rails: tuple[str, ...],
    ways: tuple[str, ...],
    *,
    several: bool,
    pairs: tuple[Pair, ...] | None = None,
) -> None:
    """Add a job; `ways` of test.rails_at_once that it measures, `pairs` None: between every two nodes."""
    site, nodes = draft.site, draft.nodes
    slots = 2 * sum(len(rails) if way == "one" else 1 for way in ways)
    rounds = len(nodes) - 1 + len(nodes) % 2 if pairs is None else ring_rounds(len(nodes))
    speed_gbps = site.network().link_speed_gbps
    lasts_s = test.lasts_s(speed_gbps)
    operation = {
        "test": test.test,
        "size_bytes": test.size_bytes,
        "duration_s": test.duration_s,
        "iterations": test.iterations,
    }
    name = f"fabric.{test.test}.{test.size_bytes}" if several else f"fabric.{test.test}"
    part = len(ways) < len(test.rails_at_once)
    params: Params = {"size_bytes": test.size_bytes} if several else {}
    draft.jobs.append(
        JobSpec(
            name=name if pairs is None else f"{name}.one-rail",
            kind="mesh",
            stage=Stage.FABRIC,
            tests=(test.test,),
            nodes=nodes,
            time_limit_s=120 + rounds * slots * (max(lasts_s, _SHORT_S) + _OVERHEAD_S),
            expected_s=round(_START_S + rounds * slots * (test.expected_s(speed_gbps) + _SLOT_S)),
            expected_from=_SOURCE,
            settings=mesh_settings(
                site,
                nodes,
                rails=rails,
                operation=operation,
                rails_at_once=ways,
                lasts_s=lasts_s,
                pairs=pairs,
            ),
            params={**params, "rails_at_once": ways[0]} if part else params,
        )
    )


def _utilisation_not_run(draft: Draft, test: str, scope: Mapping[str, int | str], params: Params) -> None:
    """Say of a published utilisation of the links that nothing reads it: the payload per NIC decides."""
    if entry := draft.reference_if_any(test, "link_utilisation", scope):
        why = "no reader of a switch port's utilisation over a test; the bandwidth of each NIC decides"
        draft.add(
            entry, test, stage=Stage.FABRIC, nodes=[draft.nodes], params=params, required=False, not_run=why
        )


def _crossing(rails: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ways from each rail to the next, in a ring: every NIC sends and receives once."""
    if len(rails) < 2:
        raise BadInput("acceptance.perftest asks for cross_rail on one rail", fix="leave cross_rail out")
    return tuple(f"{rail}>{rails[(place + 1) % len(rails)]}" for place, rail in enumerate(rails))

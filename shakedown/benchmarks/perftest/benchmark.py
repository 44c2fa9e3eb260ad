"""perftest between all pairs of nodes, every rail, both directions: plan, place in the night, object."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shakedown.benchmarks.base.contract import Benchmark, JobKind, Launch, Pairs, Parser, Tool, own_module
from shakedown.benchmarks.perftest.mesh.completeness import lost_nodes
from shakedown.benchmarks.perftest.mesh.schedule import drop_superseded
from shakedown.benchmarks.perftest.mesh.spec import BOTH, METRICS, SWEEP
from shakedown.benchmarks.perftest.metrics import moved, perftest
from shakedown.benchmarks.perftest.settings import (
    MeshSettings,
    Pair,
    PerftestTest,
    PerftestTests,
    mesh_settings,
    ring,
    ring_rounds,
)
from shakedown.benchmarks.perftest.ways import PairBlock, blocks_by_way
from shakedown.intent.acceptance import Section
from shakedown.intent.site import Site
from shakedown.plan.draft import PlanDraft
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Params, Stage
from shakedown.records.pairs import AllPairs
from shakedown.records.plan import NotCovered, Remeasure
from shakedown.records.reading import BadInput, ExitStatus
from shakedown.statistics.robust import most_by_chance

# Start-up and teardown of one measurement on a slow host, and what a short one takes, for time limits and the
# night's slots.
_OVERHEAD_S, _SHORT_S = 10, 5


def slots(site: Site, group: int) -> dict[str, float]:
    """Return the seconds that each slot takes of a node, in groups of so many nodes."""
    speed_gbps = site.network().link_speed_gbps
    return {
        _name(test, rail.name): pair_rounds(group)
        * 2
        * (max(test.lasts_s(speed_gbps), _SHORT_S) + _OVERHEAD_S)
        for test in _tests(site)
        if "one" in test.rails_at_once
        for rail in site.fabric.rails
    }


def only(site: Site, slot: str) -> tuple[PerftestTests, tuple[str, ...], str]:
    """Return what the site asks of perftest in one slot, its rail, and what names of its jobs end in."""
    test, rail = next(
        (test, rail.name)
        for test in _tests(site)
        for rail in site.fabric.rails
        if _name(test, rail.name) == slot
    )
    return (
        (test.model_copy(update={"rails_at_once": ("one",), "one_rail_pairs": "all"}),),
        (rail,),
        f"{test.size_bytes}.{rail}",
    )


def pair_rounds(group: int) -> int:
    """Return how many rounds all pairs of a group take (circle method)."""
    return group - 1 + group % 2


def _name(test: PerftestTest, rail: str) -> str:
    """Name a slot: ib_write_bw/65536/rail0, of both ways at once ib_write_bw.both/65536/rail0."""
    return f"{test.test}{test.suffix}/{test.size_bytes}/{rail}"


def _tests(site: Site) -> PerftestTests:
    asked: PerftestTests = site.acceptance.perftest  # type: ignore[attr-defined]  # the registry's model has it
    return asked


# The sum of both ways: a metric of its own, so that no reference of one way ever fits it.
_BOTH_METRICS = ("bandwidth_both",)
# Scope `route` of a perftest reference: rail i to rail i, or to rail i + 1. Where a pair's packets turn round
# is its `way` (ways.py).
SAME_RAIL, CROSS_RAIL = "same-rail", "cross-rail"
_DAY_S = 86_400  # the driver takes no longer times
# The same as expected: a job's own start and end, and what a slot takes beside its measurement.
_START_S, _SLOT_S = 10, 3.5
_SOURCE = (
    f"{_SLOT_S} s a slot of the mesh beside its duration: 14 s for 4 slots of ib_read_bw between emulated "
    "hosts (recorded run lab_healthy), so an upper bound; not measured on RDMA hardware"
)


def plan_perftest(draft: PlanDraft, tests: tuple[PerftestTest, ...]) -> None:
    """Plan every test: all pairs, every rail, both directions, all rails at once before rail by rail."""
    if len(draft.nodes) < 2:
        raise BadInput(
            "acceptance.perftest measures between nodes, and there is one",
            fix="name a second, or leave it out",
        )
    for asked in tests:
        # Several sizes of one test: a job for each.
        alike = [t for t in tests if (t.test, t.suffix) == (asked.test, asked.suffix)]
        test = asked if draft.mesh is None else asked.model_copy(update={"one_rail_pairs": "all"})
        if draft.too_small:
            test = _fitting(draft, test)
        if test.rails_at_once:
            _plan_test(draft, test, several=len(alike) > 1)


def _fitting(draft: PlanDraft, test: PerftestTest) -> PerftestTest:
    """Return a test with the ways that a part of a site can have; the others are told as left out."""
    if test.cross_rail:
        with draft.piece(f"{test.test} from rail to rail", "perftest.cross_rail"):
            _crossing(draft.rails)
        test = test.model_copy(update={"cross_rail": len(draft.rails) > 1})
    kept: list[str] = []
    for way in test.rails_at_once:
        with draft.piece(
            f"{test.test} of {test.size_bytes} bytes with {way} of the rails at once", "perftest"
        ):
            alone = test.model_copy(update={"rails_at_once": (way,), "one_rail_pairs": "all"})
            trial = draft.blank()
            _plan_test(trial, alone, several=True)
            for refused in trial.missing.values():
                raise refused
            kept.append(way)
    pairs = test.one_rail_pairs if len(kept) > 1 else "all"
    return test.model_copy(update={"rails_at_once": tuple(kept), "one_rail_pairs": pairs})


def _plan_test(draft: PlanDraft, test: PerftestTest, *, several: bool) -> None:
    nodes = draft.nodes
    directions = _directions(test)
    metrics = _BOTH_METRICS if test.bidirectional else METRICS[test.test.rpartition("_")[2]]
    limits: list[dict[str, Any]] = []
    # What both ways share is not measured again: the driver reads the limits of one way.
    again = draft.site.acceptance.measure_again and not test.bidirectional and not test.sweep
    routes = {SAME_RAIL: draft.rails, **({CROSS_RAIL: _crossing(draft.rails)} if test.cross_rail else {})}
    neighbours = ring(nodes)
    everyone = AllPairs(all_pairs_of=nodes)
    quick = draft.mesh == "quick" and len(neighbours) < len(everyone)
    few = test.one_rail_pairs == "ring" and len(neighbours) < len(everyone)
    for at_once in test.rails_at_once:
        params: Params = {"size_bytes": test.size_bytes, "rails_at_once": at_once, **test.variant()}
        # How many NICs of a node are at work: each rail is one.
        nics = len(draft.rails) if at_once == "all" else 1
        for route, rails in routes.items():
            scope = {"size_bytes": test.size_bytes, "rails_at_once": at_once, "nics": nics, "route": route}
            some = neighbours if quick or (few and at_once == "one") else None
            for metric in metrics:
                blocks = [
                    (of_rails, pairs, draft.reference(test.test, metric, {**scope, **facts}))
                    for of_rails, pairs, facts in blocks_by_way(draft.site, nodes, rails, some)
                ]
                if len({entry.id for *_, entry in blocks}) == 1:  # what is held to one value is one block
                    blocks = [(rails, some or everyone, blocks[0][2])]
                for of_rails, pairs, entry in blocks:
                    draft.add(
                        entry, test.test, nodes=pairs, rails=of_rails, directions=directions, params=params
                    )
                    gate = entry.reference().gate
                    if again and entry.gates and gate > 0:
                        limits.append(
                            {
                                "test": test.test,
                                "size_bytes": test.size_bytes,
                                "rails_at_once": at_once,
                                **({"qps": test.queue_pairs} if test.queue_pairs != 1 else {}),
                                "rails": list(of_rails),
                                "metric": metric,
                                "limit": gate,
                                **_nodes_of(pairs, everyone),
                            }
                        )
            if test.sweep:
                _other_sizes(draft, test, metrics, rails, some or everyone, params, scope)
            if not test.suffix:
                _utilisation_not_run(draft, test.test, scope, params)
    measured = tuple(rail for rails in routes.values() for rail in rails)
    # All rails at once come first: in a few slots every link has carried traffic.
    ways = tuple(way for way in ("all", "one") if way in test.rails_at_once)
    if few:
        at_once_limits = [limit for limit in limits if limit["rails_at_once"] == "all"]
        _job(draft, test, measured, ("all",), several=several, limits=at_once_limits)
        _job(draft, test, measured, ("one",), several=several, pairs=neighbours)
        # Metrics of one test share pairs and rails, and a latency has two of them.
        left_out = len(directions) * len(measured) * (len(everyone) - len(neighbours)) * len(metrics)
        draft.not_covered.append(
            NotCovered(
                what=f"{test.test} of {test.size_bytes} bytes rail by rail between "
                f"{len(everyone) - len(neighbours):,} of {len(everyone):,} pairs",
                why="every pair measures all rails at once, and neighbours in a ring rail by rail",
                cells=left_out,
                key="acceptance.perftest.one_rail_pairs",
            )
        )
    elif quick:
        # The driver knows a ring's pairs by rails: where ways have two limits, the first result decides.
        places = [(one["rails_at_once"], one["metric"], *one["rails"]) for one in limits]
        once = limits if len(set(places)) == len(places) else []
        _job(draft, test, measured, ways, several=several, limits=once, pairs=neighbours)
        left, of_pairs = len(everyone) - len(neighbours), len(directions) * len(measured) * len(metrics)
        draft.not_covered.append(
            NotCovered(
                what=f"{test.test} of {test.size_bytes} bytes between {left:,} of {len(everyone):,} pairs",
                why="a quick mesh measures neighbours in a ring alone: --mesh full",
                cells=left * of_pairs * len(test.rails_at_once),
                key="mesh",
            )
        )
    else:
        _job(draft, test, measured, ways, several=several, limits=limits)


def _other_sizes(
    draft: PlanDraft,
    test: PerftestTest,
    metrics: tuple[str, ...],
    rails: tuple[str, ...],
    pairs: tuple[Pair, ...] | AllPairs,
    params: Params,
    scope: Mapping[str, int | str],
) -> None:
    """Plan the sizes of a sweep beside the one that must have a reference, as far as they have one."""
    for size in SWEEP:
        for metric in metrics if size != test.size_bytes else ():
            if entry := draft.reference_if_any(test.test, metric, {**scope, "size_bytes": size}):
                draft.add(
                    entry,
                    test.test,
                    nodes=pairs,
                    rails=rails,
                    directions=_directions(test),
                    params={**params, "size_bytes": size},
                )


def _sizes_planned(draft: PlanDraft, test: PerftestTest) -> list[int]:
    """Return the sizes of a sweep that are cells of the plan so far."""
    variant = test.variant()
    return sorted(
        {
            int(item.params["size_bytes"])
            for item in draft.items
            if item.test == test.test and all(item.params.get(k) == v for k, v in variant.items())
        }
    )


def _nodes_of(pairs: tuple[Pair, ...] | PairBlock, everyone: AllPairs) -> dict[str, Any]:
    """Return of which pairs a limit is, as groups of nodes between which they go; all pairs need none."""
    if pairs == everyone or isinstance(pairs, tuple):
        return {}  # a ring's pairs are limited by what their rails are
    if isinstance(pairs, AllPairs):
        return {"across": [[node] for node in pairs.all_pairs_of]}
    return {"across": [list(group) for group in pairs.pairs_across]}


def _directions(test: PerftestTest) -> tuple[str, ...]:
    return (BOTH,) if test.bidirectional else ("forward", "reverse")


def _job(
    draft: PlanDraft,
    test: PerftestTest,
    rails: tuple[str, ...],
    ways: tuple[str, ...],
    *,
    several: bool,
    pairs: tuple[Pair, ...] | None = None,
    limits: list[dict[str, Any]] | None = None,
) -> None:
    """Add a job.

    `ways` of test.rails_at_once that it measures; `pairs` None: between every two nodes; `limits`: what lies
    outside them is measured again.
    """
    site, nodes, directions = draft.site, draft.nodes, _directions(test)
    slots = len(directions) * sum(len(rails) if way == "one" else 1 for way in ways)
    rounds = pair_rounds(len(nodes)) if pairs is None else ring_rounds(len(nodes))
    speed_gbps = site.network().link_speed_gbps
    lasts_s = test.lasts_s(speed_gbps)
    operation = {
        "test": test.test,
        "size_bytes": test.size_bytes,
        "duration_s": test.duration_s,
        "iterations": test.iterations,
        **({"qps": test.queue_pairs} if test.queue_pairs != 1 else {}),
        **({"rdma_cm": True} if test.rdma_cm else {}),
        **({"sizes": _sizes_planned(draft, test)} if test.sweep else {}),
    }
    settings = mesh_settings(
        site,
        nodes,
        rails=rails,
        operation=operation,
        rails_at_once=ways,
        lasts_s=lasts_s,
        directions=directions,
        pairs=pairs,
    )
    slot_s = max(lasts_s, _SHORT_S) + _OVERHEAD_S
    measuring_s = rounds * slots * slot_s
    limit = 120 + measuring_s
    if limits:
        settings["remeasure"] = _again(draft, limits, len(rails), measuring_s, slot_s)
        limit += settings["remeasure"]["within_s"]
        draft.remeasured.append(test.test)
    name = f"fabric.{test.test}{test.suffix}"
    name = f"{name}.{test.size_bytes}" if several else name
    part = len(ways) < len(test.rails_at_once)
    params: Params = {"size_bytes": test.size_bytes} if several and not test.sweep else {}
    params |= test.variant()
    draft.job(
        f"{name}.one-rail" if part and ways == ("one",) else name,
        kind="mesh",
        tests=(test.test,),
        nodes=nodes,
        time_limit_s=limit,
        expected_s=round(_START_S + rounds * slots * (test.expected_s(speed_gbps) + _SLOT_S)),
        expected_from=_SOURCE,
        settings=settings,
        params={**params, "rails_at_once": ways[0]} if part else params,
    )


def _again(
    draft: PlanDraft, limits: list[dict[str, Any]], ways: int, measuring_s: float, slot_s: float
) -> dict[str, Any]:
    """Return when a cell is measured again, by the plan's rule, and for how long at most.

    So many cells of a NIC as chance may spoil are, and one more; a NIC with more than that fails anyway.
    """
    rule = Remeasure(tests=("all",))
    partners = len(draft.nodes) - 1
    lines = 2 * ways * len(draft.nodes)
    shares = (most_by_chance(partners, rate, rule.risk / lines) for rate in (rule.budget, rule.late_budget))
    most = max(shares) + 1
    # A cell takes `again` slots more, on each way and in both directions; never longer than the mesh itself.
    within_s = min(measuring_s, _DAY_S, rule.again * most * 2 * ways * slot_s)
    return {
        "again": rule.again,
        "at_most": rule.at_most,
        "most_per_nic": most,
        "within_s": math.ceil(within_s),
        "limits": limits,
    }


def _utilisation_not_run(draft: PlanDraft, test: str, scope: Mapping[str, int | str], params: Params) -> None:
    """Say of a published utilisation of the links that nothing reads it: the payload per NIC decides."""
    if entry := draft.reference_if_any(test, "link_utilisation", scope):
        why = "no reader of a switch port's utilisation over a test; the bandwidth of each NIC decides"
        draft.add(entry, test, nodes=[draft.nodes], params=params, required=False, not_run=why)


def _crossing(rails: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ways from each rail to the next, in a ring: every NIC sends and receives once."""
    if len(rails) < 2:
        raise BadInput("acceptance.perftest asks for cross_rail on one rail", fix="leave cross_rail out")
    return tuple(f"{rail}>{rails[(place + 1) % len(rails)]}" for place, rail in enumerate(rails))


def _launch(_job: JobSpec, out: Path) -> Launch:
    return Launch(words=own_module("shakedown.benchmarks.perftest.mesh.driver", out / "spec.json", out))


BENCHMARK = Benchmark(
    name="perftest",
    stage=Stage.FABRIC,
    section=Section(key="perftest", kind=PerftestTests, absent=(), needs_fabric=True),
    plan=plan_perftest,
    night=Pairs(slots, only),
    jobs={
        # One job a test measures all pairs, so that no pair is left to chance and Slurm sees few jobs.
        "mesh": JobKind(
            catches="a lossy, slow or misconfigured path between two nodes, by pair, rail and direction",
            order=MeshSettings.model_validate,
            launch=_launch,
            uses=("perftest",),
            # Nodes finish their last pairs at different times, and one that died is noticed late.
            wait_s=0,
            # Some measurements gave no value. Each is recorded with its reason, and the others are good.
            also_good=ExitStatus.INCOMPLETE.value,
            # A node that dies costs its own pairs only.
            outlives_nodes=True,
            completeness=lambda out: own_module("shakedown.benchmarks.perftest.mesh.completeness", out),
            lost_nodes=lost_nodes,
        )
    },
    tools={
        # Each end of a connection draws a packet sequence number at random; JSON does not print it.
        "perftest": Tool(
            metrics=perftest,
            that_count=drop_superseded,
            moved=moved,
            own_bytes=lambda text: " PSN 0x" in text,
        )
    },
    parsers=(
        Parser(
            tool="perftest",
            module="shakedown.benchmarks.perftest.output",
            function="parse_perftest",
            options={"--report-gbits": "report_gbits"},
        ),
    ),
)

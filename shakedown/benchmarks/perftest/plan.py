"""Plan the fabric stage: perftest over all pairs, every rail, both directions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from shakedown.benchmarks.perftest.mesh.spec import BOTH, METRICS, SPEC_SCHEMA
from shakedown.benchmarks.perftest.options import PerftestTest
from shakedown.plan.draft import Draft
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Params, Stage
from shakedown.records.errors import BadInput
from shakedown.records.plan import Remeasure
from shakedown.statistics.remeasure import most_by_chance

# The sum of both ways: a metric of its own, so that no reference of one way ever fits it.
_BOTH_METRICS = ("bandwidth_both",)
# Scope `route` of a perftest reference: rail i to rail i under one leaf, or to rail i + 1 over a spine.
SAME_RAIL, CROSS_RAIL = "same-rail", "cross-rail"
# Start-up and teardown of one measurement on a slow host, and what a short one takes, for time limits only.
_OVERHEAD_S, _SHORT_S = 10, 5
_DAY_S = 86_400  # the driver takes no longer times


def plan_perftest(draft: Draft, tests: tuple[PerftestTest, ...]) -> None:
    """Plan every test: all pairs, every rail, both directions, in one job."""
    for test in tests:
        # Several sizes of one test: a job for each.
        alike = (t for t in tests if (t.test, t.bidirectional) == (test.test, test.bidirectional))
        _plan_test(draft, test, several=len(list(alike)) > 1)


def _plan_test(draft: Draft, test: PerftestTest, *, several: bool) -> None:
    site, nodes = draft.site, draft.nodes
    directions = (BOTH,) if test.bidirectional else ("forward", "reverse")
    metrics = _BOTH_METRICS if test.bidirectional else METRICS[test.test.rpartition("_")[2]]
    limits: list[dict[str, Any]] = []
    routes = {SAME_RAIL: draft.rails, **({CROSS_RAIL: _crossing(draft.rails)} if test.cross_rail else {})}
    for at_once in test.rails_at_once:
        params: Params = {"size_bytes": test.size_bytes, "rails_at_once": at_once}
        # How many NICs of a node are at work: each rail is one.
        nics = len(draft.rails) if at_once == "all" else 1
        for route, rails in routes.items():
            scope = {"size_bytes": test.size_bytes, "rails_at_once": at_once, "nics": nics, "route": route}
            for metric in metrics:
                entry = draft.reference(test.test, metric, scope)
                draft.add(
                    entry,
                    test.test,
                    stage=Stage.FABRIC,
                    nodes=combinations(nodes, 2),
                    rails=rails,
                    directions=directions,
                    params=params,
                )
                # What both ways share is not measured again: the driver reads the limits of one way.
                gate = entry.reference().gate
                if entry.gates and gate > 0 and not test.bidirectional:
                    limits.append(
                        {"test": test.test, **params, "rails": list(rails), "metric": metric, "limit": gate}
                    )
            if not test.bidirectional:
                _utilisation_not_run(draft, test.test, scope, params)
    measured = tuple(rail for rails in routes.values() for rail in rails)
    slots = len(directions) * sum(len(measured) if at_once == "one" else 1 for at_once in test.rails_at_once)
    rounds = len(nodes) - 1 + len(nodes) % 2
    lasts_s = test.lasts_s(site.network().link_speed_gbps)
    settings: dict[str, Any] = {
        "schema": SPEC_SCHEMA,
        "mode": "full",
        "nodes": {
            node: {
                "address": site.addresses[node],
                "rails": {
                    nic.rail: {"rdma_device": nic.rdma_device, "netdev": nic.netdev, "ipv4": nic.ipv4}
                    for nic in site.nics[node]
                },
            }
            for node in nodes
        },
        "rails": list(measured),
        "operations": [
            {
                "test": test.test,
                "size_bytes": test.size_bytes,
                "duration_s": test.duration_s,
                "iterations": test.iterations,
            }
        ],
        "directions": list(directions),
        "rails_at_once": list(test.rails_at_once),
        "tclass": site.network().roce.tclass,
        "mtu": site.network().mtu_bytes.rdma,
        "qp_timeout": site.acceptance.qp_timeout,
        # Beyond what it is meant to take, a measurement hangs.
        "timeout_s": site.acceptance.measurement_timeout_s + lasts_s,
        "start_timeout_s": site.acceptance.measurement_timeout_s,
    }
    name = f"fabric.{test.test}{'.both' if test.bidirectional else ''}"
    slot_s = max(lasts_s, _SHORT_S) + _OVERHEAD_S
    measuring_s = rounds * slots * slot_s
    limit = 120 + measuring_s
    if limits:
        settings["remeasure"] = _again(draft, limits, len(measured), measuring_s, slot_s)
        limit += settings["remeasure"]["within_s"]
        draft.remeasured.append(test.test)
    draft.jobs.append(
        JobSpec(
            name=f"{name}.{test.size_bytes}" if several else name,
            kind="mesh",
            stage=Stage.FABRIC,
            tests=(test.test,),
            nodes=nodes,
            time_limit_s=limit,
            settings=settings,
            params={"size_bytes": test.size_bytes} if several else {},
        )
    )


def _again(
    draft: Draft, limits: list[dict[str, Any]], ways: int, measuring_s: float, slot_s: float
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

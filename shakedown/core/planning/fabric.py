"""Plan the fabric stage: perftest over all pairs, every rail, both directions."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from shakedown.core.jobs import JobSpec
from shakedown.core.mesh_spec import SPEC_SCHEMA
from shakedown.core.planning.draft import Draft
from shakedown.core.records import Stage
from shakedown.core.site import PerftestTest

# Metrics of one perftest test; the names are those of `shakedown.readers`.
_PERFTEST_METRICS = {"bw": ("bandwidth",), "lat": ("latency_typical", "latency_p99")}
# Start-up and teardown of one measurement on a slow host, for time limits only.
_OVERHEAD_S = 10


def plan_perftest(draft: Draft, test: PerftestTest) -> None:
    """All pairs, every rail, both directions, in one job."""
    site, nodes = draft.site, draft.nodes
    for at_once in test.rails_at_once:
        scope: dict[str, int | str] = {"size_bytes": test.size_bytes, "rails_at_once": at_once}
        for metric in _PERFTEST_METRICS[test.test.rpartition("_")[2]]:
            entry = draft.reference(test.test, metric, scope)
            draft.add(
                entry, test.test, stage=Stage.FABRIC, nodes=combinations(nodes, 2), rails=draft.rails,
                directions=("forward", "reverse"), params=dict(scope),
            )  # fmt: skip
    slots = 2 * sum(len(draft.rails) if at_once == "one" else 1 for at_once in test.rails_at_once)
    rounds = len(nodes) - 1 + len(nodes) % 2
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
        "rails": list(draft.rails),
        "operations": [
            {
                "test": test.test,
                "size_bytes": test.size_bytes,
                "duration_s": test.duration_s,
                "iterations": test.iterations,
            }
        ],
        "directions": ["forward", "reverse"],
        "rails_at_once": list(test.rails_at_once),
        "tclass": site.network().roce.tclass,
        "mtu": site.network().mtu_bytes.rdma,
        "qp_timeout": site.acceptance.qp_timeout,
        "timeout_s": site.acceptance.measurement_timeout_s,
        "start_timeout_s": site.acceptance.measurement_timeout_s,
    }
    limit = 120 + rounds * slots * ((test.duration_s or 5) + _OVERHEAD_S)
    draft.jobs.append(
        JobSpec(
            name=f"fabric.{test.test}", kind="mesh", stage=Stage.FABRIC, tests=(test.test,), nodes=nodes,
            time_limit_s=limit, settings=settings,
        )
    )  # fmt: skip

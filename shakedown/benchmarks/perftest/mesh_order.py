"""What planners hand to the mesh driver: the settings of a job that mesh/spec.py reads on the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shakedown.benchmarks.perftest.mesh.spec import SPEC_SCHEMA
from shakedown.intent.site import Site
from shakedown.records.names import natural_key

Pair = tuple[str, str]


def ring(nodes: tuple[str, ...]) -> tuple[Pair, ...]:
    """Return pairs of neighbours in a ring, each in natural order; two nodes are one pair, one is none."""
    neighbours = zip(nodes, (*nodes[1:], *nodes[:1]), strict=True)
    pairs = (tuple(sorted(pair, key=natural_key)) for pair in neighbours if len(set(pair)) > 1)
    return tuple(dict.fromkeys((one, other) for one, other in pairs))


def ring_rounds(nodes: int) -> int:
    """Return how many rounds the pairs of a ring take: no node has two partners in one."""
    return 1 if nodes == 2 else 2 + nodes % 2


def mesh_settings(
    site: Site,
    nodes: Sequence[str],
    *,
    rails: Sequence[str],
    operation: dict[str, Any],
    rails_at_once: Sequence[str],
    lasts_s: int,
    directions: Sequence[str] = ("forward", "reverse"),
    pairs: Sequence[Pair] | None = None,
) -> dict[str, Any]:
    """Return the settings of a mesh job.

    Args:
        site: NICs, addresses and the RoCE class.
        nodes: those that take part.
        rails: rails, or ways from rail to rail.
        operation: one perftest run, as the specification has it.
        rails_at_once: `one`, `all` or both, in the order in which they are measured.
        lasts_s: seconds that one measurement takes.
        directions: which node of a pair sends, or that both do.
        pairs: who measures with whom; None: every two.
    """
    network, acceptance = site.network(), site.acceptance
    return {
        "schema": SPEC_SCHEMA,
        "mode": "full" if pairs is None else "pairs",
        **({} if pairs is None else {"pairs": [list(pair) for pair in pairs]}),
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
        "rails": list(rails),
        "operations": [operation],
        "directions": list(directions),
        "rails_at_once": list(rails_at_once),
        "tclass": network.roce.tclass,
        "mtu": network.mtu_bytes.rdma,
        "qp_timeout": acceptance.qp_timeout,
        # Beyond what it is meant to take, a measurement hangs.
        "timeout_s": acceptance.measurement_timeout_s + lasts_s,
        "start_timeout_s": acceptance.measurement_timeout_s,
    }

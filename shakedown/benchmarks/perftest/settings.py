"""What acceptance asks of perftest, and the settings of a mesh.

Planners write the settings for the driver; outputs are held against them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from shakedown.benchmarks.perftest.mesh.spec import ALL_SIZES, RDMA_CM, SPEC_SCHEMA, SWEEP
from shakedown.intent.site import Site
from shakedown.records.base import Params, Record
from shakedown.records.wording import natural_key

# What still counts as slow and no longer as hung, for time limits: a share of the link's speed, and the time
# of one round trip.
_SLOWEST_SHARE, _SLOWEST_S = 0.01, 1e-3
# What an iteration takes beside its bytes, where it is expected to be well: generous for RoCE.
_ROUND_TRIP_S = 20e-6


class PerftestTest(Record):
    """One perftest test of the fabric stage."""

    test: Literal["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat"]
    size_bytes: int = Field(gt=0)
    duration_s: int | None = Field(default=None, gt=0)
    iterations: int | None = Field(default=None, gt=0)
    rails_at_once: tuple[Literal["one", "all"], ...] = ("one",)
    # Which pairs measure rail by rail: every pair, or neighbours in a ring where every pair measures all
    # rails at once. A link that is slow by itself is slow among others as well; that a node's NICs are in
    # each other's way, which a rail by itself shows, shows with any partner.
    one_rail_pairs: Literal["all", "ring"] = "all"
    # Also from each rail to the next, which crosses the spines; hosts need a route from rail to rail.
    cross_rail: bool = False
    # perftest -b: both nodes send at once, over the same NICs; the value is the sum of both ways.
    bidirectional: bool = False
    # perftest -q: so many queue pairs at once, each with as many iterations as are asked.
    queue_pairs: int = Field(default=1, ge=1, le=1024)
    # perftest -R: connected by RDMA-CM, whose traffic class is the host's own (default_roce_tos).
    rdma_cm: bool = False
    # perftest -a: every size from 2 bytes to 8 MiB, each with so many iterations. Sizes that have a reference
    # are judged or shown; `size_bytes` must have one.
    sweep: bool = False

    def lasts_s(self, link_speed_gbps: int) -> int:
        """Return how long one measurement may take, in seconds: its duration, or its iterations one after the
        other at a hundredth of the link's speed and a millisecond each. For time limits only."""
        if self.duration_s is not None:
            return self.duration_s
        seconds = (
            8 * sum(self.sizes()) / (link_speed_gbps * 1e9 * _SLOWEST_SHARE) + len(self.sizes()) * _SLOWEST_S
        )
        return math.ceil((self.iterations or 0) * self.queue_pairs * seconds)

    def sizes(self) -> tuple[int, ...]:
        """Return the message sizes that one measurement moves, in bytes."""
        return SWEEP if self.sweep else (self.size_bytes,)

    def variant(self) -> Params:
        """Return what tells its cells from those of the plain test of this name and size."""
        found: Params = {"qps": self.queue_pairs} if self.queue_pairs != 1 else {}
        found |= {"connection": RDMA_CM} if self.rdma_cm else {}
        return {**found, "sweep": ALL_SIZES} if self.sweep else found

    @property
    def suffix(self) -> str:
        """What names of its jobs and slots have beside the test's: `.both`, `.q4`, `.rdma-cm`, `.sweep`."""
        return (
            (".both" if self.bidirectional else "")
            + (f".q{self.queue_pairs}" if self.queue_pairs != 1 else "")
            + (f".{RDMA_CM}" if self.rdma_cm else "")
            + (".sweep" if self.sweep else "")
        )

    @model_validator(mode="after")
    def _one_length(self) -> PerftestTest:
        if self.cross_rail and self.rails_at_once != ("one",):
            raise ValueError("cross_rail is measured rail by rail: leave rails_at_once at [one]")
        if self.bidirectional and (self.cross_rail or self.test.endswith("_lat")):
            raise ValueError("bidirectional needs a bandwidth test between NICs of one rail")
        if self.queue_pairs != 1 and self.test.endswith("_lat"):
            raise ValueError("queue_pairs needs a bandwidth test: perftest measures latency on one")
        if self.sweep and (self.iterations is None or self.size_bytes not in SWEEP):
            raise ValueError(
                "sweep takes iterations, and a size_bytes that perftest -a runs: 2, 4, ... 8388608"
            )
        if self.one_rail_pairs == "ring" and set(self.rails_at_once) != {"one", "all"}:
            raise ValueError("one_rail_pairs: ring leaves pairs out unless rails_at_once is [all, one]")
        if (self.duration_s is None) == (self.iterations is None):
            raise ValueError("give exactly one of duration_s and iterations")
        if self.test.endswith("_lat") and self.iterations is None:
            raise ValueError("latency percentiles need iterations; perftest has none in duration mode")
        if len(set(self.rails_at_once)) < len(self.rails_at_once):
            raise ValueError("rails_at_once names one way twice")
        return self

    def expected_s(self, link_speed_gbps: int) -> float:
        """Return how long one measurement is expected to take, in seconds: its duration, or its iterations at
        the link's speed, each with a round trip."""
        if self.duration_s is not None:
            return self.duration_s
        seconds = 8 * sum(self.sizes()) / (link_speed_gbps * 1e9) + len(self.sizes()) * _ROUND_TRIP_S
        return (self.iterations or 0) * self.queue_pairs * seconds


def _size_key(test: PerftestTest) -> int:
    # A sweep has every size, whichever must have a reference.
    return SWEEP[-1] if test.sweep else test.size_bytes


def _each_cell_has_one_job(tests: tuple[PerftestTest, ...]) -> tuple[PerftestTest, ...]:
    for (test, suffix, size), count in Counter((t.test, t.suffix, _size_key(t)) for t in tests).items():
        if count > 1:
            way = f" {suffix.replace('.', ' ').strip()}".replace("both", "bidirectional") if suffix else ""
            raise ValueError(f"perftest names{way} {test} with {size} bytes {count} times; once is enough")
    return tests


PerftestTests = Annotated[tuple[PerftestTest, ...], AfterValidator(_each_cell_has_one_job)]


# The whole specification is mesh/spec.py's, which the drivers read with the standard library alone.


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class NicSettings(_Part):
    """A NIC that is measured."""

    ipv4: str
    netdev: str | None = None
    rdma_device: str | None = None


class NodeSettings(_Part):
    """A node and its NICs by rail."""

    rails: dict[str, NicSettings] = {}


class OperationSettings(_Part):
    """One test: so many iterations on each queue pair, or so many seconds."""

    test: str
    size_bytes: int
    duration_s: int | None = None
    iterations: int | None = None
    qps: int = 1
    rdma_cm: bool = False
    sizes: tuple[int, ...] = ()  # of a sweep


class MeshSettings(_Part):
    """What is measured between whom.

    And the RDMA MTU in bytes and the traffic class (None: any), and the GID's index where the site chose it
    itself.
    """

    nodes: dict[str, NodeSettings] = {}
    operations: tuple[OperationSettings, ...] = ()
    mtu: int | None = None
    tclass: int | None = None
    gid_index: int | None = None

    def operation(self, test: str, size_bytes: object, qps: object) -> OperationSettings | None:
        """Return what was ordered of a test with messages of one size; None if nothing was.

        `size_bytes` None: the sweep of all sizes.
        """
        asked = (test, size_bytes, qps)
        for op in self.operations:
            if (op.test, None if op.sizes else op.size_bytes, op.qps) == asked:
                return op
        return None


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
    site: Site,  # NICs, addresses and the RoCE class
    nodes: Sequence[str],  # those that take part
    *,
    rails: Sequence[str],  # rails, or ways from rail to rail
    operation: dict[str, Any],  # one perftest run, as the specification has it
    rails_at_once: Sequence[str],  # `one`, `all` or both, in the order in which they are measured
    lasts_s: int,  # seconds that one measurement takes
    directions: Sequence[str] = ("forward", "reverse"),  # which node of a pair sends, or that both do
    pairs: Sequence[Pair] | None = None,  # who measures with whom; None: every two
) -> dict[str, Any]:
    """Return the settings of a mesh job."""
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

"""What acceptance asks of perftest."""

from __future__ import annotations

import math
from collections import Counter
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from shakedown.benchmarks.perftest.mesh.spec import ALL_SIZES, RDMA_CM, SWEEP
from shakedown.records.base import Params, Record

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
            raise ValueError("bidirectional is of a bandwidth test between NICs of one rail")
        if self.queue_pairs != 1 and self.test.endswith("_lat"):
            raise ValueError("queue_pairs is of a bandwidth test: perftest measures latency on one")
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

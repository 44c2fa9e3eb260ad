"""perftest at night: a slot is one test on one rail, measured between the pairs of a small group."""

from __future__ import annotations

from shakedown.benchmarks.perftest.options import PerftestTest, PerftestTests
from shakedown.intent.site import Site

# Start-up and teardown of one measurement; what the mesh's own time limit allows for, too.
_OVERHEAD_S = 10
_SHORT_S = 5  # what a short one takes


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

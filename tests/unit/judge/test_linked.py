"""Uplinks, spines and planes are named by what the site calls them."""

import numpy as np

from shakedown.judge.localise.causes import Cause, localise
from shakedown.judge.localise.model import Element, Route
from shakedown.judge.localise.suspects import with_links
from shakedown.plan.flow_paths import known_paths, only_spines
from shakedown.plan.jobs import Jobs, SwitchLink
from shakedown.simulate.fabric import FaultKind, PlantedFault, Shape, build_fabric, measure
from tests.kit.site import plan_site
from tests.unit.benchmarks.perftest.test_schedule import catalogue, two_pods

SHAPE = Shape(32, 1, pod=4, spines=8)
PLANES = {f"spine0-{s}": ("east", "north", "south", "west")[s // 2] for s in range(8)}


def links(planes: dict[str, str]) -> list[SwitchLink]:
    """Two cables from each leaf to each spine of the simulated fabric."""
    return [
        SwitchLink(
            leaf=f"leaf{p}-0",
            leaf_port=f"up{2 * s + cable}",
            spine=f"spine0-{s}",
            spine_port=f"swp{2 * p + cable}",
            plane=planes.get(f"spine0-{s}"),
        )
        for p in range(8)
        for s in range(8)
        for cable in range(2)
    ]


def causes(*elements: Element):
    """Localise a fabric in which these parts lose a tenth."""
    rng = np.random.default_rng(7)
    fabric = build_fabric(SHAPE, rng)
    faults = [PlantedFault(FaultKind(element.kind), element, 0.1) for element in elements]
    sim = measure(SHAPE, fabric, faults, rng)
    return with_links(localise([Route((sim.matrix,), sim.fabric)]), links(PLANES))


def test_an_uplink_is_named_with_its_ports():
    """Catches an uplink named by two switches with several cables, and no port to look at."""
    (cause,) = [c for c in causes(Element("uplink", leaf="leaf3-0", spine="spine0-1")) if c.blamed]
    assert str(cause.element) == "uplink leaf3-0 spine0-1"
    assert "its cables: leaf3-0:up2 to spine0-1:swp6, leaf3-0:up3 to spine0-1:swp7" in cause.evidence


def blamed(*spines: str) -> list[Cause]:
    """Spines that localisation blames."""
    return [
        Cause(
            element=Element("spine", spine=spine),
            blamed=True,
            confidence=0.9 + place / 100,
            effect=-0.1,
            findings=(),
            evidence=(f"{spine} is slow",),
            rivals=(),
            proposal="measure again",
        )
        for place, spine in enumerate(spines)
    ]


def test_all_spines_of_a_plane_are_the_plane():
    """Catches a plane's fault told as so many bad spines, and one bad spine told as its plane."""
    (plane,) = with_links(blamed("spine0-0", "spine0-1"), links(PLANES))
    assert str(plane.element) == "plane east" and plane.blamed and plane.confidence == 0.9
    assert plane.evidence == ("spine0-0 is slow", "spine0-1 is slow")
    both = with_links(blamed("spine0-1", "spine0-2"), links(PLANES))
    assert [str(cause.element) for cause in both] == ["spine spine0-1", "spine spine0-2"]


def test_paths_are_written_where_links_leave_one_way():
    """Catches flows over the only spine left unknown, and a guess among several spines."""

    def jobs_with(spines: int):
        ports = [f"up{s}" for s in range(spines)]
        names = [f"spine{s}" for s in range(spines)]
        rule = {"leaves": ["leaf0-0", "leaf1-0"], "leaf_ports": ports, "spines": names}
        rule |= {"spine_ports": ["swp1", "swp2"]}
        access = dict.fromkeys([*names, "leaf0-0", "leaf1-0"], "none")
        inventory = two_pods(4, 1, 2, spines=names, links=[rule], access=access)
        return plan_site(inventory, catalogue())

    plan, jobs = jobs_with(1)
    assert only_spines(Jobs.model_validate_json(jobs.model_dump_json(by_alias=True))) == {
        ("leaf0-0", "leaf1-0"): "spine0",
        ("leaf1-0", "leaf0-0"): "spine0",
    }
    paths = {(p.source, p.sink) for p in known_paths(plan, jobs)}
    assert len(paths) == 8 and ("n1", "n3") in paths and ("n4", "n2") in paths and ("n1", "n2") not in paths
    plan, jobs = jobs_with(2)
    assert not list(known_paths(plan, jobs))

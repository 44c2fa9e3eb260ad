"""Causes in terms of the links between switches: an uplink's ports, a plane for all its spines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shakedown.judge.localise.causes import Cause
from shakedown.judge.localise.model import Element
from shakedown.plan.jobs import SwitchLink

# More cables between two switches than a reader needs.
_MOST_CABLES = 4


def with_links(causes: Sequence[Cause], links: Sequence[SwitchLink]) -> list[Cause]:
    """Return the causes with the ports of each uplink, and one for a plane whose spines are all blamed."""
    planes: dict[str, set[str]] = {}
    for link in links:
        if link.plane is not None:
            planes.setdefault(link.plane, set()).add(link.spine)
    blamed = {cause.element.spine for cause in causes if cause.blamed and cause.element.kind == "spine"}
    bad = {name: spines for name, spines in planes.items() if len(spines) > 1 and spines <= blamed}
    found: list[Cause] = []
    for cause in causes:
        plane = next((name for name, spines in bad.items() if cause.element.spine in spines), None)
        if plane is None or cause.element.kind != "spine":
            found.append(_with_ports(cause, links))
        elif not any(one.element == Element("plane", spine=plane) for one in found):
            found.append(_plane(plane, [c for c in causes if c.element.spine in bad[plane]]))
    return found


def _plane(name: str, causes: Sequence[Cause]) -> Cause:
    spines = [cause for cause in causes if cause.element.kind == "spine"]
    return replace(
        spines[0],
        element=Element("plane", spine=name),
        confidence=min(cause.confidence for cause in spines),
        effect=min(cause.effect for cause in spines),
        evidence=tuple(line for cause in spines for line in cause.evidence),
        proposal=f"look at what the spines of plane {name} share, and measure again",
    )


def _with_ports(cause: Cause, links: Sequence[SwitchLink]) -> Cause:
    ends = (cause.element.leaf, cause.element.spine)
    cables = [
        f"{link.leaf}:{link.leaf_port} to {link.spine}:{link.spine_port}"
        for link in links
        if (link.leaf, link.spine) == ends
    ]
    if cause.element.kind != "uplink" or not cables or any(cable in cause.proposal for cable in cables):
        return cause
    more = f" and {len(cables) - _MOST_CABLES} more" if len(cables) > _MOST_CABLES else ""
    return replace(cause, evidence=(*cause.evidence, f"its cables: {', '.join(cables[:_MOST_CABLES])}{more}"))

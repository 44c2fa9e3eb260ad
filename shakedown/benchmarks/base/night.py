"""A benchmark's place in the nightly rotation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shakedown.intent.site import Site


@dataclass(frozen=True)
class EveryNight:
    """Planned for all nodes of every night, and no slot of the rotation.

    `asked`: whether the site gives it anything to measure.
    """

    asked: Callable[[Site], bool] = lambda _site: True


@dataclass(frozen=True)
class NodeAlone:
    """A node is measured by itself: one slot, named by the section's key.

    `nodes`: which nodes have it.
    """

    nodes: Callable[[Site], tuple[str, ...]]


@dataclass(frozen=True)
class Pairs:
    """Nodes are measured in pairs, within small groups that differ from night to night.

    `slots`: seconds that a node spends on each slot, in groups of so many. `only`: of one slot, what the site
    then asks for, on which rails, and what the names of its jobs end in.
    """

    slots: Callable[[Site, int], Mapping[str, float]]
    only: Callable[[Site, str], tuple[Any, tuple[str, ...], str]]


@dataclass(frozen=True)
class NotAtNight:
    """Left out of the rotation; `why` is said where the nightly shows what it covers."""

    why: str


Night = EveryNight | NodeAlone | Pairs | NotAtNight


def nodes_with_gpus(site: Site) -> tuple[str, ...]:
    """Return the nodes that have GPUs."""
    return tuple(node for node in site.nics if site.gpus.get(node))


def all_nodes(site: Site) -> tuple[str, ...]:
    """Return all compute nodes."""
    return tuple(site.nics)

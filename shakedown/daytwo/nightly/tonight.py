"""The part of a site that one night is for: some nodes, rails and stages."""

from __future__ import annotations

from dataclasses import dataclass

from shakedown.benchmarks.registry import BENCHMARKS
from shakedown.intent.acceptance import AcceptanceBase
from shakedown.intent.part import named_nodes, named_rails, part_of
from shakedown.intent.site import Site
from shakedown.records.base import Stage


@dataclass(frozen=True)
class Tonight:
    """What a person wants of one night, as written; what is empty is all of it."""

    nodes: tuple[str, ...] = ()
    rails: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = ()


def site_tonight(site: Site, wanted: Tonight) -> Site:
    """Return the site with what is wanted alone; the rotation of all else stands still.

    Raises:
        BadInput: a node or rail that the site does not have.
    """
    if wanted == Tonight():
        return site
    nodes = named_nodes(site, wanted.nodes) if wanted.nodes else tuple(site.nics)
    rails = named_rails(site, wanted.rails) if wanted.rails else [rail.name for rail in site.fabric.rails]
    small = part_of(site, nodes, rails, nodes)
    stages = wanted.stages or tuple(Stage)
    kept = {b.section.key for b in BENCHMARKS if b.stage in stages}
    others = {b.section.key: b.section.absent for b in BENCHMARKS if b.section.key not in kept}

    def only(asked: AcceptanceBase) -> AcceptanceBase:
        return asked.model_copy(update=others)

    own = {node: only(asked) for node, asked in small.own.items()}
    return small.model_copy(
        update={"waivers": site.waivers, "acceptance": only(small.acceptance), "own": own}
    )

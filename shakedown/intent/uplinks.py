"""What a site's uplinks carry against what its hosts send."""

from __future__ import annotations

from shakedown.intent import links
from shakedown.intent.site import Site


def oversubscription_percent(site: Site) -> int | None:
    """Return what a leaf's hosts can send over what its uplinks carry, in per cent; None: it is not known.

    The worst of all leaves, and never less than 100: uplinks that carry more are no help to a host.
    """
    fabric = site.network()
    stated = fabric.switches.oversubscription
    nics = {node: [nic.model_dump() for nic in own] for node, own in site.nics.items()}
    measured = links.oversubscription(fabric.model_dump(), nics)
    if measured:
        return max(100, round(100 * max(measured.values())))
    return None if stated is None else round(100 * stated)


def hosts_on_uplink(site: Site) -> float:
    """Return the most flows, each as fast as a host's link, that a hash can put on one uplink; 1: unknown."""
    fabric = site.network()
    worst = 1.0
    ports: dict[str, int] = {}
    for own in site.nics.values():
        for nic in own:
            if nic.leaf:
                ports[nic.leaf] = ports.get(nic.leaf, 0) + 1
    for link in links.links(fabric.model_dump()):
        worst = max(worst, ports.get(link.leaf, 0) * fabric.link_speed_gbps / link.speed_gbps)
    return worst

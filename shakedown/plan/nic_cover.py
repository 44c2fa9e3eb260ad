"""What the counters of the NICs show at a site, node by node, and what none of them does: for the plan."""

from __future__ import annotations

from collections.abc import Iterator

from shakedown.intent.refusal import span
from shakedown.intent.site import Fabric
from shakedown.nics.families import family_of
from shakedown.nics.witnesses import FAULTS, seen, unseen
from shakedown.plan.draft import Draft
from shakedown.records.expectation import NotCovered
from shakedown.records.wording import count
from shakedown.references.nic_profiles import families_of


def nic_cover(draft: Draft) -> Iterator[str]:
    """Yield, for each family of drivers, how many of its counters are judged, and what they do not see."""
    for family, nodes in families_of(draft.site).items():
        if family is None:
            continue
        its_nodes = set(nodes)
        judged = {
            item.metric
            for item in draft.items
            if item.metric.startswith("counter.")
            and item.test != "switches"
            and item.required
            and any(node in its_nodes for (node,) in item.nodes)
        }
        if judged:
            blind = "; ".join(
                fault.name + (f" ({fault.measured})" if fault.measured else "")
                for fault in unseen(family.name)
            )
            yield (
                f"{span(nodes)}: {count(len(judged), 'counter')} of each {family.name} NIC are judged, "
                "which see "
                f"{len(seen(family.name))} of {len(FAULTS)} known faults; none sees {blind}"
            )


def unknown_nics(draft: Draft) -> Iterator[NotCovered]:
    """Yield what is left out for NICs whose driver is not known."""
    site = draft.site
    nodes = families_of(site).get(None)
    if not nodes or not isinstance(site.fabric, Fabric) or not site.acceptance.counter_tests:
        return
    nics = sum(family_of(nic.driver, nic.rdma_device) is None for node in nodes for nic in site.nics[node])
    yield NotCovered(
        what=f"loss, errors, flaps and pauses by the counters of {count(nics, 'NIC')} of {span(nodes)}",
        why="their driver is not known, or has no profile: what they count is kept and not judged",
        key="fabric_nics",
    )

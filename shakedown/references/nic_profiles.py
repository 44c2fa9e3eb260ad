"""What the NICs of a site may not count: the profiles `nic_FAMILY`, applied by the drivers that it has."""

from __future__ import annotations

from collections.abc import Iterator

from shakedown.intent.site import Fabric, Site
from shakedown.nics.families import Family, family_of
from shakedown.records.errors import BadInput
from shakedown.references.catalogue import Catalogue, Entry
from shakedown.references.files import load_profile

# A fabric that reorders packets makes these count without a loss.
_OF_ORDER = frozenset(
    f"counter.rdma.{name}" for name in ("out_of_sequence", "oos_drop_count", "Rcvd_Out_of_order_packets")
)
# Without PFC no priority is paused, and global pause may be what a site has instead.
_OF_PFC = (
    "counter.pause.",
    *(f"counter.ethtool.{way}_{name}" for way in ("rx", "tx") for name in ("global_pause", "pause_frames")),
    "counter.ethtool.link_xoff_",
)
# In the name of a counter: the site's own RoCE priority.
_PRIORITY = "prioN"


def families_of(site: Site) -> dict[Family | None, list[str]]:
    """Return the nodes that have NICs of each family of drivers; None: of a driver that is not known."""
    found: dict[Family | None, list[str]] = {}
    for node, nics in site.nics.items():
        for nic in nics:
            nodes = found.setdefault(family_of(nic.driver, nic.rdma_device), [])
            if nodes[-1:] != [node]:
                nodes.append(node)
    return found


def add_nic_counters(catalogue: Catalogue, site: Site) -> None:
    """Add what no NIC of the site may count, where no profile of the site says it already.

    Raises:
        BadInput: the site asks for NICs of known drivers only, and has others.
    """
    if not isinstance(site.fabric, Fabric) or not site.acceptance.counter_tests:
        return
    judged = {entry.metric for entry in catalogue.entries.values() if entry.test == "nic"}
    families = families_of(site)
    if None in families and site.acceptance.known_nics_only:
        raise BadInput(
            f"acceptance.known_nics_only: the driver of NICs of {families[None][0]} is not known",
            fix="give driver in fabric_nics: mlx5_core, bnxt_en or ice (as `ethtool -i` names it)",
        )
    for family in families:
        if family is not None:
            for entry in nic_entries(family, site):
                if entry.metric not in judged and entry.id not in catalogue.entries:
                    catalogue.entries[entry.id] = entry


def nic_entries(family: Family, site: Site) -> Iterator[Entry]:
    """Yield the entries of a family's profile that hold for a site, with its own RoCE priority in them."""
    fabric = site.fabric
    if not isinstance(fabric, Fabric):
        return
    facts: dict[str, int | str] = {"nic_driver": family.name, "nic_speed_gbps": fabric.link_speed_gbps}
    for entry in load_profile(f"nic_{family.name}").entries:
        if not entry.fits(facts) or (site.acceptance.reorders and entry.metric in _OF_ORDER):
            continue
        if entry.metric.startswith(_OF_PFC) and not fabric.roce.pfc.enabled:
            continue
        if _PRIORITY in entry.metric:
            own = entry.metric.replace(_PRIORITY, f"prio{fabric.roce.priority}")
            yield entry.model_copy(update={"metric": own})
        else:
            yield entry

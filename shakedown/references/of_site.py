"""The references of one site, with its NICs' profiles."""

from collections.abc import Iterator
from pathlib import Path

from shakedown.intent.site import Fabric, Site
from shakedown.nics.families import NicFamily, family_of
from shakedown.records.reading import BadInput
from shakedown.references.catalogue import Catalogue, Profile, ReferenceEntry
from shakedown.references.files import load_profile, profile_names
from shakedown.references.physical import NAME, add_physical
from shakedown.references.propose import UNSIGNED

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
_PRIORITY = "prioN"  # In the name of a counter: the site's own RoCE priority


def families_of(site: Site) -> dict[NicFamily | None, list[str]]:
    """Return the nodes that have NICs of each family of drivers; None: of a driver that is not known."""
    found: dict[NicFamily | None, list[str]] = {}
    for node, nics in site.nics.items():
        for nic in nics:
            nodes = found.setdefault(family_of(nic.driver, nic.rdma_device), [])
            if nodes[-1:] != [node]:
                nodes.append(node)
    return found


def add_nic_counters(catalogue: Catalogue, site: Site) -> None:
    """Add what no NIC of the site may count, where no profile of the site says it already.

    Raises BadInput: the site asks for NICs of known drivers only, and has others.
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


def nic_entries(family: NicFamily, site: Site) -> Iterator[ReferenceEntry]:
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


FOLDER = "profiles"  # in the site's own folder


def catalogue_of_site(site: Site, inventory: Path) -> Catalogue:
    """Return the references that a site is held to.

    A profile is looked for in `INVENTORY/profiles/NAME.yml`, then among the shipped ones. `physical` is made
    for the site and fills in what the others leave out. What NICs may not count is judged at every site, by
    the profile of their drivers. Raises BadInput: a profile is missing or not in order, or the site's own has
    the name of a shipped one or is not signed.
    """
    names = list(dict.fromkeys([site.fabric.profile, *site.acceptance.profiles]))
    catalogue = Catalogue(_profile(name, inventory) for name in names if name != NAME)
    if NAME in names:
        add_physical(catalogue, site)
    add_nic_counters(catalogue, site)
    return catalogue


def _profile(name: str, inventory: Path) -> Profile:
    own = (inventory if inventory.is_dir() else inventory.parent) / FOLDER / f"{name}.yml"
    if not own.is_file():
        return load_profile(name)
    if name in (*profile_names(), NAME):
        raise BadInput(
            f"{name} is the name of a shipped profile", fix="give the site's own another", file=own
        )
    profile = load_profile(own)
    if profile.profile != name:
        raise BadInput(f"is of profile {profile.profile!r}", fix=f"write profile: {name}", file=own)
    for entry in profile.entries:
        if (entry.set_by or "").startswith(UNSIGNED):
            raise BadInput(
                f"reference {entry.id} is proposed and not signed",
                fix="read its value, then put the name of whoever answers for it into set_by",
                file=own,
                line=entry.line,
            )
    return profile

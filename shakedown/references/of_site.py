"""The references of one site: shipped profiles, those in its own folder, and floors derived for it."""

from __future__ import annotations

from pathlib import Path

from shakedown.intent.site import Site
from shakedown.records.errors import BadInput
from shakedown.references.catalogue import Catalogue, Profile
from shakedown.references.files import load_profile, profile_names
from shakedown.references.nic_profiles import add_nic_counters
from shakedown.references.physical import NAME, add_physical
from shakedown.references.propose import UNSIGNED

FOLDER = "profiles"  # in the site's own folder


def catalogue_of_site(site: Site, inventory: Path) -> Catalogue:
    """Return the references that a site is held to.

    A profile is looked for in `INVENTORY/profiles/NAME.yml`, then among the shipped ones. `physical` is made
    for the site and fills in what the others leave out. What NICs may not count is judged at every site, by
    the profile of their drivers.

    Raises:
        BadInput: a profile is missing or not in order, or the site's own has the name of a shipped one or is
            not signed.
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

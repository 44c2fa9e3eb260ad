"""The page of what is wrong in the publications, with the arithmetic."""

from __future__ import annotations

from generator.text import code, made, sentence, table

from shakedown.references.files import load_profile, profile_names

PAGE = "docs/reference/errata.md"
HEAD = ("where", "printed", "arithmetic", "right", "note")


def pages() -> dict[str, str]:
    """Return the page."""
    parts = [
        made("the profiles of references"),
        "# What is wrong in the publications\n",
        "Figures that a source prints and arithmetic refutes. Profiles hold sites to the right one. A test",
        "works out each line (`tests/unit/references/test_references.py`). How a site is held to every",
        "figure: [Published figures](published.md).\n",
    ]
    for profile in map(load_profile, profile_names()):
        if not profile.errata:
            continue
        rows = [
            (one.where, one.printed, code(one.arithmetic), f"{one.right:g} {one.unit}", sentence(one.note))
            for one in profile.errata
        ]
        parts += [f"## {profile.profile}\n", f"{sentence(profile.published)}\n", table(HEAD, rows)]
    return {PAGE: "\n".join(parts)}

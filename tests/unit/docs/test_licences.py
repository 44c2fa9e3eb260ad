"""The CycloneDX documents are those of the locks."""

import re

import pytest
from generator import licences

NAME = re.compile(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)( ;)?", re.MULTILINE)


def plain(name: str) -> str:
    """Return a package's name as the index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("part", licences.PARTS)
def test_what_the_lock_installs_is_listed_with_its_licence(part):
    """Catches: a lock that was changed without `make sbom`; a package of which nobody says a licence."""
    lock = NAME.findall((licences.LOCKS / f"{part}.txt").read_text())
    found = {plain(one["name"]): one["version"] for one in licences.components(part)}
    assert len(lock) > 30 and found.items() <= {(plain(name), version) for name, version, _ in lock}
    # What a marker keeps away from this platform is not installed.
    assert {plain(name) for name, _, marker in lock if not marker} <= found.keys()
    assert [one["name"] for one in licences.components(part) if not licences.licences(one)] == []
    assert all(one["purl"].startswith("pkg:pypi/") for one in licences.components(part))

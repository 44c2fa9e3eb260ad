"""Every command line that the role types has its source: the vendor's page and release (sources.yml)."""

import re
from pathlib import Path

import pytest
import yaml
from rendering import ROLE, intent, render

SOURCES = yaml.safe_load(Path(__file__).with_name("sources.yml").read_text())
# Pages that print a switch's whole configuration and no release of its system.
NO_RELEASE = ("AMD ROCm guide", "Microsoft, Azure Local, QoS policy of Cisco")


def test_every_system_with_a_command_line_is_sourced():
    """Catches a system whose lines nobody looked up."""
    assert {path.stem for path in (ROLE / "templates").glob("*.j2")} == SOURCES.keys()


@pytest.mark.parametrize("nos", SOURCES)
def test_every_rendered_line_has_one_source_and_every_source_a_line(nos):
    """Catches a line that a template gained without a page, and a page for a line that is gone."""
    lines = {" / ".join(path) for path in render(nos, intent())}
    used = set()
    for line in sorted(lines):
        found = [entry["lines"] for entry in SOURCES[nos] if re.fullmatch(entry["lines"], line)]
        assert len(found) == 1, (line, found)
        used.update(found)
    assert used == {entry["lines"] for entry in SOURCES[nos]}


@pytest.mark.parametrize("nos", SOURCES)
def test_a_source_is_a_page_and_its_release(nos):
    """Catches "the manual" without its release, and a line without a page."""
    for entry in SOURCES[nos]:
        assert re.match(r"(Dell|Cisco|EOS|Arista|AMD|Microsoft)\b", entry["page"]), entry
        assert (entry["release"] is None) == entry["page"].startswith(NO_RELEASE), entry
        assert entry["release"] is None or re.search(r"\d", entry["release"]), entry

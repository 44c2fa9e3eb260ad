"""Every command line that the role types has its source: the vendor's page and release (sources.yml)."""

import re
from pathlib import Path

import pytest
import yaml
from rendering import PORTS, ROLE, intent, render

from shakedown.nos import registry

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


ROLES = Path(__file__).parents[3] / "roles"


@pytest.mark.parametrize("role", ["roce_switch", "switch_counters"])
def test_a_role_takes_the_systems_that_are_known(role):
    """Catches a system added in one place: a role that refuses it, or takes one that nothing can read."""
    specs = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text())["argument_specs"]
    for entry in specs.values():
        assert entry["options"]["roce_switch_nos"]["choices"] == list(registry.SYSTEMS)


def test_every_system_has_its_own_file_and_is_rendered_in_the_tests():
    """Catches a system without a golden file, and one registered under another's name."""
    assert list(PORTS) == list(registry.SYSTEMS)
    for name, system in registry.SYSTEMS.items():
        assert (Path(registry.__file__).parent / f"{name}.py").is_file()
        assert system.name == name
        assert (ROLES / f"roce_switch/tasks/apply_{name}.yml").is_file()


def test_a_system_that_is_not_known_is_asked_everything():
    """Catches silence of a system that nobody understands counted as fine: its cells stay open."""
    stranger = registry.known("ios")
    assert stranger.can_tell("mtu") and stranger.parse is None
    assert not registry.known("os9").can_tell("pfc")


def test_no_system_is_asked_what_it_cannot_answer():
    """Catches a site that cannot pass: a required check of a cable that no output of the system answers."""
    for name, system in registry.SYSTEMS.items():
        assert system.tells is not None, name
        if system.neighbours is None:
            assert not system.can_tell("cabling"), name

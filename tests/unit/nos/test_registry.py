"""The registry of switch systems, and the lists elsewhere that must be its own."""

from pathlib import Path

import pytest
import yaml
from rendering import PORTS

from shakedown.nos import registry

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

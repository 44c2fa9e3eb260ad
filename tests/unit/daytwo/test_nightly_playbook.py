"""The timer's playbook as people call it, up to where it would change the host."""

import pytest

from tests.kit.run import run_playbook

pytestmark = pytest.mark.slow


def test_with_the_defaults_it_comes_to_its_preflight_and_refuses_what_the_service_cannot_see():
    """Catches: a default that the role itself refuses, and a night whose files lie in another /tmp."""
    words = ("-i", "inventories/lab", "playbooks/nightly.yml", "--check", "-e", "nightly_state=/tmp/state")
    done = run_playbook(*words)
    assert done.returncode == 2, done.stdout
    assert "/tmp/state lies under /tmp" in done.stdout, done.stdout

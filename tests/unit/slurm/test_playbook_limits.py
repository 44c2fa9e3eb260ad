"""Playbooks with a --limit that leaves out the hosts that they are for: a sentence, and no good end."""

import pytest

from tests.kit.run import run_playbook

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("playbook", "limit", "said"),
    [
        ("nightly", "n1", "--limit n1 leaves out localhost, the host of the timer"),
        ("nightly", "leaf0", "--limit leaf0 leaves out localhost, the host of the timer"),
        ("rollback", "leaf0", "--limit leaf0 names no host that is brought back here"),
        ("discover", "n1", "`shakedown discover FOLDER --ansible INVENTORY` calls this playbook"),
    ],
)
def test_a_limit_that_leaves_nothing_to_do_is_refused_in_a_sentence(playbook, limit, said):
    """Catches: plays without a host and exit status 0, as if the timer were there or the switch as before."""
    words = ("-i", "inventories/lab", f"playbooks/{playbook}.yml", "--check", "--limit", limit)
    done = run_playbook(*words, ANSIBLE_TIMEOUT="3")
    assert done.returncode == 2, done.stdout
    assert said in " ".join((done.stdout + done.stderr).split()), done.stdout

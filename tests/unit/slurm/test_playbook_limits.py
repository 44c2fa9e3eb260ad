"""Playbooks with a --limit that leaves out the hosts that they are for: a sentence, and no good end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).resolve().parents[3]


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
    argv = [
        Path(sys.executable).with_name("ansible-playbook"),
        *("-i", "inventories/lab", f"playbooks/{playbook}.yml", "--check", "--limit", limit),
    ]
    done = subprocess.run(
        argv,
        cwd=CHECKOUT,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_TIMEOUT": "3"},
    )
    assert done.returncode == 2, done.stdout
    assert said in " ".join((done.stdout + done.stderr).split()), done.stdout

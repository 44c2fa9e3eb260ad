"""The timer's playbook as people call it, up to where it would change the host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).resolve().parents[3]


def test_with_the_defaults_it_comes_to_its_preflight_and_refuses_what_the_service_cannot_see():
    """Catches: a default that the role itself refuses, and a night whose files lie in another /tmp."""
    argv = [
        Path(sys.executable).with_name("ansible-playbook"),
        "-i",
        "inventories/lab",
        "playbooks/nightly.yml",
        "--check",
        "-e",
        "nightly_state=/tmp/state",
    ]
    done = subprocess.run(
        argv,
        cwd=CHECKOUT,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "ANSIBLE_FORCE_COLOR": "0"},
    )
    assert done.returncode == 2, done.stdout
    assert "/tmp/state lies under /tmp" in done.stdout, done.stdout

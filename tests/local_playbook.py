"""ansible-playbook as a test calls it: in this checkout, without colour, asking nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]


def run_playbook(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it with these words after its name, and these variables beside the test's own."""
    return subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), *map(str, words)],
        cwd=CHECKOUT,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "ANSIBLE_FORCE_COLOR": "0", **environment},
    )

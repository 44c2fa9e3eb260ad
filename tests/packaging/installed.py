"""Programs as users have them: with nothing of the checkout in reach."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")


def done(argv: list[str | Path], **more: object) -> subprocess.CompletedProcess[str]:
    """Run a program with nothing of the checkout in reach, and no Ansible."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in ("HOME", "LANG", "SSL_CERT_FILE") or name.startswith(("PIP_", "UV_"))
    }
    environment["PATH"] = "/usr/bin:/bin"
    if "env" in more:
        environment |= more.pop("env")
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=240, check=False, env=environment, **more
    )

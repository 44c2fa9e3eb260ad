"""Keys that tests sign with."""

import shutil
import subprocess
from pathlib import Path

import pytest

NEEDS_SSH_KEYGEN = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")


def make_key(path: Path, comment: str = "tester") -> Path:
    """Make a key without a passphrase; return its private half. The public one is beside it."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    subprocess.run(command, check=True, timeout=60)
    return path


def make_signers(path: Path, **keys: Path) -> Path:
    """Write who may sign with which key; return the file."""
    path.write_text(
        "".join(f"{name} {key.with_name(f'{key.name}.pub').read_text()}" for name, key in keys.items())
    )
    return path

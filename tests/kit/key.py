"""Keys that tests sign with."""

import shutil
import subprocess
from pathlib import Path

import pytest

NEEDS_SSH_KEYGEN = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")


def make_key(folder: Path, name: str) -> Path:
    """Make an SSH key without passphrase and return the private one; the public one is beside it."""
    key = folder / name
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)]
    subprocess.run(command, check=True, timeout=60)
    return key


def make_signers(path: Path, keys: dict[str, Path]) -> Path:
    """Write who may sign with which key; return the file."""
    path.write_text("".join(f"{who} {key.with_suffix('.pub').read_text()}" for who, key in keys.items()))
    return path

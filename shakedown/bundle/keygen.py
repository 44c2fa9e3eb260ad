"""SSH signatures (`ssh-keygen -Y`), made and checked in one namespace only: `shakedown`."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from shakedown.records.errors import BadInput
from shakedown.records.reading import read_bytes
from shakedown.records.wording import printable

NAMESPACE = "shakedown"
# Signatures have 300 bytes, by RSA keys a few thousand; ssh-keygen reads 200 MB for a minute.
LARGEST_SIGNATURE = 1 << 20
_TIMEOUT_S = 60  # ssh-keygen answers at once unless a hardware key waits for a touch
# What ssh(1) calls a pattern: it would let whoever has the key be anybody.
_PATTERN = re.compile(r"[*?!]")
_GOOD_KEY = re.compile(r"\bkey (SHA256:[A-Za-z0-9+/]{43})$")


def sign(content: bytes, key: Path) -> bytes:
    """Return the signature over some bytes. Raises BadInput: the key is none, or cannot sign."""
    done = _ssh_keygen(["sign", "-q", "-f", str(key), "-n", NAMESPACE], content)
    if done.returncode != 0:
        raise BadInput(f"ssh-keygen: {_last_line(done)}", fix="give an SSH private key", file=key)
    return done.stdout


def signer(path: Path, content: bytes, signers: Path | None) -> tuple[str | None, str]:
    """Return (who signed, why the signature does not hold).

    Args:
        path: the file of the signature.
        content: what it is over.
        signers: who is trusted, in ssh's allowed_signers format; None: any key will do, and nobody is named.

    Raises:
        BadInput: a file is missing or no plain one, or `signers` has a pattern for a name.
    """
    read_bytes(path, LARGEST_SIGNATURE)  # refuses a missing file, a link and a pipe
    signature = str(path.absolute())
    if signers is None:
        checked = _ssh_keygen(["check-novalidate", "-n", NAMESPACE, "-s", signature], content)
        return None, "" if checked.returncode == 0 else f"signature does not hold: {_last_line(checked)}"
    allowed = str(signers.absolute())
    _refuse_patterns(signers)
    found = _ssh_keygen(["find-principals", "-s", signature, "-f", allowed], b"")
    if found.returncode != 0:
        return None, f"signed by nobody in {signers}: {_last_line(found)}"
    flaw = "no principal"
    for principal in found.stdout.decode(errors="replace").splitlines():
        checked = _ssh_keygen(
            ["verify", "-f", allowed, "-I", principal, "-n", NAMESPACE, "-s", signature], content
        )
        if checked.returncode == 0:
            return printable(principal), ""
        flaw = _last_line(checked)
    return None, f"signature does not hold: {flaw}"


def key_of(signature: str, content: bytes) -> str:
    """Return the fingerprint of the key that signed; empty if the signature does not hold."""
    with tempfile.NamedTemporaryFile("w", suffix=".sig") as file:
        file.write(signature)
        file.flush()
        checked = _ssh_keygen(["check-novalidate", "-n", NAMESPACE, "-s", file.name], content)
    found = _GOOD_KEY.search(checked.stdout.decode(errors="replace").strip())
    return found[1] if found and checked.returncode == 0 else ""


def _refuse_patterns(signers: Path) -> None:
    text = read_bytes(signers, LARGEST_SIGNATURE).decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), start=1):
        names = line.split(maxsplit=1)[:1]
        if names and not names[0].startswith("#") and _PATTERN.search(names[0]):
            raise BadInput(
                f"{names[0][:80]!r} is a pattern, so that whoever has the key is anybody",
                fix="write the name of the one who has it",
                file=signers,
                line=number,
            )


def _ssh_keygen(arguments: list[str], content: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["ssh-keygen", "-Y", *arguments],
            input=content,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise BadInput("ssh-keygen is not installed", fix="install openssh-client 8.2 or newer") from None
    except subprocess.TimeoutExpired:
        raise BadInput("ssh-keygen does not answer", fix="use a key without passphrase prompt") from None


def _last_line(process: subprocess.CompletedProcess[bytes]) -> str:
    text = (process.stderr or process.stdout).decode(errors="replace").strip()
    return text.splitlines()[-1][:200] if text else f"status {process.returncode}"

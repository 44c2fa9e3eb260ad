"""A bundle: a run folder that is sealed (checksums, signature) and verifies on any machine.

`SHA256SUMS` is what `sha256sum` writes and checks; `SHA256SUMS.sig` is an SSH signature over it
(`ssh-keygen -Y sign`, namespace `shakedown`), made with keys that sites already have.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from shakedown.collect.recollect import difference, has_jobs, uncollected
from shakedown.judge.judged import judge_folder
from shakedown.records.base import Outcome
from shakedown.records.errors import BadInput
from shakedown.records.reading import LARGEST_DOCUMENT, open_plain, read_bytes
from shakedown.records.wording import printable
from shakedown.run.files import SIGNATURE, SUMS, redacted_files, run_files
from shakedown.run.folder import JOBS, RESULTS, VERDICT, to_json, write_aside

NAMESPACE = "shakedown"
_SUM_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
# Signatures have 300 bytes, by RSA keys a few thousand; ssh-keygen reads 200 MB for a minute.
LARGEST_SIGNATURE = 1 << 20
_TIMEOUT_S = 60  # ssh-keygen answers at once unless a hardware key waits for a touch


@dataclass(frozen=True)
class Verification:
    """What `verify` found. `differs` names the first file that is not what was sealed."""

    differs: str | None
    reason: str
    signer: str | None
    outcome: Outcome | None

    @property
    def authentic(self) -> bool:
        """Whether every byte is as a known signer sealed it."""
        return self.differs is None and self.signer is not None


def seal(folder: Path, key: Path) -> None:
    """Write `SHA256SUMS` and its signature.

    Raises BadInput if `verdict.json` is not the recomputed one, or if a file still holds what looks like a
    secret: what is sealed is meant to be handed on.
    """
    for name, content, clean in redacted_files(folder):
        if content != clean:
            raise BadInput(
                "holds an environment dump or what looks like a secret",
                fix="seal with --redact, or remove it by hand",
                file=folder / name,
            )
    if stale := uncollected(folder):
        name, how = stale
        raise BadInput(
            f"is not what the raw files give: {how}",
            fix=f"run shakedown collect {folder}",
            file=folder / name,
        )
    if how := difference(read_bytes(folder / VERDICT), to_json(judge_folder(folder))):
        raise BadInput(
            f"is not what the raw results give: {how}",
            fix=f"run shakedown verdict --write {folder}",
            file=folder / VERDICT,
        )
    sums = "".join(f"{_sha256(folder / name)}  {name}\n" for name in run_files(folder)).encode()
    signature = _ssh_keygen(["sign", "-q", "-f", str(key), "-n", NAMESPACE], sums)
    if signature.returncode != 0:
        raise BadInput(f"ssh-keygen: {_last_line(signature)}", fix="give an SSH private key", file=key)
    # The old signature goes first, so that no moment shows one that does not belong.
    (folder / SIGNATURE).unlink(missing_ok=True)
    write_aside(folder / SUMS, sums)
    write_aside(folder / SIGNATURE, signature.stdout)


def verify(folder: Path, signers: Path | None) -> Verification:
    """Recompute checksums, signature and verdict of a bundle. Raises BadInput for what is no bundle at all.

    Without `signers` (ssh's allowed_signers format) only the signature's integrity is checked: the signer
    stays unconfirmed.
    """
    sums = read_bytes(folder / SUMS)
    recorded = _parse_sums(sums, folder / SUMS)
    changed = _changed(folder, recorded)
    if changed:
        return _differs(*changed)
    signer, flaw = _signer(folder, sums, signers)
    if flaw:
        return _differs(SIGNATURE, flaw)
    if stale := uncollected(folder):
        name, how = stale
        return _differs(name, f"{name} is not what the raw files give: {how}")
    verdict = judge_folder(folder)
    if VERDICT not in recorded:
        return _differs(VERDICT, f"{VERDICT} is missing")
    if how := difference(read_bytes(folder / VERDICT), to_json(verdict)):
        return _differs(VERDICT, f"{VERDICT} is not what the raw results give: {how}")
    source = "the raw files" if has_jobs(folder) else f"{RESULTS} (no job of {JOBS} wrote raw files)"
    reason = f"{len(recorded)} files as sealed, verdict {verdict.outcome.value} recomputed from {source}"
    if signer is None:
        reason += "; signature intact, but the signer was not checked: give --signers"
    else:
        reason += f", signed by {signer}"
    return Verification(None, reason, signer, verdict.outcome)


def _changed(folder: Path, recorded: dict[str, str]) -> tuple[str, str] | None:
    """Return the first file, by name, that is not as sealed, and why."""
    present = set(run_files(folder))
    for name in sorted(present | recorded.keys()):
        if name not in recorded:
            return name, f"{name} is not in {SUMS}: it was added after sealing"
        if name not in present:
            return name, f"{name} is in {SUMS}, but missing"
        if _sha256(folder / name) != recorded[name]:
            return name, f"{name} was changed after sealing: its SHA-256 differs"
    return None


def _differs(name: str, reason: str) -> Verification:
    return Verification(printable(name), printable(reason), None, None)


def _sha256(path: Path) -> str:
    with open_plain(path) as file:
        # No record or output of a run is larger, and hashing 8 GiB takes half a minute.
        if os.fstat(file.fileno()).st_size > LARGEST_DOCUMENT:
            raise BadInput(
                f"is larger than {LARGEST_DOCUMENT} bytes", fix="it is no file of a run: remove it", file=path
            )
        return hashlib.file_digest(file, "sha256").hexdigest()


def _parse_sums(content: bytes, path: Path) -> dict[str, str]:
    fix = "seal the run again from a trusted copy"
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8 text", fix=fix, file=path) from None
    if lines.pop() != "" or not lines:
        raise BadInput("does not end in a complete line", fix=fix, file=path, line=len(lines) + 1)
    recorded: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        match = _SUM_LINE.fullmatch(line)
        name = match[2] if match else ""
        if not match or name.startswith("/") or ".." in PurePosixPath(name).parts or name in recorded:
            raise BadInput(
                f"not a checksum of a file in here: {line[:120]!r}", fix=fix, file=path, line=number
            )
        recorded[name] = match[1]
    return recorded


def _signer(folder: Path, sums: bytes, signers: Path | None) -> tuple[str | None, str]:
    """Return (who signed, why the signature does not hold)."""
    read_bytes(folder / SIGNATURE, LARGEST_SIGNATURE)  # refuses a missing file, a link and a pipe
    signature = str((folder / SIGNATURE).absolute())
    if signers is None:
        checked = _ssh_keygen(["check-novalidate", "-n", NAMESPACE, "-s", signature], sums)
        return None, "" if checked.returncode == 0 else f"signature does not hold: {_last_line(checked)}"
    allowed = str(signers.absolute())
    read_bytes(signers, LARGEST_SIGNATURE)
    found = _ssh_keygen(["find-principals", "-s", signature, "-f", allowed], b"")
    if found.returncode != 0:
        return None, f"signed by nobody in {signers}: {_last_line(found)}"
    flaw = "no principal"
    for principal in found.stdout.decode(errors="replace").splitlines():
        checked = _ssh_keygen(
            ["verify", "-f", allowed, "-I", principal, "-n", NAMESPACE, "-s", signature], sums
        )
        if checked.returncode == 0:
            return printable(principal), ""
        flaw = _last_line(checked)
    return None, f"signature does not hold: {flaw}"


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

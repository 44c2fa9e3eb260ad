"""A bundle: a run folder that is sealed (checksums, signature) and verifies on any machine.

`SHA256SUMS` is what `sha256sum` writes and checks; `SHA256SUMS.sig` is an SSH signature over it
(`ssh-keygen -Y sign`, namespace `shakedown`), made with keys that sites already have.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from shakedown.collect.run import difference, uncollected
from shakedown.evidence import orders, signatures
from shakedown.evidence.attribution import order_findings
from shakedown.evidence.orders import read as read_order
from shakedown.evidence.signatures import Order, SealFinding
from shakedown.judge.judged import judge_folder
from shakedown.records.base import Outcome
from shakedown.records.reading import LARGEST_DOCUMENT, BadInput, open_plain, read_bytes
from shakedown.records.verdict import Verdict, verdict_says, verdict_to_json
from shakedown.records.wording import printable
from shakedown.records.writing import write_aside
from shakedown.report.write import outdated
from shakedown.run.folder import (
    ASIDE,
    JOBS,
    MOST_BYTES,
    PLAN,
    SIGNATURE,
    SUMS,
    VERDICT,
    Run,
    empty_folders,
    leftovers,
    redacted_files,
    run_files,
)

_BLOCK = 1 << 20
_SUM_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
# What nobody can say who has not the order: whoever holds a trusted key could have made all of it.
UNORDERED = "not checked without --order: whose outputs these are, when they were made, and the plan's gates"


@dataclass(frozen=True)
class Verification:
    """What `verify` found. `differs` names the first file that is not what was sealed or ordered."""

    differs: str | None
    reason: str
    signer: str | None
    outcome: Outcome | None
    findings: tuple[SealFinding, ...] = ()  # everything that is not what was ordered
    # What the plan says of itself, its gates that no shipped profile has, and all that it holds a system to.
    facts: Mapping[str, str] = field(default_factory=dict)
    gates: Sequence[str] = ()
    held: Sequence[str] = ()
    derived: bool = True  # whether what it says was derived again, and not only as it was signed

    @property
    def authentic(self) -> bool:
        """Whether every byte is as a known signer sealed it, and follows from what was measured."""
        return self.differs is None and self.signer is not None and self.derived


def seal(folder: Path, key: Path) -> None:
    """Write `SHA256SUMS` and its signature. Empty folders go: no checksum covers them.

    Raises BadInput if there are no jobs that raw files are of, if verdict or report is not the recomputed
    one, or if a file still holds what looks like a secret: what is sealed is meant to be handed on.
    """
    for name, content, clean in redacted_files(folder):
        if content != clean:
            raise BadInput(
                "holds an environment dump or what looks like a secret",
                fix="seal with --redact, or remove it by hand",
                file=folder / name,
            )
    run = Run(folder, simulated=True)
    if not run.has_jobs:
        raise BadInput(
            "is missing or has no jobs: results that follow from no raw files prove nothing",
            fix="seal a run that was measured",
            file=folder / JOBS,
        )
    if stale := uncollected(run):
        name, how, _ = stale
        raise BadInput(
            f"is not what the raw files give: {how}",
            fix=f"run shakedown collect {folder}",
            file=folder / name,
        )
    if how := _other_verdict(folder, judge_folder(folder)):
        raise BadInput(
            f"is not what the raw results give: {how}",
            fix=f"run shakedown verdict --write {folder}",
            file=folder / VERDICT,
        )
    if old := outdated(folder):
        raise BadInput(
            "is not what the run's files give", fix=f"run shakedown report {folder}", file=folder / old
        )
    if half := next(leftovers(folder), None):
        raise BadInput(
            "was never finished: its writer was killed", fix=f"run shakedown mend {folder}", file=half
        )
    for name in empty_folders(folder):
        (folder / name).rmdir()
    names = list(run_files(folder))
    for name in names:
        if ASIDE.fullmatch(name.rpartition("/")[2]):
            raise BadInput("is being written", fix="wait for its writer, another seal?", file=folder / name)
    write_seal(folder, names, key)


def write_seal(folder: Path, names: Sequence[str], key: Path) -> None:
    """Write the checksums of these files of a folder, and their signature. Raises BadInput."""
    sums = "".join(
        f"{hashlib.sha256(_content(folder / name)).hexdigest()}  {name}\n" for name in names
    ).encode()
    signature = signatures.sign(sums, key)
    # The old signature goes first, so that no moment shows one that does not belong.
    (folder / SIGNATURE).unlink(missing_ok=True)
    write_aside(folder / SUMS, sums)
    write_aside(folder / SIGNATURE, signature)
    if (read_bytes(folder / SUMS), read_bytes(folder / SIGNATURE)) != (sums, signature):
        raise BadInput("was sealed by another process as well", fix="seal it again, alone", file=folder)


def verify(
    folder: Path,
    signers: Path | None,
    order: Path | None = None,
    look: Callable[[Path, str | None, dict[str, str]], None] | None = None,
) -> Verification:
    """Recompute checksums, signature, verdict and report of a bundle, and hold it against an order.

    Raises BadInput for what is no bundle or no order at all.

    Args:
        folder: the bundle's.
        signers: who is trusted, in ssh's allowed_signers format. Without it only the integrity of signatures
            is checked: the signer stays unconfirmed.
        order: what was ordered, as its signer gave it.
        look: is shown the copy of a bundle that does not differ, its signer, and its files' SHA-256.
    """
    ordered = read_order(order, signers) if order is not None else None

    def judged(copy: Path, signer: str | None, recorded: dict[str, str]) -> Verification:
        found = _judged(copy, signer, recorded, ordered)
        # A bundle that differs may hold anything.
        if found.differs and not found.findings:
            return found
        if look and not found.differs:
            look(copy, signer, recorded)
        return replace(found, facts=orders.facts(copy), gates=orders.gates(copy), held=orders.held(copy))

    return as_sealed(folder, signers, judged)


def as_sealed(
    folder: Path, signers: Path | None, look: Callable[[Path, str | None, dict[str, str]], Verification]
) -> Verification:
    """Return what `look` says of a sealed folder's copy, its signer and SHA-256; or what is not as sealed.

    Raises BadInput for what is not sealed, and as `look` does.
    """
    sums = read_bytes(folder / SUMS)  # else it is no bundle
    recorded = _parse_sums(sums, folder / SUMS)
    if flaw := _others(folder, recorded) or _unsigned(folder, sums, signers)[1]:
        return differs(*flaw)
    with tempfile.TemporaryDirectory(prefix="shakedown-verify-") as private:
        # Who owns the bundle could show other bytes to who judges it than to who hashed it.
        copy = Path(private) / folder.resolve().name
        try:
            digests = _copied(folder, copy, recorded)
            sums = read_bytes(copy / SUMS)
            recorded = _parse_sums(sums, copy / SUMS)
            if changed := _changed(copy, recorded, digests):
                return differs(*changed)
            signer, unsigned = _unsigned(copy, sums, signers)
            return differs(*unsigned) if unsigned else look(copy, signer, recorded)
        except BadInput as refused:
            file = Path(refused.file) if refused.file else None
            if file and file.is_relative_to(copy):
                file = folder / file.relative_to(copy)
            raise BadInput(refused.what, fix=refused.fix, file=file, line=refused.line) from None


def _others(folder: Path, recorded: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the first file that was added or is missing. Raises BadInput for more than a run holds."""
    present = {name: (folder / name).lstat().st_size for name in run_files(folder)}
    for name in sorted(present.keys() ^ recorded.keys()):
        if name in present:
            return name, f"{name} is not in {SUMS}: it was added after sealing"
        return name, f"{name} is in {SUMS}, but missing"
    largest = max(present, key=present.__getitem__, default=PLAN)
    _refuse_large(folder / largest, present.get(largest, 0))
    if sum(present.values()) > MOST_BYTES:
        raise BadInput(
            f"its files say that they have more than {MOST_BYTES} bytes, most of them {largest}",
            fix="they are no run's",
            file=folder,
        )
    return None


def _copied(folder: Path, copy: Path, recorded: Mapping[str, str]) -> dict[str, str]:
    """Copy a bundle up to the first file that is not as sealed; return the SHA-256 of each as copied.

    Raises BadInput, also for a full disk.
    """
    digests: dict[str, str] = {}
    try:
        for name in (SUMS, SIGNATURE, *run_files(folder)):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            content = _content(folder / name)
            digests[name] = hashlib.sha256(content).hexdigest()
            if digests[name] != recorded.get(name, digests[name]):
                break
            with (copy / name).open("wb") as file:
                for at in range(0, len(content), _BLOCK):  # a hole stays one
                    if (block := content[at : at + _BLOCK]).strip(b"\0"):
                        file.seek(at)
                        file.write(block)
                file.truncate(len(content))
        for name in empty_folders(folder):
            (copy / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"cannot be copied to be judged: {error.strerror or error}",
            fix="make room there, or set TMPDIR to a folder with room",
            file=copy.parent,
        ) from None
    return digests


def _judged(
    folder: Path,
    signer: str | None,
    recorded: dict[str, str],
    ordered: tuple[Order, bytes, str | None] | None,
) -> Verification:
    verdict = judge_folder(folder)
    if stale := _not_derived(folder, verdict, recorded):
        return differs(*stale)
    reason = f"{len(recorded)} files as sealed, verdict {verdict.outcome.value} recomputed from the raw files"
    if signer is None:
        reason += "; signature intact, but the signer was not checked: give --signers"
    else:
        reason += f", signed by {signer}"
    if ordered is None:
        return Verification(None, f"{reason}; {UNORDERED}", signer, verdict.outcome)
    what, content, who = ordered
    findings = tuple(order_findings(folder, what, content, recorded))
    if findings:
        return differs(findings[0].file, f"not as ordered: {findings[0]}", findings)
    reason += f"; as ordered by {who or 'a signer that was not checked'}: plan, nodes, times and outputs"
    return Verification(None, reason, signer, verdict.outcome)


def _unsigned(folder: Path, sums: bytes, signers: Path | None) -> tuple[str | None, tuple[str, str] | None]:
    """Return who signed, and the signature's file with why it does not hold."""
    signer, flaw = signatures.signer(folder / SIGNATURE, sums, signers)
    return signer, (SIGNATURE, flaw) if flaw else None


def _not_derived(folder: Path, verdict: Verdict, recorded: dict[str, str]) -> tuple[str, str] | None:
    """Return the first file that does not follow from the raw files, and why."""
    run = Run(folder, simulated=True)
    if not run.has_jobs:
        return JOBS, f"{JOBS} is missing or has no jobs: its results follow from no raw files"
    if stale := uncollected(run):
        name, how, _ = stale
        return name, f"{name} is not what the raw files give: {how}"
    if VERDICT not in recorded:
        return VERDICT, f"{VERDICT} is missing"
    if how := _other_verdict(folder, verdict):
        return VERDICT, f"{VERDICT} is not what the raw results give: {how}"
    if old := outdated(folder):
        return old, f"{old} is not what this release makes of the run's files"
    return None


def _other_verdict(folder: Path, verdict: Verdict) -> str:
    """Return how `verdict.json` differs from a verdict; empty: it does not."""
    content = read_bytes(folder / VERDICT)
    return "" if verdict_says(content, verdict) else difference(content, verdict_to_json(verdict))


def _changed(folder: Path, recorded: dict[str, str], digests: dict[str, str]) -> tuple[str, str] | None:
    """Return the first file, by name, that is not as sealed, and why."""
    for name in sorted(recorded):
        if digests.get(name, recorded[name]) != recorded[name]:
            return name, f"{name} was changed after sealing: its SHA-256 differs"
    if other := _others(folder, recorded):
        return other
    for name in empty_folders(folder):
        return name, f"{name} is an empty folder: it was added after sealing"
    return None


def changed_since(folder: Path) -> str:
    """Say which file of a sealed run is not as sealed, and how; empty: none, or it is not sealed."""
    if not os.path.lexists(folder / SUMS):
        return ""
    recorded = _parse_sums(read_bytes(folder / SUMS), folder / SUMS)
    digests = {n: hashlib.sha256(_content(folder / n)).hexdigest() for n in run_files(folder)}
    found = _changed(folder, recorded, digests)
    return found[1] if found else ""


def differs(name: str, reason: str, findings: tuple[SealFinding, ...] = ()) -> Verification:
    """Return that a file is not what was sealed or ordered, and why."""
    return Verification(printable(name)[:500], printable(reason)[:1000], None, None, findings)


def _content(path: Path) -> bytes:
    with open_plain(path) as file:
        _refuse_large(path, os.fstat(file.fileno()).st_size)
        return file.read()


def _refuse_large(path: Path, size: int) -> None:
    if size > LARGEST_DOCUMENT:  # no record or output of a run is, and hashing 8 GiB takes half a minute
        large = f"is larger than {LARGEST_DOCUMENT} bytes"
        raise BadInput(large, fix="it is no file of a run: remove it", file=path)


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

"""The signed order and the nodes' signed lines."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import ConfigDict, Field, ValidationError

from shakedown.records.base import Name, Params, Record, Stage
from shakedown.records.plan import Plan, Reference
from shakedown.records.program import plain_environment
from shakedown.records.reading import BadInput, loads, read_bytes
from shakedown.records.wording import printable

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # SHA-256
# As ssh-keygen -l prints it.
Fingerprint = Annotated[str, Field(pattern=r"^SHA256:[A-Za-z0-9+/]{43}$")]
Moment = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]  # RFC 3339, UTC


class OrderedNode(Record):
    """A machine that may measure: what tells it from every other."""

    # What stands for machine-id(5), as the snapshot of the hosts has it; None: it was not known.
    machine: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    # Fingerprints of its SSH host keys.
    host_keys: tuple[Fingerprint, ...] = Field(min_length=1, max_length=16)


class OrderedTest(Record):
    """A block of planned cells, as far as it matters whether somebody took it out of the plan or eased it."""

    stage: Stage  # of the ladder
    test: Name  # its name
    metric: Name  # what it measures
    # What it is measured with.
    params: Params = Field(default_factory=dict)
    reference: Name  # what decides
    cells: int = Field(ge=0)  # how many
    required: bool  # whether the run cannot pass without them
    not_run: str | None = None  # why they will not be measured


class Order(Record):
    """An order: the plan by its digest, and what is needed to say how another plan differs from it."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    run: Name  # the plan's
    system: Name  # the plan's
    # Random: what bears it was made after the order was.
    nonce: Digest
    plan: Digest  # of plan.json's bytes
    jobs: Digest  # of jobs.json's bytes
    not_before: Moment  # what was measured earlier is not of this order
    not_after: Moment  # nor what was measured later
    # The machines that may measure.
    nodes: dict[Name, OrderedNode] = Field(min_length=1)
    # The number of the user whose jobs they are: what hosts sign for others counts for nothing.
    user: int = Field(ge=0)
    # The host that submits the jobs, where it signs which ones there were.
    submit: OrderedNode | None = None
    # What the plan measures, so that a changed plan is told test by test.
    tests: tuple[OrderedTest, ...]
    # What decides, as the plan has it.
    references: dict[Name, Reference]

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def ordered_tests(plan: Plan) -> tuple[OrderedTest, ...]:
    """Return a plan's blocks of cells as an order has them."""
    return tuple(
        OrderedTest(
            stage=item.stage,
            test=item.test,
            metric=item.metric,
            params=item.params,
            reference=item.reference,
            cells=len(item),
            required=item.required,
            not_run=item.not_run,
        )
        for item in plan.items
    )


class SealFinding(NamedTuple):
    """One thing that differs from the order."""

    file: str
    reason: str

    def __str__(self) -> str:
        return printable(f"{self.file}: {self.reason}")[:500]


# SSH signatures (`ssh-keygen -Y`), made and checked in one namespace only: `shakedown`.

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
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        names = line.split(maxsplit=1)[:1]
        if not line.lstrip().startswith("#") and not line.replace("\t", " ").isprintable():
            raise BadInput(
                f"{line[:40]!r} holds what is no letter, so that no name in it can be trusted",
                fix="write the name and key anew",
                file=signers,
                line=number,
            )
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
            env=plain_environment(os.environ),
        )
    except FileNotFoundError:
        raise BadInput("ssh-keygen is not installed", fix="install openssh-client 8.2 or newer") from None
    except subprocess.TimeoutExpired:
        raise BadInput("ssh-keygen does not answer", fix="use a key without passphrase prompt") from None


def _last_line(process: subprocess.CompletedProcess[bytes]) -> str:
    text = (process.stderr or process.stdout).decode(errors="replace").strip()
    return text.splitlines()[-1][:200] if text else f"status {process.returncode}"


_NO_LINK = "0" * 64


class SignedOutputs(Record):
    """What a node signed: its own line about one list of outputs (signer.py)."""

    schema_: Literal[1] = Field(alias="schema")
    purpose: Literal["shakedown-outputs"]
    order: Digest
    number: int = Field(ge=1)
    before: Digest
    digest: Digest
    time: Moment
    uid: int = Field(ge=0)
    machine: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")]


class SignedLink(Record):
    """A line and its signature, as a job keeps them."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    link: Annotated[str, Field(max_length=4096)]
    signature: Annotated[str, Field(max_length=16384)]


@dataclass(frozen=True)
class Placed:
    """A link, and the file of the bundle that it lies in."""

    file: str
    text: str
    signature: str
    link: SignedOutputs


def placed(file: str, content: SignedLink) -> Placed | None:
    """Return a link; None if what was signed is none."""
    try:
        loads(content.link)
        return Placed(file, content.link, content.signature, SignedOutputs.model_validate_json(content.link))
    except (ValidationError, ValueError):
        return None


def chain_findings(
    whose: str, machine: OrderedNode, links: Iterable[Placed], order: Order
) -> Iterator[SealFinding]:
    """Yield where a machine's links are no whole chain, of its own, within the order's time.

    Signatures are checked apart (`signature_findings`): the last link's stands for those before it.
    """
    before, number, time = _NO_LINK, 0, order.not_before
    for place in sorted(links, key=lambda p: p.link.number):
        link = place.link
        if link.number != number + 1:
            lost = f"{number + 1}" if link.number == number + 2 else f"{number + 1} to {link.number - 1}"
            yield SealFinding(
                place.file,
                f"chain broken: {whose} signed outputs that are not in the bundle, line {lost} of its chain"
                if link.number > number
                else f"chain broken: {whose}'s line {link.number} is there twice",
            )
        elif link.before != before:
            yield SealFinding(place.file, f"chain broken: {whose}'s line {link.number} follows another line")
        if link.time < time:
            yield SealFinding(
                place.file, f"chain broken: {whose}'s line {link.number} is of before, {link.time}"
            )
        if not order.not_before <= link.time <= order.not_after:
            yield SealFinding(
                place.file,
                f"out of time: signed {link.time}, ordered from {order.not_before} to {order.not_after}",
            )
        if machine.machine is not None and link.machine != machine.machine:
            yield SealFinding(place.file, f"was signed on another machine than the {whose} of the order")
        if link.uid != order.user:
            yield SealFinding(
                place.file, f"was asked for by user {link.uid}, the order is of user {order.user}'s jobs"
            )
        before, number, time = hashlib.sha256(place.text.encode()).hexdigest(), link.number, link.time


def signature_findings(last: Iterable[tuple[str, OrderedNode, Placed]]) -> Iterator[SealFinding]:
    """Yield which of the links were not signed with a host key of their machine."""
    given = list(last)
    with ThreadPoolExecutor(min(16, 2 * (os.cpu_count() or 1))) as pool:
        keys = pool.map(lambda one: key_of(one[2].signature, one[2].text.encode()), given)
        for (whose, machine, place), key in zip(given, keys, strict=True):
            if not key:
                yield SealFinding(place.file, f"{whose}'s signature does not hold")
            elif key not in machine.host_keys:
                yield SealFinding(place.file, f"was signed by another host than the {whose} of the order")

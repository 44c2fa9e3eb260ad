"""Whether the hosts of an order can sign, asked before its first job.

    python -m shakedown.evidence.able_to_sign RUN-FOLDER SUBMIT-HOST < ANSWERS

ANSWERS, JSON, holds what each host's signing service answered to the order's digest and `TRIAL`, by host: it
has then kept a place for the order's chain and made the folder for notes. Exit status 0, or 2 with one line
on stderr that names the hosts which cannot sign, sign with another key than the order has of them, or were
asked by another user than whose jobs they are. A host without an answer is no refusal: jobs cannot reach it
either.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from shakedown.evidence.signatures import Digest, Moment, Order, OrderedNode, SignedLink, key_of
from shakedown.records.base import Record
from shakedown.records.program import ended, status_of
from shakedown.records.reading import BadInput, ExitStatus, loads, read_bytes, read_record
from shakedown.records.wording import natural_key, printable
from shakedown.run.folder import ORDER

_LARGEST_ANSWER = 64 << 10  # characters of one host
_SHOWN = 8  # hosts in a message


class SigningAnswer(Record):
    """What a host said."""

    out: str  # the service's answer
    err: str = ""  # why there is none


class OnTrial(Record):
    """What a host signed: no outputs, but that it would (signer.py)."""

    schema_: Literal[1] = Field(alias="schema")
    purpose: Literal["shakedown-trial"]
    order: Digest
    time: Moment
    uid: int
    machine: str


def refuse_unable(order: Order, ordered: str, submit: str, answers: Mapping[str, SigningAnswer]) -> None:
    """Refuse an order of hosts that cannot sign.

    Args:
        order: of the run.
        ordered: its digest.
        submit: the host that submits the jobs; it signs where the order names it.
        answers: by host.

    Raises:
        BadInput: naming hosts and reason.
    """
    wanted = {**order.nodes, **({submit: order.submit} if order.submit else {})}
    unable: dict[str, list[str]] = {}
    for host in sorted(wanted.keys() & answers.keys(), key=natural_key):
        # A submit host that is a node as well has to be both machines of the order.
        machines = {id(m): m for m in (order.nodes.get(host), wanted[host]) if m is not None}
        said = (_flaw(m, answers[host], order, ordered) for m in machines.values())
        if flaw := next(filter(None, said), ""):
            unable.setdefault(flaw, []).append(host)
    if unable:
        raise BadInput(
            "; ".join(f"{_some(hosts)} cannot sign: {flaw}" for flaw, hosts in unable.items()),
            fix="run site.yml again, or have the order made anew with these hosts' keys of now and user; "
            "-e signing_missing=unsigned measures all the same, and verify --order names what is unsigned",
        )


def _flaw(machine: OrderedNode, answer: SigningAnswer, order: Order, ordered: str) -> str:
    """Return why an answer is no signature of a machine under the order; empty: it is one."""
    if not answer.out:
        return printable(answer.err.strip().splitlines()[-1][:200] if answer.err.strip() else "no answer")
    try:
        signed = SignedLink.model_validate({"schema": 1, **loads(answer.out[:_LARGEST_ANSWER])})
        line = OnTrial.model_validate(loads(signed.link))
        key = key_of(signed.signature, signed.link.encode())
    except (ValidationError, ValueError, TypeError, RecursionError):
        key = ""
    if not key or line.order != ordered:
        return "its answer is no signature"
    if machine.machine is not None and line.machine != machine.machine:
        return "it is another machine than that of the order"
    if line.uid != order.user:
        return f"it was asked by user {line.uid}, the order is of user {order.user}'s jobs"
    return "" if key in machine.host_keys else "its SSH host key is not in the order"


def _some(hosts: list[str]) -> str:
    more = f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else ""
    return ", ".join(hosts[:_SHOWN]) + more


def main(argv: list[str]) -> int:
    """Judge the answers; return the exit status."""
    if len(argv) != 2:
        print("usage: python -m shakedown.evidence.able_to_sign RUN-FOLDER SUBMIT-HOST", file=sys.stderr)
        return ExitStatus.BAD_INPUT

    def judge() -> None:
        path = Path(argv[0]) / ORDER
        ordered = hashlib.sha256(read_bytes(path)).hexdigest()
        refuse_unable(read_record(path, Order), ordered, argv[1], _answers(sys.stdin.read()))

    return status_of(judge)


def _answers(text: str) -> dict[str, SigningAnswer]:
    """Return what the hosts answered, by host. Raises BadInput."""
    try:
        return {str(host): SigningAnswer.model_validate(one) for host, one in loads(text).items()}
    except (ValueError, AttributeError) as error:  # the validator's is a ValueError
        said = " ".join(str(error).split())[:300]
        raise BadInput(
            f"not the hosts' answers: {said}", fix="as playbooks/acceptance.yml gives it"
        ) from None


if __name__ == "__main__":
    ended(lambda: main(sys.argv[1:]))

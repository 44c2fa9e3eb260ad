"""Whether the hosts of an order can sign, asked before its first job.

    python -m shakedown.evidence.able_to_sign RUN-FOLDER SUBMIT-HOST < ANSWERS

ANSWERS, JSON, holds what each host's signing service answered to `TRIAL`, by host. Exit status 0, or 2 with
one line on stderr that names the hosts which cannot sign, or sign with another key than the order has of
them. A host without an answer is no refusal: jobs cannot reach it either.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from shakedown.evidence.signatures import Order, OrderedNode, SignedLink, placed, signature_findings
from shakedown.records import untrusted
from shakedown.records.base import Record
from shakedown.records.errors import BadInput, ExitStatus
from shakedown.records.program import ended, status_of
from shakedown.records.reading import read_record
from shakedown.records.wording import natural_key, printable
from shakedown.run.folder import ORDER

# Two digests of nothing: what is signed for them is of no order, and no line of an order's chain.
TRIAL = "0" * 128
_LARGEST_ANSWER = 64 << 10  # characters of one host
_SHOWN = 8  # hosts in a message


class SigningAnswer(Record):
    """What a host said."""

    out: str  # the service's answer
    err: str = ""  # why there is none


def refuse_unable(order: Order, submit: str, answers: Mapping[str, SigningAnswer]) -> None:
    """Refuse an order of hosts that cannot sign.

    Args:
        order: of the run.
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
        if flaw := next(filter(None, (_flaw(m, answers[host]) for m in machines.values())), ""):
            unable.setdefault(flaw, []).append(host)
    if unable:
        raise BadInput(
            "; ".join(f"{_some(hosts)} cannot sign: {flaw}" for flaw, hosts in unable.items()),
            fix="run site.yml again, or have the order made anew with these hosts' keys of now; "
            "-e signing_missing=unsigned measures all the same, and verify --order names what is unsigned",
        )


def _flaw(machine: OrderedNode, answer: SigningAnswer) -> str:
    """Return why an answer is no signature of a machine; empty: it is one."""
    if not answer.out:
        return printable(answer.err.strip().splitlines()[-1][:200] if answer.err.strip() else "no answer")
    try:
        link = placed(
            "", SignedLink.model_validate({"schema": 1, **untrusted.loads(answer.out[:_LARGEST_ANSWER])})
        )
    except (ValidationError, ValueError, TypeError, RecursionError):
        link = None
    if link is None or link.link.order + link.link.digest != TRIAL:
        return "its answer is no signature"
    if machine.machine is not None and link.link.machine != machine.machine:
        return "it is another machine than that of the order"
    found = next(signature_findings([("host", machine, link)]), None)
    return "" if found is None else "its SSH host key is not in the order"


def _some(hosts: list[str]) -> str:
    more = f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else ""
    return ", ".join(hosts[:_SHOWN]) + more


def main(argv: list[str]) -> int:
    """Judge the answers; return the exit status."""
    if len(argv) != 2:
        print("usage: python -m shakedown.evidence.able_to_sign RUN-FOLDER SUBMIT-HOST", file=sys.stderr)
        return ExitStatus.BAD_INPUT

    def judge() -> None:
        refuse_unable(read_record(Path(argv[0]) / ORDER, Order), argv[1], _answers(sys.stdin.read()))

    return status_of(judge)


def _answers(text: str) -> dict[str, SigningAnswer]:
    """Return what the hosts answered, by host. Raises BadInput."""
    try:
        return {str(host): SigningAnswer.model_validate(one) for host, one in untrusted.loads(text).items()}
    except (ValueError, AttributeError) as error:  # the validator's is a ValueError
        said = " ".join(str(error).split())[:300]
        raise BadInput(
            f"not the hosts' answers: {said}", fix="as playbooks/acceptance.yml gives it"
        ) from None


if __name__ == "__main__":
    ended(lambda: main(sys.argv[1:]))

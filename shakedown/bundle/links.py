"""The chains that nodes signed: whose lines they are, and whether each follows from the one before."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from shakedown.bundle.findings import Finding
from shakedown.bundle.keygen import key_of
from shakedown.records import untrusted
from shakedown.records.base import Record
from shakedown.records.order import Digest, Moment, Order, OrderedNode

_NO_LINK = "0" * 64


class Link(Record):
    """What a node signed: its own line about one list of outputs (signer.py)."""

    schema_: Literal[1] = Field(alias="schema")
    purpose: Literal["shakedown-outputs"]
    order: Digest
    number: int = Field(ge=1)
    before: Digest
    digest: Digest
    time: Moment
    uid: int = Field(ge=0)
    signed: int = Field(ge=1)  # how much this node has signed in all, for whatever order
    others: int = Field(default=0, ge=0)  # lines of other users about this order, when this one was signed
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
    link: Link


def placed(file: str, content: SignedLink) -> Placed | None:
    """Return a link; None if what was signed is none."""
    try:
        untrusted.loads(content.link)
        return Placed(file, content.link, content.signature, Link.model_validate_json(content.link))
    except (ValidationError, ValueError):
        return None


def chain_findings(
    whose: str, machine: OrderedNode, links: Iterable[Placed], order: Order
) -> Iterator[Finding]:
    """Yield where a machine's links are no whole chain, of its own, within the order's time.

    Signatures are checked apart (`signature_findings`): the last link's stands for those before it.
    """
    before, number, time, uid, others = _NO_LINK, 0, order.not_before, None, 0
    for place in sorted(links, key=lambda p: p.link.number):
        link = place.link
        if link.number != number + 1:
            lost = f"{number + 1}" if link.number == number + 2 else f"{number + 1} to {link.number - 1}"
            yield Finding(
                place.file,
                f"chain broken: {whose} signed outputs that are not in the bundle, line {lost} of its chain"
                if link.number > number
                else f"chain broken: {whose}'s line {link.number} is there twice",
            )
        elif link.before != before:
            yield Finding(place.file, f"chain broken: {whose}'s line {link.number} follows another line")
        if link.time < time:
            yield Finding(place.file, f"chain broken: {whose}'s line {link.number} is of before, {link.time}")
        if not order.not_before <= link.time <= order.not_after:
            yield Finding(
                place.file,
                f"out of time: signed {link.time}, ordered from {order.not_before} to {order.not_after}",
            )
        if machine.machine is not None and link.machine != machine.machine:
            yield Finding(place.file, f"was signed on another machine than the {whose} of the order")
        if uid is not None and link.uid != uid:
            yield Finding(place.file, f"chain broken: asked for by user {link.uid}, those before by {uid}")
        if link.others > others:
            yield Finding(
                place.file,
                f"another user had outputs of this order signed on the {whose} as well: {link.others} lines",
            )
        others = link.others
        before, number, time = hashlib.sha256(place.text.encode()).hexdigest(), link.number, link.time
        uid = link.uid


def signature_findings(last: Iterable[tuple[str, OrderedNode, Placed]]) -> Iterator[Finding]:
    """Yield which of the links were not signed with a host key of their machine."""
    given = list(last)
    with ThreadPoolExecutor(min(16, 2 * (os.cpu_count() or 1))) as pool:
        keys = pool.map(lambda one: key_of(one[2].signature, one[2].text.encode()), given)
        for (whose, machine, place), key in zip(given, keys, strict=True):
            if not key:
                yield Finding(place.file, f"{whose}'s signature does not hold")
            elif key not in machine.host_keys:
                yield Finding(place.file, f"was signed by another host than the {whose} of the order")

"""Orders: made and signed by the customer over a plan, read back, and taken into the run they are for."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shakedown.bundle import keygen
from shakedown.bundle.hosts import read_hosts, refuse_twins
from shakedown.plan.jobs import Jobs
from shakedown.records.errors import BadInput
from shakedown.records.order import Order, ordered_tests
from shakedown.records.plan import Plan
from shakedown.records.reading import read_bytes, read_record
from shakedown.run.folder import JOBS, ORDER, ORDER_SIGNATURE, PLAN, to_json, write_aside

_TIME = "%Y-%m-%dT%H:%M:%SZ"
# Nodes keep what they signed for four months (signer.py).
MOST_DAYS = 90


def make(folder: Path, hosts: Iterable[Path], *, days: int, submit: str | None = None) -> Order:
    """Return the order of a planned run.

    Args:
        folder: with plan.json and jobs.json.
        hosts: snapshots or known_hosts files, for the machines of all its nodes.
        days: how long it is valid, from now.
        submit: the host that submits the jobs, if it is to sign which there were.

    Raises:
        BadInput: a file is not in order, a node's host key is not known, or two nodes share one.
    """
    if not 1 <= days <= MOST_DAYS:
        raise BadInput(
            f"{days} days: an order is valid for 1 to {MOST_DAYS}", fix="give --days in that range"
        )
    plan, jobs = read_record(folder / PLAN, Plan), read_record(folder / JOBS, Jobs)
    if not jobs.jobs:
        raise BadInput("has no jobs: nothing would be measured", fix="plan the run anew", file=folder / JOBS)
    known = read_hosts(hosts)
    nodes = {
        name: known.node(name) for name in sorted({*plan.nodes, *(n for j in jobs.jobs for n in j.nodes)})
    }
    refuse_twins(nodes)
    now = datetime.now(UTC)
    return Order(
        run=plan.run,
        system=plan.system,
        nonce=secrets.token_hex(32),
        plan=digest(read_bytes(folder / PLAN)),
        jobs=digest(read_bytes(folder / JOBS)),
        not_before=now.strftime(_TIME),
        not_after=(now + timedelta(days=days)).strftime(_TIME),
        nodes=nodes,
        submit=known.node(submit) if submit else None,
        tests=ordered_tests(plan),
        references=plan.references,
    )


def write(order: Order, path: Path, key: Path) -> None:
    """Write an order and its signature, `PATH.sig`. Raises BadInput: the key cannot sign."""
    content = to_json(order)
    signature = keygen.sign(content, key)
    signature_of(path).unlink(missing_ok=True)
    write_aside(path, content)
    write_aside(signature_of(path), signature)


def signature_of(path: Path) -> Path:
    """Return where an order's signature lies."""
    return path.with_name(f"{path.name}.sig")


def read(path: Path, signers: Path | None) -> tuple[Order, bytes, str | None]:
    """Return an order, its bytes, and who signed it.

    Raises:
        BadInput: it is none, its signature does not hold, or nobody in `signers` made it.
    """
    content = read_bytes(path)
    order = read_record(path, Order)
    who, flaw = keygen.signer(signature_of(path), content, signers)
    if flaw:
        raise BadInput(flaw, fix="take the order as its signer gave it, with its .sig", file=path)
    return order, content, who


def take(folder: Path, path: Path) -> None:
    """Put an order into the run that it is for, before the run begins.

    Raises:
        BadInput: it is of another plan, or not valid now.
    """
    order, content, _ = read(path, None)
    for name, wanted in ((PLAN, order.plan), (JOBS, order.jobs)):
        if digest(read_bytes(folder / name)) != wanted:
            raise BadInput(
                f"was not ordered: {path} is of another one",
                fix=f"measure the plan that was ordered: -e run_id={order.run}",
                file=folder / name,
            )
    now = datetime.now(UTC).strftime(_TIME)
    if not order.not_before <= now <= order.not_after:
        raise BadInput(
            f"is valid from {order.not_before} to {order.not_after}, not now, {now}",
            fix="ask for another order",
            file=path,
        )
    signature = read_bytes(signature_of(path), keygen.LARGEST_SIGNATURE)
    write_aside(folder / ORDER, content)
    write_aside(folder / ORDER_SIGNATURE, signature)


def digest(content: bytes) -> str:
    """Return the SHA-256 of some bytes in hexadecimal."""
    return hashlib.sha256(content).hexdigest()

"""What a run adds to the history: one value per node and metric, and the node's parts."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median

from shakedown.judge.cells import SEVERITY
from shakedown.judge.verdict import Judged
from shakedown.records.base import Better, Outcome, Stage
from shakedown.records.plan import Plan
from shakedown.records.snapshot import Snapshot
from shakedown.records.verdict import CellVerdict

# A value over more nodes than a pair belongs to none of them. No node can have this name.
WHOLE_JOB = "*"
# A run whose own times differ by more than this from the time of its plan was made while a clock jumped.
_BEFORE_PLAN = timedelta(hours=1)
_LONGEST_RUN = timedelta(days=7)
_AHEAD = timedelta(hours=1)


_Cell = tuple[str, CellVerdict]  # the partner of a pair, else an empty name


@dataclass(frozen=True, slots=True)
class NodeValue:
    """One node's value of one metric in one run, over its partners."""

    node: str
    metric: str  # stage/test/metric/rail/send or receive/parameters
    unit: str
    better: Better
    value: float | None  # None: planned and not measured, or not usable
    cells: int
    outcome: Outcome  # the worst of its cells
    reference: str


def node_values(judged: Judged) -> list[NodeValue]:
    """Return a run's values per node and metric, sorted.

    The metric names the node's own end of a pair, `send` or `receive`, so that a NIC that is slow one way
    only is not averaged with its good way. `over_partners` keeps one bad partner out.
    """
    found: dict[tuple[str, str], list[_Cell]] = {}
    about: dict[str, tuple[str, Better, str]] = {}
    for block in judged.items:
        item = block.item
        if item.stage is Stage.CONFIG or item.metric.startswith("counter."):
            continue
        params = ",".join(f"{k}={item.params[k]}" for k in sorted(item.params)) or "-"
        start = f"{item.stage}/{item.test}/{item.metric}"
        for (_, nodes, rail, direction), verdict in zip(item.cells(), block.cells, strict=True):
            for node, role in _roles(nodes, direction):
                tail = params if node != WHOLE_JOB else f"{params},nodes={len(nodes)}"
                metric = f"{start}/{rail or '-'}/{role}/{tail}"
                about[metric] = (item.unit, item.better, item.reference)
                partner = next((n for n in nodes if n != node), "") if len(nodes) == 2 else ""
                found.setdefault((node, metric), []).append((partner, verdict))
    return [_value(node, metric, cells, about[metric]) for (node, metric), cells in sorted(found.items())]


def _roles(nodes: Sequence[str], direction: str | None) -> Iterator[tuple[str, str]]:
    if len(nodes) > 2:
        yield WHOLE_JOB, "-"
    elif len(nodes) == 2 and direction in ("forward", "reverse"):
        first, second = ("send", "receive") if direction == "forward" else ("receive", "send")
        yield nodes[0], first
        yield nodes[1], second
    else:
        for node in nodes:
            yield node, direction or "-"


def over_partners(values: Mapping[str, Sequence[float]], better: Better) -> float:
    """Return a node's value from what it measured with each partner: the median, of two partners the better.

    In a group of three with one sick node each innocent one has a good and a bad partner. A node that is sick
    itself is slow with both.
    """
    middles = [median(of) for of in values.values()]
    if len(middles) == 2:
        return max(middles) if better is Better.HIGHER else min(middles)
    return median(middles)


def _value(node: str, metric: str, cells: Sequence[_Cell], about: tuple[str, Better, str]) -> NodeValue:
    usable: dict[str, list[float]] = {}
    for partner, v in cells:
        if v.outcome not in (Outcome.PASS, Outcome.FAIL) or v.rule == "impossible":
            continue
        if v.value is not None and math.isfinite(v.value):
            usable.setdefault(partner, []).append(v.value)
    worst = max((v.outcome for _, v in cells), key=lambda o: SEVERITY[o])
    unit, better, reference = about
    value = over_partners(usable, better) if usable else None
    return NodeValue(node, metric, unit, better, value, sum(map(len, usable.values())), worst, reference)


def content_digest(values: Sequence[NodeValue], started: Sequence[str]) -> str:
    """Return what is the same for two copies of one run, whatever they call themselves."""
    digest = hashlib.sha256()
    for v in values:
        digest.update(f"{v.node}\0{v.metric}\0{v.value!r}\n".encode())
    digest.update("\0".join(sorted(set(started))).encode())
    return digest.hexdigest()


def host_states(inventory: Snapshot | None) -> dict[str, tuple[str, list[tuple[str, str, str, str]]]]:
    """Return each host's parts as (kind, name, attribute, value) rows, with their digest."""
    rows: dict[str, list[tuple[str, str, str, str]]] = {}
    for part in inventory.components if inventory else ():
        of_host = rows.setdefault(part.host, [])
        of_host += [(part.kind, part.name, k, v) for k, v in part.attributes.items()]
        if not part.attributes:
            of_host.append((part.kind, part.name, "", ""))
    states = {}
    for host, parts in rows.items():
        parts.sort()
        states[host] = (hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32], parts)
    return states


def clock_problem(plan: Plan, started: Sequence[str], now: datetime) -> str:
    """Say why a run's times cannot be right; empty if they can."""
    created = _moment(plan.created)
    if created is None:
        return f"planned at {plan.created!r}, which is no time"
    if created > now + _AHEAD:
        return f"planned at {plan.created}, which is yet to come"
    for text in started:
        at = _moment(text)
        if at is None:
            return f"a measurement started at {text!r}, which is no time"
        if not created - _BEFORE_PLAN <= at <= created + _LONGEST_RUN:
            return f"planned at {plan.created}, but measured at {text}: a clock jumped"
    return ""


def _moment(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)

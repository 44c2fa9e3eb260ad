"""The rules of one cell: what its measurements say together, and which known fault they look like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from pydantic_core import to_json

from shakedown.physics.ethernet import payload_ceiling_gbps
from shakedown.physics.host_links import payload_ceiling_gb_per_s
from shakedown.records.base import Better, Outcome
from shakedown.records.plan import PlanItem, Reference, ReferenceKind
from shakedown.records.results import CounterReading, Measurement
from shakedown.records.verdict import CellVerdict
from shakedown.records.wording import BLAMES, apart, ended, in_unit, number, printable, where
from shakedown.statistics.robust import median_interval

# Signatures of known faults: what a failed value looks like. A hint never changes an outcome.
#
# Every rate is computed by `shakedown.physics`; the shares of NVLink SHARP and of TCP are measured
# (NVIDIA GTC slides: 8 x H100 480 against 370 GB/s, 8 x B200 838 against 682; NCCL over sockets reaches a few
# GB/s on any NIC).

_LINK_SPEEDS_GBPS = (10, 25, 40, 50, 100, 200, 400, 800)
_SMALL_MTUS_BYTES = (1024, 2048)
# (generation, width): the links a NIC falls back to, at the usual MaxPayload of 256 B.
_PCIE_LINKS = ((5, 8, "Gen5 x8 or Gen4 x16"), (4, 8, "Gen4 x8 or Gen3 x16"), (3, 8, "Gen3 x8 or Gen4 x4"))
_MAX_PAYLOAD_BYTES = 256
_TCP_GB_PER_S = 5.0
# From here on a collective is bound by bandwidth and no longer by latency: an all-reduce of 8 GPUs reaches
# 95 % of its best bus bandwidth at 512 MiB, 8 % of it at 1 MiB (references/ml_engineering.yml).
_LARGE_BYTES = 512 << 20


class Hint(NamedTuple):
    """What a failed rate looks like."""

    likely: str  # the cause, for the verdict's first sentence
    text: str  # the same and where to look, for the cell's reason


def fault_hint(m: Measurement, reference: Reference) -> str:
    """Say what a failed rate looks like, or nothing."""
    hint = None if m.value is None else signature(m, len(m.nodes), m.value, reference)
    return hint.text if hint else ""


def signature(m: Measurement | PlanItem, nodes: int, value: float, reference: Reference) -> Hint | None:
    """Return the known fault whose failed value looks like this one; `value` in the reference's unit."""
    ceiling = reference.ceiling
    if value < 0 or m.metric.startswith("counter."):
        return None
    if m.unit == "Gb/s" and ceiling is not None:
        return _link_hint(value, ceiling)
    if m.unit == "GB/s" and m.metric.startswith("busbw") and not m.test.startswith("mpi") and _large(m):
        return _collective_hint(m.test, nodes, value, reference)
    return None


def _hint(name: str, /, **of: object) -> Hint:
    says = BLAMES[name].says.format(**of)
    return Hint(says.partition("likely ")[2].partition(" (at most")[0], BLAMES[name].told(**of))


def _link_hint(value_gbps: float, ceiling_gbps: float) -> Hint | None:
    """A single RDMA link, against its payload ceiling."""
    if 0.47 <= value_gbps / ceiling_gbps <= 0.502:
        return _hint("half-rate")
    speed = next((s for s in _LINK_SPEEDS_GBPS if 0.9 * s < ceiling_gbps <= s), None)
    if speed is None:
        return None
    for mtu in _SMALL_MTUS_BYTES:
        limit = payload_ceiling_gbps(speed, rdma_mtu_bytes=mtu)
        if 0.99 * limit <= value_gbps <= limit < ceiling_gbps:
            return _hint("rdma-mtu", mtu=mtu, limit=limit)
    for generation, width, name in _PCIE_LINKS:
        limit = 8 * payload_ceiling_gb_per_s(generation, width, max_payload_bytes=_MAX_PAYLOAD_BYTES)
        if 0.85 * limit <= value_gbps <= limit < ceiling_gbps:
            return _hint("pcie", name=name, limit=limit)
    return None


def _large(m: Measurement | PlanItem) -> bool:
    """Whether a message is so large that its rate tells of the path, not of latency."""
    size = m.params.get("size_bytes")
    return size is None or (isinstance(size, int | float) and size >= _LARGE_BYTES)


def _collective_hint(test: str, nodes: int, value_gb_per_s: float, reference: Reference) -> Hint | None:
    """The bus bandwidth of a GPU collective with large messages, in one node or over several."""
    target = reference.ceiling or reference.value
    if nodes == 1:
        if "all_reduce" in test and 0.72 <= value_gb_per_s / reference.value <= 0.84:
            return _hint("nvls-off")
        return None
    if value_gb_per_s <= min(_TCP_GB_PER_S, 0.1 * target):
        return _hint("tcp")
    if 0.45 <= value_gb_per_s / target <= 0.502:
        return _hint("one-nic-half")
    return None


# Badness of an outcome; a run is as bad as its worst required cell.
SEVERITY = {
    Outcome.FAIL: 5,
    Outcome.INCONCLUSIVE: 4,
    Outcome.NOT_RUN: 3,
    Outcome.BASELINE: 2,
    Outcome.WAIVED: 1,
    Outcome.PASS: 0,
}


# Why a device's counters begin anew, by the kind of reading.
_SET_BACK = {
    "nic": "the node or the NIC's driver was restarted",
    "switch_port": "the switch was restarted, or the port's counters were cleared,",
}


class Rule(StrEnum):
    """The closed list of rules that decide a cell, in the order in which they are asked."""

    UNPLANNED = "unplanned"  # measured, but no cell of the plan: never counted
    EXCLUDED = "excluded"  # the plan itself says why it is not run
    NOT_MEASURED = "not-measured"
    NOT_REPORTED = "not-reported"  # a counter that not every device has, and this one has not: never missed
    REFERENCE = "reference"  # the reference cannot decide: above its own ceiling, or passed by a dead link
    UNIT = "unit"  # unit or direction of improvement differs from the plan
    # The kinds of a Problem, each a rule of its own.
    PARSE = "parse"
    ENVIRONMENT = "environment"
    BUSY = "busy"
    MISSING_TOOL = "missing-tool"
    KILLED = "killed"
    COUNTER_RESET = "counter-reset"
    SETUP = "setup"
    OTHER_GPU = "other-gpu"
    NOT_RUN = "not-run"
    OTHER = "other"
    JOB_STATE = "job-state"
    NO_VALUE = "no-value"
    NOT_FINITE = "not-finite"
    SAMPLES = "samples"  # the value does not lie within its own samples
    IMPOSSIBLE = "impossible"
    FEW_SAMPLES = "few-samples"
    NOISE = "noise"
    GATE = "gate"  # outside the reference
    HOLE = "hole"  # far below what both a smaller and a larger message of the same sweep reached
    DUPLICATE = "duplicate"
    FLAKY = "flaky"
    OUTLIER = "outlier"
    LEARNT = "learnt"  # a value, and no reference to hold it against
    CLASS = "class"  # within its gate, but the median of its class is not within that of the class
    PILED_UP = "piled-up"  # measured again and within, but too many of one part or of all
    TRANSIENT = "transient"  # outside once, within when measured again: a PASS that is told
    LATE = "late"  # without a value at first, within when measured again: a PASS that is told
    WITHIN = "within"


_TIMES = frozenset({"us", "ms", "s"})


class Range(NamedTuple):
    """What a value can be, whoever measured it; a reference's ceiling is the limit of its own hardware."""

    low: float = 0.0
    high: float = math.inf
    low_too: bool = True  # whether the end itself can be
    high_too: bool = True

    def holds(self, value: float) -> bool:
        """Whether a value can be; one that is off by a last place can."""
        slack = _LAST_PLACES * abs(value)
        above = value > self.low or (self.low_too and value >= self.low - slack)
        return above and (value < self.high or (self.high_too and value <= self.high + slack))


_LAST_PLACES = 1e-9
_AMOUNTS = (*_TIMES, "min", "1", "packets", "events", "bytes", "GB/s", "Gb/s", "MB/s", "MiB/s", "TFLOP/s")
_RATES = ("samples/s", "tokens/s", "queries/s", "images/s", "IO/s")
# By unit, unless the metric has its own. The mean power of a machine that ran is not 0, nor is a ratio of two
# measured values, of which each was above 0.
POSSIBLE: dict[str, Range] = {
    **dict.fromkeys((*_AMOUNTS, *_RATES), Range()),
    **dict.fromkeys(("W", "kW", "J", "loss", "x"), Range(low_too=False)),
    "%": Range(high=100),
    "degC": Range(-40, 150),  # beyond, no silicon works
}
_OF_METRIC = {
    "time_reduction": Range(-math.inf, 100, high_too=False),  # 100 %: no time at all
    "traffic_share": Range(),  # nothing may have passed the fabric
    "share_of_host": Range(low_too=False),  # of two measured rates; GPU memory may be the faster one
}
_WITHIN = Rule.WITHIN.value  # looked up once, not for each cell that passes
# What a rule that a cell has broken makes of it; every other leaves it undecided.
_OUTCOMES = {
    Rule.GATE: Outcome.FAIL,
    Rule.IMPOSSIBLE: Outcome.FAIL,
    Rule.HOLE: Outcome.FAIL,
    Rule.OTHER_GPU: Outcome.FAIL,
    Rule.NOT_RUN: Outcome.NOT_RUN,
    Rule.LEARNT: Outcome.BASELINE,
}
# What is not so for sure where something else was seen at work (docs/decisions/busy-meanwhile.md).
_GOOD = frozenset((Rule.WITHIN, Rule.LEARNT))
_WORSE = frozenset((Rule.GATE, Rule.LEARNT))  # what busy CPUs may have made of a good value


@dataclass(slots=True)
class Bound:
    """One plan item with what its reference means, computed once for all its cells."""

    item: PlanItem
    reference: Reference
    gate: float = field(init=False)
    higher: bool = field(init=False)
    learns: bool = field(init=False)
    min_samples: int = field(init=False)
    ceiling: float | None = field(init=False)
    unusable: str = field(init=False)
    passed: str = field(init=False)
    possible: Range = field(init=False)
    moved_bytes: bool = field(init=False)  # in such a measurement 0 means that nothing was measured

    def __post_init__(self) -> None:
        self.gate = self.reference.gate
        self.higher = self.reference.better is Better.HIGHER
        self.learns = self.reference.kind is ReferenceKind.LEARN
        self.min_samples, self.ceiling = self.reference.min_samples, self.reference.ceiling
        self.unusable = _unusable(self.reference)
        unit = self.reference.unit
        anything = Range(-math.inf, math.inf)
        self.possible = _OF_METRIC.get(self.item.metric) or POSSIBLE.get(unit) or anything
        of_bytes = unit in _TIMES or (unit == "GB/s" and not self.item.required)
        self.moved_bytes = of_bytes and bool(self.item.params.get("size_bytes"))
        side = "at least" if self.higher else "at most"
        self.passed = printable(f"{side} {in_unit(number(self.gate), unit)}")

    def outside(self, value: float) -> bool:
        """Whether a value is worse than the gate."""
        return value < self.gate if self.higher else value > self.gate

    def impossible(self, value: float) -> bool:
        """Whether a value is better than physics allows."""
        ceiling = self.ceiling
        return ceiling is not None and (value > ceiling if self.higher else value < ceiling)


def _unusable(reference: Reference) -> str:
    """Why a reference cannot decide anything, or an empty string."""
    if reference.kind is ReferenceKind.LEARN:
        return ""
    gate, ceiling, unit = reference.gate, reference.ceiling, reference.unit
    blame = f"reference {reference.id} decides nothing: gate {number(gate)}"
    if reference.better is Better.HIGHER:
        if ceiling is not None and gate > ceiling:
            return f"{blame} lies above the ceiling {in_unit(number(ceiling), unit)}, nothing can pass"
        if gate <= 0:
            return f"{in_unit(blame, unit)}, a dead link would pass"
    elif ceiling is not None and gate < ceiling:
        return f"{blame} lies below the floor {in_unit(number(ceiling), unit)}, nothing can pass"
    return ""


def judge_measurement(cell: str, m: Measurement, bound: Bound) -> CellVerdict:
    """Judge one measurement of a planned cell."""
    return verdict_of(cell, m, *rule_of(m, bound), bound)


def verdict_of(cell: str, m: Measurement, rule: Rule, text: str, bound: Bound) -> CellVerdict:
    """Return what a rule makes of a measurement, with all that is known of why."""
    if rule is not Rule.WITHIN:
        hint = fault_hint(m, bound.reference) if rule is Rule.GATE else ""
        # What a tool says of a value that passes does not say why its cell did not.
        passes = m.value is not None and not bound.outside(m.value)
        known = m.detail == text or passes or (rule is Rule.JOB_STATE and m.value is not None)
        detail = "" if known else m.detail
        # The cause first: a verdict's first line has room for little more.
        seen = "" if m.disturbed is None or m.disturbed in f"{text} {detail}" else m.disturbed
        told = "; ".join(part for part in (seen, detail) if part)
        text = ": ".join(part for part in (text, hint, told) if part)
    return _verdict(cell, rule, text, m.value, m.raw, bound)


def judge_counter(cell: str, reading: CounterReading, bound: Bound) -> CellVerdict:
    """Judge one counter reading as metric `counter.NAME`; what it counts is the unit of the plan."""
    delta = reading.delta
    rule = Rule.WITHIN
    if bound.unusable:
        rule, text = Rule.REFERENCE, bound.unusable
    elif delta is not None:
        rule, text = _decide(delta, (), bound)
        if rule is Rule.GATE and reading.counter.endswith("_tx_missed_ppm"):
            own = BLAMES["own-class"].told()
            text = f"{text}: {own}"
    elif reading.began_anew:
        rule, text = Rule.COUNTER_RESET, f"counts from zero again: {_SET_BACK[reading.kind]} during the test"
    elif reading.before is None or reading.after is None:
        missing = [w for w, v in (("before", reading.before), ("after", reading.after)) if v is None]
        rule, text = Rule.COUNTER_RESET, f"counter was not read {' and '.join(missing)} the test"
        text += f": {reading.unread}" if reading.unread else ""
    else:
        change = f"from {reading.before} to {reading.after}"
        rule, text = Rule.COUNTER_RESET, f"counter went backwards, {change}: reset during the test"
    return _verdict(cell, rule, text, delta, reading.raw, bound)


def _verdict(
    cell: str, rule: Rule, text: str, value: float | None, raw: str | None, bound: Bound
) -> CellVerdict:
    if rule is Rule.WITHIN:
        outcome, word = Outcome.PASS, _WITHIN
    else:
        outcome, word = _OUTCOMES.get(rule, Outcome.INCONCLUSIVE), rule.value
        text = f"{where(cell)}: {printable(text)}"
    return CellVerdict(
        cell=cell,
        outcome=outcome,
        rule=word,
        reason=text,
        value=float(value) if value is not None and math.isfinite(value) else None,
        gate=bound.gate,
        ceiling=bound.ceiling,
        raw=raw,
    )


def rule_of(m: Measurement, bound: Bound) -> tuple[Rule, str]:  # noqa: PLR0911  (one return per rule)
    """Return the rule that decides a measurement, and its words; asked in the order of `Rule`."""
    reference, value = bound.reference, m.value
    if bound.unusable:
        # What cannot be is no result, whether or not it is only shown.
        odd = m.state == "COMPLETED" and m.unit == reference.unit and _cannot_be(value, m.samples, bound)
        return (Rule.IMPOSSIBLE, odd) if odd else (Rule.REFERENCE, bound.unusable)
    if m.unit != reference.unit or m.better is not reference.better:
        return Rule.UNIT, (
            f"measured in {m.unit!r} ({m.better.value} is better), "
            f"planned in {reference.unit!r} ({reference.better.value} is better)"
        )
    if m.problem is not None:
        return Rule(m.problem.kind), m.problem.message
    if m.state != "COMPLETED":
        return Rule.JOB_STATE, ended(m.job, m.state)
    if value is None:
        return Rule.NO_VALUE, "the tool gave no value"
    rule, text = _decide(value, m.samples, bound)
    if m.disturbed and rule in _GOOD:
        return Rule.BUSY, f"{in_unit(number(value), reference.unit)} decides nothing: {m.disturbed}"
    if m.loaded and rule in _WORSE:
        said, most = "; ".join(one.said for one in m.loaded), min(1.0, sum(one.most for one in m.loaded))
        # One wait in the middle of a short time has no such bound.
        if rule is Rule.LEARNT or not bound.higher or value >= (1 - most) * bound.gate:
            return Rule.BUSY, f"{said}: {in_unit(number(value), reference.unit)} decides nothing"
        return rule, f"{text}; {said}, which takes {most:.0%} at most"
    return rule, text


def _decide(  # noqa: PLR0911  (one return per rule reads best)
    value: float, samples: Sequence[float], bound: Bound
) -> tuple[Rule, str]:
    """Hold a value and its samples against the reference."""
    if not math.isfinite(value) or not all(map(math.isfinite, samples)):
        return Rule.NOT_FINITE, "the value or a sample is not a finite number"
    low, high = (min(samples), max(samples)) if samples else (value, value)
    slack = 1e-9 * abs(value)  # a mean of equal samples may round by one last place
    if not low - slack <= value <= high + slack:
        limits = f"{number(low)} to {in_unit(number(high), bound.reference.unit)}"
        return Rule.SAMPLES, f"value {number(value)} lies outside its own samples, {limits}"
    if bound.learns:
        unit = bound.reference.unit
        if bound.higher and low <= 0:
            return Rule.NO_VALUE, f"{in_unit(number(low), unit)} teaches nothing: a dead link has as much"
        return Rule.LEARNT, f"{in_unit(number(value), unit)}, measured to learn from and not judged"
    if odd := _cannot_be(value, samples, bound):
        return Rule.IMPOSSIBLE, odd
    count, wanted = len(samples) or 1, bound.min_samples
    if count < wanted:
        return Rule.FEW_SAMPLES, f"{count} of {wanted} samples; too few to decide"
    # The value may lie beside its samples by a last place. If the worst of all is within, everything is.
    if not bound.outside(min(low, value) if bound.higher else max(high, value)):
        return Rule.WITHIN, bound.passed
    # Every interval of the median lies within the range: only a range across the gate can be noise.
    if bound.outside(low) is not bound.outside(high) and (noise := _noise(value, samples, bound)):
        return Rule.NOISE, noise
    if bound.outside(value):
        return Rule.GATE, outside_text(value, bound)
    return Rule.WITHIN, bound.passed


def _cannot_be(value: float | None, samples: Sequence[float], bound: Bound) -> str:
    """Say why no hardware gives this: better than its limit, or bytes that moved in no time or not at all."""
    if value is None or bound.learns:
        return ""
    low, high = (min(value, *samples), max(value, *samples)) if samples else (value, value)
    best, possible, unit = high if bound.higher else low, bound.possible, bound.reference.unit
    if bound.impossible(best):
        return _impossible(best, bound.reference)
    # What lies between both ends for sure needs no look at the ends themselves.
    if not possible.low < low <= high < possible.high:
        odd = next((x for x in (value, *samples) if not possible.holds(x)), None)
        if odd is not None:
            return f"{in_unit(number(odd), unit)} cannot be: a measurement error"
    if best <= 0 and bound.moved_bytes:
        size = bound.item.params["size_bytes"]
        return f"{in_unit(number(best), unit)} where {size} bytes were moved: a measurement error"
    return ""


def _noise(value: float, samples: Sequence[float], bound: Bound) -> str:
    """Why the samples cannot decide against the gate: value and both ends of the interval must agree.

    The interval is the 95 % interval of the median from six samples on, below that the whole range.
    """
    low, high, coverage = median_interval(samples)
    if bound.outside(low) is bound.outside(high) is bound.outside(value):
        return ""
    return (
        f"the median of {len(samples)} samples lies within {number(low)} to {number(high)} "
        f"{bound.reference.unit} ({coverage:.0%} interval), "
        f"on both sides of the gate {apart(bound.gate, value)}: repeat it"
    )


def _impossible(value: float, reference: Reference) -> str:
    assert reference.ceiling is not None
    side, limit = (
        ("above the ceiling", "at most")
        if reference.better is Better.HIGHER
        else ("below the floor", "at least")
    )
    source = f" ({reference.ceiling_source})" if reference.ceiling_source else ""
    return (
        f"{in_unit(apart(value, reference.ceiling, reference.unit), reference.unit)} is {side}, {limit} "
        f"{apart(reference.ceiling, value, reference.unit)} is possible{source}: a measurement error"
    )


def outside_text(value: float, bound: Bound) -> str:
    """Return how far a value lies outside its gate."""
    reference, unit = bound.reference, bound.reference.unit
    target = reference.value if reference.ceiling is None or not bound.higher else reference.ceiling
    mine, gate = apart(value, bound.gate, unit), apart(bound.gate, value, unit)
    if bound.gate == 0 and not bound.higher:
        return f"{number(value)} {'' if unit == '1' else unit}".rstrip() + ", none allowed"
    if bound.higher and target > 0:
        return f"{mine} of {in_unit(number(target, unit), unit)}, {100 * value / target:.0f} %, gate {gate}"
    return f"{in_unit(mine, unit)}, gate {gate}"


def combine(judged: Sequence[tuple[int, CellVerdict]]) -> CellVerdict:
    """Combine all (attempt, verdict) of one cell; the order given does not matter.

    - Whatever was decided, was decided bad: FAIL. A copy of a bad line never makes a cell better.
    - Two of the same attempt: INCONCLUSIVE, because one of them may belong to another node.
    - They disagree, or none is of the first attempt: INCONCLUSIVE. A pass on retry is no pass.
    """
    if len(judged) == 1 and judged[0][0] == 1:
        return judged[0][1]
    ordered = sorted(judged, key=lambda j: (-SEVERITY[j[1].outcome], j[0], to_json(j[1])))
    worst = ordered[0][1]
    outcomes = {v.outcome for _, v in ordered}
    attempts = [a for a, _ in ordered]
    tally = ", ".join(f"{_short(v)} at attempt {a}" for a, v in sorted(ordered, key=lambda j: j[0]))
    if Outcome.FAIL in outcomes and Outcome.PASS not in outcomes:
        again = "" if len(judged) == 1 else f" ({tally})"
        return replace(worst, reason=worst.reason + again)
    if len(set(attempts)) < len(attempts):
        why = worst.reason.removeprefix(f"{where(worst.cell)}: ")
        of_one = f", one: {why[:300]}" if worst.outcome is Outcome.INCONCLUSIVE else ""
        return _because(
            worst, Outcome.INCONCLUSIVE, Rule.DUPLICATE, f"measured twice ({tally}{of_one}); whose is it?"
        )
    if len(outcomes) > 1 or (Outcome.PASS in outcomes and 1 not in attempts):
        return _because(worst, Outcome.INCONCLUSIVE, Rule.FLAKY, f"not the same on every attempt ({tally})")
    return worst


def _short(verdict: CellVerdict) -> str:
    return verdict.outcome.value + (f" with {number(verdict.value)}" if verdict.value is not None else "")


def _because(verdict: CellVerdict, outcome: Outcome, rule: Rule, text: str) -> CellVerdict:
    return replace(verdict, outcome=outcome, rule=rule.value, reason=f"{where(verdict.cell)}: {text}")

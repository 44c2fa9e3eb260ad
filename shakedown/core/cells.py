"""The rules of one cell: what one measurement says, and what several of the same cell say together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from shakedown.core.hints import fault_hint
from shakedown.core.records import (
    Better,
    CellVerdict,
    CounterReading,
    Measurement,
    Outcome,
    PlanItem,
    Problem,
    Reference,
)
from shakedown.core.statistics import median_interval
from shakedown.core.wording import apart, number, printable, where

# Badness of an outcome; a run is as bad as its worst required cell.
SEVERITY = {Outcome.FAIL: 3, Outcome.INCONCLUSIVE: 2, Outcome.NOT_RUN: 1, Outcome.PASS: 0}


class Rule(StrEnum):
    """The closed list of rules that decide a cell, in the order in which they are asked."""

    UNPLANNED = "unplanned"  # measured, but no cell of the plan: never counted
    EXCLUDED = "excluded"  # the plan itself says why it is not run
    NOT_MEASURED = "not-measured"
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
    OTHER = "other"
    JOB_STATE = "job-state"
    NO_VALUE = "no-value"
    NOT_FINITE = "not-finite"
    SAMPLES = "samples"  # the value does not lie within its own samples
    IMPOSSIBLE = "impossible"
    FEW_SAMPLES = "few-samples"
    NOISE = "noise"
    GATE = "gate"  # outside the reference
    DUPLICATE = "duplicate"
    FLAKY = "flaky"
    OUTLIER = "outlier"
    WITHIN = "within"


@dataclass(slots=True)
class Bound:
    """One plan item with what its reference means, computed once for all its cells."""

    item: PlanItem
    reference: Reference
    gate: float = field(init=False)
    higher: bool = field(init=False)
    unusable: str = field(init=False)
    passed: str = field(init=False)

    def __post_init__(self) -> None:
        self.gate = self.reference.gate
        self.higher = self.reference.better is Better.HIGHER
        self.unusable = _unusable(self.reference)
        side = "at least" if self.higher else "at most"
        self.passed = printable(f"{side} {number(self.gate)} {self.reference.unit}")

    def outside(self, value: float) -> bool:
        """Whether a value is worse than the gate."""
        return value < self.gate if self.higher else value > self.gate

    def impossible(self, value: float) -> bool:
        """Whether a value is better than physics allows."""
        ceiling = self.reference.ceiling
        return ceiling is not None and (value > ceiling if self.higher else value < ceiling)


def _unusable(reference: Reference) -> str:
    """Why a reference cannot decide anything, or an empty string."""
    gate, ceiling, unit = reference.gate, reference.ceiling, reference.unit
    if reference.better is Better.HIGHER:
        if ceiling is not None and gate > ceiling:
            return f"gate {number(gate)} lies above the ceiling {number(ceiling)} {unit}: nothing can pass"
        if gate <= 0:
            return f"gate {number(gate)} {unit}: a dead link would pass"
    elif ceiling is not None and gate < ceiling:
        return f"gate {number(gate)} lies below the floor {number(ceiling)} {unit}: nothing can pass"
    return ""


def judge_measurement(cell: str, m: Measurement, bound: Bound) -> CellVerdict:
    """Judge one measurement of a planned cell. The rules are asked in the order of `Rule`."""
    rule, text = _rule(m, bound)
    if rule is Rule.WITHIN:
        outcome, reason = Outcome.PASS, text
    else:
        outcome = Outcome.FAIL if rule in (Rule.GATE, Rule.IMPOSSIBLE) else Outcome.INCONCLUSIVE
        reason = f"{where(cell)}: {printable(text if m.detail is None else f'{text}: {m.detail}')}"
    return CellVerdict(
        cell=cell,
        outcome=outcome,
        rule=rule.value,
        reason=reason,
        value=m.value if m.value is not None and math.isfinite(m.value) else None,
        gate=bound.gate,
        ceiling=bound.reference.ceiling,
        raw=m.raw,
    )


def _rule(m: Measurement, bound: Bound) -> tuple[Rule, str]:  # noqa: PLR0911  (one return per rule reads best)
    reference, value = bound.reference, m.value
    if bound.unusable:
        return Rule.REFERENCE, f"reference {reference.id} decides nothing: {bound.unusable}"
    if m.unit != reference.unit or m.better != reference.better:
        return Rule.UNIT, (
            f"measured in {m.unit!r}, better={m.better.value}; "
            f"planned in {reference.unit!r}, better={reference.better.value}"
        )
    if m.problem is not None:
        return Rule(m.problem.kind), m.problem.message
    if m.state != "COMPLETED":
        return Rule.JOB_STATE, f"job {m.job or '-'} ended {m.state}, not COMPLETED"
    if value is None:
        return Rule.NO_VALUE, "the tool gave no value"
    if not math.isfinite(value) or not all(map(math.isfinite, m.samples)):
        return Rule.NOT_FINITE, "the value or a sample is not a finite number"
    if m.samples and not _among(value, m.samples):
        return Rule.SAMPLES, (
            f"value {number(value)} lies outside its own samples "
            f"{number(min(m.samples))} to {number(max(m.samples))} {m.unit}"
        )
    best = max if bound.higher else min
    extreme = best(m.samples) if m.samples else value  # the value lies among its samples
    if bound.impossible(extreme):
        return Rule.IMPOSSIBLE, _impossible(extreme, reference)
    if len(m.samples or (value,)) < reference.min_samples:
        return Rule.FEW_SAMPLES, (
            f"{len(m.samples or (value,))} of {reference.min_samples} samples; too few to decide"
        )
    if len(m.samples) > 1:
        noise = _noise(value, m.samples, bound)
        if noise:
            return Rule.NOISE, noise
    if bound.outside(value):
        return Rule.GATE, _outside(m, bound)
    return Rule.WITHIN, bound.passed


def _among(value: float, samples: Sequence[float]) -> bool:
    slack = 1e-9 * abs(value)  # a mean of equal samples may round by one last place
    return min(samples) - slack <= value <= max(samples) + slack


def _noise(value: float, samples: Sequence[float], bound: Bound) -> str:
    """Why the samples cannot decide against the gate: value and both ends of the interval must agree.

    The interval is the 95 % interval of the median from six samples on, below that the whole range.
    """
    if bound.outside(min(samples)) == bound.outside(max(samples)) == bound.outside(value):
        return ""  # every interval lies within the range
    low, high, coverage = median_interval(samples)
    if bound.outside(low) == bound.outside(high) == bound.outside(value):
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
        f"{apart(value, reference.ceiling, reference.unit)} {reference.unit} is {side}, {limit} "
        f"{apart(reference.ceiling, value, reference.unit)} is possible{source}: a measurement error"
    )


def _outside(m: Measurement, bound: Bound) -> str:
    value, reference, unit = m.value, bound.reference, m.unit
    assert value is not None
    target = reference.value if reference.ceiling is None or not bound.higher else reference.ceiling
    gate = apart(bound.gate, value, unit)
    if bound.gate == 0 and not bound.higher:
        text = f"{number(value)} {unit}, none allowed"
    elif bound.higher and target > 0:
        share = 100 * value / target
        text = (
            f"{apart(value, bound.gate, unit)} of {number(target, unit)} {unit}, {share:.0f} %, gate {gate}"
        )
    else:
        text = f"{apart(value, bound.gate, unit)} {unit}, gate {gate}"
    hint = fault_hint(m, reference)
    return f"{text}: {hint}" if hint else text


def combine(judged: Sequence[tuple[int, CellVerdict]]) -> CellVerdict:
    """Combine all (attempt, verdict) of one cell; the order given does not matter.

    - Whatever was decided, was decided bad: FAIL. A copy of a bad line never makes a cell better.
    - Two of the same attempt: INCONCLUSIVE, because one of them may belong to another node.
    - They disagree, or none is of the first attempt: INCONCLUSIVE. A pass on retry is no pass.
    """
    if len(judged) == 1 and judged[0][0] == 1:
        return judged[0][1]
    ordered = sorted(judged, key=lambda j: (-SEVERITY[j[1].outcome], j[0], j[1].model_dump_json()))
    worst = ordered[0][1]
    outcomes = {v.outcome for _, v in ordered}
    attempts = [a for a, _ in ordered]
    tally = ", ".join(f"{_short(v)} at attempt {a}" for a, v in sorted(ordered, key=lambda j: j[0]))
    if Outcome.FAIL in outcomes and Outcome.PASS not in outcomes:
        again = "" if len(judged) == 1 else f" ({tally})"
        return worst.model_copy(update={"reason": worst.reason + again})
    if len(set(attempts)) < len(attempts):
        return _because(
            worst, Outcome.INCONCLUSIVE, Rule.DUPLICATE, f"measured twice ({tally}); whose is it?"
        )
    if len(outcomes) > 1 or (Outcome.PASS in outcomes and 1 not in attempts):
        return _because(worst, Outcome.INCONCLUSIVE, Rule.FLAKY, f"not the same on every attempt ({tally})")
    return worst


def _short(verdict: CellVerdict) -> str:
    return verdict.outcome.value + (f" with {number(verdict.value)}" if verdict.value is not None else "")


def _because(verdict: CellVerdict, outcome: Outcome, rule: Rule, text: str) -> CellVerdict:
    return verdict.model_copy(
        update={"outcome": outcome, "rule": rule.value, "reason": f"{where(verdict.cell)}: {text}"}
    )


def counter_measurement(reading: CounterReading, bound: Bound) -> Measurement:
    """Turn a counter reading into a measurement of metric `counter.NAME` in the unit of its plan item."""
    delta = reading.delta
    problem = None
    if delta is None:
        missing = [w for w, v in (("before", reading.before), ("after", reading.after)) if v is None]
        message = (
            f"counter was not read {' and '.join(missing)} the test"
            if missing
            else f"counter went backwards, from {reading.before} to {reading.after}: reset during the test"
        )
        problem = Problem(kind="counter-reset", message=message)
    return Measurement(
        schema=1,
        run=reading.run,
        stage=reading.stage,
        test=reading.test,
        metric=f"counter.{reading.counter}",
        value=delta,
        unit=bound.item.unit,
        better=bound.item.better,
        nodes=(reading.device,),
        rail=reading.rail,
        params={"port": reading.port},
        job=reading.job,
        state="COMPLETED",
        raw=reading.raw,
        problem=problem,
    )

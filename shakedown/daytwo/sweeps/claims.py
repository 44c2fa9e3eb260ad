"""Published claims of one configuration against another, held to a comparison of sweeps.

A claim is an entry of a profile whose scope has `configuration: A-against-B`: side A over baseline B. Its
metric is one of a closed list; the gate is the entry's, and the rules are those of a run's cells.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shakedown.daytwo.sweeps.pairs import Pairing, PairRow, Ratio, SweepComparison
from shakedown.judge.cells import SEVERITY, Bound, Rule, judge_measurement, outside_text
from shakedown.records.base import Better, Outcome
from shakedown.records.plan import PlanItem
from shakedown.records.results import Measurement
from shakedown.references.catalogue import ReferenceEntry

AGAINST = "-against-"
_MOST_LACKING = 4


def time_reduction_percent(time: float, baseline: float) -> float:
    """Return how much less time one takes than the other, 100 x (1 - time / baseline), both in one unit."""
    return 100 * (1 - time / baseline)


@dataclass(frozen=True)
class Claim:
    """One claim and what became of it."""

    id: str  # of the reference
    what: str  # operation, size and metric in words
    unit: str
    published: float  # the reference's value, in `unit`
    gate: float  # the worst value that passes
    value: float | None  # as measured; None: not measured
    outcome: Outcome
    reason: str
    required: bool  # whether it decides
    source: str


@dataclass(frozen=True)
class _Place:
    """One size of one pairing on one side, with all that a reference may ask."""

    pairing: Pairing
    row: PairRow
    number: int  # of the side among those that are not the baseline
    facts: dict[str, int | str]

    base_watts: Mapping[str, float] | None
    watts: Mapping[str, float] | None

    @property
    def test(self) -> str:
        return f"nccl_{self.pairing.combination.operation}"

    def __str__(self) -> str:
        return f"{self.pairing.combination.operation} at {self.row.size_bytes} B"


_Reader = Callable[[ReferenceEntry, Sequence[_Place], Sequence[ReferenceEntry]], Iterator[Claim]]


def sides_of(entries: Iterable[ReferenceEntry]) -> tuple[tuple[str, str], ...]:
    """Return the (side, baseline) that claims are about, each once."""
    found = {str(entry.scope.get("configuration", "")).partition(AGAINST) for entry in entries}
    return tuple(sorted((side, base) for side, sign, base in found if sign))


def judge_claims(found: SweepComparison, entries: Iterable[ReferenceEntry]) -> tuple[Claim, ...]:
    """Return all claims about the sides of a comparison, in the order of the profile."""
    base = found.sides[0].name
    names = {f"{side.name}{AGAINST}{base}": number for number, side in enumerate(found.sides[1:])}
    mine = [entry for entry in entries if entry.scope.get("configuration") in names]
    places = list(_places(found, names))
    judged: list[Claim] = []
    for entry in mine:
        read = _READ.get(entry.metric)
        if read is None:
            judged.append(_not_judged(entry, f"no comparison has a {entry.metric}"))
            continue
        fitting = [place for place in places if entry.fits(place.facts)]
        judged += read(entry, fitting, mine)
    return tuple(judged)


def failed(claims: Sequence[Claim]) -> bool:
    """Whether a claim that decides does not hold."""
    return any(claim.required and claim.outcome is Outcome.FAIL for claim in claims)


def undecided(claims: Sequence[Claim]) -> bool:
    """Whether a claim that decides was neither held nor failed."""
    return any(claim.required and claim.outcome not in (Outcome.PASS, Outcome.FAIL) for claim in claims)


def _places(found: SweepComparison, names: dict[str, int]) -> Iterator[_Place]:
    for configuration, number in names.items():
        watts = found.sides[0].watts, found.sides[number + 1].watts
        for pairing in found.pairings:
            combination = pairing.combination
            if combination.tool != "nccl-tests":
                continue
            ranks = {
                sweep.facts.get("ranks", "")
                for place, side in enumerate(found.sides)
                if place in (0, number + 1)
                for sweep in side.sweeps
                if (sweep.combination, sweep.nodes) == (combination, pairing.nodes[place])
            }
            for row in pairing.rows:
                facts: dict[str, int | str] = {
                    "configuration": configuration,
                    "nodes": combination.nodes,
                    "dtype": combination.dtype,
                    "launcher": combination.launcher,
                    "operation": combination.operation,
                    "size_bytes": row.size_bytes,
                }
                # Sides of unlike size are no such comparison: no claim about a number of GPUs fits them.
                many = next(iter(ranks)) if len(ranks) == 1 else ""
                if many.isdecimal():
                    facts["gpus"] = int(many)
                yield _Place(pairing, row, number, facts, *watts)


def _reduction(
    entry: ReferenceEntry, places: Sequence[_Place], _: Sequence[ReferenceEntry]
) -> Iterator[Claim]:
    read = [place.row.time_ratio[place.number] for place in places if place.test == entry.test]
    if not any(read):
        yield _not_judged(entry, "not measured on both sides")
    for ratio in read:
        if ratio is not None:
            yield _judged(entry, [time_reduction_percent(x, 1) for x in _samples(ratio)])


def _over(of: Callable[[_Place], Ratio | None], *, worst: bool) -> _Reader:
    """Return what holds the worst, or the best, of all operations and sizes to a claim; none may lack."""

    def read(
        entry: ReferenceEntry, places: Sequence[_Place], claims: Sequence[ReferenceEntry]
    ) -> Iterator[Claim]:
        wanted = {claim.test for claim in claims if claim.metric == "time_reduction"}
        lacking = [str(place) for place in places if of(place) is None]
        lacking += sorted(wanted - {place.test for place in places})
        if lacking or not places:
            names = ", ".join(lacking[:_MOST_LACKING]) or "every operation"
            yield _not_judged(entry, f"{names}: not measured on both sides")
            return
        judged = [(_judged(entry, _samples(ratio)), str(place)) for place in places if (ratio := of(place))]
        sign = -1 if entry.better is Better.HIGHER else 1
        judged.sort(key=lambda found: (SEVERITY[found[0].outcome], sign * (found[0].value or 0)))
        claim, where = judged[-1 if worst else 0]
        yield replace(claim, what=f"{claim.what}, {where}")

    return read


def _power(entry: ReferenceEntry, places: Sequence[_Place], _: Sequence[ReferenceEntry]) -> Iterator[Claim]:
    """Hold the power of all servers together, over the baseline's, where it is the most of all loads."""
    base, mine = next(((place.base_watts, place.watts) for place in places), (None, None))
    if base is None and mine is None:
        yield replace(_not_judged(entry, "no side asked for the servers' power"), required=False)
        return
    both = (base or {}).keys() & (mine or {}).keys()
    if base is None or mine is None or not both or both != base.keys() | mine.keys():
        yield _not_judged(entry, "the servers' power was not read on both sides")
        return
    most, load = max((mine[load] / base[load], load) for load in both)
    claim = _judged(entry, [most])
    yield replace(claim, what=f"{claim.what}, {load}")


# Metric of a claim: what it is of the places that fit.
_READ: dict[str, _Reader] = {
    "time_reduction": _reduction,
    "lowest_bandwidth_ratio": _over(lambda place: place.row.busbw_ratio[place.number], worst=True),
    "highest_bandwidth_ratio": _over(lambda place: place.row.busbw_ratio[place.number], worst=False),
    "highest_time_ratio": _over(lambda place: place.row.time_ratio[place.number], worst=True),
    "highest_power_ratio": _power,
}


def _samples(ratio: Ratio) -> list[float]:
    """Return a ratio, then the least and the most that its repeats allow where they are known."""
    ends = [end for end in (ratio.least, ratio.most) if end is not None]
    return [ratio.value, *ends]


def _judged(entry: ReferenceEntry, samples: Sequence[float]) -> Claim:
    """Judge a value, the first of its samples, as a run's cell is judged."""
    reference = entry.reference()
    common = {"stage": entry.stage, "test": entry.test, "metric": entry.metric, "unit": entry.unit}
    planned = {"nodes": [["sides"]], "reference": entry.id, "required": entry.gates}
    item = PlanItem.model_validate({**common, **planned, "better": entry.better})
    bound = Bound(item, reference)
    measured = Measurement.model_validate(
        {
            **common,
            "run": "sides",
            "better": entry.better,
            "nodes": ["sides"],
            "value": samples[0],
            "samples": sorted(samples) if len(samples) > 1 else [],
            "state": "COMPLETED",
        }
    )
    verdict = judge_measurement(measured.cell, measured, bound)
    if verdict.outcome is Outcome.PASS:
        reason = bound.passed
    elif verdict.rule == Rule.GATE.value:
        reason = outside_text(samples[0], bound)
    else:
        reason = verdict.reason.partition(": ")[2]
    return _claim(entry, samples[0], verdict.outcome, reason)


def _not_judged(entry: ReferenceEntry, reason: str) -> Claim:
    return _claim(entry, None, Outcome.NOT_RUN, reason)


def _claim(entry: ReferenceEntry, value: float | None, outcome: Outcome, reason: str) -> Claim:
    reference = entry.reference()
    size = entry.scope.get("size_bytes")
    what = [entry.test.removeprefix("nccl_"), entry.metric.replace("_", " ")]
    return Claim(
        id=entry.id,
        what=" ".join([*what, *([f"at {size} B"] if isinstance(size, int) else [])]),
        unit=entry.unit,
        published=reference.value,
        gate=reference.gate,
        value=value,
        outcome=outcome,
        reason=reason,
        required=entry.gates,
        source=entry.source,
    )

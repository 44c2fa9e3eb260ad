"""What explains the results of a run's mesh, found while its files are read for the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shakedown.judge.localise.pair_results import PairResults, PlannedPairs
from shakedown.nics.counters import counts_errors
from shakedown.nos.uplinks import IDLE
from shakedown.records.counters import CounterReading
from shakedown.records.plan import Plan, PlanItem
from shakedown.records.results import Measurement
from shakedown.records.verdict import CauseVerdict
from shakedown.run.folder import Run

# With two nodes neither can be told from its partner.
_FEWEST_NODES = 3
# Beyond this a verdict would spend longer on causes than on judging; `shakedown localise` has the time.
_MOST_CELLS = 500_000
# The same for a mesh of few pairs of many nodes, whose matrices are large and empty: 1,024 nodes x 8 rails.
_MOST_PLACES = 1024 * 1024 * 8


def _must_carry(items: Iterable[PlanItem]) -> set[tuple[str, str]]:
    """Return the (leaf, port) of uplinks of which the plan requires that they carry traffic."""
    return {
        (nodes[0], str(item.params["port"]))
        for item in items
        if item.metric == f"counter.{IDLE}" and item.required and item.not_run is None
        for nodes in item.nodes
    }


class CausesOfRun:
    """Watches measurements and counters go by, and localises afterwards; idle where there is no mesh."""

    def __init__(self, plan: Plan) -> None:
        planned = PlannedPairs(plan.items)
        nodes, rails = len(planned.nodes()), len(planned.rails())
        self._wanted = (
            nodes >= _FEWEST_NODES and planned.count <= _MOST_CELLS and rails * nodes**2 <= _MOST_PLACES
        )
        self._pairs = PairResults(planned)
        self._readings: list[CounterReading] = []
        self._must_carry = _must_carry(plan.items)
        self._idle: list[CounterReading] = []

    def measurements(self, found: Iterable[Measurement]) -> Iterator[Measurement]:
        """Pass measurements on."""
        for m in found:
            if self._wanted:
                self._pairs.add(m)
            yield m

    def counters(self, found: Iterable[CounterReading]) -> Iterator[CounterReading]:
        """Pass counter readings on."""
        for reading in found:
            if self._wanted and counts_errors(reading.counter):
                self._readings.append(reading)
            elif reading.counter == IDLE:
                self._idle.append(reading)
            yield reading

    def causes(self, run: Run) -> tuple[CauseVerdict, ...]:
        """Return what explains the results that went by.

        Raises:
            BadInput: the run's cabling or paths cannot be read.
        """
        if not self._pairs and not self._idle:
            return ()
        from shakedown.judge.localise.idle import idle_uplinks
        from shakedown.judge.localise.suspects import causes_and_suspects

        readings = sorted(self._readings, key=lambda r: (r.kind, r.device, r.port, r.counter, r.test))
        of_pairs = causes_and_suspects(self._pairs, run, readings)[0] if self._pairs else []
        return tuple(
            CauseVerdict(
                element=str(cause.element),
                blamed=cause.blamed,
                confidence=round(cause.confidence, 3),
                effect=round(cause.effect, 3),
                evidence=cause.evidence,
                rivals=tuple(str(rival) for rival in cause.rivals),
                proposal=cause.proposal,
            )
            for cause in (*idle_uplinks(self._idle, self._must_carry), *of_pairs)
        )

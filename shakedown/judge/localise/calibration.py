"""How sure a blame is: how often blames on such evidence were right where the truth was known.

Against its rivals a part that is blamed has a posterior of next to 1, as if the noise were what the fit takes
it for. How often it is not is counted: of the benchmark's cases (simulate/benchmark.py) in the noise models
that thresholds were chosen with, each blame is sorted by its evidence, and the part that was right is what
such evidence is worth. `tests/bench/bench_localise_noise.py` counts anew, and holds the result against
models that took no part (docs/evidence/localisation.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from shakedown.judge.localise.model import Explanation

# A slow part this many standard errors below its like, or more, is far from what chance gives.
_STRONG_Z = 8.0
# What is bad now and then with so many partners is no passing moment.
_STRONG_PARTNERS = 8
# Of several that are blamed together, one that lost no more than this part of the worst may follow from it.
_BESIDE = 0.6


class Evidence(StrEnum):
    """What a blame rests on."""

    SLOW = "slow, far beyond the noise"
    SLOW_NARROWLY = "slow, narrowly beyond the noise"
    BESIDE = "slower than its like, beside a part that lost far more"
    NOW_AND_THEN = "bad now and then, with many partners"
    NOW_AND_THEN_FEW = "bad now and then, with few partners"


@dataclass(frozen=True)
class Counted:
    """Blames on one kind of evidence: how many there were, and how many were right."""

    claims: int
    right: int

    @property
    def rate(self) -> float:
        """The part that is right, by Laplace's rule of succession: never 0 or 1, and 1/2 of none."""
        return (self.right + 1) / (self.claims + 2)


# Counted on 2026-11-26: the 23 rows that are not held out, 16 x 4, 50 cases of every fault, 300 healthy ones,
# seeds of their own; only blames of which the fit itself is sure (bench_localise_noise.py, CLEAR_POSTERIOR).
# No case has two faults, so what is blamed beside a far worse part can only be wrong there: of those nothing
# is counted, and half is as good a guess as any.
COUNTED: dict[Evidence, Counted] = {
    Evidence.SLOW: Counted(3429, 3419),
    Evidence.SLOW_NARROWLY: Counted(28, 23),
    Evidence.BESIDE: Counted(0, 0),
    Evidence.NOW_AND_THEN: Counted(542, 540),
    Evidence.NOW_AND_THEN_FEW: Counted(365, 363),
}


def evidence_of(finding: Explanation, worst: float) -> Evidence | None:
    """Return what a blame rests on; None for what the benchmark does not hold (missing results).

    Args:
        finding: the strongest of a cause.
        worst: the largest relative change of all parts that are blamed.
    """
    if finding.pattern == "failed" or finding.element.kind not in {"nic", "node"}:
        return None
    if finding.effect > _BESIDE * worst:
        return Evidence.BESIDE
    if finding.pattern == "intermittent":
        many = finding.partners >= _STRONG_PARTNERS
        return Evidence.NOW_AND_THEN if many else Evidence.NOW_AND_THEN_FEW
    return Evidence.SLOW if finding.z >= _STRONG_Z else Evidence.SLOW_NARROWLY


def calibrated(findings: Sequence[Explanation]) -> list[Explanation]:
    """Return the findings of one matrix with the confidence that their evidence is worth."""
    worst = min((f.effect for f in findings if f.blamed), default=0.0)
    found: list[Explanation] = []
    for f in findings:
        evidence = evidence_of(f, worst) if f.blamed else None
        if evidence is None:
            found.append(f)
        else:
            rate = COUNTED[evidence].rate
            found.append(replace(f, confidence=f.confidence * rate, worth=evidence.value))
    return found

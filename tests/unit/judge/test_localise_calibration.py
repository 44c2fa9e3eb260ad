"""What a stated confidence means: the chances of all explanations sum to 1, and no blame is certain."""

import dataclasses

import pytest

from localiser_cases import case, ours
from shakedown.judge.localise.causes import COUNTED, BlameEvidence, Counted, calibrated, evidence_of, localise
from shakedown.judge.localise.model import Element, Explanation, Route
from tests.kit.cases import cases


def finding(**changes):
    """Return a part that is blamed for being slow."""
    given = {"z": 20.0, "partners": 15, "pattern": "slow", "effect": -0.02} | changes
    return Explanation(
        element=Element("nic", node="n1", rail="r", direction="tx"),
        cells=15,
        share=1.0,
        confidence=1.0,
        rivals=(),
        blamed=True,
        **given,
    )


@cases(
    "changes, worst, evidence",
    ({}, -0.02, BlameEvidence.SLOW),
    ({"z": 8.0}, -0.02, BlameEvidence.SLOW),
    ({"z": 7.99}, -0.02, BlameEvidence.SLOW_NARROWLY),
    ({"effect": -0.01}, -0.2, BlameEvidence.BESIDE),
    ({"effect": -0.15}, -0.2, BlameEvidence.SLOW),
    ({"pattern": "intermittent", "partners": 8}, -0.02, BlameEvidence.NOW_AND_THEN),
    ({"pattern": "intermittent", "partners": 7}, -0.02, BlameEvidence.NOW_AND_THEN_FEW),
    ({"pattern": "failed", "effect": -1.0}, -1.0, None),
)
def test_evidence_is_sorted_at_its_boundaries(changes, worst, evidence):
    """Catches: weak evidence that is given the worth of strong."""
    assert evidence_of(finding(**changes), worst) == evidence


def test_a_rate_is_never_certain():
    """Catches: a confidence of 1 from a count without an error, and one of 0 from no count."""
    assert Counted(0, 0).rate == 0.5
    assert Counted(98, 98).rate == pytest.approx(0.99)
    assert all(counted.right <= counted.claims for counted in COUNTED.values())


def test_a_blame_has_the_confidence_of_its_evidence():
    """Catches: a confidence of 1 for whatever is blamed."""
    (found,) = calibrated([finding()])
    assert found.confidence == COUNTED[BlameEvidence.SLOW].rate
    suspect = dataclasses.replace(finding(), blamed=False, confidence=0.5)
    assert calibrated([suspect]) == [suspect]
    (cause,) = ours(case("iid", "16x4", "5%", 0))
    assert cause.confidence == pytest.approx(COUNTED[BlameEvidence.SLOW].rate, abs=1e-4)


def test_what_cannot_be_told_apart_has_its_chances():
    """Catches: rivals without a share, or shares that are no probabilities."""
    sim = case("iid", "16x4", "none", 0)
    values = sim.matrix.values
    # Two nodes were measured with each other only, and both ways were slow.
    between = values[:, [2, 5], [5, 2]] / 2
    values[:, [2, 5], :] = values[:, :, [2, 5]] = float("nan")
    values[:, [2, 5], [5, 2]] = between
    causes = localise([Route((sim.matrix,), sim.fabric)])
    with_rivals = [c for c in causes if c.rivals]
    assert with_rivals
    for cause in with_rivals:
        assert len(cause.chances) == len(cause.rivals)
        assert cause.confidence + sum(cause.chances) == pytest.approx(1)
        assert any("how likely each is" in sentence for sentence in cause.evidence) or cause.blamed

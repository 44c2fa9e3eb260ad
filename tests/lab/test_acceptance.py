"""The whole path in the virtual cluster, healthy and with planted faults."""

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]


def test_second_converge_changes_nothing(site):
    """Catches: a task that changes something on every run. Slurm's and ReFrame's: test_spaces_slurm.py."""
    options = ("--limit", "head,n1,leaf0", "--skip-tags", "slurm,reframe")
    assert site.unchanged(options=options) >= {"head", "n1", "leaf0"}


def test_healthy_lab_passes(cleared):
    """Catches: any part of the path that does not work, or a cell that is planned and not measured."""
    status, verdict, run = cleared.accept("healthy")
    bad = verdict["cells"][:10]
    assert (status, verdict["outcome"]) == (0, "PASS"), (verdict["reason"], bad)
    assert verdict["coverage"]["measured"] == verdict["coverage"]["planned"] > 0
    for said in (run / "raw").glob("reframe.*.txt"):
        assert "(0 failure(s)" in said.read_text(encoding="utf-8"), said
    report = (run / "report.html").read_text(encoding="utf-8")
    assert "PASS" in report
    assert (run / "junit.xml").exists()


def test_rail_that_is_down_is_found(cleared):
    """Catches: a dead link passed over because the other rail carries everything."""
    cleared.lab.fault_link_down("n2", "rail1")
    status, verdict, run = cleared.accept("rail-down", "config", "fabric", short=True)
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    failed = [cell for cell in verdict["cells"] if cell["outcome"] == "FAIL"]
    assert any("n2" in cell["reason"] and "rail1" in cell["reason"] for cell in failed), failed
    assert not [cell for cell in failed if "/n1/" in cell["cell"]], failed
    assert "rail1" in (run / "report.html").read_text(encoding="utf-8")

"""What sbatch is given of a site, a plan and a night, by ReFrame's configuration."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

SETTINGS = Path(__file__).parents[3] / "reframe_tests" / "settings.py"


@pytest.fixture
def access(tmp_path, monkeypatch):
    """Return what stands in front of every job's own options, for a jobs.json and a night's options."""

    def read(jobs: str | None, night: str = "[]") -> list[str]:
        run = tmp_path / "runs" / "r1"
        run.mkdir(parents=True, exist_ok=True)
        if jobs is not None:
            (run / "jobs.json").write_text(jobs)
        monkeypatch.setenv("SHAKEDOWN_RUN", str(run))
        monkeypatch.setenv("SHAKEDOWN_ACCESS", night)
        monkeypatch.delenv("SHAKEDOWN_SITE", raising=False)
        made = runpy.run_path(str(SETTINGS))["site_configuration"]
        return made["systems"][0]["partitions"][0]["access"]

    return read


def test_a_plans_options_come_after_the_sites_and_before_the_nights(access):
    """Catches: a slurm: block that no job gets; a night in the site's QOS: the last option holds."""
    jobs = json.dumps({"submit": ["--partition=gpu", "--qos=normal"]})
    assert access(jobs, '["--qos=scavenger"]') == [
        "--no-requeue",
        "--exclusive",
        "--partition=gpu",
        "--qos=normal",
        "--qos=scavenger",
    ]


def test_without_a_block_slurm_decides(access):
    """Catches: a run made by an earlier release, or none yet, that cannot be read."""
    assert access(None) == access("{}") == ["--no-requeue", "--exclusive"]


def test_a_broken_plan_ends_it_in_one_line(access):
    """Catches: jobs without the site's account because jobs.json was cut off."""
    with pytest.raises(SystemExit, match=r"jobs\.json: .* -- make the run's plan again"):
        access('{"submit": [')

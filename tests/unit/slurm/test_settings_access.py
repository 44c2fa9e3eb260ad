"""What sbatch is given of a site, a plan and a night, by ReFrame's configuration."""

import json
import re
import runpy
from pathlib import Path

import pytest

SETTINGS = Path(__file__).parents[3] / "reframe_tests" / "settings.py"


def jobs_json(**more: object) -> str:
    """The jobs.json of a run that measures nothing."""
    return json.dumps({"schema": 1, "run": "r1", "jobs": [], "nics": {}} | more)


@pytest.fixture
def access(tmp_path, monkeypatch):
    """Return what stands in front of every job's own options, for a jobs.json and a night's options.

    None for no run at all, an empty text for a run without the file.
    """

    def read(jobs: str | None, night: str = "[]") -> list[str]:
        run = tmp_path / "runs" / "r1"
        run.mkdir(parents=True, exist_ok=True)
        if jobs:
            (run / "jobs.json").write_text(jobs)
        monkeypatch.setenv("SHAKEDOWN_RUN", "" if jobs is None else str(run))
        monkeypatch.setenv("SHAKEDOWN_ACCESS", night)
        monkeypatch.delenv("SHAKEDOWN_SITE", raising=False)
        made = runpy.run_path(str(SETTINGS))["site_configuration"]
        return made["systems"][0]["partitions"][0]["access"]

    return read


def test_a_plans_options_come_after_the_sites_and_before_the_nights(access):
    """Catches: a slurm: block that no job gets; a night in the site's QOS: the last option holds."""
    assert access(jobs_json(submit=["--partition=gpu", "--qos=normal"]), '["--qos=scavenger"]') == [
        "--no-requeue",
        "--exclusive",
        "--partition=gpu",
        "--qos=normal",
        "--qos=scavenger",
    ]


def test_without_a_block_slurm_decides(access):
    """Catches: a run made by an earlier release, or none yet, that cannot be read."""
    assert access(jobs_json()) == access(None) == ["--no-requeue", "--exclusive"]


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ('{"submit": [', r"jobs\.json: Expecting value: line 1 column 13"),
        ('{"schema": 9, "run": "r1", "jobs": [], "nics": {}}', r"jobs\.json: schema: Input should be 1"),
        ("", r"jobs\.json: does not exist"),
    ],
    ids=["cut off", "of another release", "not there"],
)
def test_a_run_without_a_usable_plan_ends_it_in_one_line(jobs, said, access, capsys):
    """Catches: ReFrame that leaves out the check which cannot read its jobs, says PASSED 0/0 and exits 0."""
    with pytest.raises(SystemExit) as ended:
        access(jobs)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(f"{said}.* -- .*`shakedown plan INVENTORY --output FOLDER` makes one$", line)


@pytest.mark.parametrize("variable", ["SHAKEDOWN_RUN", "SHAKEDOWN_SITE"])
def test_a_relative_path_is_refused_with_the_absolute_one(variable, monkeypatch, capsys):
    """Catches: a path taken from the folder of settings.py, where ReFrame reads it: another file, or none."""
    for name in ("SHAKEDOWN_RUN", "SHAKEDOWN_SITE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "reports/runs/r1")
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SETTINGS))
    assert ended.value.code == 2
    said = f"{variable}: 'reports/runs/r1' is relative -- export {variable}=\"$PWD/reports/runs/r1\"\n"
    assert capsys.readouterr().err == said

"""Whose file is it: outputs of another node, target, time or run prove nothing, wherever they lie."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shakedown.judge.judged import judge_folder
from tests.kit.cases import cases


def collected(shakedown, run: Path):
    """Collect and judge; return the verdict."""
    assert shakedown("collect", run)[0] == 0
    return judge_folder(run)


@pytest.fixture
def lab(recorded_run) -> Path:
    """A healthy run of the lab."""
    return recorded_run("lab_healthy")


@cases(
    "of, to, said",
    ("n1.after", "n2.after", "says that it is of n1, its name says n2"),
    ("n2.before", "n2.after", "says that it is of before, its name says after"),
)
def test_counters_of_another_node_or_time(lab, shakedown, of, to, said):
    """Catches: a clean node's counters counted as a lossy one's."""
    job = lab / "raw/fabric.ib_write_bw.a1"
    shutil.copyfile(job / f"counters.{of}.json", job / f"counters.{to}.json")
    verdict = collected(shakedown, lab)
    assert verdict.outcome == "INCONCLUSIVE"
    assert any(said in cell.reason for cell in verdict.cells)
    assert all("/ib_write_bw/" in cell.cell for cell in verdict.cells)


@cases(
    "of, to, said",
    ("n1.fab0", "n1.fab1", "fab0 is of rail0, its record says rail1"),
    ("n1.environment", "n1.pinning", "this is the read-back of environment, its record says"),
)
def test_settings_of_another_target(lab, shakedown, of, to, said):
    """Catches: a good NIC's settings taken for those of the one beside it."""
    job = lab / "raw/config.settings.a1"
    shutil.copyfile(job / f"settings.{of}.json", job / f"settings.{to}.json")
    verdict = collected(shakedown, lab)
    assert verdict.outcome == "INCONCLUSIVE"
    assert any(said in cell.reason for cell in verdict.cells)


def test_settings_of_another_node(lab, shakedown):
    """Catches: a configured node's settings taken for those of one that nobody configured."""
    job = lab / "raw/config.settings.a1"
    report = json.loads((job / "settings.n1.environment.json").read_text())
    (job / "settings.n2.environment.json").write_text(json.dumps({"node": "n1", **report}))
    verdict = collected(shakedown, lab)
    assert verdict.outcome == "INCONCLUSIVE"
    assert any("this is the read-back of n1, its record says n2" in cell.reason for cell in verdict.cells)


def test_one_output_for_two_measurements(lab, shakedown):
    """Catches: a good measurement copied over a bad one of the same ends, which no address tells apart."""
    job = lab / "raw/fabric.ib_write_bw.a1"
    one = "ib_write_bw.n1,n2.rail0.forward.65536.one.txt"
    shutil.copyfile(job / one, job / one.replace(".one.", ".all."))
    verdict = collected(shakedown, lab)
    assert verdict.outcome == "INCONCLUSIVE"
    told = [cell for cell in verdict.cells if "is to the byte" in cell.reason]
    assert {re.search(r"rails_at_once=(\w+)", cell.cell)[1] for cell in told} == {"one", "all"}


def test_one_nccl_output_three_times(recorded_run, shakedown):
    """Catches: one good repeat that stands for all three, so that no spread is seen."""
    run = recorded_run("h200x4_nccl_healthy")
    (job,) = run.glob("raw/collective.nccl0*")
    for number in (2, 3):
        shutil.copyfile(job / "nccl_all_reduce.r1.txt", job / f"nccl_all_reduce.r{number}.txt")
    verdict = collected(shakedown, run)
    assert any("nccl_all_reduce.r1.txt once more" in cell.reason for cell in verdict.cells)


def renamed(run: Path, name: str) -> Path:
    """A run as its copy under another name, two months later."""
    copy = run.with_name(name)
    shutil.copytree(run, copy)
    was = json.loads((copy / "plan.json").read_text())["run"]
    for path in [*copy.glob("*.json"), *copy.glob("raw/*/*.json*")]:
        text = path.read_text().replace(f'"{was}"', f'"{name}"').replace('"2026-11-', '"2026-09-')
        path.write_text(text)
    return copy


def test_history_knows_a_run_by_its_raw_outputs(lab, tmp_path, shakedown):
    """Catches: last month's good night taken in once more under another name and date."""
    store = tmp_path / "store"
    copy = renamed(lab, "another")
    for run in (lab, copy):
        assert shakedown("collect", run)[0] == 0
    status, _, error = shakedown("history", "ingest", "--store", store, lab, "--at", "2026-11-20T13:00:00Z")
    assert status == 0, error
    status, out, error = shakedown(
        "history", "ingest", "--store", store, copy, "--at", "2026-09-20T13:00:00Z"
    )
    assert status != 0
    assert "has the raw outputs of run 20261120T132502Z" in out + error


def test_no_series_of_metrics_prom_is_there_twice(lab, shakedown):
    """Catches: a file that Prometheus refuses, because plan items differ in their rail alone."""
    assert shakedown("collect", lab)[0] == 0
    assert shakedown("report", lab)[0] == 0
    lines = (lab / "metrics.prom").read_text().splitlines()
    series = Counter(line.rpartition(" ")[0] for line in lines if not line.startswith("#"))
    assert [name for name, count in series.items() if count > 1] == []
    assert any('rail="rail0"' in name for name in series)
    numbered = [name for name in series if ',part="' in name]
    assert not numbered, numbered[0]
    # As Prometheus' own library reads it; promtool and a Prometheus 2.42 took this very file, once.
    read = [
        (sample.name, *sorted(sample.labels.items()))
        for family in text_string_to_metric_families((lab / "metrics.prom").read_text())
        for sample in family.samples
    ]
    assert len(read) == len(set(read)) == len(series)

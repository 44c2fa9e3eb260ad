"""Files of a job that are far larger than any job writes: refused by their size, not read for minutes."""

import pytest

from shakedown.benchmarks.perftest.output import parse_perftest
from shakedown.collect.run import collect, most_records
from shakedown.evidence.job_folder import journal
from shakedown.judge.judged import judge_folder
from shakedown.records.plan import Plan
from shakedown.records.reading import BadInput, read_record
from shakedown.run.nic_counters import read_counters
from tests.kit.files import edited
from tests.kit.run import gather
from tests.unit.collect.test_collect import JOB


def test_records_that_no_plan_explains_cost_their_job_alone(run, monkeypatch):
    """Catches: one output named 150,000 times in 60 MB of a journal, and read as often: two minutes."""
    path = run / JOB / "outputs.n1.jsonl"
    lines = path.read_bytes()
    most = most_records(read_record(run / "plan.json", Plan))
    path.write_bytes(lines * (most // lines.count(b"\n") + 2))
    flaws: list[BadInput] = []
    assert len(journal(run / JOB, flaws, most)) <= most
    said = {flaw.what for flaw in flaws}
    assert said == {f"more than {most} records of one job, which its plan does not explain"}
    monkeypatch.setattr("shakedown.collect.run.most_records", lambda plan: 1)
    measured, _ = gather(run)
    said = [m.problem.message for m in measured if m.problem and m.test == "ib_write_bw"]
    assert any("more than 1 records of one job" in message for message in said), said[:3]
    collect(run)
    assert judge_folder(run).outcome == "INCONCLUSIVE"


def test_as_many_records_as_a_plan_explains_are_read(run):
    """Catches: an honest journal that is refused for its length."""
    flaws: list[BadInput] = []
    most = most_records(read_record(run / "plan.json", Plan))
    assert journal(run / JOB, flaws, most) == journal(run / JOB) and not flaws


@pytest.mark.slow
def test_counters_of_a_size_that_no_node_has_are_refused(run):
    """Catches: a reading with a million counters, which takes half a minute and three gigabytes."""
    path = run / JOB / "counters.n1.after.json"
    with edited(path) as document:
        document["devices"][0]["counters"] = {f"counter_{n}": n for n in range(200_000)}
    with pytest.raises(BadInput, match="is larger than 4194304 bytes"):
        read_counters(path)


def test_an_output_of_perftest_that_is_larger_than_any_is_refused():
    """Catches: 60 MB of rows, read for a quarter of a minute."""
    with pytest.raises(BadInput, match="is larger than 1048576 characters"):
        parse_perftest(" 65536      300             100.00             99.00      0.1\n" * 20_000)

"""The localisers' benchmark as files: written, answered by our own localisation, and scored."""

import json

import pytest

from contest import main, score, truth_of, write_benchmark
from localiser_cases import case, judge, ours, planted
from tests.kit.cases import cases

FAULTS = 6  # none, three sizes, a pair and a NIC that flaps


@pytest.fixture(scope="module")
def contest(tmp_path_factory):
    """Return a folder with one case of each fault in one noise."""
    folder = tmp_path_factory.mktemp("contests") / "contest"
    assert write_benchmark(folder, ["t4"], ["16x4"], 1, seed=5) == FAULTS
    return folder


def answers_of(shakedown, contest):
    """Return what `shakedown localise --json` says of every run, a line each."""
    said = []
    for run in sorted(contest.iterdir()):
        status, text, error = shakedown("localise", run, "--json")
        assert status in (0, 1, 3), error
        said.append(json.dumps(json.loads(text)))
    return said


@pytest.mark.slow
def test_answers_from_the_files_are_worth_what_those_from_memory_are(shakedown, contest, tmp_path, capsys):
    """Catches: a case on disk that is not the one in memory, or answers held against another's truth."""
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join(answers_of(shakedown, contest)))
    found = {o.fault: o for o in score(contest, file).outcomes}
    for fault, outcome in found.items():
        sim = case("t4", "16x4", fault, 0, 5)
        same = judge(planted(sim), ours(sim), ("t4", "16x4", fault, 0))
        assert (outcome.blamed, outcome.named, outcome.first, outcome.wrong) == (
            same.blamed,
            same.named,
            same.first,
            same.wrong,
        )
    assert found["20%"].first and not found["none"].blamed
    assert main(["score", str(contest), str(file)]) == 0
    table = capsys.readouterr().out
    assert "| t4 16x4 | benign | 0 of 1 | 0 | 100 / 100 / 0 |" in table


def test_no_file_of_a_run_tells_what_is_planted(contest):
    """Catches: a run whose name, counters, paths or plan give the truth away."""
    truths = [json.loads(line) for line in truth_of(contest).read_text().splitlines()]
    assert sorted(t["run"] for t in truths) == sorted(run.name for run in contest.iterdir())
    assert [t["fault"] for t in truths] != ["none", "2%", "5%", "20%", "pair", "flapping"]
    told = [(run / name).read_text() for run in contest.iterdir() for name in ("plan.json", "inventory.json")]
    assert not any(word in text for text in told for word in ("planted", "lossy", "slow-node"))
    counters = [json.loads(line) for run in contest.iterdir() for line in (run / "counters.jsonl").open()]
    assert not any(c["after"] for c in counters)
    assert not any((run / "paths.jsonl").read_text() for run in contest.iterdir())


def test_a_wrong_and_a_missing_answer_count(contest, tmp_path):
    """Catches: blame of a good part that costs nothing, and a run left out that is not counted."""
    truths = {t["fault"]: t for t in map(json.loads, truth_of(contest).read_text().splitlines())}
    wrong = {"kind": "nic", "node": "n01", "rail": "rail0", "direction": "tx", "blamed": True}
    wrong |= {"confidence": 0.9}
    file = tmp_path / "answers.jsonl"
    file.write_text(json.dumps({"run": truths["none"]["run"], "causes": [wrong]}))
    scored = score(contest, file)
    assert scored.unanswered == FAULTS - 1
    by_fault = {o.fault: o for o in scored.outcomes}
    assert by_fault["none"].wrong == 1 and by_fault["none"].claims == ((0.9, False),)
    assert not by_fault["5%"].named


@cases(
    "line, says",
    ('{"run": "case-9", "causes": []}', "no run 'case-9'"),
    ('{"run": "case-1"}', "causes"),
    ('{"run": "case-1", "causes": [{"kind": "nic", "blamed": true, "confidence": 7}]}', "confidence"),
    ("[", "JSON"),
)
def test_a_bad_answer_is_refused_with_its_line(contest, tmp_path, line, says, capsys):
    """Catches: a traceback, or an answer that is silently dropped."""
    file = tmp_path / "answers.jsonl"
    file.write_text(f"\n{line}\n")
    status, error = main(["score", str(contest), str(file)]), capsys.readouterr().err
    assert status == 2 and len(error.splitlines()) == 1
    assert f"{file}:2: " in error and says in error


def test_a_benchmark_takes_no_nonsense(contest, tmp_path, capsys):
    """Catches: a row that does not exist, and a benchmark written over."""
    with pytest.raises(SystemExit) as ended:
        main(["write", str(tmp_path / "a"), "--row", "pink"])
    assert ended.value.code == 2 and "invalid choice: 'pink'" in capsys.readouterr().err
    assert main(["write", str(contest)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

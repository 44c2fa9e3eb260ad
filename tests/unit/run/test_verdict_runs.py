"""A run folder from anywhere: hostile, cut off, or of another release. Refused with file and line."""

import json
import os
import shutil
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from shakedown.collect.run import collect
from shakedown.commands.verdict import judged_from_raw
from shakedown.judge.judged import judge_folder
from shakedown.plan.jobs import Jobs
from shakedown.records import reading
from shakedown.records.base import Outcome, to_json
from shakedown.records.program import no_cycle_search, status_of
from shakedown.records.reading import BadInput, read_record
from shakedown.records.writing import write_aside
from shakedown.run import folder as runs
from shakedown.run.folder import LONGEST_LINE, Run
from tests.kit.cases import cases
from tests.kit.files import edited, script
from tests.kit.refusal import refused
from tests.kit.run import run_playbook


@pytest.fixture
def run(tmp_path, decision_runs):
    """A copy of a run that passes."""
    return Path(shutil.copytree(decision_runs / "bug15_one_job_many_cells" / "run", tmp_path / "run"))


def edit(run, number, change, name="results.jsonl"):
    """Change one line of a file, given as bytes and counted from 1."""
    lines = (run / name).read_bytes().splitlines(keepends=True)
    lines[number - 1] = change(lines[number - 1])
    (run / name).write_bytes(b"".join(lines))


def set_field(**fields):
    """A change of a line that sets fields."""
    return lambda line: json.dumps({**json.loads(line), **fields}).encode() + b"\n"


def test_the_copy_passes(run):
    """Catches a fixture that is refused for another reason than the one under test."""
    assert judge_folder(run).outcome is Outcome.PASS


@cases(
    "change, words",
    (lambda line: b"{}\n", "run: Field required"),
    (lambda line: b"\n", "Invalid JSON"),
    (lambda line: b"null\n", "Input should be an object"),
    (lambda line: b"[1]\n", "Input should be an object"),
    (lambda line: line.replace(b'"schema": 1', b'"schema": 2'), "schema"),
    (lambda line: line.replace(b'"schema": 1, ', b""), "schema: missing"),
    (set_field(extra=1), "unknown key extra"),
    (set_field(value="390.0x"), "value"),
    (set_field(nodes=["../../etc"]), "nodes"),
    (set_field(nodes=["n1/n2"]), "nodes"),
    (set_field(nodes=["<script>"]), "nodes"),
    (set_field(rail=""), "rail"),
    (set_field(attempt=0), "attempt"),
    (set_field(value=float("inf")), "Infinity is no JSON number"),
    (lambda line: line.replace(b'"value"', b'"value": NaN, "duration_s"'), "NaN"),
    (lambda line: line.replace(b'"value"', b'"value" : 1.0, "value"'), "duplicate key 'value'"),
    (lambda line: line.replace(b'"value"', b'"val\\u0075e": 1.0, "value"'), "duplicate key 'value'"),
    (lambda line: line.replace(b'"value"', b'"value"\t: 1.0, "value"'), "duplicate key 'value'"),
    (lambda line: line.replace(b'"size_bytes"', b'"size_bytes": 1, "size_bytes"'), "duplicate key"),
    (lambda line: line[:40] + b"\n", "Invalid JSON"),
    (lambda line: line.replace(b"n1", b"n\xff"), "Invalid JSON"),
    (lambda line: line.rstrip(b"\n") + b" {}\n", "Invalid JSON"),
    (lambda line: b'{"schema":' + b"[" * 5000 + b"\n", "JSON"),
    (lambda line: b'"' + b"x" * LONGEST_LINE + b'"\n', "line is longer than"),
    (set_field(run="another-run"), "belongs to run 'another-run'"),
    (set_field(raw="/etc/passwd"), "leaves the run folder"),
    (set_field(raw="raw"), "leaves the run folder"),
    (set_field(raw="raw/../plan.json"), "leaves the run folder"),
    (set_field(raw="../raw/x"), "leaves the run folder"),
    (set_field(raw="raw/a\x00b"), "leaves the run folder"),
)
def test_bad_line_is_refused_with_its_number(run, change, words):
    """Catches a line that is skipped, guessed at, or refused without saying where."""
    edit(run, 3, change)
    with pytest.raises(BadInput) as told:
        judge_folder(run)
    message = str(told.value)
    assert f"{run / 'results.jsonl'}:3: " in message and " -- " in message and words in message
    assert message.isprintable()


@pytest.mark.parametrize("keep", [1, 20, 150, -1])
def test_run_cut_off_in_its_last_line(run, keep):
    """Catches a run of a killed process that is lost, or whose last line is taken as complete."""
    content = (run / "results.jsonl").read_bytes()
    last = content.rindex(b"\n", 0, -1) + 1
    cut = content[: last + keep] if keep > 0 else content[:-2]
    (run / "results.jsonl").write_bytes(cut)
    verdict = judge_folder(run)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.problems == ("results.jsonl breaks off inside line 24: its writer was killed",)
    assert verdict.coverage.measured == 23


def test_zeros_after_a_power_cut(run):
    """Catches the tail of NUL bytes that a file system leaves after a crash."""
    with (run / "results.jsonl").open("ab") as file:
        file.write(b"\0" * 300)
    assert judge_folder(run).outcome is Outcome.INCONCLUSIVE


def test_run_killed_before_its_first_result(run):
    """Catches a run without results that passes or is refused."""
    (run / "results.jsonl").unlink()
    assert judge_folder(run).outcome is Outcome.NOT_RUN


def test_broken_line_before_the_last_is_no_truncation(run):
    """Catches garbage in the middle that is taken for the end."""
    edit(run, 5, lambda line: line[:-30])
    refused(r"results\.jsonl:5: ", judge_folder, run)


@pytest.mark.parametrize("name", ["plan.json", "results.jsonl", "counters.jsonl"])
def test_symbolic_links_are_refused(run, name):
    """Catches a bundle that reads a file of this machine."""
    target = run.parent / "outside"
    if (run / name).exists():
        (run / name).rename(target)
    (run / name).symlink_to(target)
    refused(rf"{name}: cannot be read", judge_folder, run)


@pytest.mark.parametrize("place", ["raw", "raw/sub", "raw/sub/x.txt"])
def test_raw_behind_a_symbolic_link_is_refused(run, place):
    """Catches evidence that lies outside the bundle, whichever part of the path is the link."""
    outside = run.parent / "outside"
    (outside / "sub").mkdir(parents=True)
    (outside / "sub" / "x.txt").write_text("forged")
    link = run / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside / place.removeprefix("raw").lstrip("/"))
    edit(run, 2, set_field(raw="raw/sub/x.txt"))
    refused(r"results\.jsonl:2: .*symbolic link", judge_folder, run)


def test_raw_that_is_no_plain_file_is_no_evidence(run):
    """Catches a folder named as raw output that counts as evidence."""
    (run / "raw" / "x").mkdir(parents=True)
    edit(run, 2, set_field(raw="raw/x"))
    assert judge_folder(run).outcome is Outcome.INCONCLUSIVE


@pytest.mark.timeout(20)
def test_pipe_does_not_hang(run):
    """Catches a reader that waits for ever on a named pipe."""
    (run / "results.jsonl").unlink()
    os.mkfifo(run / "results.jsonl")
    refused("is not a plain file", judge_folder, run)


@cases(
    "content, words",
    (b"", "JSON"),
    (b'{"schema": 1', "JSON|delimiter"),
    (b'{"schema": 1, "schema": 1}', "duplicate key 'schema'"),
    (b"[" * 100_000, "nested too deeply|Invalid JSON|Expecting"),
    (b"\xff\xfe", "decode|JSON|utf"),
    (b"{}", "Field required"),
)
def test_bad_plan_is_refused(run, content, words):
    """Catches a plan that is half-understood."""
    (run / "plan.json").write_bytes(content)
    with pytest.raises(BadInput, match=words) as told:
        judge_folder(run)
    assert str(told.value).startswith(f"{run / 'plan.json'}: ")


def test_folder_that_is_none(tmp_path):
    """Catches a traceback for a wrong argument."""
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(BadInput):
            Run(path)


def test_plan_with_a_cell_planned_twice(run):
    """Catches double planning, which would count one measurement as two."""
    with edited(run / "plan.json") as plan:
        plan["items"].append(plan["items"][0])
    refused("cell planned twice", judge_folder, run)


TWICE = {
    "nodes": {"nodes": [["n1", "n2"], ["n1", "n3"], ["n1", "n2"]]},
    "rails": {"rails": ["rail0", "rail0"]},
    "directions": {"directions": ["forward", "forward"]},
    "another block": {"again": {"nodes": [["n2", "n3"], ["n1", "n2"]], "rails": ["rail1", "rail0"]}},
}
ONCE = {
    "other rails": {"again": {"rails": ["rail1"]}},
    "other nodes": {"again": {"nodes": [["n2", "n1"]]}},
    "other directions": {"again": {"directions": ["reverse"]}},
    "other parameters": {"again": {"params": {"size_bytes": 2}}},
}


@pytest.mark.parametrize("change", [*TWICE.values(), *ONCE.values()], ids=[*TWICE, *ONCE])
def test_what_makes_two_cells_the_same(run, change):
    """Catches a cell planned twice that is not seen, or two different cells taken for one."""
    with edited(run / "plan.json") as plan:
        item = {**plan["items"][0], "nodes": [["n1", "n2"]], "rails": ["rail0"], "directions": ["forward"]}
        item |= {"params": {"size_bytes": 1}, **{k: v for k, v in change.items() if k != "again"}}
        plan["items"] = [item, {**item, **change["again"]}] if "again" in change else [item]
    if change in ONCE.values():
        assert len(list(Run(run).plan.items)) == 2
        return
    refused(r"cell planned twice: .*/n1,n2/rail0/forward/size_bytes=1", Run, run)


def test_write_aside_leaves_old_or_new(tmp_path):
    """Catches a half-written file: a reader beside the writer sees whole contents only."""
    path = tmp_path / "verdict.json"
    old, new = b"a" * 100_000, b"b" * 100_000
    path.write_bytes(old)
    seen = set()
    done = threading.Event()

    def look():
        while not done.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=look)
    reader.start()
    for content in (new, old) * 20:
        write_aside(path, content)
    done.set()
    reader.join()
    assert seen <= {old, new}
    assert [p.name for p in tmp_path.iterdir()] == ["verdict.json"]


def test_the_longest_name_can_be_written(tmp_path):
    """Catches a file whose name is as long as file systems allow and that cannot be redacted any more."""
    path = tmp_path / ("x" * 255)
    write_aside(path, b"clean")
    assert path.read_bytes() == b"clean"


def test_a_plan_that_nothing_can_read_again_is_not_written(run, tmp_path, monkeypatch):
    """Catches a run of a large fabric that is measured for hours and cannot be judged."""
    plan = Run(run).plan
    monkeypatch.setattr(runs, "LARGEST_DOCUMENT", len(runs.plan_to_json(plan)))
    runs.write_plan(tmp_path / "fits", plan)
    assert read_record(tmp_path / "fits" / "plan.json", type(plan)) == plan
    monkeypatch.setattr(runs, "LARGEST_DOCUMENT", len(runs.plan_to_json(plan)) - 1)
    refused("plan fewer nodes", runs.write_plan, tmp_path / "large", plan)
    assert not (tmp_path / "large").exists()


def test_the_jobs_of_a_run_are_read_once(run, monkeypatch):
    """Catches: a large jobs.json parsed anew for each route and again for the links of a verdict."""
    assert Run(run).jobs is None
    (run / "jobs.json").write_bytes(to_json(Jobs(run=Run(run).plan.run, jobs=(), nics={})))
    opened = Run(run)
    assert opened.jobs is not None
    monkeypatch.setattr(runs, "read_record", None)
    assert opened.jobs.jobs == ()


def test_write_aside_that_fails_leaves_nothing_and_is_told(tmp_path, monkeypatch, capsys):
    """Catches a temporary file that a full disk leaves behind, and an error that names no file."""

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    path = tmp_path / "verdict.json"
    assert status_of(lambda: write_aside(path, b"x")) == 2
    assert capsys.readouterr().err == (
        f"{path}: No space left on device -- make room there, then start it again\n"
    )
    assert not any(tmp_path.iterdir())


def test_garbage_collector_is_switched_on_again():
    """Catches a library that leaves the process without its collector after an error."""
    import gc

    with pytest.raises(KeyError), no_cycle_search():
        raise KeyError
    assert gc.isenabled()


def test_read_record_checks_the_schema(tmp_path):
    """Catches an inventory of another release."""
    from shakedown.records.results import Snapshot

    path = tmp_path / "inventory.json"
    path.write_text('{"run": "r", "taken": "now"}')
    refused("schema: missing", read_record, path, Snapshot)


def test_counter_without_its_raw_output_is_no_evidence(tmp_path, decision_runs):
    """Catches a counter that is believed although what it was read from is gone."""
    folder = Path(shutil.copytree(decision_runs / "counters" / "run", tmp_path / "run"))
    edit(folder, 1, set_field(raw="raw/ethtool.txt"), name="counters.jsonl")
    assert judge_folder(folder).problems == ("counters.jsonl: its raw output raw/ethtool.txt is missing",)


@pytest.mark.parametrize("value", [2**64, -1, int("1" * 400)])
def test_a_number_that_no_counter_can_hold_is_refused(tmp_path, decision_runs, value):
    """Catches an overflow while judging or localising: a traceback instead of file and line."""
    folder = Path(shutil.copytree(decision_runs / "counters" / "run", tmp_path / "run"))
    edit(folder, 2, set_field(after=value), name="counters.jsonl")
    refused(r"counters\.jsonl:2: after: Input should be", judge_folder, folder)


CHECKOUT = Path(__file__).resolve().parents[3]
# Ends with 1 in `verdict` or in `report`, as Python does when it cannot even import what it needs.
BREAKS = """#!/bin/sh
[ "$1" = "$BREAKS" ] && { echo "ModuleNotFoundError" >&2; exit 1; }
case "$1" in
  verdict) echo "FAIL  a cell"; echo "{}" > "$2/verdict.json"; exit 1;;
  report) echo "FAIL  a cell"; touch "$2/report.html"; exit 1;;
esac
"""


@pytest.mark.slow
@pytest.mark.parametrize(("breaks", "task"), [("verdict", "Judge"), ("report", "Write the report"), ("", "")])
def test_a_breakdown_is_no_verdict(tmp_path, breaks, task):
    """Catches: exit status 1 of a program that broke down taken for FAIL, with an old report beside it."""
    run = tmp_path / "run"
    run.mkdir()
    for name in ("verdict.json", "report.html"):
        (run / name).write_text("PASS, of an earlier call")
    program = tmp_path / "shakedown"
    script(program, BREAKS)
    done = run_playbook(
        "-i",
        "localhost,",
        "-c",
        "local",
        "playbooks/parts/verdict.yml",
        "-e",
        f"run_folder={run}",
        "-e",
        f"verdict_command={program}",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
        BREAKS=breaks,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    end = "fatal: " if task else "No PASS, so"
    last = done.stdout[: done.stdout.index(end)].rpartition("TASK [")[2].partition("]")[0]
    assert last == (task or "The verdict"), done.stdout
    assert not any("PASS" in path.read_text() for path in run.iterdir())


def test_a_verdict_reads_each_record_of_its_run_once(recorded_run, monkeypatch):
    """Catches: a room that is handed the folder, and reads plan, jobs or a job's record again for itself."""
    run = recorded_run("lab_healthy")
    collect(run)
    read: Counter[str] = Counter()
    open_ = reading._open
    monkeypatch.setattr(reading, "_open", lambda path, fix: read.update([path.name]) or open_(path, fix))
    assert judged_from_raw(run)[0].outcome is Outcome.PASS
    assert (read["plan.json"], read["jobs.json"]) == (1, 1)
    assert read["job.json"] == len(list(run.glob("raw/*/job.json"))) > 1


def test_a_sealed_run_keeps_its_verdict_and_gets_no_other(run):
    """Catches: a report that puts a verdict of today into a run that was sealed without one."""
    verdict = judge_folder(run)
    runs.write_verdict(run, verdict)
    (run / "SHA256SUMS").write_text("")
    runs.write_verdict(run, verdict)
    (run / "verdict.json").unlink()
    refused("is sealed", runs.write_verdict, run, verdict)

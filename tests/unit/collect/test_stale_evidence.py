"""What an earlier run left, and what was read at another time: neither proves anything of this run."""

import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from shakedown.judge.judged import judge_folder
from tests.kit.cases import cases
from tests.kit.files import edited
from tests.kit.run import run_playbook

pytestmark = pytest.mark.slow  # whole runs, planned, collected and judged

CHECKOUT = Path(__file__).resolve().parents[3]
LAB = CHECKOUT / "inventories" / "lab"
JOB = "raw/fabric.ib_read_bw.a1"


@pytest.mark.parametrize("left", ["plan.json", "jobs.json", "raw/switches.fabric/leaf0.before.json"])
def test_a_used_folder_is_not_planned_into(tmp_path, shakedown, left):
    """Catches: a run id used again, whose old readings are judged as the new run's."""
    run = tmp_path / "again"
    (run / left).parent.mkdir(parents=True)
    (run / left).write_text("{}")
    status, printed, error = shakedown("plan", LAB, "--output", run)
    assert (status, printed) == (2, "")
    assert error.count("\n") == 1
    assert f"holds {left} of a run already -- give another run id, or remove that run: rm -r {run}" in error
    shutil.rmtree(run)
    assert shakedown("plan", LAB, "--output", run)[0] == 0


def test_the_playbook_refuses_a_used_run_id_and_says_the_way_out(tmp_path):
    """Catches: "Unknown error." for a run id that was used, or a run judged from an older one's raw files."""
    left = tmp_path / "used" / "raw" / "switches.fabric" / "leaf0.before.json"
    left.parent.mkdir(parents=True)
    left.write_text("{}")
    words = ("-i", LAB, "playbooks/acceptance.yml", "-e", f"run_root={tmp_path}", "-e", "run_id=used")
    done = run_playbook(*words)
    assert done.returncode == 2, done.stdout
    told = " ".join(done.stdout.split())
    assert (
        "holds raw files of an earlier run: give another run_id, or remove that run here with rm -r" in told
    )
    assert not (tmp_path / "used" / "plan.json").exists()


def moved(text: str, hours: float) -> str:
    """A time, so many hours later."""
    at = datetime.fromisoformat(text) + timedelta(hours=hours)
    return at.isoformat().replace("+00:00", "Z")


def shift(path: Path, hours: float, key: str = "taken") -> None:
    """Let a file be of another time."""
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, key: moved(content[key], hours)}))


def collected(shakedown, run: Path):
    """Collect and judge; return the verdict and its cells by id."""
    assert shakedown("collect", run)[0] == 0
    verdict = judge_folder(run)
    return verdict, {cell.cell: cell for cell in verdict.cells}


def undecided(verdict, cells, test: str, words: str) -> None:
    """Assert that the run is undecided, by cells of this test alone, each with these words."""
    assert verdict.outcome == "INCONCLUSIVE"
    assert cells
    assert all(f"/{test}/" in c.cell and words in c.reason for c in cells.values())


def test_readings_of_a_switch_from_another_hour_are_no_evidence(recorded_run, shakedown):
    """Catches: PASS from a leaf's readings of an hour ago, because it could not be reached today."""
    run = recorded_run("lab_healthy")
    for when in ("before", "after"):
        shift(run / f"raw/switches.fabric/leaf0.{when}.json", -1)
    verdict, cells = collected(shakedown, run)
    assert verdict.outcome == "INCONCLUSIVE"
    of_leaf = [c for c in cells.values() if c.cell.startswith("fabric/switches/")]
    assert of_leaf
    for cell in cells.values():
        assert cell in of_leaf
        assert (
            "leaf0: reading before the stage of 12:29:48, the fabric stage ran 13:29:57 to 13:31:26"
            in cell.reason
        )


@pytest.mark.parametrize("when", ["before", "after"])
def test_one_old_reading_of_a_switch_is_enough(recorded_run, shakedown, when):
    """Catches: a fresh reading after the stage subtracted from another stage's, or the other way round."""
    run = recorded_run("lab_healthy")
    shift(run / f"raw/switches.fabric/leaf0.{when}.json", -1)
    verdict, cells = collected(shakedown, run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert not [c for c in cells.values() if c.outcome == "FAIL"]


@cases(
    ("change", "words"),
    ({"run": "another"}, "inventory.json is of run another, not 20261120T132502Z"),
    ({"taken": "2025-01-01T00:00:00Z"}, "taken at 2025-01-01T00:00:00Z, before the run was planned"),
    (
        {"taken": "9999-12-31T23:59:59Z"},
        "taken at 9999-12-31T23:59:59Z, after the last job had ended at 2026",
    ),
    ({"taken": "today"}, "taken at 'today', which is no time"),
)
def test_a_snapshot_of_another_run_or_time_is_no_evidence(recorded_run, shakedown, change, words):
    """Catches: an odd part hidden by the snapshot of a run of last year, and PASS."""
    run = recorded_run("lab_healthy")
    with edited(run / "inventory.json") as snapshot:
        snapshot.update(change)
    verdict, _ = collected(shakedown, run)
    assert (verdict.outcome, words in verdict.reason) == ("INCONCLUSIVE", True), verdict.reason


@cases(
    "part, change, words",
    (("node", "n2"), {"name": "n1"}, "inventory.json: n2 calls itself n1, which is another host's name"),
    (("nic", "fab0"), {"name": "fab9"}, "inventory.json calls nic fab0 of n2 fab9"),
    (("nic", "fab1"), {"name": "fab0"}, "inventory.json has nic fab0 of n2 twice"),
)
def test_a_part_of_two_names_or_two_of_one_is_no_evidence(recorded_run, shakedown, part, change, words):
    """Catches: a node or NIC that the snapshot names otherwise than itself, and PASS."""
    run = recorded_run("lab_healthy")
    with edited(run / "inventory.json") as snapshot:
        for one in snapshot["components"]:
            if (one["host"], one["kind"], one["name"]) == ("n2", *part):
                one.update(change)
    verdict, _ = collected(shakedown, run)
    assert (verdict.outcome, words in verdict.problems[0]) == ("INCONCLUSIVE", True), verdict.problems


@cases(
    "own, words",
    ({}, None),
    ({"run": "another"}, "raw/paths.jsonl is of run another, not 20261120T132502Z"),
    ({"run": None}, "raw/paths.jsonl is of run unknown"),
    ({"taken": "2026-11-20T13:00:00Z"}, "before the run was planned at"),
    ({"taken": "2026-11-20T23:00:00Z"}, "after the last job had ended at"),
    ({"taken": None}, "which is no time"),
)
def test_paths_of_another_run_or_time_are_no_evidence(recorded_run, shakedown, own, words):
    """Catches: last year's way of each flow, by which a good spine is blamed or a bad one is not."""
    run = recorded_run("lab_healthy")
    path = {"schema": 1, "source": "n1", "sink": "n2", "rail": "rail0", "spine": "spine1"}
    path |= {"run": "20261120T132502Z", "taken": "2026-11-20T13:30:00Z"} | own
    (run / "raw/paths.jsonl").write_text(json.dumps({k: v for k, v in path.items() if v}) + "\n")
    assert shakedown("collect", run)[0] == 0
    assert (run / "paths.jsonl").exists() == (words is None)
    verdict = judge_folder(run)
    assert verdict.outcome == ("PASS" if words is None else "INCONCLUSIVE")
    assert words is None or words in verdict.reason


@pytest.mark.parametrize("name", ["reframe.fabric.txt", ".nfs000000000a7c01", "core.4242"])
def test_what_servers_and_kernels_leave_spoils_no_run(recorded_run, shakedown, name):
    """Catches: a healthy run undecided for a file that nobody put among the raw ones and nothing reads."""
    run = recorded_run("lab_healthy")
    (run / "raw" / name).write_text("{}")
    assert collected(shakedown, run)[0].outcome == "PASS"


def test_a_switch_that_was_not_read_after_a_stage_is_not_run(recorded_run, shakedown):
    """Catches: a leaf that went away in mid-stage, judged from what another stage read."""
    run = recorded_run("lab_healthy")
    (run / "raw/switches.fabric/leaf0.after.json").unlink()
    verdict, cells = collected(shakedown, run)
    assert verdict.outcome == "NOT-RUN"
    assert all(c.cell.startswith("fabric/switches/") for c in cells.values())


@pytest.mark.parametrize(("hours", "outcome"), [(-1, "INCONCLUSIVE"), (1, "INCONCLUSIVE"), (0.02, "PASS")])
def test_counters_of_a_node_from_another_hour_are_no_evidence(recorded_run, shakedown, hours, outcome):
    """Catches: counters of another job, or of a clock an hour off, that certify this job's zero loss."""
    run = recorded_run("lab_healthy")
    shift(run / JOB / "counters.n2.before.json", hours)
    if outcome == "PASS":  # a clock that is a little off is so both times
        shift(run / JOB / "counters.n2.after.json", hours)
    verdict, cells = collected(shakedown, run)
    assert verdict.outcome == outcome
    for cell in cells.values():
        assert cell.cell.startswith("fabric/ib_read_bw/counter.")
        assert "/n2/" in cell.cell
        assert "counters.n2.before.json: reading of 1" in cell.reason
        assert "the job ran 13:30:26 to 13:30:40: it is no evidence of it" in cell.reason


@pytest.mark.parametrize(("ahead_s", "good"), [(3600, True), (-3600, False), (0, False)])
def test_what_a_clock_is_known_to_be_off_is_taken_off(recorded_run, shakedown, ahead_s, good):
    """Catches: a second opinion of how far clocks are off, which throws a node's own readings away."""
    run = recorded_run("lab_healthy")
    for when in ("before", "after"):
        shift(run / JOB / f"counters.n2.{when}.json", 1)
    snapshot = json.loads((run / "inventory.json").read_text())
    clocks = [
        {"host": "head", "low_s": -0.1, "high_s": 0.1},
        {"host": "n2", "low_s": ahead_s - 0.1, "high_s": ahead_s + 0.1},
    ]
    (run / "inventory.json").write_text(json.dumps(snapshot | {"submit": "head", "clocks": clocks}))
    _, cells = collected(shakedown, run)
    assert good is not any(c.startswith("fabric/ib_read_bw/counter.") and "/n2/" in c for c in cells)


def test_an_output_of_another_hour_is_no_evidence(recorded_run, shakedown):
    """Catches: an output of yesterday's run copied into today's job."""
    run = recorded_run("lab_healthy")
    path = run / JOB / "outputs.n1.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["started"] = moved(lines[0]["started"], -24)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    verdict, cells = collected(shakedown, run)
    assert verdict.outcome == "INCONCLUSIVE"
    (cell,) = cells.values()
    assert f"{lines[0]['file']}, an output of 2026-11-19 13:30:" in cell.reason


def test_a_damaged_reading_of_a_switch_costs_its_own_cells(recorded_run, shakedown):
    """Catches: half a file of one leaf that stops the whole run, and leaves an older PASS behind."""
    run = recorded_run("lab_healthy")
    path = run / "raw/switches.fabric/leaf0.after.json"
    path.write_text(path.read_text()[:300])
    verdict, cells = collected(shakedown, run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert all(
        c.cell.startswith("fabric/switches/") and "leaf0.after.json" in c.reason for c in cells.values()
    )


def test_an_all_reduce_of_less_than_was_ordered_decides_nothing(recorded_run, shakedown):
    """Catches: one iteration, or one rank, in place of the ordered ones, fast because it did nothing."""
    for old, new, words in (
        ('"n2"], "sizes"', '"n2"], "iterations": 1, "sizes"', "it ran 1 iterations, 5 were planned"),
        (
            '"hosts": ["n1", "n2"]',
            '"hosts": ["n1", "n1"]',
            "2 ranks told 1 host name, planned was one rank on",
        ),
    ):
        run = recorded_run("lab_healthy")
        raw = run / "raw/collective.mpi_allreduce.a1/mpi_allreduce.txt"
        assert old in raw.read_text()
        raw.write_text(raw.read_text().replace(old, new))
        verdict, cells = collected(shakedown, run)
        undecided(verdict, cells, "mpi_allreduce", words)


def test_mpi_that_never_touched_the_fabric_decides_nothing(recorded_run, shakedown):
    """Catches: MPI over the management network, or a table made up, certified as MPI over the fabric."""
    run = recorded_run("lab_healthy")
    job = run / "raw/collective.mpi_pingpong.n1-n2.a1"
    for node in ("n1", "n2"):
        before = json.loads((job / f"counters.{node}.before.json").read_text())
        after = job / f"counters.{node}.after.json"
        after.write_text(json.dumps({**json.loads(after.read_text()), "devices": before["devices"]}))
    verdict, cells = collected(shakedown, run)
    assert verdict.outcome == "INCONCLUSIVE"
    words = "n1: by the outputs of this job it sent 1.15 MB, the NIC counted 0 bytes and received 1.15 MB"
    assert all("/mpi_pingpong/" in c.cell and words in c.reason for c in cells.values())


def test_fewer_iterations_of_nccl_tests_decide_nothing(recorded_run, shakedown):
    """Catches: five iterations of twenty ordered, whose mean says little, judged as the ordered sweep."""
    run = recorded_run("h200x4_nccl_healthy")
    (raw,) = run.glob("raw/collective.*/nccl_all_reduce.r1.txt")
    raw.write_text(raw.read_text().replace(" iters: 20 agg", " iters: 5 agg"))
    _, cells = collected(shakedown, run)
    spoiled = [c for c in cells.values() if "it ran 5 iterations after 5 of warm-up, 20 after 5" in c.reason]
    assert spoiled
    assert all("/nccl_all_reduce/" in c.cell and c.outcome == "INCONCLUSIVE" for c in spoiled)


def test_an_all_reduce_whose_rate_is_not_that_of_its_time_decides_nothing(recorded_run, shakedown):
    """Catches: a time or a bus bandwidth edited alone, each of which is judged."""
    for key, words in (("busbw_gb_per_s", "busbw contradicts"), ("time_us", "algbw contradicts")):
        run = recorded_run("lab_healthy")
        raw = run / "raw/collective.mpi_allreduce.a1/mpi_allreduce.txt"
        lines = [json.loads(line) for line in raw.read_text().splitlines()]
        lines[-1][key] *= 0.9 if key == "time_us" else 1.1
        raw.write_text("".join(json.dumps(line) + "\n" for line in lines))
        verdict, cells = collected(shakedown, run)
        undecided(verdict, cells, "mpi_allreduce", words)


def test_outputs_of_other_nodes_than_planned_decide_nothing(recorded_run, shakedown):
    """Catches: a job's record that contradicts its order, read and not held against it."""
    run = recorded_run("lab_healthy")
    path = run / JOB / "job.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"nodes": ["n3", "n4"]}))
    verdict, cells = collected(shakedown, run)
    words = "the job ran on n3 and n4, planned were n1 and n2"
    undecided(verdict, cells, "ib_read_bw", words)


@pytest.mark.parametrize(("code", "words"), [(1, "ended with status 1"), (None, "did not end on its own")])
def test_an_output_whose_program_ended_badly_decides_nothing(recorded_run, shakedown, code, words):
    """Catches: a program's bad end that its record holds and whose problem somebody lost."""
    run = recorded_run("lab_healthy")
    for path in (run / JOB).glob("outputs.*.jsonl"):
        lines = [json.loads(line) | {"exit_code": code} for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    verdict, cells = collected(shakedown, run)
    undecided(verdict, cells, "ib_read_bw", words)


def test_a_switch_that_was_read_with_other_cables_than_planned_decides_nothing(recorded_run, shakedown):
    """Catches: what one node's port dropped told of another node, after cables in the inventory changed."""
    run = recorded_run("lab_healthy")
    other = {"n1": "n2", "n2": "n1"}
    for when in ("before", "after"):
        with edited(run / f"raw/switches.fabric/leaf0.{when}.json") as reading:
            for cable in reading["cabling"]:
                cable["host"] = other[cable["host"]]
    verdict, cells = collected(shakedown, run)
    words = "the reading has n2/fab0 at leaf0 swp1, the plan has n1/fab0"
    assert verdict.outcome == "INCONCLUSIVE"
    assert cells
    assert all(c.cell.startswith("fabric/switches/") and words in c.reason for c in cells.values())


def test_a_port_that_counted_less_than_was_moved_was_set_back(recorded_run, shakedown):
    """Catches: a switch that was restarted in mid-stage and has outgrown its old counts."""
    run = recorded_run("lab_healthy")
    whole = {}
    for when in ("before", "after"):
        with edited(run / f"raw/switches.fabric/leaf0.{when}.json") as reading:
            links = json.loads(reading["outputs"]["links"]["stdout"])
            port = next(link["stats64"] for link in links if link["ifname"] == "swp1")
            for way in ("rx", "tx"):
                for what in ("bytes", "packets"):
                    whole[when, way, what] = port[way][what]
                    if when == "after":  # more than before, and less than half of what came since
                        began = whole["before", way, what]
                        port[way][what] = began + (port[way][what] - began) * 2 // 5
            reading["outputs"]["links"]["stdout"] = json.dumps(links)
    verdict, cells = collected(shakedown, run)
    assert verdict.outcome == "INCONCLUSIVE"
    words = "counts from zero again: the switch was restarted, or the port's counters were cleared"
    assert cells
    assert all(c.rule == "counter-reset" and words in c.reason for c in cells.values())
    assert {cell.rpartition("/")[2] for cell in cells} == {"port=swp1"}


@pytest.mark.parametrize("value", [(1 << 64) - 1, (1 << 32) - 1])
def test_what_a_switch_did_not_answer_is_no_loss(recorded_run, shakedown, value):
    """Catches: 1.8e19 packets dropped at a port whose counter is all ones."""
    run = recorded_run("lab_healthy")
    with edited(run / "raw/switches.fabric/leaf0.after.json") as reading:
        links = json.loads(reading["outputs"]["links"]["stdout"])
        next(link["stats64"] for link in links if link["ifname"] == "swp1")["tx"]["dropped"] = value
        reading["outputs"]["links"]["stdout"] = json.dumps(links)
    verdict, cells = collected(shakedown, run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert cells and all("port=swp1" in cell and "not read" in c.reason for cell, c in cells.items()), cells


def edit_json(path: Path, **changes: object) -> None:
    """Change keys of a file; None takes one away."""
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def one_id_for_two_jobs(run: Path) -> None:
    """The job of another test says that it is this one's."""
    edit_json(run / "raw/fabric.ib_write_bw.a1/job.json", job="3")


def no_exit_code(run: Path) -> None:
    """COMPLETED, and nobody knows how."""
    edit_json(run / JOB / "job.json", exit_code=None)


def no_times_at_all(run: Path) -> None:
    """As if Slurm had told of no job when it ran."""
    for path in run.glob("raw/*/job.json"):
        edit_json(path, started=None, duration_s=None)


def neighbours_counters(run: Path) -> None:
    """Another job's counters, without their time."""
    for path in (run / "raw/fabric.ib_write_bw.a1").glob("counters.n2.*.json"):
        edit_json(run / JOB / path.name, **(json.loads(path.read_text()) | {"taken": None}))


@cases(
    "edit, test, words",
    (
        one_id_for_two_jobs,
        "fabric/ib_",
        "fabric.ib_read_bw.a1 and fabric.ib_write_bw.a1 say that they are Slurm's job 3: at most one is",
    ),
    (no_exit_code, "/ib_read_bw/", "Slurm says COMPLETED and no exit code"),
    (no_times_at_all, "/", "when the job ran is not known"),
    (neighbours_counters, "/ib_read_bw/counter.", "it does not say when it was read, so that it may be of"),
)
def test_what_a_record_no_longer_says_decides_nothing(recorded_run, shakedown, edit, test, words):
    """Catches: PASS of what nothing ties to its job: a check that is off where its key is missing."""
    run = recorded_run("lab_healthy")
    edit(run)
    verdict, cells = collected(shakedown, run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert cells
    assert all(test in c.cell and words in c.reason for c in cells.values())

"""From raw outputs to results: attribution, refusal, what a bad job does. On a real job's files."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from shakedown.benchmarks.base.contract import Output, Value
from shakedown.benchmarks.perftest.mesh.schedule import Slot
from shakedown.benchmarks.perftest.mesh.spec import Operation
from shakedown.benchmarks.perftest.mesh.store import NodeFiles
from shakedown.benchmarks.perftest.metrics import perftest
from shakedown.benchmarks.perftest.settings import MeshSettings
from shakedown.collect.run import collect
from shakedown.evidence.job_folder import journal
from shakedown.judge.judged import judge_folder
from shakedown.onnode.counters import main as count
from shakedown.onnode.counters import read_boot
from shakedown.records.base import to_json
from shakedown.records.reading import BadInput
from shakedown.records.results import OutputRecord
from shakedown.report import seal as bundle
from shakedown.run.folder import write_verdict
from shakedown.run.nic_counters import JobFolder, read_counters
from tests.kit.cases import cases
from tests.kit.files import edited
from tests.kit.job import leave_the_rest, write_job
from tests.kit.key import NEEDS_SSH_KEYGEN, make_key, make_signers
from tests.kit.refusal import refused
from tests.kit.run import gather

GOLDEN = Path(__file__).parent / "lab_job"
JOB, PAIR = "raw/fabric.ib_write_bw.a1", ["n1", "n2"]
FORWARD = "ib_write_bw.n1,n2.rail0.forward.65536.one.txt"
CELL = "fabric/ib_write_bw/bandwidth/n1,n2/rail0/forward/rails_at_once=one,size_bytes=65536"


def judged(folder: Path):
    """Collect and judge; return the verdict and its cells by id."""
    collect(folder)
    verdict = judge_folder(folder)
    return verdict, {cell.cell: cell for cell in verdict.cells}


def results(folder: Path) -> dict[str, dict]:
    """Read results.jsonl by raw file."""
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    return {line["raw"]: line for line in lines}


def test_a_good_job_passes(run):
    """Catches: a good measurement lost or misread on the way to the verdict."""
    verdict, cells = judged(run)
    assert verdict.outcome == "PASS", list(cells.values())[:3]
    assert results(run)[f"raw/fabric.ib_write_bw.a1/{FORWARD}"]["value"] == 0.15


def test_collecting_twice_and_elsewhere_gives_the_same_bytes(run, tmp_path):
    """Catches: a result that depends on when or where the raw files are read."""
    (run / "raw" / "fabric.ib_write_bw.a1" / FORWARD).write_text("cut off")  # a refusal names a file
    collect(run)
    first = (run / "results.jsonl").read_bytes(), (run / "counters.jsonl").read_bytes()
    moved = tmp_path / "elsewhere" / "r1"
    shutil.copytree(run, moved)
    collect(moved)
    assert ((moved / "results.jsonl").read_bytes(), (moved / "counters.jsonl").read_bytes()) == first


@NEEDS_SSH_KEYGEN
@pytest.mark.parametrize("name", ["results.jsonl", "counters.jsonl"])
def test_a_result_that_the_raw_files_do_not_give_is_found(run, tmp_path, name):
    """Catches: a value changed after the job, judged anew and signed by someone who is trusted."""
    signers = make_signers(tmp_path / "signers", {"me": make_key(tmp_path, "key")})
    collect(run)
    write_verdict(run, judge_folder(run))
    bundle.seal(run, tmp_path / "key")
    assert bundle.verify(run, signers).authentic
    content = (run / name).read_text()
    forged = content.replace("0.15", "0.16") if name == "results.jsonl" else content.replace("5000", "5001")
    assert forged != content
    (run / name).write_text(forged)
    (run / "verdict.json").write_bytes(to_json(judge_folder(run)))
    refused("is not what the raw files give", bundle.seal, run, tmp_path / "key")
    # Whoever has the key need not ask this program to sign.
    (run / "SHA256SUMS").unlink()
    files = sorted(str(p.relative_to(run)) for p in run.rglob("*") if p.is_file() and "SHA" not in p.name)
    sums = subprocess.run(["sha256sum", *files], cwd=run, check=True, capture_output=True).stdout
    (run / "SHA256SUMS").write_bytes(sums)
    sign = ["ssh-keygen", "-q", "-Y", "sign", "-f", tmp_path / "key", "-n", "shakedown"]
    done = subprocess.run(sign, input=sums, check=True, capture_output=True)
    (run / "SHA256SUMS.sig").write_bytes(done.stdout)
    found = bundle.verify(run, signers)
    assert (found.authentic, found.differs) == (False, name), found.reason


@pytest.mark.parametrize("command", ["verdict", "report"])
@pytest.mark.parametrize("name", ["results.jsonl", "counters.jsonl"])
def test_edited_results_get_no_verdict(run, shakedown, name, command):
    """Catches: a value edited in results.jsonl that gets PASS and status 0, or an older PASS left behind."""
    assert shakedown("collect", run)[0] == 0
    status, printed, error = shakedown("verdict", run, "--write")
    assert (status, error) == (0, "")
    assert "as it stands" not in printed
    content = (run / name).read_text()
    (run / name).write_text(content.replace("0.15", "0.16").replace('"after":5000', '"after":5001'))
    assert (run / name).read_text() != content
    status, printed, error = shakedown(command, run)
    assert (status, printed) == (2, "")
    assert f"{name}: differs from the raw files in " in error
    assert ", first: line " in error
    assert f"run shakedown collect {run}" in error
    assert command == "report" or not (run / "verdict.json").exists()
    assert shakedown("collect", run)[0] == 0
    assert shakedown(command, run)[0] == 0


def test_results_without_raw_files_are_said_to_be_judged_as_they_stand(run, shakedown):
    """Catches: results that nobody can recompute, judged as if they had been."""
    assert shakedown("collect", run)[0] == 0
    (run / "jobs.json").unlink()
    _, printed, _ = shakedown("verdict", run)
    assert printed.splitlines()[2].startswith("results.jsonl was judged as it stands")
    # The record holds what was judged, to the byte the same wherever it came from.
    _, printed, error = shakedown("verdict", run, "--json")
    assert "as it stands" not in printed + error


def test_a_run_that_was_not_collected_says_how_to(run, shakedown):
    """Catches: `no result was recorded` alone, where outputs lie there and `collect` was not called."""
    status, printed, _ = shakedown("verdict", run)
    assert status == 3
    assert printed.splitlines()[2] == (
        f"the raw files of 1 job were not collected: run shakedown collect {run}"
    )
    shutil.rmtree(run / "raw")
    assert "collected" not in shakedown("verdict", run)[1]


def test_truncated_output_gives_no_value(run):
    """Catches: half an output read as a whole one."""
    raw = run / "raw" / "fabric.ib_write_bw.a1" / FORWARD
    raw.write_text("\n".join(raw.read_text().splitlines()[:-2]) + "\n")
    verdict, cells = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert FORWARD in cells[CELL].reason


@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY"])
def test_a_job_that_did_not_complete_decides_nothing(run, state):
    """Catches: numbers printed before the job was cancelled, taken for a pass, or its nodes for bad ones."""
    job = run / "raw" / "fabric.ib_write_bw.a1"
    write_job(job, nodes=PAIR, state=state, problem={"kind": "killed", "message": f"Slurm says {state}"})
    verdict, cells = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert state in cells[CELL].reason


def test_of_a_job_that_was_cancelled_slurms_word_comes_first(run):
    """Catches: scancel reported in a dying tool's words, such as a want of support for CPU binding."""
    job = run / "raw" / "fabric.ib_write_bw.a1"
    for journal_file in job.glob("outputs*.jsonl"):
        lines = [json.loads(line) for line in journal_file.read_text().splitlines()]
        words = {"kind": "environment", "message": "cluster configuration lacks support for cpu binding"}
        journal_file.write_text("".join(json.dumps(line | {"problem": words}) + "\n" for line in lines))
    write_job(
        job, nodes=PAIR, state="CANCELLED", problem={"kind": "killed", "message": "Slurm says CANCELLED"}
    )
    assert "Slurm says CANCELLED; cluster configuration lacks" in judged(run)[1][CELL].reason


@pytest.mark.parametrize("told", [{"kind": "killed", "message": "Slurm says TIMEOUT"}, None])
def test_a_cell_that_its_job_did_not_come_to_shows_the_job_that_timed_out(run, told):
    """Catches: `no result was recorded` with nothing to open, where a job had run out of its time."""
    job = run / "raw" / "fabric.ib_write_bw.a1"
    (job / FORWARD).unlink()
    for journal_file in job.glob("outputs*.jsonl"):
        lines = journal_file.read_text().splitlines(keepends=True)
        journal_file.write_text("".join(line for line in lines if FORWARD not in line))
    write_job(job, nodes=PAIR, state="TIMEOUT", problem=told)
    cell = judged(run)[1][CELL]
    assert "TIMEOUT" in cell.reason
    assert cell.raw == f"{JOB}/job.json"


def test_a_job_on_an_unusable_node_gives_its_reason(run):
    """Catches: a node that Slurm cannot use reported as `no result`, without its name."""
    job = run / "raw" / "fabric.ib_write_bw.a1"
    shutil.rmtree(job)
    problem = {"kind": "not-run", "message": "Slurm cannot use n2: it is down and does not respond"}
    write_job(job, state="NOT-SUBMITTED", job=None, nodes=[], problem=problem)
    verdict, cells = judged(run)
    assert verdict.outcome == "NOT-RUN"
    assert "Slurm cannot use n2: it is down" in cells[CELL].reason


def test_a_half_written_journal_line_is_a_missing_cell(run):
    """Catches: a node that died while it wrote, failing or passing the whole run."""
    journal = run / "raw" / "fabric.ib_write_bw.a1" / "outputs.n1.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text(lines[0][:40])
    verdict, cells = judged(run)
    assert verdict.outcome == "NOT-RUN"
    assert cells[CELL].rule == "not-measured"


def test_a_lost_packet_fails_its_nic(run):
    """Catches: loss that retransmission hides from the bandwidth."""
    with edited(run / "raw" / "fabric.ib_write_bw.a1" / "counters.n2.after.json") as counters:
        counters["devices"][1]["counters"]["rdma.out_of_seq_request"] += 1
    verdict, cells = judged(run)
    assert verdict.outcome == "FAIL"
    assert [c for c in cells if cells[c].outcome == "FAIL"] == [
        "fabric/ib_write_bw/counter.rdma.out_of_seq_request/n2/rail1/-/port=rxe1"
    ]


def test_counters_that_were_not_read_pass_nothing(run):
    """Catches: zero loss certified because nobody looked."""
    (run / "raw" / "fabric.ib_write_bw.a1" / "counters.n1.after.json").unlink()
    verdict, cells = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert all("/counter." in cell for cell in cells)
    assert all("counters.n1.after.json is missing" in cell.reason for cell in cells.values())


def test_a_nic_without_traffic_fails(run):
    """Catches: TCP fallback, or another NIC doing the work, certified as RoCE."""
    path = run / "raw" / "fabric.ib_write_bw.a1" / "counters.n1.after.json"
    before = json.loads((run / "raw" / "fabric.ib_write_bw.a1" / "counters.n1.before.json").read_text())
    path.write_text(json.dumps(before | {"when": "after"}))
    verdict, cells = judged(run)
    assert verdict.outcome == "FAIL"
    assert any("rcvd_pkts/n1/rail0" in c for c in cells)


def recount(run: Path, node: str, when: str, boot_id: str | None, **changes: int) -> None:
    """Let a reading of a node come from this boot, with other counters than it had."""
    path = run / JOB / f"counters.{node}.{when}.json"
    counters = json.loads(path.read_text()) | {"boot_id": boot_id}
    for device in counters["devices"]:
        device["counters"] |= {name.replace("__", "."): value for name, value in changes.items()}
    path.write_text(json.dumps(counters))


@pytest.mark.parametrize(
    ("boots", "tx_packets"), [(("a", "b"), 90), ((None, None), 9), (("a", "a"), 9), ((None, "b"), 9)]
)
def test_a_node_or_driver_that_restarted_is_not_blamed_nor_are_its_partners(run, boots, tx_packets):
    """Catches: what a node counts while it boots taken for loss, and its few packets for a missing NIC."""
    recount(run, "n2", "before", boots[0])
    changes = {"rdma__rcvd_pkts": 2, "netdev__rx_dropped": 1, "netdev__tx_packets": tx_packets}
    recount(run, "n2", "after", boots[1], **changes)
    recount(run, "n1", "after", None, rdma__rcvd_seq_err=3, rdma__out_of_seq_request=3)
    verdict, cells = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert not [cell for cell in cells.values() if cell.outcome == "FAIL"]
    dropped = cells["fabric/ib_write_bw/counter.netdev.rx_dropped/n2/rail0/-/port=rxe0"]
    assert dropped.rule == "counter-reset"
    assert "the node or the NIC's driver was restarted" in dropped.reason
    # The partner's NIC counted on: what it lost with n2 is not told, the rest is judged and well.
    partner = "fabric/ib_write_bw/counter.{}/n1/rail0/-/port=rxe0"
    assert partner.format("netdev.rx_dropped") not in cells
    assert cells[partner.format("rdma.out_of_seq_request")].outcome == "NOT-RUN"


@pytest.mark.parametrize("later", [None, "a"])
def test_a_boot_that_one_reading_does_not_name_is_no_restart(run, later):
    """Catches: readings of a release that did not note the boot, or of a system that hides it, unusable."""
    recount(run, "n2", "before", "a" if later is None else None)
    recount(run, "n2", "after", later)
    assert judged(run)[0].outcome == "PASS"


def test_one_counter_that_wraps_excuses_no_loss(run):
    """Catches: a NIC never judged again because a narrow hardware counter of it went over its end."""
    recount(run, "n2", "before", "a", rdma__sent_pkts=2**32 - 1)
    recount(run, "n2", "after", "a", netdev__rx_dropped=1)
    verdict, cells = judged(run)
    assert verdict.outcome == "FAIL"
    assert cells["fabric/ib_write_bw/counter.netdev.rx_dropped/n2/rail0/-/port=rxe0"].outcome == "FAIL"


def test_soft_roce_s_traffic_that_became_less_was_set_back(run):
    """Catches: a driver that was loaded anew within a job, whose losses before it nobody has counted."""
    recount(run, "n2", "before", "a", rdma__sent_pkts=9_000_000)
    recount(run, "n2", "after", "a", rdma__sent_pkts=12)
    _, cells = judged(run)
    found = cells["fabric/ib_write_bw/counter.netdev.rx_dropped/n2/rail0/-/port=rxe0"]
    assert found.outcome == "INCONCLUSIVE" and "from zero again" in found.reason


def test_the_reading_of_a_node_says_in_which_boot_it_was_taken(tmp_path, monkeypatch):
    """Catches: a restart that nobody can see, because the counters have grown past what they were before."""
    boot = read_boot()
    assert boot
    assert boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert read_boot(tmp_path) is None
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    assert count(["before", str(tmp_path)]) == 0
    assert read_counters(tmp_path / "counters.n1.before.json").boot_id == boot


def test_a_job_of_another_run_is_refused(run):
    """Catches: last month's good job copied into today's run, where it proves what nobody measured."""
    write_job(run / JOB, nodes=PAIR, run="r0")
    refused("belongs to run 'r0', not 'r1'", collect, run)
    assert not (run / "results.jsonl").exists()


def test_secrets_are_gone_before_anything_is_kept(run):
    """Catches: a token printed by a job that ends in the bundle."""
    raw = run / "raw" / "fabric.ib_write_bw.a1" / "rfm_job.err"
    raw.write_text("SLURM_JWT_TOKEN=abcdefghijklmnopqrstuvwxyz0123456789\n")
    collect(run)
    assert "abcdefghijklmnop" not in raw.read_text()


def test_a_silent_nic_whose_partner_is_dead_is_not_blamed(run):
    """Catches: good hardware accused of no traffic, when nothing could be measured over it."""
    job = run / "raw" / "fabric.ib_write_bw.a1"
    for path in job.glob("*rail1*.txt"):
        path.unlink()
    for node in ("n1", "n2"):
        with edited(job / f"counters.{node}.after.json") as counters:
            counters["devices"][1]["counters"]["rdma.rcvd_pkts"] -= 5000
    verdict, cells = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert not [c for c in cells.values() if c.outcome == "FAIL"]


def test_a_note_about_a_lost_partner_says_nothing_beside_the_measurement_itself(run):
    """Catches: a good cell made doubtful by its partner's note that it was not measured."""
    job = run / "raw" / "fabric.ib_write_bw.a1"
    ours = [json.loads(line) for line in (job / "outputs.n1.jsonl").read_text().splitlines()]
    measured = next(r for r in ours if r["file"] == FORWARD)
    note = {**measured, "file": "note.txt", "exit_code": None, "duration_s": 0.0}
    note |= {"problem": {"kind": "environment", "message": "n1 lost: no answer"}}
    (job / "note.txt").write_text("n1 lost: no answer\n")
    with (job / "outputs.n2.jsonl").open("a") as journal:
        journal.write(json.dumps(note) + "\n")
    verdict, cells = judged(run)
    assert verdict.outcome == "PASS", list(cells.values())[:3]


def test_a_lost_partner_is_told_with_what_it_said_itself(run):
    """Catches: "n2 lost: Connection refused" told where n2's own words are that it cannot write."""
    job = run / "raw" / "fabric.ib_write_bw.a1"
    record = json.loads((job / "job.json").read_text())
    failed = {"kind": "environment", "message": "the job ended with exit code 1:0"}
    (job / "job.json").write_text(
        json.dumps(record | {"state": "FAILED", "exit_code": "1:0", "problem": failed})
    )
    (job / "rfm_job.err").write_text(
        "n2: cannot write its outputs: Read-only file system\n"
        "srun: error: n2: task 1: Exited with exit code 1\n"
    )
    lines = [json.loads(line) for line in (job / "outputs.n1.jsonl").read_text().splitlines()]
    for line in lines:
        line |= {"exit_code": None, "problem": {"kind": "environment", "message": "n2 lost: no answer"}}
    (job / "outputs.n1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (job / "outputs.n2.jsonl").unlink()
    _, cells = judged(run)
    own = "n2: cannot write its outputs: Read-only file system"
    of_n1 = [cell.reason for cell in cells.values() if "n2 lost" in cell.reason]
    assert of_n1
    assert all(f"{own} (n2 lost: no answer)" in reason for reason in of_n1)


def test_a_node_killed_in_a_mesh_costs_its_own_cells_only(run):
    """Catches: a dead node passed over, named nowhere, or everybody else made doubtful with it."""
    job = run / "raw" / "fabric.ib_write_bw.a1"
    lines = [json.loads(line) for line in (job / "outputs.n1.jsonl").read_text().splitlines()]
    lost = [r for r in lines if r["rail"] == "rail1"]
    assert lost
    for record in lost:
        record |= {"exit_code": None, "problem": {"kind": "environment", "message": "n2 lost: no answer"}}
    for node in ("n1", "n2"):
        path = job / f"outputs.{node}.jsonl"
        kept = [r for r in map(json.loads, path.read_text().splitlines()) if r["rail"] != "rail1"]
        kept += lost if node == "n1" else []
        path.write_text("".join(json.dumps(r) + "\n" for r in kept))
    (job / "journal.n1.jsonl").write_text('{"event":"dropped","dropped":"n2"}\n{"event":"end"}\n')
    (job / "counters.n2.after.json").unlink()
    with edited(job / "counters.n1.after.json") as after:
        for device in after["devices"]:
            device["counters"]["rdma.retry_exceeded_err"] += 3  # its partner did not answer any more
    verdict, cells = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert "n2 lost" in verdict.reason
    assert cells[CELL.replace("rail0", "rail1")].rule == "environment"
    assert CELL not in cells  # measured before
    assert not [c for c in cells.values() if c.outcome == "FAIL"]


@pytest.mark.timeout(20)
@cases(
    "name",
    f"{JOB}/job.json",
    f"{JOB}/journal.n1.jsonl",
    f"{JOB}/outputs.n2.jsonl",
    f"{JOB}/counters.n1.after.json",
    "raw/switches.fabric/leaf0.before.json",
    "jobs.json",
)
def test_a_pipe_among_the_raw_files_does_not_hang(run, name):
    """Catches: a collect, or the check of a sealed bundle, that waits for ever for who writes into a pipe."""
    path = run / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    if "switches" in name:
        (path.parent / "leaf0.after.json").write_text("{}")
    if name == "jobs.json":
        with pytest.raises(BadInput, match="is not a plain file") as raised:
            gather(run)
        assert str(raised.value).startswith(f"{path}: ")
    else:
        found, _ = gather(run)
        told = {m.problem.message.partition(" -- ")[0] for m in found if m.problem}
        # A mesh's own journal measures nothing; without it nobody knows which nodes died.
        assert told == {f"{Path(name).name}: is not a plain file"} or "journal" in name or "switches" in name
    flaws: list[BadInput] = []
    if name == "jobs.json":
        refused("special file", collect, run, flaws)
    else:
        collect(run, flaws)
        assert [str(flaw).partition(" -- ")[0] for flaw in flaws] == [f"{path}: is a link or special file"]


def test_a_pipe_for_an_output_costs_its_own_cell_only(run):
    """Catches: one odd file among a tool's outputs that hangs or refuses the whole run."""
    (run / JOB / FORWARD).unlink()
    os.mkfifo(run / JOB / FORWARD)
    found, _ = gather(run)
    bad = [m for m in found if m.problem]
    assert {m.cell for m in bad} == {CELL}
    assert "is not a plain file" in bad[0].problem.message


@cases("value", "1" * 400, "1" * 5000, str(2**64), "-1", "1e400", "1.5", '"7"', "true", "null", "[" * 5000)
def test_a_number_that_no_counter_can_hold_costs_the_cells_of_its_node(run, value):
    """Catches: 400 digits that overflow the verdict's arithmetic, and one damaged file that stops the run."""
    path = run / JOB / "counters.n2.after.json"
    path.write_text(
        f'{{"schema": 1, "devices": [{{"device": "rxe0", "counters": {{"rdma.rcvd_pkts": {value}}}}}]}}'
    )
    verdict, cells = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    counted = [c for c in cells.values() if "/counter." in c.cell]
    assert counted and all("/n2/" in c.cell and c.outcome == "INCONCLUSIVE" for c in counted)
    for cell in counted:
        assert "counters.n2.after.json: not a counter file" in cell.reason
        assert len(cell.reason.splitlines()) == 1


@pytest.mark.parametrize("name", ["job.json", "outputs.n1.jsonl"])
def test_a_damaged_record_of_a_job_costs_the_cells_of_that_job(run, name):
    """Catches: half a record that stops the whole run, or cells that were lost with it and have no reason."""
    path = run / JOB / name
    path.write_text(path.read_text().replace('"schema"', '"scheme"', 1))
    verdict, cells = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert cells[CELL].rule == "parse"
    assert name in cells[CELL].reason


def test_collecting_that_fails_leaves_nothing_that_passes(run):
    """Catches: results of an hour ago that say PASS, although the raw files can be read no longer."""
    assert judged(run)[0].outcome == "PASS"
    write_verdict(run, judge_folder(run))
    (run / "report.html").write_text("PASS")
    (run / "jobs.json").write_text("{}")
    refused("required", collect, run)
    for name in ("results.jsonl", "counters.jsonl", "verdict.json", "report.html"):
        assert not (run / name).exists(), name
        assert (run / f"{name}.old").exists(), name
    assert judge_folder(run).outcome == "NOT-RUN"


def test_a_verdict_says_why_nothing_was_collected(run, shakedown):
    """Catches: `no result was recorded` where collect was refused; what was set aside left for ever."""
    judged(run)
    own = run / "raw/paths.jsonl"
    own.write_text("{}\n")
    assert shakedown("collect", run)[0] == 2
    status, out, _ = shakedown("verdict", run)
    assert status == 3 and "1 job cannot be collected" in out and "raw/paths.jsonl:1" in out
    own.unlink()
    assert (run / "results.jsonl.old").exists()
    assert shakedown("collect", run)[0] == 0
    assert not list(run.glob("*.old"))


def test_the_largest_counter_is_a_counter(run):
    """Catches: a bound one too low, which takes a counter for a device's silence (all ones, minus one)."""
    for when in ("before", "after"):
        with edited(run / JOB / f"counters.n2.{when}.json") as counters:
            counters["devices"][0]["counters"]["rdma.rcvd_pkts"] = 2**63 - 1
    _, found = gather(run)
    read = [c for c in found if (c.device, c.port, c.counter) == ("n2", "rxe0", "rdma.rcvd_pkts")]
    assert [(c.before, c.after) for c in read] == [(2**63 - 1, 2**63 - 1)]


@pytest.mark.parametrize("letters", [50, 63])
def test_a_note_with_a_name_as_long_as_file_systems_take_is_read(tmp_path, letters):
    """Catches: one note about a lost node with a long name that leaves a whole run uncollectable."""
    pair = ("a" * letters, "b" * letters)
    rail, operation = "rail0>rail1", Operation("ib_send_lat", 65536, 5, None)
    slot = Slot(0, operation, "forward", "one", (rail,))
    NodeFiles(tmp_path, pair[0]).record_unmeasured(pair, slot, rail, 1, "environment", "no answer")
    (record,) = journal(tmp_path)
    assert (tmp_path / record.file).read_text() == "no answer\n"
    assert 200 < len(record.file) <= 255
    written = tmp_path / f"outputs.{pair[0]}.jsonl"
    longer = {**json.loads(written.read_text()), "file": "x" * 256}  # no file system has it
    written.write_text(json.dumps(longer) + "\n")
    with pytest.raises(BadInput, match="file: String should have at most 255 characters"):
        list(journal(tmp_path))


REVERSE = FORWARD.replace("forward", "reverse")
# The same test on the other rail.
OTHER_RAIL = FORWARD.replace("rail0", "rail1")
WAITING = f"\n{'*' * 36}\n* Waiting for client to connect... *\n{'*' * 36}\n"


def retitled(test: str):
    """A change of the test's name."""
    return lambda text, _: text.replace("RDMA_Write BW Test", f"{test} Test")


def replaced(old: str, new: str):
    """A change of a word that must be there."""

    def change(text: str, _: Path) -> str:
        assert old in text
        return text.replace(old, new)

    return change


def of_another_cell(name: str):
    """The output of another cell of the same job."""
    return lambda _, job: (job / name).read_text()


ANOTHER = {
    "operation": (retitled("RDMA_Read BW"), "this is a read bandwidth test, its record says ib_write_bw"),
    "immediate": (retitled("RDMA_Write_imm BW"), "this is a write_imm bandwidth test"),
    "both ways": (
        retitled("RDMA_Write Bidirectional BW"),
        "this test ran in both directions at once, its record says one direction",
    ),
    "queue pairs": (
        replaced("Number of qps   : 1", "Number of qps   : 4"),
        "this test ran on 4 queue pairs, its record says 1",
    ),
    "size": (
        lambda text, _: re.sub(r"\n 65536( +300 +)0\.15( +)0\.15", r"\n 32768\g<1>0.07\g<2>0.07", text),
        "this test moved messages of 32768 bytes, its record says 65536",
    ),
    "side": (lambda text, _: WAITING + text, "this is the server's output"),
    "link": (replaced("Ethernet\n GID", "IB\n GID"), "this test ran over IB on IB, RoCE is IB on Ethernet"),
    "iwarp": (replaced("Transport type : IB", "Transport type : IW"), "this test ran over IW on Ethernet"),
    "mtu": (
        replaced(": 4096[B]", ": 1024[B]"),
        "this test ran with an RDMA MTU of 1024 bytes, 4096 were ordered",
    ),
    "iterations": (replaced(" 300  ", " 20   "), "this test ran 20 iterations, 300 were ordered"),
    "rail": (of_another_cell(OTHER_RAIL), "the client of this test is 10.10.1.1, n1 has 10.10.0.1"),
    "direction": (of_another_cell(REVERSE), "the client of this test is 10.10.0.2, n1 has 10.10.0.1"),
    "device": (
        replaced("Device         : rxe0", "Device         : mlx5_7"),
        "this test ran on mlx5_7, n1 has rxe0 on rail0",
    ),
    "address": (
        replaced("00:00:00:00:00:00:00:00:00:00:255:255:10:10:00:01", "254:128:" + ":".join(["00"] * 14)),
        "the client of this test is of no IPv4 address, n1 has 10.10.0.1 on rail0",
    ),
    "partner": (
        replaced("255:255:10:10:00:02", "255:255:10:10:00:03"),
        "the server of this test is 10.10.0.3, n2 has 10.10.0.2 on rail0",
    ),
}


@pytest.mark.parametrize("what", ANOTHER)
def test_an_output_of_something_else_than_its_record_says_has_no_value(run, what):
    """Catches: an output put under another cell's name, or a test that ran otherwise than ordered, judged."""
    change, words = ANOTHER[what]
    raw = run / JOB / FORWARD
    raw.write_text(change(raw.read_text(), run / JOB))
    verdict, cells = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert [c.cell for c in cells.values() if c.rule == "parse"] == [CELL]
    assert f"{FORWARD}: {words}" in cells[CELL].reason
    assert results(run)[f"{JOB}/{FORWARD}"]["value"] is None


def test_a_latency_output_in_place_of_a_bandwidth_output_has_no_value(run):
    """Catches: microseconds under the name of a bandwidth cell."""
    captures = Path(__file__).parents[1] / "benchmarks" / "outputs" / "captures"
    shutil.copy(captures / "perftest_25.01_rxe_write_lat_client.txt", run / JOB / FORWARD)
    _, cells = judged(run)
    assert "this is a write latency test, its record says ib_write_bw" in cells[CELL].reason


def settings_of(run: Path, **changes: object) -> None:
    """Change what was ordered of the job; None takes it out."""
    with edited(run / "jobs.json") as jobs:
        jobs["jobs"][0]["settings"] |= changes
        jobs["jobs"][0]["settings"] = {k: v for k, v in jobs["jobs"][0]["settings"].items() if v is not None}
    leave_the_rest(run)


def test_the_order_is_read_again_when_it_was_changed(run):
    """Catches: one run held against another's order, because the last one read was kept."""
    assert judged(run)[0].outcome == "PASS"
    settings_of(run, mtu=2048)
    assert judged(run)[0].outcome == "INCONCLUSIVE"
    settings_of(run, mtu=None)
    assert judged(run)[0].outcome == "PASS"


def test_a_gid_that_the_site_chose_may_be_of_another_address(run):
    """Catches: a site's own GID index, for example of a VLAN, that makes every output one of elsewhere."""
    raw = run / JOB / FORWARD
    raw.write_text(raw.read_text().replace("255:255:10:10:00:", "255:255:10:99:00:"))
    assert judged(run)[0].outcome == "INCONCLUSIVE"
    for output in (run / JOB).glob("ib_write_bw.*.txt"):
        replaced_in(output, "GID index       : 1", "GID index       : 5")
    settings_of(run, gid_index=5)
    assert judged(run)[0].outcome == "PASS"
    replaced_in(raw, "GID index       : 5", "GID index       : 3")
    assert "this test used GID index 3, 5 was ordered" in judged(run)[1][CELL].reason


def replaced_in(path: Path, old: str, new: str) -> None:
    """Change a word of a file that must be there."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_gid_is_the_one_that_the_driver_had_found(run):
    """Catches: a GID of RoCE v1 of the same address, which no leaf classifies, taken for the rail's."""
    journal_ = run / JOB / "journal.n1.jsonl"
    event = {"event": "start", "time": "2026-01-01T00:00:00Z", "gid_index": {"rail0": 1, "rail1": 0}}
    journal_.write_text(json.dumps(event) + "\n")
    for output in (run / JOB).glob("*.rail1.forward.*"):
        replaced_in(output, "GID index       : 1", "GID index       : 0")
    assert judged(run)[0].outcome == "PASS"  # each rail has its own
    replaced_in(run / JOB / FORWARD, "GID index       : 1", "GID index       : 0")
    verdict, cells = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert f"{FORWARD}: this test used GID index 0, n1's driver had found 1" in cells[CELL].reason
    # A second start, after the NIC had come back with another table.
    with journal_.open("a") as sink:
        sink.write(json.dumps({**event, "gid_index": {"rail0": 0}}) + "\n")
    assert judged(run)[0].outcome == "PASS"


@pytest.mark.parametrize(("tos", "outcome"), [(106, "PASS"), (0, "INCONCLUSIVE"), (104, "INCONCLUSIVE")])
def test_a_stated_type_of_service_is_the_class_that_was_ordered(run, tos, outcome):
    """Catches: perftest -R -T 0, whose packets are in no lossless class, read as the ordered test."""
    file = run / JOB / FORWARD
    record = next(r for r in journal(run / JOB) if r.file == FORWARD)
    by_cm = record.model_copy(update={"params": {**record.params, "connection": "rdma-cm"}})
    text = file.read_text().replace("rdma_cm QPs\t : OFF", "rdma_cm QPs\t : ON")
    text = text.replace("Data ex. method : Ethernet", f"Data ex. method : rdma_cm \tTOS    : {tos}")
    if outcome == "PASS":
        assert len(values(by_cm, file, text)) == 1
        return
    refused(f"with type of service {tos}, 106 was ordered", values, by_cm, file, text)


def values(record: OutputRecord, file: Path, text: str) -> list[Value]:
    """What perftest's text means under a record, held against the run's own order."""
    jobs = json.loads((file.parents[2] / "jobs.json").read_text())["jobs"]
    order = MeshSettings.model_validate(jobs[0]["settings"])
    return list(perftest(Output(text, record, order, JobFolder(file.parent))))


def test_queue_pairs_are_held_against_the_record(run):
    """Catches: four queue pairs refused although they were ordered, or one queue pair taken for four."""
    file = run / JOB / FORWARD
    record = next(r for r in journal(run / JOB) if r.file == FORWARD)
    four = record.model_copy(update={"params": {**record.params, "qps": 4}})
    text = file.read_text()
    refused("this test ran on 1 queue pairs, its record says 4", values, four, file, text)
    ((metric, value, *_),) = values(four, file, text.replace("Number of qps   : 1", "Number of qps   : 4"))
    assert (metric, value) == ("bandwidth", 0.15)


def test_the_client_of_a_read_is_where_the_data_arrive(run):
    """Catches: every read refused, or taken for one of the other direction; cross rails likewise."""
    file = run / JOB / FORWARD
    record = next(r for r in journal(run / JOB) if r.file == FORWARD)
    text = file.read_text().replace("RDMA_Write", "RDMA_Read")
    read = record.model_copy(update={"test": "ib_read_bw", "direction": "reverse"})
    assert len(values(read, file, text)) == 1
    with pytest.raises(
        BadInput, match=r"the client of this test is 10\.10\.0\.1, n2 has 10\.10\.0\.2 on rail0"
    ):
        values(read.model_copy(update={"direction": "forward"}), file, text)
    crossing = record.model_copy(update={"rail": "rail0>rail1"})
    text = file.read_text().replace("255:255:10:10:00:02", "255:255:10:10:01:02")
    assert len(values(crossing, file, text)) == 1
    with pytest.raises(
        BadInput, match=r"the server of this test is 10\.10\.1\.2, n2 has 10\.10\.0\.2 on rail0"
    ):
        values(record, file, text)


def renamed(run: Path, node: str, change) -> None:
    """Change the records of one node's journal."""
    path = run / JOB / f"outputs.{node}.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    changed = [change(record) for record in records]
    path.write_text("".join(json.dumps(record) + "\n" for record in changed))


def test_one_output_is_not_two_measurements(run):
    """Catches: one file that counts for two cells, so that a link that nobody measured passes."""

    def take_the_others(record):
        return {**record, "file": FORWARD} if record["file"] == OTHER_RAIL else record

    renamed(run, "n1", take_the_others)
    verdict, cells = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    doubtful = [CELL, CELL.replace("rail0", "rail1")]
    assert sorted(c.cell for c in cells.values() if c.rule == "parse") == doubtful
    for cell in doubtful:
        assert f"{FORWARD} is named by the records of 2 cells or attempts" in cells[cell].reason


def test_one_output_is_not_two_attempts(run):
    """Catches: a first failure hidden behind a second record of the same output."""
    renamed(run, "n1", lambda record: {**record, "attempt": 2} if record["file"] == FORWARD else record)
    path = run / JOB / "outputs.n1.jsonl"
    second = next(r for r in map(json.loads, path.read_text().splitlines()) if r["file"] == FORWARD)
    with path.open("a") as sink:
        sink.write(json.dumps({**second, "attempt": 1}) + "\n")
    _, cells = judged(run)
    assert "is named by the records of 2 cells or attempts" in cells[CELL].reason


@cases(
    "tool, field, alike",
    ("copies", "direction", True),
    ("copies", "nodes", False),
    ("torch-collectives", "test", True),
    ("torch-collectives", "params", False),
    ("nccl", "test", False),
    ("inference", "params", False),
    ("nvbandwidth", "test", False),
)
def test_only_tools_whose_one_file_has_several_cells_may_share_it(tmp_path, tool, field, alike):
    """Catches: copies and PyTorch's collectives refused, or any other tool's file counted twice."""
    other = {"direction": "d2h", "nodes": ["n2"], "test": "other", "params": {"gpus": 2}}
    record = {"schema": 1, "tool": tool, "test": "t", "file": "out.json", "nodes": ["n1"], "direction": "h2d"}
    record |= {"params": {"gpus": 1}, "exit_code": 0, "started": "2026-01-01T00:00:00Z", "duration_s": 1.0}
    lines = [record, record, {**record, field: other[field]}]
    (tmp_path / "outputs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [output.problem is None for output in journal(tmp_path)] == [alike] * 3


def test_a_duration_is_held_against_the_order(run):
    """Catches: two seconds of ten ordered, in which a link that sags under load looks well."""
    with edited(run / "jobs.json") as jobs:
        ordered = {"test": "ib_write_bw", "size_bytes": 65536, "duration_s": 10, "iterations": None}
        jobs["jobs"][0]["settings"]["operations"] = [ordered]
    file = run / JOB / FORWARD
    record = next(r for r in journal(run / JOB) if r.file == FORWARD)
    record = record.model_copy(update={"duration_s": 70.0})
    # Of ten seconds perftest counts six; 0.15 Gb/s are 286 messages of 64 KiB a second.
    for iterations, good in ((286 * 6, True), (286 * 2, False), (286 * 20, False)):
        text = file.read_text().replace(" 300 ", f" {iterations} ")
        if good:
            assert len(values(record, file, text)) == 1
        else:
            refused("6 s of the 10 s ordered are due", values, record, file, text)


@pytest.mark.parametrize(("node", "counter"), [("n1", "netdev.tx_bytes"), ("n2", "netdev.rx_bytes")])
def test_outputs_that_the_nics_did_not_see_decide_nothing(run, node, counter):
    """Catches: outputs made up, or of a wrapper that did a tenth of the work, 100 packets are no floor."""
    before, after = (run / JOB / f"counters.{node}.{when}.json" for when in ("before", "after"))
    was, now = json.loads(before.read_text()), json.loads(after.read_text())
    now["devices"][0]["counters"][counter] = was["devices"][0]["counters"][counter] + 4_000_000
    after.write_text(json.dumps(now))
    verdict, cells = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert sorted(c.cell for c in cells.values()) == sorted(
        CELL.replace("forward", way).replace("one", at_once)
        for way in ("forward", "reverse")
        for at_once in ("one", "all")
    )
    what = "sent" if counter == "netdev.tx_bytes" else "received"
    words = f"{node} rail0: by the outputs of this job it {what} 39.3 MB, the NIC counted 4 MB"
    assert all(words in cell.reason for cell in cells.values())


@pytest.mark.parametrize("share", [0.94, 0.96])
def test_the_last_reading_may_miss_the_end_of_a_job(run, share):
    """Catches: good hardware doubted as its NIC refreshes counters now and then, or a tolerance too wide."""
    payload = 2 * 300 * 65536
    for node in ("n1", "n2"):
        with edited(run / JOB / f"counters.{node}.after.json") as now:
            was = json.loads((run / JOB / f"counters.{node}.before.json").read_text())
            for first, last in zip(was["devices"], now["devices"], strict=True):
                for name in ("netdev.rx_bytes", "netdev.tx_bytes"):
                    last["counters"][name] = first["counters"][name] + round(share * payload)
    assert judged(run)[0].outcome == ("PASS" if share > 0.95 else "INCONCLUSIVE")


@pytest.mark.parametrize("read", ["before", "after"])
def test_a_counter_that_was_read_once_bears_nothing_out(run, read):
    """Catches: all that a NIC moved since it was started, taken for what one job moved."""
    for node in ("n1", "n2"):
        for when in ("before", "after"):
            with edited(run / JOB / f"counters.{node}.{when}.json") as content:
                for device in content["devices"]:
                    for name in ("netdev.rx_bytes", "netdev.tx_bytes", "rdma.sent_pkts"):
                        device["counters"].pop(name, None)
                    if when == read:
                        device["counters"] |= {"ib.port_xmit_data": 10**12, "ib.port_rcv_data": 10**12}
    verdict, cells = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert cells
    for cell in cells.values():
        assert "no counter of RDMA bytes that is known here" in cell.reason


@pytest.mark.parametrize("source", ["ib.port_{}_data", "rdma.{}_bytes", "rdma.ip4{}Octets", None])
def test_each_driver_counts_rdma_in_its_own_way(run, source):
    """Catches: a NIC whose netdev does not see RDMA doubted, or passed by counters that nobody reads."""
    names = {
        "ib.port_{}_data": ("xmit", "rcv"),
        "rdma.{}_bytes": ("tx", "rx"),
        "rdma.ip4{}Octets": ("Out", "In"),
    }
    for node in ("n1", "n2"):
        for when, moved in (("before", 0), ("after", 40_000_000)):
            with edited(run / JOB / f"counters.{node}.{when}.json") as content:
                for device in content["devices"]:
                    for name in ("netdev.rx_bytes", "netdev.tx_bytes", "rdma.sent_pkts"):
                        device["counters"].pop(name, None)
                    for way in names[source] if source else ():
                        unit = 4 if source.startswith("ib.") else 1
                        device["counters"][source.format(way)] = moved // unit
    verdict, cells = judged(run)
    assert verdict.outcome == ("PASS" if source else "INCONCLUSIVE")
    for cell in cells.values():
        assert "no counter confirms what this output says" in cell.reason
        assert "no counter of RDMA bytes that is known here" in cell.reason

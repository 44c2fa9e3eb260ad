"""The run made on 4 x H200, and the same run with faults planted in its raw files: named, and never PASS."""

import json
import shutil
import statistics
from pathlib import Path

import pytest

from shakedown.benchmarks.gpu.output import parse_nvbandwidth
from shakedown.benchmarks.inference.output import parse_loadgen
from shakedown.collect.run import collect
from shakedown.daytwo.interconnect_table import rates_of
from shakedown.judge.verdict import judge
from shakedown.records.base import Outcome
from shakedown.records.results import Measurement
from shakedown.report.workloads import build_interconnect
from shakedown.report.write import read
from shakedown.run.folder import Run
from tests.kit.cases import cases
from tests.kit.files import edited
from tests.kit.job import leave_the_rest

INFERENCE, COPIES, PATHS = "application.inference.gpu1.a1", "node.copies.gpu1.a1", "node.pcie_path.gpu1.a1"


@pytest.fixture
def run(recorded_run) -> Path:
    """Return a copy of the run to plant a fault in."""
    return recorded_run("h200x4_interconnect")


@pytest.fixture
def int8(recorded_run) -> Path:
    """Return a copy of the run in INT8."""
    return recorded_run("h200_int8")


def rate_of(run: Path) -> Measurement:
    """Read the run and return its one rate of inference."""
    collect(run)
    (rate,) = [m for m in Run(run).measurements() if (m.test, m.metric) == ("resnet50_server", "rate")]
    return rate


def verdicts(run: Path) -> dict[str, tuple[Outcome, str]]:
    """Read and judge the run; return outcome and reason of what did not pass, by cell."""
    collect(run)
    made = Run(run)
    verdict = judge(made.plan, list(made.measurements()), list(made.counters()))
    return {cell.cell: (cell.outcome, cell.reason) for cell in verdict.cells}


def bad(run: Path, test: str, **params) -> list[tuple[Outcome, str]]:
    """Return what is said of a test's cells with these parameters that did not pass."""
    wanted = [f"{key}={value}" for key, value in params.items()]
    return [
        said
        for cell, said in verdicts(run).items()
        if cell.split("/")[1] == test and all(part in cell.split("/")[-1].split(",") for part in wanted)
    ]


def edit(path: Path, old: str, new: str) -> None:
    """Change a text that must be there."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_h2d_agrees_with_nvbandwidth_of_the_same_session(run):
    """Catches a method that measures something else than nvbandwidth: 1 % on every GPU, H2D and D2H."""
    tool = parse_nvbandwidth((Path(__file__).parent / "nvbandwidth_4xH200.json").read_text())
    named = {test.name: test.bandwidth_gb_per_s for test in tool.tests}
    rows = json.loads((run / "raw" / COPIES / "copies.json").read_text())["rows"]
    for direction, name in (("h2d", "host_to_device_memcpy_ce"), ("d2h", "device_to_host_memcpy_ce")):
        alone = {r["gpus"][0]: r for r in rows if len(r["gpus"]) == 1 and r["traffic"] == direction}
        for gpu, wanted in enumerate(named[name][0]):
            found = statistics.median(alone[gpu]["gb_per_s"][direction][str(gpu)])
            assert found == pytest.approx(wanted, rel=0.01), (direction, gpu)


def test_inference_of_the_run_passes(run):
    """Catches a reader that refuses what real LoadGen and a real GPU wrote."""
    assert bad(run, "resnet50_server") == [] == bad(run, "pcie_path")
    assert rates_of(run)[4] == pytest.approx(22.394, abs=1e-3)


def test_int8_peak_is_loadgens_and_says_where_its_time_went(int8):
    """Catches a peak that LoadGen's summaries do not hold, and a report that hides where the time went."""
    rate = rate_of(int8)
    full = [
        parse_loadgen(file.read_text(), file=file.name)
        for file in sorted((int8 / "raw" / INFERENCE).glob("loadgen.g1.1[123].txt"))
    ]
    assert len(full) == 3
    assert rate.value == statistics.median(one.completed_samples_per_s or 0 for one in full)
    assert rate.value > 60_000
    assert all(one.valid and (one.percentile_ns(99.0) or 1e9) < 15e6 for one in full)
    view = build_interconnect(read(int8))
    assert view and "313 images: 0.62 ms host, 4.50 ms GPU, busy 91" in view.rows[0][-1]


@pytest.mark.parametrize("paused_ms", [91.0, 5.0])
def test_a_pause_of_loadgens_own_process_is_told(paused_ms, int8):
    """Catches a low rate put on the GPU where the program that asks stood still, and the reverse."""
    path = int8 / "raw" / INFERENCE / "search.g1.json"
    with edited(path) as document:
        missed, full = document["runs"][1], document["runs"][-1]
        shutil.copy(path.with_name(full["file"]), path.with_name(missed["file"]))  # a full run, ...
        edit(path.with_name(missed["file"]), "Result is : VALID", "Result is : INVALID")  # ... which missed
        edit(path.with_name(missed["file"]), "constraints satisfied : Yes", "constraints satisfied : NO")
        edit(path.with_name(missed["file"]), "69584", "70849")
        missed["kind"], missed["spent"]["longest_look_ms"] = "confirm", paused_ms
        missed["spent"]["longest_ask_ms"] = 1.0
    rate = rate_of(int8)
    assert rate.value == pytest.approx(69_521, abs=1)
    told = "in 1 of 1 full runs that missed the bound LoadGen's own process stood still for up to 91 ms"
    assert told in (rate.detail or "") if paused_ms > 15 else "stood still" not in (rate.detail or "")


def test_a_run_of_the_search_that_is_no_run_is_refused(int8):
    """Catches: a collection that breaks off at one mangled file, and every other result lost with it."""
    path = int8 / "raw" / INFERENCE / "search.g1.json"
    path.write_text(json.dumps({"schema": 1, "peak_qps": None, "reason": "x", "runs": [1]}))
    assert "not the document of a search" in str(rate_of(int8).problem)


def test_a_shared_limit_of_the_host_is_seen(run):
    """Catches a limit that shows only with several GPUs at once: 171 of 222 GB/s."""
    assert {outcome for outcome, _ in bad(run, "copy", gpus=4)} == {Outcome.FAIL}
    assert bad(run, "copy", gpus=1) == []


def test_invalid_confirmation_is_no_pass(run):
    """Catches two VALID runs of three counted as a peak."""
    path = run / "raw" / INFERENCE / "loadgen.g1.08.txt"
    edit(path, "Result is : VALID", "Result is : INVALID")
    edit(path, "Performance constraints satisfied : Yes", "Performance constraints satisfied : NO")
    said = bad(run, "resnet50_server", gpus=1)
    assert len(said) == 3 and all(o is not Outcome.PASS and "failed at 36336" in why for o, why in said)


@cases(
    "old, new, words",
    ("target_latency (ns): 15000000", "target_latency (ns): 25000000", "latency bound was 25000000 ns"),
    ("min_duration (ms): 5000", "min_duration (ms): 500", "shorter than planned"),
    ("Scenario : Server", "Scenario : Offline", ""),
)
def test_easier_terms_than_planned_are_refused(run, old, new, words):
    """Catches a result made under another latency bound, duration or scenario than the plan's."""
    edit(run / "raw" / INFERENCE / "loadgen.g1.08.txt", old, new)
    said = bad(run, "resnet50_server", gpus=1)
    assert len(said) == 3
    assert all(outcome is Outcome.INCONCLUSIVE and words in why for outcome, why in said)


def test_bound_never_met_is_named(run):
    """Catches a search without a peak that passes for a rate."""
    path = run / "raw" / INFERENCE / "search.g2.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "peak_qps": None, "reason": "the latency bound was never met"}))
    said = bad(run, "resnet50_server", gpus=2)
    assert len(said) == 3 and all("never met" in why for _, why in said)
    assert {outcome for outcome, _ in said} == {Outcome.INCONCLUSIVE}


def test_a_peak_that_was_only_claimed_is_refused(run):
    """Catches a search document that names a higher peak than LoadGen confirmed."""
    edit(run / "raw" / INFERENCE / "search.g4.json", '"peak_qps": 148920.0', '"peak_qps": 150000.0')
    said = bad(run, "resnet50_server", gpus=4)
    assert len(said) == 3 and all("0 of 3 confirming runs" in why for _, why in said)


@pytest.mark.parametrize(
    ("bits", "words"), [("20", "software thermal"), ("40", "hardware thermal"), ("80", "brake")]
)
def test_throttling_is_named(run, bits, words):
    """Catches a rate that a hot or starved GPU reached: no measure of the interconnect."""
    path = run / "raw" / INFERENCE / "gpu.g4.csv"
    lines = path.read_text().splitlines()
    lines[40] = lines[40].rsplit(",", 1)[0] + f", 0x00000000000000{bits}"
    path.write_text("\n".join(lines) + "\n")
    said = bad(run, "resnet50_server", gpus=4)
    assert len(said) == 3 and all("was throttled" in why and words in why for _, why in said)
    assert bad(run, "resnet50_server", gpus=2) == []


def test_unwatched_gpu_is_no_pass(run):
    """Catches throttling that nobody could have seen."""
    path = run / "raw" / INFERENCE / "gpu.g2.csv"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if line[0] == "0"))
    said = bad(run, "resnet50_server", gpus=2)
    assert len(said) == 3 and all("1 of 2 GPUs were watched" in why for _, why in said)


def test_gpu_that_was_lost_is_named(run):
    """Catches a search that ended because a GPU fell off the bus, reported without its reason."""
    path = run / "raw" / INFERENCE / "outputs.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[2]["problem"] = {
        "kind": "killed",
        "message": "worker 3 is lost: CUDA error: unspecified launch failure",
    }
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = bad(run, "resnet50_server", gpus=4)
    assert len(said) == 3 and all(o is Outcome.INCONCLUSIVE and "worker 3 is lost" in why for o, why in said)


def test_killed_job_leaves_no_pass(run):
    """Catches cells that pass although the job was killed before their search ended."""
    folder = run / "raw" / INFERENCE
    edit(folder / "job.json", '"COMPLETED"', '"TIMEOUT"')
    with edited(folder / "job.json") as record:
        record["problem"] = {"kind": "killed", "message": "Slurm says TIMEOUT"}
    (folder / "outputs.jsonl").write_text((folder / "outputs.jsonl").read_text().splitlines()[0] + "\n")
    assert len(bad(run, "resnet50_server")) == 9


def test_planted_x8_link_is_named(run):
    """Catches a downtrained link in a live document, through reader and verdict."""
    with edited(run / "raw" / PATHS / "pcie_path.json") as document:
        gpu = next(d for d in document["topology"]["devices"] if d["bdf"] == "0000:00:08.0")
        gpu["width"] = 8
    said = bad(run, "pcie_path")
    assert len(said) == 1 and said[0][0] is Outcome.FAIL
    assert "GPU 2 (0000:00:08.0): link root bus to 0000:00:08.0 is x8, planned x16" in said[0][1]


def test_planted_wrong_pin_is_named(run):
    """Catches processes pinned to another NUMA node than their GPU's, through plan, reader and verdict."""
    with edited(run / "jobs.json") as document:
        spec = next(job for job in document["jobs"] if job["kind"] == "pcie_path")
        spec["settings"]["path"]["numa_nodes"] = [0, 0, 1, 0]
    leave_the_rest(run)
    said = bad(run, "pcie_path")
    assert len(said) == 1 and said[0][0] is Outcome.FAIL
    assert "on NUMA node 0, pinned to node 1" in said[0][1]


def test_the_cost_of_the_wrong_pin_is_said(run):
    """Catches a far pin measured and not compared."""
    with edited(run / "raw" / COPIES / "copies.json") as document:
        near = next(row for row in document["rows"] if row["gpus"] == [0] and row["traffic"] == "h2d")
        far = {**near, "pin": "far", "gb_per_s": {"h2d": {"0": [40.0, 41.0, 42.0]}}}
        document["rows"].append(far)
    collect(run)
    found = [m for m in Run(run).measurements() if m.metric == "far_pin"]
    assert len(found) == 1
    assert found[0].value == pytest.approx(41 / 55.544, rel=1e-3)
    assert "wrong NUMA pin costs 26.2%" in (found[0].detail or "")


@cases("damage", '{"schema": 1, "rows": []}', "{", '{"schema": 2}', '{"schema": 1, "rows": [3]}')
def test_damaged_copies_are_no_pass(run, damage):
    """Catches a document that cannot be read passing for a rate."""
    (run / "raw" / COPIES / "copies.json").write_text(damage)
    said = bad(run, "copy")
    assert len(said) == 24 and all(outcome is Outcome.INCONCLUSIVE for outcome, _ in said)

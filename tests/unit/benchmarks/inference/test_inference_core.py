"""What a peak says: data rate, bottleneck, the paper's table; and the plan that asks for it."""

import ctypes
import gc
import hashlib
import json
import re
import time
from types import SimpleNamespace

import mlperf_loadgen as lg
import numpy as np
import pytest
from pydantic import ValidationError

from loadgen_harness.batch_copies import BatchCopies, BatchCopiesError
from loadgen_harness.harness import Harness, ServerRun
from loadgen_harness.ring import STOP, Ring, Times
from loadgen_harness.time_breakdown import Pauses, Stopwatch, cpu_ticks
from loadgen_harness.watch import GpuWatch
from loadgen_harness.worker import serve
from loadgen_harness.workers import checked, work
from shakedown.benchmarks.base.contract import Output
from shakedown.benchmarks.inference.metrics import Inference, _weights_as_planned, inference
from shakedown.benchmarks.inference.peak import bottleneck, data_rate_gb_per_s, difference, extrapolated
from shakedown.commands.sweeps import lines
from shakedown.daytwo.interconnect_table import table
from shakedown.records.results import OutputRecord
from shakedown.run.nic_counters import JobFolder
from tests.kit.cases import cases
from tests.kit.refusal import refused

# PRIMERGY CDI paper, Gen5 H100 NVL, GB/s by GPUs; 5 and 6 without switches were extrapolated by the authors.
PAPER = {
    "none": {3: 28.82, 4: 38.49},
    "path3": {3: 28.43, 4: 38.28, 5: 47.22, 6: 53.75},
    "path4": {3: 28.46, 4: 38.14, 5: 46.50, 6: 53.01},
}


def test_data_rate_is_the_papers():
    """Catches another image size: 158,125 queries/s are 23.80 GB/s in the paper."""
    assert data_rate_gb_per_s(158_125) == pytest.approx(23.80, abs=0.005)


def test_table_is_the_papers():
    """Catches a wrong baseline, a wrong extrapolation (57.74 and 48.12 in the paper) or one not marked."""
    rows = {row.path: row.cells for row in table(PAPER, "none")}
    assert rows["none"][6].extrapolated and rows["none"][6].gb_per_s == pytest.approx(57.74, rel=2e-3)
    assert rows["none"][5].extrapolated and rows["none"][5].gb_per_s == pytest.approx(48.12, rel=2e-3)
    assert not rows["path4"][6].extrapolated
    assert rows["path4"][6].ratio == pytest.approx(53.01 / 57.74, rel=2e-3)
    assert rows["path4"][6].reading == "-8.1% (extrapolated)"


def test_differences_within_the_noise_are_none():
    """Catches 1.5 % at 3 GPUs called a cost of the switches when the baseline itself varies by 3 %."""
    rows = {row.path: row.cells for row in table(PAPER, "none")}
    assert rows["path3"][3].reading == rows["path4"][4].reading == "no difference"
    assert difference(0.969) == "-3.1%" and difference(1.029) == "no difference"


def test_what_the_paper_calls_equal_is_equal_and_no_full_path_is_extrapolated():
    """Catches: path 1 faster than no switch by the baseline's noise; 51.18 GB/s over one Gen4 x16, which
    carries 30.3, as no difference; a table whose columns run into each other."""
    printed = {
        "none": {4: 25.67, 3: 18.95, 2: 13.21, 1: 6.60},
        "path1": {4: 24.92, 3: 19.57, 2: 13.44, 1: 6.66},
        "path3": {8: 24.77, 4: 23.80, 3: 19.46, 2: 13.42, 1: 6.62},
        "path4": {4: 20.50, 3: 19.40, 2: 13.41, 1: 6.62},
    }
    found = table(printed, "none")
    rows = {row.path: row.cells for row in found}
    assert {rows[path][gpus].reading for path in rows for gpus in (1, 2, 3)} == {"baseline", "no difference"}
    assert rows["path4"][4].reading == "-20.1%"
    assert rows["path1"][8].gb_per_s is rows["path4"][8].gb_per_s is rows["path4"][8].ratio is None
    assert rows["none"][8].extrapolated and rows["path3"][8].reading == "-51.8% (extrapolated)"
    text = lines(found)
    assert len({len(line) for line in text}) == 1
    assert all(re.match(r"(none|path\d) +\d", line) for line in text[1:])


def test_baseline_must_be_there():
    """Catches a table normalised to nothing."""
    refused("no rates of the baseline", table, PAPER, "path9")
    assert extrapolated({}, 4) is None


@cases(
    "h2d, network, limit",
    (55.0, 42_000.0, "gpu"),  # 5.5 of 55 GB/s, 36.5k of 42k
    (6.0, 80_000.0, "interconnect"),
    (6.0, 40_000.0, "both"),
    (55.0, 90_000.0, "neither"),
    (None, None, "unknown"),
)
def test_bottleneck(h2d, network, limit):
    """Catches the GPU blamed for a slow link, and the link for a slow GPU."""
    found = bottleneck(5.5, h2d=h2d, ceiling=58.45, network_qps=network, qps=36_500)
    assert found.limit == limit


def test_a_probe_too_short_to_tell_is_refused():
    """Catches a bisection to 0.5 % with probes in which 0.5 % too much does not fill the latency bound."""
    with pytest.raises(ValidationError, match="cannot tell"):
        Inference(gpus=(1,), probe_s=1)
    Inference(gpus=(1,), probe_s=3)


def test_accuracy_needs_weights_images_and_labels():
    """Catches an accuracy gate that random weights would be held to, or that nobody would measure."""
    for missing in ({"labels": "/l.npy"}, {"labels": "/l.npy", "images": "/i.npy"}):
        with pytest.raises(ValidationError, match="together"):
            Inference(gpus=(1,), **missing)
    files = {"weights": "/w.pt", "labels": "/l.npy", "images": "/i.npy"}
    with pytest.raises(ValidationError, match=r"sha256sum /w\.pt prints"):
        Inference(gpus=(1,), **files)
    with pytest.raises(ValidationError, match="weights_sha256"):
        Inference(gpus=(1,), **files, weights_sha256="AB" * 32)


@cases(
    "workers, says",
    ([{"worker": 0, "weights_sha256": "cd" * 32, "accuracy": 76.4}], "planned abab"),
    ([{"worker": 0, "accuracy": 76.4}], "sha256 None"),
)
def test_an_accuracy_of_other_weights_is_refused(workers, says):
    """Catches: 80.9 % of torchvision's second weights, which pass for the planned weights' 76.46 %."""
    order = Inference(gpus=(1,), weights="/w.pt", weights_sha256="ab" * 32, images="/i.npy", labels="/l.npy")
    output = SimpleNamespace(order=order, file="inference.json")
    _weights_as_planned([{"worker": 0, "weights_sha256": "ab" * 32}], output)
    refused(says, _weights_as_planned, workers, output)


@cases(
    "workers, accuracy, silent",
    ([(0, 76.4), (1, 76.2)], 76.2, ""),
    ([(0, 76.4)], None, "no accuracy of worker 1, of 2"),
    ([(0, 76.4), (1, None)], None, "no accuracy of worker 1, of 2"),
    ([(0, 76.4), (1, float("nan"))], None, "no accuracy of worker 1, of 2"),
    ([(0, 76.4), (1, True)], None, "no accuracy of worker 1, of 2"),
    ([(0, 76.4), (0, 76.4)], None, "no accuracy of worker 1, of 2"),
    ([(0, 76.4), (1, 12.0), (1, 76.4)], 12.0, ""),
    ([], None, "no accuracy of worker 0, 1, of 2"),
)
def test_every_worker_tells_its_accuracy(workers, accuracy, silent, recorded_run):
    """Catches: a GPU whose accuracy nobody measured, passed by that of the others."""
    file = recorded_run("h200x4_interconnect") / "raw/application.inference.gpu1.a1/search.g2.json"
    document = json.loads(file.read_text())
    files = {"weights": "/w.pt", "weights_sha256": "ab" * 32, "images": "/i.npy", "labels": "/l.npy"}
    jobs = json.loads((file.parents[2] / "jobs.json").read_text())["jobs"]
    settings = next(job["settings"] for job in jobs if job["kind"] == "inference")
    known = Inference.model_fields  # the run is of a release that gave the interpreter here
    for n in range(2):
        (file.parent / f"worker.{n}.json").unlink()
    document["workers"] = [
        {"worker": n, "weights_sha256": "ab" * 32} | ({} if found is None else {"accuracy": found})
        for n, found in workers
    ]
    line = {"schema": 1, "tool": "inference", "test": "resnet50_server", "file": file.name}
    line |= {"nodes": ["gpu1"], "exit_code": 0, "started": "2026-11-20T00:00:00Z", "duration_s": 1.0}
    record = OutputRecord.model_validate({**line, "params": {"gpus": 2}})
    order = Inference.model_validate({k: v for k, v in settings.items() if k in known} | files)
    output = Output(json.dumps(document), record, order, JobFolder(file.parent))
    *_, last = inference(output)
    assert (last[0], last[1], last[5]) == ("accuracy", accuracy, silent)


def engine_of(agreement, **more):
    """What a worker says of its engine."""
    return {"engine": {"name": "tensorrt", "agreement": agreement}, **more}


@cases(
    "name, changed, outcome, words",
    (
        "worker.0.json",
        engine_of(0),
        "FAIL",
        "worker 0's INT8 scores agree with half precision's to 0, wanted",
    ),
    ("search.g1.json", engine_of(-0.7), "FAIL", "worker 0's INT8 scores agree with half precision's to -0.7"),
    ("search.g1.json", engine_of(None), "INCONCLUSIVE", "worker 0 tells no agreement"),
    ("worker.0.json", engine_of(None), "INCONCLUSIVE", "worker 0 tells no agreement"),
    ("worker.0.json", engine_of(float("nan")), "INCONCLUSIVE", "worker 0 tells no agreement"),
    ("worker.0.json", engine_of(99), "INCONCLUSIVE", "worker 0 tells no agreement"),
    ("search.g1.json", engine_of(0.9998, worker=1), "PASS", ""),  # worker.0.json still tells it
    ("worker.0.json", {"engine": {"name": "cudnn"}}, "INCONCLUSIVE", "ran engine cudnn, planned tensorrt"),
    ("worker.0.json", {"engine": 7}, "INCONCLUSIVE", "ran engine cudnn, planned tensorrt"),
)
def test_a_rate_of_wrong_answers_is_none(name, changed, outcome, words, recorded_run, shakedown):
    """Catches: an INT8 engine whose scores are noise, by its worker's own file, and whose rate PASSes."""
    run = recorded_run("h200_int8")
    file = run / "raw/application.inference.gpu1.a1" / name
    document = json.loads(file.read_text())
    (document["workers"][0] if "workers" in document else document).update(changed)
    file.write_text(json.dumps(document))
    shakedown("collect", run)
    cells = {c["cell"]: c for c in json.loads(shakedown("verdict", run, "--json")[1])["cells"]}
    rates = [cell for name, cell in cells.items() if name.startswith("application/resnet50_server/rate/")]
    assert [cell["outcome"] for cell in rates] == ([] if outcome == "PASS" else [outcome])
    assert all(words in cell["reason"] for cell in rates)


def test_other_weights_than_planned_are_refused_before_the_search(tmp_path):
    """Catches: weights that were swapped under the planned name."""
    weights = tmp_path / "resnet50.pt"
    weights.write_bytes(b"planned")
    planned = hashlib.sha256(b"planned").hexdigest()
    assert checked(str(weights), planned) == planned
    weights.write_bytes(b"another")
    with pytest.raises(ValueError, match=f"planned {planned}"):
        checked(str(weights), planned)


@pytest.fixture
def ring():
    """A ring of its own."""
    made = Ring()
    yield made
    made.close()


class Device:
    """A Backend that finishes a batch when it is told to, and stops the worker after the script."""

    slots, max_batch = 4, 10

    def __init__(self, ring: Ring, script: list) -> None:
        self.ring, self.script = ring, script
        self.begun: list[list[int]] = []
        self.ready: set[int] = set()
        self.under_way: list[int] = []

    def start(self, slot: int, samples: list[int]) -> None:
        """Note the batch."""
        self.begun.append(samples)
        self.under_way.append(slot)

    def finished(self, slot: int) -> bool:
        """Play the next line of the script, then say whether the slot is done."""
        if self.script:
            action, count = self.script.pop(0)
            if action == "put":
                put(self.ring, count)
            elif action == "finish":
                self.ready.add(self.under_way.pop(0))
        else:
            self.ring.state = STOP
        if slot in self.ready:
            self.ready.remove(slot)
            return True
        return False


def put(ring: Ring, count: int) -> None:
    """Ask for the next images in order."""
    head = ring.head
    ring.put([1000 + head + k for k in range(count)], [head + k for k in range(count)])


def batches(ring: Ring, script: list) -> list[list[int]]:
    """Return the samples of every batch that the worker started."""
    device = Device(ring, script)
    put(ring, 1)
    serve(ring, device, hold_s=0, poll_s=0, wanted=lambda: True)
    return device.begun


def test_what_comes_behind_two_batches_waits_to_be_a_larger_one(ring):
    """Catches small batches queued up to the last slot: each waits for all before it, and costs its own."""
    script = [("put", 2), ("put", 3), ("put", 3), ("wait", 0), ("finish", 0), ("wait", 0)]
    assert batches(ring, script) == [[0], [1, 2], [3, 4, 5, 6, 7, 8]]


def test_a_full_batch_waits_for_nothing_but_a_slot(ring):
    """Catches a device left idle at the peak because full batches are held back like small ones."""
    script = [("put", 10), ("put", 10), ("put", 10), ("put", 10), ("wait", 0), ("wait", 0)]
    assert [len(batch) for batch in batches(ring, script)] == [1, 10, 10, 10]


def fake_runtime(error: int = 0) -> SimpleNamespace:
    """NVIDIA's bindings as far as they are used, copying with the CPU."""

    def copy(dsts, srcs, sizes, count, attributes, first, number, stream):
        assert len(dsts) == len(srcs) == len(sizes) == count and (first, number) == ([0], 1) and stream == 7
        assert attributes[0].srcAccessOrder == 3
        for dst, src, size in zip(dsts, srcs, sizes, strict=True):
            ctypes.memmove(dst, src, size)
        return (error,)

    return SimpleNamespace(
        cudaMemcpyBatchAsync=copy,
        cudaMemcpyAttributes=SimpleNamespace,
        cudaMemcpySrcAccessOrder=SimpleNamespace(cudaMemcpySrcAccessOrderAny=3),
    )


def test_every_image_of_a_batch_is_the_one_asked_for():
    """Catches an image in another's place, one of another slot, and bytes beyond the batch."""
    images = np.random.default_rng(1).integers(0, 256, (5, 12), dtype=np.uint8)
    buffers = [np.zeros((4, 12), np.uint8) for _ in range(2)]
    copies = BatchCopies(fake_runtime(), images.ctypes.data, 12, [b.ctypes.data for b in buffers], 4)
    copies(1, [4, 0, 4], 7)
    assert (buffers[1][:3] == images[[4, 0, 4]]).all()
    assert not buffers[1][3].any() and not buffers[0].any()


def test_a_refused_copy_is_no_batch():
    """Catches queries answered from what the buffer held before."""
    images = np.zeros((1, 4), np.uint8)
    copies = BatchCopies(fake_runtime(error=1), images.ctypes.data, 4, [np.zeros(4, np.uint8).ctypes.data], 1)
    with pytest.raises(BatchCopiesError, match="cudaMemcpyBatchAsync: 1"):
        copies(0, [0], 7)


def proc(folder, line):
    """A machine whose kernel counts ticks like this."""
    (folder / "proc").mkdir(exist_ok=True)
    (folder / "proc/stat").write_text(f"{line}\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    return folder


def test_where_a_runs_time_went(ring, tmp_path):
    """Catches time of earlier runs counted in, a stolen CPU unseen, and guest time counted twice."""
    put(ring, 60)
    ring.done = 20
    ring.times = Times(batches=5, host_ns=10**9, device_ns=10**9, longest_host_ns=10**9)
    watch = Stopwatch([ring], proc(tmp_path, "cpu 100 0 100 800 0 0 0 0 50 0"))
    ring.times = Times(9, host_ns=1_008_000_000, device_ns=1_020_000_000, longest_host_ns=5_000_000)
    ring.done = 60
    proc(tmp_path, "cpu 150 0 100 830 0 0 0 20 99 0")
    breakdown = watch.breakdown(0.04, Pauses())
    assert (breakdown.batch, breakdown.host_ms, breakdown.device_ms, breakdown.longest_host_ms) == (
        10,
        2,
        5,
        5,
    )
    assert breakdown.device_busy == pytest.approx(0.5)
    assert breakdown.stolen == pytest.approx(0.2)
    assert "20.0% of the CPUs' time stolen" in str(breakdown)


def test_a_kernel_that_does_not_tell_stolen_time(ring, tmp_path):
    """Catches a run called undisturbed because nobody looked."""
    assert cpu_ticks(tmp_path) == (0, 0)
    assert cpu_ticks(proc(tmp_path, "cpu 1 2 3 4")) == (0, 0)
    assert Stopwatch([ring], tmp_path).breakdown(1, Pauses()).stolen is None


def test_the_worker_counts_its_batches(ring):
    """Catches a device called busy while it had nothing to do, and batches not counted."""
    batches(ring, [("put", 1), ("finish", 0), ("wait", 0)])
    times = ring.times
    assert times.batches == 2 and times.host_ns >= times.longest_host_ns > 0
    assert times.device_ns >= times.longest_device_ns > 0


def test_a_worker_that_was_stopped_says_so(ring):
    """Catches late queries put on the device where the worker's process was away."""

    class Away(Device):
        def finished(self, slot: int) -> bool:
            if self.script:
                time.sleep(0.05)
            return super().finished(slot)

    put(ring, 1)
    serve(ring, Away(ring, [("put", 1)]), hold_s=0, poll_s=0, wanted=lambda: True)
    assert ring.times.longest_round_ns >= 50_000_000
    Stopwatch([ring])
    assert ring.times.longest_round_ns == 0


def test_loadgens_own_pauses():
    """Catches a pause of LoadGen's process put on the GPU, and the time before the first query counted."""
    pauses = Pauses()
    time.sleep(0.01)
    pauses.ask.tick()
    assert pauses.ask.longest_ns == 0
    time.sleep(0.03)
    pauses.ask.tick()
    pauses.ask.tick()
    assert pauses.ask.longest_ns >= 30_000_000
    pauses.look.tick()
    assert pauses.look.longest_ns == 0


class Cycle:
    """Something that only a collection frees."""

    def __init__(self) -> None:
        self.me = self


def collections_in(action) -> list[int]:
    """Return the generations collected meanwhile."""
    seen: list[int] = []
    note = lambda phase, info: seen.append(info["generation"]) if phase == "start" else None  # noqa: E731
    gc.callbacks.append(note)
    try:
        action()
    finally:
        gc.callbacks.remove(note)
    return seen


def make_garbage() -> None:
    """Enough for a collection."""
    for _ in range(20_000):
        Cycle()


def test_no_collection_while_queries_are_timed(monkeypatch, tmp_path):
    """Catches a pause in which LoadGen's process answers nothing, put on the GPU as late queries."""
    assert collections_in(make_garbage), "this test sees no collection at all"
    rings, seen = [], []
    harness = Harness(rings, [], samples=1)
    monkeypatch.setattr(lg, "StartTestWithLogSettings", lambda *_: seen.extend(collections_in(make_garbage)))
    monkeypatch.setattr(
        "loadgen_harness.harness.Stopwatch", lambda _: SimpleNamespace(breakdown=lambda *_: None)
    )
    harness.run(ServerRun(1, 15, 0.99, 1, 1, 1), tmp_path)
    assert not seen
    assert gc.isenabled()


def test_no_collection_while_a_worker_serves(monkeypatch, tmp_path, ring):
    """Catches the same in the worker, whose process holds PyTorch's objects too."""
    seen: list[bool] = []
    monkeypatch.setattr("loadgen_harness.workers.serve", lambda *_, **__: seen.append(gc.isenabled()))
    settings = {"model": "tiny", "device": "cpu", "samples": 1, "max_batch": 1, "pace_us": 1, "hold_ms": 1}
    settings |= {"poll_us": 1}
    work(0, ring.name, str(tmp_path / "notes"), settings)
    assert seen == [False]


def test_gpus_are_watched_by_uuid(tmp_path, monkeypatch):
    """Catches: other cards watched than a job has, by CUDA_VISIBLE_DEVICES, MIG or a cgroup."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\necho "$1"\nexec sleep 30\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    file = tmp_path / "gpu.csv"
    with GpuWatch(file, ["GPU-b", "GPU-a"]) as watch:
        until = time.monotonic() + 10
        while not file.stat().st_size and time.monotonic() < until:
            time.sleep(0.02)
    assert file.read_text() == "--id=GPU-b,GPU-a\n" and not watch.problem

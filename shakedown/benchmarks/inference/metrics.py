"""The search for inference's peak: what LoadGen itself said in the confirming runs, and nothing else.

Also whether the GPUs lowered their clocks meanwhile, and what the report draws of it."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import Field, model_validator

from shakedown.benchmarks.base.contract import JobSettings, Output, Program, Read, Value
from shakedown.benchmarks.base.output import of_documents
from shakedown.benchmarks.gpu.output import parse_query
from shakedown.benchmarks.gpu.state import SLOWDOWNS
from shakedown.benchmarks.inference.output import LoadGenResult, parse_loadgen
from shakedown.benchmarks.inference.peak import FIELDS, data_rate_gb_per_s
from shakedown.records.base import Better, Name, Record, shape
from shakedown.records.reading import BadInput
from shakedown.records.results import Measurement
from shakedown.records.wording import BLAMES

_SHA256 = shape(
    r"^[0-9a-f]{64}$", "64 digits of 0-9 and a-f as sha256sum prints them", "0123456789abcdef" * 4
)


class Inference(Record):
    """The search for the peak of ResNet50 behind LoadGen, in the Server scenario."""

    model: Literal["resnet50", "tiny"] = "resnet50"
    device: Literal["cuda", "cpu"] = "cuda"
    # cudnn: half precision. tensorrt: INT8, where its environment has TensorRT 10. Not chosen by what is
    # installed, because the two have different references.
    engine: Literal["cudnn", "tensorrt"] = "cudnn"
    gpus: tuple[int, ...] = Field(min_length=1)  # how many work at once, one search each
    path: Name = "none"
    # The data rate is the rate x bytes per image: a source may give either, so those that have a reference
    # are planned, and at least one must.
    metrics: tuple[Literal["rate", "data_rate"], ...] = Field(default=("rate", "data_rate"), min_length=1)
    latency_ms: float = Field(default=15, gt=0)
    resolution: float = Field(default=0.005, gt=0, lt=0.2)
    probe_s: float = Field(default=5, gt=0)
    # MLPerf's rules for a Server result: 600 s and 270,336 queries.
    confirm_s: float = Field(default=600, gt=0)
    confirm_queries: int = Field(default=270_336, gt=0)
    confirmations: int = Field(default=3, ge=1)
    samples: int = Field(default=1024, gt=0)
    max_batch: int = Field(default=128, gt=0)
    slots: int = Field(default=4, ge=2)  # batches under way on a GPU
    hold_ms: float = Field(default=2, ge=0)
    poll_us: float = Field(default=20, gt=0)
    threads: int = Field(default=8, gt=0)  # that gather a batch's images
    warmup_s: float = Field(default=2, gt=0)
    pace_us: float = Field(default=500, gt=0)  # the tiny model's time for an image
    weights: Program | None = None  # torchvision's ResNet50, a state_dict; None: random
    # What `sha256sum` prints of the weights: an accuracy is that of these weights and no others.
    weights_sha256: Annotated[str, _SHA256] | None = None
    images: Program | None = None  # images.npy, n x 224 x 224 x 3 bytes
    labels: Program | None = None  # labels.npy, n class numbers

    @property
    def dtype(self) -> str:
        """The arithmetic, as references name it."""
        if self.device == "cpu":
            return "float32"
        return "int8" if self.engine == "tensorrt" else "float16"

    @model_validator(mode="after")
    def _consistent(self) -> Inference:
        if (self.images is None) != (self.labels is None) or (self.labels and not self.weights):
            raise ValueError("accuracy needs weights, images and labels together")
        if self.labels and not self.weights_sha256:
            raise ValueError(f"accuracy needs weights_sha256, which sha256sum {self.weights} prints")
        if self.weights_sha256 and not self.weights:
            raise ValueError("weights_sha256 without weights")
        if self.model == "tiny" and (self.device != "cpu" or self.weights):
            raise ValueError("the tiny model runs on the CPU and has no weights")
        if self.engine == "tensorrt" and self.device == "cpu":
            raise ValueError("engine tensorrt needs device cuda and model resnet50")
        # At a rate above the peak by the resolution, the queue grows by that share of the time.
        if self.probe_s < self.latency_ms * 1e-3 / self.resolution:
            raise ValueError(
                f"a probe of {self.probe_s:g} s cannot tell {self.resolution:.1%} at {self.latency_ms:g} ms: "
                f"take {self.latency_ms * 1e-3 / self.resolution:g} s or more"
            )
        return self


class InferenceSettings(JobSettings, Inference):
    """The site's options."""

    former = ("python", "pythonpath")


def throttled(text: str, *, gpus: int, file: str) -> str:
    """Return in words which GPU was throttled and why; empty if none was.

    Raises:
        BadInput: not the watch's output, a GPU that nvidia-smi could not read, or one that was not watched.
    """
    rows = parse_query(text, fields=FIELDS, samples=True, file=file).gpus
    if (watched := len({row["index"] for row in rows})) < gpus:
        return f"{watched} of {gpus} GPUs were watched: throttling would have gone unseen"
    for row in rows:
        active = int(str(row["clocks_event_reasons.active"]), 16)
        if words := [name for bit, name in SLOWDOWNS.items() if active & bit]:
            return (
                f"GPU {row['index']} was throttled, {' and '.join(words)}, at {row['clocks.sm']} MHz, "
                f"{row['temperature.gpu']} degC, {row['power.draw']} W"
            )
    return ""


# The least cosine of an INT8 engine's scores with half precision's, at which the harness too starts; and what
# rounding leaves of the largest that can be. Two recorded engines agreed to 0.9998.
_LEAST_AGREEMENT, _COSINE = 0.99, 1.001
_AGREEMENT = "agreement of its INT8 scores with half precision's"
_SUMMARY = re.compile(r"loadgen\.g[0-9]{1,4}\.[0-9]{2,4}\.txt\Z")
_LARGEST_WATCH = 64 << 20


def inference(output: Output[Inference]) -> Iterator[Value]:
    """Yield rate, data rate and 99 % latency at the peak, and accuracy where it was measured.

    A rate counts if as many full runs as planned are VALID at it under the planned bound, and no full run
    failed at it or below: all of that is read from LoadGen's summaries, not from the search's own account.
    """
    order, file = output.order, output.file
    document = _document(output.text, file)
    gpus = output.record.params.get("gpus")
    if document.get("peak_qps") is None:
        raise BadInput(
            f"no peak: {str(document.get('reason'))[:300]}{_own_pauses(document, order)}",
            fix="see the journal of probes",
            file=file,
        )
    good, bad = _confirmations(document, output)
    target = float(document["peak_qps"])
    if any(result.target_qps <= target * (1 + 1e-6) for result in bad):
        raise BadInput(f"a full run failed at {target:g} queries/s or below", file=file)
    mine = [result for result in good if abs(result.target_qps - target) <= target * 1e-6]
    if len(mine) < order.confirmations:
        raise BadInput(
            f"{len(mine)} of {order.confirmations} confirming runs are VALID at {target:g}", file=file
        )
    if order.device == "cuda":
        watch = f"gpu.g{gpus}.csv"
        text = output.folder.text(watch)[:_LARGEST_WATCH]
        if found := throttled(text, gpus=int(str(gpus)), file=watch):
            raise BadInput(
                found, fix="mend the cooling or power, then repeat", file=output.folder.path / watch
            )
    workers = _workers(document, output, int(str(gpus)))
    wrong = _wrong_answers(workers, order.engine, int(str(gpus)), file)
    rates = tuple(0.0 if wrong else result.completed_samples_per_s or 0.0 for result in mine)
    gb_per_s = tuple(data_rate_gb_per_s(rate, order.model) for rate in rates)
    p50, p90, p99 = (max(r.percentile_ns(p) or 0 for r in mine) / 1e6 for p in (50.0, 90.0, 99.0))
    weights = "random weights: a rate, no accuracy" if not order.weights else "weights from file"
    engine = "TensorRT, INT8; " if order.engine == "tensorrt" else ""
    told = wrong or (
        f"p50 {p50:.2f}, p90 {p90:.2f}, p99 {p99:.2f} ms, worst of {len(mine)} full runs; {engine}{weights}"
        f"{_own_pauses(document, order)}"
    )
    yield Read("rate", statistics.median(rates), "queries/s", Better.HIGHER, {}, told, rates)
    yield Read("data_rate", statistics.median(gb_per_s), "GB/s", Better.HIGHER, {}, told, gb_per_s)
    yield "latency_p99", p99, "ms", Better.LOWER, {}, told
    if order.labels:
        _weights_as_planned(workers, output)
        accuracy, silent = _accuracy(workers, int(str(gpus)))
        yield "accuracy", accuracy, "%", Better.HIGHER, {}, silent


def _finite(found: object) -> TypeGuard[float]:
    return isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)


def _wrong_answers(workers: list[dict[str, Any]], engine: str, gpus: int, file: Path) -> str:
    """Say which worker's INT8 scores are not those of half precision: a rate of wrong answers is none.

    Raises BadInput: a worker of another engine than planned, or one that tells no agreement.
    """
    told: list[tuple[float, str]] = []
    for worker in workers:
        said, who = worker.get("engine"), str(worker.get("worker"))[:8]
        known: dict[str, Any] = said if isinstance(said, dict) else {}
        if (name := known.get("name", "cudnn")) != engine:
            raise BadInput(f"worker {who} ran engine {str(name)[:32]}, planned {engine}", file=file)
        if engine == "tensorrt":
            if not _finite(agreed := known.get("agreement")) or abs(agreed) > _COSINE:
                raise BadInput(f"worker {who} tells no {_AGREEMENT}", file=file)
            told.append((agreed, who))
    silent = [str(n) for n in range(gpus) if str(n) not in [who for _, who in told]]
    if engine == "tensorrt" and silent:
        raise BadInput(f"worker {', '.join(silent[:8])} tells no {_AGREEMENT}", file=file)
    least, worst = min(told, key=lambda one: one[0], default=(1.0, ""))
    if least >= _LEAST_AGREEMENT:
        return ""
    return (
        f"worker {worst}'s INT8 scores agree with half precision's to {least:.4g}, wanted "
        f"{_LEAST_AGREEMENT}: its answers are wrong, and none counts"
    )


def _accuracy(workers: list[dict[str, Any]], gpus: int) -> tuple[float | None, str]:
    """Return the least accuracy of all workers, one a GPU; None if one told none, and which."""
    told = [
        (worker.get("worker"), float(found)) for worker in workers if _finite(found := worker.get("accuracy"))
    ]
    silent = [str(n) for n in range(gpus) if n not in [worker for worker, _ in told]]
    if silent:
        return None, f"no accuracy of worker {', '.join(silent[:8])}, of {gpus}"
    return min(accuracy for _, accuracy in told), ""


def ran_on(output: Output[Inference]) -> Iterator[str]:
    """Yield what CUDA calls each worker's GPU, and its UUID; older harnesses said the UUID alone."""
    if output.order.device == "cuda":
        document = json.loads(output.text)
        for worker in _workers(document, output, int(str(document["gpus"]))):
            yield from (str(worker[key])[:100] for key in ("gpu", "uuid") if worker.get(key))


def _workers(document: dict[str, Any], output: Output[Inference], gpus: int) -> list[dict[str, Any]]:
    """Return what the workers said: in the search's document, and each in its own file, if it is there."""
    found = document.get("workers")
    said = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    for name in (f"worker.{n}.json" for n in range(gpus)):
        if output.folder.holds(name):
            try:
                own = json.loads(output.folder.text(name))
            except ValueError as error:
                raise BadInput(f"no JSON: {error}", file=output.folder.path / name) from None
            if not isinstance(own, dict):
                raise BadInput("not what a worker found", file=output.folder.path / name)
            said.append(own)
    return said


def _weights_as_planned(workers: list[dict[str, Any]], output: Output[Inference]) -> None:
    """Refuse an accuracy of other weights than planned, or of weights that a worker did not name."""
    wanted = output.order.weights_sha256
    for worker in workers:
        if (found := worker.get("weights_sha256")) != wanted:
            raise BadInput(
                f"worker {worker.get('worker')} had weights of sha256 {str(found)[:64]}, planned {wanted}",
                fix="give the planned weights, or their checksum in acceptance.inference",
                file=output.file,
            )


def _own_pauses(document: dict[str, Any], order: Inference) -> str:
    """Say if full runs missed the bound while LoadGen's own process stood still: the GPU was not late."""
    pauses: list[float] = []
    for run in document["runs"]:
        spent = run.get("spent")
        if run.get("kind") == "confirm" and run.get("valid") is False and isinstance(spent, dict):
            found = [spent.get("longest_ask_ms"), spent.get("longest_look_ms")]
            pauses.append(max((float(x) for x in found if isinstance(x, int | float)), default=0.0))
    late = [pause for pause in pauses if pause > order.latency_ms]
    if not late:
        return ""
    told = BLAMES["host-stood-still"].told(some=len(late), all=len(pauses), ms=f"{max(late):.0f}")
    return f"; {told}"


def _confirmations(
    document: dict[str, Any], output: Output[Inference]
) -> tuple[list[LoadGenResult], list[LoadGenResult]]:
    """Return the full runs that LoadGen calls VALID under the planned bound, without an error, and others."""
    good: list[LoadGenResult] = []
    bad: list[LoadGenResult] = []
    for run in document["runs"]:
        if run.get("kind") != "confirm" or "valid" not in run:
            continue
        if not _SUMMARY.match(str(run.get("file"))):
            raise BadInput("a run names no summary", file=output.file)
        summary = output.folder.path / run["file"]
        result = parse_loadgen(output.folder.text(run["file"]), file=summary)
        _as_planned(result, output.order, summary)
        (good if result.good else bad).append(result)
    return good, bad


def _as_planned(result: LoadGenResult, order: Inference, file: Path) -> None:
    """Refuse a summary that was made under easier terms than planned."""
    bound_ns = round(order.latency_ms * 1e6)
    if result.scenario != "Server" or result.mode != "PerformanceOnly":
        raise BadInput(f"{result.scenario} {result.mode} is no Server performance run", file=file)
    if result.target_latency_ns != bound_ns:
        raise BadInput(f"the latency bound was {result.target_latency_ns} ns, planned {bound_ns}", file=file)
    if result.min_duration_ms < order.confirm_s * 1e3 or result.min_query_count < order.confirm_queries:
        raise BadInput("a confirming run was shorter than planned", file=file)
    if result.valid and (result.percentile_ns(99.0) or 0) > bound_ns:
        raise BadInput("LoadGen calls a run VALID whose 99 % latency is above the bound", file=file)


def _document(text: str, file: Path) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise BadInput(f"no JSON: {error}", file=file) from None
    if (
        not isinstance(document, dict)
        or document.get("schema") != 1
        or not isinstance(document.get("runs"), list)
        or not all(isinstance(run, dict) for run in document["runs"])
    ):
        raise BadInput("not the document of a search", file=file)
    return document


INFERENCE_TEST = "resnet50_server"


@dataclass(frozen=True)
class BatchTime:
    """Where the time of a full run went, per batch; `device_busy` is the share of the time, 0 to 1."""

    images: int
    host_ms: float
    device_ms: float
    device_busy: float


@dataclass(frozen=True)
class SearchDetail:
    """What one search says beyond its peak: images/s without copies, and the slowest full run's batches."""

    node: str
    gpus: int
    network_qps: float
    batch: BatchTime | None


def read_searches(run: Path, measurements: Iterable[Measurement]) -> tuple[SearchDetail, ...]:
    """Return what the searches of the run hold; files that cannot be read are passed over."""
    return of_documents(
        run,
        measurements,
        INFERENCE_TEST,
        lambda m, found: [
            SearchDetail(m.nodes[0], int(m.params["gpus"]), _network_qps(found), _batch(found))
        ],
    )


def _network_qps(document: Mapping[str, Any]) -> float:
    parts = [worker["profile"] for worker in document["workers"]]
    return sum(float(part["batch"]) / float(part["network_s"]) for part in parts)


def _batch(document: Mapping[str, Any]) -> BatchTime | None:
    """Return where the time of the slowest full run at the peak went; None where that cannot be read."""
    try:
        full = [run for run in document["runs"] if run["kind"] == "confirm" and "spent" in run]
        full = [run for run in full if run.get("target_qps") == document.get("peak_qps")]
        if not full:  # a run from before this was recorded
            return None
        slowest = max(full, key=lambda run: float(run["p99_ms"]))["spent"]
        batch, host, device, busy = (
            float(slowest[key]) for key in ("batch", "host_ms", "device_ms", "device_busy")
        )
        return BatchTime(round(batch), host, device, busy)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
        return None

"""The trainer's rates, loss, lag and traffic, held against the settings, and what a report draws of it."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from shakedown.benchmarks.base.contract import Output, Read, Value
from shakedown.benchmarks.lora import output as run
from shakedown.benchmarks.lora.output import TrainerHeader, TrainerResult, parse_trainer
from shakedown.benchmarks.lora.settings import TrainingSpec
from shakedown.physics import training as physics
from shakedown.records.base import Better, Stage
from shakedown.records.reading import BadInput, open_plain
from shakedown.records.results import Measurement, OutputRecord, RunProblem
from shakedown.run.nic_counters import JobFolder

# Counters of received bytes, best first: a RoCE NIC counts RDMA in its port counters, in words of four
# bytes, and not always in the netdev's; Soft-RoCE and TCP are in the netdev's.
_RECEIVED = (("ib.port_rcv_data", 4), ("netdev.rx_bytes", 1))

# How far the steps' times, each that of its slowest rank, may be from the training's own: they were within
# 2.1 % of it in nine recorded runs, 0.4 s at most.
_CLOCKS, _BETWEEN_S = 0.03, 0.3

# What random weights must lose at least before their first step, of the loss of a guess among all tokens:
# they lost 1.08 to 1.10 times as much in eleven recorded runs.
_GUESSED = 0.75


def lora(output: Output[TrainingSpec]) -> Iterator[Value]:
    """Yield every metric that the job was ordered to measure."""
    spec = output.order
    result = parse_trainer(output.text, file=output.file)
    _as_set(result, output)
    found = [*_rates(result, spec, output.record), *_losses(result, spec), *_ranks(result, spec)]
    if "traffic_share" in spec.metrics and len(output.record.nodes) > 1:
        found.append(_traffic(result, output))
    values = {one.metric: one for one in found}
    yield from (values[metric] for metric in spec.metrics if metric in values)


def trained_on(output: Output[TrainingSpec]) -> Iterator[str]:
    """Yield what the log calls the GPUs."""
    device = parse_trainer(output.text, file=output.file).header.device
    if device is not None and output.order.device == "cuda":
        yield device


def _as_set(result: TrainerResult, output: Output[TrainingSpec]) -> None:
    """Refuse a log of another job than the one that was ordered: an easier one would be faster."""
    header, spec, nodes, file = result.header, output.order, output.record.nodes, output.file
    ordered = {
        "model": spec.label,
        "method": "lora",
        "precision": spec.dtype,
        "parallelism": spec.layout,
        "world_size": len(nodes) * spec.gpus_per_node,
        "sequence_length": spec.sequence_tokens,
        "global_batch_samples": spec.global_batch,
        "micro_batch_samples": spec.micro_batch,
        "steps": spec.steps,
        "lora_rank": spec.lora_rank,
        "seed": spec.seed,
        "learning_rate": spec.learning_rate,
    }
    # A loss is compared with one of real data, so a log must then say that it is of them.
    told = {"weights": spec.weights, "data": spec.data_name}
    ordered |= {
        name: wanted for name, wanted in told.items() if spec.real or getattr(header, name) is not None
    }
    if (shape := physics.SHAPES.get(spec.model)) is not None:
        ordered |= {
            "parameters": shape.parameters,
            "trainable_parameters": shape.lora_parameters_qkvo(spec.lora_rank),
        }
    for name, wanted in ordered.items():
        if (found := getattr(header, name)) != wanted:
            raise BadInput(f"trained with {name} {found}, ordered was {wanted}", file=file)
    if header.resumed_from is not None and not spec.checkpoint_every:
        raise BadInput(f"goes on from step {header.resumed_from}, and no checkpoints were ordered", file=file)
    done = max((step.step for step in result.steps), default=0)
    if done != spec.steps and not run.nonfinite(result.steps):
        raise BadInput(f"{done} of {spec.steps} steps were trained", file=file)
    heard = {step.rank for step in result.steps}
    if (silent := sorted(set(range(header.world_size)) - heard)) and not run.nonfinite(result.steps):
        raise BadInput(
            f"nothing of {', '.join(_named(rank, result) for rank in silent[:3])}, "
            f"{len(heard)} of {header.world_size} ranks told their steps",
            fix="run it again: the slowest may be among the others",
            file=file,
        )
    if odd := _out_of_time(result, spec):
        raise BadInput(odd, fix="run it again: the log is damaged", file=file)
    if set(header.hosts) != set(nodes):
        raise BadInput(f"trained on {', '.join(sorted(set(header.hosts))) or 'no node'}", file=file)


def _out_of_time(result: TrainerResult, spec: TrainingSpec) -> str:
    """Return how the times of the steps contradict those of the whole training; empty if they do not.

    A training with checkpoints may have begun with the steps of a job before it: its own time is of fewer.
    """
    slowest: dict[int, float] = {}
    of_rank_0_s = 0.0
    for step in result.steps:
        slowest[step.step] = max(step.step_time_s, slowest.get(step.step, 0.0))
        of_rank_0_s += step.step_time_s if step.rank == 0 else 0.0
    summary = result.summary
    if summary is None or not slowest:
        return ""
    spent_s, whole_s = sum(slowest.values()), summary.elapsed_s - summary.aside_s
    if not spec.checkpoint_every and abs(spent_s - whole_s) > _CLOCKS * whole_s + _BETWEEN_S:
        return f"{len(slowest)} steps took {spent_s:.4g} s, the training {whole_s:.4g} s"
    if of_rank_0_s:
        rate = summary.samples / of_rank_0_s
        if abs(summary.samples_per_s - rate) > _CLOCKS * rate:
            return (
                f"the summary has {summary.samples_per_s:.4g} samples/s, its samples and time give {rate:.4g}"
            )
    return ""


def _rates(result: TrainerResult, spec: TrainingSpec, record: OutputRecord) -> Iterator[Read]:
    steps = run.steady(result.steps, spec.warmup_steps)
    times = run.step_times_s(steps)
    if not times:
        return
    header = result.header
    told = f"{len(times)} steps after {spec.warmup_steps} of warm-up, {header.world_size} x {header.device}"
    tokens = run.tokens_per_s(steps)
    wrong = _impossible(tokens, spec, header)
    rate = run.samples_per_s(steps)
    yield Read("samples_per_s", rate, "samples/s", Better.HIGHER, {}, told, problem=wrong)
    yield Read("tokens_per_s", tokens, "tokens/s", Better.HIGHER, {}, told, problem=wrong)
    yield Read("step_time", median(times), "s", Better.LOWER, {}, told, problem=wrong)
    yield Read("step_time_p99", run.quantile(times, 0.99), "s", Better.LOWER, {}, told, problem=wrong)
    if result.summary is not None:
        # As published: of the whole program, which loads the model and the data first.
        trained, whole = result.summary.elapsed_s / 60, record.duration_s / 60
        told = (
            f"{result.summary.steps} steps {trained:.4g} min, loading and the rest {whole - trained:.4g} min"
        )
        yield Read("duration", max(trained, whole), "min", Better.LOWER, {}, told)
    peak = spec.peak_tflop_per_s(header.device or "")
    shape = physics.SHAPES.get(spec.model)
    flop = header.flop_per_token
    counted = "matrix products"
    if shape is not None:
        # Until 2026-11-28 trainers counted the embedding's look-up too, and so did the gates of their plans.
        former = 4 * shape.parameters + 6 * shape.layers * spec.sequence_tokens * shape.hidden
        if flop == former:
            counted = "4N + 6Lsd, which counts the embedding"
        else:
            flop = spec.flop_per_token(shape)
    if peak and flop:
        share = physics.mfu(tokens, flop_per_token=flop, gpus=header.world_size, peak_tflop_per_s=peak)
        told = f"{told}; {flop / 1e9:.2f} GFLOP a token ({counted}), {peak:g} TFLOP/s dense"
        yield Read("mfu", 100 * share, "%", Better.HIGHER, {}, told)


def _impossible(tokens_per_s: float, spec: TrainingSpec, header: TrainerHeader) -> RunProblem | None:
    """Return that the rate is more than the peak of the GPUs that the log names gives, where it is known."""
    peak, shape = spec.peak_tflop_per_s(header.device or ""), physics.SHAPES.get(spec.model)
    if not peak or shape is None or spec.dtype == "fp32":
        return None
    flop = spec.flop_per_token(shape)
    most = header.world_size * peak * 1e12 / flop
    if tokens_per_s <= most:
        return None
    message = (
        f"{tokens_per_s:.4g} tokens/s is more than {header.world_size} x {header.device} can: {most:.4g} at "
        f"{flop / 1e9:.4g} GFLOP a token and {peak:g} TFLOP/s"
    )
    return RunProblem(kind="impossible", message=message[:500])


def _losses(result: TrainerResult, spec: TrainingSpec) -> Iterator[Read]:
    curve = run.losses(result.steps)
    what = "" if result.header.weights == "loaded" else "; random weights: it only proves that training works"
    first = next((f"{loss:.3g}" for _, loss in curve if loss is not None), "none")
    done = (
        f"{len(curve)} steps, from {first} at step {curve[0][0]}, learning rate {spec.learning_rate:g}{what}"
    )
    yield Read("final_loss", run.final_loss(result.steps), "loss", Better.LOWER, {}, done)
    bad = run.nonfinite(result.steps)
    told = [f"step {s.step}, rank {s.rank} on {result.header.hosts[s.rank]}" for s in bad]
    unknown = ""
    if not bad:
        anew = result.header.resumed_from is None
        told = run.astray(result.steps, spec.warmup_steps, falls=anew)
        flat, unlearnt = run.unlearnt(result.steps) if anew and not told else (False, "")
        told, unknown = ([unlearnt], "") if flat else (told, unlearnt)
        told = [*_untrained(result, spec), *told]
    counted = None if unknown and not told else float(len(told))
    yield Read("nonfinite_steps", counted, "1", Better.LOWER, {}, "; ".join(told[:4]) or unknown)


def _untrained(result: TrainerResult, spec: TrainingSpec) -> Iterator[str]:
    """Say what no training does: gradients that are all 0, a first loss that random weights cannot have."""
    norms = [s.grad_norm for s in result.steps if s.grad_norm is not None]
    if norms and not any(norms):
        yield "every gradient is 0, so nothing was trained"
    shape, first = physics.SHAPES.get(spec.model), run.losses(result.steps)[0][1]
    if shape is not None and result.header.resumed_from is None and first is not None:
        guessed = math.log(shape.vocabulary)
        if first < _GUESSED * guessed:
            yield f"{first:.3g} at step 1, where random weights guess and have {guessed:.3g}"


def _ranks(result: TrainerResult, spec: TrainingSpec) -> Iterator[Read]:
    steps = run.steady(result.steps, spec.warmup_steps)
    if lag := run.slowest(steps):
        rank = _named(lag.rank, result)
        told = f"slowest is {rank}: its own computing takes {lag.ratio:.2f} times the others'"
        silent = _silent(result, {s.rank for s in steps if s.compute_s is None}, "it computed")
        ratio = None if silent else lag.ratio
        yield Read("rank_skew", ratio, "x", Better.LOWER, {}, silent or told)
    share = run.comm_share(result.steps)
    if share is not None:
        silent = _silent(result, run.without_comm(result.steps), "it waited for communication")
        percent = None if silent else 100 * share
        told = silent or "time lost to communication"
        yield Read("comm_share", percent, "%", Better.LOWER, {}, told)
    if (alone := result.header.alone_step_s) is not None:
        step_s = median(run.step_times_s(steps))
        told = f"a step takes {step_s:.4g} s, its layers on one card without exchange {alone:.4g} s"
        # A layout costs something: what is faster than one card alone was measured on a throttled one.
        percent = max(0.0, 100 * (1 - alone / step_s)) if alone < 1.01 * step_s else None
        yield Read("layout_overhead", percent, "%", Better.LOWER, {}, told)


def _silent(result: TrainerResult, ranks: set[int], what: str) -> str:
    """Say that one of these ranks does not tell how long something took; empty if there is none."""
    return f"{_named(min(ranks), result)} does not tell how long {what}, others do" if ranks else ""


def _named(rank: int, result: TrainerResult) -> str:
    hosts = result.header.hosts
    return f"rank {rank} on {hosts[rank]}" if rank < len(hosts) else f"rank {rank}"


def _traffic(result: TrainerResult, output: Output[TrainingSpec]) -> Read:
    """Return what the nodes' NICs received over what the collectives should have moved, of the worst node."""
    nodes = output.record.nodes
    expected = expected_bytes(result, output.order, len(nodes))
    shares: dict[str, float] = {}
    for node in nodes:
        found = received_bytes(output.folder, node)
        if found is None:
            return Read(
                "traffic_share", None, "x", Better.HIGHER, {}, f"{node} has no counters of received bytes"
            )
        shares[node] = found / expected
    worst = min(shares, key=lambda node: shares[node])
    told = f"{expected / 1e9:.3g} GB expected a node; " + ", ".join(
        f"{node} {share * expected / 1e9:.3g} GB" for node, share in sorted(shares.items())[:16]
    )
    return Read("traffic_share", shares[worst], "x", Better.HIGHER, {}, told)


def expected_bytes(result: TrainerResult, spec: TrainingSpec, nodes: int) -> float:
    """Return what each node's NICs should receive over the whole log."""
    per_step = result.header.expected_node_rx_bytes or 0.0
    if (shape := physics.SHAPES.get(spec.model)) is not None:
        per_step = spec.traffic(shape, nodes).node_bytes
    if not per_step > 0:
        raise BadInput("no traffic between nodes is expected of this job")
    return per_step * len({step.step for step in result.steps})


def received_bytes(folder: JobFolder, node: str) -> float | None:
    """Return what the fabric NICs of a node received over a job, None where no counter tells."""
    try:
        before, after = folder.counters(node)
    except BadInput:
        return None
    total, told = 0.0, False
    for device in before.devices.keys() & after.devices.keys():
        if before.began_anew(after, device):
            return None
        first, last = before.devices[device], after.devices[device]
        for name, unit in _RECEIVED:
            if (name in first) is not (name in last):
                return None  # what it counted meanwhile is not known
            delta = last.get(name, 0) - first.get(name, 0)
            if delta > 0:
                total, told = total + delta * unit, True
                break
    return total if told else None


MOST_LOGS = 8
LARGEST_LOG = 64 << 20


@dataclass(frozen=True)
class TrainingSeries:
    """A curve that a tool wrote itself, such as the training loss by step."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Traffic:
    """What a GPU or node should receive per training step, and what its counters say (None: no counter)."""

    where: str
    expected_bytes: float
    measured_bytes: float | None


@dataclass(frozen=True)
class Training:
    """One training log: loss and rate by step, each rank's lag by (rank, step), traffic."""

    loss: TrainingSeries
    samples_per_s: tuple[float, ...]
    ranks: tuple[str, ...]
    lag: Mapping[tuple[int, int], float]
    traffic: tuple[Traffic, ...]


def read_trainings(folder: Path, measurements: Iterable[Measurement]) -> tuple[Training, ...]:
    """Return every trainer log among the raw outputs of the application stage.

    A log that was cut off is drawn as far as it goes; one that is no trainer log, or a damaged one, is
    passed over: what it means for the verdict was decided when its measurement was judged.
    """
    paths = dict.fromkeys(m.raw for m in measurements if m.stage is Stage.APPLICATION and m.raw)
    found: list[Training] = []
    for path in paths:
        if len(found) == MOST_LOGS:
            break
        try:
            with open_plain(folder / path) as file:
                content = file.read(LARGEST_LOG)
            result = parse_trainer(content.decode(), file=path, allow_truncated=True)
        except (BadInput, UnicodeDecodeError):
            continue
        if any(step.loss is not None for step in result.steps):
            found.append(_training(folder, path, result))
    return tuple(found)


def _training(folder: Path, path: str, result: TrainerResult) -> Training:
    header = result.header
    label = f"{header.model}, {header.method}, {header.precision}, {header.parallelism}"
    ranks = f"{header.world_size:,} rank{'' if header.world_size == 1 else 's'}"
    label += f", {ranks}" if header.device else ""
    told = [step for step in result.steps if step.loss is not None]
    # Where only some ranks report a loss, theirs is the job's; where all do, their mean.
    reporting = {step.rank for step in told}
    curve = run.losses([step for step in result.steps if step.rank in reporting])
    steps = tuple(float(step) for step, _ in curve)
    return Training(
        loss=TrainingSeries(label, steps, tuple(math.nan if loss is None else loss for _, loss in curve)),
        samples_per_s=tuple(
            ranks[0].samples / max(s.step_time_s for s in ranks)
            for ranks in run.by_step(result.steps).values()
        ),
        ranks=tuple(
            f"rank {rank}" + (f", {header.hosts[rank]}" if len(header.hosts) == header.world_size else "")
            for rank in range(header.world_size)
        ),
        lag=run.lag_by_step(result.steps),
        traffic=tuple(_traffic_drawn((folder / path).parent, result)),
    )


def _traffic_drawn(job: Path, result: TrainerResult) -> Iterable[Traffic]:
    """Yield what each GPU and each node should have received per step, and what its counters say."""
    header = result.header
    count = len({step.step for step in result.steps}) or 1
    if header.expected_gpu_rx_bytes:
        links = [step.nvlink_rx_bytes for step in result.steps if step.nvlink_rx_bytes is not None]
        yield Traffic("each GPU, all links", header.expected_gpu_rx_bytes, fmean(links) if links else None)
    if header.expected_node_rx_bytes:
        for node in sorted(set(header.hosts)):
            received = received_bytes(JobFolder(job), node)
            measured = None if received is None else received / count
            yield Traffic(f"{node}, fabric NICs", header.expected_node_rx_bytes, measured)

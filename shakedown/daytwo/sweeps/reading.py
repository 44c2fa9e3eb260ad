"""The edge of a comparison of sweeps: one run's raw files of nccl-tests and PyTorch, as one side.

Everything is read from the tools' own outputs by the readers that the verdict rests on; results.jsonl, which
holds either time or busbw of a size, is not looked at.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from shakedown.benchmarks.base.contract import Output
from shakedown.benchmarks.gpu.metrics import power
from shakedown.benchmarks.gpu.state import disturbed, parse_gpu_look
from shakedown.benchmarks.nccl.log import parse_nccl_log
from shakedown.benchmarks.nccl.metrics import (
    deciding,
    planned_rows,
    repeats,
    server_power,
    wrong_elements,
    wrong_somewhere,
)
from shakedown.benchmarks.nccl.output_model import NcclResult, NcclRow
from shakedown.benchmarks.nccl.settings import NcclSettings
from shakedown.benchmarks.registry import JOB_KINDS
from shakedown.benchmarks.torch_collectives.output import TorchRow, TorchSettings, as_set
from shakedown.daytwo.sweeps.pairs import Combination, Draw, OperationSweep, Repeats, SweepSide, of_network
from shakedown.evidence.job_folder import journal
from shakedown.physics.collectives import Collective, busbw_gb_per_s
from shakedown.plan.jobs import JobSpec, job_and_attempt
from shakedown.records.base import Params
from shakedown.records.plan import Plan
from shakedown.records.reading import BadInput, read_evidence, read_record
from shakedown.records.results import JobRecord, OutputRecord
from shakedown.records.wording import number
from shakedown.run.folder import INVENTORY, JOBS, RAW, Run
from shakedown.run.nic_counters import JobFolder
from shakedown.run.redact import redact

# PyTorch's sweeps have no limit of their own: that of nccl-tests unless a site says otherwise.
_SHORT_BELOW_BYTES = 1 << 20
_OPTIONS = {"iterations": "iterations", "warmup": "warm-up iterations", "repeats": "repeats"}


OrderT = TypeVar("OrderT")


def read_side(name: str, folder: Path, network: str = "") -> SweepSide:
    """Read the collectives that a run measured over one network.

    Args:
        name: of the side.
        folder: of the run.
        network: the TCP fabric; none: the RoCE fabric, or the only one that the run measured.

    Raises BadInput: no run folder, plan, jobs or a job's own records that cannot be read, or a run without
    collectives. An output that cannot be read is no such error: its sizes get the reason.
    """
    run = Run(folder)
    jobs = run.planned_jobs
    notes: list[str] = []
    sweeps: list[OperationSweep] = []
    watts: dict[str, dict[str, float]] = {}
    for spec in jobs.jobs:
        read = _SWEEPS.get(spec.kind)
        if read is None:
            continue
        try:
            order = JOB_KINDS[spec.kind].order(spec.settings)
            if isinstance(order, NcclSettings) and order.server_power:
                loads = _watts(order, _Attempt(folder, run.plan, spec, notes))
                watts.setdefault(order.network, {}).update(loads)
                continue
            sweeps += read(spec, order, _Attempt(folder, run.plan, spec, notes))
        except ValueError:
            raise BadInput(
                f"the settings of job {spec.name} are not those of {spec.kind}",
                fix="restore the run's own",
                file=folder / JOBS,
            ) from None
    if not sweeps:
        raise BadInput(
            "the run planned neither nccl-tests nor PyTorch's collectives",
            fix="name a run with a collective stage",
            file=folder,
        )
    network, sweeps = of_network(sweeps, network, folder, notes)
    keys = [(sweep.combination, sweep.nodes) for sweep in sweeps]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise BadInput(
            f"two jobs measure {twice[0]} on {', '.join(twice[1])}",
            fix="restore the run's own",
            file=folder / JOBS,
        )
    plan, inventory = run.plan, run.inventory
    if inventory is not None and inventory.run != plan.run:
        raise BadInput(f"is of run {inventory.run!r}", fix="restore the run's own", file=folder / INVENTORY)
    return SweepSide(
        name,
        plan.run,
        plan.system,
        plan.created,
        tuple(sweeps),
        inventory,
        tuple(notes),
        network,
        plan.profile or "",
        watts.get(network),
    )


class _Attempt:
    """The folder of a job's last attempt and what it holds; `problem` says why its numbers do not count."""

    def __init__(self, folder: Path, plan: Plan, spec: JobSpec, notes: list[str]) -> None:
        self.plan, self.nodes, run = plan, spec.nodes, plan.run
        self.outputs: dict[tuple[str, str], OutputRecord] = {}
        self.notes = notes
        found = {
            attempt: path
            for path in (folder / RAW).glob(f"{spec.name}.a*")
            for name, attempt in [job_and_attempt(path.name)]
            if name == spec.name and attempt
        }
        self.folder = found[max(found)] if found else folder / RAW / f"{spec.name}.a1"
        if self.folder.is_symlink() or (folder / RAW).is_symlink():
            raise BadInput("is reached by a link", fix="copy the folder into the run", file=self.folder)
        if len(found) > 1:
            notes.append(f"{spec.name} ran {len(found)} times: only the last is compared")
        if not (self.folder / "job.json").exists():
            self.problem = "the job was not run, or left no record"
            return
        job = read_record(self.folder / "job.json", JobRecord)
        self.problem = job.problem.message if job.problem else ""
        if not self.problem and job.state != "COMPLETED":
            self.problem = f"Slurm says {job.state}"
        if job.run != run:
            self.problem = f"the job is of run {job.run}, not {run}"
        for output in journal(self.folder):
            operation = str(output.params.get("operation", ""))
            self.outputs[output.test, operation] = output

    def why_not(self, test: str) -> str:
        """Return why a test's output does not count, or an empty string."""
        output = self.outputs.get((test, ""))
        if self.problem or output is None:
            return self.problem or "the job left no output of it"
        return output.problem.message if output.problem else ""

    def output(self, record: OutputRecord, order: OrderT) -> Output[OrderT]:
        """Return an output with what was ordered of it. Raises BadInput."""
        folder = JobFolder(self.folder)
        return Output(folder.text(record.file), record, order, folder)

    def ceiling(self, test: str, params: Params) -> float | None:
        """Return the most busbw, in GB/s, that the run's plan calls possible at any size, or None."""
        found = [
            self.plan.references[item.reference].ceiling
            for item in self.plan.items
            if (item.test, item.metric) == (test, "busbw")
            and self.nodes in item.nodes
            and {k: v for k, v in item.params.items() if k != "size_bytes"} == params
        ]
        return max((limit for limit in found if limit is not None), default=None)

    def said(self, refused: BadInput) -> str:
        """Say what was refused without naming where the run lies."""
        return str(refused).replace(f"{self.folder}/", "")


def _nccl_sweeps(spec: JobSpec, order: NcclSettings, job: _Attempt) -> Iterator[OperationSweep]:
    driver = _driver(job, spec.nodes[0])
    for operation in order.operations:
        test = f"nccl_{operation}"
        facts: dict[str, str] = {}
        points: dict[int, Repeats | str] = {}
        draw = None
        reason = job.why_not(test)
        if not reason:
            try:
                output = job.output(job.outputs[test, ""], order)
                if busy := disturbed(output.folder, {node: range(n) for node, n in order.gpus.items()}):
                    raise BadInput(busy)
                runs = repeats(output)
                facts = _nccl_facts(runs[0])
                draw = _draw(output) if order.power else None
                most = job.ceiling(test, order.params)
                for size, rows in planned_rows(runs, test, order):
                    points[size] = _nccl_point(operation, runs[0].ranks, rows, wrong_somewhere(runs), most)
            except BadInput as refused:
                reason = job.said(refused)
        if reason:
            smallest = order.smallest_bytes(test)
            points = {size: reason for size in order.sizes if size >= smallest}
        facts |= {"way of the data": _way(job, operation), "driver": driver} if facts else {}
        yield OperationSweep(
            Combination("nccl-tests", operation, order.dtype, len(spec.nodes), order.launcher, order.split),
            spec.nodes,
            order.time_below_bytes,
            points,
            facts | _options(spec.settings),
            _variables(order.variables),
            draw,
            order.network,
        )


def _nccl_point(
    operation: str, ranks: int, rows: list[NcclRow], somewhere: int, most: float | None
) -> Repeats | str:
    if any(row.size_bytes == 0 for row in rows):
        return "rounded down to 0 bytes: no data moved"
    if wrong := wrong_elements(rows):
        return f"{wrong} wrong elements"
    if somewhere:
        return f"{somewhere} wrong elements in some size of the run"
    # nccl-tests prints two decimals of busbw, which is nothing for small messages: it is computed again, by
    # nccl-tests' own formula, from the time.
    times = tuple(deciding(row).time_us for row in rows)
    if min(times) <= 0:
        return "a time of 0"
    rates = [
        busbw_gb_per_s(Collective(operation), ranks=ranks, size_bytes=row.size_bytes, time_us=time)
        for row, time in zip(rows, times, strict=True)
        if ranks > 1
    ]
    if most is not None and max(rates, default=0.0) > most:
        return f"{number(max(rates))} GB/s is above the ceiling {number(most)}: a measurement error"
    return Repeats(times, tuple(rates))


def _watts(order: NcclSettings, job: _Attempt) -> dict[str, float]:
    """Return the power of all servers together, in W, by operation and load, where it was read."""
    found: dict[str, float] = {}
    for operation in order.operations:
        test = f"nccl_{operation}"
        if not job.why_not(test):
            read = server_power(job.output(job.outputs[test, ""], order))
            if read.value is not None:
                found[f"{operation} with {order.params.get('size_class', 'one')} messages"] = read.value
    return found


def _draw(output: Output[NcclSettings]) -> Draw | None:
    found = {value[0]: value[1] for value in power(output, output.order.gpus)}
    watts, joules, heat = (found.get(name) for name in ("power", "energy", "temperature"))
    return None if watts is None or joules is None or heat is None else Draw(watts, joules, heat)


def _nccl_facts(result: NcclResult) -> dict[str, str]:
    return {
        "GPU": ", ".join(sorted({device.name for device in result.devices})) or "not reported",
        "ranks": str(result.ranks),
        "NCCL": result.nccl_version or "not reported",
        "nccl-tests": result.version or "not reported",
    }


def _way(job: _Attempt, operation: str) -> str:
    """Say by which transports the data went, from NCCL's log of the measured runs."""
    record = job.outputs.get(("nccl_transport", operation))
    if record is None:
        return "not reported"
    try:
        output = job.output(record, None)
        log = parse_nccl_log(output.text, file=output.file)
    except BadInput as refused:
        job.notes.append(f"the log does not show which way the data went: {job.said(refused)}")
        return "not reported"
    ways = [*sorted(log.transports), *(["NVLink SHARP"] if log.nvls_channels else [])]
    return ", ".join(ways) or "no connection in the log"


def _driver(job: _Attempt, node: str) -> str:
    file = job.folder / f"gpus.{node}.before.json"
    try:
        seen = parse_gpu_look(read_evidence(file).decode("utf-8"), file=file)
    except (BadInput, UnicodeDecodeError):
        return "not reported"
    return ", ".join(sorted({gpu.driver for gpu in seen.gpus})) or "not reported"


def _options(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(settings[key]) for key, name in _OPTIONS.items() if key in settings}


def _variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables as a page may show them, with what looks like a secret hidden."""
    shown = (redact(f"{name}={value}").partition("=") for name, value in variables.items())
    return {name: value for name, _, value in shown}


def _torch_sweeps(spec: JobSpec, order: TorchSettings, job: _Attempt) -> Iterator[OperationSweep]:
    many, large = order.many, order.large_bytes
    for operation in order.operations or ("all_reduce",):
        wanted = {(size, 1) for size in order.sizes if operation in order.operations}
        if many and operation == "all_reduce":
            wanted |= {(large, 1), (large // many, many)}
        reason, facts, rows = job.why_not(f"torch_{operation}"), {}, {}
        if not reason:
            try:
                result = as_set(job.output(job.outputs[f"torch_{operation}", ""], order))
                rows = {(r.size_bytes, r.messages): r for r in result.rows if r.operation == operation}
                header = result.header
                facts = {"ranks": str(header.ranks), "PyTorch": header.torch, "NCCL": header.library}
            except BadInput as refused:
                reason = job.said(refused)
        for messages in sorted({n for _, n in wanted}):
            points = {
                size: _torch_point(rows.get((size, n)), reason) for size, n in sorted(wanted) if n == messages
            }
            yield OperationSweep(
                Combination("PyTorch", operation, "float", len(spec.nodes), order.backend, messages=messages),
                spec.nodes,
                _SHORT_BELOW_BYTES,
                points,
                facts | _options(spec.settings),
                _variables(order.variables),
            )


def _torch_point(row: TorchRow | None, reason: str) -> Repeats | str:
    if row is None:
        return reason or "the output has no such size"
    if row.wrong:
        return f"{row.wrong} wrong elements"
    return Repeats((row.time_us,), (row.busbw_gb_per_s,) if row.busbw_gb_per_s else ())


_SWEEPS: dict[str, Callable[[JobSpec, Any, _Attempt], Iterator[OperationSweep]]] = {
    "nccl": _nccl_sweeps,
    "torch_collectives": _torch_sweeps,
}

"""The state of a node's GPUs, nvbandwidth, and power from the samples of a run."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from shakedown.benchmarks.base.contract import Output, Read, Value
from shakedown.benchmarks.base.output import Deviation
from shakedown.benchmarks.gpu.output import Value as Cell
from shakedown.benchmarks.gpu.output import parse_nvbandwidth, parse_query
from shakedown.benchmarks.gpu.state import (
    NO_FAULTS,
    SLOWDOWNS,
    Gpu,
    GpuLook,
    GpuNodeSettings,
    GpuState,
    disturbed,
    gpu_checks,
    kernel_checks,
    pairs,
    parse_gpu_look,
    read_look,
    reasons,
)
from shakedown.onnode.gpus import FRONT
from shakedown.physics.host_links import by_driver_name
from shakedown.records.base import Better, Params
from shakedown.records.reading import BadInput, complete_lines, read_as, read_evidence
from shakedown.records.results import OutputRecord, RunProblem
from shakedown.run.nic_counters import JobFolder

# A driver that is asked for many GPUs, and is busy, answers later than every 0.2 s.
_PAUSE_S = 2.0
_Seen = list[tuple[float, float]]  # seconds from an output's beginning, and what a GPU showed then


def gpu_state(output: Output[GpuNodeSettings]) -> Iterator[Value]:
    """Yield 0 or 1 for each check of each GPU; no value where the driver does not tell."""
    node = output.node
    wanted, planned = output.order.state, output.order.gpus[node]
    seen = parse_gpu_look(output.text, file=output.file)
    if seen.node != node:
        raise BadInput(f"this is {seen.node}, {node} was planned", file=output.file)
    lower = Better.LOWER
    found, said = len(seen.gpus), "; ".join(seen.warnings)[:400]
    text, lost = f"{found} GPUs, {planned} planned", "; ".join(seen.lost)[:400]
    wrong = found != planned or bool(lost)
    warned = f"nvidia-smi warns: {said}" if said and not wrong else ""
    text += f", nvidia-smi says: {lost}" if lost else ""
    yield Read("wrong", float(wrong), "1", lower, {"check": "count"}, text, disturbed=warned)
    yield from _kernel_log(output, seen)
    loads, unseen = _loads(output.folder, node), _unseen_under_load(output.folder, node, planned)
    for gpu in seen.gpus:
        if gpu.index >= planned:
            continue
        links = _links(seen, gpu.index)
        for finding in judge_gpu(gpu, wanted, loads.get(gpu.index), links, unseen.get(gpu.index, "")):
            yield finding.read({"gpu": gpu.index})
    for index in sorted({*range(planned)} - {gpu.index for gpu in seen.gpus}):
        for check in gpu_checks(wanted):
            params: Params = {"check": check, "gpu": index}
            words = f"GPU {index} is not listed {lost and f'({lost})'}"
            yield Read("wrong", None, "1", lower, params, words)


# What programs cause by their own faults: the GPU is well (NVIDIA, k8s-device-plugin, internal/rm/health.go).
OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})
_FRONT, _SINCE_BOOT = re.compile(FRONT), re.compile(r"\[ *([0-9]{1,12}\.[0-9]{1,9})\]")
_XID = re.compile(r"NVRM: Xid \([^)]*\): ([0-9]{1,4})")
# Words that stand together in a line of hardware that failed. An expression with `.*` between them would take
# quadratic time over a line that repeats the first.
_BROKEN = (
    ("SXid", ", Fatal"),
    ("EDAC", " UE "),
    ("AER: ", "(Fatal)"),
    ("PCIe Bus Error: ", "(Fatal)"),
    ("[Hardware Error]: event severity: fatal",),
    ("uncorrectable hardware errors",),  # of an AMD GPU
    ("health compromised",),  # a NIC whose firmware does not answer
    (": High temperature",),
    ("Port module event[error]", "High Temperature"),
    ("Chip temperature has gone above",),
    ("NVRM: ", "RmInitAdapter failed"),  # a GPU that its driver could not start, or lost, with no Xid
    ("NVRM: ", "fallen off the bus"),
    ("NVRM: ", "global fatal error"),
    ("DPC: containment event",),  # the port cut its link off
    ("mlx5_core", "Fatal error"),
    ("mlx5_core", "firmware internal error"),
    ("firmware fatal error",),  # bnxt
    ("Machine Check Exception",),
    ("[Hardware Error]: Uncorrected",),
    ("mce: Uncorrected ",),
    ("Memory failure: ",),
    ("NVRM: ", "Heartbeat timed out"),  # the GPU's own processor (GSP)
    ("NVRM: ", "GSP-CrashCat Report"),
    ("mlx5_core", " timeout. Will cause a leak"),
    ("Firmware not responding",),
    ("bnxt_en", "TX timeout detected"),
    ("amdgpu", "RAS poison"),
    ("amdgpu", "GPU reset("),
    ("AER: device recovery failed",),
)
_NUMBERS = re.compile(r"0x[0-9a-f]+|[0-9]+")


# What a kernel's clock and the system's differ by at most: a line's age is known no better after months.
_DRIFT = 1e-4


@dataclass(frozen=True)
class KernelLine:
    """A line of a kernel's log that tells of hardware."""

    text: str
    age_s: float | None  # when the log was read; None: not known
    earlier: bool  # it was logged before the job began

    @property
    def xid(self) -> int | None:
        """The number of an Xid; None: the line is none."""
        found = _XID.match(self.text)
        return int(found[1]) if found else 0 if self.text.startswith("NVRM: Xid") else None

    @property
    def counts(self) -> bool:
        """Whether it tells of what failed. What was corrected, or a program's of before the job, is told."""
        if self.xid is None:
            return any(all(word in self.text for word in words) for words in _BROKEN)
        return self.xid not in OF_PROGRAMS or not (self.earlier or self.age_s is None)

    def __str__(self) -> str:
        """The line, and how long ago it was."""
        return self.text if self.age_s is None else f"{self.text} ({self.age_s / 3600:.1f} h before the end)"


def _lost(begin: GpuLook | None, end: GpuLook) -> str:
    """Say that a log has lost lines of the job itself: it went round in a storm, or somebody cleared it."""
    read_s = begin and begin.kernel_from_s is not None and begin.kernel_read_s
    later = read_s and (end.kernel_from_s is None or end.kernel_from_s > read_s)
    had = begin and begin.kernel
    if later or (had and not set(had) & set(end.kernel or ())):
        return "the kernel log lost lines since the job began: an error may have been among them"
    if end.strange_lines:
        return f"{end.strange_lines} lines of the kernel log hold an Xid or SXid in a form that is not known"
    return ""


def _lines(begin: GpuLook | None, seen: GpuLook) -> Iterator[KernelLine]:
    """Yield what tells of hardware. Earlier is what the log had as the job began, or is older than it."""
    now_s = seen.kernel_read_s
    had = Counter(begin.kernel or ()) if begin else Counter[str]()
    known = begin is not None and begin.taken is not None and seen.taken is not None
    took_s = (seen.taken - begin.taken).total_seconds() if known else 0.0  # type: ignore[union-attr, operator]
    gone = had - Counter(seen.kernel)  # the log goes round, or somebody has cleared it
    for line in (*gone.elements(), *(seen.kernel or ())):
        front = match[0] if (match := _FRONT.match(line)) else ""
        stamp, text = _SINCE_BOOT.search(front), line[len(front) : 2000].lstrip()
        age_s = None if stamp is None or now_s is None else max(0.0, now_s - float(stamp[1]))
        older = age_s is not None and now_s is not None and age_s > took_s + _DRIFT * now_s
        yield KernelLine(text, age_s, older or had[line] > 0)
        had[line] -= line not in gone


def _kernel_log(output: Output[GpuNodeSettings], seen: GpuLook) -> Iterator[Value]:
    """Yield how many errors of the driver, and of other hardware, the node's kernel has in its log."""
    checks, lower = kernel_checks(output.order.state), Better.LOWER
    if seen.kernel is None:
        # No fault of the node: this site shows the log to root alone, and has no service that reads it.
        why = RunProblem(kind="not-run", message=f"the kernel log cannot be read: {seen.no_kernel}")
        for check in checks:
            yield Read("wrong", None, "1", lower, {"check": check}, problem=why)
        return
    found: dict[str, list[KernelLine]] = {check: [] for check in checks}
    unasked: list[str] = []
    name = f"gpus.{seen.node}.before.json"
    begin = output.folder.once(read_look, name) if output.folder.holds(name) else None
    lost = _lost(begin, seen)
    for line in _lines(begin, seen):
        if (check := "hardware" if line.xid is None else "xid") in checks:
            found["earlier" if line.earlier and "earlier" in checks else check].append(line)
        elif line.counts:
            unasked.append(str(line))
    for check, lines in found.items():
        what, when, of_told = _TOLD[check]
        bad, told = ([line for line in lines if line.counts is counts] for counts in (True, False))
        what = what.removesuffix("s") if len(bad) == 1 else what
        text = f"{len(bad)} {what}{when}: {'; '.join(map(str, bad[:3]))}"
        # One of each kind: many corrected errors hide no slot that gives a NIC too little power.
        kinds = {_NUMBERS.sub("", line.text): line for line in told}
        text += f"; {len(told)} {of_told}: {'; '.join(map(str, [*kinds.values()][:3]))}" if told else ""
        doubt = lost if check != "earlier" and not bad else ""
        if unasked and "earlier" in checks:
            text += f"; not asked for: {'; '.join(unasked[:3])}"
        elif unasked and not bad:  # by an order of earlier releases
            doubt = f"the kernel log tells of {unasked[0]}, which this order did not ask for"[:500]
        yield Read("wrong", float(len(bad)), "1", lower, {"check": check}, text, disturbed=doubt)


# By check: what counts, and what is only told.
_TOLD = {
    "xid": ("Xid", "", "of programs, not known to be this job's"),
    "hardware": ("errors", "", "told, no failure"),
    "earlier": ("errors", " before the job", "of programs, or corrected: told, no failure"),
}


@dataclass(frozen=True, slots=True)
class Load:
    """What samples under load showed of one GPU."""

    pcie_generation: int | None
    pcie_width: int | None
    slowdown: int | None  # all reasons that appeared, or-ed
    samples: int


def judge_gpu(
    gpu: Gpu,  # what the driver says after the load
    wanted: GpuState,  # the site's `GpuState`
    load: Load | None,  # what it showed under load; None: nothing was sampled
    links: tuple[str, ...] | None,  # `nvidia-smi topo -m` between this GPU and the others
    # Why the samples do not tell what slowed it under load; empty: they do, or there was no load.
    unseen: str = "",
) -> Iterator[Deviation]:
    """Yield the finding of every check that is wanted of a GPU."""

    def found(check: str, ok: bool | None, text: str) -> Deviation:
        untold = f" ({gpu.unread})" if ok is None and gpu.unread else ""
        return Deviation(check, None if ok is None else int(not ok), text + untold)

    if wanted.model is not None:
        model = by_driver_name(gpu.name)
        text = f"the driver calls it {gpu.name}, {wanted.model} wanted"
        yield found("model", model is not None and model.name == wanted.model, text)
    generation, width = wanted.pcie_generation, wanted.pcie_width
    if generation is not None or width is not None:
        seen = (load.pcie_generation, load.pcie_width) if load else (None, None)
        due = [(has, want) for has, want in zip(seen, (generation, width), strict=True) if want is not None]
        text = f"PCIe Gen{seen[0]} x{seen[1]} under load" if load else "the link was not seen under load"
        told = [(has, want) for has, want in due if has is not None]
        wish = f", Gen{generation} x{width} wanted"
        known = load is not None and len(told) == len(due)
        yield found("pcie", all(has >= want for has, want in told) if known else None, text + wish)
    if (links_wanted := wanted.nvlinks) is not None:
        rates, rate = gpu.nvlinks_gb_per_s, wanted.nvlink_gb_per_s
        slow = [r for r in rates or () if rate is not None and r < 0.99 * rate]
        text = (
            f"nvidia-smi does not tell the NVLinks{' of a GPU in MIG mode' if gpu.mig else ''}"
            if rates is None
            else (
                f"{len(rates)} NVLinks are active, {wanted.nvlinks} wanted"
                + (f"; {len(slow)} slower than {rate} GB/s" if slow else "")
            )
        )
        yield found("nvlink", None if rates is None else len(rates) >= links_wanted and not slow, text)
    if wanted.mig:
        state = {True: "on", False: "off", None: "not told"}[gpu.mig]
        yield found("mig", None if gpu.mig is None else not gpu.mig, f"MIG is {state}")
    if wanted.fabric:
        text = "the state of the NVLink fabric is not told" if gpu.fabric is None else gpu.fabric
        yield found(
            "fabric", None if gpu.fabric is None else not gpu.fabric, text or "the fabric is up, or none"
        )
    if wanted.topology is not None:
        other = sorted({link for link in links or () if link != wanted.topology})
        text = f"linked by {', '.join(other) or wanted.topology}, {wanted.topology} wanted"
        text = text if links is not None else "no topology that can be read was printed"
        yield found("topology", None if links is None else not other, text)
    if (by_gpu := wanted.numa) is not None:
        want = by_gpu[gpu.index] if gpu.index < len(by_gpu) else None
        unknown = gpu.numa is None or gpu.numa < 0 or want is None
        yield found("numa", None if unknown else gpu.numa == want, f"NUMA node {gpu.numa}, {want} wanted")
    if wanted.ecc:
        errors = gpu.uncorrectable
        ok = None if gpu.ecc is None or errors is None else gpu.ecc and errors == 0
        state = {True: "on", False: "off", None: "unknown"}[gpu.ecc]
        yield found(
            "ecc", ok, f"ECC is {state}, {'untold' if errors is None else errors} uncorrectable errors"
        )
        flags = (gpu.remap_pending, gpu.remap_failed)
        text = f"row remapping pending: {flags[0]}, failed: {flags[1]}"
        yield found("remapped", None if None in flags else not any(flags), text)
    seen_mask = load.slowdown if load and load.slowdown is not None else gpu.slowdown
    why = [meaning for bit, meaning in SLOWDOWNS.items() if seen_mask is not None and seen_mask & bit]
    later = (seen_mask or 0) & ~(NO_FAULTS | sum(SLOWDOWNS))
    untold = unseen or (f"clocks were slowed for a reason not known here: {later:#x}" if later else "")
    text = f"clocks were slowed by {', '.join(why)}" if why else untold or "no slowdown"
    yield found("slowdown", None if seen_mask is None or (untold and not why) else not why, text)


def _links(seen: GpuLook, index: int) -> tuple[str, ...] | None:
    rows = seen.topology or ()
    for row in (row for row in rows if row.device == f"GPU{index}"):
        ends = zip(rows, row.links, strict=True)
        return tuple(link for other, link in ends if other.device.startswith("GPU") and other is not row)
    return None


def samples_of(folder: JobFolder, node: str) -> tuple[dict[str, Cell], ...]:
    """Return the samples of a node's GPUs; none without such a file. A line cut off at the end is dropped."""
    name = f"gpus.{node}.samples.csv"
    if not folder.holds(name):
        return ()
    text = folder.text(name)
    whole = text[: text.rfind("\n") + 1]
    return _parsed(whole, name) if whole.count("\n") > 1 else ()


@lru_cache(maxsize=8)  # the outputs of a job share its samples
def _parsed(text: str, name: str) -> tuple[dict[str, Cell], ...]:
    return parse_query(text, file=name, samples=True, strict=False).gpus


def _loads(folder: JobFolder, node: str) -> dict[int, Load]:
    """Return what each GPU showed while it was worked."""
    loads: dict[int, Load] = {}
    for row in samples_of(folder, node):
        index = row.get("index")
        if not isinstance(index, int):
            continue
        had, why = loads.get(index, Load(None, None, None, 0)), reasons(row)
        loads[index] = Load(
            _larger(had.pcie_generation, row.get("pcie.link.gen.current")),
            _larger(had.pcie_width, row.get("pcie.link.width.current")),
            had.slowdown if why is None else (had.slowdown or 0) | why,
            had.samples + 1,
        )
    return loads


def _unseen_under_load(folder: JobFolder, node: str, gpus: int) -> dict[int, str]:
    """Return why samples do not tell what some of a node's GPUs did while nvbandwidth worked them, by GPU.

    A clock that was slowed by heat may be none at rest. Nothing is said where nvbandwidth did not run: a node
    whose GPUs were busy or missing has no figures, and one that is asked for none is looked at as it rests.
    """
    begin, end = folder.once(_worked, f"outputs.{node}.jsonl")
    if begin >= end:
        return {}
    times: dict[int, list[float]] = {}
    for row in samples_of(folder, node):
        at, index, told = row.get("time_s"), row.get("index"), reasons(row) is not None
        if told and isinstance(at, int | float) and isinstance(index, int) and begin <= at <= end:
            times.setdefault(index, []).append(at - begin)
    most = max(map(len, times.values()), default=0)
    named = {gpu: f"GPU {gpu} of {node}" for gpu in range(gpus)}
    found = {gpu: _unseen(name, times.get(gpu, []), most, end - begin) for gpu, name in named.items()}
    return {gpu: why for gpu, why in found.items() if why}


def _worked(folder: Path, name: str) -> tuple[float, float]:
    """Return from when to when nvbandwidth worked a node, in seconds since 1970; (0, 0): it did not run."""
    ran: list[tuple[float, float]] = []
    for number, line in complete_lines(read_evidence(folder / name)):
        again = "run the job again: its journal is damaged"
        record = read_as(OutputRecord, line, file=folder / name, line=number, fix=again)
        if record.tool == "nvbandwidth" and record.problem is None:
            begin = datetime.fromisoformat(record.started).timestamp()
            ran.append((begin, begin + record.duration_s))
    return min((b for b, _ in ran), default=0.0), max((e for _, e in ran), default=0.0)


def _larger(had: int | None, now: Cell) -> int | None:
    return max(had or 0, now) if isinstance(now, int) else had


def nvbandwidth(output: Output[GpuNodeSettings]) -> Iterator[Value]:
    """Yield the bandwidth of every GPU, or of every ordered pair of GPUs."""
    result = parse_nvbandwidth(output.text, file=output.file)
    planned, name = output.order.gpus[output.node], output.record.test
    test = next((test for test in result.tests if test.name == name), None)
    if test is None or test.bandwidth_gb_per_s is None:
        status = "absent" if test is None else test.status
        raise BadInput(f"{name} is {status}: the tool gave no bandwidth", file=output.file)
    matrix = test.bandwidth_gb_per_s
    for params in pairs(name, planned):
        ends = [int(params[key]) for key in ("gpu", "peer") if key in params]
        row, column = (0, *ends)[-2:]
        value = matrix[row][column] if row < len(matrix) and column < len(matrix[row]) else None
        busy = disturbed(output.folder, {output.node: ends})
        yield Read("bandwidth", value, "GB/s", Better.HIGHER, params, disturbed=busy)


def copied_on(output: Output[GpuNodeSettings]) -> Iterator[str]:
    """Yield what the tool calls each GPU."""
    yield from (device.name for device in parse_nvbandwidth(output.text, file=output.file).devices)


def power(output: Output[object], gpus: Mapping[str, int]) -> Iterator[Value]:
    """Yield mean power, energy and the highest temperature of all GPUs over one output's time.

    None of them where samples of a GPU are missing: less would look better.

    Args:
        output: what was measured.
        gpus: how many of each node were.
    """
    record = output.record
    begin = datetime.fromisoformat(record.started).timestamp()
    total_w, hottest, no_watts, no_heat = 0.0, 0.0, "", ""
    for node in record.nodes:
        watts, heat = dict[int, _Seen](), dict[int, _Seen]()
        rows = dict[int, int]()
        for row in samples_of(output.folder, node):
            at, index = row.get("time_s"), row.get("index")
            if not isinstance(at, int | float) or not begin <= at <= begin + record.duration_s:
                continue
            if not isinstance(index, int):
                continue
            rows[index] = rows.get(index, 0) + 1
            for found, name in ((watts, "power.draw"), (heat, "temperature.gpu")):
                if isinstance(value := row.get(name), int | float):
                    found.setdefault(index, []).append((at - begin, float(value)))
        # nvidia-smi writes one line for each GPU, then those of the next time.
        most = max(rows.values(), default=0)
        for gpu in range(gpus[node]):
            name = f"GPU {gpu} of {node}"
            no_watts, no_heat = (
                why or _unseen(name, [at for at, _ in found.get(gpu, [])], most, record.duration_s)
                for why, found in ((no_watts, watts), (no_heat, heat))
            )
        total_w += sum(sum(watt for _, watt in seen) / len(seen) for seen in watts.values())
        hottest = max([hottest, *(degrees for seen in heat.values() for _, degrees in seen)])
    busy = disturbed(output.folder, {node: range(gpus[node]) for node in record.nodes})
    for metric, value, unit, detail, unseen in (
        ("power", total_w, "W", "mean of all GPUs together, without the servers", no_watts),
        ("energy", total_w * record.duration_s, "J", "of all GPUs, with pauses", no_watts),
        ("temperature", hottest, "degC", "of the hottest GPU", no_watts or no_heat),
    ):
        known = None if unseen else value
        yield Read(metric, known, unit, Better.LOWER, {}, unseen or detail, disturbed=busy)


def _unseen(
    gpu: str,  # its name in the answer
    times: list[float],  # when it was seen, in seconds from the beginning
    most: int,  # how often the GPU of the node was seen that was seen most often
    duration_s: float,  # for how long it was worked
) -> str:
    """Return why a GPU's samples do not tell what it drew over an output's time; empty if they do."""
    if not times:
        return f"{gpu} has no sample of this time"
    if len(times) < most - 1:  # one more or less: at the beginning, at the end
        return f"{gpu} has {len(times)} samples of this time, another GPU {most}"
    longest = max(later - earlier for earlier, later in pairwise([0.0, *sorted(times), duration_s]))
    if longest <= max(_PAUSE_S, duration_s / 4):
        return ""
    return f"{gpu} has no sample for {longest:.3g} of {duration_s:.3g} s"

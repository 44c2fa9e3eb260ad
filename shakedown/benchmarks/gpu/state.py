"""What a node's GPUs show, before a job and at its end, against what they must show."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from shakedown.benchmarks.base.contract import without
from shakedown.benchmarks.gpu.output import TopologyRow, parse_query, parse_topology
from shakedown.physics.host_links import MODELS, by_driver_name, by_name
from shakedown.plan.draft import PlanDraft, none_allowed
from shakedown.records.base import Name, Params, Record, shape
from shakedown.records.errors import BadInput
from shakedown.records.refusals import read_as
from shakedown.run.nic_counters import JobFolder
from shakedown.run.ownership import CONTENTS

Bandwidth = Literal[
    "host_to_device_memcpy_ce",
    "device_to_host_memcpy_ce",
    "host_to_device_bidirectional_memcpy_ce",
    "device_to_device_memcpy_read_ce",
    "device_to_device_memcpy_write_ce",
    "device_to_device_bidirectional_memcpy_write_ce",
]

_LINK = shape(r"^(NV\d+|PIX|PXB|PHB|NODE|SYS)$", "a connection as nvidia-smi topo -m has it", "NV18")


class GpuState(Record):
    """What every GPU of a node must show. None: not checked, because the platform does not report it."""

    model: Name | None = None  # None: acceptance.scope.gpu, if it is a model that physics.host_links knows
    pcie_generation: int | None = Field(default=None, ge=1)  # under load; an idle link may be slower
    pcie_width: int | None = Field(default=None, ge=1)
    nvlinks: int | None = Field(default=None, ge=0)  # active ones of each GPU
    nvlink_gb_per_s: float | None = Field(default=None, gt=0)  # of each link, as `nvidia-smi nvlink -s` says
    topology: Annotated[str, _LINK] | None = None  # between GPUs
    numa: tuple[int, ...] | None = None  # NUMA node of GPU 0, 1, ...
    ecc: bool = True
    xid: bool = True  # the kernel log can be read and must hold no Xid of the driver

    @field_validator("model")
    @classmethod
    def _known(cls, model: str | None) -> str | None:
        if model is not None and by_name(model) is None:
            raise ValueError(f"no such model is known here; there are {', '.join(m.name for m in MODELS)}")
        return model


class GpuNode(Record):
    """The node stage: each GPU's own state, and nvbandwidth."""

    state: GpuState = GpuState()
    nvbandwidth: tuple[Bandwidth, ...] = ()
    # Run everything once unjudged. For virtual machines whose memory is given to them only when it is first
    # touched: copies through such memory are up to a quarter slower, once.
    warmup: bool = False
    timeout_s: int = Field(default=120, gt=0)

    @model_validator(mode="after")
    def _a_link_is_seen_under_load(self) -> Self:
        if (self.state.pcie_generation or self.state.pcie_width) and not self.nvbandwidth:
            raise ValueError(
                "state.pcie_generation and state.pcie_width are read under the load of nvbandwidth, which is "
                "not asked for: name one of its tests, such as host_to_device_memcpy_ce"
            )
        return self


class GpuNodeSettings(GpuNode):
    """The site's options, and how many GPUs each node has."""

    gpus: dict[str, int]

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_releases(cls, settings: Any) -> Any:  # noqa: ANN401
        return without(settings, "program")


STATE = none_allowed(
    "gpu.state", "the site's inventory and acceptance.gpu_node.state: what each GPU of a node must show"
)


def gpu_nodes(draft: PlanDraft) -> tuple[str, ...]:
    """Return the nodes that have GPUs. Raises BadInput if none has any."""
    nodes = tuple(node for node in draft.nodes if draft.site.gpus.get(node))
    if not nodes:
        raise BadInput(
            "acceptance asks for GPU tests and no node has `gpus`", fix="list them in the inventory"
        )
    return nodes


def gpu_checks(state: GpuState) -> tuple[str, ...]:
    """Return the names of the checks on every GPU, in order."""
    asked = {
        "model": state.model is not None,
        "pcie": state.pcie_generation is not None or state.pcie_width is not None,
        "nvlink": state.nvlinks is not None,
        "topology": state.topology is not None,
        "numa": state.numa is not None,
        "ecc": state.ecc,
        "remapped": state.ecc,
        "slowdown": True,
    }
    return tuple(name for name, wanted in asked.items() if wanted)


def plan_gpu_node(draft: PlanDraft, stage: GpuNode) -> None:
    """Every GPU's state, and every test of nvbandwidth on every GPU or pair; one job for all nodes."""
    nodes = gpu_nodes(draft)
    gpus = {node: draft.site.gpus[node] for node in nodes}
    bought = draft.site.acceptance.scope.get("gpu")
    if stage.state.model is None and isinstance(bought, str) and by_name(bought):
        stage = stage.model_copy(update={"state": stage.state.model_copy(update={"model": bought})})
    cells: list[tuple[Params, list[str]]] = [({"check": "count"}, list(nodes))]
    if stage.state.xid:
        cells.append(({"check": "xid"}, list(nodes)))
    for check in gpu_checks(stage.state):
        for gpu in range(max(gpus.values())):
            cells.append(({"check": check, "gpu": gpu}, [node for node in nodes if gpus[node] > gpu]))
    for params, having in cells:
        draft.forbid(STATE, "gpu_state", nodes=having, params=params)
    for test in stage.nvbandwidth:
        entry = draft.reference(test, "bandwidth", {"nodes": 1})
        for params in pairs(test, max(gpus.values())):
            highest = max(int(params["gpu"]), int(params.get("peer", 0)))
            having = [node for node in nodes if gpus[node] > highest]
            draft.add(entry, test, nodes=having, params=params)
    order = GpuNodeSettings(gpus=gpus, **stage.model_dump())
    draft.job(
        "node.gpu_node",
        kind="gpu_node",
        nodes=nodes,
        tests=("gpu_state", *stage.nvbandwidth),
        time_limit_s=60 + stage.timeout_s * (stage.warmup + len(stage.nvbandwidth)),
        expected_s=2 + 8 * (stage.warmup + len(stage.nvbandwidth)),
        expected_from="8 s a test of nvbandwidth: 33 s for 5, 23 s for 2 and a warm-up, 4 x H200 "
        "(recorded runs h200x4_nccl, h200x4_nccl_healthy); eight GPUs were not measured",
        settings=order.model_dump(),
    )


def pairs(test: str, gpus: int) -> list[Params]:
    """Return the parameters of a test's cells: every GPU, or every ordered pair of GPUs."""
    if not test.startswith("device_to_device"):
        return [{"gpu": gpu} for gpu in range(gpus)]
    return [{"gpu": gpu, "peer": peer} for gpu in range(gpus) for peer in range(gpus) if gpu != peer]


@dataclass(frozen=True, slots=True)
class GpuCheck:
    """One check. `wrong` None: unknown, and `detail` says why."""

    check: str
    gpu: int | None
    wrong: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Load:
    """What samples under load showed of one GPU."""

    pcie_generation: int | None
    pcie_width: int | None
    slowdown: int | None  # all reasons that appeared, or-ed
    samples: int


class Gpu(Record):
    """One GPU as its driver shows it. None: the driver does not tell."""

    index: int
    uuid: str
    pci: str
    name: str
    driver: str
    ecc: bool | None
    uncorrectable: int | None  # ECC errors since the driver was loaded
    slowdown: int | None  # reasons for slow clocks, as nvml.h's bits
    nvlinks_gb_per_s: tuple[float, ...] | None  # active links
    remap_pending: bool | None
    remap_failed: bool | None
    numa: int | None
    limit_w: float | None = None


# Reasons for slow clocks that are faults (nvml.h, nvmlClocksEventReason*): what hardware or heat forces.
SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


def judge_gpu(
    gpu: Gpu,  # what the driver says after the load
    wanted: GpuState,  # the site's `GpuState`
    load: Load | None,  # what it showed under load; None: nothing was sampled
    links: tuple[str, ...] | None,  # `nvidia-smi topo -m` between this GPU and the others
    # Why the samples do not tell what slowed it under load; empty: they do, or there was no load.
    unseen: str = "",
) -> Iterator[GpuCheck]:
    """Yield the finding of every check that is wanted of a GPU."""

    def found(check: str, ok: bool | None, text: str) -> GpuCheck:
        return GpuCheck(check, gpu.index, None if ok is None else int(not ok), text)

    if wanted.model is not None:
        model = by_driver_name(gpu.name)
        text = f"the driver calls it {gpu.name}, {wanted.model} wanted"
        yield found("model", model is not None and model.name == wanted.model, text)
    generation, width = wanted.pcie_generation, wanted.pcie_width
    if generation is not None or width is not None:
        seen = (load.pcie_generation, load.pcie_width) if load else (None, None)
        due = [(has, want) for has, want in zip(seen, (generation, width), strict=True) if want is not None]
        text = f"PCIe Gen{seen[0]} x{seen[1]} under load, Gen{generation} x{width} wanted"
        text = text if load else f"the link was not seen under load, Gen{generation} x{width} wanted"
        told = [(has, want) for has, want in due if has is not None]
        known = load is not None and len(told) == len(due)
        yield found("pcie", all(has >= want for has, want in told) if known else None, text)
    if (links_wanted := wanted.nvlinks) is not None:
        rates, rate = gpu.nvlinks_gb_per_s, wanted.nvlink_gb_per_s
        slow = [r for r in rates or () if rate is not None and r < 0.99 * rate]
        text = (
            "nvidia-smi does not tell the NVLinks"
            if rates is None
            else (
                f"{len(rates)} NVLinks are active, {wanted.nvlinks} wanted"
                + (f"; {len(slow)} slower than {rate} GB/s" if slow else "")
            )
        )
        yield found("nvlink", None if rates is None else len(rates) >= links_wanted and not slow, text)
    if wanted.topology is not None:
        other = sorted({link for link in links or () if link != wanted.topology})
        text = f"linked by {', '.join(other)}" if other else f"linked by {wanted.topology}"
        text = f"{text}, {wanted.topology} wanted" if links is not None else "no topology was printed"
        yield found("topology", None if links is None else not other, text)
    if (by_gpu := wanted.numa) is not None:
        want = by_gpu[gpu.index] if gpu.index < len(by_gpu) else None
        unknown = gpu.numa is None or gpu.numa < 0 or want is None
        yield found("numa", None if unknown else gpu.numa == want, f"NUMA node {gpu.numa}, {want} wanted")
    if wanted.ecc:
        errors = gpu.uncorrectable
        ok = None if gpu.ecc is None or errors is None else gpu.ecc and errors == 0
        state = {True: "on", False: "off", None: "unknown"}[gpu.ecc]
        yield found("ecc", ok, f"ECC is {state}, {errors} uncorrectable errors")
        flags = (gpu.remap_pending, gpu.remap_failed)
        text = f"row remapping pending: {flags[0]}, failed: {flags[1]}"
        yield found("remapped", None if None in flags else not any(flags), text)
    seen_mask = load.slowdown if load and load.slowdown is not None else gpu.slowdown
    why = [meaning for bit, meaning in SLOWDOWNS.items() if seen_mask is not None and seen_mask & bit]
    text = f"clocks were slowed by {', '.join(why)}" if why else unseen or "no slowdown"
    yield found("slowdown", None if seen_mask is None or (unseen and not why) else not why, text)


# Absent is not zero: a field that the driver does not report is None, and code that needs it must say that it
# is missing.

# `nvidia-smi nvlink --status`: "GPU 0: NVIDIA H200 (UUID: ...)", then "Link 0: 26.562 GB/s" or "<inactive>".
_GPU = re.compile(r"GPU (\d{1,4}): ")
_LINK_LINE = re.compile(r"\s+Link (\d{1,3}): (?:(\d+(?:\.\d+)?) GB/s|<inactive>)\s*\Z")
_MASK = re.compile(r"0x[0-9a-fA-F]{1,16}\Z")


class _Command(Record):
    argv: list[str]
    exit_code: int | None
    out: str
    error: str


class _Look(Record):
    schema_: int = Field(alias="schema")
    node: Name
    when: str
    taken: str
    commands: dict[str, _Command]
    kernel: _Command
    numa: dict[str, int]
    nccl: dict[str, object] | None = None  # the NCCL that a program would load (nccl_library.py)

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class GpuLook(Record):
    """One node's GPUs at one moment."""

    node: Name
    gpus: tuple[Gpu, ...]
    topology: tuple[TopologyRow, ...] | None
    users: dict[str, tuple[str, ...]] | None  # processes by GPU's UUID, `process 1105 (638 MiB)`
    no_users: str = ""  # why nvidia-smi does not tell them
    xids: tuple[str, ...] | None  # None: the kernel log cannot be read
    no_xids: str = ""  # why


def parse_gpu_look(text: str, *, file: str | Path | None = None) -> GpuLook:
    """Parse one look. Raises BadInput: not such a file, or nvidia-smi's list of GPUs cannot be read."""
    look = read_as(_Look, text, file=file, about="not a look at GPUs", fix="run it again")
    listed = look.commands.get("gpus")
    if listed is None or listed.exit_code != 0:
        raise BadInput(
            f"nvidia-smi did not list the GPUs: {_words(listed)}", fix="mend the driver", file=file
        )
    links = parse_nvlink(_out(look, "nvlink")) if _out(look, "nvlink") else {}
    remapped = _by_uuid(_out(look, "remapped"), file)
    gpus = []
    for row in parse_query(listed.out, file=file).gpus:
        index, uuid = _whole(row.get("index")), str(row.get("uuid"))
        if index is None:
            raise BadInput("a GPU without an index", file=file)
        pci = str(row.get("pci.bus_id"))
        remap = remapped.get(uuid, {})
        gpus.append(
            Gpu(
                index=index,
                uuid=uuid,
                pci=pci,
                name=str(row.get("name")),
                driver=str(row.get("driver_version")),
                ecc={"Enabled": True, "Disabled": False}.get(str(row.get("ecc.mode.current"))),
                uncorrectable=_whole(row.get("ecc.errors.uncorrected.volatile.total")),
                slowdown=reasons(row),
                nvlinks_gb_per_s=links.get(index),
                remap_pending=_flag(remap.get("remapped_rows.pending")),
                remap_failed=_flag(remap.get("remapped_rows.failure")),
                numa=look.numa.get(_sysfs(pci)),
                limit_w=_watts(row.get("power.limit")),
            )
        )
    topology, asked = _out(look, "topology"), look.commands.get("processes")
    told = asked is not None and asked.exit_code == 0
    return GpuLook(
        node=look.node,
        gpus=tuple(gpus),
        topology=parse_topology(topology, file=file).rows if topology else None,
        users=_users(asked.out) if asked and told else None,
        no_users="" if told else _words(asked),
        xids=tuple(look.kernel.out.splitlines()) if look.kernel.exit_code == 0 else None,
        no_xids=" ".join(look.kernel.error.split())[:500],
    )


def parse_nvlink(text: str) -> dict[int, tuple[float, ...]]:
    """Return the rate of every active link, GB/s, by GPU. A GPU without links has an empty tuple."""
    found: dict[int, list[float]] = {}
    gpu: int | None = None
    for line in text.splitlines():
        if match := _GPU.match(line):
            gpu = int(match[1])
            found[gpu] = []
        elif (match := _LINK_LINE.match(line)) and gpu is not None and match[2]:
            found[gpu].append(float(match[2]))
    return {index: tuple(rates) for index, rates in found.items()}


def reasons(row: Mapping[str, object]) -> int | None:
    """Return the reasons for slow clocks of a row, by their old or new name; None if it does not tell."""
    text = str(row.get("clocks_throttle_reasons.active", row.get("clocks_event_reasons.active")))
    return int(text, 16) if _MASK.match(text) else None


def _out(look: _Look, name: str) -> str:
    command = look.commands.get(name)
    return command.out if command and command.exit_code == 0 else ""


def _words(command: _Command | None) -> str:
    return " ".join((command.out + command.error).split())[:200] if command else "it was not asked"


def _users(text: str) -> dict[str, tuple[str, ...]]:
    """Return what `--query-compute-apps=gpu_uuid,pid,used_memory` lists, by the GPU's UUID."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines()[1:]:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) >= 3:
            found[cells[0]] = (*found.get(cells[0], ()), f"process {cells[1]} ({cells[2]})"[:60])
    return found


def _watts(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _by_uuid(text: str, file: str | Path | None) -> dict[str, dict[str, object]]:
    return (
        {str(row["gpu_uuid"]): dict(row) for row in parse_query(text, file=file).gpus} if text.strip() else {}
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _flag(value: object) -> bool | None:
    return {"yes": True, "no": False, "1": True, "0": False}.get(str(value).lower())


def _sysfs(pci: str) -> str:
    """Write nvidia-smi's 00000000:00:06.0 as sysfs does, 0000:00:06.0."""
    domain, _, rest = pci.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


_MOST_CHARACTERS = 500  # what `Measurement.disturbed` holds


def at_end(folder: JobFolder, node: str) -> GpuLook | None:
    """Return what a node's GPUs showed; None where nobody looked. Raises BadInput for what is no look."""
    name = f"gpus.{node}.after.json"
    return folder.once(_read, name) if folder.holds(name) else None


def disturbed(folder: JobFolder, gpus: Mapping[str, Iterable[int]]) -> str:
    """Say which other processes were on these GPUs of each node, or that it is not known; else nothing."""
    return "; ".join(said for node, mine in gpus.items() for said in _node(folder, node, sorted(mine)))[
        :_MOST_CHARACTERS
    ]


def _node(folder: JobFolder, node: str, gpus: list[int]) -> Iterator[str]:
    look = at_end(folder, node)
    if look is None:
        # PyTorch's jobs before there was a list of a job's files looked at the start alone.
        if folder.holds(f"gpus.{node}.before.json") and folder.holds(CONTENTS):
            yield f"who else was on the GPUs of {node} at the end is not known: they were not looked at"
        return
    if look.users is None:
        yield f"who else was on the GPUs of {node} at the end is not known: nvidia-smi said {look.no_users!r}"
        return
    seen = {gpu.index: look.users.get(gpu.uuid, ()) for gpu in look.gpus}
    for gpu in gpus:
        if gpu not in seen:
            yield f"GPU {gpu} of {node} was not there at the end"
        elif seen[gpu]:
            yield f"another process was on GPU {gpu} of {node} at the end: {', '.join(seen[gpu])}"


def _read(folder: Path, name: str) -> GpuLook:
    return parse_gpu_look(JobFolder(folder).text(name), file=name)

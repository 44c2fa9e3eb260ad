"""What a node's GPUs show, before a job and at its end, against what they must show."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from shakedown.benchmarks.base.contract import JobSettings
from shakedown.benchmarks.gpu.output import LOST, QueryResult, TopologyRow, parse_query, parse_topology
from shakedown.physics.host_links import MODELS, by_name
from shakedown.plan.draft import PlanDraft, none_allowed
from shakedown.records.base import Name, Params, Record, shape
from shakedown.records.reading import BadInput, read_as
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
    # The kernel log can be read and must hold no Xid of the driver; those that programs cause (13, 31, 43,
    # 45, 68, 109) count if they are of the job's own time.
    xid: bool = True
    # It must hold no other error of hardware either: a fatal SXid of an NVSwitch, memory beyond correction,
    # a fatal error of a PCIe link, a NIC that is too hot.
    hardware: bool = True
    # What is of before the job is a cell of its own, `earlier`, with its age; no: it counts with the job's.
    earlier: bool = True
    mig: bool = True  # MIG is off: a GPU in parts has no NVLinks and gives each part a share
    fabric: bool = True  # the NVLink fabric behind a GPU is up, where it has one (fabric manager, NVSwitch)

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


# Checks that orders of earlier releases did not have.
_LATER = ("hardware", "earlier", "mig", "fabric")


class GpuNodeSettings(JobSettings, GpuNode):
    """The site's options, and how many GPUs each node has."""

    former = ("program",)
    gpus: dict[str, int]

    @model_validator(mode="before")
    @classmethod
    def _checks_of_earlier_releases(cls, settings: Any) -> Any:  # noqa: ANN401
        if isinstance(settings, dict) and isinstance(state := settings.get("state"), dict):
            return {**settings, "state": {**dict.fromkeys(_LATER, False), **state}}
        return settings


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
        "mig": state.mig,
        "fabric": state.fabric,
        "topology": state.topology is not None,
        "numa": state.numa is not None,
        "ecc": state.ecc,
        "remapped": state.ecc,
        "slowdown": True,
    }
    return tuple(name for name, wanted in asked.items() if wanted)


def kernel_checks(state: GpuState) -> tuple[str, ...]:
    """Return the names of the checks on a node's kernel log, in order."""
    asked = {"xid": state.xid, "hardware": state.hardware}
    asked["earlier"] = state.earlier and any(asked.values())
    return tuple(name for name, wanted in asked.items() if wanted)


def plan_gpu_node(draft: PlanDraft, stage: GpuNode) -> None:
    """Every GPU's state, and every test of nvbandwidth on every GPU or pair; one job for all nodes."""
    nodes = gpu_nodes(draft)
    gpus = {node: draft.site.gpus[node] for node in nodes}
    bought = draft.site.acceptance.scope.get("gpu")
    if stage.state.model is None and isinstance(bought, str) and by_name(bought):
        stage = stage.model_copy(update={"state": stage.state.model_copy(update={"model": bought})})
    cells: list[tuple[Params, list[str]]] = [({"check": "count"}, list(nodes))]
    cells += [({"check": check}, list(nodes)) for check in kernel_checks(stage.state)]
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
    mig: bool | None
    fabric: str | None  # what is not as it must be; empty: it is up, or there is none
    remap_pending: bool | None
    remap_failed: bool | None
    numa: int | None
    limit_w: float | None = None
    unread: str = ""  # fields in whose place nvidia-smi gives an error


# Absent is not zero: a field that the driver does not report is None, and code that needs it must say that it
# is missing.

# `nvidia-smi nvlink --status`: "GPU 0: NVIDIA H200 (UUID: ...)", then "Link 0: 26.562 GB/s" or "<inactive>".
_GPU = re.compile(r"GPU (\d{1,4}): ")
_LINK_LINE = re.compile(r"\s+Link (\d{1,3}): (?:(\d+(?:\.\d+)?) GB/s|<inactive>)\s*\Z")
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}m")
_MASK = re.compile(r"0x[0-9a-fA-F]{1,16}\Z")
_LINKS_HIDDEN = "not supported for Devices in MIG mode"  # said instead of a GPU's links
_UNKNOWN_FIELD = "is not a valid field to query"  # of a driver that has not what the field is about


class _Command(Record):
    argv: list[str]
    exit_code: int | None
    out: str
    error: str


class _Kernel(_Command):
    now_s: float | None = None  # since boot; None: a look of earlier releases
    strange: int = 0  # lines that seem to tell of hardware, in a form that is not known
    oldest_s: float | None = None  # of the first line that the log still has, since boot; None: not known


class _Look(Record):
    schema_: int = Field(alias="schema")
    node: Name
    when: str
    taken: str
    commands: dict[str, _Command]
    kernel: _Kernel
    numa: dict[str, int]
    nccl: dict[str, object] | None = None  # the NCCL that a program would load (nccl_library.py)

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class GpuLook(Record):
    """One node's GPUs at one moment."""

    node: Name
    taken: datetime | None
    gpus: tuple[Gpu, ...]
    warnings: tuple[str, ...] = ()  # of nvidia-smi, beside its table
    lost: tuple[str, ...] = ()  # what it says of GPUs that are gone, or hung
    topology: tuple[TopologyRow, ...] | None
    users: dict[str, tuple[str, ...]] | None  # processes by GPU's UUID, `process 1105 (638 MiB)`
    no_users: str = ""  # why nvidia-smi does not tell them
    kernel: tuple[str, ...] | None  # lines that tell of hardware; None: the kernel log cannot be read
    no_kernel: str = ""  # why
    kernel_read_s: float | None = None  # when, since boot, as the lines' own times are
    kernel_from_s: float | None = None  # what the log had, since boot
    strange_lines: int = 0  # not among `kernel`


def parse_gpu_look(text: str, *, file: str | Path | None = None) -> GpuLook:
    """Parse one look. Raises BadInput: not such a file, or nvidia-smi's list of GPUs cannot be read."""
    look = read_as(_Look, text, file=file, about="not a look at GPUs", fix="run it again")
    listed = look.commands.get("gpus")
    said = "" if listed is None else f"{listed.out}\n{listed.error}"
    if listed is None or (listed.exit_code != 0 and not LOST.search(said)):
        raise BadInput(
            f"nvidia-smi did not list the GPUs: {_words(listed)}", fix="mend the driver", file=file
        )
    links = parse_nvlink(_out(look, "nvlink")) if _out(look, "nvlink") else {}
    remapped = _by_uuid(_out(look, "remapped"), file)
    mig, fabric = (_asked(look, name, file) for name in ("mig", "fabric"))
    gpus = []
    # With a GPU that is lost, it may list some of the others, or none.
    none = listed.exit_code != 0 and "," not in listed.out
    table = QueryResult(units={}, gpus=()) if none else parse_query(listed.out, file=file, strict=False)
    for row in table.gpus:
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
                mig=True if links.get(index, ()) is None else _mig(mig, uuid),
                fabric=_fabric(fabric, uuid),
                remap_pending=_flag(remap.get("remapped_rows.pending")),
                remap_failed=_flag(remap.get("remapped_rows.failure")),
                numa=look.numa.get(sysfs_address(pci)),
                limit_w=_watts(row.get("power.limit")),
                unread=", ".join(f"{n} is {v}" for n, v in row.items() if str(v).startswith(("[", "ERR!")))[
                    :200
                ],
            )
        )
    topology, asked = _out(look, "topology"), look.commands.get("processes")
    told = asked is not None and asked.exit_code == 0
    return GpuLook(
        node=look.node,
        gpus=tuple(gpus),
        warnings=table.warnings,
        lost=(
            *(line for line in said.splitlines() if LOST.search(line) and not line[:1].isdigit()),
            *(f"GPU {gpu.index}: {gpu.unread}" for gpu in gpus if LOST.search(gpu.unread)),
        ),
        topology=_topology(topology, file) if topology else None,
        users=_users(asked.out) if asked and told else None,
        no_users="" if told else _words(asked),
        taken=_moment(look.taken),
        kernel_from_s=look.kernel.oldest_s,
        strange_lines=look.kernel.strange,
        kernel=tuple(_COLOURS.sub("", look.kernel.out).splitlines()) if look.kernel.exit_code == 0 else None,
        no_kernel=" ".join(look.kernel.error.split())[:500],
        kernel_read_s=look.kernel.now_s,
    )


def _topology(text: str, file: str | Path | None) -> tuple[TopologyRow, ...] | None:
    """Return the rows of `topo -m`; None: in words of a later release, which cost this check alone."""
    with contextlib.suppress(BadInput):
        return parse_topology(text, file=file).rows
    return None


def parse_nvlink(text: str) -> dict[int, tuple[float, ...] | None]:
    """Return the rate of every active link, GB/s, by GPU; none of one without links.

    None: in MIG mode, in which it does not show them.
    """
    found: dict[int, tuple[float, ...] | None] = {}
    gpu: int | None = None
    for line in text.splitlines():
        if match := _GPU.match(line):
            gpu = int(match[1])
            found[gpu] = ()
        elif gpu is not None and _LINKS_HIDDEN in line:
            found[gpu] = None
        elif gpu is not None and (match := _LINK_LINE.match(line)) and match[2]:
            found[gpu] = (*(found[gpu] or ()), float(match[2]))
    return found


# Reasons for slow clocks that are faults (nvml.h, nvmlClocksEventReason*): what hardware or heat forces. A
# software power cap (0x4) is normal under full load.
SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
# Idle, clocks that somebody set, a power cap, boost in step, a display: no fault, and nothing else is known.
NO_FAULTS = 0x1 | 0x2 | 0x4 | 0x10 | 0x100


def reasons(row: Mapping[str, object]) -> int | None:
    """Return the reasons for slow clocks of a row, by their old or new name; None if it does not tell."""
    text = str(row.get("clocks_throttle_reasons.active", row.get("clocks_event_reasons.active")))
    return int(text, 16) if _MASK.match(text) else None


def _out(look: _Look, name: str) -> str:
    command = look.commands.get(name)
    return command.out if command and command.exit_code == 0 else ""


def _asked(look: _Look, name: str, file: str | Path | None) -> dict[str, dict[str, object]] | None:
    """Return a query's rows by UUID; none where it was not asked or failed; None: its field is not known."""
    command = look.commands.get(name)
    if command and command.exit_code and _UNKNOWN_FIELD in command.out + command.error:
        return None
    return _by_uuid(_out(look, name), file)


def _mig(rows: Mapping[str, Mapping[str, object]] | None, uuid: str) -> bool | None:
    """Return whether a GPU is in MIG mode; one that knows none is not. None: not told."""
    if rows is None:
        return False
    told = rows.get(uuid, {}).get("mig.mode.current", "")
    return {"Enabled": True, "Disabled": False, "None": False}.get(str(told))


def _fabric(rows: Mapping[str, Mapping[str, object]] | None, uuid: str) -> str | None:
    """Return what is wrong with the fabric behind a GPU; empty: nothing, or it has none; None: not told."""
    if rows is None or "fabric.state" not in rows.get(uuid, ()):
        return None if rows is not None else ""
    state, status = (rows[uuid].get(f"fabric.{name}") for name in ("state", "status"))
    if state is None or (state, status) == ("Completed", "Success"):
        return ""
    return f"the NVLink fabric's state is {state}, its status {status}: see the fabric manager"


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


def _moment(text: str) -> datetime | None:
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(text)
    return None


def _watts(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _by_uuid(text: str, file: str | Path | None) -> dict[str, dict[str, object]]:
    """Return a query's rows; none where it printed nothing, or something that cannot be read."""
    rows: tuple[Mapping[str, object], ...] = ()
    if text.strip():
        with contextlib.suppress(BadInput):
            rows = parse_query(text, file=file, strict=False).gpus
    return {str(row.get("gpu_uuid", row.get("uuid"))): dict(row) for row in rows}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _flag(value: object) -> bool | None:
    return {"yes": True, "no": False, "1": True, "0": False}.get(str(value).lower())


def sysfs_address(pci: str) -> str:
    """Write nvidia-smi's 00000000:00:06.0 as sysfs does, 0000:00:06.0."""
    domain, _, rest = pci.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


_MOST_CHARACTERS = 500  # what `Measurement.disturbed` holds


def at_end(folder: JobFolder, node: str, when: str = "after") -> GpuLook | None:
    """Return what a node's GPUs showed; None where nobody looked. Raises BadInput for what is no look."""
    name = f"gpus.{node}.{when}.json"
    return folder.once(read_look, name) if folder.holds(name) else None


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


def read_look(folder: Path, name: str) -> GpuLook:
    """Return a look in a job's folder. Raises BadInput as `parse_gpu_look` does."""
    return parse_gpu_look(JobFolder(folder).text(name), file=name)

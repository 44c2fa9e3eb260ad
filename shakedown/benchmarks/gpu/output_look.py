"""What `shakedown.onnode.gpus look` wrote: nvidia-smi's own outputs of one node, read into one record.

Absent is not zero: a field that the driver does not report is None, and code that needs it must say that it
is missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import ConfigDict, Field, ValidationError

from shakedown.benchmarks.gpu.output_nvidia_smi import TopologyRow, parse_query, parse_topology
from shakedown.benchmarks.gpu.state import Gpu
from shakedown.records.base import Name, Record
from shakedown.records.errors import BadInput
from shakedown.records.refusals import refusal

# `nvidia-smi nvlink --status`: "GPU 0: NVIDIA H200 (UUID: ...)", then "Link 0: 26.562 GB/s" or "<inactive>".
_GPU = re.compile(r"GPU (\d{1,4}): ")
_LINK = re.compile(r"\s+Link (\d{1,3}): (?:(\d+(?:\.\d+)?) GB/s|<inactive>)\s*\Z")
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
    """Parse one look.

    Raises:
        BadInput: not such a file, or nvidia-smi's list of GPUs cannot be read.
    """
    try:
        look = _Look.model_validate_json(text)
    except ValidationError as error:
        raise refusal(error, _Look, file=file, about="not a look at GPUs", fix="run it again") from None
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
        elif (match := _LINK.match(line)) and gpu is not None and match[2]:
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

"""`shakedown parse TOOL FILE`: read one tool's output and print what it says, or why it cannot be used."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shakedown.commands.examples import examples
from shakedown.records.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import BaseModel
    from rich.console import Console

# A debug log of one rank of a long run is a few MiB; beyond this a file is not a tool's output.
MAX_BYTES = 64 * 2**20


class Tool(StrEnum):
    """The tools whose output can be read."""

    PERFTEST = "perftest"
    NCCL = "nccl"
    NCCL_LOG = "nccl-log"
    NVBANDWIDTH = "nvbandwidth"
    LOADGEN = "loadgen"
    TRAINER = "trainer"
    ETHTOOL = "ethtool"
    RDMA = "rdma"
    NVIDIA_SMI = "nvidia-smi"


# Where each tool's parser lives: (module, function).
PARSERS = {
    Tool.PERFTEST: ("shakedown.benchmarks.perftest.output", "parse_perftest"),
    Tool.NCCL: ("shakedown.benchmarks.nccl.output", "parse_nccl"),
    Tool.NCCL_LOG: ("shakedown.benchmarks.nccl.log", "parse_nccl_log"),
    Tool.NVBANDWIDTH: ("shakedown.benchmarks.gpu.output_nvbandwidth", "parse_nvbandwidth"),
    Tool.LOADGEN: ("shakedown.benchmarks.inference.output", "parse_loadgen"),
    Tool.TRAINER: ("shakedown.benchmarks.lora.output", "parse_trainer"),
    Tool.ETHTOOL: ("shakedown.nics.ethtool", "parse_ethtool"),
    Tool.RDMA: ("shakedown.nics.rdma", "parse_rdma"),
    Tool.NVIDIA_SMI: ("shakedown.benchmarks.gpu.output_nvidia_smi", "parse_nvidia_smi"),
}
# Options of the command, and the parameter that each becomes, by tool.
OPTIONS = {
    "--report-gbits": {Tool.PERFTEST: "report_gbits"},
    "--partial": {Tool.TRAINER: "allow_truncated", Tool.NCCL_LOG: "allow_unfinished"},
    "--fields": {Tool.NVIDIA_SMI: "fields"},
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "parse",
        epilog=examples(
            "shakedown parse nccl all_reduce.txt", "shakedown parse perftest ib_write_bw.txt --json"
        ),
    )(parse)


def parse(
    tool: Annotated[Tool, typer.Argument(help="The tool that wrote the file.")],
    file: Annotated[Path, typer.Argument(help="Its captured output.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    task: Annotated[
        int | None, typer.Option(min=0, help="Read this task only, of output labelled by srun -l.")
    ] = None,
    report_gbits: Annotated[
        bool | None,
        typer.Option("--report-gbits/--no-report-gbits", help="perftest: how it was run (default: derive)."),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="trainer, nccl-log: read the log of a job that did not end.")
    ] = False,
    fields: Annotated[
        str, typer.Option("--fields", help="nvidia-smi: the --query-gpu fields of output without a header.")
    ] = "",
) -> int:
    """Read one tool's output; units are in the field names. Exit status 2 if it is damaged or incomplete."""
    given = {
        "--report-gbits": report_gbits,
        "--partial": partial or None,
        "--fields": fields.split(",") if fields else None,
    }
    options = {}
    for option, value in given.items():
        if value is not None:
            if tool not in OPTIONS[option]:
                raise BadInput(f"{option} is not for {tool}", fix=f"it is for {', '.join(OPTIONS[option])}")
            options[OPTIONS[option][tool]] = value
    text = read(file)
    if task is not None:
        text = one_task(text, task, file)
    module, function = PARSERS[tool]
    parser: Callable[..., BaseModel] = getattr(import_module(module), function)
    data = parser(text, file=file, **options).model_dump(mode="json")
    if as_json:
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
    else:
        show(data)
    return 0


def read(file: Path) -> str:
    """Read a captured output; binary and very large files are refused."""
    with file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        fix = "split it, one task and one test a file"
        raise BadInput(f"larger than {MAX_BYTES // 2**20} MiB", fix=fix, file=file)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        fix = "give the text that the tool printed"
        raise BadInput(f"byte {data[error.start]:#04x} is not UTF-8", fix=fix, file=file, line=line) from None


def one_task(text: str, task: int, file: Path) -> str:
    """Return the lines of one task of labelled output."""
    from shakedown.records.tool_text import split_labels

    tasks = {int(label): lines for label, lines in split_labels(text, file=file).items()}
    if task not in tasks:
        known = ", ".join(str(label) for label in sorted(tasks)[:8])
        fix = f"its tasks are {known}" if tasks else "leave out --task; the output has no labels"
        raise BadInput(f"no output of task {task}", fix=fix, file=file)
    return tasks[task]


def show(data: dict[str, Any]) -> None:
    """Print single values as a list, then every list of records as a table."""
    from rich.console import Console
    from rich.text import Text

    from shakedown.records.wording import printable

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 240)
    lists = {k: v for k, v in data.items() if isinstance(v, list) and v and isinstance(v[0], dict)}
    for name, value in data.items():
        if name not in lists and value not in (None, [], {}):
            # Text, not markup: the values come from outside.
            console.print(Text(f"{name:22}{printable(_cell(value))}"), soft_wrap=True)
    for name, records in lists.items():
        _table(console, name, records)


def _table(console: Console, name: str, records: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from shakedown.records.wording import printable

    records = [_flat(record) for record in records]
    keys = dict.fromkeys(key for record in records for key in record)
    columns = [key for key in keys if any(record.get(key) not in (None, [], {}) for record in records)]
    table = Table(title=name, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        number = isinstance(next(r[column] for r in records if r.get(column) is not None), int | float)
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for record in records:
        table.add_row(*(Text(printable(_cell(record.get(column)))) for column in columns))
    console.print(table)


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """Bring nested records up: {"in_place": {"time_us": 1}} becomes {"in_place.time_us": 1}."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": x for inner, x in value.items()}
        else:
            flat[key] = value
    return flat


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.7g}"
    return value if isinstance(value, str) else json.dumps(value)

"""`shakedown parse TOOL FILE`: read one tool's output and print what it says, or why it cannot be used."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from shakedown.commands.arguments import command
from shakedown.records.reading import BadInput
from shakedown.records.wording import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import BaseModel
    from rich.console import Console

    from shakedown.benchmarks.base.contract import Parser

# A debug log of one rank of a long run is a few MiB; beyond this a file is not a tool's output.
MAX_BYTES = 64 * 2**20


class ListsTools(TyperCommand):
    """Ends its help with the tools, listed only then: it would slow down the start of all commands."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  (typer's own types are private)
        """Write the tools, then the example."""
        with formatter.section("Tools"):
            formatter.write_text(f"{', '.join(parsers())}\n")
        super().format_epilog(ctx, formatter)


def parsers() -> dict[str, Parser]:
    """Return the parsers of benchmarks and of NIC drivers, by the tool's name."""
    from shakedown.benchmarks.base.contract import Parser
    from shakedown.benchmarks.registry import PARSERS
    from shakedown.nics.parsers import SOURCES

    nics = [
        Parser(tool=name, module=module, function=function) for name, (module, function) in SOURCES.items()
    ]
    return {parser.tool: parser for parser in (*PARSERS, *nics)}


@command(
    "shakedown parse nccl all_reduce.txt", "shakedown parse perftest ib_write_bw.txt --json", cls=ListsTools
)
def parse(
    tool: Annotated[str, typer.Argument(help="The tool that wrote the file: see below.")],
    file: Annotated[Path, typer.Argument(help="Its captured output.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    task: Annotated[
        int | None, typer.Option(min=0, help="Read this task only, of output labelled by srun -l.")
    ] = None,
    report_gbits: Annotated[
        bool | None,
        typer.Option("--report-gbits/--no-report-gbits", help="perftest: refuse output of the other unit."),
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
    known = parsers()
    if tool not in known:
        raise BadInput(f"no parser for {tool[:80]!r}", fix=f"it is one of {', '.join(known)}")
    wanted, options = known[tool], {}
    for option, value in given.items():
        if value is not None:
            if option not in wanted.options:
                takers = ", ".join(name for name, parser in known.items() if option in parser.options)
                raise BadInput(f"{option} is not for {tool}", fix=f"it is for {takers}")
            options[wanted.options[option]] = value
    text = read(file)
    if task is not None:
        text = one_task(text, task, file)
    parser: Callable[..., BaseModel] = getattr(import_module(wanted.module), wanted.function)
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

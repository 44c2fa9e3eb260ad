"""What several readers of outputs share: GPUs' lines, whether times and rates agree, where the ranks ran."""

import contextlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from shakedown.benchmarks.base.contract import Output, Read
from shakedown.physics.collectives import Collective, busbw_factor
from shakedown.records.base import Better, Params
from shakedown.records.reading import BadInput, loads, open_plain, refusal
from shakedown.records.results import Measurement, OutputRecord
from shakedown.records.tool_text import EVENTS, OF_SETTINGS, TextSource
from shakedown.records.wording import count, printable
from shakedown.run.nic_counters import JobFolder

_LARGEST_BYTES = 16 << 20  # of a document that the report draws from
Made = TypeVar("Made")
_ROUNDING = 1e-6  # these programs print every digit; nccl-tests rounds, and has a check of its own


def contradicted(
    collective: Collective,
    *,
    ranks: int,
    moved_bytes: int,
    time_us: float,
    algbw_gb_per_s: float,
    busbw_gb_per_s: float,
) -> Literal["algbw", "busbw", ""]:
    """Return which rate is not that of bytes, time and ranks; empty if both are.

    Source of both: `shakedown.physics.collectives`. One rank moves nothing: no bus bandwidth is due then.
    """
    due = moved_bytes / time_us / 1e3 if time_us else math.inf
    if not math.isclose(algbw_gb_per_s, due, rel_tol=_ROUNDING):
        return "algbw"
    if ranks > 1 and not math.isclose(
        busbw_gb_per_s, due * busbw_factor(collective, ranks), rel_tol=_ROUNDING
    ):
        return "busbw"
    return ""


def longer_than_recorded(counted_s: float, record: OutputRecord, tolerance: float = 0.0) -> str:
    """Return why the time that a program counted is not of the run that its record is of; empty if it can be.

    The record's time is that around the whole program, so that what it measured within cannot be longer.
    """
    if counted_s * (1 - tolerance) <= record.duration_s:
        return ""
    whole = f"the whole test took {record.duration_s:.3g} s by its record"
    return f"this test counted over {counted_s:.3g} s, {whole}"


@dataclass(frozen=True, slots=True)
class Deviation:
    """One check; `wrong` None: what the job left does not tell."""

    check: str
    wrong: int | None
    detail: str

    def read(self, params: Params) -> Read:
        """Return it as the cell of this check; `params` tell which part was checked."""
        wrong = None if self.wrong is None else float(self.wrong)
        return Read("wrong", wrong, "1", Better.LOWER, {"check": self.check, **params}, self.detail)


def judge_pinning(
    folder: JobFolder,  # the job's
    ranks: Mapping[str, int],  # how many ranks each node had
) -> Deviation:
    """Check that every rank ran on the CPUs that its node's rank file gives it, and on no other."""
    said: list[str] = []
    unknown: list[str] = []
    for node, many in ranks.items():
        for rank in range(many):
            where, note = f"rank {rank} on {node}", _note(folder, node, rank)
            if note is None:
                unknown.append(f"{where} left no note")
                continue
            wanted, runs = note["wanted"], note["runs"]
            if note["by"] != "rankfile" or not wanted:
                said.append(
                    f"{where}: /etc/shakedown/rankfile has no CPUs for it (roles/numa_pinning writes it)"
                )
            elif not runs or not set(runs) <= set(wanted):
                said.append(f"{where} runs on CPUs {_list(runs)}, its rank file says {_list(wanted)}")
    if said:
        return Deviation("pinning", 1, "; ".join(said)[:900])
    if unknown:
        return Deviation("pinning", None, "; ".join(unknown)[:900])
    return Deviation("pinning", 0, f"{sum(ranks.values())} ranks on the CPUs of their rank files")


def _note(folder: JobFolder, node: str, rank: int) -> dict[str, list[int] | str] | None:
    try:
        note = json.loads(folder.text(f"pinned.{node}.{rank}.json"))
    except (BadInput, OSError, ValueError):
        return None
    if not isinstance(note, dict) or (note.get("node"), note.get("rank")) != (node, rank):
        return None
    lists = all(
        isinstance(note.get(key), list) and all(isinstance(cpu, int) for cpu in note[key])
        for key in ("wanted", "runs")
    )
    return note if lists and isinstance(note.get("by"), str) else None


def _list(cpus: list[int] | str) -> str:
    """Write CPU numbers, the first few."""
    return ",".join(map(str, cpus[:8])) + (",..." if len(cpus) > 8 else "")


def lines_of_gpus(
    text: str,
    lines: TypeAdapter[Any],
    kinds: Any,  # noqa: ANN401  (the union of models that `lines` reads)
    *,
    about: str,  # for the refusal of a line that is none of them
    file: str | Path | None,
) -> Iterator[tuple[int, Any, Any]]:
    """Yield what the GPUs of a node wrote: the line's number, the GPU's header, and what the line holds.

    Raises BadInput: a line that is none of ours, a GPU that did not come to its end, or is there twice.
    """
    header, ended, number = None, set[int](), 0
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            found = lines.validate_json(line)
        except ValidationError as error:
            raise refusal(error, kinds, file=file, line=number, about=about, fix="run it again") from None
        if (header is None) != (found.type == "header"):
            damaged("a GPU's lines do not begin with a header and close with an end", file, number)
        header = header or found
        if found.type == "end" and header.gpu in ended:
            damaged(f"GPU {header.gpu} is there twice", file, number)
        yield number, header, found
        if found.type == "end":
            ended.add(header.gpu)
            header = None
    if header is not None or not ended:
        damaged(f"output ends before the end of {f'GPU {header.gpu}' if header else 'any GPU'}", file, number)


def damaged(what: str, file: str | Path | None, line: int) -> NoReturn:
    """Refuse an output at a line. Raises BadInput."""
    raise BadInput(what, fix="run it again", file=file, line=line)


def less(output: Output[Any], what: str) -> NoReturn:
    """Refuse an output that is of something else than was ordered. Raises BadInput."""
    raise BadInput(what, fix="run it as planned", file=output.file)


def of_documents(
    run: Path,
    measurements: Iterable[Measurement],
    test: str,
    made: Callable[[Measurement, Any], Iterable[Made]],  # of a file's first measurement and its document
) -> tuple[Made, ...]:
    """Return what is made of the raw documents of a test; those that cannot be read are passed over."""
    first: dict[str, Measurement] = {}
    for m in measurements:
        if m.test == test and m.raw:
            first.setdefault(m.raw, m)
    found: list[Made] = []
    for raw, m in first.items():
        try:
            with open_plain(run / raw) as file:
                found += made(m, loads(file.read(_LARGEST_BYTES)))
        except (BadInput, ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
            continue
    return tuple(found)


_MOST_OF_OTHERS, _LARGEST_OUTPUT = 20, 1 << 16


def said_by_others(run: Path, outputs: Mapping[str, str]) -> tuple[str, ...]:
    """Return what others said beside outputs: perftest's go to one file with its errors; each once.

    `outputs`: the test of each raw output.
    """
    said: Counter[str] = Counter()
    for raw, test in outputs.items():
        path = run / raw if test.startswith("ib_") else (run / raw).with_suffix(".err")
        with contextlib.suppress(BadInput, OSError), open_plain(path) as file:
            said.update(TextSource(file.read(_LARGEST_OUTPUT).decode(errors="replace")).others)
    return tuple(f"{words} ({count(many, 'output')})" for words, many in said.most_common(_MOST_OF_OTHERS))


def event_told(file: Path) -> str:
    """Return what happened by an output's words, its repeats' or their stderr's; empty: nothing known.

    A tool may end well and have lost a NIC, or data, on the way. perftest's words are its reader's own, and
    what nccl-tests tells of the last error ("# error: ") may have done no harm.
    """
    stem, repeat, _ = file.stem.partition(".r1")
    every = file.parent.glob(f"{escape(stem)}.r*") if repeat else [file, file.with_suffix(".err")]
    for one in (p for p in every if p.suffix in (".txt", ".err") and not p.name.startswith("ib_")):
        with contextlib.suppress(BadInput, OSError), open_plain(one) as said:
            for line in said.read(_LARGEST_BYTES).decode(errors="replace").splitlines():
                harmless = line.startswith("# error: ") or OF_SETTINGS.search(line)
                if not harmless and EVENTS.search(line[:1000]):
                    return f"{one.name} tells of an event: {printable(line.strip())[:300]}"
    return ""

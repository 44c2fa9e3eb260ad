"""The folder of a run: its records, its files, what is set aside, and what an ended write left."""

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from shakedown.plan.flow_paths import PATHS, FlowPath, read_paths
from shakedown.plan.jobs import Jobs, job_and_attempt
from shakedown.records.base import Name, to_json
from shakedown.records.plan import Plan
from shakedown.records.reading import (
    LARGEST_DOCUMENT,
    BadInput,
    open_plain,
    read_bytes,
    read_output,
    read_record,
    refusal,
    refuse_schema,
    strict_json,
)
from shakedown.records.results import CounterReading, JobRecord, Measurement, RunProblem, Snapshot
from shakedown.records.verdict import Verdict, verdict_says, verdict_to_json
from shakedown.records.wording import printable
from shakedown.records.writing import write_aside

# A run folder may come from anywhere, so nothing in it is trusted: links and special files are refused,
# paths must stay inside, every line is checked against its record, and what cannot be used is named by
# file and line. A folder left by a killed process is read as far as it goes and never passes.

PLAN, JOBS, RESULTS, COUNTERS = "plan.json", "jobs.json", "results.jsonl", "counters.jsonl"
SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
INVENTORY, VERDICT, RAW = "inventory.json", "verdict.json", "raw"
# Why the playbook could not make the run, or go on with it, in one sentence.
REFUSED = "refused.txt"
# What the customer signed before the run, where there was an order.
ORDER, ORDER_SIGNATURE = "order.json", "order.json.sig"
# What below raw/ only the controller writes. Jobs, and whoever can write to their share, have no part in it:
# the playbook never fetches it, and lists in FOREIGN what lay on the share under such a name, or is another
# user's.
OF_CONTROLLER = ("switches.*", "server_power", "paths.jsonl", "nightly.json", "playbook.txt", "foreign.txt")
FOREIGN = "foreign.txt"
_OF_STAGES = ("chain.jsonl", "reframe.*.txt")  # what the submit host writes beside the jobs' folders
LONGEST_LINE = 1 << 20  # a collective over 4,096 named nodes is a line of about 60 kB
# What a path below raw/ may not be made of.
_SUBPATH = frozenset({"", ".", ".."})
_NAME: TypeAdapter[str] = TypeAdapter(Name)

L = TypeVar("L", Measurement, CounterReading)


def _foreign(path: Path) -> list[str]:
    """Return the problem of files on the share that only the controller writes."""
    if not os.path.lexists(path):
        return []
    names = printable(", ".join(read_bytes(path, LONGEST_LINE).decode(errors="replace").split("\n")))
    return [
        f"somebody put {names[:200]} on the share, which no job writes: what else was changed is not known"
    ]


SIMULATED = "simulated"  # what a line that nobody measured has for its job


class Run:
    """A run folder, opened for reading. `problems` fills while the files are read.

    Raises BadInput: it is no run, or a simulated one where the reader does not say that it takes those.
    """

    def __init__(self, folder: Path, *, simulated: bool = False) -> None:
        if not folder.is_dir():
            raise BadInput("is not a run folder", fix="name a folder that holds plan.json", file=folder)
        self.folder = folder
        self.place = folder.absolute()  # a relative name could be part of some other word
        self.problems: list[str] = _foreign(folder / RAW / FOREIGN)
        self.plan = read_record(folder / PLAN, Plan)
        if self.plan.simulated and not simulated:
            fix = "name one that was measured; verdict, report, localise and export take this one"
            raise BadInput("is a SIMULATED run: no hardware was measured", fix=fix, file=folder)
        self._raw_seen: dict[str, str] = {}  # path: why it is no evidence
        self._raw_folders: set[str] = set()

    def measurements(self) -> Iterator[Measurement]:
        """Yield the lines of `results.jsonl`; a value whose raw output is missing gets a problem."""
        for m in self._lines(RESULTS, Measurement):
            if m.job == SIMULATED and not self.plan.simulated:
                raise BadInput("its results are simulated, and its plan does not say so", file=self.folder)
            if m.raw is not None and m.problem is None and (flaw := self._raw_seen[m.raw]):
                yield m.model_copy(update={"problem": RunProblem(kind="other", message=flaw)})
            else:
                yield m

    def counters(self) -> Iterator[CounterReading]:
        """Yield the lines of `counters.jsonl`; one whose raw output is missing is a problem of the run."""
        return self._lines(COUNTERS, CounterReading)

    # What else each reader needs of the folder, read once for all of them.

    @cached_property
    def inventory(self) -> Snapshot | None:
        """`inventory.json`; None if the run has none. Raises BadInput."""
        path = self.folder / INVENTORY
        return read_record(path, Snapshot) if os.path.lexists(path) else None

    @cached_property
    def snapshot(self) -> Snapshot | None:
        """`inventory.json`; None if there is none that can be read: its cells say so."""
        with contextlib.suppress(BadInput, OSError):
            return self.inventory
        return None

    @cached_property
    def jobs(self) -> Jobs | None:
        """What `jobs.json` asks of Slurm; None if the run has none. Raises BadInput."""
        path = self.folder / JOBS
        return read_record(path, Jobs) if os.path.lexists(path) else None

    @property
    def planned_jobs(self) -> Jobs:
        """`jobs`, where there must be some. Raises BadInput."""
        if self.jobs is None:
            raise BadInput("does not exist", fix="name a complete run folder", file=self.folder / JOBS)
        return self.jobs

    @property
    def has_jobs(self) -> bool:
        """Whether the run has jobs. One without (a simulation, a case by hand) has no raw files."""
        return self.jobs is not None and bool(self.jobs.jobs)

    @cached_property
    def job_records(self) -> dict[str, JobRecord | Exception]:
        """What Slurm said of each job, by its folder below `raw/`; where that cannot be read, why not."""
        return {folder.name: _job_record(folder) for folder in job_folders(self.place)}

    @property
    def ran(self) -> list[JobRecord]:
        """What Slurm said of each job, as far as it can be read."""
        return [record for record in self.job_records.values() if isinstance(record, JobRecord)]

    @cached_property
    def own_paths(self) -> list[FlowPath] | None:
        """The site's own record of its flows' spines, `raw/paths.jsonl`; None without. Raises BadInput."""
        own = self.folder / RAW / PATHS
        return list(read_paths(own)) if own.is_file() and not own.is_symlink() else None

    def strays(self) -> list[str]:
        """Return the problem of what lies below raw/ that neither a planned job nor the controller writes."""
        planned: set[str] = set()
        with contextlib.suppress(BadInput):
            planned = {job.name for job in self.jobs.jobs} if self.jobs else planned
        odd = sorted(
            printable(path.name)
            for path in (self.folder / RAW).glob("*")
            if planned
            # Empty folders are removed by sealing; of what NFS and the kernel leave nothing is read.
            and (path.is_symlink() or not path.is_dir() or _holds_files(path))
            and not path.name.startswith((".", "core."))
            and job_and_attempt(path.name)[0] not in planned
            and not any(fnmatchcase(path.name, one) for one in (*OF_CONTROLLER, *_OF_STAGES))
        )
        if not odd:
            return []
        more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
        return [f"raw/ holds {', '.join(odd[:3])[:200]}{more}, which nothing that was planned writes"]

    def _lines(self, name: str, kind: type[L]) -> Iterator[L]:
        path = self.folder / name
        if not os.path.lexists(path):
            return
        validate = kind.__pydantic_validator__.validate_json
        with open_plain(path) as file:
            number = 0
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise BadInput(
                        f"line is longer than {LONGEST_LINE} bytes", file=path, line=number, fix="split it"
                    )
                try:
                    record: L = validate(line)
                except ValidationError as error:
                    if not line.endswith(b"\n"):
                        self.problems.append(f"{name} breaks off inside line {number}: its writer was killed")
                        return
                    raise refusal(error, kind, file=path, line=number) from None
                _check_keys(line, record, path, number)
                if record.run != self.plan.run:
                    raise BadInput(
                        f"belongs to run {record.run!r}, not {self.plan.run!r}",
                        fix="remove the line: results of another run prove nothing here",
                        file=path,
                        line=number,
                    )
                if record.raw is not None and record.raw not in self._raw_seen:
                    flaw = self._raw_seen[record.raw] = self._check_raw(record.raw, path, number)
                    if flaw and kind is CounterReading:  # which has no problem of its own
                        self.problems.append(f"{name}: {flaw}")
                yield record

    def _check_raw(self, raw: str, path: Path, line: int) -> str:
        """Refuse a path that leaves `raw/`; return why the file cannot be evidence, or an empty string."""
        parts = raw.split("/")
        if len(parts) < 2 or parts[0] != RAW or not _SUBPATH.isdisjoint(parts) or "\0" in raw:
            raise BadInput(
                f"raw path {raw[:200]!r} leaves the run folder", fix="use raw/FILE", file=path, line=line
            )
        for depth in range(1, len(parts) + 1):
            place = "/".join(parts[:depth])
            if place in self._raw_folders:
                continue
            try:
                mode = os.lstat(f"{self.folder}/{place}").st_mode
            except OSError:
                return f"its raw output {raw} is missing"
            if stat.S_ISLNK(mode):
                raise BadInput(
                    f"raw path {raw[:200]!r} goes through a symbolic link",
                    fix="copy the file into raw/",
                    file=path,
                    line=line,
                )
            if stat.S_ISDIR(mode):
                self._raw_folders.add(place)
        return "" if stat.S_ISREG(mode) else f"its raw output {raw} is not a plain file"


def _check_keys(line: bytes, record: Measurement | CounterReading, path: Path, number: int) -> None:
    """Refuse duplicate keys and NaN tokens, which the validator lets pass.

    A key that is written once appears once as `":`. Only a line where the count differs, or where that
    trick could be fooled by white space, is worth the slow parser.
    """
    fields = record.__pydantic_fields_set__
    if "schema_" not in fields:
        refuse_schema(path, number)
    keys = len(fields)
    if isinstance(record, Measurement):
        keys += len(record.params) + (2 if record.problem else 0)
    tidy = line.count(b'":') == keys and b'" ' not in line and b"\t" not in line and b"\r" not in line
    # Most lines have no such letter, and one letter is found faster than a word.
    if not tidy or (b"N" in line and b"NaN" in line) or (b"I" in line and b"Infinity" in line):
        strict_json(line, path, number)


def write_verdict(folder: Path, verdict: Verdict) -> None:
    """Write `verdict.json` into a run folder, which a sealed run only lets be done again."""
    path = folder / VERDICT
    if not (same := path.is_file() and verdict_says(read_bytes(path), verdict)):
        refuse_sealed(folder, "judge it")
    if not same or not (folder / SUMS).exists():
        write_aside(path, verdict_to_json(verdict))


def run_name(folder: Path) -> str:
    """Return the name that a run in this folder has, which is the folder's own.

    Raises BadInput: the folder's name cannot be that of a run.
    """
    name = folder.resolve().name
    try:
        return _NAME.validate_python(name)
    except ValidationError:
        raise BadInput(
            f"{name[:80]!r} cannot name a run",
            fix="use a folder name of at most 128 letters, digits and _ . : + -, a letter or digit first",
            file=folder,
        ) from None


def plan_to_json(plan: Plan) -> bytes:
    """Write a plan as its file holds it, on one line: indented, each pair of nodes would take four.

    Raises BadInput: nothing could read the file again.
    """
    content = (plan.model_dump_json(by_alias=True) + "\n").encode()
    if len(content) > LARGEST_DOCUMENT:
        raise BadInput(
            f"a plan of {len(content)} bytes is more than the {LARGEST_DOCUMENT} that can be read again",
            fix="plan fewer nodes, or fewer tests in one run",
        )
    return content


def write_plan(folder: Path, plan: Plan) -> None:
    """Write `plan.json` into a run folder, made if need be. Raises BadInput as `plan_to_json` does."""
    content = plan_to_json(plan)
    folder.mkdir(parents=True, exist_ok=True)
    write_aside(folder / PLAN, content)


def write_inventory(folder: Path, inventory: Snapshot) -> None:
    """Write `inventory.json` into a run folder."""
    write_aside(folder / INVENTORY, to_json(inventory))


def write_lines(path: Path, records: Iterable[Measurement | CounterReading]) -> None:
    """Write `results.jsonl` or `counters.jsonl` as a whole."""
    write_aside(path, lines_of(records))


def lines_of(records: Iterable[Measurement | CounterReading]) -> Iterator[bytes]:
    """Yield records as the lines of a file: the million of a large run are never in memory at once."""
    return (r.model_dump_json(by_alias=True).encode() + b"\n" for r in records)


# What was made from a run's raw files, set aside when they can no longer be read: nothing stale may pass.

# What judging makes of the results, the report's files included.
JUDGED = (VERDICT, "report.html", "report.md", "junit.xml", "metrics.prom")
COLLECTED = (RESULTS, COUNTERS, *JUDGED)


def set_aside(folder: Path, names: Iterable[str]) -> None:
    """Rename each of these files of a run that is there to `NAME.old`, over an older one of that name."""
    for name in names:
        path = folder / name
        if path.is_file() and not path.is_symlink():
            path.replace(path.with_name(f"{name}.old"))


def job_folders(folder: Path) -> list[Path]:
    """Return the folders of a run's jobs."""
    return sorted(path.parent for path in (folder / RAW).glob("*/job.json"))


def _job_record(folder: Path) -> JobRecord | Exception:
    try:
        if folder.is_symlink():
            raise BadInput("is a link", fix="copy the folder here", file=folder)
        return read_record(folder / "job.json", JobRecord)
    except (BadInput, OSError) as refused:
        return refused


# The files of a run, whatever they hold.


def refuse_sealed(folder: Path, then: str) -> None:
    """Refuse to change a sealed run. `then`: the command that would, in the words of a way out."""
    if os.path.lexists(folder / SUMS):
        raise BadInput(
            "is sealed, and this would change it",
            fix=f"copy it, or remove its {SUMS} and {SIGNATURE}, {then}, and seal it anew",
            file=folder,
        )


DEEPEST = 16  # a run's own folders are three deep
MOST_BYTES = 64 << 30  # of all files, as they say: one that is sparse takes no room until it is copied
MOST_FILES = 2_000_000  # 4,096 nodes leave a few hundred thousand; each takes memory here, and a line of SUMS


def run_files(folder: Path, flaws: list[BadInput] | None = None) -> Iterator[str]:
    """Yield every file of a bundle, sorted, seals left out.

    Args:
        folder: the run's.
        flaws: gets why something below `raw/` is no file of a run; it is passed over then.

    Raises BadInput: a link, a special file, an odd name or a folder nested too deeply, unless it lies below
    `raw/` and there are `flaws` to say so.
    """
    found: list[str] = []
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        entries = islice(os.scandir(folder / inside), MOST_FILES + 1)
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = f"{inside}/{entry.name}" if inside else entry.name
            flaw = _flaw(folder, name, entry)
            if flaw is None and entry.is_dir(follow_symlinks=False):
                waiting.append(name)
            elif flaw is None:
                found.append(name)
            elif flaws is not None and name.startswith(f"{RAW}/"):
                flaws.append(flaw)
            else:
                raise flaw
        if len(found) > MOST_FILES:
            most = f"holds more than {MOST_FILES} files"
            raise BadInput(most, fix="remove what is not the run's", file=folder)
    yield from sorted(set(found) - {SUMS, SIGNATURE})


def empty_folders(folder: Path) -> list[str]:
    """Return the folders of a run that hold no file, the innermost first: no checksum covers them."""
    return [
        Path(inside).relative_to(folder).as_posix()
        for inside, folders, files in os.walk(folder, topdown=False)
        if not files and Path(inside) != folder and not any(_holds_files(Path(inside) / f) for f in folders)
    ]


def _holds_files(folder: Path) -> bool:
    return any(files for _, _, files in os.walk(folder))


def _flaw(folder: Path, name: str, entry: os.DirEntry[str]) -> BadInput | None:
    """Return why this can be no file or folder of a run."""
    if not name.isprintable() or "\\" in name:
        return BadInput(f"file name {name!r} cannot be sealed", fix="rename it", file=folder)
    if not entry.is_file(follow_symlinks=False) and not entry.is_dir(follow_symlinks=False):
        return BadInput("is a link or special file", fix="copy it or remove it", file=folder / name)
    if name.count("/") >= DEEPEST:
        return BadInput(f"lies more than {DEEPEST} folders deep", fix="remove it", file=folder / name)
    return None


def redact_folder(folder: Path, flaws: list[BadInput] | None = None) -> list[str]:
    """Redact every raw output and record of a run in place; return the files that changed.

    `flaws`: as for `redacted_files`.
    """
    changed = []
    for name, content, clean in redacted_files(folder, flaws):
        if content != clean:
            write_aside(folder / name, clean)
            changed.append(name)
    return changed


def redacted_files(folder: Path, flaws: list[BadInput] | None = None) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield (file, content, redacted content) of what tools and jobs wrote.

    `flaws` gets why something below `raw/` was passed over: links, special files, and what is too large to
    be an output. No reader takes them either. Without `flaws` they are refused.
    """
    from shakedown.run.redact import redact_bytes

    for name in run_files(folder, flaws):
        of_a_tool = name.startswith(f"{RAW}/")
        if not of_a_tool and name not in (RESULTS, COUNTERS, INVENTORY):
            continue
        try:
            content = read_output(folder / name) if of_a_tool else read_bytes(folder / name)
        except BadInput as refused:
            if flaws is None or not of_a_tool:
                raise
            flaws.append(refused)
            continue
        yield name, content, redact_bytes(content)


ASIDE = re.compile(r"\..+?\.(\d{1,10})(?:\.[0-9a-f]{8})?\.new")  # as `aside_of` names it


def leftovers(folder: Path) -> Iterator[Path]:
    """Yield the half-written files below a folder whose writers are gone; links are not followed."""
    for inside, _, files in os.walk(folder):
        for name in sorted(files):
            named = ASIDE.fullmatch(name)
            path = Path(inside, name)
            if named and not path.is_symlink() and not _lives(int(named[1])):
                yield path


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True

"""What all parsers share: cleaning captured text, reading numbers, reading JSON, building results.

Captured output arrives coloured, with CRLF line ends, behind `srun -l` labels or mixed with Slurm's own
messages. All of that is dealt with here and nowhere else, so that no parser has its own idea of a number.
"""

import json
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar

from pydantic import BaseModel, Field, ValidationError

from shakedown.records.reading import BadInput, explain

Count = Annotated[int, Field(ge=0, lt=1 << 64)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]

ModelT = TypeVar("ModelT", bound=BaseModel)

# Only colour (SGR) and erase-in-line are harmless. Anything that moves the cursor overwrites text, so the
# capture does not say what was printed: its escape stays and is refused as a control character.
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m|\x1b\[[0-2]?K|\x1b\(B")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

# `srun -l` writes the task number, padded to the width of the largest one; Open MPI's --tag-output writes
# [job,rank]<stream>, from version 5 on with the launcher's name before the job. A line that the program wrote
# in pieces has a tag before every piece.
_TAG = re.compile(r"\[(?:[\w.-]+@)?\d+,(\d+)\]<(?:stdout|stderr|stddiag)>:")
_LABEL = re.compile(rf"(?: {{0,6}}(\d{{1,7}}): ?|{_TAG.pattern})")
_SLURM = re.compile(r"(?:srun|slurmstepd(?:-[\w.-]+)?|sbatch|salloc): ")
_SLURM_END = re.compile(
    r"CANCELLED|[Ee]xited with|Exceeded|Killed|[Tt]erminat|Aborted|abort|Segmentation|Bus error|oom|OOM"
    r"|[Oo]ut.[Oo]f.[Mm]emory|NODE.FAIL|[Nn]ode fail|TIME LIMIT|timed out|Timed out|core dumped"
)

# What others say into a tool's output and what says nothing of its results: who, and how such a line begins.
# It is left out of the lines, and told beside them. Seen in these programs' sources and issues, 2015 to 2026.
OF_OTHERS = {
    # rdma-core, libibverbs/init.c: a provider whose NIC is not in this machine, a limit of memory.
    "libraries": r"(?:lib\w{1,20}|mlx[45]|efa|rxe|irdma|bnxt_re|hns|erdma): Warning: |libgomp: "
    r"|OMP: (?:Warning|Info)|This will severely limit memory registrations",
    "ld.so": r"ERROR: ld\.so: object \S{1,200} from LD_\w+ cannot be preloaded",
    "UCX": r"\[[0-9.]{1,30}\] \[[^\]]{1,80}\] {1,20}\S{1,60} {1,5}UCX {1,5}WARN ",
    "PMIx": r"\[[^\]]{1,80}\] PMIX ERROR: .{0,60}in file ",  # its store's, of which it goes on without
    "Open MPI": r"\[[^\]]{1,80}\] mca_base_component_repository_open: |other system errors; your job may "
    r"|Open MPI failed an OFI ",
    # It asks GPUs for their place through X, too.
    "hwloc": r"hwloc/\w{1,20}: |Invalid MIT-MAGIC-COOKIE-1 key|No protocol specified",
    "shells": r"(?:\S{0,60}/)?-?\w{0,4}sh: (?:line [0-9]{1,9}: )?warning: |perl: warning: "
    r"|/etc/(?:profile|bash)\S{0,100}: line [0-9]{1,9}: |manpath: |Lmod (?:Warning|has detected )",
    "images": r"(?:NOTE|WARNING|ERROR): .{0,40}(?:container|SHMEM|MOFED|InfiniBand devices|NVIDIA Driver)",
}
_OF_OTHERS = re.compile("|".join(OF_OTHERS.values()))
# What happened to a NIC, a GPU or a connection while a tool went on to its end: told beside its results, on
# either stream. Of NCCL's warnings, these tell of a host's settings and of no event: each is
# looked at elsewhere or costs nothing (RCCL, src/init.cc; NCCL, src/plugin/*.cc: no tuner or profiler was
# installed; ANP warns that it was loaded).
OF_SETTINGS = re.compile(
    r"Missing \"iommu=pt\"|NUMA auto balancing|MSCCL\+\+: |(?:TUNER|PROFILER)/Plugin: |ANP plugin loaded "
)
EVENTS = re.compile(
    r"NCCL WARN |Got async event|[Tt]ransport retry count exceeded|UCX +(?:ERROR|FATAL) |IBV_WC_\w{0,40}ERR"
    r"|Watchdog caught|[Uu]ncorrectable|Invalid value when checking|(?i:cuda (?:error|failure))|hipError\w"
    r"|nccl(?:System|Remote|Internal|UnhandledCuda)Error|slurmstepd: error: .{0,200}(?:CANCELLED|oom|OOM)"
)
# Open MPI and hwloc frame what they have to say. perftest's own frames are of 36 asterisks or 87 dashes.
_FRAME = re.compile(r"(?:-{70,80}|\*{70,80})\Z")
_FRAMED = re.compile(r"Open MPI|hwloc|PMIx|OpenFabrics|fork\(\)|\bMCA\b")
_LONGEST_FRAMED = 40  # lines

# What Open MPI and PMIx say of ranks that srun started without them (open-mpi/ompi, issue 13523).
_ALONE = re.compile(r"singletons? will be started|No PMIx server was reachable|PMI2? support", re.IGNORECASE)

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}\Z")
_NUMBER = re.compile(r"[+-]?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?\Z")


class Line(NamedTuple):
    """One line of a capture, cleaned, with its 1-based number in the file."""

    number: int
    text: str


class TextSource:
    """A captured output: its cleaned lines, and how to refuse it.

    Args:
        text: the whole capture.
        file: the name to quote when the capture is refused.
        mixed: lines of several tasks, and lines of none, may stand side by side: labels are only taken off.
        apart: others' lines are kept in `others`, and not among the tool's own.

    Raises BadInput: control characters, labels of several tasks, or a Slurm message that the step was ended.
    """

    def __init__(
        self, text: str, file: str | Path | None = None, *, mixed: bool = False, apart: bool = True
    ) -> None:
        self.file = file
        self.others: tuple[str, ...] = ()
        self.mixed = mixed
        # Whether the last line was ended: one that was not may be cut off in the middle of a number.
        self.terminated = text.endswith("\n")
        lines = [self._clean(n, line) for n, line in enumerate(text.split("\n"), start=1)]
        self.lines: tuple[Line, ...] = tuple(self._unlabelled([x for x in lines if not self._is_slurm(x)]))
        if apart:
            self._part()
        if not any(line.text.strip() for line in self.lines):
            what = (
                f"the tool said nothing, only: {quote(self.others[0])}"
                if self.others
                else "the file is empty"
            )
            self.refuse(f"no output: {what}", fix="check that the tool ran and wrote here")

    def _part(self) -> None:
        """Take out what others said."""
        own, others, skip = list[Line](), list[str](), 0
        for number, line in enumerate(self.lines):
            text = line.text.strip()
            if number < skip:
                continue
            if _OF_OTHERS.match(text):
                others.append(text)
            elif _FRAME.match(text) and (framed := self._framed(number, text)):
                skip = number + len(framed) + 2
                others.append(" ".join(framed)[:500])
            else:
                own.append(line)
        self.lines, self.others = tuple(own), tuple(dict.fromkeys(others))

    def _framed(self, begin: int, frame: str) -> list[str]:
        """Return the lines up to the frame's other end; none where they are the tool's own."""
        words = [line.text.strip() for line in self.lines[begin + 1 : begin + 1 + _LONGEST_FRAMED]]
        words = words[: words.index(frame)] if frame in words else []
        return words if _FRAMED.search(" ".join(words)) else []

    def refuse(self, what: str, *, line: Line | int | None = None, fix: str = "") -> NoReturn:
        """Raise BadInput for this capture."""
        raise self.error(what, line=line, fix=fix)

    def error(self, what: str, *, line: Line | int | None = None, fix: str = "") -> BadInput:
        """Return the BadInput for this capture."""
        number = line.number if isinstance(line, Line) else line
        return BadInput(what, fix=fix, file=self.file, line=number)

    def refuse_alone(self, tests: int, line: Line | None = None) -> None:
        """Refuse more than one test in an output of one, and ranks that say that they are alone."""
        what = f"{tests} tests in one file: joined outputs, or ranks that did not find each other"
        if any(_ALONE.search(line.text) for line in self.lines):
            what = f"{tests} ranks did not find each other, each ran a test of its own"
        elif tests < 2:
            return
        fix = "start ranks with PMIx: srun --mpi=pmix, which srun --mpi=list must have; keep one test a file"
        self.refuse(what, line=line, fix=fix)

    def ends_before(self, what: str, fix: str = "run the test again; its output was cut off") -> NoReturn:
        """Refuse the capture as truncated before `what`."""
        last = max((line.number for line in self.lines if line.text.strip()), default=None)
        self.refuse(f"output ends before {what}", line=last, fix=fix)

    def integer(self, token: object, what: str, *, line: Line | int | None = None) -> int:
        """Read a decimal integer; anything else is refused, never read as 0."""
        if isinstance(token, int) and not isinstance(token, bool):
            return token
        if not isinstance(token, str) or not _INTEGER.match(token):
            self.refuse(f"{what} should be a whole number but is {quote(token)}", line=line)
        return int(token)

    def number(self, token: object, what: str, *, line: Line | int | None = None) -> float:
        """Read a finite decimal number; `inf`, `nan` and everything else is refused, never read as 0."""
        value = math.nan
        if isinstance(token, str):
            value = float(token) if _NUMBER.match(token) else math.nan
        elif isinstance(token, int | float) and not isinstance(token, bool):
            with suppress(OverflowError):
                value = float(token)
        if not math.isfinite(value):
            self.refuse(f"{what} should be a finite number but is {quote(token)}", line=line)
        return value

    def build(self, model: type[ModelT], *, line: Line | int | None = None, **fields: object) -> ModelT:
        """Build a result; a value outside its range is refused."""
        try:
            return model(**fields)
        except ValidationError as error:
            raise self.error(explain(error, model), line=line) from None

    def validate(self, model: type[ModelT], data: object, *, line: Line | int | None = None) -> ModelT:
        """Validate parsed JSON against a model, strictly: "1" is not 1."""
        try:
            # Through JSON again: strict mode knows arrays as tuples only there.
            return model.model_validate_json(json.dumps(data), strict=True)
        except ValidationError as error:
            raise self.error(explain(error, model), line=line) from None

    def json(self, text: str | None = None, *, line: Line | None = None, by: str = "") -> object:
        """Parse the capture (or `text`, found on `line`) as strict JSON.

        Refuses NaN and infinities, duplicate keys, numbers beyond a float and truncated documents. `by` is
        the command that prints this JSON, of a tool that prints text for people too.
        """
        # An image may greet first, as NGC's do, until a line has nothing but the first bracket.
        first = (n for n, x in enumerate(self.lines) if by and x.text.rstrip() in ("{", "["))
        body = "\n".join(x.text for x in self.lines[next(first, 0) :]) if text is None else text
        if by and body.lstrip()[:1] not in ("{", "["):
            self.refuse("text for people, not JSON", line=line, fix=f"capture `{by}`")
        try:
            document: object = json.loads(
                body,
                parse_constant=lambda x: self.refuse(f"{x} is not a finite number", line=line),
                parse_float=lambda x: self.number(x, "a JSON number", line=line),
                parse_int=lambda x: self.integer(x, "a JSON number", line=line),
                object_pairs_hook=lambda pairs: self._object(pairs, line),
            )
            return document
        except json.JSONDecodeError as error:
            at = line if line is not None else self._line_of(error.lineno)
            if not body[error.pos :].strip() or "Unterminated string" in error.msg:
                self.refuse("output ends before the closing bracket of its JSON", line=at, fix="run it again")
            self.refuse(f"not JSON: {error.msg} at column {error.colno}", line=at)
        except RecursionError:
            self.refuse("not the expected JSON: nested too deeply", line=line)

    def _line_of(self, index: int) -> int | None:
        return self.lines[index - 1].number if index <= len(self.lines) else None

    def _object(self, pairs: list[tuple[str, Any]], line: Line | None) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            self.refuse(f"JSON key {quote(twice)} appears twice in one object", line=line)
        return result

    def _clean(self, number: int, text: str) -> Line:
        text = _COLOUR.sub("", text.rstrip("\r"))
        control = _CONTROL.search(text)
        if control:
            fix = "capture the tool's output as plain text (no terminal recording, no binary file)"
            self.refuse(f"control character {control.group()!r} in the output", line=number, fix=fix)
        return Line(number, text)

    def _is_slurm(self, line: Line) -> bool:
        """Tell Slurm's own messages from the tool's output; refuse those that say that the step was ended."""
        if not _SLURM.match(line.text):
            return False
        if _SLURM_END.search(line.text):
            self.refuse(f"Slurm ended the step: {quote(line.text)}", line=line, fix="run the test again")
        return True

    def _unlabelled(self, lines: list[Line]) -> list[Line]:
        if self.mixed:
            return _untagged(self, lines)
        labels = set(_labels(self, lines))
        if not labels:
            return lines
        if len(labels) > 1:
            some = ", ".join(sorted(labels, key=int)[:4])
            fix = "parse one task at a time: --task N, or srun --output with %t in the name"
            self.refuse(f"the output of several tasks is interleaved (labels {some})", line=lines[0], fix=fix)
        return [Line(line.number, _LABEL.sub("", line.text, count=1)) for line in lines]


def _untagged(source: TextSource, lines: list[Line]) -> list[Line]:
    """Take the labels off, whichever task's they are; a line that two tasks share is refused."""
    matches = {line: _LABEL.match(line.text) for line in lines if line.text.strip()}
    # One line that looks like `srun -l` labelled it is the program's own.
    most = 2 * sum(1 for match in matches.values() if match) > len(matches)
    plain = []
    for line in lines:
        text, match = line.text, matches.get(line)
        if "]<" in text and (tags := set(_TAG.findall(text))):
            if len(tags) > 1:
                fix = (
                    "let every task write a file of its own (mpirun --output-filename, srun --output with %t)"
                )
                source.refuse("a line that two tasks share", line=line, fix=fix)
            text = _TAG.sub("", text)
        elif most and match:
            text = text[match.end() :]
        plain.append(Line(line.number, text))
    return plain


def _labels(source: TextSource, lines: list[Line]) -> list[str]:
    """Return the label of every line that is not blank; none at all if lines are not labelled.

    One line that looks labelled is the tool's own. Where most are, the others are not any task's.
    """
    matches = [(line, _LABEL.match(line.text)) for line in lines if line.text.strip()]
    labels = [match.group(1) or match.group(2) for _, match in matches if match]
    if len(labels) == len(matches):
        return labels
    if len(labels) <= len(matches) // 2:
        return []
    stray = next(line for line, match in matches if not match)
    fix = "keep apart what the tasks print and what the launcher prints"
    source.refuse(f"a line without a task's label: {quote(stray.text)}", line=stray, fix=fix)


def split_labels(text: str, *, file: str | Path | None = None) -> dict[str, str]:
    """Split labelled output of several tasks into one text per task, keyed by label.

    Line numbers are kept: lines of other tasks become blank. Output without labels gives an empty dictionary.
    Raises BadInput: most lines have a label, but not all.
    """
    source = TextSource("-", file)
    lines = [Line(n, _COLOUR.sub("", x.rstrip("\r"))) for n, x in enumerate(text.split("\n"), start=1)]
    lines = [Line(n, "" if _SLURM.match(x) else x) for n, x in lines]
    if not _labels(source, lines):
        return {}
    tasks: dict[str, list[str]] = {}
    for line in lines:
        match = _LABEL.match(line.text)
        if match:
            own = tasks.setdefault(match.group(1) or match.group(2), [""] * len(lines))
            own[line.number - 1] = line.text[match.end() :]
    return {label: "\n".join(own) for label, own in tasks.items()}


def quote(token: object) -> str:
    """Quote outside text, shortened so that a message stays one readable line."""
    text = token if isinstance(token, str) else repr(token)
    return f"'{text[:80]}...'" if len(text) > 80 else f"'{text}'"


def half_digit(token: str) -> float:
    """Half a unit of the last digit of a printed number: 0.005 for "12.34", 500 for "1.2e+04"."""
    mantissa, _, exponent = token.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(f"5e{int(exponent or 0) - decimals - 1}")  # not a power: that overflows where this is inf

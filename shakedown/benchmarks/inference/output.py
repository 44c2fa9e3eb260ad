"""MLPerf LoadGen's mlperf_log_summary.txt (checked with 6.0.17; read from loadgen/results.cc, v4.0 to v6.0).

A summary is complete with its last two lines, which count warnings and errors.
"""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from shakedown.records.base import Record
from shakedown.records.tool_text import Amount, Count, Line, TextSource, quote

Scenario = Literal["Server", "Offline", "SingleStream", "MultiStream"]

_RULE = re.compile(r"={40,}\Z")
_KEY = re.compile(r"[A-Za-z0-9]")  # what one begins with
_PERCENTILE = re.compile(r"(\d{1,3}\.\d+) percentile latency \(ns\)\Z")
_COUNTED = re.compile(
    r"(No|[0-9]+) (warnings?|errors?|ERRORS?) encountered(?: during test\.|\.(?: See detailed log\.)?)\Z"
)
_TITLES = ("MLPerf Results Summary", "Additional Stats", "Test Parameters Used")

# LoadGen's keys and our fields: throughput and latency.
_RATES = {
    "Completed samples per second": "completed_samples_per_s",
    "Scheduled samples per second": "scheduled_samples_per_s",
    "Samples per second": "samples_per_s",
    "Completed tokens per second": "completed_tokens_per_s",
    "Tokens per second": "tokens_per_s",
}
_LATENCIES = {
    "Min latency (ns)": "min_latency_ns",
    "Max latency (ns)": "max_latency_ns",
    "Mean latency (ns)": "mean_latency_ns",
}
_CONSTRAINTS = {
    "Performance constraints satisfied": "performance_constraints",
    "Min duration satisfied": "min_duration",
    "Min queries satisfied": "min_queries",
    "Early stopping satisfied": "early_stopping",
}
_ADVICE = ("Recommendations:", "Early Stopping Result:", "TTFT Early Stopping Result:")
# Figures that are kept under LoadGen's own names.
_OTHER = re.compile(
    r"[QT]PS w/o?\s+loadgen overhead|\d{1,3}(?:\.\d)?th (?:first token )?percentile latency \(ns\)"
    r"|(?:Completed t|T)okens per second(?: \(inferred\))?"
    r"|(?:Min|Max|Mean) (?:First Token latency|Time (?:per|to) Output Token) \(ns\)"
    r"|\d{1,3}\.\d+ percentile (?:first token latency|time to output token) \(ns\)"
)
# The parameters that every version lists (LogSummary in loadgen/test_settings_internal.cc).
_PARAMETERS = (
    "samples_per_query",
    "target_qps",
    "max_async_queries",
    "min_duration (ms)",
    "max_duration (ms)",
    "min_query_count",
    "max_query_count",
    "qsl_rng_seed",
    "sample_index_rng_seed",
    "schedule_rng_seed",
    "accuracy_log_rng_seed",
    "accuracy_log_probability",
    "accuracy_log_sampling_target",
    "print_timestamps",
    "performance_issue_unique",
    "performance_issue_same",
    "performance_issue_same_index",
    "performance_sample_count",
)
# Language models have two bounds, to the first token and between tokens; all others have one.
_BOUND, _TOKEN_BOUNDS = "target_latency (ns)", ("ttft_latency (ns)", "tpot_latency (ns)")
# LoadGen always lists these (latency_percentiles in results.h).
_LISTED = (50.0, 90.0, 95.0, 97.0, 99.0, 99.9)
_LATENCIES_RISING = ("min_latency_ns", "mean_latency_ns", "max_latency_ns")
_HEADLINE = re.compile(r"(\d{1,3}(?:\.\d)?)th percentile latency \(ns\)\Z")
_OVERHEAD, _NO_OVERHEAD = "QPS w/ loadgen overhead", "QPS w/o loadgen overhead"
# The figure that a scenario is about; a summary without it is not one.
_DUE = {"Server": ("completed_samples_per_s", "scheduled_samples_per_s"), "Offline": ("samples_per_s",)}
# Since 6.0 this parameter is listed too; such a version judges early stopping.
_RECENT = "accuracy_sample_count"


class Percentile(Record):
    """A latency percentile."""

    percent: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]
    latency_ns: Count


class LoadGenResult(Record):
    """One LoadGen run."""

    tool: Literal["loadgen"] = "loadgen"
    scenario: Scenario
    mode: str
    sut: str
    valid: bool  # "Result is : VALID"
    performance_constraints: bool | None  # None: the scenario has none
    min_duration: bool
    min_queries: bool
    early_stopping: bool | None  # None: a version without it
    completed_samples_per_s: Amount | None = None  # Server
    scheduled_samples_per_s: Amount | None = None  # Server
    samples_per_s: Amount | None = None  # Offline
    completed_tokens_per_s: Amount | None = None
    tokens_per_s: Amount | None = None
    min_latency_ns: Count
    max_latency_ns: Count
    mean_latency_ns: Count
    percentiles: tuple[Percentile, ...] = Field(min_length=1)
    target_qps: Amount
    target_latency_ns: Count | None
    min_duration_ms: Count
    max_duration_ms: Count
    min_query_count: Count
    samples_per_query: Count
    # "Test Parameters Used", under LoadGen's names: those that every version lists, and the bounds
    parameters: dict[str, float]
    other: dict[str, float]  # further figures, under LoadGen's names
    warnings: Count
    errors: Count

    @property
    def good(self) -> bool:
        """Whether LoadGen calls the run VALID and met no error in it."""
        return self.valid and not self.errors

    def percentile_ns(self, percent: float) -> int | None:
        """The latency of a percentile in nanoseconds, or None if the summary does not list it."""
        return next((p.latency_ns for p in self.percentiles if abs(p.percent - percent) < 1e-9), None)


def parse_loadgen(text: str, *, file: str | Path | None = None) -> LoadGenResult:
    """Parse mlperf_log_summary.txt.

    Raises BadInput: truncated or contradictory, a key or number missing, or not a performance run.
    """
    return _Summary(TextSource(text, file)).parse()


# Of the scheduled rate: what came in cannot have been done faster. Short runs count their ends differently.
_MOST_DONE = 1.05


class _Summary:
    def __init__(self, source: TextSource) -> None:
        self.source = source
        self.fields: dict[str, object] = {}
        self.other: dict[str, float] = {}
        self.percentiles: list[tuple[Percentile, Line]] = []
        self.valid: Line | None = None

    def parse(self) -> LoadGenResult:
        summary, stats, parameters = self._sections()
        self._summary(summary)
        self._stats(stats)
        numbers = self._parameters(parameters)
        self._check()
        return self.source.build(
            LoadGenResult,
            line=self.valid,
            **({"performance_constraints": None, "early_stopping": None} | self.fields),
            percentiles=tuple(p for p, _ in self.percentiles),
            target_qps=numbers.get("target_qps"),
            target_latency_ns=_whole(numbers.get("target_latency (ns)")),
            min_duration_ms=_whole(numbers.get("min_duration (ms)")),
            max_duration_ms=_whole(numbers.get("max_duration (ms)")),
            min_query_count=_whole(numbers.get("min_query_count")),
            samples_per_query=_whole(numbers.get("samples_per_query")),
            parameters=numbers,
            other=self.other,
        )

    def _sections(self) -> tuple[list[Line], list[Line], list[Line]]:
        """Split at the three titles, each between two rules; take the two counts from the end."""
        lines = [line for line in self.source.lines if line.text.strip()]
        at = []
        for title in _TITLES:
            found = [i for i, line in enumerate(lines) if line.text.strip() == title]
            if not found and len(lines) <= 2 and all(_COUNTED.match(x.text.strip()) for x in lines):
                fix = "an accuracy run is told in mlperf_log_accuracy.json"
                self.source.refuse("no performance: LoadGen sums up none in accuracy mode", fix=fix)
            if not found:
                fix = "was it a performance run that ended? See mlperf_log_detail.txt"
                self.source.ends_before(f"the section '{title}'", fix=fix)
            if len(found) > 1:
                self.source.refuse(f"'{title}' twice", line=lines[found[1]], fix="keep one run a file")
            at.append(found[0])
        counts = {}
        for word, line in zip(("warnings", "errors"), lines[-2:], strict=False):
            match = _COUNTED.match(line.text.strip())
            if match is None or word.rstrip("s") != match[2].lower().rstrip("s"):
                self.source.ends_before(f"the line that counts {word}")
            counts[word] = 0 if match[1] == "No" else self.source.integer(match[1], word, line=line)
        self.fields |= counts
        strays = [x for x in lines[: at[0]] if not _RULE.match(x.text.strip())]
        if strays:
            self.source.refuse(f"unexpected {quote(strays[0].text.strip())}", line=strays[0])
        if sorted(at) != at or len(lines) - 2 <= at[2]:
            self.source.refuse("the sections are out of order", line=lines[at[0]])
        body = (lines[at[0] : at[1]], lines[at[1] : at[2]], lines[at[2] : -2])
        first, second, third = ([x for x in part[1:] if not _RULE.match(x.text.strip())] for part in body)
        return first, second, third

    def _pair(self, line: Line) -> tuple[str, str]:
        key, _, value = line.text.strip().partition(":")  # no expression: a line may be as long as the file
        if not _KEY.match(key) or not value:
            self.source.refuse(f"neither a key nor a value: {quote(line.text.strip())}", line=line)
        return key.rstrip(), value.lstrip()

    def _set(self, name: str, value: object, line: Line) -> None:
        if name in self.fields:
            self.source.refuse(f"{name} is stated twice", line=line, fix="keep one run a file")
        self.fields[name] = value

    def _summary(self, lines: list[Line]) -> None:
        for number, line in enumerate(lines):
            text = line.text.strip()
            # What follows is advice in free text.
            if text in _ADVICE:
                stopping = "early_stopping" in self.fields or "Early" not in text
                if not stopping:
                    self.source.refuse("'Early stopping satisfied' is missing", line=line)
                self._check_advice(lines[number:])
                break
            key, value = self._pair(line)
            if key in {"SUT name", "Mode", "Scenario"}:
                name = {"SUT name": "sut", "Mode": "mode", "Scenario": "scenario"}[key]
                self._set(name, value.replace(" ", "") if name == "scenario" else value, line)
            elif key == "Result is":
                if value not in {"VALID", "INVALID"}:
                    self.source.refuse(
                        f"the result should be VALID or INVALID but is {quote(value)}", line=line
                    )
                self._set("valid", value == "VALID", line)
                self.valid = line
            elif key in _CONSTRAINTS:
                if value not in {"Yes", "NO"}:
                    self.source.refuse(f"{key} should be Yes or NO but is {quote(value)}", line=line)
                self._set(_CONSTRAINTS[key], value == "Yes", line)
            else:
                self._figure(key, value, line)

    def _check_advice(self, lines: list[Line]) -> None:
        for line in lines:
            if line.text.partition(":")[0].strip() in _CONSTRAINTS | _RATES:
                self.source.refuse(f"a figure among advice: {quote(line.text.strip())}", line=line)

    def _stats(self, lines: list[Line]) -> None:
        for line in lines:
            if line.text.strip() == "Per-query latency:":
                continue
            key, value = self._pair(line)
            if key in _LATENCIES:
                self._set(_LATENCIES[key], self.source.integer(value, key, line=line), line)
            elif match := _PERCENTILE.match(key):
                percent = self.source.number(match[1], "percentile", line=line)
                latency = self.source.integer(value, key, line=line)
                row = self.source.build(Percentile, line=line, percent=percent, latency_ns=latency)
                self.percentiles.append((row, line))
            else:
                self._figure(key, value, line)

    def _figure(self, key: str, value: str, line: Line) -> None:
        number = self.source.number(value, key, line=line)
        if key in _RATES and _RATES[key] not in self.fields:
            self.fields[_RATES[key]] = number
        elif _OTHER.fullmatch(key) and key not in self.other:
            self.other[key] = number
        elif self.other.get(key) != number:
            self.source.refuse(f"unknown or doubled figure {quote(key)}", line=line)

    def _parameters(self, lines: list[Line]) -> dict[str, float]:
        numbers: dict[str, float] = {}
        for line in lines:
            if line.text.startswith("WARNING: sample_concatenate_permutation"):
                break
            key, value = self._pair(line)
            if key in numbers:
                self.source.refuse(f"{key} is stated twice", line=line, fix="keep one run a file")
            numbers[key] = self.source.number(value, key, line=line)
        bounds = _TOKEN_BOUNDS if any(key in numbers for key in _TOKEN_BOUNDS) else (_BOUND,)
        for key in (*_PARAMETERS, *bounds):
            if key not in numbers:
                self.source.ends_before(f"the parameter {key}")
        if _RECENT in numbers and "early_stopping" not in self.fields:
            self.source.refuse("'Early stopping satisfied' is missing", line=self.valid)
        return {key: numbers[key] for key in (*_PARAMETERS, *bounds)}

    def _check(self) -> None:
        """Refuse a summary that lacks its figure or contradicts itself."""
        due = _DUE.get(str(self.fields.get("scenario")), ())
        for name in ("valid", "min_duration", "min_queries", *_LATENCIES.values()):
            if name not in self.fields:
                self.source.ends_before(f"{name.replace('_', ' ')}")
        if lost := [name for name in due if name not in self.fields]:
            self.source.refuse(f"no {lost[0]} in a {self.fields['scenario']} summary", line=self.valid)
        if [p.percent for p, _ in self.percentiles] != list(_LISTED):
            self.source.refuse("latency percentiles are missing", line=self.valid)
        if self.fields.get("scenario") == "Server" and "performance_constraints" not in self.fields:
            self.source.ends_before("'Performance constraints satisfied'")
        met = [self.fields[name] for name in _CONSTRAINTS.values() if name in self.fields]
        if self.fields["valid"] != all(met):
            self.source.refuse("VALID contradicts the constraints below it", line=self.valid)
        self._check_witnesses()
        rising = [
            self.fields["min_latency_ns"],
            *(p.latency_ns for p, _ in self.percentiles),
            self.fields["max_latency_ns"],
        ]
        for (_, line), low, high in zip(self.percentiles, rising, rising[1:], strict=False):
            if low > high:  # type: ignore[operator]
                self.source.refuse("latency percentiles must rise", line=line)

    def _check_witnesses(self) -> None:
        """Refuse figures that another line of the summary contradicts."""
        low, mean, high = (int(str(self.fields[name])) for name in _LATENCIES_RISING)
        # LoadGen adds up latencies in 64 bits, which the millions of an Offline run may exceed.
        if not low <= mean <= high and self.fields.get("scenario") != "Offline":
            self.source.refuse(f"the mean latency {mean} ns is not between {low} and {high}", line=self.valid)
        listed = {p.percent: p.latency_ns for p, _ in self.percentiles}
        for key, value in self.other.items():
            match = _HEADLINE.match(key)
            if match and listed.get(float(match[1]), value) != value:
                self.source.refuse(f"{key} is not the latency in the list of percentiles", line=self.valid)
        done, planned = (self.fields.get(f"{what}_samples_per_s") for what in ("completed", "scheduled"))
        if isinstance(done, float) and isinstance(planned, float) and done > _MOST_DONE * planned:
            what = f"{done:g} completed samples/s are more than the {planned:g} scheduled"
            self.source.refuse(what, line=self.valid)
        rate = self.other.get(_NO_OVERHEAD)
        single = self.fields.get("scenario") == "SingleStream"
        streams = single or self.fields.get("scenario") == "MultiStream"
        if streams and not any("th " in key for key in self.other):
            self.source.ends_before("the percentile that the scenario is about")
        if single and (rate is None or _OVERHEAD not in self.other):
            self.source.ends_before(f"the figure {_OVERHEAD if rate is not None else _NO_OVERHEAD}")
        if single and rate and abs(rate - 1e9 / mean) > 0.006 + 1e-5 * rate:
            self.source.refuse(
                f"{_NO_OVERHEAD} {rate} contradicts a mean latency of {mean} ns", line=self.valid
            )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)

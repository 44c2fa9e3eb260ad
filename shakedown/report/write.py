"""The edge of the report: reads a run folder, judges it again and writes the four files."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from shakedown.benchmarks.base.output import said_by_others
from shakedown.benchmarks.inference.metrics import INFERENCE_TEST, read_searches
from shakedown.benchmarks.interconnect.output import PATH_TEST, read_ways
from shakedown.benchmarks.lora.metrics import read_trainings
from shakedown.judge.judged import judge_run
from shakedown.records.base import Outcome
from shakedown.records.program import no_cycle_search
from shakedown.records.reading import BadInput, open_plain, read_bytes
from shakedown.records.verdict import verdict_says
from shakedown.records.writing import write_aside
from shakedown.report import html, machines
from shakedown.report import html as markdown
from shakedown.report import html as raw
from shakedown.report.source import Passing, ReportSource
from shakedown.report.workloads import COPY_TEST
from shakedown.run import folder as runs
from shakedown.run.folder import SUMS

HTML, JUNIT, PROMETHEUS, MARKDOWN = "report.html", "junit.xml", "metrics.prom", "report.md"
# What the verdict is computed from, and the verdict; the order of the command in the signature block.
EVIDENCE = (runs.PLAN, runs.RESULTS, runs.COUNTERS, runs.INVENTORY, runs.VERDICT)


@dataclass(frozen=True)
class Written:
    """What a report says and where it lies."""

    outcome: Outcome
    reason: str
    files: tuple[Path, ...]


def checksum(folder: Path) -> html.Checksum:
    """Return the SHA-256 over the evidence in the folder, as `sha256sum FILE... | sha256sum` prints it."""
    files = tuple(name for name in EVIDENCE if os.path.lexists(folder / name))
    lines = []
    for name in files:
        with open_plain(folder / name) as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n")
    return html.Checksum(hashlib.sha256("".join(lines).encode()).hexdigest(), files)


def read(folder: Path) -> ReportSource:
    """Read and judge a run. Raises BadInput, also if the stored verdict is not what the files say."""
    passing = Passing(drawn=(INFERENCE_TEST, COPY_TEST, PATH_TEST))
    judged = judge_run(runs.Run(folder, simulated=True), passing.add)
    run, verdict = judged.run, judged.verdict
    stored = folder / runs.VERDICT
    if os.path.lexists(stored) and not verdict_says(read_bytes(stored), verdict):
        raise BadInput(
            "is not the verdict that the files of this run give",
            fix=f"run shakedown verdict --write {folder}",
            file=stored,
        )
    return ReportSource(
        plan=run.plan,
        measurements=passing.kept,
        counters=run.counters(),  # read again: nearly all of them are still
        inventory=run.inventory,
        judged=judged.cells,
        verdict=verdict,
        trainings=read_trainings(folder, passing.kept),
        gpu_ways=read_ways(folder, passing.kept),
        searches=read_searches(folder, passing.kept),
        said_by_others=said_by_others(folder, passing.raw),
        passing=passing,
    )


def report(
    folder: Path,  # the run folder
    output: Path | None = None,  # write only the HTML page, to this file, and leave the run folder as it is
) -> Written:
    """Write the report of a run."""
    with no_cycle_search():
        return _report(folder, output)


def _report(folder: Path, output: Path | None) -> Written:
    source = read(folder)
    if output is None and not os.path.lexists(folder / runs.VERDICT):
        runs.write_verdict(folder, source.verdict)
    # The checksum covers a verdict that is on disk: without one there is nothing to recompute it from.
    total = checksum(folder) if os.path.lexists(folder / runs.VERDICT) else None
    model = html.build(source, total)
    excerpts = raw.excerpts(folder, model.raw_paths)
    if output is not None:
        base = os.path.relpath(folder.resolve(), output.resolve().parent)
        write_aside(output, html.render_html(model, excerpts, base).encode())
        return Written(model.verdict.outcome, model.verdict.reason, (output,))
    contents = _contents(model, excerpts)
    if os.path.lexists(folder / SUMS):
        _refuse_change(folder, contents)
    for name, content in contents.items():
        write_aside(folder / name, content.encode())
    return Written(model.verdict.outcome, model.verdict.reason, tuple(folder / name for name in contents))


def _contents(model: html.ReportView, excerpts: dict[str, raw.Excerpt]) -> dict[str, str]:
    return {
        HTML: html.render_html(model, excerpts),
        JUNIT: machines.render_junit(model),
        PROMETHEUS: machines.render_prometheus(model),
        MARKDOWN: markdown.render_markdown(model),
    }


def outdated(folder: Path) -> str:
    """Return the first file of a run's report that is not what the run's files give; empty if there is none.

    Raises BadInput as `read` does.
    """
    there = [name for name in (HTML, JUNIT, PROMETHEUS, MARKDOWN) if os.path.lexists(folder / name)]
    if not there:
        return ""
    with no_cycle_search():
        model = html.build(read(folder), checksum(folder))
        contents = _contents(model, raw.excerpts(folder, model.raw_paths))
    return next((name for name in there if read_bytes(folder / name) != contents[name].encode()), "")


def _refuse_change(folder: Path, contents: dict[str, str]) -> None:
    """Refuse to break a seal: in a sealed run the report may be written again only to the byte."""
    for name, content in contents.items():
        path = folder / name
        if not os.path.lexists(path) or read_bytes(path) != content.encode():
            raise BadInput(
                "is part of a sealed run and would change",
                fix="write the page elsewhere with --output FILE",
                file=path,
            )

"""The search's journal: one line when a run begins, one when it ends; read again when a search goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadgen_harness.search import SearchRun, Step
from loadgen_harness.time_breakdown import TimeBreakdown
from shakedown.onnode.journal import now
from shakedown.records.writing import append_line

if TYPE_CHECKING:
    from shakedown.benchmarks.inference.output import LoadGenResult


class Journal:
    """All runs of one number of GPUs, in `probes.gN.jsonl`."""

    def __init__(self, folder: Path, gpus: int, settings: dict[str, Any]) -> None:
        """Read what is there; another search's journal (other settings) is put aside, not mixed in."""
        self.path = folder / f"probes.g{gpus}.jsonl"
        self.gpus = gpus
        self.settings = settings
        self.offline_qps: float | None = None
        self._lines: list[dict[str, Any]] = []
        if self.path.exists():
            self._read()

    def _read(self) -> None:
        for line in self.path.read_bytes().split(b"\n")[:-1]:  # a line cut off by a kill has no end
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                self._lines.append(entry)
        if self._lines and self._lines[0].get("settings") != self.settings:
            aside = self.path.with_name(f"{self.path.name}.{time.time_ns()}.other")
            self.path.rename(aside)
            self._lines = []
        for entry in self._lines:
            if entry["event"] == "offline":
                self.offline_qps = float(entry["qps"])

    @property
    def runs(self) -> list[SearchRun]:
        """The runs so far; one that began and never ended counts as cut off, with its planned length."""
        found = []
        for entry in self.entries():
            full = entry["kind"] == "confirm"
            planned = float(self.settings["confirm_s" if full else "probe_s"])
            found.append(
                SearchRun(
                    kind=entry["kind"],
                    target_qps=float(entry["target_qps"]),
                    valid=bool(entry.get("valid")),
                    wall_s=float(entry.get("wall_s", planned)),
                    finished="valid" in entry,
                )
            )
        return found

    def entries(self) -> list[dict[str, Any]]:
        """Every run with what is known of it, in order."""
        merged: dict[str, dict[str, Any]] = {}
        for entry in self._lines:
            if entry["event"] in {"begin", "end"}:
                rest = {key: value for key, value in entry.items() if key != "event"}
                merged[entry["file"]] = merged.get(entry["file"], {}) | rest
        return list(merged.values())

    def offline(self, qps: float) -> None:
        """Note the rate without a bound, once."""
        if self.offline_qps is None:
            self.offline_qps = qps
            self._write({"event": "offline", "qps": qps, "settings": self.settings})

    def begin(self, step: Step) -> str:
        """Note that a run begins; returns the name for its summary."""
        name = f"loadgen.g{self.gpus}.{len(self.entries()) + 1:02d}.txt"
        self._write(
            {"event": "begin", "file": name, "kind": step.kind, "target_qps": step.target_qps, "at": now()}
        )
        return name

    def end(self, step: Step, result: LoadGenResult, wall_s: float, breakdown: TimeBreakdown) -> None:
        """Note how the run that began last ended."""
        latency = {f"p{p:g}_ms": (result.percentile_ns(p) or 0) / 1e6 for p in (50.0, 90.0, 99.0)}
        self._write(
            {
                "event": "end",
                "file": self.entries()[-1]["file"],
                "valid": result.valid,
                "wall_s": round(wall_s, 3),
                "completed_qps": result.completed_samples_per_s,
                **latency,
                "spent": breakdown.document(),
            }
        )
        assert self.entries()[-1]["kind"] == step.kind

    def _write(self, entry: dict[str, Any]) -> None:
        self._lines.append(entry)
        append_line(self.path, json.dumps(entry).encode())

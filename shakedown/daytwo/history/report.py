"""A history put together for a reader: series, findings, inventory changes, as data and as a page."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shakedown.daytwo.history.alarms_and_steps import (
    ALL_NODES,
    FALSE_ALARMS_PER_1000_YEARS,
    FEWEST_NIGHTS,
    LEARNING_NIGHTS,
    HistoryChange,
    SeriesLabel,
    Times,
    findings,
)
from shakedown.daytwo.history.query import Event, FleetSeries, NodeSeries, events, fleet, metrics, node_series
from shakedown.daytwo.history.store import HistoryStore
from shakedown.records.reading import BadInput
from shakedown.records.wording import count
from shakedown.report import text as sparkline

RATE = (
    f"Alarms need {LEARNING_NIGHTS} nights, {FEWEST_NIGHTS} of nodes that take turns. "
    "Of a healthy fleet, in the noise that was simulated, they are "
    f"wrong about {FALSE_ALARMS_PER_1000_YEARS} times in 1,000 node-metric-years."
)
WIDTH, HEIGHT = 600.0, 46.0
_MOST_DRAWN = 200


@dataclass(frozen=True)
class NodeHistory:
    """All of one node."""

    system: str
    node: str
    series: list[NodeSeries]
    findings: list[HistoryChange]
    events: list[Event]
    problems: list[str]

    def document(self) -> dict[str, object]:
        """Return what `--json` prints."""
        return {
            "schema": 1,
            "system": self.system,
            "node": self.node,
            "problems": self.problems,
            "series": [
                {
                    "metric": s.metric,
                    "unit": s.unit,
                    "better": s.better.value,
                    "runs": s.runs,
                    "times": [f"{t}Z" for t in s.times],
                    "values": [None if np.isnan(v) else float(v) for v in s.values],
                    "outcomes": s.outcomes,
                }
                for s in self.series
            ],
            "changes": [f.model_dump() for f in self.findings],
            "inventory": [_event(e) for e in self.events],
        }


@dataclass(frozen=True)
class FleetHistory:
    """All nodes, one metric or all."""

    system: str
    metrics: list[str]
    nodes: int
    runs: int
    findings: list[HistoryChange]
    problems: list[str]
    rate: str = RATE

    def document(self) -> dict[str, object]:
        """Return what `--json` prints."""
        return {
            "schema": 1,
            "system": self.system,
            "metrics": self.metrics,
            "nodes": self.nodes,
            "runs": self.runs,
            "problems": self.problems,
            "rate": self.rate,
            "changes": [f.model_dump() for f in self.findings],
        }

    def groups(self) -> list[str]:
        """Say which steps many nodes share: one cause, not many."""
        shared: dict[tuple[str, str], list[HistoryChange]] = defaultdict(list)
        for f in self.findings:
            if f.kind == "step":
                shared[f.metric, f.time[:10]].append(f)
        lines = []
        for (metric, day), members in sorted(shared.items(), key=lambda kv: -len(kv[1])):
            if len(members) < 5:
                continue
            shift = float(np.median([m.shift for m in members]))
            text = f"{count(len(members), 'node')} changed together: {metric} {shift:+.2%} on {day}"
            causes = Counter(c.partition(" ")[2] for m in members for c in set(m.coincides))
            if causes:
                cause, often = causes.most_common(1)[0]
                text += f"; {often} of them coincide with {cause}"
            lines.append(text)
        return lines[:20]


def node_history(root: Path, node: str, *, metric: str = "", since: datetime | None = None) -> NodeHistory:
    """Return one node's history. Raises BadInput if the store has none."""
    store = HistoryStore(root)
    series = node_series(store, node, metric=metric, since=since)
    if not series and not store.problems:
        raise BadInput(f"no value of node {node!r}", fix="name a node and metric that it has", file=root)
    own = events(store, {node, *_others(store)})
    times, values = _aligned(series)
    labels = [SeriesLabel(node, s.metric, s.unit, s.better) for s in series]
    found = findings(labels, times, values, {node: own}, one_metric=False) if series else []
    return NodeHistory(store.system, node, series, found, own, store.problems)


def fleet_history(root: Path, *, metric: str = "", since: datetime | None = None) -> FleetHistory:
    """Return the findings of all nodes."""
    store = HistoryStore(root)
    names = [name for name in metrics(store) if metric in name]
    if not names and not store.problems:
        raise BadInput(
            f"no metric with {metric!r} in its name", fix="shakedown history fleet lists", file=root
        )
    common, by_host = _events_by_host(store)
    found: list[HistoryChange] = []
    nodes: set[str] = set()
    for name in names:
        grid = fleet(store, name, since=since)
        if grid is not None:
            nodes.update(grid.nodes)
            found += _findings_of(grid, by_host, common)
    found.sort(key=lambda f: (not f.standing, f.shift, f.node, f.metric))
    return FleetHistory(store.system, names, len(nodes), len(store.entries), found, store.problems)


def _findings_of(
    grid: FleetSeries, by_host: dict[str, list[Event]], common: Sequence[Event]
) -> list[HistoryChange]:
    labels = [SeriesLabel(node, grid.metric, grid.unit, grid.better) for node in grid.nodes]
    return findings(labels, grid.times, grid.values, by_host, common)


def _aligned(series: Sequence[NodeSeries]) -> tuple[Times, NDArray[np.float64]]:
    """Return one time axis for all series, and their values on it."""
    stamps = sorted({(t, run) for s in series for t, run in zip(s.times, s.runs, strict=True)})
    place = {run: i for i, (_, run) in enumerate(stamps)}
    values = np.full((len(series), len(stamps)), np.nan)
    for row, s in enumerate(series):
        values[row, [place[run] for run in s.runs]] = s.values
    return np.array([t for t, _ in stamps], dtype="datetime64[s]"), values


def _others(store: HistoryStore) -> set[str]:
    return {host for entry in store.entries.values() for host in entry.others}


def _events_by_host(store: HistoryStore) -> tuple[list[Event], dict[str, list[Event]]]:
    others = _others(store)
    by_host: dict[str, list[Event]] = defaultdict(list)
    common = []
    for event in events(store):
        if event.change.host in others:
            common.append(event)
        else:
            by_host[event.change.host].append(event)
    return common, by_host


def _event(event: Event) -> dict[str, str]:
    return {
        "since": f"{event.since}Z",
        "until": f"{event.until}Z",
        "run": event.run,
        "change": str(event.change),
    }


def page(found: NodeHistory) -> str:
    """Return one node's page."""
    lines = [
        _drawn(s, [f for f in found.findings if f.metric == s.metric], found.events) for s in found.series
    ]
    return _render(f"{found.node} over time", found.system, found.problems, lines, [], found.events)


def fleet_page(root: Path, found: FleetHistory) -> str:
    """Return the fleet's page: the findings, worst first, each with its series."""
    store = HistoryStore(root)
    lines: list[dict[str, object]] = []
    seen: set[tuple[str, str]] = set()
    own: dict[str, tuple[list[NodeSeries], list[Event]]] = {}
    for f in found.findings:
        if (f.node, f.metric) in seen or len(lines) == _MOST_DRAWN:
            continue
        seen.add((f.node, f.metric))
        members = [g for g in found.findings if (g.node, g.metric) == (f.node, f.metric)]
        if f.node == ALL_NODES:
            lines.append(_drawn(_middle(store, f.metric), members, []))
            continue
        if f.node not in own:
            own[f.node] = node_series(store, f.node), events(store, {f.node})
        series = next(s for s in own[f.node][0] if s.metric == f.metric)
        lines.append(_drawn(series, members, own[f.node][1]))
    left = len({(f.node, f.metric) for f in found.findings}) - len(lines)
    notes = [*found.groups(), *([f"{left} more series have findings: --json lists all"] if left else [])]
    return _render("All nodes over time", found.system, found.problems, lines, notes, [])


def _middle(store: HistoryStore, metric: str) -> NodeSeries:
    """Return the median of all nodes, night by night."""
    grid = fleet(store, metric)
    assert grid is not None  # it has a finding
    there = np.isfinite(grid.values).any(axis=0)
    values = np.nanmedian(grid.values[:, there], axis=0)
    return NodeSeries(ALL_NODES, metric, grid.unit, grid.better, grid.times[there], (), values, ())


def _drawn(
    series: NodeSeries, members: Sequence[HistoryChange], changes: Sequence[Event]
) -> dict[str, object]:
    """Return a series as the template draws it: one time axis for values, steps and inventory changes."""
    first, last = series.times[0], series.times[-1]
    at = _places(series.times, first, last)
    finite = series.values[~np.isnan(series.values)]
    return {
        "node": series.node,
        "metric": series.metric,
        "unit": series.unit,
        "paths": sparkline.points(series.values.tolist(), at, WIDTH, HEIGHT),
        "lowest": float(finite.min()) if len(finite) else None,
        "highest": float(finite.max()) if len(finite) else None,
        "last": float(finite[-1]) if len(finite) else None,
        "nights": len(finite),
        "first": str(first)[:10],
        "until": str(last)[:10],
        "marks": [
            (round(WIDTH * _places(np.array([np.datetime64(f.time.rstrip("Z"))]), first, last)[0], 1), f)
            for f in members
        ],
        "changes": [
            (round(WIDTH * _places(np.array([e.until]), first, last)[0], 1), str(e))
            for e in changes
            if first <= e.until <= last
        ],
    }


def _places(times: Times, first: np.datetime64, last: np.datetime64) -> list[float]:
    span = max(float((last - first) / np.timedelta64(1, "s")), 1.0)
    return [float((t - first) / np.timedelta64(1, "s")) / span for t in times]


def _render(
    title: str,
    system: str,
    problems: list[str],
    lines: list[dict[str, object]],
    notes: list[str],
    changes: Sequence[Event],
) -> str:
    from markupsafe import Markup

    from shakedown.report.html import TEMPLATES, environment

    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    return (
        environment()
        .get_template("history.html.j2")
        .render(
            title=title,
            system=system,
            problems=problems,
            lines=lines,
            notes=notes,
            rate=RATE,
            changes=[_event(e) for e in changes],
            width=WIDTH,
            height=HEIGHT,
            style=Markup(style),  # noqa: S704  (our own file)
        )
    )

"""References from one's own fleet: what its history says a healthy node reaches, as profile and diff."""

import difflib
import math
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import yaml

from shakedown.benchmarks.gpu_rate.output import UNITS, parse_gpu_rate, software_of
from shakedown.daytwo.history.alarms_and_steps import ALL_NODES
from shakedown.daytwo.history.query import events, fleet
from shakedown.daytwo.history.report import fleet_history
from shakedown.daytwo.history.store import HOSTS, STATES, VALUES, HistoryStore
from shakedown.judge.judged import judge_folder
from shakedown.records.base import Better, Outcome
from shakedown.records.reading import BadInput
from shakedown.records.wording import number
from shakedown.references.catalogue import SCOPE_KEYS, Catalogue, ReferenceEntry
from shakedown.references.files import lint, read_profile
from shakedown.run.folder import RAW
from shakedown.run.nic_counters import JobFolder
from shakedown.statistics.robust import MAD_TO_SIGMA, median, resolution

# So many robust standard deviations below the median lies the gate: of normal values one in 3.5 million.
SIGMAS = 5.0
# Less than this is no tolerance: tools, temperatures and seasons differ by as much.
SMALLEST_TOLERANCE = 0.005


@dataclass(frozen=True)
class Seen:
    """All values of one test, metric and parameters: nodes, rails and sides together."""

    entry: ReferenceEntry  # the reference that they were judged by
    params: Mapping[str, str]
    values: tuple[float, ...]
    nodes: int
    nights: int
    first: str
    last: str


def proposal(system: str, seen: Seen, inventory: str) -> dict[str, object]:
    """Return one reference as the profile's file holds it.

    The value is the median, the tolerance `SIGMAS` robust standard deviations (1.4826 MAD), rounded up.
    Scope and ceiling are those of the reference in force, narrowed to the system and the parameters.
    """
    middle = median(seen.values)
    mad = median([abs(v - middle) for v in seen.values])
    sigma = max(mad, resolution(seen.values[:300])) / MAD_TO_SIGMA
    tolerance = math.ceil(1000 * max(SIGMAS * sigma / abs(middle), SMALLEST_TOLERANCE)) / 1000
    entry = seen.entry
    scope = {**entry.model_dump()["scope"], "system": system, **_scope(seen.params)}
    name = "-".join([system, entry.test, entry.metric, *(f"{v}" for _, v in sorted(seen.params.items()))])
    found: dict[str, object] = {
        "id": re.sub(r"[^A-Za-z0-9.+-]", "-", name)[:120],
        "stage": entry.stage.value,
        "test": entry.test,
        "metric": entry.metric,
        "scope": scope,
        "value": float(f"{middle:.6g}"),
        "tolerance": min(tolerance, 0.999),
        "unit": entry.unit,
        "better": entry.better.value,
        "kind": "baseline",
        "source": (
            f"own history, {seen.first} to {seen.last}: n = {len(seen.values)} values of {seen.nodes} "
            f"nodes in {seen.nights} nights, median {number(middle)} {entry.unit}, robust CV "
            f"{sigma / abs(middle):.2%}; {inventory}"
        ),
    }
    if entry.ceiling is not None:
        found["ceiling"] = entry.ceiling.model_dump(mode="json", exclude_none=True)
    looser = _looser(entry, middle, min(tolerance, 0.999))
    if looser:
        found["note"] = looser
    return found


def _scope(params: Mapping[str, str]) -> dict[str, int | str]:
    return {
        key: int(value) if SCOPE_KEYS[key] is int else value
        for key, value in params.items()
        if key in SCOPE_KEYS and (SCOPE_KEYS[key] is str or value.isdecimal())
    }


def _looser(entry: ReferenceEntry, middle: float, tolerance: float) -> str:
    """Say so if the proposed gate would let pass what the present one refuses."""
    present = entry.reference().gate
    higher = entry.better is Better.HIGHER
    gate = middle * (1 - tolerance) if higher else middle * (1 + tolerance)
    if (gate < present) if higher else (gate > present):
        return (
            f"LOOSER than {entry.id}: gate {number(gate)}, now {number(present)}; know why before you take it"
        )
    return ""


def header(system: str, profile: str, notes: Sequence[str]) -> dict[str, object]:
    """Return the head of the profile."""
    return {
        "schema": 1,
        "profile": profile,
        "title": f"What {system} reached by itself",
        "published": "nowhere; from this site's own nights",
        "audit": " ".join(("Proposed by shakedown references baseline, taken over by a person.", *notes)),
    }


def accepted_cards(folders: Sequence[Path]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return what each card reached in runs that accepted it, by UUID, and what was left out and why.

    A card counts in a run where none of its cells of `gpu_rate` is bad, but for what has no history yet. Only
    the software of its last run counts: other drivers and libraries have other rates. Raises BadInput: a run
    cannot be read.
    """
    found: dict[str, dict[str, Any]] = {}
    left: list[str] = []
    for folder in folders:
        bad = _bad_cards(folder)
        for path in sorted((folder / RAW).glob("*/gpu_rate.*.jsonl")):
            node = path.name.removeprefix("gpu_rate.").removesuffix(".jsonl")
            for run in parse_gpu_rate(JobFolder(path.parent).text(path.name), file=path):
                uuid = f"GPU-{run.uuid.removeprefix('GPU-')}"
                if (node, str(run.gpu)) in bad or not re.fullmatch(r"GPU-(?!0{8}-)[0-9a-f-]{36}", uuid):
                    left.append(f"{folder.name}: GPU {run.gpu} of {node} was not accepted, or has no UUID")
                    continue
                software = software_of(run, JobFolder(path.parent), node)
                if found.get(uuid, {}).get("software") != software:
                    found[uuid] = {"software": software, "rates": {}}
                for work, (_, scale) in UNITS.items():
                    if rates := [window.rate / scale for window in run.of(work)]:
                        found[uuid]["rates"].setdefault(work, []).append(float(f"{median(rates):.6g}"))
    return found, left


def _bad_cards(folder: Path) -> set[tuple[str, str]]:
    """Return which GPUs, node and number, a run's verdict does not accept."""
    bad = set()
    for cell in judge_folder(folder).cells:
        _, test, _, node, _, _, params = cell.cell.split("/", 6)
        said = dict(pair.partition("=")[::2] for pair in params.split(","))
        fresh = said.get("check") == "own" and cell.outcome is Outcome.NOT_RUN
        if test.startswith("gpu_rate_") and not fresh:
            bad.add((node, said.get("gpu", "")))
    return bad


Group = tuple[str, tuple[tuple[str, str], ...]]  # a reference's name, parameters
# What of the inventory a figure depends on; a change of one of these begins a new baseline.
_KEYS = {
    ("nic", "firmware"),
    ("nic", "driver_version"),
    ("nic", "mtu_bytes"),
    ("gpu", "vbios_version"),
    ("gpu", "driver_version"),
    ("node", "bios_version"),
    ("node", "kernel"),
    ("software", "version"),
}


def propose(
    root: Path, catalogue: Catalogue, *, profile: str, min_nights: int = 14, min_nodes: int = 2
) -> tuple[str, list[str]]:
    """Return a profile as YAML, and why metrics were left out.

    Only nights since the last change of what figures depend on, only nodes without a finding, only values
    that passed. Raises BadInput: nothing can be proposed.
    """
    store = HistoryStore(root)
    since, why = _last_change(store)
    left = [why] if why else []
    sick = {(f.node, f.metric) for f in fleet_history(root, since=since).findings}
    inventory = _inventory(store)
    entries = []
    for (name, params), metrics in sorted(_by_reference(store, catalogue, left).items()):
        entry = catalogue.entries[name]
        seen = _seen(store, entry, dict(params), metrics, sick, since)
        if seen is None or seen.nights < min_nights or seen.nodes < min_nodes:
            found = f"{seen.nights} nights of {seen.nodes} nodes" if seen else "no value"
            left.append(f"{entry.id}: {found}, {min_nights} nights of {min_nodes} nodes are needed")
        elif np.median(seen.values) == 0:
            left.append(f"{entry.id}: zero is due, and no baseline")
        else:
            entries.append(proposal(store.system, seen, inventory))
    entries, refused = _sound(header(store.system, profile, ()), entries)
    if not entries:
        raise BadInput(
            "nothing can be proposed: " + "; ".join([*left, *refused])[:400], fix="more nights", file=root
        )
    return _dump(header(store.system, profile, ()), entries), left + refused + store.problems


def diff(old: Path, new: str) -> str:
    """Return what would change in a file; all of it if there is none."""
    before = old.read_text(encoding="utf-8").splitlines(keepends=True) if old.exists() else []
    name = str(old) if old.exists() else "/dev/null"
    return "".join(difflib.unified_diff(before, new.splitlines(keepends=True), name, str(old)))


def _last_change(store: HistoryStore) -> tuple[datetime | None, str]:
    found = [e for e in events(store) if (e.change.kind, e.change.attribute) in _KEYS]
    if not found:
        return None, ""
    last = max(found, key=lambda e: e.until)
    at = datetime.fromisoformat(str(last.until)).replace(tzinfo=UTC)
    return at, f"only nights since {at:%Y-%m-%d}, when {last.change} was seen"


def _by_reference(store: HistoryStore, catalogue: Catalogue, left: list[str]) -> dict[Group, list[str]]:
    """Return the metrics that one reference and one set of parameters judged."""
    used: dict[str, str] = {}
    for path, runs in store.files("values"):
        table = store.read(path, VALUES, runs, columns=["metric", "reference"])
        pairs = table.group_by(["metric", "reference"]).aggregate([])
        used.update(zip(pairs["metric"].to_pylist(), pairs["reference"].to_pylist(), strict=True))
    groups: dict[Group, list[str]] = defaultdict(list)
    unknown = set()
    for metric, reference in sorted(used.items()):
        entry = catalogue.entries.get(reference)
        if entry is None:
            unknown.add(reference)
            continue
        tail = metric.split("/", 5)[5]
        params = (
            (key, value) for key, equals, value in (p.partition("=") for p in tail.split(",")) if equals
        )
        groups[entry.id, tuple(sorted(params))].append(metric)
    left += [f"{name}: is in no profile that was named" for name in sorted(unknown)]
    return groups


def _seen(
    store: HistoryStore,
    entry: ReferenceEntry,
    params: dict[str, str],
    metrics: list[str],
    sick: set[tuple[str, str]],
    since: datetime | None,
) -> Seen | None:
    values: list[float] = []
    nodes: set[str] = set()
    times: set[str] = set()
    for metric in metrics:
        grid = fleet(store, metric, since=since, outcome=Outcome.PASS)
        # What all nodes lost is no baseline of any.
        if grid is None or (ALL_NODES, metric) in sick:
            continue
        for row, node in enumerate(grid.nodes):
            there = np.isfinite(grid.values[row])
            if (node, metric) not in sick and there.any():
                values += grid.values[row, there].tolist()
                nodes.add(node)
                times.update(str(t)[:10] for t in grid.times[there])
    if not values:
        return None
    return Seen(entry, params, tuple(values), len(nodes), len(times), min(times), max(times))


def _inventory(store: HistoryStore) -> str:
    """Say on which firmware, drivers and tools the newest run was made."""
    if not store.entries:
        return "no inventory"
    newest = max(store.entries.values(), key=lambda e: e.time).run
    digests: set[str] = set()
    for path, runs in store.files("hosts"):
        if newest in runs:
            table = store.read(path, HOSTS, runs, filters=pc.field("run") == newest, plain=("run",))
            digests = set(table["digest"].to_pylist())
    counted: Counter[str] = Counter()
    for path in sorted((store.layout.root / "states").glob("*.parquet")):
        wanted = pc.field("digest").isin(sorted(digests))
        for row in store.read(path, STATES, (path.stem,), filters=wanted, plain=("digest",)).to_pylist():
            if (row["kind"], row["attribute"]) in _KEYS and row["value"]:
                what = row["name"] if row["kind"] == "software" else f"{row['kind']} {row['attribute']}"
                counted[f"{what} {row['value']}"] += 1
    return ", ".join(sorted(counted)[:12]) or "no inventory"


def _sound(
    head: dict[str, object], entries: list[dict[str, object]]
) -> tuple[list[dict[str, object]], list[str]]:
    """Return the entries that pass lint, and why the others do not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proposal.yml"
        path.write_text(_dump(head, entries), encoding="utf-8")
        profile, findings = read_profile(path)
        if profile is not None:
            findings = [*findings, *lint([(str(path), profile)])]
    bad = {name for f in findings for name in [f.message.split(":")[0]]}
    refused = [f"{f.rule.value}: {f.message}" for f in findings]
    return [e for e in entries if e["id"] not in bad], refused


def _dump(head: dict[str, object], entries: list[dict[str, object]]) -> str:
    return yaml.safe_dump({**head, "references": entries}, sort_keys=False, width=120, allow_unicode=True)

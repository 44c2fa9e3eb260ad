"""Which piece of the cluster is at fault: matrices, counters and cabling joined into ranked causes."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from shakedown.judge.localise.doubts import (
    collisions,
    missing_thoughts,
    of_one_moment,
    second_thoughts,
    slow_rails,
    with_speeds,
    without_paths,
)
from shakedown.judge.localise.fit import DOUBTFUL, FitSettings, calibrated, fit, to_finding
from shakedown.judge.localise.groups import Groups
from shakedown.judge.localise.levels import deviations
from shakedown.judge.localise.model import (
    WAIT_FIRST,
    Bools,
    Element,
    Explanation,
    Matrix,
    Route,
    on_hardware,
    proposal,
)
from shakedown.judge.localise.pairs import bad_pairs, examine_small, of_one_way
from shakedown.judge.localise.rare import beyond, dead, intermittent
from shakedown.nics.rates import counts_errors, damaged_on_cable, end_to_end
from shakedown.records.results import CounterReading
from shakedown.records.wording import BLAMES

# A counter stands out when it is this many times its peers' median, and not just a few events.
_TIMES_PEERS = 10.0
_MIN_EVENTS = 10


@dataclass(frozen=True)
class Witness:
    """A counter that stands out.

    Attributes:
        node: the node at which the cable of that NIC or port ends; empty between switches.
        rail: its rail.
        place: `nic`, `port` (of the switch) or, when bits were damaged, `cable`.
        local: whether it says where, and not only that something was lost on the way.
        device: host or switch that counted.
        peer: the other end of the cable, as recorded.
        text: for the evidence.
    """

    node: str
    rail: str
    place: str
    local: bool
    device: str
    peer: str
    text: str


def witnesses(readings: Iterable[CounterReading], ports: Mapping[tuple[str, str], str]) -> list[Witness]:
    """Return the counters of errors that stand out among the same counter of all peers, largest first.

    Args:
        readings: counters before and after each test; a port's deltas are added up.
        ports: (node, rail) -> "switch:port", for switch ports recorded without their peer.
    """
    ends = {where: key for key, where in ports.items()}
    total: dict[tuple[str, str], dict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
    about: dict[tuple[str, str], CounterReading] = {}
    for reading in readings:
        if not counts_errors(reading.counter):
            continue
        total[reading.kind, reading.counter][reading.device, reading.port] += reading.delta or 0
        about[reading.device, reading.port] = reading
    found: list[tuple[int, Witness]] = []
    for (_, counter), deltas in total.items():
        ordered = sorted(deltas.values())
        for place, events in deltas.items():
            if events < _MIN_EVENTS or len(ordered) == 1:
                continue
            usual = _median_of_others(ordered, events)
            if events >= _TIMES_PEERS * usual:
                found.append((events, _witness(about[place], counter, events, usual, ends)))
    return [witness for _, witness in sorted(found, key=lambda f: (not f[1].local, -f[0], f[1].text))]


def _median_of_others(ordered: Sequence[int], one: int) -> float:
    """Return the median of sorted values without one of them, without copying them for each."""
    at, others = bisect_left(ordered, one), len(ordered) - 1
    low, high = (
        ordered[middle if middle < at else middle + 1] for middle in ((others - 1) // 2, others // 2)
    )
    return (low + high) / 2


def _witness(
    reading: CounterReading, counter: str, events: int, usual: float, ends: Mapping[str, tuple[str, str]]
) -> Witness:
    local = not end_to_end(counter)
    peer = reading.peer or ""
    where = f"{reading.device}:{reading.port}"
    if reading.kind == "nic":
        node, rail, place = reading.device, reading.rail or "", "nic"
    else:
        node, rail = ends.get(where, (peer.partition("/")[0] if reading.rail else "", reading.rail or ""))
        place = "port"
    if local and damaged_on_cable(counter):
        place = "cable"
    text = f"{where} counted {events} {counter} (peers' median {usual:.0f})"
    return Witness(node, rail, place, local, reading.device, peer, text)


# No part is blamed on the word of one partner, unless a counter of its own stands out, and
# never are both ends of a connection: results that two elements explain equally well make suspects, not
# causes.

# Below this many nodes one bad node spoils too large a part of the results for medians.
SMALL_MESH = 16
_AS_BUSY = 0.9  # of another node's load: its results would be as bad
# Part of a suspect's bad results that blamed elements must explain to clear it.
CLEARED_SHARE = 0.5


@dataclass(frozen=True)
class Cause:
    """One piece of hardware that explains bad results, with everything that speaks for it.

    Attributes:
        element: what, as precisely as the evidence allows.
        blamed: whether the evidence suffices; otherwise it is a suspect.
        confidence: probability against the other elements that could explain the same results.
        effect: worst relative change of its results; -1 when they are missing.
        findings: in which matrices, and how.
        evidence: sentences.
        rivals: what else could explain it.
        proposal: what to do next.
        chances: the probability of each rival; with the confidence, their sum is 1.
    """

    element: Element
    blamed: bool
    confidence: float
    effect: float
    evidence: tuple[str, ...]
    proposal: str
    findings: tuple[Explanation, ...] = ()
    rivals: tuple[Element, ...] = ()
    chances: tuple[float, ...] = ()


def localise(
    routes: Sequence[Route], readings: Iterable[CounterReading] = (), settings: FitSettings | None = None
) -> list[Cause]:
    """Return the causes, blamed ones first, each group by how much it explains.

    Args:
        routes: results of every test and size; each route is compared with its like only, and what is found
            on several is put together by piece of hardware.
        readings: counters over the tests.
        settings: how sure to be; a run of many matrices shares its error rate among them.
    """
    settings = settings or FitSettings()
    matrices = [matrix for route in routes for matrix in route.matrices]
    settings = replace(settings, alpha=settings.alpha / max(1, len(matrices)))
    ports = {key: port for route in routes for key, port in route.fabric.ports.items()}
    seen = witnesses(readings, ports)
    if not matrices:
        return []
    findings: list[Explanation] = []
    for route in routes:
        found = [_weigh(on_hardware(f), matrices, seen) for f in _route(route, seen, settings)]
        found = [_beside_load(f, route.matrices, seen) for f in found]
        of_two = len(route.matrices[0].rails) == 2
        findings += [_of_two(f) if of_two and f.element.kind == "rail" else f for f in found]
    return _rank(_merge(findings), matrices, ports, seen)


def _route(route: Route, seen: Sequence[Witness], settings: FitSettings) -> list[Explanation]:
    """Return what the matrices of one route say."""
    if not route.matrices:
        return []
    first = route.matrices[0]
    supported = _supported(first, seen)
    findings = [f for m in route.matrices for f in _examine(m, route, supported, settings)]
    if len(first.nodes) < SMALL_MESH:
        small = examine_small(route.matrices, route.fabric, settings, supported)
        findings += without_paths(small, route.fabric)
    return findings


def _examine(matrix: Matrix, route: Route, supported: Bools, settings: FitSettings) -> list[Explanation]:
    """Return what one matrix of a route says."""
    beside = [m for m in route.matrices if m is not matrix]
    fabric, slower = with_speeds(matrix, route.fabric)
    matrix, another_way = of_one_way(matrix, fabric)
    seen = deviations(matrix, fabric)
    residual = seen.residual
    groups = Groups(np.isfinite(residual) | matrix.failed, fabric, seen.quantile)
    found = missing_thoughts(dead(matrix, groups), matrix, groups, beside)
    if len(matrix.nodes) < SMALL_MESH:
        return found
    before = residual.copy()
    choices, sigma = fit(seen, groups, settings, supported)
    found += [to_finding(c, groups, matrix, beyond(c.pick, before, groups).why) for c in choices]
    found += intermittent(residual, sigma, groups, settings, matrix)
    found += slow_rails(matrix, seen.level)
    found = second_thoughts(found, matrix, fabric, links_shared=seen.clean < 1)
    found = of_one_moment(found, matrix, before)
    found = calibrated(found)
    found += bad_pairs(residual, sigma, settings, matrix, found)
    blamed = {f.element for f in found if f.blamed}
    slower = [f for f in slower if f.element not in blamed]
    return found + slower + another_way + collisions(seen, matrix)


def _supported(matrix: Matrix, seen: Sequence[Witness]) -> Bools:
    local = {(w.rail, w.node) for w in seen if w.local}
    return np.array([[(rail, node) in local for node in matrix.nodes] for rail in matrix.rails], dtype=bool)


def _weigh(finding: Explanation, matrices: Sequence[Matrix], seen: Sequence[Witness]) -> Explanation:
    """Blame a suspect for which its own counters, or its own words, speak, and for none of its rivals'."""
    element = finding.element
    if finding.blamed or element.kind not in {"nic", "node"}:
        return finding

    def speaks(e: Element) -> bool:
        own_words = any(n == e.node and e.rail in {"", r} for m in matrices for n, r in m.said)
        return own_words or any(w.local and w.node == e.node and e.rail in {"", w.rail} for w in seen)

    if speaks(element) and not any(speaks(rival) for rival in finding.rivals):
        return replace(finding, blamed=True, confidence=max(finding.confidence, 0.9), why=())
    parts = finding.parts or (1.0,) * len(finding.rivals)
    speaking = [r for r in finding.rivals if speaks(r)]
    explains = dict(zip(finding.rivals, parts, strict=True))
    if len(speaking) == 1 and explains[speaking[0]] >= CLEARED_SHARE and not speaks(element):
        others = tuple(r for r in finding.rivals if r != speaking[0])
        return replace(
            finding,
            element=speaking[0],
            rivals=(element, *others),
            parts=(1.0, *(explains[r] for r in others)),
            blamed=True,
            confidence=0.9,
            why=(),
        )
    return finding


def _beside_load(finding: Explanation, of: Sequence[Matrix], seen: Sequence[Witness]) -> Explanation:
    """Doubt a slow part of a node whose CPUs were busy, unless that does not explain it.

    It does not if most nodes were as busy, if it is slower by more, or if a counter tells of damaged bits.
    """
    load = of[0].loaded.get(finding.element.node)
    is_rate = any(m.higher for m in of if m.label == finding.label)
    damaged = any(_is_about(w, finding.element) and w.place == "cable" for w in seen)
    if load is None or finding.pattern == "failed" or damaged or (is_rate and -finding.effect > load.most):
        return finding
    if 2 * sum(one.most >= _AS_BUSY * load.most for one in of[0].loaded.values()) > len(of[0].nodes):
        return finding
    sure = min(finding.confidence, DOUBTFUL)
    return replace(finding, blamed=False, confidence=sure, why=(*finding.why, load.said))


def _of_two(finding: Explanation) -> Explanation:
    return replace(finding, blamed=False, why=("of two rails one cannot tell which is the exception",))


def _merge(findings: Sequence[Explanation]) -> list[list[Explanation]]:
    """Return the findings by piece of hardware: one NIC's together, and a node's NICs with the node."""
    nodes = {f.element.node for f in findings if f.element.kind == "node" and f.blamed}
    groups: dict[tuple[str, ...], list[Explanation]] = {}
    for f in findings:
        e = f.element
        key = ("node", e.node) if e.node in nodes else (e.kind, e.node, e.peer, e.rail, e.leaf, e.spine)
        groups.setdefault(key, []).append(f)
    return list(groups.values())


def _rank(
    merged: Sequence[Sequence[Explanation]],
    matrices: Sequence[Matrix],
    ports: Mapping[tuple[str, str], str],
    seen: Sequence[Witness],
) -> list[Cause]:
    causes = [_cause(group, matrices, ports, seen) for group in merged]
    blamed_hardware = {c.element for c in causes if c.blamed}
    # A suspect that is only the other end of something blamed has been cleared by it.
    causes = [c for c in causes if c.blamed or not _cleared(_strongest(c.findings), blamed_hardware)]
    return sorted(causes, key=lambda c: (not c.blamed, -_weight(c), str(c.element)))


def _cleared(finding: Explanation, blamed: Set[Element]) -> bool:
    """Whether what is blamed explains most of a suspect's bad results."""
    parts = finding.parts or (1.0,) * len(finding.rivals)
    explained = sum(part for rival, part in zip(finding.rivals, parts, strict=True) if rival in blamed)
    return explained >= CLEARED_SHARE


def _strongest(group: Sequence[Explanation]) -> Explanation:
    return max(group, key=lambda f: (f.blamed, f.element.kind == "node", f.cells * f.effect**2))


def _weight(cause: Cause) -> float:
    """How much a cause explains: squared logarithmic effect times results, a missing one counting as e^-5."""
    weights = []
    for f in cause.findings:
        size = min(5.0, -np.log1p(max(f.effect, -0.9999)))
        weights.append(f.cells * size**2)
    return float(sum(weights))


def _cause(
    group: Sequence[Explanation],
    matrices: Sequence[Matrix],
    ports: Mapping[tuple[str, str], str],
    seen: Sequence[Witness],
) -> Cause:
    strongest = _strongest(group)
    element = strongest.element
    directions = {f.element.direction for f in group if f.blamed == strongest.blamed}
    if len(directions) > 1:
        element = replace(element, direction="both")
    own = [w for w in seen if _is_about(w, element)]
    evidence = [f.sentence for f in group]
    evidence += [w.text for w in own]
    evidence += sorted(
        f"{n} says of {r}: {text}"
        for (n, r), text in {k: v for m in matrices for k, v in m.said.items()}.items()
        if n == element.node and element.rail in {"", r}
    )
    if strongest.pattern == "failed" and element.kind in {"nic", "node"}:
        evidence.append(BLAMES["no-results"].told(element=element))
    if waits := not own and _only_waits(group, matrices):
        evidence.append(BLAMES["waits"].told(element=element))
    elif element.kind == "nic":
        element, note = _nic_cable_or_port(element, own, ports)
        evidence.append(note)
    if element.kind == "uplink" and element.direction != "both":
        evidence.append(BLAMES["uplink-one-way"].told(element=element, spine=element.spine))
    one_rail = len({rail for m in matrices for name in m.rails for rail in name.split(">")}) == 1
    if strongest.element.kind == "nic" and one_rail:
        evidence.append("only one rail was measured, so it may be the node itself")
    evidence += [why for f in group for why in f.why if not strongest.blamed]
    chances = _chances(strongest)
    if chances and not strongest.blamed:
        each = [f"{rival} {chance:.0%}" for rival, chance in zip(strongest.rivals, chances, strict=True)]
        evidence.append(f"how likely each is: {element} {strongest.confidence:.0%}, {', '.join(each)}")
    return Cause(
        element=element,
        blamed=strongest.blamed and not waits,
        confidence=min(strongest.confidence, DOUBTFUL) if waits else strongest.confidence,
        effect=min(f.effect for f in group),
        findings=tuple(group),
        evidence=tuple(dict.fromkeys(evidence)),
        rivals=strongest.rivals,
        proposal=WAIT_FIRST if waits else proposal(element, strongest),
        chances=chances,
    )


def _only_waits(group: Sequence[Explanation], matrices: Sequence[Matrix]) -> bool:
    """Whether a NIC or node is slow by times alone, while its rates were measured as well and are good."""
    higher = {m.label: m.higher for m in matrices}
    ends = {f.element.kind for f in group} <= {"nic", "node"} and all(f.pattern != "failed" for f in group)
    return ends and any(higher.values()) and not any(higher.get(f.label, True) for f in group)


def _chances(finding: Explanation) -> tuple[float, ...]:
    """Return the probability of each rival: the element leaves the rest, shared by how likely each is."""
    likely = finding.chances or finding.parts
    if len(likely) != len(finding.rivals) or not sum(likely):
        likely = (1.0,) * len(finding.rivals)
    rest = 1 - finding.confidence
    return tuple(rest * part / sum(likely) for part in likely)


def _is_about(witness: Witness, element: Element) -> bool:
    if element.kind in {"nic", "node"}:
        return witness.node == element.node and element.rail in {"", witness.rail}
    if element.kind == "uplink":
        return {witness.device, witness.peer.partition("/")[0]} == {element.leaf, element.spine}
    return bool(witness.device) and witness.device in {element.leaf, element.spine}


def _nic_cable_or_port(
    element: Element, own: Sequence[Witness], ports: Mapping[tuple[str, str], str]
) -> tuple[Element, str]:
    """Return the element with the kind that its counters point at, and what that rests on."""
    port = ports.get((element.node, element.rail), "")
    local = [w.place for w in own if w.local]
    at = f" (cable to {port})" if port else ""
    if "cable" in local:
        return replace(element, kind="cable", leaf=port), BLAMES["cable"].told(at=at)
    if "port" in local and "nic" not in local:
        return replace(element, kind="port", leaf=port), BLAMES["port"].told(at=at)
    if "nic" in local and "port" not in local:
        return element, BLAMES["nic"].told(at=at)
    return element, BLAMES["nic-cable-or-port"].told(at=at)

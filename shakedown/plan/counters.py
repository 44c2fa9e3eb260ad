"""The counters of a plan, and the faults that no NIC counter would show."""

import re
from collections.abc import Iterator, Mapping, Sequence

from shakedown.intent.links import UPLINK
from shakedown.intent.places import span
from shakedown.intent.site import Fabric, Site
from shakedown.nics.families import family_of
from shakedown.nics.witnesses import FAULTS, seen, unseen
from shakedown.nos.readings import IDLE, NEEDED, OF_UPLINK, UPLINK_COUNTERS, WHOLE_SWITCH
from shakedown.nos.system import LOST
from shakedown.plan.draft import PlanDraft
from shakedown.plan.jobs import JobSpec, counter_tests
from shakedown.records.base import Better, Params, Stage
from shakedown.records.plan import NotCovered, PlanItem
from shakedown.records.reading import BadInput
from shakedown.records.wording import count
from shakedown.references.catalogue import ReferenceEntry
from shakedown.references.of_site import families_of

# Benchmarks in which more is sent to a port than it carries, on purpose. There pause frames and marks must
# appear (benchmarks/incast), so how many they are is shown and decides nothing: at seven senders to one, each
# is told to wait for six sevenths of the time. That nothing is lost is held as ever.
_OVERLOADING = frozenset({"incast"})
_HOLDS_BACK = re.compile(r"counter\.(?:pause\.prio\d_rx|pfc_[rt]x|ecn_marked)_ppm\Z")
# So many flows for each uplink leave none of them idle by hash but once in 10^8 (e^-20 for each uplink).
_FLOWS_EACH = 20

# Nodes, each in a tuple of its own as a plan has it, by rail and device name.
_Blocks = dict[tuple[str, str], list[tuple[str, ...]]]


def plan_counters(draft: PlanDraft) -> None:
    """Counters that must not move, and those that must: every NIC over a job, every port over a stage.

    The references say which: entries of test `nic` or `switch` with a metric `counter.NAME`. Raises BadInput:
    two references, say of two profiles, judge one counter in one stage.
    """
    stages = {job.stage for job in draft.jobs}
    judged_by: dict[tuple[object, ...], str] = {}
    tests, nics = counter_tests(draft.jobs), _Nics(draft.site)
    for entry in draft.catalogue.entries.values():
        if not entry.metric.startswith("counter.") or entry.test not in {"nic", "switch"}:
            continue
        draft.references[entry.id] = entry.reference()
        if entry.test == "nic":
            for job in draft.jobs:
                if entry.stage == job.stage or ("nic_driver" in entry.scope and _holds(entry, job.stage)):
                    _once(judged_by, entry, job.stage)
                    _nic_counter(draft, nics, entry, job, tests[job.name])
        else:
            for stage in Stage:
                if stage in stages and _holds(entry, stage):
                    _once(judged_by, entry, stage)
                    _switch_counter(draft, entry, stage)


def _once(judged_by: dict[tuple[object, ...], str], entry: ReferenceEntry, stage: Stage) -> None:
    """Note who judges a counter in a stage, and refuse a second one."""
    narrowed = (entry.scope.get("nic_driver"), entry.scope.get("switch_nos"))
    what = (entry.test, entry.metric, stage, *narrowed)
    if (first := judged_by.setdefault(what, entry.id)) != entry.id:
        raise BadInput(
            f"references {first} and {entry.id} both judge {entry.metric} of a {entry.test} in the "
            f"{stage.value} stage",
            fix="leave one of the two profiles out of fabric.profile and acceptance.profiles",
        )


def _holds(entry: ReferenceEntry, stage: Stage) -> bool:
    """Whether an entry judges a stage: its own, and what must not happen there in none above it either."""
    ladder = list(Stage)
    above = ladder.index(stage) > ladder.index(entry.stage)
    return stage == entry.stage or (above and entry.better is Better.LOWER)


class _Nics:
    """Which NICs are judged by one entry, asked for each counter of each job: looked up once."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._blocks: dict[tuple[tuple[str, ...], object], _Blocks] = {}

    def blocks(self, nodes: tuple[str, ...], driver: object) -> _Blocks:
        """Return the nodes by rail and device name: nodes of one type name their NICs alike."""
        found = self._blocks.get((nodes, driver))
        if found is None:
            found = self._blocks[nodes, driver] = {}
            for node in nodes:
                for nic in self._site.nics[node]:
                    family = family_of(nic.driver, nic.rdma_device)
                    if driver in (None, family.name if family else ""):
                        found.setdefault((nic.rail, nic.rdma_device), []).append((node,))
        return found


def _nic_counter(draft: PlanDraft, nics: _Nics, entry: ReferenceEntry, job: JobSpec, test: str) -> None:
    required = job.kind not in _OVERLOADING or not _HOLDS_BACK.match(entry.metric)
    for (rail, device), nodes in nics.blocks(job.nodes, entry.scope.get("nic_driver")).items():
        port: Params = {"port": device}
        draft.add(entry, test, stage=job.stage, nodes=nodes, rails=(rail,), params=port, required=required)


def _switch_counter(draft: PlanDraft, entry: ReferenceEntry, stage: Stage) -> None:
    """One cell for each port, or for each rail where that is what the counter is of."""
    name = entry.metric.removeprefix("counter.")
    # A switch is read over a stage as a whole.
    overloaded = any(job.stage == stage and job.kind in _OVERLOADING for job in draft.jobs)
    gates = entry.gates and not (overloaded and _HOLDS_BACK.match(entry.metric))
    if name in UPLINK_COUNTERS:
        if stage == entry.stage:  # collectives need not use every uplink
            _uplink_counter(draft, entry, stage, name)
        return
    # Switches of one kind name their ports alike.
    blocks: dict[tuple[str | None, str, str, bool], list[str]] = {}
    some: dict[tuple[str | None, str, str, bool], list[str]] = {}
    meant = entry.scope.get("switch_nos")
    for switch in (one for one in draft.site.switches if meant in (None, one.nos)):
        rails = {rail for *_, rail in switch.ports}
        why, required, found = "", gates, blocks
        if not switch.reports:
            why = f"no counter of {switch.nos} is read, so zero loss cannot be claimed on it"
        elif name in switch.reports_of_rails and switch.uplinks:
            # What comes or goes by a link may be of any rail: the switch as a whole is looked at.
            blocks.setdefault((None, WHOLE_SWITCH, "", required), []).append(switch.name)
            continue
        elif name in switch.reports_of_rails:
            for rail in sorted(rails):
                blocks.setdefault((rail, rail, "", required), []).append(switch.name)
            continue
        elif name == LOST:
            continue  # systems that count drops have no need of it
        elif name in switch.may_report:
            found = some
        elif name not in switch.reports:
            why, required = f"{switch.nos} does not report {name}", False
        for port, _host, _netdev, rail in switch.ports:
            found.setdefault((rail, port, why, required), []).append(switch.name)
        # That a link carried traffic at all depends on where its flows were hashed to: utilisation says that.
        for link in switch.uplinks if entry.better is Better.LOWER else ():
            found.setdefault((None, link.port, why, required), []).append(switch.name)
    _add(draft, entry, stage, blocks)
    _add(draft, entry, stage, some, if_reported=True)


def _uplink_counter(draft: PlanDraft, entry: ReferenceEntry, stage: Stage, name: str) -> None:
    """One cell for each uplink of a leaf, or for each leaf where that is what the counter is of."""
    blocks: dict[tuple[str | None, str, str, bool], list[str]] = {}
    for switch in draft.site.switches:
        uplinks = [link for link in switch.uplinks if link.role == UPLINK]
        if not uplinks:
            continue
        why, required = "", entry.gates
        if not set(NEEDED) <= set(switch.reports):
            why, required = f"{switch.nos} does not report {' and '.join(NEEDED)}", False
        elif name == IDLE and not _all_used(draft, switch.name, len(uplinks)):
            required = False  # by chance too few flows leave an uplink without any
        for port in (link.port for link in uplinks) if name in OF_UPLINK else (WHOLE_SWITCH,):
            blocks.setdefault((None, port, why, required), []).append(switch.name)
    _add(draft, entry, stage, blocks)


def _all_used(draft: PlanDraft, leaf: str, uplinks: int) -> bool:
    """Whether the mesh sends so much over a leaf's uplinks that each of them carries something.

    Adaptive routing leaves none out where flows are as many as uplinks; a hash leaves one out with
    probability (1 - 1/u)^flows.
    """
    fabric = draft.site.network()
    flows = 0
    for rail in {rail for job in draft.jobs for rail in job.settings.get("rails", ()) if job.kind == "mesh"}:
        first, _, last = str(rail).partition(">")
        ends = {
            end: [nic.leaf for node in draft.nodes for nic in draft.site.nics[node] if nic.rail == end]
            for end in {first, last or first}
        }
        mine, away = ends[first].count(leaf), [one for one in ends[last or first] if one and one != leaf]
        flows += mine * len(away)
    each = 1 if fabric.switches.routing == "adaptive" else _FLOWS_EACH
    return flows >= each * uplinks


def _add(
    draft: PlanDraft,
    entry: ReferenceEntry,
    stage: Stage,
    blocks: Mapping[tuple[str | None, str, str, bool], Sequence[str]],
    *,
    if_reported: bool = False,
) -> None:
    for (rail, port, why, required), names in blocks.items():
        draft.items.append(
            PlanItem(
                stage=stage,
                test="switches",
                metric=entry.metric,
                unit=entry.unit,
                better=entry.better,
                nodes=tuple((one,) for one in names),
                rails=(rail,),
                params={"port": port},
                reference=entry.id,
                required=required,
                if_reported=if_reported or entry.if_reported,
                not_run=why or None,
            )
        )


def nic_cover(draft: PlanDraft) -> Iterator[str]:
    """Yield, for each family of drivers, how many of its counters are judged, and what they do not see."""
    for family, nodes in families_of(draft.site).items():
        if family is None:
            continue
        its_nodes = set(nodes)
        judged = {
            item.metric
            for item in draft.items
            if item.metric.startswith("counter.")
            and item.test != "switches"
            and item.required
            and any(node in its_nodes for (node,) in item.nodes)
        }
        if judged:
            blind = "; ".join(
                fault.name + (f" ({fault.measured})" if fault.measured else "")
                for fault in unseen(family.name)
            )
            yield (
                f"{span(nodes)}: {count(len(judged), 'counter')} of each {family.name} NIC are judged, "
                "which see "
                f"{len(seen(family.name))} of {len(FAULTS)} known faults; none sees {blind}"
            )


def unknown_nics(draft: PlanDraft) -> Iterator[NotCovered]:
    """Yield what is left out for NICs whose driver is not known."""
    site = draft.site
    nodes = families_of(site).get(None)
    if not nodes or not isinstance(site.fabric, Fabric) or not site.acceptance.counter_tests:
        return
    nics = sum(family_of(nic.driver, nic.rdma_device) is None for node in nodes for nic in site.nics[node])
    yield NotCovered(
        what=f"loss, errors, flaps and pauses by the counters of {count(nics, 'NIC')} of {span(nodes)}",
        why="their driver is not known, or has no profile: what they count is kept and not judged",
        key="fabric_nics",
    )

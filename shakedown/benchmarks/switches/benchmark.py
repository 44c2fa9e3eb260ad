"""The config stage's benchmark of switches: their own settings, and both ends of every cable."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from shakedown.benchmarks.base.contract import Benchmark, EveryNight
from shakedown.benchmarks.config.benchmark import SECTION
from shakedown.benchmarks.config.settings import ConfigStage, TargetReport, host_end
from shakedown.intent.links import HOST, SPINE, UPLINK
from shakedown.nos.cable_ends import (
    SwitchSettings,
    cables,
    links_of,
    load_settings,
    neighbours_of,
    switch_ends,
)
from shakedown.nos.crosscheck import (
    CABLING,
    DSCP,
    FEC,
    MTU,
    PFC,
    SPEED,
    End,
    SwitchCable,
    cross_check,
    dscp_check,
)
from shakedown.nos.readings import load_reading, port_name
from shakedown.nos.registry import known
from shakedown.plan.draft import PlanDraft, none_allowed
from shakedown.plan.jobs import job_and_attempt
from shakedown.records.base import Params, Stage
from shakedown.records.plan import Plan, PlanItem
from shakedown.records.reading import BadInput, read_evidence
from shakedown.records.results import Measurement, RunProblem
from shakedown.run.folder import Run

SETTINGS, CROSSCHECK = "switch_settings", "crosscheck"
ROLE = none_allowed(
    "intent.switch", "the site's fabric intent, as roles/roce_switch renders it for the switch"
)
FITS = none_allowed(
    "crosscheck.fits", "two ends of one cable must agree, and be the two that the inventory names"
)


def plan_switches(draft: PlanDraft, stage: ConfigStage) -> None:
    """Every switch's settings against the intent, and every cable's two ends against each other."""
    if draft.site.switches:
        _plan_settings(draft)
        _plan_crosscheck(draft, stage)


def _plan_settings(draft: PlanDraft) -> None:
    # Switches of one kind name their ports alike; what belongs to no port is the switch's.
    blocks: dict[tuple[str | None, str | None], list[str]] = {}
    for switch in draft.site.switches:
        blocks.setdefault((None, None), []).append(switch.name)
        for port, _host, _netdev, rail in switch.ports:
            blocks.setdefault((rail, port), []).append(switch.name)
        for link in switch.uplinks:
            blocks.setdefault((None, link.port), []).append(switch.name)
    for (on_rail, on_port), names in blocks.items():
        params: Params = {"port": on_port} if on_port else {}
        draft.forbid(ROLE, SETTINGS, nodes=names, rails=(on_rail,), params=params)


def _plan_crosscheck(draft: PlanDraft, stage: ConfigStage) -> None:
    roce = draft.site.network().roce
    dscps = tuple(dscp_check(dscp) for dscp in (roce.dscp, roce.cnp.dscp))
    # What the hosts' NICs cannot show is not asked of the switches either.
    kinds: dict[str, tuple[str, ...]] = {MTU: (MTU,), CABLING: (CABLING,)}
    kinds |= {PFC: (PFC,), DSCP: dscps} if stage.dcb else {}
    kinds |= {SPEED: (SPEED,), FEC: (FEC,)} if stage.link_speed else {}
    blocks: dict[tuple[str, str, str], list[str]] = {}
    for switch in draft.site.switches:
        for kind, checks in kinds.items():
            # A system without a parser is planned all the same: what it does not report must not pass.
            told = known(switch.nos).can_tell(kind)
            why = "" if told else f"{kind} is not reported by the read-back of {switch.nos}"
            for check in checks:
                for _port, host, _netdev, rail in switch.ports:
                    if host in draft.site.nics:
                        blocks.setdefault((check, rail, why), []).append(host)
    for (check, rail, why), hosts in blocks.items():
        draft.forbid(FITS, CROSSCHECK, nodes=hosts, rails=(rail,), params={"what": check}, not_run=why)
    _plan_links(draft, kinds)


def _plan_links(draft: PlanDraft, kinds: dict[str, tuple[str, ...]]) -> None:
    """Both ends of every link against each other, at its leaf; links to switches without access are not."""
    systems = {switch.name: known(switch.nos) for switch in draft.site.switches}
    blocks: dict[tuple[str, str, str], list[str]] = {}
    for switch in draft.site.switches:
        for link in switch.uplinks:
            if link.role != UPLINK or link.peer not in systems:
                continue
            for kind, checks in kinds.items():
                silent = [name for name in (switch.name, link.peer) if not systems[name].can_tell(kind)]
                # A neighbour that one end hears is proof enough of a cable.
                untold = silent if kind != CABLING else silent * (len(silent) == 2)
                nos = ", ".join(dict.fromkeys(systems[name].name for name in untold))
                why = f"{kind} is not reported by the read-back of {nos}" if untold else ""
                for check in checks:
                    blocks.setdefault((check, link.port, why), []).append(switch.name)
    for (check, port, why), leaves in blocks.items():
        draft.forbid(FITS, CROSSCHECK, nodes=leaves, params={"what": check, "port": port}, not_run=why)


# `raw/switches.config/` holds what the roles read from each switch, `SWITCH.settings.json` and the counter
# reading with its LLDP neighbours; `raw/config.settings*.aN/` what the hosts read from themselves, in
# one job or, at night, in several.

_SWITCHES = "raw/switches.config"
_SUFFIX = ".settings.json"
_HOSTS = "config.settings*.a*"
_STAGE = "raw/config.*/job.json"


def switch_measurements(run: Run) -> Iterator[Measurement]:
    """Yield how each switch differs from the intent, and which cables' ends do not fit.

    A host that was not read yields nothing: planned and absent, the verdict says NOT-RUN. A switch that was
    not read although the stage's jobs ran is NOT-RUN by name: nothing crosses one that is off, and what the
    jobs say of that names the nodes. One whose read-back is none gives its cells no value, and the reason.
    """
    plan, folder = run.plan, run.place
    if not any(item.test in (SETTINGS, CROSSCHECK) for item in plan.items):
        return
    found: dict[str, SwitchSettings | BadInput] = {}
    for path in sorted((folder / _SWITCHES).glob(f"*{_SUFFIX}")):
        name = path.name.removesuffix(_SUFFIX)
        try:
            found[name] = load_settings(path)
        except BadInput as refused:
            found[name] = refused
    yield from _settings(plan, found, ran=any(folder.glob(_STAGE)))
    read = {name: one for name, one in found.items() if isinstance(one, SwitchSettings)}
    yield from _crosscheck(plan, folder, read)


def _settings(plan: Plan, found: dict[str, SwitchSettings | BadInput], *, ran: bool) -> Iterator[Measurement]:
    for item in plan.items:
        if item.test != SETTINGS:
            continue
        port = str(item.params["port"]) if "port" in item.params else None
        for (name,) in item.nodes:
            settings = found.get(name)
            raw = f"{_SWITCHES}/{name}{_SUFFIX}"
            if settings is None and ran:
                unread = RunProblem(kind="not-run", message=f"{name} was not read back: could it be reached?")
                yield _measured(plan, item, name, None, None, None, problem=unread)
            elif isinstance(settings, BadInput):
                yield _measured(plan, item, name, None, raw, settings.what)
            elif settings is not None and settings.unread:
                yield _measured(plan, item, name, None, raw, f"{name}: {'; '.join(settings.unread[:3])}")
            elif settings is not None and (lines := _by_port(settings).get(port)) is not None:
                where = f"{name} {port}" if port else name
                yield _measured(plan, item, name, len(lines), raw, f"{where}: {'; '.join(lines[:3])}")


def _by_port(settings: SwitchSettings) -> dict[str | None, list[str]]:
    """Return the differences by the port that they name; None: those that name no port."""
    lines: dict[str | None, list[str]] = {None: []}
    for entry in settings.cabling:
        lines[port_name(entry.port)] = []
    for line in settings.differences:
        named = [
            e.port for e in settings.cabling if re.search(rf"(?<![\w/]){re.escape(e.port)}(?![\w/])", line)
        ]
        for port in named:
            lines[port_name(port)].append(line)
        if not named:
            lines[None].append(line)
    return lines


def settings_of_ports(
    raw: Path,  # the run's folder of raw files
    ports: Iterable[tuple[str, str]],  # which
) -> dict[tuple[str, str], list[str] | None]:
    """Return what was found to differ from the intent at each (switch, port), None where it was not read."""
    found: dict[tuple[str, str], list[str] | None] = {}
    for switch, port in ports:
        file = raw / Path(_SWITCHES).name / f"{switch}{_SUFFIX}"
        found[switch, port] = None
        with contextlib.suppress(BadInput, OSError):
            if file.exists() and not (settings := load_settings(file)).unread:
                found[switch, port] = _by_port(settings).get(port)
    return found


def _crosscheck(plan: Plan, folder: Path, found: dict[str, SwitchSettings]) -> Iterator[Measurement]:
    # Of a host's cable by its rail, of a link between switches by the leaf's port.
    items: dict[tuple[str, str, str | None], PlanItem] = {
        (str(item.params["what"]), host, _place(item)): item
        for item in plan.items
        if item.test == CROSSCHECK and item.not_run is None
        for (host,) in item.nodes
    }
    dscps = sorted({int(w.partition(".")[2]) for w, _, _ in items if w.startswith(f"{DSCP}.")})
    # Every link stands in the cabling of both its switches; it is compared once, at its leaf.
    planned = [c for settings in found.values() for c in cables(settings) if c.role != SPINE]
    switches: dict[tuple[str, str], End] = {}
    for settings in found.values():
        switches |= _switch(folder, settings)
    hosts = {
        (c.host, c.netdev): end
        for c in planned
        if (end := _host(folder, c) if c.role == HOST else switches.get((c.host, c.netdev))) is not None
    }
    for check in cross_check(planned, hosts, switches, dscps):
        cable = check.cable
        host_s = cable.role == HOST
        node, place = (cable.host, cable.rail) if host_s else (cable.switch, port_name(cable.port))
        item = items.get((check.what, node, place))
        if item is not None and (cable.host, cable.netdev) in hosts:  # else it was not read: NOT-RUN
            value = None if check.fits is None else int(not check.fits)
            raw = f"{_SWITCHES}/{cable.switch}{_SUFFIX}"
            yield _measured(plan, item, node, value, raw, check.text)


def _place(item: PlanItem) -> str | None:
    port = item.params.get("port")
    return item.rails[0] if port is None else str(port)


def _switch(folder: Path, settings: SwitchSettings) -> dict[tuple[str, str], End]:
    """Return what a switch says of its ports; what cannot be read tells nothing."""
    reading = folder / _SWITCHES / f"{settings.switch}.after.json"
    heard, links = None, None
    with contextlib.suppress(BadInput, AttributeError, TypeError):
        read = load_reading(reading) if reading.exists() else None
        heard = neighbours_of(read) if read else None
        links = links_of(read) if read else None
    try:
        return switch_ends(settings, heard, links)
    except BadInput:
        return {}


def _host(folder: Path, cable: SwitchCable) -> End | None:
    """Return what a host says of its end, from its last report; None if it made none."""
    reports = sorted(
        (folder / "raw").glob(f"{_HOSTS}/settings.{cable.host}.{cable.netdev}.json"),
        key=lambda report: job_and_attempt(report.parent.name)[1],
    )
    if not reports:
        return None
    try:
        return host_end(TargetReport.model_validate_json(read_evidence(reports[-1])))
    except (BadInput, ValidationError, ValueError, TypeError):
        return End()  # told nothing; the host's own cells say why


def _measured(
    plan: Plan,
    item: PlanItem,
    node: str,
    value: int | None,
    raw: str | None,
    detail: str | None,
    problem: RunProblem | None = None,
) -> Measurement:
    if value is None and problem is None:
        problem = RunProblem(kind="setup", message=(detail or "no value")[:1000])
    told = {"raw": raw, "problem": problem, "detail": detail[:1000] if detail else None}
    return item.measured(plan.run, (node,), value, rail=item.rails[0], state="COMPLETED", **told)


# No job: roles read the switches back, and gather reads what they saved.
BENCHMARK = Benchmark(
    name="switches",
    stage=Stage.CONFIG,
    section=SECTION,
    plan=plan_switches,
    night=EveryNight(),
    gather=switch_measurements,
    words={"crosscheck": "cable ends", "switch_settings": "switch settings"},
)

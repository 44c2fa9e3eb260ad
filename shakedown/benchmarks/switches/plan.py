"""Plan what is asked of switches in the config stage: their own settings, and both ends of every cable."""

from __future__ import annotations

from shakedown.benchmarks.config.options import ConfigStage
from shakedown.intent.links import UPLINK
from shakedown.nos.crosscheck import CABLING, DSCP, FEC, MTU, PFC, SPEED, dscp_check
from shakedown.nos.registry import known
from shakedown.plan.draft import Draft, none_allowed
from shakedown.records.base import Params, Stage

SETTINGS, CROSSCHECK = "switch_settings", "crosscheck"
ROLE = none_allowed(
    "intent.switch", "the site's fabric intent, as roles/roce_switch renders it for the switch"
)
FITS = none_allowed(
    "crosscheck.fits", "two ends of one cable must agree, and be the two that the inventory names"
)


def plan_switches(draft: Draft, stage: ConfigStage) -> None:
    """Every switch's settings against the intent, and every cable's two ends against each other."""
    if draft.site.switches:
        _plan_settings(draft)
        _plan_crosscheck(draft, stage)


def _plan_settings(draft: Draft) -> None:
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
        draft.forbid(
            ROLE,
            SETTINGS,
            stage=Stage.CONFIG,
            nodes=[(name,) for name in names],
            rails=(on_rail,),
            params=params,
        )


def _plan_crosscheck(draft: Draft, stage: ConfigStage) -> None:
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
        draft.forbid(
            FITS,
            CROSSCHECK,
            stage=Stage.CONFIG,
            nodes=[(host,) for host in hosts],
            rails=(rail,),
            params={"what": check},
            not_run=why,
        )
    _plan_links(draft, kinds)


def _plan_links(draft: Draft, kinds: dict[str, tuple[str, ...]]) -> None:
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
        draft.forbid(
            FITS,
            CROSSCHECK,
            stage=Stage.CONFIG,
            nodes=[(leaf,) for leaf in leaves],
            params={"what": check, "port": port},
            not_run=why,
        )

"""Data Center Bridging through iproute2's `dcb`: DCBX mode, ETS, PFC, and the map from DSCP to priority.

`dcb app replace` and `dcb app flush` are never used. `replace` ends with status 0 even if it failed, adds
before it deletes (which mlx5 answers with an error, its driver having replaced the entry already, and bnxt
by dropping the new mapping along with the old), and `flush` takes the whole map from a live port
(iproute2 dcb/dcb_app.c; kernel mlx5 en_dcbnl.c and bnxt_dcb.c, setapp and delapp).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from host_settings.desired import Nic
from host_settings.model import Action, Item, NotApplicable, Run, Setting, Value
from host_settings.system import System

PRIORITIES = range(8)
_HINT = (
    "the host must own DCBX (dcb dcbx show) on a physical function, with the firmware's LLDP agent off in NVM"
)


def supported(system: System, dev: str) -> bool:
    """Whether the NIC's driver has DCB at all."""
    done = system.run("dcb", "-j", "dcbx", "show", "dev", dev)
    # Any other complaint is for `read` to raise.
    return done.status == 0 or "Operation not supported" not in done.out + done.err


def read(system: System, dev: str) -> dict[str, Any]:
    """All DCB state of a NIC. Raises ToolError if the driver has none."""
    flags = system.run_json("dcb", "-j", "dcbx", "show", "dev", dev)
    ets = system.run_json("dcb", "-j", "ets", "show", "dev", dev)
    pfc = system.run_json("dcb", "-j", "pfc", "show", "dev", dev)
    app = system.run_json("dcb", "-j", "app", "show", "dev", dev)
    return {
        "dcbx": sorted(name for name, on in dict(flags).items() if on),
        "ets": {key: ets.get(key) for key in ("ets_cap", "prio_tc", "tc_tsa", "tc_bw")},
        "pfc": {
            "priorities": [p for p, on in enumerate(pfc.get("prio_pfc", [])) if on in (True, "on")],
            "delay": pfc.get("delay"),
        },
        # iproute2 6.15 adds a third element, a space, to every entry.
        "dscp": {int(entry[0]): int(entry[1]) for entry in dict(app).get("dscp_prio", [])},
        "udp": {int(entry[0]): int(entry[1]) for entry in dict(app).get("dgram_port_prio", [])},
    }


def dcbx_setting(found: Mapping[str, Any], dev: str) -> Setting:
    """The host, not the firmware or an agent, decides."""
    relevant = " ".join(name for name in ("host", "lld_managed", "ieee") if name in found["dcbx"])

    def own(value: Value) -> tuple[Action, ...]:
        # No dcb command gives a NIC back to its firmware, so a rollback leaves the host in charge.
        return (Run(("dcb", "dcbx", "set", "dev", dev, *str(value).split())),) if "host" in str(value) else ()

    return Setting("dcbx.mode", relevant, "host ieee", own, hint=_HINT)


@dataclass(frozen=True)
class Classes:
    """Traffic classes of the NIC itself: a priority's class, a class's share, and the strict ones."""

    of_priority: Mapping[int, int]
    percent: Mapping[int, int]
    strict: frozenset[int]

    def as_value(self) -> dict[str, list[Any]]:
        """The form in which ETS is compared and recorded; shares of classes without ETS say nothing."""
        return {
            "prio_tc": [self.of_priority.get(p, 0) for p in PRIORITIES],
            "tc_tsa": ["strict" if tc in self.strict else "ets" for tc in PRIORITIES],
            "tc_bw": [0 if tc in self.strict else self.percent.get(tc, 0) for tc in PRIORITIES],
        }


def ets_setting(found: Mapping[str, Any], dev: str, classes: Classes) -> Setting:
    """The scheduler of the traffic classes."""
    ets = found["ets"]
    shares = [bw if tsa == "ets" else 0 for tsa, bw in zip(ets["tc_tsa"], ets["tc_bw"])]
    now = {"prio_tc": ets["prio_tc"], "tc_tsa": ets["tc_tsa"], "tc_bw": shares}

    def schedule(value: Value) -> tuple[Action, ...]:
        words = []
        for key, option in (("tc_tsa", "tc-tsa"), ("tc_bw", "tc-bw"), ("prio_tc", "prio-tc")):
            words += [option, *(f"{index}:{entry}" for index, entry in enumerate(value[key]))]
        return (Run(("dcb", "ets", "set", "dev", dev, *words)),)

    return Setting("ets", now, classes.as_value(), schedule, hint=_HINT)


def pfc_setting(found: Mapping[str, Any], dev: str, wanted: Iterable[int], interrupts: str) -> Setting:
    """The lossless priorities; all others are switched off."""

    def pause(value: Value) -> tuple[Action, ...]:
        on = [f"{priority}:on" for priority in value]
        return (Run(("dcb", "pfc", "set", "dev", dev, "prio-pfc", "all:off", *on)),)

    now = found["pfc"]["priorities"]
    return Setting("pfc.priorities", now, sorted(wanted), pause, interrupts, hint=_HINT)


def cable_setting(found: Mapping[str, Any], dev: str, metres: int) -> Item:
    """The cable length from which the driver sizes the headroom; 0 where it does not."""
    if not found["pfc"]["delay"] or not metres:
        why = (
            "the intent gives no cable length"
            if found["pfc"]["delay"]
            else "the NIC sizes its buffers itself"
        )
        return NotApplicable("pfc.cable_m", why)
    return Setting(
        "pfc.cable_m",
        found["pfc"]["delay"],
        metres,
        lambda v: (Run(("dcb", "pfc", "set", "dev", dev, "delay", str(v))),),
        hint=_HINT,
    )


def map_text(mapping: Mapping[int, int]) -> str:
    """A DSCP map with runs drawn together: `0-25:0 26:3 27-63:0`."""
    runs: list[list[int]] = []
    for dscp, priority in sorted(mapping.items()):
        if runs and runs[-1][1] == dscp - 1 and runs[-1][2] == priority:
            runs[-1][1] = dscp
        else:
            runs.append([dscp, dscp, priority])
    return " ".join(f"{a}:{p}" if a == b else f"{a}-{b}:{p}" for a, b, p in runs)


def map_from(text: str) -> dict[int, int]:
    """The map that `map_text` wrote."""
    mapping = {}
    for part in text.split():
        dscps, _, priority = part.partition(":")
        first, _, last = dscps.partition("-")
        mapping.update(dict.fromkeys(range(int(first), int(last or first) + 1), int(priority)))
    return mapping


def app_setting(
    key: str,
    now: Mapping[int, int],
    wanted: Mapping[int, int],
    change: Callable[[Mapping[int, int], Mapping[int, int]], tuple[Action, ...]],
) -> Setting:
    """A map of the APP table, as text so that it can be read in one line. `change` gets (gone, new)."""

    def rewrite(value: Value) -> tuple[Action, ...]:
        target = map_from(str(value))
        gone = {d: p for d, p in now.items() if target.get(d) != p}
        return change(gone, {d: p for d, p in target.items() if now.get(d) != p})

    return Setting(key, map_text(now), map_text(wanted), rewrite, hint=_HINT)


def app_argv(verb: str, dev: str, selector: str, mapping: Mapping[int, int]) -> Run:
    """`dcb app add|del` with all entries at once."""
    entries = (f"{key}:{priority}" for key, priority in sorted(mapping.items()))
    return Run(("dcb", "app", verb, "dev", dev, selector, *entries))


def delete_then_add(
    dev: str, selector: str
) -> Callable[[Mapping[int, int], Mapping[int, int]], tuple[Action, ...]]:
    """Old before new: deleting drops the hardware's entry for a key, whatever its priority (bnxt_dcb.c)."""

    def change(gone: Mapping[int, int], new: Mapping[int, int]) -> tuple[Action, ...]:
        delete = (app_argv("del", dev, selector, gone),) if gone else ()
        return (*delete, *((app_argv("add", dev, selector, new),) if new else ()))

    return change


def classes_of_intent(nic: Nic) -> Classes:
    """The intent's own traffic classes, for a NIC that has all eight."""
    roce, percent = nic.roce, nic.policy.ets_roce_percent
    return Classes(
        of_priority={roce.priority: roce.traffic_class, roce.cnp.priority: roce.cnp.traffic_class},
        percent={0: 100 - percent, roce.traffic_class: percent},
        strict=frozenset({roce.cnp.traffic_class} if roce.cnp.strict else ()),
    )


def dscp_map_setting(
    found: Mapping[str, Any],
    nic: Nic,
    change: Callable[[Mapping[int, int], Mapping[int, int]], tuple[Action, ...]],
) -> Setting:
    """All 64 DSCPs as the switches have them: ours on our priorities and every other on 0."""
    roce = nic.roce
    wanted = {**dict.fromkeys(range(64), 0), roce.dscp: roce.priority, roce.cnp.dscp: roce.cnp.priority}
    return app_setting("dscp.map", found["dscp"], wanted, change)

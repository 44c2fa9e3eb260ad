"""Jinja2 filters of the role: why a switch cannot hold the intent. Pure: decided before any change."""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import re
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shakedown.intent import links, rules

Intent = dict[str, Any]
# How a command line waits for a key, in a line by itself.
_PAGER = re.compile(r"(?im)^\W*-- ?more ?--\W*$")
# One port: a word, its numbers, and what a breakout adds (swp1s0, ethernet1/1/1:1). No range, no second line,
# no VLAN, loopback, port channel or tunnel.
_ONE_PORT = re.compile(r"(?i:(?!vl|lo|po|tu|bond|range)[a-z]+) ?\d+([/:.]\d+)*(s\d+|[a-z])?", re.ASCII)
_LINUX_PORT = re.compile(r"[^\s/]{1,15}")
_IMPORT = "    from shakedown.intent import rules\n"


def lossless_priorities(fabric: Intent) -> list[int]:
    """The priorities that PFC protects."""
    return rules.lossless_priorities(fabric["roce"])


def refusals(
    fabric: Intent,
    nos: str,
    ports: list[dict[str, str]],
    management: list[str],
    hosts: list[str],
    switch: str = "",
) -> list[str]:
    """Why this intent cannot go onto this switch; empty if it can."""
    # Here, not above: pydantic takes a moment to load, and every fork of Ansible loads all filters.
    from shakedown.nos.registry import SYSTEMS

    system = SYSTEMS.get(nos)
    if system is None:
        return [f"unknown switch system {nos!r}; it is one of {', '.join(SYSTEMS)}"]
    found = [*rules.intent_problems(fabric), *links.problems(fabric)]
    linked = [] if found else links.link_ports(fabric, switch)
    if odd := [*_odd(nos, "leaf_ports", ports), *_odd(nos, "fabric.switches.links", linked)]:
        return [str(problem) for problem in [*found, *odd]]
    kept = {e["port"] for e in (*ports, *linked) if e.get("port") and _manages(nos, e["port"], management)}
    if ports or not linked:  # a spine has no port with a host
        found += rules.cabling_problems(ports, fabric, kept, hosts)
    found += [
        rules.Problem(
            ("fabric", "switches", "links"),
            f"port {entry['port']} carries management",
            "take it out of fabric.switches.links",
        )
        for entry in linked
        if entry["port"] in kept
    ]
    found += rules.switch_problems(fabric, nos, system.lossless_limit)
    return [str(problem) for problem in found]


def _odd(nos: str, at: str, entries: list[Intent]) -> Iterator[rules.Problem]:
    """Yield what a command line would take for several ports, for something else, or for a second line."""
    one = _LINUX_PORT if nos == "linux" else _ONE_PORT
    for number, entry in enumerate(entries):
        if entry.get("port") and not one.fullmatch(str(entry["port"])):
            place = f"{at}[{number}]" if at == "leaf_ports" else at  # a link's rule stands for many
            what = f"{place}: {entry['port']!r} is not the name of one port"
            yield rules.Problem((at, number), what, "write each port by itself, as the switch prints it")


def _same(typed: str, name: str) -> bool:
    """Whether a switch takes what is typed for this port: in any case, blanks or none, its word cut short."""
    one, other = (re.match(r"([a-z]*)(.*)", re.sub(r"\s", "", text.lower())) for text in (typed, name))
    return bool(one and other and one[1] and one[2] == other[2] and other[1].startswith(one[1]))


def _manages(nos: str, port: str, management: list[str]) -> bool:
    """Whether a port is one of those that are never changed, by any spelling, or calls itself management."""
    word = re.split(r"[^a-z]", port.lower())[0]
    itself = nos != "linux" and any(one.startswith(word) for one in ("mgmt", "managementethernet"))
    return itself or any(_same(port, name) for name in management)


def known_ports(nos: str, printed: str) -> dict[str, str]:
    """The ports that a switch has, by the names that it prints, and another that each goes by, or "".

    Args:
        nos: the system.
        printed: the running configuration, of SONiC CONFIG_DB; of Cumulus `nv show interface`.
    """
    if nos in ("sonic", "cumulus"):
        told = json.loads(printed or "{}")
        rows = told.get("PORT", {}) if nos == "sonic" else told
        return {name: str(row.get("alias", "")) for name, row in rows.items()}
    return dict.fromkeys(re.findall(r"(?m)^interface (\S.*?)\s*$", printed), "")


def unknown_ports(ports: list[Intent], known: dict[str, str]) -> list[str]:
    """Why a port is none that the switch prints, by exactly that name; nothing where nothing was read."""
    reasons = []
    for port, role in ((entry["port"], entry.get("role")) for entry in ports if known):
        if port not in known:
            like = [name for name, other in known.items() if port == other or _same(port, name)]
            at = "fabric.switches.links" if role in (links.UPLINK, links.SPINE) else "leaf_ports"
            fix = f"it prints {like[0]}: write that" if like else "correct it"
            reasons.append(f"{at}: port {port!r} is none that the switch prints; {fix}")
    return reasons


def not_done(nos: str) -> list[str]:
    """The parts of the intent that are neither set nor read on a system; kept with the read-back."""
    from shakedown.nos.registry import known  # here, as above

    return list(known(nos).not_done)


def ports(
    fabric: Intent, cabled: list[dict[str, Any]], switch: str, kept: Intent | None = None
) -> list[dict[str, Any]]:
    """Every port of a switch that carries RoCE: those with hosts, then those of its links to switches.

    On the way back of Enterprise SONiC also those that were `kept` and are cabled no more.
    """
    found = [*cabled, *links.link_ports(fabric, switch)]
    named = {entry["port"] for entry in found}
    gone = [name.removeprefix("mtu ") for name in kept or {} if name.startswith("mtu ")]
    return found + [{"port": name} for name in gone if name not in named]


def leaf_program(source: str) -> str:
    """The program for a Linux leaf: one file, with the validator of the intent in place of its import."""
    if source.count(_IMPORT) != 1:
        raise ValueError("roce_leaf.py imports the validator in one line")
    text = Path(rules.__file__).read_text(encoding="utf-8")
    inlined = (
        "    import types\n\n    rules = types.ModuleType('rules')\n"
        f"    exec(compile({text!r}, 'rules.py', 'exec'), rules.__dict__)\n"
    )
    return source.replace(_IMPORT, inlined)


def cli_unready(nos: str, unsaved: list[str], mixture_accepted: bool) -> list[str]:
    """Why a switch must not be changed as it is. Saving would write somebody else's unsaved lines too."""
    reasons = []
    if unsaved:
        some = "; ".join(unsaved[:3]) + (f" and {len(unsaved) - 3} more" if len(unsaved) > 3 else "")
        reasons.append(f"the running configuration is not saved ({some}): save it, or discard it, first")
    if nos == "os9" and not mixture_accepted:
        reasons.append(
            "OS9 has neither a transaction nor a commit timer: a connection lost while lines are typed "
            "leaves a mixture until the switch is reloaded. To accept that set roce_switch_mixture_accepted"
        )
    return reasons


def cli_unread(text: str, which: str = "running") -> list[str]:
    """Why what a switch printed is not its configuration, so that nothing is known of it; empty if it is."""
    # As above: only the systems with a command line pay for it.
    from shakedown.nos.system import refuse_error_text
    from shakedown.records.reading import BadInput
    from shakedown.run.redact import redact

    # What a command says instead of a configuration is its first line; a banner may say anything below.
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not first:
        return [f"{which} configuration: the switch printed nothing; read it again"]
    try:
        refuse_error_text(first, f"{which} configuration")
    except BadInput as refused:
        return [str(refused)]
    if _PAGER.search(text):
        return [f"{which} configuration: a pager (--More--) cut it off; read it again without one"]
    if not re.search(r"(?m)^interface \S", text):  # a prompt, a refusal in odd words, a lock
        return [
            f"{which} configuration: no interface is in it ({redact(first.strip())[:60]!r}); read it again"
        ]
    return []


def cli_refusals(fabric: Intent, nos: str, ports: list[dict[str, str]], running: str) -> list[str]:
    """Why a switch, as it is configured, cannot take the intent, or why its configuration is not known."""
    reasons = cli_unread(running)
    if nos == "os9":
        for entry in ports:
            section = re.search(rf"(?m)^interface {re.escape(entry['port'])}\n((?:[ !].*\n?)*)", running)
            if section and re.search(r"(?m)^ flowcontrol (rx|tx) on", section[1]):
                reasons.append(
                    f"port {entry['port']}: link-level flow control is on; OS9 has no PFC beside it"
                )
    return reasons


def shell_undoable(told: str) -> list[str]:
    """Why the way back of a switch with a Linux shell would not run, from what `undoable_shell.yml` asks it.

    Lines are `missing WHAT`, `refused WHY`, the state of systemd, and `df -Pk` of the configuration's folder.
    """
    reasons = [
        f"no {what}, without which nothing undoes the change"
        for what in re.findall(r"(?m)^missing (.+)$", told)
    ]
    reasons += re.findall(r"(?m)^refused (.+)$", told)
    if state := re.search(r"(?m)^(maintenance|stopping|offline|unknown)$", told):
        reasons.append(f"systemd is {state[1]}: its timers do not run")
    free = re.search(r"(?m)^\S+ +\d+ +\d+ +(\d+) +\d+% ", told)
    if not free or int(free[1]) < _LEAST_FREE_KIB:
        has = f"{free[1]} KiB" if free else "nobody tells how much"
        reasons.append(f"{has} is free where its configuration lies; undoing needs {_LEAST_FREE_KIB} KiB")
    return reasons


_LEAST_FREE_KIB = 4096  # the old configuration, the new one and a checkpoint of each, several times


# Whose a setting is, as the table's last column says it.
WHOSE = {
    "nobody": "nobody's",
    "system": "the system's default",
    "role": "this role's",
    "other": "SOMEBODY ELSE'S",
}


# The last word of a row of `show ip bgp summary`: a number of prefixes (the session stands) or a state.
_BGP_ROW = re.compile(r"(?m)^ *([0-9a-fA-F.:]*[.:][0-9a-fA-F.:]+)\s.*?(\S+)\s*$")
_NXOS_SESSION = re.compile(r"(?m)^ *([0-9a-fA-F.:]+)\s+\S+\s+\d+\s.*?\s([A-Z])\s+\d+/\d+")


def health(nos: str, kind: str, printed: str) -> dict[str, str]:
    """What stands between a switch and its neighbours, by name; nothing where it is not told.

    Args:
        nos: the system.
        kind: bgp or lldp.
        printed: what the command of `_roce_switch_health_asks` printed.
    """
    from shakedown.nos.registry import known  # here, as above
    from shakedown.records.reading import BadInput

    try:
        if kind == "lldp":
            reader = known(nos).neighbours
            found = reader(printed) if reader else {}
            return {f"LLDP neighbour on {port}": str(sorted(heard)) for port, heard in found.items() if heard}
        if nos == "nxos":
            up = [peer for peer, state in _NXOS_SESSION.findall(printed) if state == "E"]
        elif nos in ("os9", "os10"):
            up = [peer for peer, last in _BGP_ROW.findall(printed) if last.isdigit()]
        else:
            up = list(_established(json.loads(printed or "{}")))
    except (BadInput, ValueError):
        return {}
    return {f"BGP session with {peer}": "established" for peer in up}


def _established(tree: object) -> Iterator[str]:
    """The peers of EOS's and FRR's JSON, at any depth: VRFs and address families stand above them."""
    for key, value in tree.items() if isinstance(tree, dict) else ():
        if key == "peers" and isinstance(value, dict):
            for peer, one in value.items():
                if isinstance(one, dict) and "Established" in (one.get("peerState"), one.get("state")):
                    yield peer
        else:
            yield from _established(value)


_ERRORS = ("rx_errors", "tx_errors", "fec_uncorrectable")


def error_free(nos: str, uplinks: list[str], first: Intent, second: Intent, roce: Intent) -> dict[str, str]:
    """The uplinks that counted no error between two readings (`switch_counters_outputs`), by name."""
    from shakedown.nos.registry import counters_of  # here, as above
    from shakedown.nos.system import Classes
    from shakedown.records.reading import BadInput

    numbers = {name: roce[name] for name in ("priority", "traffic_class", "queue")}
    classes = Classes(**numbers, cnp_queue=roce["cnp"]["queue"])
    try:
        was, is_ = (
            counters_of(nos)({label: one["stdout"] for label, one in outputs.items()}, classes)
            for outputs in (first, second)
        )
    except BadInput:
        return {}
    free = {}
    for port in uplinks:
        told = {name: is_.get(port, {})[name] for name in _ERRORS if name in is_.get(port, {})}
        if told and all(value <= was.get(port, {}).get(name, 0) for name, value in told.items()):
            free[f"uplink {port} free of new errors"] = "counted"
    return free


def lost(now: dict[str, str], before: dict[str, str], kind: str = "") -> list[str]:
    """What stood before, of one kind (bgp, lldp) or of all, and is not there now. What is new is no loss."""
    return [name for name in before if name not in now and name.startswith(kind.upper())]


_WINDOW = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_DAY_MIN = 24 * 60


def controller(_: object = "") -> str:
    """The name under which runs on this machine leave their trials; a container has another."""
    name = socket.gethostname()
    machine, space = Path("/etc/machine-id"), Path("/proc/self/ns/pid")
    known = name + (machine.read_text() if machine.is_file() else "")
    known += str(space.stat().st_ino) if space.exists() else ""
    return f"{re.sub('[^A-Za-z0-9]+', '-', name)[:12]}-{zlib.crc32(known.encode()):08x}"


def claim(path: str) -> dict[str, Any]:
    """Take a switch for this run of Ansible, among all runs of this machine, whoever's they are.

    Args:
        path: a link whose target says whose the switch is.

    Returns:
        held (who has it, or why it is not to be had; "" if ours) and ended (whether a run that ended had it).
    """
    # A task's own process is one of many; its parent is the run.
    link, mine = Path(path), _run()
    folder = os.open(link.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # until it is closed
        holder = str(link.readlink()) if link.is_symlink() else ""
        words = holder.split()
        elsewhere = words[-3:-2] != mine.split()[-3:-2]
        if holder not in ("", mine) and (elsewhere or _began(words[1]) == words[-1]):
            return {"held": f"{holder}. If it is gone, remove {link}", "ended": False}
        link.unlink(missing_ok=True)
        link.symlink_to(mine)
    except OSError as error:  # another user's, in a folder in which only he may take it away
        return {"held": f"{link} is not ours to take ({error.strerror})", "ended": False}
    finally:
        os.close(folder)
    return {"held": "", "ended": holder not in ("", mine)}


def unclaim(path: str) -> bool:
    """Leave a switch to other runs; whether it was ours."""
    link = Path(path)
    if not link.is_symlink() or str(link.readlink()) != _run():
        return False
    link.unlink()
    return True


def _run() -> str:
    """This run of Ansible: a filter works in a process of one task, whose parent is the run."""
    return (
        f"process {os.getppid()} of {getpass.getuser()} on {controller()} since {_began(str(os.getppid()))}"
    )


def _began(process: str) -> str:
    """When a process began, in ticks; "" if it is gone. Without /proc: "-" as long as it is there."""
    if Path("/proc/self/stat").exists():
        stat = Path("/proc", process, "stat")
        return stat.read_text().rpartition(")")[2].split()[19] if stat.exists() else ""
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return ""
    except PermissionError:  # another user's
        pass
    return "-"


def closed(window: str, trial_s: int, now: str = "") -> list[str]:
    """Why no change may begin now; empty if it may.

    Args:
        window: `22:00-05:00`, in the controller's own time; empty: any time.
        trial_s: seconds that a trial may take, which must lie in the window too.
        now: `HH:MM`, for tests.
    """
    if not window:
        return []
    match = _WINDOW.fullmatch(str(window))
    if not match:
        return [f"roce_switch_window is {window!r}, not two times such as 22:00-05:00"]
    begin, end = (int(match[n]) * 60 + int(match[n + 1]) for n in (1, 3))
    hours, minutes = map(int, (now or time.strftime("%H:%M")).split(":"))
    since = (hours * 60 + minutes - begin) % _DAY_MIN
    length = (end - begin) % _DAY_MIN or _DAY_MIN
    if since + trial_s / 60 < length:
        return []
    return [f"outside the window for changes ({window}, a trial of {trial_s} s included): run again in it"]


def _risk(read: Intent, nos: str) -> str:
    """What a change does to traffic on this switch, and what takes it back."""
    settings = {one["setting"] for one in read.get("changes", [])}
    way = {"load": "no port goes down", "patch": "the ports in this table go down for a moment"}
    what = {
        "sonic": way.get(read.get("way", ""), "`config reload`: ALL ports go down"),
        "enterprise_sonic": "THE SWITCH REBOOTS, twice if it is undone"
        if read.get("needs_roce")
        else "no reboot",
        "os9": "a reload where PFC changes, and to undo anything",
    }.get(nos, "no port is taken down")
    if "mtu" in settings and nos not in ("enterprise_sonic", "os9") and read.get("way", "load") == "load":
        what += "; a new MTU may take its port down for a moment"
    timer = {"sonic": "a timer", "cumulus": "NVUE", "eos": "EOS", "nxos": "a scheduled rollback"}.get(nos)
    return f"risk: {what}; undone by " + (
        f"{timer} without us" if timer else "this run alone, while it reaches the switch"
    )


def change_table(read: Intent, switch: str, nos: str = "") -> list[str]:
    """The one table before the first change: switch, port, setting, from, to, whose; and its risk below."""
    rows = [("switch", "port", "setting", "from", "to", "whose")]
    for one in read.get("changes", []):
        where = f"{one['where']} {one['setting']}".strip()
        rows.append((switch, one["port"] or "-", where, one["from"], one["to"], WHOSE[one["whose"]]))
    risk = [_risk(read, nos)] if nos and nos != "linux" else []
    if len(rows) == 1:
        return [*read["differences"], *risk]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ] + risk


def whose(read: Intent, typed: list[list[str]] | None) -> Intent:
    """The same reading, in which the role's own is only what it typed itself: a name is no proof.

    Args:
        read: what `compare` of a system gives.
        typed: place, setting and value of all that earlier runs typed; None where that was not kept.
    """
    mine = {tuple(one) for one in typed or ()} | {(one[0], "row") for one in typed or ()}
    changes = [
        {**one, "whose": "other"}
        if typed is not None
        and one["whose"] == "role"
        and not mine & {(one["where"], one["setting"], one["from"]), (one["where"], one["setting"])}
        else one
        for one in read.get("changes", [])
    ]
    return {**read, "changes": changes} if changes else read


def typed(read: Intent) -> list[list[str]]:
    """What a change types, as `whose` asks for it."""
    return [
        [one["where"], one["setting"], one["to"]] for one in read.get("changes", []) if one["to"] != "absent"
    ]


def others_settings(read: Intent) -> list[str]:
    """The settings that would be changed and are somebody else's."""
    return [
        f"{one['where']} {one['setting']}".strip() + f" ({one['from']})"
        for one in read.get("changes", [])
        if one["whose"] == "other"
    ]


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "roce_switch_refusals": refusals,
            "roce_switch_not_done": not_done,
            "roce_switch_known_ports": known_ports,
            "roce_switch_unknown_ports": unknown_ports,
            "roce_switch_ports": ports,
            "roce_switch_lossless": lossless_priorities,
            "roce_switch_leaf_program": leaf_program,
            "roce_switch_cli_refusals": cli_refusals,
            "roce_switch_cli_unread": cli_unread,
            "roce_switch_cli_unready": cli_unready,
            "roce_switch_shell_undoable": shell_undoable,
            "roce_switch_health": health,
            "roce_switch_error_free": error_free,
            "roce_switch_lost": lost,
            "roce_switch_closed": closed,
            "roce_switch_controller": controller,
            "roce_switch_claim": claim,
            "roce_switch_unclaim": unclaim,
            "roce_switch_change_table": change_table,
            "roce_switch_whose": whose,
            "roce_switch_typed": typed,
            "roce_switch_others_settings": others_settings,
        }

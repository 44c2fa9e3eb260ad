"""Jinja2 filters for switches with an indented configuration: what is missing, too much, whose, to be typed.

A configuration is a set of paths: `("interface Ethernet1", "mtu 9000")`. Wanted and found are compared as
such sets, in one spelling, so that order, indentation, separators, lists and ranges do not count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

Path = tuple[str, ...]
Change = dict[str, str]

# A list of DSCPs on one line is the same as one line each: `qos map dscp 24 26 to traffic-class 3`.
_DSCP_LIST = re.compile(r"(?P<head>qos map dscp) (?P<list>[\d ,-]+) (?P<tail>to traffic-class \d+)")
# `0,1,2,4` and `0-2,4` are one list; OS10 and NX-OS print ranges, whatever was typed.
# Anything longer is a date or an address.
_LIST = re.compile(r"(?<![\w./:-])(?=\d+[,-])\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?)*(?![\w./:-])")
_DECIMAL = re.compile(r"(?<![\w./])\d+\.\d+(?![\w./])")  # 0.20 and 0.2 s
# Settings of which a section holds one: another value of the same is replaced, and stands in the table.
_SETTING = re.compile(
    r"mtu|service-policy( (input|output))?( type \S+)?( (input|output))?|service-profile|trust-map dscp"
    r"|dcb-map|qos-map traffic-class|qos map dscp \d+"
    r"|priority-flow-control (mode|watch-dog-interval|pause watchdog (default \S+|action))"
    r"|set qos-group|bandwidth( remaining)? percent|flowcontrol (receive|transmit)|ets mode"
    r"|random-detect( color \S+| ecn)? minimum-threshold|priority-pgid"
)
# What the role names so is its own, and so is a port that carries one of these.
_OURS = re.compile(r"\bROCE(-[A-Z]+)?$|\bROCE\b")
# What a switch has of itself, where a command shows it: NX-OS's policies (Nexus 9000 QoS guide 10.x, "default
# policies"), EOS's DSCP map (EOS manual 4.3x, "default DSCP to traffic class"), the MTUs and flow control.
_SYSTEM = re.compile(
    r"mtu (1500|1532|1554|9214|9216)|service-policy .*\bdefault-(8q-)?(nq|in|out)-policy|flowcontrol .*"
    r"|priority-flow-control (mode auto|watch-dog-interval off)|ets mode off"
    r"|qos map dscp ([0-7] to traffic-class 1|([89]|1[0-5]) to traffic-class 0"
    r"|(1[6-9]|2[0-3]) to traffic-class 2|(2[4-9]|3[01]) to traffic-class 3|(3[2-9]) to traffic-class 4"
    r"|(4[0-7]) to traffic-class 5|(4[89]|5[0-5]) to traffic-class 6|(5[6-9]|6[0-3]) to traffic-class 7)"
)


# A line of the log, which a terminal shows between others: it begins as one, at the left edge, with its date
# or with `%LINEPROTO-5-UPDOWN:`. An event handler's `regex %LINEPROTO-5-UPDOWN: .*` is a line like any other.
_LOG = re.compile(
    r"([*.]?(\d{4} )?[A-Z][a-z]{2} +\d{1,2} (\d{4} )?\d\d:\d\d.*|\d{4}-\d\d-\d\dT.*|\d[\w:.]*: .*"
    r"|%\w+-\w+:\w+ )?%[A-Z]\w*(-\w+)?-[0-7]-[A-Z0-9_]+:|<\d{1,3}>1 \d{4}-\d\d-\d\dT"
    r"|Broadcast message from \S+@|Message from syslogd@|The system is going down for "
)


def paths(text: str) -> list[Path]:
    """Every line of a configuration with the lines it stands under, in order. Separators are dropped."""
    found: list[Path] = []
    stack: list[tuple[int, str]] = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith(("!", "#")) or line in ("end", "exit") or _LOG.match(raw):
            continue
        indent = len(raw) - len(raw.lstrip())
        while stack and stack[-1][0] >= indent:
            stack.pop()
        for one in _single(_spelled(" ".join(line.split()))):
            found.append((*(above for _, above in stack), one))
        stack.append((indent, _spelled(" ".join(line.split()))))
    return found


def _spelled(line: str) -> str:
    """One spelling of numbers: ranges in lists, and no zeros at the end of a decimal."""
    line = _LIST.sub(lambda m: _ranges(_numbers(m[0])) or m[0], line)
    return _DECIMAL.sub(lambda m: m[0].rstrip("0").rstrip("."), line)


def _numbers(text: str) -> list[int]:
    numbers: set[int] = set()
    for part in re.split(r"[ ,]+", text.strip()):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return sorted(numbers)


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _single(line: str) -> Iterable[str]:
    match = _DSCP_LIST.fullmatch(line)
    if not match:
        return [line]
    return [f"{match['head']} {number} {match['tail']}" for number in _numbers(match["list"])]


def compare(
    wanted: str, found: str, owned: list[str], everything: str = "", typed: Iterable[list[str]] = ()
) -> dict[str, Any]:
    """Compare two configurations.

    Args:
        wanted: what the switch must have.
        found: its running configuration.
        owned: regular expressions on `" / "`-joined paths. A line that one of them matches and that is not
            wanted is too much. Everything else on the switch is left alone.
        everything: the running configuration with the defaults that are hidden in `found`. What stands there
            is there; nothing in it is too much.
        typed: place, setting and value of what earlier runs typed: what of it is not wanted any more is too
            much, save on ports that are not ours now.

    Returns:
        differences (one line each, for people), changes (the table: port, setting, from, to, whose), commands
        (to type in configuration mode), `wanted`, `found` (the lines that concern us) and `running` (those of
        them that are not hidden).
    """
    want, have = paths(wanted), paths(found)
    there = {*have, *paths(everything)}
    below: dict[Path, list[Path]] = {}
    for path in have:
        below.setdefault(path[:-1], []).append(path)
    rivals = {path: [r for r in below.get(path[:-1], ()) if _rival(r, path)] for path in want}
    # A setting that is shown with another value as well is not as wanted, whichever of the two holds.
    twofold = {path for path in want if path in there and rivals[path]}
    missing = [path for path in want if path not in there or path in twofold]
    rivals = {path: rivals[path] for path in missing}
    earlier = {_path(one) for one in typed}
    sections = {path[0] for path in want}
    extra = [
        path
        for path in have
        if path not in set(want)
        and (
            any(re.search(o, _text(path)) for o in owned)
            or (
                path in earlier
                and (path[0] in sections or not _section(path))
                and not any(_rival(path, w) for w in want)
            )
        )
    ]
    # What holds one policy takes another only after the first is gone; other values are typed over.
    extra += [r for some in rivals.values() for r in some if r not in extra and r[-1].startswith(_ATTACHED)]
    # A section that goes takes its lines along; a line that is typed anew under a new value needs no "no".
    extra = [path for path in extra if path[:-1] not in set(extra)]
    used = _in_use(have, extra, {*want, *earlier})
    stays = [path for path in extra if path in used]
    extra = [path for path in extra if path not in used]
    replaced = {rival for some in rivals.values() for rival in some}
    ours = [path for path in have if path in set(want) or path in set(extra) or path in replaced]
    changes = [_change(path, rivals[path], have) for path in missing]
    changes += [_change(path, [path], have, gone=True) for path in extra if path not in replaced]
    # What somebody else makes use of is not the role's to change, whatever its name.
    for path, one in zip([*missing, *(p for p in extra if p not in replaced)], changes, strict=True):
        one["whose"] = "other" if path[:1] in used else one["whose"]
    return {
        "differences": [
            f"shows both: {_text(p)} and {', '.join(r[-1] for r in rivals[p])}"
            if p in twofold
            else f"lacks: {_text(p)}"
            for p in missing
        ]
        + [f"too much: {_text(p)}" for p in extra],
        "changes": changes,
        # Backwards: what refers to a policy goes before the policy.
        "commands": _commands([(*path[:-1], _undone(path[-1])) for path in reversed(extra)])
        + _commands(missing),
        "wanted": [_text(path) for path in want],
        "found": [_text(path) for path in [*ours, *(p for p in want if p in there and p not in set(have))]],
        "running": [_text(path) for path in ours],
        "stays": [_told_use(path, used) for path in stays],
    }


# How a line makes use of a policy, and how that policy's own line reads.
_USES = (
    (r"service-profile (?P<name>\S+)", "qos profile {name}"),
    (
        r"service-policy ((in|out)put )?type (?P<type>\S+) ((in|out)put )?(?P<name>\S+)",
        "policy-map type {type} {name}",
    ),
    (r"service-policy (?P<type>input|output) (?P<name>\S+)", "policy-map-{type} {name}"),
    (r"class (type \S+ )?(?P<name>\S+)", "class-map (.* )?{name}"),
    (r"dcb-map (?P<name>\S+)", "dcb-map {name}"),
    (r"trust-map dscp (?P<name>\S+)", "trust dscp-map {name}"),
    (r"qos-map traffic-class (?P<name>\S+)", "qos-map traffic-class {name}"),
    (r"service-queue \d+ qos-policy (?P<name>\S+)", "qos-policy-output {name}"),
    (r"wred \S+ (?P<name>\S+)", "wred-profile {name}"),
    (r"random-detect (?P<name>\S+)", "wred {name}"),
)
# What may make use of one in other words: no description, and no VRF or access list of the same name.
_MAY_USE = re.compile(
    r"(?!(description|name|remark|alias|hostname|banner|snmp-server) )"
    r".*\b(qos|polic\w+|profile|class|dcb|wred|queue|trust|random-detect)\b"
)


def _in_use(have: list[Path], gone: list[Path], ours: set[Path]) -> dict[Path, Path]:
    """The policies of ours of which somebody else's line makes use, by that line; and theirs in turn."""
    heads = [path for path in have if len(path) == 1 and _OURS.search(path[0])]
    going = set(gone)
    used: dict[Path, Path] = {}
    users = [p for p in have if p not in ours and not any(p[: n + 1] in going for n in range(len(p)))]
    while users:
        user = users.pop()
        for head in heads:
            if head not in used and user[:1] != head and _makes_use(user[-1], head[0]):
                used[head] = user
                users += [path for path in have if path[:1] == head != path]
    return used


def _makes_use(line: str, head: str) -> bool:
    """Whether a line names this policy: as is known, or in words that are not."""
    for how, policy in _USES:
        if match := re.fullmatch(how, line):
            words = {word: re.escape(text) for word, text in match.groupdict().items()}
            return bool(re.fullmatch(policy.format(**words), head))
    name = head.rpartition(" ")[2]
    return bool(_MAY_USE.match(line) and re.search(rf"(?<!\S){re.escape(name)}(?!\S)", line))


def _told_use(path: Path, used: dict[Path, Path]) -> str:
    """What stays, and for whom: a policy of ours by which another of ours stays is for the same."""
    user = used[path]
    while user[:1] in used:
        user = used[user[:1]]
    return f"{_text(path)} (in use: {masked(_text(user))})"


_ATTACHED = ("service-policy", "service-profile", "trust-map", "qos-map", "dcb-map")


def _rival(found: Path, wanted: Path) -> bool:
    """Whether a line says something else of the same setting."""
    mine, theirs = (_SETTING.match(path[-1]) for path in (wanted, found))
    return bool(found != wanted and found[:-1] == wanted[:-1] and mine and theirs and mine[0] == theirs[0])


def _change(path: Path, was: list[Path], have: list[Path], *, gone: bool = False) -> Change:
    setting = _SETTING.match(path[-1])
    name = setting[0] if setting else path[-1]
    section = path[0].removeprefix("interface ") if path[0].startswith("interface ") else ""
    return {
        "port": section,
        "setting": name,
        "where": _text(path[:-1]),
        "from": ", ".join(one[-1] for one in was) or "absent",
        "to": "absent" if gone else path[-1],
        "whose": _whose(was, have),
    }


def _whose(was: list[Path], have: list[Path]) -> str:
    """The role's by its names, nobody's (absent), the system's own value, or somebody else's.

    A port that carries something of the role's is the role's; so are global values once it has run.
    """
    if not was:
        return "nobody"
    if all(_OURS.search(_text(path)) for path in was):
        return "role"
    named = [path for path in have if _OURS.search(_text(path))]
    if all(any(len(path) == 1 or path[0] == other[0] for other in named) for path in was) and not any(
        path[-1].startswith(_ATTACHED) for path in was
    ):
        return "role"
    return "system" if all(_SYSTEM.fullmatch(path[-1]) for path in was) else "other"


def unsaved(running: str, startup: str) -> list[str]:
    """Lines that are running and not saved, or saved and not running: somebody's unsaved work."""
    one, other = paths(running), paths(startup)
    return [masked(_text(path)) for path in one if path not in set(other)] + [
        f"no {masked(_text(path))}" for path in other if path not in set(one)
    ]


def unkept(running: str, startup: str, wanted: str, owned: list[str]) -> list[str]:
    """Lines of this role's that run and were not saved, or are gone and still saved."""
    ours = set(paths(wanted))
    one, other = paths(running), paths(startup)
    gone = [path for path in other if path not in set(one) and any(re.search(o, _text(path)) for o in owned)]
    lost = [path for path in one if path in ours and path not in set(other)]
    return [_text(path) for path in lost] + [f"no {_text(path)}" for path in gone]


def undo(before: str, now: str, wanted: str, owned: list[str], stored: str = "") -> dict[str, list[str]]:
    """What takes this role's lines back out, one by one, and what others changed meanwhile.

    Args:
        before: the configuration before the first line was typed.
        now: the configuration as it stands.
        wanted: what was typed.
        owned: as in `compare`.
        stored: what the switch made of the typed lines, read before anybody else could reach them.

    Returns:
        commands (empty: nothing of ours stands) and left: lines that are neither the old ones nor ours.
    """
    old, new, want = (paths(_TRIAL.sub("", text)) for text in (before, now, wanted))
    had, has = set(old), set(new)
    # A value that the switch stored otherwise, with ours nowhere: the typed line all the same.
    there = set(paths(stored)) - had
    changed = {p for p in there if any(w not in there and _rival(p, w) for w in want)}
    ours = {*want, *changed}
    replaced = {p for p in old if any(_rival(p, path) for path in ours)}
    replaced |= {p for p in old if p not in ours and any(re.search(o, _text(p)) for o in owned)}
    added = [path for path in new if path not in had]
    gone = [path for path in old if path not in has]
    others = [path for path in added if path not in ours]
    # A section is ours to take away while nothing of anybody else stands in it; a port never is.
    takes = [p for p in added if p in ours and not any(o[: len(p)] == p for o in others)]
    takes = [p for p in takes if len(p) > 1 or not p[0].startswith("interface ")]
    takes = [path for path in takes if path[:-1] not in set(takes)]
    used = _in_use(new, takes, ours)
    held_up = [_told_use(path, used) for path in takes if path in used]
    takes = [path for path in takes if path not in used]
    back = [p for p in gone if any(p[: n + 1] in replaced for n in range(len(p)))]
    held = [p for p in back if any(_rival(o, p) for o in others)]
    left = [*others, *(path for path in gone if path not in set(back))]
    told = [p for p in left if p[:-1] not in set(left)]
    return {
        "commands": _commands([(*path[:-1], _undone(path[-1])) for path in reversed(takes)])
        + _commands([path for path in back if path not in held]),
        "left": [("" if path in has else "no ") + masked(_text(path)) for path in told] + held_up,
    }


# The trial itself stands in NX-OS's running configuration.
_TRIAL = re.compile(
    r"(?ms)^scheduler job name shakedown-undo\s*?\n.*?(?:^end-job\s*?\n|(?=^scheduler ))"
    r"|^scheduler schedule name shakedown-undo\s*?\n(?:[ \t]+[^\n]*\n)*|^feature scheduler\s*?\n"
)
# What a switch has beside the rules for any text (shakedown.run.secret_kinds): words for a secret, a
# type before one (`7 0822455D0A16`), a trap's community. And who a URL logs in as.
_WORDS = (
    r"(?i)((?<![a-z])(passw(?:or)?d|passphrase|passkey|secret|credentials?|community|token|psk|(?:api|ssh)?key"
    r"|(?:bind|root)-?pw)(-[\w-]*string|-map|-name)?|\b(md5|message-digest|sha(-?\d+)?|auth|priv|ssh-(rsa|ed25519)"
    r"|authentication text|authentication-type simple|snmp-server host \S+"
    r"|[5-9](?= (?=\S*[^\W\d])(?=\S*\d)\S{6})))"
)
_SECRET = re.compile(
    _WORDS + r"(?=[ =,:\"']+\S)(?! (permit|expired|required|is|was)\b).*|(?<=://)[^@/ ]+(?=@)"
)
_NAMED, _QUOTED = re.compile(_WORDS), re.compile(r"""(['"])[^'"\s:,{}[\]]+\1(?!\s*:)""")


# What may not be a secret, whatever stands before it: words, names in capitals, ports, numbers, addresses.
_PLAIN = re.compile(
    r"[a-z]*(-[a-z0-9]+)*|[A-Z]?[a-z]+|[A-Z0-9]{1,5}|[A-Z]+([-_][A-Z0-9]+)*|\W*"
    r"|([A-Z]?[a-z]+|[A-Z]{1,4}|[A-Za-z]*(GigE|Ethernet|Channel|Serial))[-_]?\d{1,5}([/.:]\d+)*"
    r"|[a-z]*([A-Z][a-z]+)?(GigE|Ethernet)|\d[\d./:,-]*[a-z%]{0,4}|[0-9a-fA-F:]*:[0-9a-fA-F:.]*(/\d+)?"
)


def masked(line: str) -> str:
    """A line that may be shown: what follows a word for a secret is not, and no word that may be one."""
    words = _keyless(line).split(" ")
    return " ".join(word if _PLAIN.fullmatch(word.strip("\"'(),;:.*")) else "***" for word in words)


def _keyless(line: str) -> str:
    """What was said, by the rules for any text, and without what follows a word for a secret."""
    from shakedown.run.redact import redact  # here, because every fork of Ansible loads all filters
    from shakedown.run.secret_kinds import MASK

    line = redact(line).replace(MASK, "***")
    if named := _NAMED.search(line):  # an error quotes a value before it says of what
        line = _QUOTED.sub(r"\1***\1", line[: named.start()]) + line[named.start() :]
    return _SECRET.sub(lambda m: f"{m[1] or ''} ***".strip(), line)


def told(result: dict[str, Any], otherwise: str) -> str:
    """What a failed task says that may be shown: of many lines, as of a configuration, those of an error."""
    failed = [
        one for one in result.get("results") or [] if one.get("failed")
    ]  # of a loop, the one that failed
    result = failed[-1] if failed else result
    text = f"{result.get('msg') or otherwise} {result.get('stderr') or ''}"
    lines = [_keyless(line.strip()) for line in text.splitlines() if line.strip()]
    if len(lines) > 5:
        lines = [line for line in lines if _WENT_WRONG.search(line)][:3] or lines[:2]
    return "\n".join(lines)[:4000]


_WENT_WRONG = re.compile(r"(?i)^\W*%|error|invalid|refused|time")
# What a job of NX-OS's scheduler holds that goes back on a configuration.
_GOES_BACK = re.compile(r"(?m)^\s*(rollback |reload\b|configure replace |copy \S+ (running|startup)-config)")


def pending(nos: str, told: dict[str, str], controller: str) -> dict[str, Any]:
    """The trials that a switch still runs, by name: whose they are, by their names, and what is left over.

    Args:
        nos: eos or nxos.
        told: what the switch printed: sessions (EOS, JSON); running, checkpoints and schedules (NX-OS).
        controller: this machine, which the trials of its runs are named after.

    Returns:
        own (the session or checkpoint of this machine's trial, or ""), strangers (one line each; also a run
        elsewhere that has no timer yet) and litter (the commands that take away what an ended run left).
    """
    if nos == "eos":
        sessions = _json(told["sessions"]).get("sessions", {})
        timed = {name: one for name, one in sessions.items() if one["state"] == "pendingCommitTimer"}
        users = {
            name: ", ".join(sorted({who.get("user", "") for who in one.get("instances", {}).values()} - {""}))
            for name, one in timed.items()
        }
        names = {name: name for name in timed}
        bare = [n for n, one in sessions.items() if one["state"] == "pending" and n.startswith("shakedown-")]
        away = "configure session {} abort"
    else:
        jobs = dict(
            re.findall(
                r"(?ms)^scheduler job name (\S+)\s*?\n(.*?)(?=^end-job|^scheduler |\Z)", told["running"]
            )
        )
        schedules = re.findall(r"(?m)^scheduler schedule name (\S+)\s*\n((?:[ \t]+.*\n?)*)", told["running"])
        names, users = (
            {},
            dict(re.findall(r"(?s)Schedule Name\s*: (\S+).*?User Name\s*: (\S+)", told["schedules"])),
        )
        for schedule, body in schedules:
            for job in re.findall(r"job name (\S+)", body):
                if _GOES_BACK.search(jobs.get(job, "")):
                    checkpoint = re.search(r"checkpoint (\S+)", jobs[job])
                    names[schedule] = checkpoint[1] if checkpoint else schedule
        kept = re.findall(r"(?m)^\s*\d+\) (shakedown-\S+?):", told["checkpoints"])
        bare = [name for name in kept if name not in names.values()]
        away = "no checkpoint {}"
    ours = re.compile(rf"shakedown-\d+-{re.escape(controller)}(-undo)?")
    own = [name for name in names.values() if ours.fullmatch(name)]
    return {
        "own": own[0] if own else "",
        "strangers": [
            f"{name if name.startswith('shakedown-') else one} of {users.get(one) or 'an unknown user'}"
            for one, name in names.items()
            if name not in own
        ]
        + [
            f"{name}, begun or left by another run ({away.format(name)})"
            for name in bare
            if not ours.fullmatch(name)
        ],
        "litter": [away.format(name) for name in bare if ours.fullmatch(name)],
    }


def _json(printed: str) -> dict[str, Any]:
    """A JSON object that a terminal showed, with lines of the log between."""
    lines = [line for line in printed.splitlines() if not _LOG.match(line)]
    found: dict[str, Any] = json.loads("\n".join(lines) or "{}")
    return found


def original(before: str, wanted: str, owned: list[str]) -> dict[str, list[Path]]:
    """The lines that a change may touch, as they stood before it: by interface, and all others under ""."""
    old, want = paths(before), paths(wanted)
    touched = [
        p
        for p in old
        if p in want or any(re.search(o, _text(p)) for o in owned) or any(_rival(p, w) for w in want)
    ]
    kept = [p for p in old if any(t[: len(p)] == p for t in touched)]
    return {
        name: [p for p in kept if _section(p) == name] for name in sorted({"", *(_section(p) for p in want)})
    }


def back(
    kept: dict[str, list[list[str]]], wanted: str, owned: list[str], typed: list[list[str]]
) -> dict[str, Any]:
    """The way back: `wanted` and `owned` of a comparison in which the role's own lines are too much.

    Args:
        kept: as of `original`.
        wanted: what this role would type now.
        owned: as in `compare`.
        typed: place, setting and value of what its runs typed, maybe for another intent and other ports.
    """
    lines = [tuple(path) for section in kept.values() for path in section]
    every = dict.fromkeys([*paths(wanted), *map(_path, typed)])
    ours = [p for p in every if _section(p) in kept and not (len(p) == 1 and _section(p))]
    known = "|".join(re.escape(name) for name in kept if name) or "$^"
    return {
        "wanted": "".join("   " * (len(path) - 1) + path[-1] + "\n" for path in lines),
        # Nothing goes from an interface that was not kept.
        "owned": [f"^(?=(?!interface )|(?:{known}) /)(?:{one.removeprefix('^')})" for one in owned]
        + [f"^{re.escape(_text(path))}$" for path in ours],
    }


def _path(typed: list[str]) -> Path:
    """A line by its place, setting and text."""
    return (*(typed[0].split(" / ") if typed[0] else ()), typed[2])


def _section(path: Path) -> str:
    return path[0] if path[0].startswith("interface ") else ""


_LEAST_FREE_BYTES = 4 << 20  # a checkpoint and two configurations of the largest switch, several times
_CHECKPOINTS = 10  # of a user (Nexus 9000 system management guide, Configuring Rollback)


def undoable(nos: str, told: dict[str, str], timeout_s: int) -> list[str]:
    """Why the switch's way back would not run; empty if it would.

    Args:
        nos: eos, nxos, os9 or os10.
        told: what the switch printed: privilege (NX-OS: show user-account), space (dir), and as in `pending`.
        timeout_s: after how many seconds an unconfirmed change is undone.
    """
    reasons = []
    if nos == "nxos":
        roles = re.findall(r"(?m)^\s*roles:\s*(.*)$", told["privilege"])
        if not any(re.search(r"\b(network|vdc)-admin\b", one) for one in roles):
            has = f"roles {roles[0].strip()}" if roles else "no role that the switch tells"
            reasons.append(
                f"this user has {has}; a scheduled rollback runs as this user, and needs network-admin"
            )
        remote = re.search(r"(?m)^aaa authentication login default group (?!local\b)(.*)$", told["running"])
        if remote and not re.search(r"(?m)^scheduler aaa-authentication\b", told["running"]):
            reasons.append(
                f"logins are checked by {remote[1].strip()}, and a scheduled rollback then runs only after "
                "`scheduler aaa-authentication username USER password`: type and save that first"
            )
        kept = re.findall(r"(?m)^\s*\d+\) (?!system-|shakedown-)(\S+?):", told["checkpoints"])
        if len(kept) >= _CHECKPOINTS:
            reasons.append(f"all {_CHECKPOINTS} checkpoints are taken: free one (`no checkpoint {kept[0]}`)")
        if timeout_s < 60:
            reasons.append(f"its timer counts minutes, and roce_switch_confirm_timeout_s is {timeout_s}")
    else:
        level = re.search(r"(?i)privilege level(?: is|:) *(-?\d+)", told["privilege"])
        if not level or int(level[1]) < 15:
            has = f"privilege {level[1]}" if level else "no privilege that the switch tells"
            reasons.append(f"this user has {has}; undoing needs 15: log in with it, or set ansible_become")
    if nos == "eos":
        state = _json(told["sessions"])
        held = [
            name
            for name, one in state.get("sessions", {}).items()
            if one["state"].startswith("pending") and not name.startswith("shakedown-")
        ]
        limit = int(state.get("maxOpenSessions", len(held) + 1))
        if len(held) >= limit:
            reasons.append(f"all {limit} configuration sessions are open ({', '.join(held)}): end one first")
        if state.get("saveToStartupConfigOnCommit"):
            reasons.append(
                "a commit saves at once (service configuration session commit save startup-config): a "
                "restart on trial would start with the new configuration: take that line away first"
            )
    free = re.search(r"(\d[\d,]*) bytes free", told["space"])
    if free and int(free[1].replace(",", "")) < _LEAST_FREE_BYTES:
        reasons.append(f"{free[1]} bytes are free on its flash; undoing and saving need {_LEAST_FREE_BYTES}")
    return reasons


def _undone(line: str) -> str:
    """What takes a line away. `no` before a line that says no is no command; EOS has `default` for it."""
    return f"default {line.removeprefix('no ')}" if line.startswith("no ") else f"no {line}"


def _text(path: Path) -> str:
    return " / ".join(path)


def _commands(lines: list[Path]) -> list[str]:
    """Type each line where it belongs, leaving every section by `exit`: not every CLI climbs by itself."""
    commands: list[str] = []
    here: Path = ()
    for path in lines:
        above = path[:-1]
        common = 0
        while common < min(len(here), len(above)) and here[common] == above[common]:
            common += 1
        commands += ["exit"] * (len(here) - common)
        commands += above[common:]
        commands.append(path[-1])
        here = above
        # The line may itself open a section: then the next lines stand below it.
        if any(other[: len(path)] == path and len(other) > len(path) for other in lines):
            here = path
    return commands + ["exit"] * len(here)


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "roce_switch_cli_compare": compare,
            "roce_switch_cli_unsaved": unsaved,
            "roce_switch_cli_undo": undo,
            "roce_switch_cli_original": original,
            "roce_switch_cli_back": back,
            "roce_switch_cli_undoable": undoable,
            "roce_switch_told": told,
            "roce_switch_cli_unkept": unkept,
            "roce_switch_cli_pending": pending,
        }

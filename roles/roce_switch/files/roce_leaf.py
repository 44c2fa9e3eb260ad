#!/usr/bin/env python3
"""RoCE on a switch that is a Linux bridge: DSCP classes, queues, ECN marking and MTU, by iproute2's ``tc``.

::

    roce-leaf check   < intent.json    print what is, what should be and the difference; 0 same, 1 different
    roce-leaf apply   < intent.json    checkpoint, change, read back, then keep it or restore the checkpoint
    roce-leaf apply --saved            the same with the last intent that was read back (used at boot)
    roce-leaf reseat swp1              rebuild the port's queues, below a planted fault if there is one
    roce-leaf counters swp1 swp2 ...   print the raw output of every counter command, as JSON

Ingress: ``clsact`` filters map DSCP to a traffic class (the packet's priority) and count. Egress: ``ets`` has
one queue for CNPs, one for RoCE (``red`` with ECN; it never drops early) and one for the rest. RoCE that
arrives with any other DSCP is counted and left alone. The kernel's software bridge has no PFC: the result
says so in ``not_done``.

Standard library only, because it runs on the switch; the role puts the intent's validator into it. Exit
status: 0 done, 1 differs or failed (the old configuration is back), 2 refused before the first change, or
failed and not restored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

State = dict[str, Any]  # one port: {"mtu", "queues", "classes"}

SAVED = Path(os.environ.get("ROCE_LEAF_STATE", "/var/lib/roce-leaf/intent.json"))
PROGRAM = Path(os.environ.get("ROCE_LEAF_PROGRAM", "/usr/local/sbin/roce-leaf"))
UNITS = Path(os.environ.get("ROCE_LEAF_UNITS", "/etc/systemd/system"))
UNIT = f"""[Unit]
Description=DSCP classes, queues and ECN on the fabric ports
After=network-pre.target
Wants=network-pre.target

[Service]
Type=oneshot
ExecStart={PROGRAM} apply --saved
RemainAfterExit=yes

[Install]
WantedBy=multi-user.target
"""
UNIT_FILE = UNITS / "roce-leaf.service"
UNIT_LINK = UNITS / "multi-user.target.wants" / "roce-leaf.service"
PORT = re.compile(r"^[A-Za-z][A-Za-z0-9_.-]{0,14}$")  # IFNAMSIZ is 16, with the terminating zero
ROCE_UDP_PORT = 4791  # RoCEv2, IBTA Annex A17
AVERAGE_PACKET_BYTES = 1000  # tc-red(8)
LOSSLESS_BYTES = 16 << 20
QUEUE_PACKETS = 1000  # the queues that are not RoCE's
FAULT_HANDLE = "fa17:"  # the root under which the lab plants loss, delay and rate
DEFAULT_ROOTS = {"noqueue", "pfifo_fast", "fq_codel", "mq", "pfifo", "noop"}


class Refused(Exception):  # noqa: N818  (it names what happened to the request)
    """The request cannot be carried out; nothing was changed."""


class Failed(Exception):  # noqa: N818
    """A command was refused by the kernel, or the read-back differs."""


def run(*argv: str, stdin: str | None = None) -> str:
    """Run a command and return its standard output; raise Failed with its error text."""
    try:
        done = subprocess.run(argv, check=False, input=stdin, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{' '.join(argv)}: {error}") from error
    if done.returncode:
        raise Failed(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


# -- intent -> wanted state ------------------------------------------------------------------------


def _rules() -> Any:  # noqa: ANN401  (a module)
    """The one validator of the intent. Here, because counting is asked of the bare file, which has none."""
    # A switch has no such package: the role puts the file itself here (filter roce_switch_leaf_program).
    from shakedown.intent import rules

    return rules


def wanted(intent: dict[str, Any]) -> dict[str, State]:
    """The state every port must have. Pure. Raises Refused for an intent that breaks its rules."""
    if problems := _rules().roce_problems(intent["roce"]):
        raise Refused("; ".join(map(str, problems)))
    roce, cnp, ecn = intent["roce"], intent["roce"]["cnp"], intent["roce"]["ecn"]
    mtu = int(intent["mtu_bytes"])
    strict = 1 if cnp.get("scheduler", "strict") == "strict" else 0
    band = {cnp["traffic_class"]: 0, roce["traffic_class"]: 1}
    queues = {
        "bands": 3,
        "strict": strict,
        "quanta": [mtu] * (3 - strict),  # equal shares for what is not strict
        "priomap": [band.get(priority, 2) for priority in range(16)],
        "cnp": {"kind": "pfifo", "limit": QUEUE_PACKETS},
        "roce": {
            "kind": "red",
            # Room beyond the last mark. There is no PFC to stop the sender, so a deep queue must keep what a
            # lossless switch would make it hold back.
            "limit": max(4 * ecn["max_bytes"], LOSSLESS_BYTES),
            "min": ecn["min_bytes"],
            "max": ecn["max_bytes"],
            "probability": round(ecn["mark_percent"] / 100, 4),
            "ecn": True,
            "nodrop": True,
        },
        "other": {"kind": "pfifo", "limit": QUEUE_PACKETS},
    }
    classes = []
    for number, protocol in enumerate(("ip", "ipv6")):
        for pref, name, one in ((10, "roce", roce), (20, "cnp", cnp)):
            classes.append(
                {
                    "pref": pref + number,
                    "protocol": protocol,
                    "class": name,
                    "dscp": one["dscp"],
                    "traffic_class": one["traffic_class"],
                }
            )
        classes.append({"pref": 30 + number, "protocol": protocol, "class": "misclassified"})
    classes.sort(key=lambda c: c["pref"])
    return {port: {"mtu": mtu, "queues": queues, "classes": classes} for port in intent["ports"]}


def not_done(intent: dict[str, Any]) -> list[str]:
    """What of the intent this platform cannot do. Never empty where the intent asks for PFC."""
    pfc = intent["roce"].get("pfc", {}).get("enabled")
    return ["PFC and its watchdog: a Linux bridge neither sends nor obeys pause frames"] if pfc else []


# -- the kernel -> state ---------------------------------------------------------------------------


def read(ports: Iterable[str]) -> dict[str, State]:
    """The state of each port as the kernel holds it, in the form of :func:`wanted`."""
    links = {link["ifname"]: link for link in json.loads(run("ip", "-j", "link", "show"))}
    qdiscs: dict[str, list[State]] = {}
    for qdisc in json.loads(run("tc", "-d", "-j", "qdisc", "show")):
        qdiscs.setdefault(qdisc["dev"], []).append(qdisc)
    found = {}
    for port in ports:
        mine = qdiscs.get(port, [])
        has_clsact = any(q["kind"] == "clsact" for q in mine)
        filters = json.loads(run("tc", "-j", "filter", "show", "dev", port, "ingress")) if has_clsact else []
        found[port] = {
            "mtu": links[port]["mtu"],
            "queues": queues_of(mine),
            "classes": [class_of(f) for f in filters if "options" in f] if has_clsact else None,
        }
    return found


def queues_of(qdiscs: list[State]) -> State | None:
    """The egress queues: None for the kernel's default, {"foreign": ...} for a tree that is not ours."""
    egress = [q for q in qdiscs if q["kind"] not in ("clsact", "ingress")]
    roots = [q for q in egress if q.get("root")]
    if all(q["handle"] == "0:" and q["kind"] in DEFAULT_ROOTS for q in roots):
        return None
    root, leaves = roots[0], {q["handle"]: q for q in egress if not q.get("root")}
    below = {}
    if root["handle"] == FAULT_HANDLE:
        # The lab's fault injection: its own root, and our tree (if any) below it.
        below = {"foreign": f"{root['kind']} {root['handle']} (a planted fault)"}
        root = leaves.pop("1:", root)
    names = {"10:": "cnp", "20:": "roce", "30:": "other"}
    if root["kind"] != "ets" or root["handle"] != "1:" or set(leaves) - set(names):
        odd = [root] if root["kind"] != "ets" else [q for h, q in leaves.items() if h not in names] or [root]
        return below or {"foreign": ", ".join(f"{q['kind']} {q['handle']}" for q in odd)}
    queues = {**below, **{key: root["options"][key] for key in ("bands", "strict", "quanta", "priomap")}}
    for handle, leaf in leaves.items():
        keep = {k: v for k, v in leaf.get("options", {}).items() if k in RED_FIELDS or k == "limit"}
        if "probability" in keep:
            keep["probability"] = round(keep["probability"], 4)
        if leaf["kind"] != "red":
            keep = {"limit": keep.get("limit")}
        queues[names[handle]] = {"kind": leaf["kind"], **keep}
    return queues


RED_FIELDS = ("limit", "min", "max", "probability", "ecn", "nodrop")


def class_of(rule: State) -> State:
    """One ingress filter, in the form of :func:`wanted`; anything else comes back as found."""
    options = rule["options"]
    keys, actions = options.get("keys", {}), options.get("actions", [])
    action = actions[0] if len(actions) == 1 else {}
    passes = action.get("control_action", {}).get("type") == "pass"
    here = {"pref": rule["pref"], "protocol": rule["protocol"]}
    if passes and action.get("kind") == "skbedit" and keys.get("ip_tos_mask") == "fc":
        rest = set(keys) - {"eth_type", "ip_tos", "ip_tos_mask"}
        if not rest:
            name = "roce" if rule["pref"] < 20 else "cnp"
            minor = action["priority"].rpartition(":")[2]
            tc = 0 if minor == "none" else int(minor, 16)  # tc prints class 0 as "none"
            return {**here, "class": name, "dscp": _number(keys["ip_tos"]) >> 2, "traffic_class": tc}
    ours = {"ip_proto": "udp", "dst_port": ROCE_UDP_PORT}
    if passes and action.get("kind") == "gact" and {k: keys.get(k) for k in ours} == ours and len(keys) == 3:
        return {**here, "class": "misclassified"}
    return {**here, "foreign": {"keys": keys, "actions": [a.get("kind") for a in actions]}}


def _number(value: int | str) -> int:
    # tc prints ip_tos as a number or as hexadecimal text, depending on its version.
    return value if isinstance(value, int) else int(value, 16)


# RED's bandwidth only ages its average over idle time; tc takes it as bytes/s in 32 bits.
TC_RATE_LIMIT_GBPS = 34

# -- state -> the kernel ---------------------------------------------------------------------------


def write(port: str, have: State, want: State, bandwidth_gbps: float) -> None:
    """Bring one port from `have` to `want`, touching only the parts that differ."""
    if have["mtu"] != want["mtu"]:
        run("ip", "link", "set", "dev", port, "mtu", str(want["mtu"]))
    lines = []
    if have["queues"] != want["queues"]:
        if have["queues"] is not None:
            lines.append(f"qdisc del dev {port} root")
        if want["queues"] is not None:
            lines += queue_lines(port, want["queues"], bandwidth_gbps)
    if have["classes"] != want["classes"]:
        if have["classes"] is None:
            lines.append(f"qdisc add dev {port} clsact")
        else:
            lines.append(f"filter del dev {port} ingress")
        if want["classes"] is None:
            lines.append(f"qdisc del dev {port} clsact")
        else:
            lines += [class_line(port, one) for one in want["classes"]]
    if lines:
        run("tc", "-batch", "-", stdin="\n".join(lines) + "\n")


def queue_lines(port: str, queues: State, bandwidth_gbps: float, seat: str = "root") -> list[str]:
    """The ``tc`` commands that build the egress tree."""
    quanta, priomap = (" ".join(map(str, queues[key])) for key in ("quanta", "priomap"))
    strict = f"strict {queues['strict']} " if queues["strict"] else ""
    lines = [
        f"qdisc add dev {port} {seat} handle 1: ets bands {queues['bands']} {strict}"
        f"quanta {quanta} priomap {priomap}"
    ]
    for minor, name in ((1, "cnp"), (2, "roce"), (3, "other")):
        leaf = queues.get(name)
        if leaf is None:
            continue
        options = f"limit {leaf['limit']}"
        if leaf["kind"] == "red":
            # tc-red(8): burst = (2 min + max) / (3 avpkt)
            burst = math.ceil((2 * leaf["min"] + leaf["max"]) / (3 * AVERAGE_PACKET_BYTES)) + 1
            flags = " ".join(flag for flag in ("ecn", "nodrop") if leaf[flag])
            options += (
                f" min {leaf['min']} max {leaf['max']} avpkt {AVERAGE_PACKET_BYTES} burst {burst}"
                f" bandwidth {min(bandwidth_gbps, TC_RATE_LIMIT_GBPS)}gbit"
                f" probability {leaf['probability']} {flags}"
            )
        lines.append(f"qdisc add dev {port} parent 1:{minor} handle {minor}0: {leaf['kind']} {options}")
    return lines


def class_line(port: str, one: State) -> str:
    """The ``tc`` command of one ingress filter."""
    head = f"filter add dev {port} ingress protocol {one['protocol']} pref {one['pref']} handle 1 flower"
    if one["class"] == "misclassified":
        return f"{head} ip_proto udp dst_port {ROCE_UDP_PORT} action pass"
    return f"{head} ip_tos {one['dscp'] << 2:#x}/0xfc action skbedit priority {one['traffic_class']:x} pass"


# -- the commands ----------------------------------------------------------------------------------


def refuse_wrong_ports(intent: dict[str, Any]) -> None:
    """Refuse ports that do not exist, or that carry management: an address, a route, or a protected name."""
    ports = intent["ports"]
    if not ports or len(set(ports)) != len(ports):
        raise Refused("ports must name at least one port, each once")
    links = {link["ifname"]: link for link in json.loads(run("ip", "-j", "address", "show"))}
    routed = {route.get("dev") for route in json.loads(run("ip", "-j", "route", "show", "default"))}
    for port in ports:
        if not PORT.match(port) or port not in links:
            raise Refused(f"{port!r} is no port of this switch; it has {', '.join(sorted(links))}")
        held = [a["local"] for a in links[port].get("addr_info", []) if a.get("scope") == "global"]
        if port in intent.get("protected", ()) or port in routed or held:
            raise Refused(f"{port} carries management ({', '.join(held) or 'named so'}); it is never touched")


def differences(found: dict[str, State], want: dict[str, State]) -> list[str]:
    """One line for each part of each port that is not as wanted."""
    return [
        f"{port} {part}: {change(found[port][part], want[port][part])}"
        for port in want
        for part in want[port]
        if found[port][part] != want[port][part]
    ]


def change(found: object, want: object, path: str = "") -> str:
    """Only what differs, in words: `roce.ecn false -> true`."""
    if isinstance(found, dict) and isinstance(want, dict):
        keys = [k for k in {**want, **found} if found.get(k) != want.get(k)]
        return ", ".join(change(found.get(k), want.get(k), f"{path}.{k}".lstrip(".")) for k in keys)
    if isinstance(found, list) and isinstance(want, list):
        found, want = [x for x in found if x not in want], [x for x in want if x not in found]
    return f"{path} {json.dumps(found)} -> {json.dumps(want)}".lstrip()


def boot_differences(intent: dict[str, Any]) -> list[str]:
    """One line for each thing that the next boot would do otherwise: program, unit and saved intent."""
    lines = []
    if _digest(PROGRAM) != intent["program_sha256"]:
        lines.append(f"{PROGRAM}: not this program")
    if not UNIT_FILE.is_file() or UNIT_FILE.read_text() != UNIT or not UNIT_LINK.is_symlink():
        lines.append(f"{UNIT_FILE}: not enabled")
    if not SAVED.is_file() or SAVED.read_text() != _text(intent):
        lines.append(f"{SAVED}: not this intent")
    return lines


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _text(intent: dict[str, Any]) -> str:
    return json.dumps(intent, indent=1, sort_keys=True) + "\n"


def foreign(found: dict[str, State]) -> list[str]:
    """Parts that this program did not make and could not restore."""
    odd = []
    for port, state in found.items():
        if "foreign" in (state["queues"] or {}):
            odd.append(f"{port} has the queueing discipline {state['queues']['foreign']}")
        classes = state["classes"] or ()
        odd += [f"{port} has a filter with pref {one['pref']}" for one in classes if "foreign" in one]
    return odd


def check(intent: dict[str, Any]) -> State:
    """What is, what should be, and the difference."""
    want = wanted(intent)
    refuse_wrong_ports(intent)
    found = read(want)
    return {
        "differences": differences(found, want) + boot_differences(intent),
        "refusals": [f"{odd}: not ours to replace, remove it first" for odd in foreign(found)],
        "found": found,
        "wanted": want,
        "not_done": not_done(intent),
    }


def apply(intent: dict[str, Any]) -> State:
    """Change what differs; on any failure restore every port and raise Failed."""
    report = check(intent)
    before, want = report["found"], report["wanted"]
    if report["refusals"]:
        raise Refused("; ".join(report["refusals"]))
    report["changed"] = bool(report["differences"])
    try:
        for port in want:
            write(port, before[port], want[port], float(intent["link_speed_gbps"]))
        left = differences(read(want), want)
        if left:
            raise Failed("read-back differs: " + "; ".join(left))
    except Failed as error:
        restore(before, float(intent["link_speed_gbps"]))
        raise Failed(f"{error}; the old configuration is back") from error
    save(intent)
    return report


def restore(before: dict[str, State], bandwidth_gbps: float) -> None:
    """Put every port back as it was; raises Refused (exit status 2) if that cannot be confirmed."""
    wrong = []
    for port, old in before.items():
        try:
            write(port, read([port])[port], old, bandwidth_gbps)
        except Failed as error:
            wrong.append(str(error))
    left = wrong + differences(read(before), before)
    if left:
        raise Refused("NOT RESTORED, look at the switch: " + "; ".join(left))


def save(intent: dict[str, Any]) -> None:
    """Keep the confirmed intent for the next boot; each file is written aside and renamed: whole or old."""
    if _digest(PROGRAM) != intent["program_sha256"]:
        raise Failed(f"{PROGRAM} is not this program; the ports are configured, the next boot is not")
    SAVED.parent.mkdir(parents=True, exist_ok=True)
    for path, text in ((SAVED, _text(intent)), (UNIT_FILE, UNIT)):
        if path.is_file() and path.read_text() == text:
            continue
        aside = path.with_suffix(".new")
        with aside.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    if not UNIT_LINK.is_symlink():
        UNIT_LINK.parent.mkdir(exist_ok=True)
        UNIT_LINK.symlink_to(UNIT_FILE)


def reseat(intent: dict[str, Any], ports: list[str]) -> State:
    """Rebuild the queues of ports whose root a planted fault took or gave back; counters start at zero.

    Only the lab's fault injection calls this: a fault that silently removed the queues would show two
    faults where one was planted.
    """
    if not ports or set(ports) - set(intent["ports"]):
        raise Refused(f"reseat wants ports of the intent: {', '.join(intent['ports'])}")
    for port in ports:
        shown = json.loads(run("tc", "-j", "qdisc", "show", "dev", port))
        root = next((one["handle"] for one in shown if one.get("root")), "0:")  # none: as the kernel's own
        planted = root == FAULT_HANDLE
        seat = f"parent {FAULT_HANDLE}1" if planted else "root"
        lines = queue_lines(port, wanted(intent)[port]["queues"], float(intent["link_speed_gbps"]), seat)
        if not planted and root != "0:":
            lines.insert(0, f"qdisc del dev {port} root")
        run("tc", "-batch", "-", stdin="\n".join(lines) + "\n")
    return {"found": read(ports)}


def counters(ports: list[str]) -> State:
    """The raw output of every command that shows counters or neighbours, by label."""
    commands = {
        "links": ["ip", "-s", "-s", "-j", "link", "show"],
        "qdiscs": ["tc", "-s", "-j", "qdisc", "show"],
    }
    for port in ports:
        if not PORT.match(port):
            raise Refused(f"{port!r} is no port name")
        commands[f"filters {port}"] = ["tc", "-s", "-j", "filter", "show", "dev", port, "ingress"]
    outputs = {label: {"command": " ".join(argv), "stdout": run(*argv)} for label, argv in commands.items()}
    with contextlib.suppress(Failed):  # without an LLDP daemon the reading says nothing of neighbours
        argv = ["lldpcli", "-f", "json0", "show", "neighbors"]
        outputs["neighbours"] = {"command": " ".join(argv), "stdout": run(*argv)}
    return outputs


def main(argv: list[str]) -> int:
    """Run one command; the result, or the reason for refusing, is one JSON object on standard output."""
    try:
        if argv[:1] == ["counters"]:
            print(json.dumps({"outputs": counters(argv[1:])}))
            return 0
        if argv[:1] == ["reseat"]:
            print(json.dumps(reseat(json.loads(SAVED.read_text()), argv[1:])))
            return 0
        if argv[:1] not in (["check"], ["apply"]):
            raise Refused("usage: roce-leaf check|apply [--saved] | reseat PORT... | counters PORT...")
        if argv[1:] == ["--saved"]:
            text = SAVED.read_text()
        else:
            text = argv[1] if len(argv) > 1 else sys.stdin.read()
        report = check(json.loads(text)) if argv[0] == "check" else apply(json.loads(text))
        print(json.dumps(report))
        return 1 if argv[0] == "check" and report["differences"] else 0
    except (Refused, OSError, ValueError, KeyError, TypeError) as error:
        print(json.dumps({"refused": str(error) or repr(error)}))
        return 2
    except Failed as error:
        print(json.dumps({"failed": str(error)}))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

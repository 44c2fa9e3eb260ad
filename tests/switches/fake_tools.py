#!/usr/bin/env python3
"""The commands of a scripted SONiC or Cumulus switch; $TOOL says which one runs.

State lies under $SWITCH: running.json (CONFIG_DB, or NVUE's applied configuration), etc/ (the configuration
folder), checkpoints/, and faults.json, which says what goes wrong.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

HOME = Path(os.environ["SWITCH"])
RUNNING, STARTUP = HOME / "running.json", HOME / "etc/config_db.json"
FAULTS = json.loads((HOME / "faults.json").read_text())


def load(path: Path):
    """Read JSON; nothing there is nothing configured."""
    return json.loads(path.read_text()) if path.exists() else {}


def store(path: Path, value) -> None:
    """Write JSON."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=1))


def take(value):
    """What the switch makes of a configuration: a fault stores something else, without a word."""
    pattern, replacement = FAULTS.get("mutate", ["$^", ""])
    return json.loads(re.sub(pattern, replacement, json.dumps(value)))


def later(seconds: float, command: list[str], name: str) -> None:
    """Run a command later, unless `stop(name)` comes first. A minute of the switch is FAULTS["minute_s"]."""
    delay = seconds * FAULTS.get("minute_s", 60) / 60
    process = subprocess.Popen(
        ["sh", "-c", f'sleep {delay}; rm -f "$SWITCH/{name}.pid"; exec "$@"', "sh", *command],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    (HOME / f"{name}.pid").write_text(str(process.pid))
    (HOME / f"{name}.what").write_text(" ".join(command))


def stop(name: str) -> bool:
    """Stop what waits; false if nothing does."""
    path = HOME / f"{name}.pid"
    if not path.exists():
        return False
    os.killpg(int(path.read_text()), signal.SIGKILL)
    path.unlink()
    return True


def sonic(argv: list[str]) -> int:  # noqa: PLR0912  (a table of commands)
    """`config` and `sonic-cfggen`."""
    match argv:
        case ["sonic-cfggen", "-d", "--print-data"]:
            print(json.dumps(load(RUNNING)))
        case ["config", "reload", "-y"]:
            store(RUNNING, take(load(STARTUP)))
        case ["config", "load", "-y", path]:
            # `sonic-cfggen -j FILE --write-to-db`: fields are written, nothing is removed.
            running = load(RUNNING)
            merge(running, json.loads(Path(path).read_text()))
            store(RUNNING, take(running))
        case ["sonic-db-dump", "-n", database, "-y", "-k", _]:
            print(json.dumps(dump(database, load(RUNNING))))
        case ["config", "save", "-y"]:
            store(STARTUP, load(RUNNING))
        case ["config", "checkpoint", name]:
            store(HOME / "checkpoints" / name, load(RUNNING))
        case ["config", "rollback", name]:
            store(RUNNING, load(HOME / "checkpoints" / name))
        case ["config", "delete-checkpoint", name]:
            (HOME / "checkpoints" / name).unlink()
        case ["config", "apply-patch", "-d", _]:
            return 0
        case ["config", "apply-patch", path]:
            running = load(RUNNING)
            for step in json.loads(Path(path).read_text()):
                _, table, *key = step["path"].split("/")
                if table in FAULTS.get("unpatchable", []):
                    print(f"Error: Modification of {table} table is illegal", file=sys.stderr)
                    return 1
                if step["op"] == "remove":
                    del running[table][key[0]]
                elif key:
                    running[table][key[0]] = step["value"]
                else:
                    running[table] = step["value"]
            store(RUNNING, take(running))
        case _:
            return 2
    return 0


def dump(database: str, running: dict) -> dict:
    """What orchagent and the SAI make of CONFIG_DB, as `sonic-db-dump` prints it. The fault "no_pg" leaves
    the priority groups without a buffer, as a profile does that the platform does not know.
    """
    rows: dict[str, dict] = {
        "COUNTERS_PORT_NAME_MAP": {},
        "COUNTERS_QUEUE_NAME_MAP": {},
        "COUNTERS_PG_NAME_MAP": {},
    }
    asic: dict[str, dict] = {}
    appl: dict[str, dict] = {}
    for at, port in enumerate(sorted(running.get("PORT", {}))):
        qos = running.get("PORT_QOS_MAP", {}).get(port, {})
        mask = sum(1 << int(p) for p in qos.get("pfc_enable", "").split(",") if p)
        rows["COUNTERS_PORT_NAME_MAP"][port] = f"oid:0x1{at}"
        asic[f"PORT:oid:0x1{at}"] = {
            "SAI_PORT_ATTR_PRIORITY_FLOW_CONTROL": str(mask),
            "SAI_PORT_ATTR_QOS_DSCP_TO_TC_MAP": "oid:0x99" if "dscp_to_tc_map" in qos else "oid:0x0",
        }
        for number in range(8):
            rows["COUNTERS_QUEUE_NAME_MAP"][f"{port}:{number}"] = f"oid:0x2{at}{number}"
            rows["COUNTERS_PG_NAME_MAP"][f"{port}:{number}"] = f"oid:0x3{at}{number}"
            wred = running.get("QUEUE", {}).get(f"{port}|{number}", {}).get("wred_profile")
            asic[f"QUEUE:oid:0x2{at}{number}"] = {
                "SAI_QUEUE_ATTR_WRED_PROFILE_ID": f"oid:0x4{wred}" if wred else "oid:0x0"
            }
            group = running.get("BUFFER_PG", {}).get(f"{port}|{number}")
            if group and not FAULTS.get("no_pg"):
                appl[f"BUFFER_PG_TABLE:{port}:{number}"] = dict(group)
                asic[f"INGRESS_PRIORITY_GROUP:oid:0x3{at}{number}"] = {
                    "SAI_INGRESS_PRIORITY_GROUP_ATTR_BUFFER_PROFILE": "oid:0x55"
                }
    for name, fields in running.get("WRED_PROFILE", {}).items():
        asic[f"WRED:oid:0x4{name}"] = {
            "SAI_WRED_ATTR_ECN_MARK_MODE": "SAI_ECN_MARK_MODE_ALL",
            "SAI_WRED_ATTR_GREEN_MIN_THRESHOLD": fields["green_min_threshold"],
            "SAI_WRED_ATTR_GREEN_MAX_THRESHOLD": fields["green_max_threshold"],
            "SAI_WRED_ATTR_GREEN_DROP_PROBABILITY": fields["green_drop_probability"],
        }
    asic = {f"ASIC_STATE:SAI_OBJECT_TYPE_{key}": value for key, value in asic.items()}
    chosen = {"APPL_DB": appl, "ASIC_DB": asic, "COUNTERS_DB": rows}[database]
    return {
        key: {"expireat": 1.5, "ttl": -0.001, "type": "hash", "value": value} for key, value in chosen.items()
    }


def nv(argv: list[str]) -> int:  # noqa: PLR0912  (a table of commands)
    """NVUE's `nv config`."""
    pending, before = HOME / "pending.json", HOME / "before.json"
    match argv[2:]:
        case ["show", "-o", "json"]:
            print(
                json.dumps(
                    [
                        {"header": {"nvue-api-version": "nvue_v1", "version": "Cumulus Linux 5.15.0"}},
                        {"set": load(RUNNING)},
                    ]
                )
            )
        case ["show", "-r", revision, "-o", "json"]:
            print(json.dumps([{"set": load(STARTUP if revision == "startup" else HOME / "revision.json")}]))
        case ["interface", "-o", "json"]:  # `nv show`
            print(
                json.dumps({name: {"type": name.rstrip("0123456789")} for name in ("eth0", "swp1", "swp2")})
            )
        case ["revision", "-o", "json"]:
            waits = (HOME / "confirm.pid").exists()
            told = json.loads((HOME / "trial.json").read_text()) if waits else {}
            print(json.dumps({"1": {"state": "applied_and_saved"}, **({"7": told} if waits else {})}))
        case ["patch", path]:
            value = load(RUNNING)
            for part in yaml.safe_load(Path(path).read_text()):
                merge(value, part.get("set", {}))
                unset(value, part.get("unset", {}))
            store(pending, value)
        case ["apply", "-y"]:
            store(RUNNING, take(load(pending)))
            pending.unlink()
        case ["apply", "--confirm", seconds, "-y", "-m", message]:
            apply = {"message": message, "user": "admin"}
            store(HOME / "trial.json", {"state": "confirm", "apply-meta": apply})
            store(before, load(RUNNING))
            store(RUNNING, take(load(pending)))
            store(HOME / "revision.json", load(RUNNING))
            pending.unlink()
            later(float(seconds.rstrip("s")), ["cp", str(before), str(RUNNING)], "confirm")
        case ["apply", "--confirm-yes"]:
            return 0 if stop("confirm") else 1
        case ["apply", "--confirm-no", "-y"]:
            if not stop("confirm"):
                return 1
            store(RUNNING, load(before))
        case ["diff"]:
            print("- set:\n    vrf: {}" if pending.exists() else "")
        case ["detach"]:
            pending.unlink(missing_ok=True)
        case ["save"]:
            store(STARTUP, load(RUNNING))
        case _:
            return 2
    return 0


def unset(tree: dict, what: dict) -> None:
    """Take leaves away, and what they leave empty."""
    for key, value in what.items():
        if value:
            unset(tree[key], value)
        if not value or not tree[key]:
            tree.pop(key, None)


def merge(into: dict, what: dict) -> None:
    """Merge nested dictionaries."""
    for key, value in what.items():
        if isinstance(value, dict):
            merge(into.setdefault(str(key), {}), value)
        else:
            into[str(key)] = value


def once(fault: str, line: str) -> bool:
    """Whether this fault strikes now; it does so the first time only."""
    struck = HOME / f"{fault}.struck"
    if not re.search(FAULTS.get(fault, "$^"), line) or struck.exists():
        return False
    struck.touch()
    return True


def main(argv: list[str]) -> int:  # noqa: PLR0912, PLR0915  (a table of commands)
    """Run the command that this is called as."""
    line = " ".join(argv)
    with (HOME / "log").open("a") as log:
        log.write(line + "\n")
    if once("refuse", line):
        print("Error: refused", file=sys.stderr)
        return 1
    if once("hang", line):
        time.sleep(120)
        return 1
    if re.search(FAULTS.get("idle", "$^"), line):
        return 0  # says that it did it
    time.sleep(FAULTS.get("lag_s", 0))
    code = 2
    match argv:
        case ["sudo", *_]:
            command = argv[argv.index("-u") + 2 :]
            os.execvp(command[0], command)  # noqa: S606  (that is what sudo does)
        case ["systemd-run", unit, after, *command]:
            name = unit.partition("=")[2]
            if (HOME / f"{name}.pid").exists():
                print(f"Unit {name}.timer already exists", file=sys.stderr)
                return 1
            later(float(after.partition("=")[2]), command, name)
            code = 0
        case ["systemctl", "list-units", *_]:
            for pid in HOME.glob("*.pid"):
                print(f"{pid.stem}.timer loaded active waiting {pid.with_suffix('.what').read_text()}")
            code = 0
        case ["systemctl", "enable" | "disable", _]:
            code = 0
        case ["systemctl", "is-system-running"]:
            print("running")
            code = 0
        case ["systemctl", "is-active", "--quiet", unit]:
            there = unit == "nvued" or (HOME / f"{unit.removesuffix('.timer')}.pid").exists()
            code = 0 if there else 3
        case ["nv", "config", "apply", "--help"]:
            print("  --confirm [<time>]  Apply the revision, and go back unless it is confirmed")
            code = 0
        case ["systemctl", "stop", timer]:
            code = 0 if stop(timer.removesuffix(".timer")) else 5
        case ["nv", *_]:
            code = nv(argv)
        case ["vtysh" | "lldpctl", *_]:
            told = HOME / f"{argv[0]}.told"
            print(told.read_text() if told.exists() else "{}")
            code = 0
        case _:
            code = sonic(argv)
    if re.search(FAULTS.get("cut_after", "$^"), line):
        (HOME / "cut").touch()
    if once("cut_once_after", line):
        (HOME / "cut").touch()
        time.sleep(1)  # its answer is lost
    if once("admin_after", line):  # another admin sets something
        store(RUNNING, {**load(RUNNING), **FAULTS["admin"]})
    hold, held = HOME / "hold", HOME / "held"
    if hold.exists() and not held.exists() and re.search(hold.read_text(), line):
        held.touch()
        while hold.exists():
            time.sleep(0.1)
    if once("restart_after", line):
        (HOME / "restart").touch()
        time.sleep(30)  # it goes down with the rest
    return code


if __name__ == "__main__":
    sys.exit(main([os.environ["TOOL"], *sys.argv[1:]]))

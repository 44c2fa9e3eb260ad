"""Read a node's counters and cable modules."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shakedown.onnode import ethtool_stats
from shakedown.onnode.host import read_host
from shakedown.onnode.noted import leave, node_name

# The reader is a timer of roles/host_settings: `ethtool -m` takes a right that jobs do not have. What it left
# is read here in no time, so a job's reading of counters is not slowed down by modules' slow buses.

FILE = Path("/run/shakedown/modules.json")
# The timer runs every two minutes; what is older is of a reader that stopped.
OLDEST_S = 600.0
UNREAD = "unread"
_LARGEST = 1 << 20
_NAME = re.compile(r"[a-z_]{1,24}(?:\.lane\d{1,2})?\Z")


def readings(file: Path = FILE, *, now_s: float | None = None) -> dict[str, tuple[dict[str, int], str]]:
    """Return, by netdev, what its module says and why it says nothing; empty where no reader left anything.

    Values are `alarms` and `warnings`, flags that the module itself has raised, and `temperature_mc`,
    `voltage_uv`, `bias_ua`, `tx_power_nw`, `rx_power_nw` (thousandths of degrees C, uV, uA, nW), by lane;
    `unread` where the reader has stopped.
    """
    try:
        with file.open("rb") as source:
            document = json.loads(source.read(_LARGEST))
    except (OSError, ValueError):
        return {}
    netdevs = document.get("netdevs") if isinstance(document, dict) else None
    taken = document.get("taken_s") if isinstance(document, dict) else None
    if not isinstance(netdevs, dict) or not isinstance(taken, int | float):
        return {}
    age = (time.time() if now_s is None else now_s) - taken
    found: dict[str, tuple[dict[str, int], str]] = {}
    for netdev, told in netdevs.items():
        if not isinstance(told, dict):
            continue
        if not -OLDEST_S < age < OLDEST_S:
            # What was never read must not look like a module without anything to say.
            found[str(netdev)] = ({UNREAD: 1}, f"read {age:.0f} s ago: its reader has stopped")
            continue
        found[str(netdev)] = _values(told.get("values")), str(told.get("why", ""))[:200]
    return found


def _values(told: Any) -> dict[str, int]:  # noqa: ANN401  (whatever the file held)
    return {
        name: value
        for name, value in (told.items() if isinstance(told, dict) else ())
        if isinstance(name, str) and _NAME.match(name) and type(value) is int and 0 <= value < 1 << 63
    }


#     srun --ntasks-per-node=1 python -m shakedown.onnode.counters before FOLDER
#
# writes FOLDER/counters.NODE.before.json. The raw values are kept as they are; deltas are computed later,
# from both files. What `rdma statistic show` prints is in sysfs (`hw_counters`: the same rdma_hw_stats of the
# driver, drivers/infiniband/core/{sysfs,nldev}.c); what `ethtool` prints is asked of the kernel, so that a
# node of eleven NICs is read without a process for each. All NICs are read at once, one thread each.
#
# Beside its counters a device has `unread`: which could not be read, by name or by the source that all of
# them are of (`fec.`), and why. What its NIC or kernel has none of is not there; `flaws` tells people of it.

_DEVLINK_SECONDS = 5.0
_MOST_CHARACTERS = 300  # of why something could not be read (run/nic_counters.py)
# A tool or a kernel from before there were health reporters (iproute2 5.0, Linux 5.1; devlink.c of iproute2).
_OLD_DEVLINK = re.compile(r'Object "health" (?:is unknown|not found)|[Oo]peration not supported')
_CARRIER = ("carrier_down_count", "carrier_up_count")  # Linux 4.16, Documentation/ABI/testing/sysfs-class-net


class UnreadError(Exception):
    """Counters that are there could not be read; its text says why."""


def read_numbers(folder: Path, prefix: str, unread: dict[str, str]) -> dict[str, int]:
    """Read a sysfs folder of one-number files. Counters that the driver does not have are left out."""
    numbers: dict[str, int] = {}
    try:
        files = sorted(folder.iterdir())
    except OSError as error:
        if not ethtool_stats.nothing_there(error):
            unread[prefix] = _words(str(folder), error)
        return numbers
    for file in files:
        # `lifespan` and the like are settings, not numbers of events. irdma's names have blanks
        # ("RNR sent"), those of the records have not.
        name = prefix + ethtool_stats.UNFIT.sub("_", file.name)
        value = _number(file, name, unread)
        if value is not None:
            numbers[name] = value
    return numbers


def _number(file: Path, name: str, unread: dict[str, str]) -> int | None:
    """Return the number in a file of sysfs; None: no file, or some counters answer EINVAL."""
    try:
        return int(file.read_bytes())
    except OSError as error:
        if not ethtool_stats.nothing_there(error):
            unread[name] = _words(str(file), error)
    except ValueError:
        pass
    return None


def _words(what: str, error: OSError) -> str:
    return f"{what}: {error.strerror or error}"[:_MOST_CHARACTERS]


def read_devices(root: Path = Path("/"), *, live: bool | None = None) -> list[dict[str, object]]:
    """Read all RDMA devices of this node with the counters of the device, its port and its netdev.

    `live`: ask the kernel and devlink too, which know nothing of a copy of sysfs; None: if it is no copy.
    """
    infiniband = root / "sys/class/infiniband"
    devices = sorted(infiniband.iterdir()) if infiniband.is_dir() else []
    if not devices:
        return []
    live = root == Path("/") if live is None else live
    # A thread waits for its NIC's firmware; the kernel asks them all at the same time.
    with ThreadPoolExecutor(max_workers=len(devices) + 1) as threads:
        health = threads.submit(devlink_health) if live else None
        of_all: dict[str, str] = {}  # what could not be read of any device, and why
        family, errors = 0, dict[str, dict[str, int]]()
        try:
            family = ethtool_stats.ethtool_family() if live else 0
        except OSError as error:
            if not ethtool_stats.nothing_there(error):
                of_all["fec."] = _words("netlink family of ethtool", error)
        read = [threads.submit(read_device, root, device, family, live) for device in devices]
        found = [one.result() for one in read]
        try:
            errors = health.result() if health else {}
        except UnreadError as error:
            of_all["devlink."] = str(error)[:_MOST_CHARACTERS]
    of_modules = readings() if live else {}
    for device in found:
        counters, flaws, unread = device["counters"], device["flaws"], device["unread"]
        assert isinstance(counters, dict) and isinstance(flaws, list) and isinstance(unread, dict)
        unread |= of_all
        counters |= errors.get(str(device["pci"]), {})
        values, why = of_modules.get(str(device["netdev"]), ({}, ""))
        counters |= {f"dom.{name}": value for name, value in values.items()}
        if why:
            words = f"module of {device['netdev']}: {why}"
            flaws.append(words)
            if UNREAD in values:
                unread["dom."] = words
    return found


def read_device(root: Path, device: Path, family: int, live: bool) -> dict[str, object]:
    """Read one RDMA device; `family`: of ethtool's netlink, 0 where there is none."""
    began = time.monotonic()
    port = device / "ports/1"
    try:
        netdev = (port / "gid_attrs/ndevs/0").read_text(encoding="ascii").strip()
    except OSError:
        netdev = ""
    driver, pci = device / "device/driver", device / "device"
    unread: dict[str, str] = {}
    counters = read_numbers(device / "hw_counters", "rdma.", unread)
    counters |= read_numbers(port / "hw_counters", "rdma.", unread)
    counters |= read_numbers(port / "counters", "ib.", unread)
    found: dict[str, object] = {
        "device": device.name,
        "netdev": netdev,
        "driver": driver.resolve().name if driver.exists() else "",
        "pci": pci.resolve().name if pci.exists() else "",
        # sysfs gives every device that is registered a number of its own (kernfs_new_node).
        "inode": device.resolve().stat().st_ino if device.exists() else None,
    }
    flaws: list[str] = []
    if netdev:
        interface = root / "sys/class/net" / netdev
        counters |= read_numbers(interface / "statistics", "netdev.", unread)
        for name in _CARRIER:
            value = _number(interface / name, f"netdev.{name}", unread)
            if value is not None:
                counters[f"netdev.{name}"] = value
        found["ifindex"] = _number(interface / "ifindex", "ifindex", {})
        found["speed_mbps"] = _number(interface / "speed", "speed", {})
        if live:
            counters |= _by_ethtool(netdev, family, flaws, unread)
    found["read_at_s"] = round(time.monotonic(), 3)  # of this node's own clock, which never steps
    found["took_s"] = round(time.monotonic() - began, 4)
    return {**found, "flaws": flaws, "unread": unread, "counters": counters}


def _by_ethtool(netdev: str, family: int, flaws: list[str], unread: dict[str, str]) -> dict[str, int]:
    """Return what ethtool would print of a device; `flaws` tells what there is none of."""
    counters: dict[str, int] = {}

    def refused(source: str, words: str, error: OSError) -> None:
        if ethtool_stats.nothing_there(error):
            flaws.append(_words(words, error))
        else:
            unread[source] = _words(words, error)

    try:
        counters |= {f"ethtool.{name}": n for name, n in ethtool_stats.statistics(netdev).items()}
    except OSError as error:
        refused("ethtool.", f"ethtool -S {netdev}", error)
    if family:
        try:
            counters |= {f"fec.{name}": n for name, n in ethtool_stats.fec(netdev, family).items()}
        except OSError as error:
            refused("fec.", f"ethtool -I --show-fec {netdev}", error)
    return counters


def devlink_health() -> dict[str, dict[str, int]]:
    """Return how many errors each health reporter counted, by PCI address; nothing where devlink is not.

    Raises UnreadError: this kernel has devlink and the tool could not ask it.
    """
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    words = "devlink health show"
    try:
        done = subprocess.run(
            ["devlink", "-j", "health", "show"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_DEVLINK_SECONDS,
            check=False,
            env={"PATH": path, "LC_ALL": "C"},
        )
        if done.returncode == 0:
            return health_errors(json.loads(done.stdout.strip() or b"{}"))
    except FileNotFoundError:
        return {}
    except subprocess.TimeoutExpired:
        raise UnreadError(f"{words}: no answer within {_DEVLINK_SECONDS:g} s") from None
    except OSError as error:
        raise UnreadError(_words(words, error)) from None
    except ValueError:
        raise UnreadError(f"{words}: what it printed is no JSON") from None
    said = done.stderr.decode("utf-8", "replace").strip()
    if _OLD_DEVLINK.search(said) or not _kernel_has_devlink():
        return {}
    raise UnreadError(f"{words}: {said.splitlines()[-1] if said else f'exit status {done.returncode}'}")


def _kernel_has_devlink() -> bool:
    try:
        return ethtool_stats.netlink_family("devlink") > 0
    except OSError as error:
        return not ethtool_stats.nothing_there(error)


def health_errors(document: Any) -> dict[str, dict[str, int]]:  # noqa: ANN401  (whatever the tool printed)
    """Return the errors of each reporter of `devlink -j health show`, of devices and not of their ports."""
    found: dict[str, dict[str, int]] = {}
    health = document.get("health") if isinstance(document, dict) else None
    for handle, reporters in (health if isinstance(health, dict) else {}).items():
        bus, _, address = str(handle).partition("/")
        if bus != "pci" or "/" in address or not isinstance(reporters, list):
            continue
        for one in reporters:
            name, errors = (one.get("reporter"), one.get("error")) if isinstance(one, dict) else (None, None)
            if isinstance(name, str) and name.replace("_", "").isalnum() and type(errors) is int:
                found.setdefault(address, {})[f"devlink.{name}_errors"] = max(errors, 0)
    return found


def read_boot(root: Path = Path("/")) -> str | None:
    """Return what the kernel calls this boot (random(4), boot_id), None where it does not say."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def main(words: list[str]) -> int:
    """Write the counters of this node."""
    if len(words) != 2 or words[0] not in {"before", "after"}:
        print("usage: python -m shakedown.onnode.counters before|after FOLDER", file=sys.stderr)
        return 2
    when, folder, node = words[0], Path(words[1]), node_name()
    began = time.monotonic()
    devices = read_devices()
    document = {
        "schema": 1,
        "node": node,
        "when": when,
        "taken": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "boot_id": read_boot(),
        "took_s": round(time.monotonic() - began, 4),
        "devices": devices,
    }
    # What cannot be read of it costs no counter.
    with contextlib.suppress(OSError, ValueError, LookupError):
        document["host"] = read_host(folder)
    try:
        leave(folder, f"counters.{node}.{when}.json", document)
    except OSError as error:
        return unwritable(node, folder, error)
    return 0


def unwritable(node: str, folder: Path, error: OSError) -> int:
    """Say on standard error that a node cannot write its outputs; return the exit status for that.

    The name in front tells whose words these are among those of all tasks of a job.
    """
    print(f"{node}: cannot write its outputs to {folder}: {error.strerror or error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Read every RDMA and network counter of this node into one JSON file, before and after a test.

    srun --ntasks-per-node=1 python -m shakedown.onnode.counters before FOLDER

writes FOLDER/counters.NODE.before.json. The raw values are kept as they are; deltas are computed later, from
both files.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path


def read_numbers(folder: Path, prefix: str) -> dict[str, int]:
    """Read a sysfs folder of one-number files. Counters that the driver refuses to read are left out."""
    numbers: dict[str, int] = {}
    if not folder.is_dir():
        return numbers
    for entry in sorted(folder.iterdir()):
        try:
            numbers[prefix + entry.name] = int(entry.read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue  # `lifespan` and the like are settings, and some counters answer EINVAL
    return numbers


def read_devices(root: Path = Path("/")) -> list[dict[str, object]]:
    """Read all RDMA devices of this node with the counters of the device, its port and its netdev."""
    devices: list[dict[str, object]] = []
    infiniband = root / "sys/class/infiniband"
    for device in sorted(infiniband.iterdir()) if infiniband.is_dir() else ():
        port = device / "ports/1"
        netdev_file = port / "gid_attrs/ndevs/0"
        try:
            netdev = netdev_file.read_text(encoding="ascii").strip()
        except OSError:
            netdev = ""
        counters = read_numbers(device / "hw_counters", "rdma.")
        counters |= read_numbers(port / "hw_counters", "rdma.")
        counters |= read_numbers(port / "counters", "ib.")
        if netdev:
            counters |= read_numbers(root / "sys/class/net" / netdev / "statistics", "netdev.")
        devices.append({"device": device.name, "netdev": netdev, "counters": counters})
    return devices


def read_boot(root: Path = Path("/")) -> str | None:
    """Return what the kernel calls this boot (random(4), boot_id), None where it does not say."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def node_name() -> str:
    """Return Slurm's name of this node; `hostname` can differ from it."""
    return os.environ.get("SLURMD_NODENAME") or platform.node()


def main() -> int:
    """Write the counters of this node."""
    if len(sys.argv) != 3 or sys.argv[1] not in {"before", "after"}:
        print("usage: python -m shakedown.onnode.counters before|after FOLDER", file=sys.stderr)
        return 2
    when, folder = sys.argv[1], Path(sys.argv[2])
    node = node_name()
    document = {
        "schema": 1,
        "node": node,
        "when": when,
        "taken": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "boot_id": read_boot(),
        "devices": read_devices(),
    }
    final = folder / f"counters.{node}.{when}.json"
    aside = final.with_suffix(".partial")
    try:
        aside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        aside.replace(final)
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
    sys.exit(main())

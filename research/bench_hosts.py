"""Seconds of roles/roce_host by number of hosts, with this project's ansible.cfg and with Ansible's own.

    python research/bench_hosts.py [--hosts 10 100] [--stock 10] [--module-s 2] [--round-trip-s 0.02]

The role runs for real on one recorded host (a sysfs tree and tools that answer as the drivers do). What its
modules printed there is what every host answers afterwards, each after the time that a module takes on a host
and a round trip for every command (connection_plugins/replayed.py). What is left is the controller's own work
and how much of the waiting it does at once. Every timed play is a second run: it must change nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
RECORDED = REPOSITORY / "tests/unit/roles/host_settings"
sys.path.insert(0, str(RECORDED))

import fake_host  # noqa: E402  (found by the path above)

TOOLS = ("ip", "rdma", "ibv_devinfo", "modprobe", "mlxconfig", "ethtool", "dcb")
RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=0\s+failed=0", re.M)
ROCE = {
    "dscp": 26,
    "priority": 3,
    "traffic_class": 3,
    "queue": 3,
    "ect": True,
    "cnp": {"dscp": 48, "priority": 6, "traffic_class": 6, "queue": 6, "scheduler": "strict"},
    "ecn": {"min_bytes": 1048576, "max_bytes": 2097152, "mark_percent": 5},
    "pfc": {"enabled": True, "watchdog": {"detect_ms": 200, "restore_ms": 200, "action": "drop"}},
    "headroom": {"cable_m": 40},
}


def inventory(folder: Path, count: int) -> Path:
    """Write an inventory of recorded hosts with one ConnectX-7 each."""
    if not (folder / "root").exists():
        fake_host.save(fake_host.make(folder / "root", RECORDED / "nics/connectx7_inbox.yaml", 1))
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    for tool in TOOLS:
        (tools / tool).write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(RECORDED)!r})\n"
            "import fake_host\nsys.exit(fake_host.main())\n"
        )
        (tools / tool).chmod(0o755)
    hosts = {}
    for number in range(1, count + 1):
        name = f"h{number:03}"
        hosts[name] = {
            "fabric_nics": [
                {
                    "rail": "rail0",
                    "netdev": "eth2",
                    "rdma_device": "mlx5_0",
                    "ipv4": f"10.20.3.{number}/24",
                    "leaf": "leaf0",
                    "leaf_port": f"swp{number}",
                }
            ]
        }
    common = {
        "ansible_connection": "replayed",
        "host_settings_root": str(folder / "root"),
        "ansible_python_interpreter": sys.executable,
        "host_settings_settle_s": 0,
        "fabric": {
            "system": "recorded",
            "link_speed_gbps": 400,
            "ip_version": 4,
            "roce": ROCE,
            "mtu_bytes": {"link": 9216, "host": 9000, "rdma": 4096},
            "rails": [{"name": "rail0", "subnet": "10.20.3.0/24"}],
            "switches": {"leaves": ["leaf0"], "spines": [], "uplinks_per_leaf_per_spine": 0},
        },
    }
    (folder / "stock.cfg").write_text("")  # nothing set: Ansible's own values
    path = folder / f"hosts{count}.yml"
    path.write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": common}}))
    (folder / "play.yml").write_text(
        yaml.safe_dump([{"hosts": "all", "gather_facts": False, "roles": ["roce_host"]}])
    )
    return path


def play(
    folder: Path, hosts: Path, options: argparse.Namespace, *, ours: bool, record: bool = False
) -> tuple[float, float, int, int]:
    """Run the role; return wall seconds, CPU seconds, tasks of one host and changes of all."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(folder),
        "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg" if ours else folder / "stock.cfg"),
        "ANSIBLE_ROLES_PATH": str(REPOSITORY / "roles"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_CONNECTION_PLUGINS": str(Path(__file__).parent / "connection_plugins"),
        "HOST_SETTINGS_PATH": str(folder / "bin"),
        "REPLAY_FOLDER": str(folder),
        "REPLAY_MODULE_S": str(options.module_s),
        "REPLAY_ROUND_TRIP_S": str(options.round_trip_s),
        **({"REPLAY_RECORD": "1"} if record else {}),
        "LC_ALL": "C.UTF-8",
    }
    argv = ["ansible-playbook", "-i", str(hosts), str(folder / "play.yml")]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    recap = RECAP.findall(done.stdout.rpartition("PLAY RECAP")[2])
    if done.returncode != 0 or not recap:
        sys.exit(f"the play failed:\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, int(recap[0][1]), sum(int(changed) for _, _, changed in recap)


def main() -> None:
    """Print a table and the two ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--hosts", type=int, nargs=2, default=(10, 100), help="the two numbers to compare (up to 254)"
    )
    parser.add_argument(
        "--stock", type=int, help="hosts of the run with stock ansible.cfg (the first number)"
    )
    parser.add_argument("--module-s", type=float, default=2.0, help="seconds that a module takes on a host")
    parser.add_argument("--round-trip-s", type=float, default=0.02, help="seconds of one command over ssh")
    options = parser.parse_args()
    few, many = options.hosts
    stock = options.stock or few
    columns = ("ansible.cfg", "hosts", "tasks", "wall s", "CPU s", "s/host-task", "changed")
    print(" ".join(f"{column:>12}" for column in columns))
    walls: dict[tuple[bool, int], float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one = inventory(folder, 1)
        play(folder, one, options, ours=True, record=True)  # sets the host
        play(folder, one, options, ours=True, record=True)  # finds nothing to do: this is what is replayed
        for ours, count in ((True, few), (True, many), (False, stock)):
            wall, cpu, tasks, changed = play(folder, inventory(folder, count), options, ours=ours)
            walls[ours, count] = wall
            each = f"{wall / (tasks * count):.4f}"
            row = ("ours" if ours else "stock", count, tasks, f"{wall:.1f}", f"{cpu:.1f}", each, changed)
            print(" ".join(f"{value:>12}" for value in row), flush=True)
            if changed:
                sys.exit("a second run changed something")
    print(f"{many} hosts take {walls[True, many] / walls[True, few]:.2f} times as long as {few}")
    if (True, stock) in walls:
        print(
            f"stock ansible.cfg takes {walls[False, stock] / walls[True, stock]:.2f} times as long on {stock}"
        )
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()

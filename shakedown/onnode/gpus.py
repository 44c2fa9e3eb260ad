"""A node's GPUs and its NCCL."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shakedown.onnode.journal import ran
from shakedown.onnode.noted import leave, node_name
from shakedown.run.service import NODE, of_node

# NCCL refuses to work with another version of itself, with words that give ranks and no node, or hangs.
# Standard library only.

_LINKED = re.compile(r"^[ \t]{0,8}libnccl\.so\S{0,40} => (/\S+)", re.MULTILINE)
# In a process of its own: a library that cannot be loaded ends nothing but that.
_ASK = """\
import ctypes, sys
number = ctypes.c_int()
if ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(number)):
    sys.exit(1)
print(number.value)
"""
_NAMED = 3  # nodes by name in one message


def loaded_by(program: str) -> dict[str, str] | None:
    """Return path and version of the NCCL that a program or library would load here; None if not known."""
    linked = _LINKED.search(_said(["ldd", program]))
    if linked is None:
        return None
    said = _said([sys.executable, "-c", _ASK, linked[1]]).strip()
    return {"path": linked[1], "version": version(int(said))} if said.isdigit() else None


def version(number: int) -> str:
    """Return a version from NCCL's number (nccl.h, NCCL_VERSION_CODE): 22809 is 2.28.9, 2804 was 2.8.4."""
    major = 1000 if number < 10000 else 10000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def differ(looks: Sequence[dict[str, Any]]) -> dict[str, str] | None:
    """Return that nodes have different versions, as a record's problem, or None.

    A node that does not know its version has no say.
    """
    nodes: dict[str, list[str]] = {}
    for seen in looks:
        if library := seen.get("nccl"):
            nodes.setdefault(library["version"], []).append(seen["node"])
    if len(nodes) < 2:
        return None
    # What few have comes first: that is what somebody has to look at.
    few_first = sorted(nodes.items(), key=lambda item: len(item[1]))
    said = [f"NCCL {version} on {_names(mine)}" for version, mine in few_first]
    return {"kind": "environment", "message": f"{', '.join(said)}: give all nodes of a job the same version"}


def _names(nodes: Sequence[str]) -> str:
    more = len(nodes) - _NAMED
    return ", ".join(nodes[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _said(command: list[str]) -> str:
    done = ran(command, 60)
    return done.stdout if done and done.returncode == 0 else ""


#     srun --ntasks-per-node=1 python -m shakedown.onnode.gpus look WHEN FOLDER [PROGRAM]
#     srun --ntasks-per-node=1 python -m shakedown.onnode.gpus sample FOLDER
#
# `look` writes FOLDER/gpus.NODE.WHEN.json with what every command printed, unread, and which NCCL PROGRAM
# would load. `sample` writes FOLDER/gpus.NODE.samples.csv: seconds since 1970, then nvidia-smi's own columns;
# a line a GPU, five times a second, until SIGTERM or the file FOLDER/stop appears.

# The reasons for slowed clocks were renamed with driver 535; the old names still answer, as of 580.
FIELDS = (
    "index,uuid,pci.bus_id,name,driver_version,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,"
    "pcie.link.width.max,ecc.mode.current,ecc.errors.uncorrected.volatile.total,clocks.sm,clocks.max.sm,"
    "clocks_throttle_reasons.active,temperature.gpu,power.draw,power.limit,memory.used,memory.total,utilization.gpu"
)
SAMPLED = (
    "index,power.draw,temperature.gpu,clocks.sm,clocks_throttle_reasons.active,pcie.link.gen.current,"
    "pcie.link.width.current,utilization.gpu"
)
COMMANDS = {
    "gpus": ["nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv"],
    "processes": ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv"],
    "remapped": [
        "nvidia-smi",
        "--query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure",
        "--format=csv",
    ],
    "nvlink": ["nvidia-smi", "nvlink", "--status"],
    "topology": ["nvidia-smi", "topo", "-m"],
    # Alone: a driver that does not know one field answers none of those that are asked with it.
    "mig": ["nvidia-smi", "--query-gpu=uuid,mig.mode.current", "--format=csv"],
    "fabric": ["nvidia-smi", "--query-gpu=uuid,fabric.state,fabric.status", "--format=csv"],
}
PERIOD_MS = 200
# What of the kernel's log tells of hardware, each line whole and with the time that it bears, seconds since
# boot. roles/host_settings has the same for its service. Nothing else of it leaves a node.
# Before its words a line has the time in one of dmesg(1)'s forms, and the thread or CPU that it came from
# (CONFIG_PRINTK_CALLER): a wrapper may have chosen another form, which must hide no error.
FRONT = (
    r"(?:<[0-9]{1,3}>|kern *:[a-z]+ *: *|\[(?!Hardware)[^\]\n]{3,40}\] ?|[0-9T:.,+-]{19,32} "
    r"|[A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} |\S{1,64} kernel: ){0,5}"
)
KEPT = re.compile(
    rf"^{FRONT}(?:NVRM: Xid|nvidia-nvswitch[0-9]+: SXid"
    r"| {0,40}NVRM: [^\n]{0,120}(?:RmInitAdapter failed|fallen off the bus|global fatal error"
    r"|Heartbeat timed out|GSP-CrashCat Report)"
    r"|NETDEV WATCHDOG: |DMAR: \[|AMD-Vi: Event"
    r"|EDAC \S+: [0-9]+ [CU]E |(?:mce: )?CPU[0-9]+: (?:Core|Package) temperature "
    r"|\S+ [0-9a-f:.]+: (?:AER: |DPC: |PCIe Bus Error: |[0-9.]+ Gb/s available PCIe bandwidth, limited by )"
    r"|(?:mce: |\{[0-9]+\})?\[Hardware Error\]|mce: Uncorrected |Memory failure: "
    r"|amdgpu [^\n]{0,200}(?:uncorrectable hardware errors|GPU reset|RAS poison|ring \S+ timeout)"
    r"|mlx5_core [^\n]{0,200}(?:insufficient power|High temperature|health compromised"
    r"|Port module event| Link down|Fatal error|firmware internal error|TX timeout detected"
    r"| timeout\. Will cause a leak)"
    r"|(?:bnxt_en|ice|ionic) [^\n]{0,200}(?:Link is Down|Link down|thermal threshold!|firmware fatal error"
    r"|Firmware not responding|TX timeout detected)"
    r")[^\n]*",
    re.MULTILINE,
)
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}m")
_ANY_XID = re.compile(r"\bS?Xid \(PCI:")
_TIME = re.compile(r"\[ *([0-9]{1,12}\.[0-9]{1,9})\]")
_UUID = re.compile(r"\bGPU-[0-9a-f-]{36}\b")


def run(command: list[str], timeout_s: float = 60) -> dict[str, Any]:
    """Return what a command printed and how it ended; `exit_code` None: it could not run."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"argv": command, "exit_code": None, "out": "", "error": str(error)}
    return {"argv": command, "exit_code": done.returncode, "out": done.stdout, "error": done.stderr}


def kernel_log(service: str = NODE) -> dict[str, Any]:
    """Return the lines of the kernel's log that tell of hardware, and when it was read, since boot.

    Many systems show the log to root alone (kernel.dmesg_restrict); then the node's own service is asked.
    """
    kernel = run(["dmesg"])
    kernel["now_s"] = time.monotonic()
    kernel["out"] = _COLOURS.sub("", kernel["out"])
    oldest = _TIME.match(kernel["out"])
    kernel["oldest_s"] = float(oldest[1]) if oldest else None
    lines = KEPT.findall(kernel["out"])
    kernel["strange"] = len(_ANY_XID.findall(kernel["out"])) - len(_ANY_XID.findall("\n".join(lines)))
    kernel["out"] = "".join(f"{line}\n" for line in lines)
    if kernel["exit_code"] == 0:
        return kernel
    own = " ".join(str(kernel["error"]).split())
    try:
        seen = of_node(service)
    except (OSError, ValueError) as error:
        kernel["error"] = f"{own}; {service}: {error}"[:500]
        return kernel
    if seen["kernel_error"]:
        kernel["error"] = f"{own}; {service}: {seen['kernel_error']}"[:500]
        return kernel
    out = "".join(f"{line}\n" for line in seen["kernel"] if KEPT.fullmatch(line))
    return {**kernel, "argv": [service], "exit_code": 0, "out": out, "error": ""}


def look(when: str, program: str = "") -> dict[str, Any]:
    """Return everything that this node says of its GPUs, and the NCCL that a program would load."""
    with ThreadPoolExecutor(1) as beside:  # loading a library of 250 MB costs no time of its own
        nccl = beside.submit(loaded_by, program) if program else None
        commands = {name: run(command) for name, command in COMMANDS.items()}
        kernel = kernel_log()
    numa = {}
    for device in Path("/sys/bus/pci/drivers/nvidia").glob("*:*:*.*"):
        with contextlib.suppress(OSError, ValueError):
            numa[device.name] = int((device / "numa_node").read_text(encoding="ascii"))
    return {
        "schema": 1,
        "node": node_name(),
        "when": when,
        "taken": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "commands": commands,
        "kernel": kernel,
        "numa": numa,
        **({"nccl": nccl.result()} if nccl else {}),
    }


def obstacle(seen: dict[str, Any], wanted: int) -> dict[str, str] | None:  # noqa: PLR0911  (one return a reason)
    """Return why nothing may be measured on a node's GPUs now, as a record's problem, or None."""
    node, gpus, processes = seen["node"], seen["commands"]["gpus"], seen["commands"]["processes"]
    if gpus["exit_code"] is None:
        return {"kind": "missing-tool", "message": f"{node}: nvidia-smi cannot run: {gpus['error']}"[:500]}
    words = " ".join((gpus["out"] + gpus["error"]).split())[:300]
    if gpus["exit_code"] != 0:
        if "no devices were found" in words.lower():
            return {"kind": "environment", "message": f"no GPU on {node}, {wanted} are planned"}
        return {"kind": "environment", "message": f"{node}: nvidia-smi failed: {words}"}
    found = len([line for line in gpus["out"].splitlines()[1:] if line.strip()])
    if found < wanted:
        many = f"{found} GPUs" if found != 1 else "one GPU"
        return {
            "kind": "environment",
            "message": f"{many if found else 'no GPU'} on {node}, {wanted} are planned",
        }
    if processes["exit_code"] != 0:
        return {"kind": "environment", "message": f"{node}: nvidia-smi cannot tell which processes use GPUs"}
    others = [line.split(",") for line in processes["out"].splitlines()[1:] if line.count(",") >= 2]
    if others:
        by = ", ".join(f"process {pid.strip()} ({memory.strip()})" for _, pid, memory, *_ in others[:3])
        return {"kind": "busy", "message": f"GPUs of {node} are in use before the test by {by}"[:500]}
    return None


def one_for_two(looks: Sequence[dict[str, Any]], shared: Collection[str]) -> dict[str, str] | None:
    """Return that two nodes show one GPU, as a record's problem, or None.

    Two names of one machine would measure a GPU against itself.

    Args:
        looks: what each node showed.
        shared: nodes of which the inventory says that they have a GPU together.
    """
    owner: dict[str, str] = {}
    for seen in looks:
        node = seen["node"]
        for uuid in dict.fromkeys(_UUID.findall(seen["commands"]["gpus"]["out"])):
            other = owner.setdefault(uuid, node)
            if other != node and not {other, node} <= set(shared):
                message = (
                    f"{other} and {node} show the same GPU ({uuid}): two names of one machine, or a GPU that "
                    "both have, which the inventory must say (shared: true)"
                )
                return {"kind": "environment", "message": message}
    return None


def sample(folder: Path) -> int:
    """Write samples until told to stop. Without nvidia-smi there is nothing to sample and no file."""
    command = ["nvidia-smi", f"--query-gpu={SAMPLED}", "--format=csv,nounits", f"--loop-ms={PERIOD_MS}"]
    stop = folder / "stop"
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    except OSError:
        return 1
    assert child.stdout is not None
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    header = False
    with (folder / f"gpus.{node_name()}.samples.csv").open("w", encoding="utf-8") as file:
        for line in child.stdout:
            if line.startswith("index"):
                if not header:
                    file.write(f"time_s [s], {line}")
                header = True
            else:
                file.write(f"{time.time():.3f}, {line}")
            file.flush()
            if stop.exists():
                break
    child.terminate()
    child.wait()
    return 0


def write(folder: Path, seen: dict[str, Any]) -> Path:
    """Write a look whole or not at all."""
    return leave(folder, f"gpus.{seen['node']}.{seen['when']}.json", seen)


def main(argv: list[str]) -> int:
    """Look or sample."""
    if len(argv) in (3, 4) and argv[0] == "look":
        write(Path(argv[2]), look(argv[1], *argv[3:]))
        return 0
    if len(argv) == 2 and argv[0] == "sample":
        return sample(Path(argv[1]))
    usage = "usage: python -m shakedown.onnode.gpus look WHEN FOLDER [PROGRAM] | sample FOLDER"
    print(usage, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Whether this node still is what was accepted: links, widths, memory, GPUs, mounts, clock and services.

    accept [--service UNIT] [--nic NETDEV]...
                                     keep what is here now as what is wanted (root)
    check                            say what is worse: exit status 0, 1 if something is, 2 if it cannot tell
    slurm [--most N] [--hold-s S]    for HealthCheckProgram, Prolog and Epilog: also drain and resume

A node is held against itself alone, by files and a few commands. What is worse drains it. What is only
another (firmware, a replaced card) or cannot be read is said, and drains nothing. As Prolog it exits with 1
where something is worse, so that Slurm takes the job back; for a fault of its own never.
This file runs by itself, with Python 3.6 or later and its standard library.
"""

import argparse
import ctypes
import json
import os
import platform
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Sequence, Tuple  # noqa: UP035

ACCEPTED = Path("/var/lib/shakedown/health.json")
DRAINED = Path("/var/lib/shakedown/health.drained.json")  # that we drained, with which words
# Another prefix than `shakedown drain`'s: neither gives back what the other took.
PREFIX = "shakedown-health:"
_MOST, _HOLD_S = 2, 300
_TOOL_S, _GPU_TOOL_S, _SLURM_S = 5.0, 8.0, 5.0
_SETTLES_S = 600  # after a start a clock needs minutes to be synchronised
_MOST_WORDS = 180  # of a reason in Slurm; `sinfo -R` is read on a terminal
# Python 3.6 cannot subscript its own types.
Parts = Dict[str, Dict[str, str]]  # noqa: UP006
Names = Sequence[str]

# How an attribute is held: worse if `less` or `more` than accepted (numbers), or if not as it `was`; one that
# is only told has no row. The tolerance is a share.
_HELD: Dict[str, Dict[str, Tuple[str, float]]] = {  # noqa: UP006
    "cpu": {"online": ("less", 0)},
    # A kernel of another release keeps other amounts for itself.
    "memory": {"kib": ("less", 0.01), "uncorrected": ("more", 0)},
    "nic": {
        "link": ("was", 0),
        "speed_mbps": ("less", 0),
        "pcie_gt_s": ("less", 0),
        "pcie_width": ("less", 0),
    },
    "rdma": {"state": ("was", 0), "rate_gbps": ("less", 0)},
    "gpus": {"count": ("less", 0), "driver": ("was", 0)},
    "gpu": {
        "memory_mib": ("less", 0),
        "pcie_width": ("less", 0),
        "nvlinks": ("less", 0),
        "uncorrected": ("more", 0),
        "remap_failed": ("was", 0),
        "remap_pending": ("was", 0),
        "power_limit_w": ("less", 0),
    },
    "mount": {"mode": ("was", 0)},
    "clock": {"synchronised": ("was", 0)},
    "service": {"state": ("was", 0)},
}
_PARTS = ("nic", "rdma", "gpu", "mount")  # missing, these are gone; of others nothing could be read
_UNITS = {
    "speed_mbps": " Mb/s",
    "pcie_gt_s": " GT/s",
    "rate_gbps": " Gb/s",
    "memory_mib": " MiB",
    "kib": " KiB",
}
# Services that a job cannot do without, held where they ran when the node was accepted.
_SERVICES = (
    *("slurmd", "munge", "chronyd", "chrony", "ntpd", "ntp", "ntpsec", "systemd-timesyncd"),
    *("nvidia-fabricmanager", "nvidia-persistenced", "openibd", "rdma-ndd", "autofs", "lldpd"),
)
_UP = {None, "up", "ACTIVE", "active"}
SHARED = re.compile(r"nfs4?|lustre|gpfs|ceph|beegfs|wekafs|pvfs2|9p|fuse\.(?:glusterfs|ceph|juicefs|sshfs)")
_GPU_QUERY = {
    "name": "name",
    "uuid": "uuid",
    "vbios": "vbios_version",
    "memory_mib": "memory.total",
    "pcie_width": "pcie.link.width.current",
    "uncorrected": "ecc.errors.uncorrected.volatile.total",
    "power_limit_w": "power.limit",
    "mig": "mig.mode.current",
}
_REMAP_QUERY = {"remap_pending": "remapped_rows.pending", "remap_failed": "remapped_rows.failure"}


def text(path: Path) -> str:
    """Return a file's text; nothing if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def ran(limit_s: float, *words: str) -> "tuple[int, str]":
    """Return a program's exit status and output, both streams; 127 where it is missing, 124 if it hangs."""
    keep = {name: os.environ[name] for name in ("SLURM_CONF", "SLURM_CONF_SERVER") if name in os.environ}
    path = f"{os.environ.get('PATH', '')}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
            check=False,
            env={"PATH": path, "LC_ALL": "C", "TZ": "UTC", **keep},
        )
    except subprocess.TimeoutExpired:
        return 124, f"{words[0]} gave no answer in {limit_s:g} s"
    except OSError as error:
        return 127, f"{words[0]}: {error.strerror}"
    return done.returncode, done.stdout.decode("utf-8", "replace").strip()


def read(root: Path = Path("/"), services: Names = (), nics: Names = ()) -> Parts:
    """Return what this node is made of, attributes by part; an attribute that nobody tells is missing.

    Services and network devices (bonds, virtual ones) that a person named come to the usual ones.
    """
    parts: Parts = {
        "cpu": {"online": str(os.cpu_count() or "")},
        "memory": {
            "kib": _first(r"^MemTotal:\s+([0-9]+)", text(root / "proc/meminfo")),
            "uncorrected": _sum(root.glob("sys/devices/system/edac/mc/mc*/ue_count")),
        },
        "bios": {"version": text(root / "sys/class/dmi/id/bios_version")},
        "clock": _clock(root),
        **_nics(root, nics),
        **_rdma(root),
        **_gpus(root),
        **_mounts(root),
        **_services([*_SERVICES, *services], root),
    }
    told = {name: {key: value for key, value in of.items() if value} for name, of in parts.items()}
    return {name: of for name, of in told.items() if of}


def _first(pattern: str, words: str) -> str:
    found = re.search(pattern, words, re.M)
    return found.group(1) if found else ""


def _sum(files: Any) -> str:  # noqa: ANN401  (any paths)
    told = [text(file) for file in files]
    return str(sum(int(one) for one in told if one.isdigit())) if told else ""


def _nics(root: Path, named: Names) -> Parts:
    """Return the network devices of this machine's own hardware, but not what a container was given."""
    found = {}
    for entry in sorted(root.glob("sys/class/net/*")):
        own = (entry / "device").exists() and not (entry / "device/physfn").exists()
        if own or entry.name in named:
            speed = text(entry / "speed")  # -1: it does not say
            found[f"nic {entry.name}"] = {
                # Set down by hand, `carrier` cannot be read at all.
                "link": "up" if text(entry / "carrier") == "1" else "down",
                "speed_mbps": speed if speed.isdigit() else "",
                "pcie_gt_s": _first(r"^([0-9.]+) GT/s", text(entry / "device/current_link_speed")),
                "pcie_width": _first(r"^([1-9][0-9]*)$", text(entry / "device/current_link_width")),
            }
    return found


def _rdma(root: Path) -> Parts:
    found = {}
    for port in sorted(root.glob("sys/class/infiniband/*/ports/[0-9]*")):
        device = port.parents[1]
        name = f"rdma {device.name}" + (f" port {port.name}" if port.name != "1" else "")
        found[name] = {
            "state": _first(r"^[0-9]+: (\w+)", text(port / "state")),
            "rate_gbps": _first(r"^([0-9.]+) Gb/sec", text(port / "rate")),
            "firmware": text(device / "fw_ver"),
        }
    return found


def _gpus(root: Path) -> Parts:
    """Return NVIDIA's GPUs: those on PCI, whatever their driver says, and what it says of each."""
    on_pci = [
        folder
        for folder in root.glob("sys/bus/pci/devices/*")
        if text(folder / "vendor") == "0x10de" and text(folder / "class").startswith("0x03")
    ]
    if not on_pci and not (root / "proc/driver/nvidia").exists():
        return {}
    found: Parts = {"gpus": {"count": str(len(on_pci) or "")}}
    query = {**_GPU_QUERY, **_REMAP_QUERY}
    columns = ",".join(["pci.bus_id", *query.values()])
    status, said = ran(_GPU_TOOL_S, "nvidia-smi", f"--query-gpu={columns}", "--format=csv,noheader,nounits")
    # Without a driver here, none was accepted: nothing is missing. One that hangs is no answer.
    found["gpus"]["driver"] = {0: "answers", 124: ""}.get(status, "does not answer")
    for row in said.splitlines() if status == 0 else ():
        place, *values = [value.strip() for value in row.split(",")]
        if len(values) == len(query):
            told = {k: v for k, v in zip(query, values) if v not in ("[N/A]", "N/A")}  # noqa: B905  (3.9)
            found[f"gpu {place[-12:].lower()}"] = told
    links = ran(_GPU_TOOL_S, "nvidia-smi", "nvlink", "--status")[1] if status == 0 else ""
    for block in re.findall(r"^GPU [0-9]+:.*(?:\n(?!GPU).*)*", links, re.M):
        uuid = _first(r"\(UUID: (\S+?)\)", block)
        for of in found.values():
            if uuid and of.get("uuid") == uuid:
                of["nvlinks"] = str(len(re.findall(r"^\s*Link [0-9]+: [0-9.]+ GB/s", block, re.M)))
    return found


def _mounts(root: Path) -> Parts:
    """Return shared file systems, and those of fstab; what automount brings and takes is left out."""
    lines = [line.split() for line in text(root / "proc/self/mounts").splitlines()]
    wanted = {line.split()[1] for line in text(root / "etc/fstab").splitlines() if len(line.split()) > 2}
    automatic = [words[1] for words in lines if words[2] == "autofs"]
    found = {}
    for _, place, kind, options, *_ in lines:
        if any(place.startswith(f"{above.rstrip('/')}/") for above in automatic):
            continue
        if SHARED.fullmatch(kind) or (place in wanted and kind not in ("autofs", "tmpfs", "swap")):
            found[f"mount {place}"] = {"mode": options.split(",")[0], "type": kind}
    return found


def _clock(root: Path) -> "dict[str, str]":
    """Return whether the kernel's clock is synchronised (adjtimex(2): TIME_ERROR is 5)."""
    uptime_s = float((text(root / "proc/uptime") or "0").split()[0])
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return {}
    known = "yes" if 0 <= state < 5 else "" if state < 0 or uptime_s < _SETTLES_S else "no"
    return {"synchronised": known}


def _services(names: "list[str]", root: Path) -> Parts:
    """Return the state of services, as systemd has it; of none if it does not answer."""
    if not (root / "run/systemd/system").exists():
        return {}
    said = ran(_TOOL_S, "systemctl", "is-active", *names)[1].splitlines()
    states = dict(zip(names, said)) if len(said) == len(names) else {}  # noqa: B905  (3.9)
    return {f"service {name}": {"state": state} for name, state in states.items()}


def worse(accepted: Parts, now: Parts) -> "tuple[list[str], list[str]]":
    """Return what is worse than accepted, in words, and what is only another or unread."""
    bad: list[str] = []
    told: list[str] = []
    for part, was in accepted.items():
        kind, name = part.split(" ")[0], part.replace("nic ", "").replace("service ", "")
        held = _HELD.get(kind, {})
        here = now.get(part)
        if here is None:
            # Where the driver says nothing of any GPU, that is what is worse.
            silent = kind == "gpu" and now.get("gpus", {}).get("driver") != "answers"
            gone = kind in _PARTS and not silent
            (bad if gone else told).append(f"{part} is gone" if gone else f"{part} cannot be read")
            continue
        for key, value in was.items():
            label, unit = key.replace("_mbps", "").replace("_", " "), _UNITS.get(key, "")
            if key not in here:
                told.append(f"{name}: {label} cannot be read, {value}{unit} was accepted")
            elif here[key] != value:
                words = f"{name}: {label} {here[key]}{unit}, {value}{unit} accepted"
                (bad if key in held and _is_worse(*held[key], here[key], value) else told).append(words)
    return bad, told


def _is_worse(how: str, tolerance: float, now: str, accepted: str) -> bool:
    if how == "was":
        # What was bad when it was accepted cannot get worse.
        return accepted in (*_UP, "answers", "rw", "yes", "No", "0")
    try:
        here, was = float(now), float(accepted)
    except ValueError:
        return False
    return here < was * (1 - tolerance) if how == "less" else here > was


class Slurm:
    """This node as Slurm has it."""

    def __init__(self, node: str) -> None:
        self.node = node

    def states(self, node: str = "") -> "dict[str, tuple[str, str, str]]":
        """Return state, time and words of each node. Raises OSError: Slurm did not answer."""
        of = [f"--nodes={node}"] if node else []
        status, said = ran(_SLURM_S, "sinfo", "--noheader", "--Node", "--format=%N|%T|%H|%E", *of)
        if status:
            raise OSError(f"sinfo: {said.splitlines()[-1] if said else status}")
        rows = [line.split("|", 3) for line in said.splitlines() if line.count("|") >= 3]
        return {row[0].strip(): (row[1].strip(), row[2].strip(), row[3].strip()) for row in rows}

    def _update(self, *words: str) -> None:
        status, said = ran(_SLURM_S, "scontrol", "update", f"NodeName={self.node}", *words)
        if status:
            raise OSError(f"scontrol update: {said.splitlines()[-1] if said else status}")

    def drain(self, reason: str, most: int) -> str:
        """Take this node out, unless somebody has or too many are out by us; return what was done."""
        states = self.states()
        state, _, why = states.get(self.node, ("", "", ""))
        taken = self._ours(states)
        if not state:
            return f"Slurm does not know {self.node}: not drained"
        if _is_out(state) and self.node not in taken[most:]:
            return f"Slurm has it as {state} already ({why})"
        if not _is_out(state):
            if len(taken) >= most:
                return f"not drained: health checks keep {len(taken)} nodes out, --most {most}"
            try:
                DRAINED.parent.mkdir(parents=True, exist_ok=True)
                _write(DRAINED, {"reason": reason, "at": time.time()})
            except OSError as error:  # a root that is read-only: a person gives it back
                print(f"{DRAINED}: {error.strerror}: it will not be resumed by itself")
            self._update("State=DRAIN", f"Reason={reason}")
            taken = self._ours(self.states())
        # Several may have counted at one moment: those who were last give way, now or at their next check.
        if self.node in taken[most:]:
            self._update("State=RESUME")
            _forget()
            return f"given back: other nodes' checks were first, --most {most}"
        return f"drained: {reason}"

    @staticmethod
    def _ours(states: "dict[str, tuple[str, str, str]]") -> "list[str]":
        ours = [
            (at, node)
            for node, (state, at, why) in states.items()
            if _is_out(state) and why.startswith(PREFIX)
        ]
        return [node for _, node in sorted(ours)]

    def resume(self, hold_s: float) -> str:
        """Give this node back if its drain is ours, unchanged and old enough; return what was done."""
        try:
            note = json.loads(DRAINED.read_bytes().decode())
            reason, at = str(note["reason"]), float(note["at"])
        except FileNotFoundError:
            return ""  # Slurm is not even asked
        except (ValueError, KeyError, TypeError):
            reason, at = "", 0.0
        state, _, why = self.states(self.node).get(self.node, ("", "", ""))
        if "drain" not in state or why != reason:
            _forget()
            return f"left as it is: Slurm has it as {state or 'unknown'} ({why}), which is not our drain"
        if 0 <= time.time() - at < hold_s:
            return f"well again; stays drained for {hold_s:g} s"
        self._update("State=RESUME")
        _forget()
        return f"well again: resumed ({reason})"


def _forget() -> None:
    if DRAINED.exists():
        DRAINED.unlink()


def _is_out(state: str) -> bool:
    return any(word in state for word in ("drain", "down", "fail", "maint", "reboot", "unknown"))


def _write(path: Path, document: "dict[str, Any]") -> None:
    """Write a file whole or not at all, for all to read."""
    aside = path.with_name(path.name + ".new")
    with aside.open("w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def accepted() -> "tuple[Parts, dict[str, Names]]":
    """Return the parts that were accepted, and the services and network devices that a person named.

    Raises OSError, ValueError, KeyError, TypeError or AttributeError: there are none, or they are damaged.
    """
    document = json.loads(ACCEPTED.read_bytes().decode())
    parts, named = document["parts"], document["named"]
    told = all(isinstance(of, dict) and all(isinstance(v, str) for v in of.values()) for of in parts.values())
    lists = sorted(named) == ["nics", "services"] and all(isinstance(of, list) for of in named.values())
    if document["schema"] != 1 or not told or not lists:
        raise ValueError(f"{ACCEPTED} is not what `accept` writes")
    return parts, named


def main(words: "list[str]") -> int:
    """Do what the words say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("accept", "check", "slurm"))
    parser.add_argument("--service", action="append", default=[], metavar="UNIT", help="hold it too")
    parser.add_argument("--nic", action="append", default=[], metavar="NETDEV", help="hold it too")
    parser.add_argument(
        "--most", type=int, default=_MOST, help="nodes that checks may keep out at once (%(default)s)"
    )
    parser.add_argument(
        "--hold-s", type=float, default=_HOLD_S, help="seconds that a drain lasts (%(default)s)"
    )
    given = parser.parse_args(words)
    try:
        return (
            _accept({"services": given.service, "nics": given.nic})
            if given.what == "accept"
            else _check(given)
        )
    except FileNotFoundError as error:
        said = str(error)
        if str(ACCEPTED) in said:
            said = "nothing is accepted on this node: `accept` keeps its state, once it is as it should be"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    print(f"health: {said}", file=sys.stderr)
    # Slurm would drain a node whose Prolog fails: never for a fault of our own.
    return 0 if given.what == "slurm" else 2


def _accept(named: "dict[str, Names]") -> int:
    seen = read(services=named["services"], nics=named["nics"])
    parts = {name: of for name, of in seen.items() if name[:8] != "service " or of["state"] == "active"}
    down = [name for name, of in parts.items() if not {of.get("link"), of.get("state")} <= _UP]
    ACCEPTED.parent.mkdir(parents=True, exist_ok=True)
    taken = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    _write(ACCEPTED, {"schema": 1, "node": platform.node(), "taken": taken, "named": named, "parts": parts})
    print(f"accepted: {len(parts)} parts, in {ACCEPTED}")
    print(
        *(f"  {part}: {', '.join(f'{k} {v}' for k, v in of.items())}" for part, of in parts.items()), sep="\n"
    )
    if down:
        print(f"not up, and not held: {', '.join(down)}")
    return 0


def _check(given: argparse.Namespace) -> int:
    parts, named = accepted()
    bad, told = worse(parts, read(services=named["services"], nics=named["nics"]))
    for words in bad:
        print(f"worse: {words}")
    for words in told:
        print(f"another: {words}")
    if given.what == "check":
        return 1 if bad else 0
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    reason = re.sub(r"[^ -~]|[|\"'`\\]", "?", f"{PREFIX} {'; '.join(bad)}")[:_MOST_WORDS]
    done = Slurm(name).drain(reason, given.most) if bad else Slurm(name).resume(given.hold_s)
    if done:
        print(done)
        ran(_TOOL_S, "logger", "-t", "shakedown-health", done)
    in_prolog = os.environ.get("SLURM_SCRIPT_CONTEXT", "").startswith("prolog")
    return 1 if bad and in_prolog else 0


if __name__ == "__main__":
    if globals().get("__package__"):  # not the copy on a node, where nothing else of us is
        from shakedown.records.program import ended

        ended(lambda: main(sys.argv[1:]))
    sys.exit(main(sys.argv[1:]))

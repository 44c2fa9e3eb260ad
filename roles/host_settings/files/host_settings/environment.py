"""What programs on the host read: the traffic class for NCCL, UCX, perftest and job scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from host_settings.desired import BadDesired, Roce
from host_settings.model import Action, Item, NotApplicable, Run, Setting, Value, WriteFile
from host_settings.system import System

ENV_FILE = "/etc/shakedown/roce.env"
PROFILE_FILE = "/etc/profile.d/shakedown-roce.sh"
NCCL_FILE = "/etc/nccl.conf"
# Locked memory: what RDMA registers is locked, and a limit of 8 MiB (Linux 5.16; 64 KiB before) refuses it.
# pam_limits reads the first (limits.conf(5)); jobs inherit slurmd's own limit (Slurm FAQ, "memlock"), which
# systemd sets (systemd.exec(5), LimitMEMLOCK).
LIMITS_FILE = "/etc/security/limits.d/90-shakedown-memlock.conf"
SLURMD_FILE = "/etc/systemd/system/slurmd.service.d/90-shakedown-memlock.conf"
_LIMITS_TEXT = "# Written by host-settings.\n* soft memlock unlimited\n* hard memlock unlimited\n"
_SLURMD_TEXT = "# Written by host-settings.\n[Service]\nLimitMEMLOCK=infinity\n"
_NCCL_KEY = "NCCL_IB_TC"
# Where jobs without privileges read settings back and what only root may read, count packets, and have their
# outputs signed.
SIGN_SOCKET = "host-settings-sign.socket"
_SOCKETS = (
    "host-settings-report.socket",
    "host-settings-arrivals.socket",
    "host-settings-node.socket",
    SIGN_SOCKET,
)
# And what reads the NICs' modules for them, when nobody asks.
_UNITS = (*_SOCKETS, "host-settings-modules.timer")


def env_text(roce: Roce) -> str:
    """The file that job scripts source. GID indices are left to the programs: they differ by host."""
    return (
        "# Written by host-settings from the fabric intent: the traffic class of verbs programs.\n"
        f"export SHAKEDOWN_ROCE_TCLASS={roce.tos}\n"
        f"export NCCL_IB_TC={roce.tos}\n"
        f"export UCX_IB_TRAFFIC_CLASS={roce.tos}\n"
    )


def profile_text() -> str:
    """Login shells source the same file."""
    return f"# Written by host-settings.\n[ -r {ENV_FILE} ] && . {ENV_FILE}\n"


def nccl_value(text: str | None) -> str | None:
    """The value of NCCL_IB_TC in nccl.conf; the last one counts."""
    values = re.findall(rf"^\s*{_NCCL_KEY}\s*=\s*(.*?)\s*$", text or "", re.M)
    return values[-1] if values else None


def nccl_with(text: str | None, value: str | None) -> str | None:
    """nccl.conf with that value; all other lines stay. None if nothing is left."""
    lines = [line for line in (text or "").splitlines() if not re.match(rf"\s*{_NCCL_KEY}\s*=", line)]
    if value is not None:
        lines.append(f"{_NCCL_KEY}={value}")
    return "\n".join(lines) + "\n" if lines else None


def read(system: System) -> dict[str, Any]:
    """The files as they are; None where there is none."""
    files = (ENV_FILE, PROFILE_FILE, NCCL_FILE, LIMITS_FILE, SLURMD_FILE)
    found: dict[str, Any] = {path: _text(system, path) for path in files}
    found["memlock.slurmd"] = _slurmd_limit(system)
    found["live"] = system.root == Path("/")
    found["clock"] = system.clock()
    return {**found, **{unit: unit_state(system, unit) for unit in _UNITS}}


def unit_state(system: System, unit: str) -> str | None:
    """Whether a unit is enabled and active; None in a recorded tree."""
    if system.root != Path("/"):
        return None
    states = [system.run("systemctl", verb, unit).out.strip() for verb in ("is-enabled", "is-active")]
    return " ".join(states)


def _text(system: System, path: str) -> str | None:
    try:
        return system.path(path).read_text()
    except FileNotFoundError:
        return None


def _slurmd_limit(system: System) -> str | None:
    """The limit of locked memory that a running slurmd gives its jobs, as /proc has it; None: no slurmd."""
    for process in filter(str.isdigit, system.names("/proc")):
        if system.read(f"/proc/{process}/comm") == "slurmd":
            limits = system.read(f"/proc/{process}/limits") or ""
            match = re.search(r"^Max locked memory\s+(\S+)", limits, re.M)
            return match[1] if match else None
    return None


def parse_memlock(data: Mapping[str, Any]) -> str:
    """Whether locked memory must have no limit. Raises BadDesired."""
    memlock = data.get("memlock", "keep")
    if memlock not in ("unlimited", "keep"):
        raise BadDesired(f"memlock is {memlock!r} -- use unlimited or keep")
    return str(memlock)


def parse_clock(data: Mapping[str, Any]) -> str:
    """Whether the clock must be synchronised. Raises BadDesired."""
    clock = data.get("clock", "keep")
    if clock not in ("synchronised", "keep"):
        raise BadDesired(f"clock is {clock!r} -- use synchronised or keep")
    return str(clock)


def _memlock_items(found: Mapping[str, Any], memlock: str) -> list[Item]:
    """Locked memory of logins and of jobs. A node without slurmd has no limit of jobs to change."""
    if memlock == "keep":
        return [NotApplicable("memlock", "the role leaves it")]

    def of_slurmd(value: Value) -> tuple[Action, ...]:
        # slurmd takes a limit when it starts; jobs are slurmstepd's and go on.
        again = Run(("systemctl", "daemon-reload")), Run(("systemctl", "try-restart", "slurmd.service"))
        return (WriteFile(SLURMD_FILE, value), *(again if found["live"] else ()))

    limits = Setting(
        f"file:{LIMITS_FILE}", found[LIMITS_FILE], _LIMITS_TEXT, lambda v: (WriteFile(LIMITS_FILE, v),)
    )
    limit = found["memlock.slurmd"]
    if limit is None:
        return [limits, NotApplicable("memlock.slurmd", "no slurmd runs here")]
    return [
        limits,
        Setting(
            f"file:{SLURMD_FILE}",
            found[SLURMD_FILE],
            _SLURMD_TEXT,
            of_slurmd,
            interrupts="slurmd, for an instant; its jobs go on",
        ),
        Setting("memlock.slurmd", limit, "unlimited", hint="it takes its limit when it starts"),
    ]


def unit_item(unit: str, found: str | None) -> Item:
    """A unit that should be enabled and active; what it was before can be brought back."""

    def serve(value: str) -> tuple[Action, ...]:
        verb = "enable" if value == "enabled active" else "disable"
        return (Run(("systemctl", "--quiet", verb, "--now", unit)),)

    if found is None:
        return NotApplicable(unit, "a recorded tree runs no services")
    return Setting(unit, found, "enabled active", serve)


def items(found: dict[str, Any], roce: Roce, clock: str = "keep", memlock: str = "keep") -> list[Item]:
    """What should be, beside what is."""

    def whole(path: str, wanted: str) -> Setting:
        return Setting(f"file:{path}", found[path], wanted, lambda v: (WriteFile(path, v),))

    def nccl(value: str | None) -> tuple[Action, ...]:
        return (WriteFile(NCCL_FILE, nccl_with(found[NCCL_FILE], value)),)

    return [
        *(unit_item(unit, found[unit]) for unit in _UNITS),
        whole(ENV_FILE, env_text(roce)),
        whole(PROFILE_FILE, profile_text()),
        Setting("clock", found["clock"], "synchronised")
        if clock == "synchronised"
        else NotApplicable("clock", "the role leaves it"),
        *_memlock_items(found, memlock),
        Setting(f"env.{_NCCL_KEY}", nccl_value(found[NCCL_FILE]), str(roce.tos), nccl),
    ]

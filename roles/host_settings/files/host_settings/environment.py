"""What programs on the host read: the traffic class for NCCL, UCX, perftest and job scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from host_settings.desired import BadDesired, Roce
from host_settings.model import Action, Item, NotApplicable, Run, Setting, WriteFile
from host_settings.system import System

ENV_FILE = "/etc/shakedown/roce.env"
PROFILE_FILE = "/etc/profile.d/shakedown-roce.sh"
NCCL_FILE = "/etc/nccl.conf"
_NCCL_KEY = "NCCL_IB_TC"
# Where jobs without privileges read settings back and what only root may read, count packets, and have their
# outputs signed.
_SOCKETS = (
    "host-settings-report.socket",
    "host-settings-arrivals.socket",
    "host-settings-node.socket",
    "host-settings-sign.socket",
)


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
    found: dict[str, Any] = {path: _text(system, path) for path in (ENV_FILE, PROFILE_FILE, NCCL_FILE)}
    found["clock"] = system.clock()
    for unit in _SOCKETS:
        found[unit] = None
        if system.root == Path("/"):
            states = [system.run("systemctl", verb, unit).out.strip() for verb in ("is-enabled", "is-active")]
            found[unit] = " ".join(states)
    return found


def _text(system: System, path: str) -> str | None:
    try:
        return system.path(path).read_text()
    except FileNotFoundError:
        return None


def parse_clock(data: Mapping[str, Any]) -> str:
    """Whether the clock must be synchronised. Raises BadDesired."""
    clock = data.get("clock", "keep")
    if clock not in ("synchronised", "keep"):
        raise BadDesired(f"clock is {clock!r} -- use synchronised or keep")
    return str(clock)


def items(found: dict[str, Any], roce: Roce, clock: str = "keep") -> list[Item]:
    """What should be, beside what is."""

    def whole(path: str, wanted: str) -> Setting:
        return Setting(f"file:{path}", found[path], wanted, lambda v: (WriteFile(path, v),))

    def nccl(value: str | None) -> tuple[Action, ...]:
        return (WriteFile(NCCL_FILE, nccl_with(found[NCCL_FILE], value)),)

    def service(unit: str) -> Item:
        def serve(value: str) -> tuple[Action, ...]:
            verb = "enable" if value == "enabled active" else "disable"
            return (Run(("systemctl", "--quiet", verb, "--now", unit)),)

        if found[unit] is None:
            return NotApplicable(unit, "a recorded tree runs no services")
        return Setting(unit, found[unit], "enabled active", serve)

    return [
        *map(service, _SOCKETS),
        whole(ENV_FILE, env_text(roce)),
        whole(PROFILE_FILE, profile_text()),
        Setting("clock", found["clock"], "synchronised")
        if clock == "synchronised"
        else NotApplicable("clock", "the role leaves it"),
        Setting(f"env.{_NCCL_KEY}", nccl_value(found[NCCL_FILE]), str(roce.tos), nccl),
    ]

"""How long a NIC collects packets before it interrupts a CPU, where the site asks for a time of its own.

It delays no RDMA, whose completions have a moderation of their own; it is for TCP beside it, and for a site
that wants all nodes alike. Source: ethtool(8), -c and -C.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from host_settings.model import Action, Item, NotApplicable, Run, Setting, Value


def read(text: str | None) -> dict[str, Any] | None:
    """Return what `ethtool -c` says; None: the driver has no such thing."""
    if text is None:
        return None
    adaptive = re.search(r"^Adaptive RX:\s+(on|off|n/a)\b", text, re.M)
    usecs = re.search(r"^rx-usecs:\s+(\d+)\s*$", text, re.M)
    return {"adaptive": adaptive[1] if adaptive else "n/a", "usecs": int(usecs[1]) if usecs else None}


def settings(found: Mapping[str, Any] | None, dev: str, usecs: int | None) -> list[Item]:
    """What should be, beside what is; nothing unless it is asked.

    Adaptive moderation would overrule the time, so it goes off first.
    """
    if usecs is None:
        return []
    if found is None or found["usecs"] is None:
        return [NotApplicable("coalesce", "the driver has no interrupt moderation to set")]

    def adaptive(value: Value) -> tuple[Action, ...]:
        return (Run(("ethtool", "-C", dev, "adaptive-rx", str(value))),)

    def time(value: Value) -> tuple[Action, ...]:
        return (Run(("ethtool", "-C", dev, "rx-usecs", str(value))),)

    own: list[Item] = [Setting("coalesce.adaptive_rx", found["adaptive"], "off", adaptive)]
    if found["adaptive"] == "n/a":
        own = []
    return [*own, Setting("coalesce.rx_usecs", found["usecs"], usecs, time)]

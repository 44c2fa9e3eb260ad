"""What the NICs' optical modules say of themselves, as the node's own reader has left it. Standard library.

The reader is a timer of roles/host_settings: `ethtool -m` takes a right that jobs do not have. What it left
is read here in no time, so a job's reading of counters is not slowed down by modules' slow buses.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

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

"""How a leaf's traffic spread over its uplinks: what each carried, what carried none, how even it was. Pure.

An uplink that is down costs capacity and no packet: routing goes round it, and no counter of errors moves. It
shows by what it did not carry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

# Of an uplink: 1 if it carried nothing one way or the other while the leaf's others did, else 0.
IDLE = "idle_uplink"
# Of an uplink: what it sent, and received, of what it could, over the time between the two readings.
SENT, RECEIVED = "tx_utilisation_percent", "rx_utilisation_percent"
# Of a leaf: the busiest uplink less the quietest, over their mean, by what they sent for their rate.
IMBALANCE = "uplink_imbalance_percent"
OF_UPLINK, OF_LEAF = (IDLE, SENT, RECEIVED), (IMBALANCE,)
UPLINK_COUNTERS = (*OF_UPLINK, *OF_LEAF)
# What they are made from.
NEEDED = ("tx_bytes", "rx_bytes")
# Less than this part of its siblings' mean is routing protocols' chatter.
_IDLE_SHARE = 0.01
# Below this mean rate the leaf's uplinks carried no test at all: nothing can be said of any. 10^9 bit/s.
_QUIET_GBPS = 1e-4


@dataclass(frozen=True)
class Carried:
    """What one uplink carried between two readings; None: it was not read twice.

    Attributes:
        speed_gbps: its rate, 10^9 bit/s.
        tx_bytes, rx_bytes: as the leaf counts them.
    """

    speed_gbps: float
    tx_bytes: int | None
    rx_bytes: int | None

    def share(self, way: str, seconds: float) -> float | None:
        """Return what it sent (`tx`) or received (`rx`) of what it could."""
        moved = self.tx_bytes if way == "tx" else self.rx_bytes
        return None if moved is None or seconds <= 0 else 8e-9 * moved / seconds / self.speed_gbps


def spread(
    uplinks: Mapping[str, Carried], seconds: float
) -> tuple[dict[str, dict[str, int | None]], int | None]:
    """Return by uplink its counters (OF_UPLINK), and the leaf's imbalance; None: not known.

    Args:
        uplinks: by port.
        seconds: between the two readings.
    """
    found: dict[str, dict[str, int | None]] = {}
    idle: dict[str, list[bool | None]] = {port: [] for port in uplinks}
    for way in ("tx", "rx"):
        shares = {port: one.share(way, seconds) for port, one in uplinks.items()}
        known = [share for share in shares.values() if share is not None]
        mean = sum(known) / len(known) if known else 0.0
        speed = max((one.speed_gbps for one in uplinks.values()), default=0.0)
        for port, share in shares.items():
            # One uplink alone has no sibling that shows what it should have carried.
            quiet = len(known) < 2 or mean * speed < _QUIET_GBPS
            idle[port].append(None if share is None else not quiet and share < _IDLE_SHARE * mean)
            name = SENT if way == "tx" else RECEIVED
            found.setdefault(port, {})[name] = None if share is None else round(100 * share)
    for port, ways in idle.items():
        found[port][IDLE] = None if None in ways else int(any(ways))
    return found, _imbalance([one.share("tx", seconds) for one in uplinks.values()])


def _imbalance(shares: Sequence[float | None]) -> int | None:
    known = [share for share in shares if share is not None]
    if len(known) < len(shares) or len(known) < 2 or not sum(known):
        return None if len(known) < len(shares) else 0
    return ceil(100 * (max(known) - min(known)) * len(known) / sum(known))

"""What the host's end of a cable says of itself, from its settings report during the config stage."""

from __future__ import annotations

from typing import Any

from shakedown.benchmarks.config.settings import TargetReport
from shakedown.nos.cable_ends import seen
from shakedown.nos.crosscheck import End
from shakedown.nos.system import Neighbours


def host_end(report: TargetReport, heard: Neighbours | None = None) -> End:
    """Return what a host's NIC says of itself. A setting that it lacks is None."""
    found = {setting.key: setting.found for setting in report.settings}
    fields: dict[str, Any] = {
        "mtu_bytes": found.get("mtu.host_bytes"),
        "speed_gbps": found.get("link.speed_gbps"),
        "fec": found.get("link.fec"),
    }
    if "pfc.priorities" in found:
        fields["pfc_priorities"] = frozenset(found["pfc.priorities"])
    if "dscp.map" in found:
        fields["dscp_map"] = _host_map(str(found["dscp.map"]))
    return End(neighbours=seen(heard, report.target), **fields)


def _host_map(text: str) -> dict[int, int]:
    """Read `0-25:0 26:3 27-63:0`."""
    mapping = {}
    for part in text.split():
        dscps, _, priority = part.partition(":")
        first, _, last = dscps.partition("-")
        for dscp in range(int(first), int(last or first) + 1):
            mapping[dscp] = int(priority)
    return mapping

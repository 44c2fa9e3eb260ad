"""What is read of NICs: one line a source of counters."""

from __future__ import annotations

# By the tool's name: module and function that read its output.
SOURCES = {
    "ethtool": ("shakedown.nics.ethtool", "parse_ethtool"),
    "rdma": ("shakedown.nics.rdma", "parse_rdma"),
}

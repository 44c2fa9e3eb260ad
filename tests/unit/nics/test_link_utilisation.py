"""How full a NIC's line was over a job, from the counters of its port."""

import pytest

from shakedown.collect.counters import nic_readings
from shakedown.nics.rates import RECEIVED, SENT, rates
from shakedown.records.base import NicSpec
from shakedown.run.nic_counters import About, NodeCounters
from tests.kit.cases import cases

# ib_read_bw as published: 390.89 Gb/s of payload for 2 min at 400G, in packets of 4096 bytes.
SECONDS, PAYLOAD = 120, 4096
FRAMES = round(390.89e9 / 8 * SECONDS / PAYLOAD)
# Ethernet with check sum 18, IPv4 20, UDP 8, BTH 12, ICRC 4; then preamble and gap of 20.
OCTETS = FRAMES * (PAYLOAD + 62)
FILLED = 390.89 * (PAYLOAD + 82) / PAYLOAD / 400


def around(octets: str, frames: str) -> tuple[dict[str, int], dict[str, int]]:
    """Readings of counters that ran on from before; each way has its own names."""
    before = {name.format(way): 10**12 for name in (octets, frames) for way in ("rx", "tx")}
    after = dict(before)
    after[octets.format("rx")] += OCTETS
    after[frames.format("rx")] += FRAMES
    return before, after


@cases(
    "octets, frames",
    ("ethtool.{}_bytes_phy", "ethtool.{}_packets_phy"),
    ("ethtool.{}_bytes", "ethtool.{}_good_frames"),
    ids=["mlx5", "bnxt"],
)
def test_the_published_read_fills_the_line(octets, frames):
    """Catches: preambles, gaps or headers left out, so that a full link reads as 98 or 99.3 %."""
    before, after = around(octets, frames)
    found = rates(before, after, SECONDS, 400_000)
    assert found[RECEIVED] == pytest.approx(1e6 * FILLED, abs=2)
    assert round(found[RECEIVED] / 1e4) == 100  # as published: 99 to 100 %
    assert found[SENT] == 0


def test_what_mlx5_calls_bytes_beside_the_port_is_not_the_line():
    """Catches: the netdev's own bytes, which lack RDMA's, taken for those of the port."""
    before, after = around("ethtool.{}_bytes_phy", "ethtool.{}_packets_phy")
    for reading in (before, after):
        reading["ethtool.rx_bytes"] = 5
    assert rates(before, after, SECONDS, 400_000)[RECEIVED] == pytest.approx(1e6 * FILLED, abs=2)


@pytest.mark.parametrize("lacks", ["ethtool.rx_bytes_phy", "ethtool.rx_packets_phy"])
def test_a_line_of_which_half_is_told_has_no_share(lacks):
    """Catches: 0 for a NIC that does not tell it, or one put together from bytes alone."""
    before, after = around("ethtool.{}_bytes_phy", "ethtool.{}_packets_phy")
    del after[lacks]
    assert RECEIVED not in rates(before, after, SECONDS, 400_000)
    before, after = around("ethtool.{}_bytes_phy", "ethtool.{}_packets_phy")
    assert RECEIVED not in rates(before, after, SECONDS, None)


def test_a_job_tells_it_of_its_nic():
    """Catches: a share that is worked out and in no line of counters.jsonl."""
    both = around("ethtool.{}_bytes_phy", "ethtool.{}_packets_phy")
    readings = [
        NodeCounters(
            {"mlx5_0": counters}, about={"mlx5_0": About("mlx5_core", 4, 400_000, 50.0 + at * SECONDS)}
        )
        for at, counters in enumerate(both)
    ]
    nic = NicSpec(rail="rail0", rdma_device="mlx5_0", netdev="eth0", ipv4="10.10.0.1")
    found = nic_readings(*readings, nic, began_anew=False)
    assert found[RECEIVED] == (0, pytest.approx(1e6 * FILLED, abs=2))
    assert RECEIVED not in nic_readings(*readings, nic, began_anew=True)

"""The RoCE payload ceilings: every printed figure, and the headers that make them up."""

import pytest

from shakedown.physics import ethernet as roce
from shakedown.physics import host_links
from shakedown.physics.ethernet import RoceOperation, tcp_payload_ceiling_gbps
from shakedown.physics.host_links import Transfer
from shakedown.records.reading import BadInput
from tests.kit.cases import cases

# RDMA MTU, efficiency in %, Gb/s at 100G, 200G, 400G: as published, to the printed digit.
TABLE = [
    (1024, 92.59, 92.59, 185.17, 370.34),
    (2048, 96.15, 96.15, 192.30, 384.60),
    (4096, 98.04, 98.04, 196.07, 392.15),
]


@pytest.mark.parametrize(("mtu", "percent", "at_100", "at_200", "at_400"), TABLE)
def test_table_of_ceilings(mtu, percent, at_100, at_200, at_400):
    """A header forgotten or counted twice shifts every ceiling and with it every gate."""
    assert 100 * roce.payload_efficiency(rdma_mtu_bytes=mtu) == pytest.approx(percent, abs=0.005)
    for speed, printed in ((100, at_100), (200, at_200), (400, at_400)):
        assert roce.payload_ceiling_gbps(speed, rdma_mtu_bytes=mtu) == pytest.approx(printed, abs=0.0051)


def test_per_packet_overhead():
    """IPv6 and VLAN headers that are not paid for make an IPv6 fabric look slow."""
    assert roce.packet_overhead_bytes() == 82
    assert roce.packet_overhead_bytes(ip_version=6) == 102
    assert roce.packet_overhead_bytes(vlan=True) == 86


def test_a_published_read_result_is_99_69_percent_of_the_read_ceiling():
    """390.89 Gb/s of ib_read_bw, 64 KiB: no AETH would give 99.68 %, AETH per packet 99.77 %."""
    ceiling = roce.payload_ceiling_gbps(
        400, rdma_mtu_bytes=4096, operation=RoceOperation.READ, message_bytes=65536
    )
    assert 100 * 390.89 / ceiling == pytest.approx(99.69, abs=0.005)


@cases(
    "operation, message, wire",
    (RoceOperation.WRITE, 4096, 4096 + 82 + 16),  # RETH once, also on an "only" packet
    (RoceOperation.WRITE, 65536, 65536 + 16 * 82 + 16),
    (RoceOperation.SEND, 65536, 65536 + 16 * 82),
    (RoceOperation.READ, 4096, 4096 + 82 + 4),  # first and last packet are the same one
    (RoceOperation.READ, 8192, 8192 + 2 * 82 + 8),
    (RoceOperation.READ, 65536, 65536 + 16 * 82 + 8),
    (RoceOperation.SEND, 5, 8 + 82),  # padded to four bytes
    (RoceOperation.SEND, 4097, 4100 + 2 * 82),
)
def test_extension_headers_and_padding(operation, message, wire):
    """RETH per packet, or AETH on every READ response, would put the ceiling below true results."""
    assert roce.message_wire_bytes(message, rdma_mtu_bytes=4096, operation=operation) == wire


def test_a_ceiling_never_rises_when_the_message_gets_shorter_by_whole_packets():
    """A ceiling of short messages above the endless one would let an impossible result pass."""
    endless = roce.payload_ceiling_gbps(400, rdma_mtu_bytes=4096)
    for operation in RoceOperation:
        previous = 0.0
        for packets in (1, 2, 4, 64, 4096):
            ceiling = roce.payload_ceiling_gbps(
                400, rdma_mtu_bytes=4096, operation=operation, message_bytes=4096 * packets
            )
            assert previous <= ceiling <= endless
            previous = ceiling


@pytest.mark.parametrize(("ethernet", "rdma"), [(9000, 4096), (4200, 4096), (4096, 2048), (1500, 1024)])
def test_rdma_mtu_follows_the_kernel(ethernet, rdma):
    """A netdev of MTU 4096 has no room for RDMA MTU 4096: a plan that assumes it would fail good hardware."""
    assert roce.rdma_mtu_bytes(ethernet) == rdma


def test_mtu_signatures_at_400g():
    """The rates by which a wrong MTU is recognised: at most 370.3 and 384.6 Gb/s."""
    assert roce.payload_ceiling_gbps(400, rdma_mtu_bytes=1024) == pytest.approx(370.3, abs=0.05)
    assert roce.payload_ceiling_gbps(400, rdma_mtu_bytes=2048) == pytest.approx(384.6, abs=0.05)


@cases(
    "call",
    lambda: roce.payload_ceiling_gbps(400, rdma_mtu_bytes=9000),
    lambda: roce.payload_ceiling_gbps(0, rdma_mtu_bytes=4096),
    lambda: roce.payload_ceiling_gbps(float("nan"), rdma_mtu_bytes=4096),
    lambda: roce.payload_ceiling_gbps(400, rdma_mtu_bytes=4096, ip_version=5),
    lambda: roce.message_wire_bytes(0, rdma_mtu_bytes=4096),
    lambda: roce.rdma_mtu_bytes(64),
)
def test_nonsense_is_refused(call):
    """A ceiling of 0 or NaN would make the comparison with it meaningless instead of failing."""
    with pytest.raises(BadInput):
        call()


@pytest.mark.parametrize(
    ("generation", "raw", "mps_256", "mps_512"),
    [(3, 15.75, 14.61, 15.16), (4, 31.51, 29.22, 30.32), (5, 63.02, 58.45, 60.65)],
)
def test_x16_raw_and_completions(generation, raw, mps_256, mps_512):
    """A wrong encoding or TLP overhead moves every host-to-device ceiling."""
    assert host_links.raw_gb_per_s(generation, 16) == pytest.approx(raw, abs=0.0051)
    for mps, printed in ((256, mps_256), (512, mps_512)):
        ceiling = host_links.payload_ceiling_gb_per_s(generation, 16, max_payload_bytes=mps)
        assert ceiling == pytest.approx(printed, abs=0.0051)


def test_generation_6_counts_flits():
    """Generation 6 has no 128b/130b: 14 of 256 B are CRC and FEC, which gives the published 121 GB/s."""
    assert host_links.raw_gb_per_s(6, 16) == pytest.approx(121, abs=0.05)
    assert host_links.payload_ceiling_gb_per_s(6, 16, max_payload_bytes=256) < 118


def test_a_400g_nic_behind_a_downtrained_link_cannot_exceed_233_8_gbps():
    """The signature of Gen4 x16 or Gen5 x8 under a 400G NIC."""
    for generation, width in ((4, 16), (5, 8)):
        gbps = 8 * host_links.payload_ceiling_gb_per_s(generation, width, max_payload_bytes=256)
        assert gbps == pytest.approx(233.8, abs=0.05)


def test_writes_to_host_memory_cost_a_longer_header():
    """Using the completion header for both directions would put the D2H ceiling too high."""
    d2h = host_links.payload_ceiling_gb_per_s(5, 16, max_payload_bytes=256, transfer=Transfer.D2H)
    assert d2h == pytest.approx(63.0154 * 256 / 280, abs=0.001)


def test_measured_h200_rates_lie_below_their_ceilings():
    """A ceiling below a real, plausible measurement would fail good hardware."""
    assert host_links.payload_ceiling_gb_per_s(5, 16, max_payload_bytes=256) > 55.5
    assert host_links.payload_ceiling_gb_per_s(5, 16, max_payload_bytes=256, transfer=Transfer.D2H) > 55.4


@pytest.mark.parametrize(("generation", "width", "mps"), [(7, 16, 256), (5, 12, 256), (5, 16, 300)])
def test_links_that_do_not_exist_are_refused(generation, width, mps):
    """A typing error in a reference must not become a plausible ceiling."""
    with pytest.raises(BadInput):
        host_links.payload_ceiling_gb_per_s(generation, width, max_payload_bytes=mps)


@pytest.mark.parametrize(
    ("speed", "mtu", "ip", "gbps"),
    [(10, 1500, 4, 10 * 1448 / 1538), (10, 9000, 4, 10 * 8948 / 9038), (100, 1500, 6, 100 * 1428 / 1538)],
)
def test_ceiling_is_link_less_headers(speed, mtu, ip, gbps):
    """Catches: a header that is left out or counted twice; 9.41 Gb/s of 10GbE is common knowledge."""
    assert tcp_payload_ceiling_gbps(speed, mtu_bytes=mtu, ip_version=ip) == pytest.approx(gbps)


@pytest.mark.parametrize(
    ("speed", "mtu", "ip"), [(0, 1500, 4), (float("inf"), 1500, 4), (10, 40, 4), (10, 1500, 5)]
)
def test_no_ceiling_of_nothing(speed, mtu, ip):
    """Catches: a ceiling below zero or without end, under which nothing or everything passes."""
    with pytest.raises(BadInput):
        tcp_payload_ceiling_gbps(speed, mtu_bytes=mtu, ip_version=ip)

"""PCIe ceilings: every printed figure, and the directions that differ."""

import pytest

from shakedown.physics import host_links
from shakedown.physics.host_links import Transfer
from shakedown.records.errors import BadInput


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

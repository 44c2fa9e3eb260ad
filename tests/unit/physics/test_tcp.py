"""What TCP can carry over an Ethernet link."""

import pytest

from shakedown.physics.ethernet import tcp_payload_ceiling_gbps
from shakedown.records.errors import BadInput


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

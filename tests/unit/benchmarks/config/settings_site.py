"""A small site for the tests of the config stage."""

ROCE = {
    "dscp": 26,
    "priority": 3,
    "traffic_class": 3,
    "queue": 3,
    "cnp": {"dscp": 48, "priority": 6, "traffic_class": 6, "queue": 6},
    "ecn": {"min_bytes": 1000, "max_bytes": 2000, "mark_percent": 5},
    "pfc": {"enabled": True},
}
FABRIC = {
    "system": "site",
    "profile": "site",
    "link_speed_gbps": 400,
    "mtu_bytes": {"link": 9216, "host": 9000, "rdma": 4096},
    "roce": ROCE,
    "rails": [{"name": "rail0", "subnet": "10.0.0.0/24"}],
}

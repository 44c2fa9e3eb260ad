"""A profile to plant faults in, and the command to run over it."""

import pytest

PROFILE = """\
schema: 1
profile: example
title: An example
published: nobody, 2026
audit: invented
references:
  - id: example-read
    stage: fabric
    test: ib_read_bw
    metric: bandwidth
    scope: {nic_speed_gbps: 400}
    value: 390
    tolerance: 0.02
    ceiling: {formula: roce_payload, speed_gbps: 400, rdma_mtu_bytes: 4096}
    unit: Gb/s
    better: higher
    kind: measured
    source: nobody
  - stage: collective
    test: nccl_all_reduce
    metric: time
    scope: {nodes: 2}
    tolerance: 0.1
    unit: us
    better: lower
    kind: measured
    source: nobody
    rows:
      - {id: example-4b, scope: {size_bytes: 4}, value: 40}
      - {id: example-8b, scope: {size_bytes: 8}, value: 41}
"""


@pytest.fixture
def write(tmp_path):
    """Write the example with one text replaced by another (which must occur), and return its path."""

    def write(old="", new=""):
        assert old in PROFILE
        path = tmp_path / "example.yml"
        path.write_text(PROFILE.replace(old, new) if old else PROFILE)
        return path

    return write

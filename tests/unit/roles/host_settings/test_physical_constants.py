"""What roles carry to hosts without Shakedown: their copies of RoCE's constants are those of `physics`."""

import re
from itertools import product
from pathlib import Path
from typing import get_args

import yaml
from host_settings import arrivals, bnxt, desired

from shakedown.intent import rules
from shakedown.intent.site import Mtu, RoceClass
from shakedown.physics import ethernet

ROLES = Path(__file__).parents[4] / "roles"


def test_rdma_mtus():
    """Catches: an RDMA MTU that one place takes and another refuses."""
    known = ethernet.RDMA_MTUS_BYTES
    assert known == rules.RDMA_MTUS == desired.RDMA_MTUS == get_args(Mtu.model_fields["rdma"].annotation)
    specs = yaml.safe_load((ROLES / "roce_host/meta/argument_specs.yml").read_text())
    assert str({"type": "int", "required": True, "choices": [*known]})[1:-1] in str(specs)


def test_bytes_that_the_kernel_keeps_for_headers():
    """Catches: a link MTU that the plan finds large enough for an RDMA MTU and the host does not."""
    assert ethernet.KERNEL_RESERVE_BYTES == rules.ROCE_HEADER_BYTES == desired.ROCE_HEADER_BYTES


def test_the_port_of_roce():
    """Catches: a leaf or a host that counts another port's packets as RoCE, or none."""
    leaf = (ROLES / "roce_switch/files/roce_leaf.py").read_text()
    of_leaf = int(re.search(r"^ROCE_UDP_PORT = (\d+)", leaf, re.MULTILINE)[1])
    assert ethernet.ROCE_UDP_PORT == of_leaf == arrivals._ROCE_PORT == bnxt._ROCE_UDP_PORT


def test_the_traffic_class_byte():
    """Catches: ECT(0) or the shift of the DSCP that hosts write otherwise than tests order it."""
    for dscp, ect in product(range(64), (False, True)):
        ordered = RoceClass.model_construct(dscp=dscp, ect=ect).tclass
        assert desired.traffic_class_byte(dscp, ect) == ordered

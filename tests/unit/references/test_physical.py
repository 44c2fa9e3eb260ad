"""Profile `physical`: floors for speeds, GPUs and sizes that nobody wrote down."""

from dataclasses import replace

import pytest

from shakedown.physics.host_links import MODELS, by_driver_name, by_name
from shakedown.references import files
from shakedown.references.files import half_rate
from shakedown.references.physical import PhysicalFloors
from tests.kit.cases import cases
from tests.unit.plan.test_scope import site

GIB = 1 << 30


def floors(speed=400, gpu="H100-SXM", rails=8, mtu=4096):
    """The floors of a site of this kind."""
    fabric = site(2).fabric
    named = tuple(fabric.rails[0].model_copy(update={"name": f"rail{i}"}) for i in range(rails))
    sizes = fabric.mtu_bytes.model_copy(update={"rdma": mtu})
    return PhysicalFloors(
        fabric.model_copy(update={"link_speed_gbps": speed, "rails": named, "mtu_bytes": sizes}), by_name(gpu)
    )


def ring(nodes, gpus, size=8 * GIB, algorithm="ring"):
    """The facts of an all_reduce."""
    return {"nodes": nodes, "gpus": gpus, "size_bytes": size, "algorithm": algorithm}


CELLS = [
    *(
        (test, "bandwidth", {"size_bytes": size})
        for test in ("ib_write_bw", "ib_read_bw", "ib_send_bw")
        for size in (65536, 1 << 23)
    ),
    *(
        ("nccl_" + one, "busbw", ring(nodes, 8 * nodes))
        for one in ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
        for nodes in (1, 2, 64)
    ),
    ("nccl_all_reduce", "busbw", ring(1, 8, algorithm="nvls")),
    *(
        (f"{one}_memcpy_ce", "bandwidth", {"nodes": 1})
        for one in ("host_to_device", "device_to_host", "device_to_device_read")
    ),
]


@pytest.mark.parametrize("gpu", ["H100-SXM", "H200-SXM", "B200"])
@pytest.mark.parametrize("speed", [100, 200, 400, 800])
def test_every_floor_fails_half_a_link_and_passes_a_whole_one(speed, gpu):
    """Catches: a floor that a link at half rate clears, or that lies above what is possible."""
    make = floors(speed, gpu)
    for test, metric, facts in CELLS:
        entry = make(test, metric, facts)
        assert entry is not None, (test, facts)
        assert entry.gates
        reference = entry.reference()
        assert reference.gate > half_rate(entry), entry.id
        assert reference.gate < reference.ceiling
    # What is only shown is held to its ceiling.
    shown = make("nccl_all_reduce", "busbw", ring(2, 16, 1 << 20))
    assert not shown.gates
    assert shown.note
    assert shown.reference().ceiling


@cases(
    "make, cell, measured",
    (floors(), ("ib_read_bw", "bandwidth", {"size_bytes": 65536}), 390.89),
    (floors(100), ("ib_write_bw", "bandwidth", {"size_bytes": 65536}), 97.5),
    (floors(), ("nccl_all_reduce", "busbw", ring(8, 64, 16 * GIB)), 370),
    (floors(200, "A100-SXM"), ("nccl_all_reduce", "busbw", ring(4, 32)), 192),
    (floors(gpu="H200-SXM"), ("nccl_all_reduce", "busbw", ring(1, 4)), 365.2),
    (floors(gpu="H200-SXM"), ("nccl_alltoall", "busbw", ring(1, 4)), 354),
    (floors(gpu="B200"), ("nccl_all_reduce", "busbw", ring(1, 8)), 682),
    (floors(gpu="B200"), ("nccl_all_reduce", "busbw", ring(1, 8, algorithm="nvls")), 838),
    (floors(), ("nccl_all_reduce", "busbw", ring(1, 8, algorithm="nvls")), 480),
    (floors(gpu="A100-SXM"), ("nccl_all_reduce", "busbw", ring(1, 8)), 232),
    (floors(gpu="H200-SXM"), ("host_to_device_memcpy_ce", "bandwidth", {}), 55.5),
    (floors(gpu="H200-SXM"), ("device_to_device_memcpy_read_ce", "bandwidth", {}), 394),
    (floors(gpu="A100-SXM"), ("host_to_device_memcpy_ce", "bandwidth", {}), 24),
)
def test_published_figures_of_healthy_hardware_pass(make, cell, measured):
    """Catches: a floor that real, healthy hardware does not reach, or a ceiling that it exceeds."""
    reference = make(*cell).reference()
    assert reference.gate < measured <= reference.ceiling


def test_what_physics_does_not_bound_has_no_floor():
    """Catches: a floor from nothing, for an unknown GPU, another network or training."""
    assert floors(gpu="X9000")("host_to_device_memcpy_ce", "bandwidth", {}) is None
    assert floors()("nccl_all_reduce", "busbw", {**ring(2, 16), "configuration": "B"}) is None
    assert floors()("nccl_sendrecv", "busbw", ring(2, 16)) is None
    assert floors()("lora", "samples_per_s", {}) is None
    assert floors(rails=4)("nccl_alltoall", "busbw", ring(2, 16)) is None  # no NIC for each rank
    assert PhysicalFloors(None, None)("ib_write_bw", "bandwidth", {"size_bytes": 65536}) is None


def test_every_model_of_gpu_is_told_by_its_drivers_name():
    """Catches: `H100 NVL` taken for SXM, whose NVLinks it has not."""
    names = {"NVIDIA H100 80GB HBM3": "H100-SXM", "NVIDIA H100 NVL": "H100-NVL"}
    names |= {"NVIDIA H100 PCIe": "H100-PCIe", "NVIDIA H200": "H200-SXM", "NVIDIA H200 NVL": "H200-NVL"}
    names |= {"NVIDIA B200": "B200", "NVIDIA A100-SXM4-80GB": "A100-SXM"}
    names |= {"NVIDIA A100-PCIE-40GB": "A100-PCIe", "NVIDIA L40S": "L40S", "NVIDIA L40": "L40"}
    assert {name: by_driver_name(name).name for name in names} == names
    assert {model.name for model in MODELS} == set(names.values())
    assert by_driver_name("GRID A2") is None
    assert "physical" not in files.profile_names()


def gate(fabric_floors, **facts):
    """The least bandwidth of a pair, in Gb/s."""
    entry = fabric_floors("ib_write_bw", "bandwidth", {"size_bytes": 65536, **facts})
    assert entry is not None and entry.gates
    return entry.reference().gate


def test_a_pair_over_spines_is_held_to_what_its_uplinks_can_carry():
    """Catches a healthy pair over 2:1 uplinks failed by the floor of one leaf, and the reverse."""
    leaf = gate(floors())
    assert gate(floors(), way="same-leaf") == leaf
    over = replace(floors(), oversubscription=2.0, sharing=16.0)
    facts = {"way": "over-spines", "oversubscription_percent": 200}
    assert gate(over, way="same-leaf") == leaf
    assert gate(over, **facts, routing="adaptive") == gate(over, **facts) == pytest.approx(leaf / 2, rel=1e-3)
    # By hash all 16 hosts of the leaf may meet on one uplink: physics promises no more than a sixteenth.
    assert gate(over, **facts, routing="ecmp") == pytest.approx(leaf / 16, rel=1e-2)
    assert gate(replace(floors(), sharing=16.0), way="over-spines", routing="adaptive") == leaf


def test_products_have_a_floor_where_healthy_cards_were_measured():
    """Catches: a GPU at half of its clock that no derived floor fails; a good one of another model blamed."""
    rate = ("gpu_rate_bf16", "rate", {"nodes": 1, "dtype": "bf16"})
    known = floors(gpu="H200-SXM")(*rate)
    assert known.gates
    # The slowest good card; 1,470 MHz at the power cap, against half of the highest clock.
    assert 653.9 > known.reference().gate > 664.9 * 990 / 1470
    assert not floors(gpu="B200")(*rate).gates
    fp8 = ("gpu_rate_fp8", "rate", {"nodes": 1, "dtype": "fp8"})
    assert floors(gpu="H200-SXM")(*fp8).reference().gate < 1281.8
    assert floors(gpu="A100-SXM")(*fp8) is None
    assert floors(gpu="X9000")(*rate) is None

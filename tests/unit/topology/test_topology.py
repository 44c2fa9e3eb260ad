"""The map of a host: distances, pairs, what is wrong, what Slurm and MPI are told, and the command."""

import json
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from shakedown.topology.distance import Distance
from shakedown.topology.host_map import (
    Topology,
    acs_bridges,
    distance,
    gres_conf,
    mpi_options,
    number_list,
    pairs,
    parse_topology,
    problems,
    rank_file,
    slurm_topology,
)
from shakedown.topology.picture import picture
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.run import python

CAPTURE = Path(__file__).parent / "h200_vm.json"


def gpu(bdf, root, path, node, **more):
    """A GPU of the sample host."""
    return pci(bdf, root, path, node, "0x030200", "0x10de", **more)


def nic(bdf, root, path, node, rdma, **more):
    """A NIC of the sample host."""
    return pci(bdf, root, path, node, "0x020000", "0x15b3", rdma=[rdma], **more)


def pci(bdf, root, path, node, kind, vendor, **more):
    """One PCI function."""
    link = {"speed_gt_s": 32.0, "max_speed_gt_s": 32.0, "width": 16, "max_width": 16}
    base = {"bdf": bdf, "class": kind, "vendor": vendor, "device": "0x0001", "driver": None, "root": root}
    return {**base, "path": path, "numa_node": node, **link, **more}


def document(devices, nodes=2, **more):
    """A host with two packages of four cores and two threads each."""
    cores = [
        {"package": p, "core": c, "threads": f"{p * 4 + c},{8 + p * 4 + c}"}
        for p in range(2)
        for c in range(4)
    ]
    numa = [{"node": 0, "cpus": "0-3,8-11"}, {"node": 1, "cpus": "4-7,12-15"}][:nodes]
    return {
        "schema": 1,
        "host": "n1",
        "virtual": False,
        "numa": numa,
        "cores": cores,
        "devices": devices,
        **more,
    }


def host(devices, nodes=2, **more) -> Topology:
    """The same as a topology."""
    return parse_topology(json.dumps(document(devices, nodes, **more)))


def switched():
    """Two GPUs and two NICs for each NUMA node; a GPU shares a PCIe switch with its NIC."""
    devices = []
    for number in range(4):
        node, bus = number // 2, f"{number + 1}0"
        root, port, up = f"pci0000:{bus}", f"0000:{bus}:01.0", f"0000:{bus}:02.0"
        devices += [
            gpu(f"0000:{bus}:10.0", root, [port, up, f"0000:{bus}:03.0"], node),
            nic(f"0000:{bus}:11.0", root, [port, up, f"0000:{bus}:04.0"], node, f"mlx5_{3 - number}"),
        ]
    return devices


@cases(
    "path_a, path_b, roots, nodes, expected",
    (["0000:01:00.0", "0000:02:00.0"], ["0000:01:00.0", "0000:02:01.0"], "aa", (0, 0), Distance.PIX),
    (
        ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"],
        ["0000:01:00.0", "0000:02:01.0"],
        "aa",
        (0, 0),
        Distance.PXB,
    ),
    (["0000:01:00.0"], ["0000:01:01.0"], "aa", (0, 0), Distance.PHB),
    ([], [], "aa", (0, 0), Distance.PHB),
    (["0000:01:00.0"], ["0000:01:01.0"], "ab", (0, 0), Distance.NODE),
    (["0000:01:00.0"], ["0000:01:01.0"], "ab", (0, 1), Distance.SYS),
    (["0000:01:00.0"], ["0000:01:01.0"], "ab", (-1, -1), Distance.SYS),
)
def test_distance_is_that_of_nvidia_smi(path_a, path_b, roots, nodes, expected):
    """Each entry is a path whose name decides whether NCCL uses GPUDirect; a wrong one hides a bad slot."""
    a = gpu("0000:0a:00.0", f"pci0000:0{'ab'.index(roots[0])}", path_a, nodes[0])
    b = nic("0000:0b:00.0", f"pci0000:0{'ab'.index(roots[1])}", path_b, nodes[1], "mlx5_0")
    topology = host([a, b])
    assert distance(topology, *topology.devices) == expected


def test_every_gpu_gets_the_nic_on_its_own_switch():
    """Catches pairing by number: here the NICs are numbered the other way round."""
    found = pairs(host(switched()))
    assert [(p.gpu.bdf[5:7], p.nic.rdma[0], p.distance) for p in found] == [
        ("10", "mlx5_3", "PIX"),
        ("20", "mlx5_2", "PIX"),
        ("30", "mlx5_1", "PIX"),
        ("40", "mlx5_0", "PIX"),
    ]


def test_gpus_as_near_as_each_other_share_nics_evenly():
    """Catches all GPUs of a node on its first NIC."""
    devices = [gpu(f"0000:1{i}:00.0", "pci0000:10", [f"0000:10:0{i}.0"], 0) for i in range(4)]
    devices += [nic(f"0000:2{i}:00.0", "pci0000:20", [f"0000:20:0{i}.0"], 0, f"mlx5_{i}") for i in range(2)]
    used = [p.nic.rdma[0] for p in pairs(host(devices))]
    assert sorted(used) == ["mlx5_0", "mlx5_0", "mlx5_1", "mlx5_1"]


def test_a_good_host_has_no_problems():
    """Catches blaming a host on which all is well."""
    assert problems(host(switched())) == []


@cases(
    "index, change, words",
    (1, {"width": 8}, "mlx5_3 (0000:10:11.0): PCIe link is x8, can be x16"),
    (0, {"width": 8}, "0000:10:10.0 (0000:10:10.0): PCIe link is x8, can be x16"),
    (3, {"speed_gt_s": 16.0}, "mlx5_2 (0000:20:11.0): PCIe link runs at 16 GT/s, can run at 32 GT/s"),
    (5, {"numa_node": -1}, "mlx5_1: numa_node is -1 on a host with 2 NUMA nodes"),
)
def test_each_planted_fault_is_named(index, change, words):
    """Each entry is a device in the wrong state; the sentence names device, value found and value wanted."""
    devices = switched()
    devices[index] |= change
    assert any(words in sentence for sentence in problems(host(devices)))


def test_a_gpu_at_rest_is_not_blamed_for_its_slow_link():
    """Catches a false alarm: idle GPUs lower their link's speed."""
    devices = switched()
    devices[0] |= {"speed_gt_s": 2.5}
    assert problems(host(devices)) == []


def test_a_far_nic_is_named_with_its_distance():
    """Catches a NIC in the other socket's slot, with which NCCL goes through host memory."""
    devices = switched()
    devices[1] |= {"root": "pci0000:f0", "path": ["0000:f0:01.0"]}
    [sentence] = problems(host(devices))
    assert sentence.startswith("GPU 0000:10:10.0: its nearest NIC mlx5_3 is NODE")


def test_minus_one_is_node_0_where_there_is_only_one():
    """Catches an error on every virtual machine: the real capture of one has -1 everywhere."""
    topology = parse_topology(CAPTURE.read_bytes())
    [device] = topology.gpu_devices()
    assert device.numa_node == -1
    assert topology.node_of(device) == 0
    assert problems(topology) == ["there are GPUs and no NIC with an RDMA device"]


def test_real_capture_has_its_registers():
    """Catches a probe that misreads the configuration space of a real GPU."""
    [device] = parse_topology(CAPTURE.read_bytes()).gpu_devices()
    assert (device.max_payload_bytes, device.max_read_request_bytes, device.relaxed_ordering) == (
        256,
        4096,
        True,
    )
    assert (device.width, device.speed_gt_s) == (16, 32.0)


def test_gres_names_cores_and_not_threads():
    """Catches CPU numbers where Slurm wants core numbers: with two threads a core they differ."""
    assert gres_conf(host(switched())) == (
        "NodeName=n1 Name=gpu File=/dev/nvidia0 Cores=0-3\n"
        "NodeName=n1 Name=gpu File=/dev/nvidia1 Cores=0-3\n"
        "NodeName=n1 Name=gpu File=/dev/nvidia2 Cores=4-7\n"
        "NodeName=n1 Name=gpu File=/dev/nvidia3 Cores=4-7\n"
    )


def test_ranks_sit_beside_their_gpus_without_sharing_cores():
    """Catches two ranks on one core, and a rank on the far socket."""
    assert rank_file(host(switched())) == (
        "rank 0=n1 slot=0-1\nrank 1=n1 slot=2-3\nrank 2=n1 slot=4-5\nrank 3=n1 slot=6-7\n"
    )
    assert mpi_options(host(switched())) == ["--map-by", "ppr:2:numa", "--bind-to", "core"]


def test_uneven_hosts_need_the_rank_file():
    """Catches ppr:N:numa on a host where it would put a rank on the wrong node."""
    refused("use the rank file", mpi_options, host(switched()[:-2]))


def test_unknown_numa_node_is_no_placement():
    """Catches a guess where the firmware says nothing."""
    devices = switched()
    devices[0] |= {"numa_node": -1}
    for make in (gres_conf, rank_file):
        refused("has no NUMA node", make, host(devices))


def test_rail_groups_are_the_switches_of_slurm():
    """Catches one logical switch for each leaf: every node reaches every leaf of its group."""
    cables = {"n1": ("a0", "a1"), "n2": ("a0", "a1"), "n3": ("b0", "b1")}
    assert slurm_topology(cables) == (
        "SwitchName=group0 Nodes=n1,n2\nSwitchName=group1 Nodes=n3\nSwitchName=top Switches=group0,group1\n"
    )
    assert slurm_topology({"n1": ("a0",)}) == "SwitchName=group0 Nodes=n1\n"


def test_acs_matters_only_between_a_gpu_and_its_nic():
    """Catches ACS switched off on a root port, which would let every device reach every other."""
    bridges = [
        pci(bdf, "pci0000:10", [], 0, "0x060400", "0x1000", acs_control=0x1D)
        for bdf in ("0000:10:01.0", "0000:10:02.0", "0000:10:03.0", "0000:10:04.0", "0000:10:05.0")
    ]
    assert acs_bridges(host(bridges + switched())) == ["0000:10:03.0", "0000:10:04.0"]
    assert acs_bridges(host(switched())) == []


def test_picture_is_valid_and_holds_every_device():
    """Catches a picture that leaves a device out or cannot be opened."""
    devices = switched()
    devices[1] |= {"width": 4}
    drawing = picture(host(devices))
    words = [e.text or "" for e in ET.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314
    for number in range(4):
        assert f"GPU {number}" in words
        assert f"mlx5_{number}" in words
    assert drawing.count('stroke="#c0392b"') == 1


@cases(
    "change",
    {"host": "<script>"},
    {"schema": 2},
    {"devices": [pci("zz", "", [], 0, "0x03", "0x10de")]},
    {"devices": [gpu("0000:01:00.0", "pci0000:00", [], 0, netdevs=["<b>"])]},
    {"numa": [{"node": 0, "cpus": "$(reboot)"}]},
)
def test_hostile_documents_are_refused(change):
    """Each entry is something that a host must not be able to put into a picture or a configuration file."""
    refused("no host topology", parse_topology, json.dumps(document(switched()) | change))


def test_number_list_is_the_kernels():
    """Catches a list that Slurm reads differently."""
    assert number_list([3, 1, 2, 8, 2]) == "1-3,8"


REPOSITORY = Path(__file__).resolve().parents[3]


def command(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would."""
    return python("-m", "shakedown", "topology", *argv)


@pytest.fixture
def capture(tmp_path):
    """A file of the probe's output, with a change to its devices."""

    def make(change=lambda devices: None) -> str:
        devices = switched()
        change(devices)
        file = tmp_path / "n1.json"
        file.write_text(json.dumps(document(devices)))
        return str(file)

    return make


def test_good_host_passes_and_marks_the_nic_to_use(capture, tmp_path):
    """Catches a table without the answer, cut-off addresses in a pipe, and a picture that is not written."""
    done = command(capture(), "--svg", str(tmp_path / "n1.svg"))
    assert (done.returncode, done.stderr) == (0, "") and "0000:10:10.0" in done.stdout
    assert "PIX*" in done.stdout
    assert (tmp_path / "n1.svg").read_text().startswith("<svg")


def test_bad_host_fails_and_says_why(capture, shakedown):
    """Catches exit status 0 on a host whose NIC trained down."""
    status, out, _ = shakedown("topology", capture(lambda devices: devices[1].update(width=8)), "--json")
    assert status == 1
    answer = json.loads(out)
    assert answer["problems"] == ["mlx5_3 (0000:10:11.0): PCIe link is x8, can be x16"]
    assert answer["mpirun"] == ["--map-by", "ppr:2:numa", "--bind-to", "core"]


def test_rail_groups_come_from_the_inventory(shakedown):
    """Catches a topology.conf that names leaves where Slurm should see groups."""
    status, out, err = shakedown("topology", REPOSITORY / "inventories/lab", "--switches")
    assert (status, err) == (0, "") and out.startswith("SwitchName=group0 Nodes=")
    assert out.count("SwitchName") == 1


@cases(
    "argv, words",
    (["no-such-host.invalid"], "no-such-host.invalid: "),
    (["--", "-oProxyCommand=true"], "shakedown: '-oProxyCommand=true' is no host"),
    (["/nonexistent", "--switches"], "shakedown: /nonexistent: "),
)
def test_bad_input_is_one_line(argv, words, shakedown):
    """Catches a traceback, and a host name that ssh takes for an option."""
    status, _, err = shakedown("topology", *argv)
    assert status == 2 and words in err
    assert err.count("\n") == 1


def test_garbage_is_refused_by_name(tmp_path, shakedown):
    """Catches a half-written capture that is drawn as an empty host."""
    file = tmp_path / "half.json"
    file.write_text('{"schema": 1, "host": "n1"')
    status, _, err = shakedown("topology", file)
    assert status == 2 and str(file) in err

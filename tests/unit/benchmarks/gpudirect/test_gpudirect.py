"""GPUDirect by perftest, from the site's wish to the verdict; never run on GPUs with RDMA NICs."""

import json
import os
from pathlib import Path

import pytest
from gdr_run import BUSES, GdrRun, planned, site_document

from shakedown.benchmarks.gpudirect import job
from shakedown.benchmarks.gpudirect.job import gpus_of_nics
from shakedown.benchmarks.gpudirect.output import used
from tests.kit.cases import cases
from tests.kit.files import script
from tests.kit.refusal import refused
from tests.kit.site import hosts
from tests.unit.benchmarks.perftest import local_mesh

FAR_PROFILE = (Path(__file__).parent / "profiles/far_profile.yml").read_text()


@pytest.fixture
def run(tmp_path):
    """Return a maker of runs."""

    def make(profile: str = "", **asked: object) -> GdrRun:
        file = tmp_path / "site.yml"
        file.write_text(profile)
        return GdrRun(tmp_path / "r1", file if profile else None, **asked)

    return make


def outcomes(verdict):
    """Return the outcomes of cells that are not PASS, by metric and memory."""
    found = {}
    for cell in verdict.cells:
        if cell.outcome.value != "PASS":
            _, _, metric, *_, params = cell.cell.split("/")
            memory = dict(pair.split("=") for pair in params.split(","))["memory"]
            found[metric, memory] = cell.outcome.value, cell.reason
    return found


def test_every_nic_operation_memory_and_direction_is_planned():
    """Catches: a NIC, an operation, a memory or a direction that nobody measures."""
    plan, jobs = planned(site_document(3, operations=["write", "read", "send"], bidirectional=True))
    cells = {
        (item.test, item.params["memory"], item.metric, pair, rail, direction)
        for item in plan.items
        for _, pair, rail, direction in item.cells()
    }
    pairs, rails, tests = 3, 2, 3
    # Bandwidth of three memories, share and memory of two; forward, reverse, and both at once.
    assert len(cells) == pairs * rails * tests * 3 * (3 + 2 + 2)
    (job,) = (job for job in jobs.jobs if job.kind == "gpudirect")
    assert job.settings["memory"] == {"interface": "cuda", "path": "dma-buf", "gpus": 4}
    assert len(job.settings["operations"]) == tests * 3


def test_a_site_without_gpus_on_two_nodes_is_told():
    """Catches: a plan that silently leaves GPUDirect out."""
    inventory = site_document(2)
    inventory["_meta"]["hostvars"]["n2"]["gpus"] = []
    for host in hosts(inventory):
        host["acceptance"]["perftest"] = [{"test": "ib_write_bw", "size_bytes": 65536, "iterations": 9}]
    plan, jobs = planned(inventory)
    assert not [job for job in jobs.jobs if job.kind == "gpudirect"]
    assert any("two nodes with GPUs" in caveat for caveat in plan.caveats)


@pytest.mark.parametrize("asked", [{}, {"path": "peer-mem"}, {"interface": "rocm"}, {"bidirectional": True}])
def test_a_healthy_run_passes(run, asked):
    """Catches: an output of perftest with GPU memory that is refused, a near GPU that is judged wrongly."""
    healthy = run(**asked)
    healthy.write()
    verdict = healthy.judged()
    assert verdict.outcome.value == "PASS", [(c.cell, c.reason) for c in verdict.cells][:4]


def test_a_near_gpu_that_is_slow_fails_absolutely_and_against_host_memory(run):
    """Catches: ACS that sends GPU traffic over the host bridge, which NCCL's log does not show."""
    slow = run()
    slow.gbps["near"] = 200.0
    slow.write()
    verdict = slow.judged()
    assert verdict.outcome.value == "FAIL"
    assert {key for key, (outcome, _) in outcomes(verdict).items() if outcome == "FAIL"} == {
        ("bandwidth", "near"),
        ("share_of_host", "near"),
    }


def test_a_slow_nic_is_not_excused_by_host_memory_that_is_as_slow(run):
    """Catches: a ratio alone, which passes a link at half rate."""
    slow = run()
    slow.gbps = {"host": 180.0, "near": 180.0, "far": 170.0}
    slow.write()
    failed = {key for key, (outcome, _) in outcomes(slow.judged()).items() if outcome == "FAIL"}
    assert failed == {("bandwidth", "host"), ("bandwidth", "near")}


def test_a_far_gpu_is_shown_unless_the_site_signs_a_floor(run):
    """Catches: a floor for far GPUs that no source gives."""
    slow = run()
    slow.gbps["far"] = 40.0
    slow.write()
    assert slow.judged().outcome.value == "PASS"


def test_a_far_gpu_below_the_floor_that_the_site_signed_fails(run):
    """Catches: a far GPU that is measured and never judged."""
    slow = run(FAR_PROFILE)
    slow.gbps["far"] = 200.0
    slow.write()
    verdict = slow.judged()
    failed = {key for key, (outcome, _) in outcomes(verdict).items() if outcome == "FAIL"}
    assert (verdict.outcome.value, failed) == ("FAIL", {("bandwidth", "far")})


@cases(
    "pick, says",
    ((0, "peer-mem"), "n2: perftest reached the GPU by peer-mem, dma-buf was ordered"),
    ((1, "dma-buf"), "n2: perftest used the GPU at 2a:00, not 0000:18:00.0"),
    (None, "n2: perftest used host memory, that of GPU 0 (0000:18:00.0) was ordered"),
)
def test_another_memory_than_ordered_fails_and_counts_as_no_measurement(run, pick, says):
    """Catches: a fast value of host memory, of the wrong GPU or path, taken for GPUDirect; at either end."""
    wrong = run()
    wrong.picks["n2", "near"] = pick
    wrong.write()
    verdict = wrong.judged()
    found = outcomes(verdict)
    assert verdict.outcome.value == "FAIL"
    assert found["wrong_memory", "near"][0] == "FAIL"
    assert says in found["wrong_memory", "near"][1]
    assert found["bandwidth", "near"][0] == "INCONCLUSIVE"
    # On both rails, whether n2 is perftest's client or its server.
    failed = [c for c in verdict.cells if "/wrong_memory/" in c.cell and c.outcome.value == "FAIL"]
    assert len(failed) == 4


def test_a_perftest_without_cuda_is_not_run_in_its_own_words(run):
    """Catches: a missing build option that reads as a fault of the NICs, or passes unseen."""
    without = run()
    without.reason = "n1 rail0: ib_write_bw --use_cuda=0 --use_cuda_dmabuf --version: Unsupported memory type"
    without.write()
    verdict = without.judged()
    assert verdict.outcome.value == "NOT-RUN"
    assert all(o == "NOT-RUN" and "Unsupported memory type" in r for o, r in outcomes(verdict).values())


def test_a_share_needs_the_host_memory_of_the_same_nics(run):
    """Catches: a ratio against nothing, or against GPU memory."""
    alone = run()
    alone.write()
    for name in [n for n in alone.records if ".host." in n]:
        (alone.raw / name).unlink()
        del alone.records[name]
    found = outcomes(alone.judged())
    assert found["share_of_host", "near"][0] == "INCONCLUSIVE"
    assert "is missing" in found["share_of_host", "near"][1]


def test_nothing_printed_is_no_gpu():
    """Catches: a path that is believed without perftest having said it."""
    assert not used("Picking device No. 0\n").gpu
    assert not used("x using DMA-BUF for GPU buffer address at 0x1\n").gpu


@cases(
    "asked, says",
    ({"operations": ["write", "write"]}, "names one twice"),
    ({"gpus": []}, "gpus: must not be empty"),
    ({"interface": "opencl"}, "interface"),
    ({"path": "p2p"}, "path"),
)
def test_a_wrong_wish_is_refused_by_its_key(asked, says):
    """Catches: a wish that is quietly read as another."""
    refused(says, planned, site_document(2, **asked))


RUNNER = """
import pathlib, sys
from shakedown.benchmarks.gpudirect.job import main
sys.exit(main([sys.argv[3]], sysfs=pathlib.Path(sys.argv[1])))
"""
# HGX: a NIC and two GPUs under one PCIe switch, on each of two sockets.
SWITCHES = {
    "pci0000:15/0000:15:01.0/0000:16:00.0": {
        "0000:17:01.0": ("0000:18:00.0", "gpu"),
        "0000:17:02.0": ("0000:2a:00.0", "gpu"),
        "0000:17:03.0": ("0000:19:00.0", "rxe0"),
    },
    "pci0000:a8/0000:a8:01.0/0000:a9:00.0": {
        "0000:aa:01.0": ("0000:ab:00.0", "gpu"),
        "0000:aa:02.0": ("0000:bc:00.0", "gpu"),
        "0000:aa:03.0": ("0000:ac:00.0", "rxe1"),
    },
}


def plant(sysfs: Path, numa: bool = True, vendor: str = "0x10de") -> None:
    """Write the PCI tree of a host below a sysfs."""
    names = sysfs / "bus/pci/devices"
    names.mkdir(parents=True)
    for node, (switch, ports) in enumerate(SWITCHES.items()):
        for port, (bdf, what) in ports.items():
            folder = sysfs / "devices" / switch / port / bdf
            folder.mkdir(parents=True)
            (folder / "class").write_text("0x030200\n" if what == "gpu" else "0x020000\n")
            (folder / "vendor").write_text(f"{vendor}\n" if what == "gpu" else "0x15b3\n")
            (folder / "numa_node").write_text(f"{node if numa else -1}\n")
            (names / bdf).symlink_to(folder)
            if what != "gpu":
                device = sysfs / "class/infiniband" / what
                device.mkdir(parents=True, exist_ok=True)
                (device / "device").symlink_to(folder)


def test_near_and_far_gpus_are_those_of_the_pci_tree(tmp_path):
    """Catches: a NIC measured with the other socket's GPU, a GPU number that is not CUDA's by PCI address."""
    plant(tmp_path / "sys")
    found, lacking = gpus_of_nics(tmp_path, {"rail0": "rxe0", "rail1": "rxe1"}, "cuda")
    told = {key: (gpu.index, gpu.bdf, gpu.distance) for key, gpu in found.items()}
    assert told == {
        ("rail0", "near"): (0, BUSES[0], "PIX"),
        ("rail0", "far"): (3, BUSES[3], "SYS"),
        ("rail1", "near"): (2, BUSES[2], "PIX"),
        ("rail1", "far"): (1, BUSES[1], "SYS"),
    }
    assert not lacking


def test_a_nic_without_a_gpu_says_so(tmp_path):
    """Catches: a host of AMD GPUs measured by CUDA, a soft RDMA device that is on no PCI device."""
    plant(tmp_path / "sys", vendor="0x1002")
    _, lacking = gpus_of_nics(tmp_path, {"rail0": "rxe0", "rail9": "rxe9"}, "cuda")
    assert lacking["rail0", "near"] == "no GPU that cuda can use"
    assert lacking["rail9", "far"] == "rxe9 is on no PCI device"


def test_one_gpu_alone_is_near_and_no_far_one(tmp_path):
    """Catches: the nearest GPU measured twice and called far."""
    plant(tmp_path / "sys")
    for bdf in BUSES[1:]:
        (tmp_path / "sys/bus/pci/devices" / bdf).unlink()
    found, lacking = gpus_of_nics(tmp_path, {"rail0": "rxe0"}, "cuda")
    assert found["rail0", "near"].bdf == BUSES[0]
    assert lacking == {("rail0", "far"): "no GPU is farther from rxe0 than the nearest (PIX)"}


@cases(
    "said, why",
    ("Version: 6.22", ""),
    (" Unsupported memory type", "Unsupported memory type"),
    (
        "ib_write_bw: unrecognized option '--use_cuda=0'\n Invalid Command or flag.\n"
        " Please check command line and run again.\n\nUsage:\n  -V, --version  Display version number",
        "unrecognized option '--use_cuda=0'",
    ),
)
def test_a_perftest_without_cuda_says_so_in_its_own_words(tmp_path, monkeypatch, said, why):
    """Catches: a missing build option found only by servers that do not listen; words of 24.01 and of 4.5."""
    program = tmp_path / "bin/ib_write_bw"
    program.parent.mkdir()
    script(program, f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    told = job._unable(["ib_write_bw"], job._words("cuda", "dma-buf", 0), tmp_path)
    assert (why in told) and bool(told) is bool(why)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["with", "without"])
def test_the_job_measures_every_memory_or_says_why_not(tmp_path, monkeypatch, version):
    """Catches: options that one end alone gets, a server's proof that is thrown away, a wrong GPU number."""
    inventory = site_document(2)
    for number, host in enumerate(hosts(inventory), start=1):
        host["mgmt_ip"] = f"127.77.0.{number}"
        for rail in range(2):
            host["fabric"]["rails"][rail]["subnet"] = f"127.77.{rail + 1}.0/24"
            host["fabric_nics"][rail]["ipv4"] = f"127.77.{rail + 1}.{number}/24"
    _, jobs = planned(inventory)
    (spec,) = (spec for spec in jobs.jobs if spec.kind == "gpudirect")
    monkeypatch.setattr(local_mesh, "RUNNER", RUNNER)
    mesh = local_mesh.LocalMesh(tmp_path, dict(spec.settings))
    mesh.versions = dict.fromkeys(spec.nodes, f"24.01 {version}-cuda")
    # What is above sys/ belongs to a node, too.
    mesh.sysfs = lambda node: tmp_path / "sysfs" / node / "sys"
    for node in spec.nodes:
        plant(mesh.sysfs(node))
        local_mesh.plant_sysfs(mesh.sysfs(node), mesh.data, node)
    mesh.out.mkdir()
    (mesh.out / "spec.json").write_text(json.dumps(mesh.data))
    statuses = mesh.run(timeout=120)
    records = mesh.records()
    assert {r.test for r in records} == {"gpudirect_write"}
    assert len(records) == 2 * 2 * 3  # rails, directions, memories
    if version == "without":
        assert set(statuses.values()) == {3}, mesh.errors
        told = [r.problem for r in records if r.params["memory"] != "host"]
        assert all(p and p.kind == "not-run" and "Unsupported memory type" in p.message for p in told)
        return
    assert set(statuses.values()) == {0}, mesh.errors
    for record in records:
        client = (mesh.out / record.file).read_text()
        if record.params["memory"] == "host":
            assert not used(client).gpu
            continue
        server = (mesh.out / f"{record.file.removesuffix('.txt')}.server.txt").read_text()
        near = record.params["memory"] == "near"
        index = {("rail0", True): 0, ("rail0", False): 3, ("rail1", True): 2, ("rail1", False): 1}
        wanted = BUSES[index[record.rail, near]]
        for text in (client, server):
            assert used(text).path == "dma-buf" and used(text).is_of(wanted)

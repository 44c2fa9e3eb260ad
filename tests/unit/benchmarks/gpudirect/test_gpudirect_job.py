"""The job on this machine: GPUs in a made PCI tree, perftest a stand-in that prints its lines."""

import json
import os
from pathlib import Path

import pytest
from gdr_run import BUSES, planned, site_document

from shakedown.benchmarks.gpudirect import job
from shakedown.benchmarks.gpudirect.job import gpus_of_nics
from shakedown.benchmarks.gpudirect.output import used
from tests.kit.site import hosts
from tests.unit.benchmarks.perftest import local_mesh

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


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("Version: 6.22", ""),
        (" Unsupported memory type", "Unsupported memory type"),
        (
            "ib_write_bw: unrecognized option '--use_cuda=0'\n Invalid Command or flag.\n"
            " Please check command line and run again.\n\nUsage:\n  -V, --version  Display version number",
            "unrecognized option '--use_cuda=0'",
        ),
    ],
)
def test_a_perftest_without_cuda_says_so_in_its_own_words(tmp_path, monkeypatch, said, why):
    """Catches: a missing build option found only by servers that do not listen; words of 24.01 and of 4.5."""
    program = tmp_path / "bin/ib_write_bw"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    program.chmod(0o755)
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

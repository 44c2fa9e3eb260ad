"""The inventory probe: what it prints must be an inventory, whatever the tools say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shakedown.onnode import snapshot_probe as inventory
from shakedown.records.results import Component, Snapshot

PROBE = Path(inventory.__file__)
MODULE = """	Identifier                                : 0x1e (QSFP-DD)
	Vendor name                               : Mellanox
	Vendor PN                                 : MCP4Y10-N001
	Vendor SN                                 : MT2231VS00123
	Cable assembly length                     : 1.00 m
"""
DRIVER = """driver: mlx5_core
version: 6.8.0-45-generic
firmware-version: 28.39.1002 (MT_0000000838)
bus-info: 0000:17:00.0
"""
DEVLINK = json.loads((Path(__file__).parent / "printed/devlink.json").read_text())


def test_real_run_is_an_inventory():
    """Catches a probe that dies, or prints what the run's record refuses, when sent alone on stdin."""
    done = subprocess.run(
        [sys.executable, "-I", "-", "node"], input=PROBE.read_bytes(), capture_output=True, check=True
    )
    components = [{"host": "n1", **part} for part in json.loads(done.stdout)["components"]]
    document = {"schema": 1, "run": "r1", "taken": "2026-11-20T00:00:00Z", "components": components}
    found = Snapshot.model_validate(document)
    assert found.components[0].kind == "node"
    assert found.components[0].attributes["kernel"]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert found.components[0].attributes["boot_id"] == boot
    own = Path("/etc/machine-id").read_text().strip() if Path("/etc/machine-id").exists() else ""
    told = found.components[0].attributes.get("machine_id", "")
    assert bool(told) == bool(own)
    assert told != own or not own, "machine-id(5) is confidential"


@pytest.fixture
def tools(monkeypatch):
    """Answers by the first words of a command."""
    answers: dict[str, str] = {}

    def answer(*argv: str) -> str:
        return next((out for words, out in answers.items() if " ".join(argv).startswith(words)), "")

    monkeypatch.setattr(inventory, "run", answer)
    return answers


def test_nic_has_firmware_and_psid_and_its_cable(tools, tmp_path, monkeypatch):
    """Catches a snapshot without what differs between two NICs of one model: firmware, PSID and cable."""
    entry = tmp_path / "eth2"
    (entry / "device/infiniband/mlx5_0").mkdir(parents=True)
    (tmp_path / "lo").mkdir()
    monkeypatch.setattr(inventory, "Path", lambda path: tmp_path if path == "/sys/class/net" else Path(path))
    tools |= {
        "devlink -j dev info": json.dumps(DEVLINK),
        "ethtool -i eth2": DRIVER,
        "ethtool -m eth2": MODULE,
    }
    nic, cable = (Component(host="n1", **part) for part in inventory.nics())
    assert nic.attributes == {
        "netdev": "eth2",
        "rdma_device": "mlx5_0",
        "pci": "0000:17:00.0",
        "driver": "mlx5_core",
        "driver_version": "6.8.0-45-generic",
        "firmware": "28.39.1002",
        "psid": "MT_0000000838",
        "serial": "MT2309XZ0ABC",
    }
    assert (cable.kind, cable.attributes["vendor_pn"]) == ("cable", "MCP4Y10-N001")


LINKS = ("26.562 GB/s", "<inactive>", "26.562 GB/s")
NVLINK = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5ed1)\n"
NVLINK += "".join(f"\t Link {number}: {rate}\n" for number, rate in enumerate(LINKS))
NVLINK += "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-5ed2)\n"


def test_gpus_come_from_nvidia_smi(tools):
    """Catches a GPU without its UUID or VBIOS, by which a swapped board is noticed, or what was bought."""
    tools["nvidia-smi --query-gpu"] = (
        "0, 00000000:17:00.0, NVIDIA H100 80GB HBM3, GPU-5ed1, [N/A], 96.00.61.00.01, 550.54.15, 81559, "
        "700.00, 5, 16, Enabled, Disabled\n"
    )
    tools["nvidia-smi nvlink"] = NVLINK
    [gpu] = inventory.gpus()
    assert gpu["attributes"] == {
        "index": "0",
        "pci": "00000000:17:00.0",
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-5ed1",
        "vbios_version": "96.00.61.00.01",
        "driver_version": "550.54.15",
        "memory_mib": "81559",
        "power_limit_w": "700.00",
        "pcie_generation": "5",
        "pcie_width": "16",
        "persistence_mode": "Enabled",
        "mig_mode_current": "Disabled",
        "nvlinks": "2",
    }


DMI = """# dmidecode 3.4
Handle 0x1100, DMI type 17, 92 bytes
Memory Device
	Size: 64 GB
	Speed: 5600 MT/s
	Configured Memory Speed: 4800 MT/s

Handle 0x1101, DMI type 17, 92 bytes
Memory Device
	Size: No Module Installed

Handle 0x1102, DMI type 17, 92 bytes
Memory Device
	Size: 65536 MB
	Configured Memory Speed: 4800 MT/s
"""


def test_modules_of_memory_are_counted_where_they_may_be_asked_for(tools):
    """Catches: an empty slot counted, a module's sold speed taken for its own, or none told as 0."""
    assert set(inventory.modules().values()) == {""}
    tools["dmidecode"] = DMI
    told = {"memory_modules": "2", "memory_module_mib": "65536", "memory_mts": "4800"}
    assert inventory.modules() == told


def test_names_are_fit_for_paths():
    """Catches a tool's output that becomes a path or markup in the report."""
    part = inventory.component("nic", "../<b>eth0", {"firmware": "x" * 1000, "empty": ""})
    assert Component(host="n1", **part).name == "b_eth0"
    assert part["attributes"] == {"firmware": "x" * 300}


def test_broken_devlink_output_is_no_end(tools):
    """Catches a probe that dies of a tool's half output."""
    tools["devlink"] = '{"info": {'
    assert inventory.devlink() == {}

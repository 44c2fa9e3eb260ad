"""Peer memory modules on a GPU node: NVIDIA's, Broadcom's beside it, and what amdgpu registers itself."""

import pytest
from host_settings.desired import BadDesired

from tests.kit.cases import cases

GPUDIRECT = {"schema": 1, "target": "gpudirect", "nics": ["eth2"], "acs_bridges": []}
GPUDIRECT |= {"max_read_request": 4096, "min_payload": 256, "min_bar_mib": 1024}
NIC = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/"
GPU = "/sys/devices/pci0000:16/0000:16:02.0/0000:18:00.0/"
RELEASE = "232.0.155.5"
MODULES = "etc/modules-load.d/shakedown-gpudirect.conf"
INBOX_SYMBOLS = "0000000000000000 T ib_register_client\t[ib_core]"


@pytest.fixture
def broadcom(host):
    """Make a GPU node whose NIC is Broadcom's, with the vendor's bnxt_re and ib_peer_mem on disk."""

    def make(**changes):
        machine = host("gpu_node", base=GPUDIRECT, **changes)
        machine.fake.write_tree({NIC + "driver": "-> ../../../../bus/pci/drivers/bnxt_en"})
        machine.fake.write("/sys/module/bnxt_re/version", RELEASE)
        machine.fake.write("/proc/kallsyms", INBOX_SYMBOLS)
        machine.fake.state["modules_on_disk"] = {"ib_peer_mem": RELEASE}
        return machine

    return make


def wrong(report):
    """What differs, by key: found and wanted."""
    return {s["key"]: (s["found"], s["wanted"]) for s in report["settings"] if not s["ok"]}


def absent(report):
    """What does not apply, and why."""
    return {entry["key"]: entry["reason"] for entry in report["not_applicable"]}


def loads(machine):
    """The modules that were loaded or removed, in order."""
    return [call for call in machine.done if call.startswith("modprobe")]


def test_broadcoms_module_is_loaded_before_nvidias_and_both_at_boot(broadcom):
    """Catches: nvidia_peermem loaded alone or first, so that it finds no one to register with."""
    machine = broadcom()
    report = machine("apply")
    assert report["ok"], wrong(report)
    assert loads(machine) == ["modprobe ib_peer_mem", "modprobe nvidia_peermem"]
    assert (machine.fake.root / MODULES).read_text() == "ib_peer_mem\nnvidia_peermem\n"
    assert machine("apply")["changes"] == []


def test_check_says_what_it_would_load_and_loads_nothing(broadcom):
    """Catches: a --check that changes the node, or that is silent about a module."""
    machine = broadcom()
    report = machine("check")
    planned = [did for change in report["changes"] for did in change["did"]]
    assert planned[:2] == ["modprobe ib_peer_mem", "modprobe nvidia_peermem"]
    assert machine.done == []
    assert not (machine.fake.root / MODULES).exists()


def test_rollback_removes_them_the_other_way_round(broadcom):
    """Catches: the module that the other one uses removed first, which the kernel refuses; a file left."""
    machine = broadcom()
    machine("apply")
    machine("rollback")
    assert loads(machine)[2:] == ["modprobe -r nvidia_peermem", "modprobe -r ib_peer_mem"]
    assert not (machine.fake.root / MODULES).exists()


def test_what_was_loaded_before_stays_after_a_rollback(broadcom):
    """Catches: a rollback that removes a module which the site's own bnxt_re brought in."""
    machine = broadcom()
    machine.fake.write("/sys/module/ib_peer_mem/version", RELEASE)
    machine("apply")
    machine("rollback")
    assert loads(machine) == ["modprobe nvidia_peermem", "modprobe -r nvidia_peermem"]


@cases(
    "driver, found",
    ("231.0.162.0", RELEASE),
    (None, RELEASE),
    ids=["another release", "the kernel's own bnxt_re"],
)
def test_a_module_of_another_release_is_named_and_never_loaded(broadcom, driver, found):
    """Catches: ib_peer_mem of one release loaded under bnxt_re of another, now or at the next boot."""
    machine = broadcom()
    (machine.fake.root / "sys/module/bnxt_re/version").unlink()
    if driver:
        machine.fake.write("/sys/module/bnxt_re/version", driver)
    differs = wrong(machine("apply"))
    assert differs["module.ib_peer_mem.version"][0] == found
    assert differs["module.ib_peer_mem.version"][1] == (driver or differs["module.ib_peer_mem.version"][1])
    assert "modprobe ib_peer_mem" not in machine.done
    modules = machine.fake.root / MODULES
    assert not modules.exists() or "ib_peer_mem" not in modules.read_text()


def test_without_the_package_nothing_is_loaded_and_the_package_is_named(broadcom):
    """Catches: modprobe of a module that is not there, or a node without a path told as fine."""
    machine = broadcom()
    machine.fake.state["modules_on_disk"] = {}
    report = machine("apply")
    assert loads(machine) == []
    assert "netxtreme-peer-mem" in wrong(report)["gpu_memory"][1]
    assert absent(report)["module.ib_peer_mem"] == "it is not installed"


def test_an_rdma_core_with_peer_memory_of_its_own_needs_no_second(broadcom):
    """Catches: a failure for want of ib_peer_mem where ib_core already offers what it would."""
    machine = broadcom()
    machine.fake.state["modules_on_disk"] = {}
    machine.fake.write("/proc/kallsyms", "0000000000000000 T ib_register_peer_memory_client\t[ib_core]")
    report = machine("apply")
    assert report["ok"], wrong(report)
    assert loads(machine) == ["modprobe nvidia_peermem"]
    assert "of its own" in absent(report)["module.ib_peer_mem"]


OPEN_MODULES = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build"


@cases(
    "symbols, loaded",
    (INBOX_SYMBOLS, ["modprobe ib_peer_mem", "modprobe nvidia_peermem"]),
    ("0000000000000000 t bnxt_re_reg_user_mr_dmabuf\t[bnxt_re]", []),
    ids=["bnxt_re without dma-buf", "bnxt_re with dma-buf"],
)
def test_dma_buf_counts_only_if_the_nics_driver_has_it_too(broadcom, symbols, loaded):
    """Catches: dma-buf believed from the GPU's driver alone, on an old bnxt_re that cannot register it."""
    machine = broadcom()
    machine.fake.write("/proc/driver/nvidia/version", OPEN_MODULES)
    machine.fake.write("/proc/kallsyms", symbols)
    report = machine("apply")
    assert report["ok"], wrong(report)
    assert loads(machine) == loaded


def test_a_site_may_want_peer_memory_beside_dma_buf(broadcom):
    """Catches: a site that measures the path peer-mem, whose modules are never loaded."""
    machine = broadcom(peer_memory="load")
    machine.fake.write("/proc/driver/nvidia/version", OPEN_MODULES)
    machine.fake.write("/proc/kallsyms", "0000000000000000 t bnxt_re_reg_user_mr_dmabuf\t[bnxt_re]")
    assert machine("apply")["ok"]
    assert loads(machine) == ["modprobe ib_peer_mem", "modprobe nvidia_peermem"]


def test_an_amd_gpu_needs_broadcoms_module_and_amdgpus_own_registration(broadcom):
    """Catches: nvidia_peermem on an Instinct node, and a path believed that amdgpu has not registered for."""
    machine = broadcom()
    machine.fake.write(GPU + "vendor", "0x1002")
    machine.fake.write(GPU + "class", "0x120000")
    report = machine("apply")
    assert loads(machine) == ["modprobe ib_peer_mem"]
    assert wrong(report) == {"peer_client.amdkfd": (False, True)}
    machine.fake.write("/sys/kernel/memory_peers/amdkfd/version", "1.0")
    assert machine("check")["ok"]
    assert (machine.fake.root / MODULES).read_text() == "ib_peer_mem\n"


def test_a_choice_that_is_no_word_of_ours_is_refused(broadcom):
    """Catches: a typing error that leaves the modules unloaded and says nothing."""
    with pytest.raises(BadDesired, match="peer_memory is 'always' -- use auto or load"):
        broadcom(peer_memory="always")("check")

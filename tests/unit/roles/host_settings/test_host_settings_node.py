"""The targets of a whole node: GPUDirect and pinning on a recorded GPU node."""

import pytest
from host_settings.desired import BadDesired

from tests.kit.cases import cases
from tests.kit.site import roce

GPUDIRECT = {"schema": 1, "target": "gpudirect", "nics": ["eth2"]}
GPUDIRECT |= {"acs_bridges": ["0000:16:01.0", "0000:16:02.0"], "max_read_request": 4096, "min_payload": 256}
GPUDIRECT |= {"min_bar_mib": 1024}
PINNING = {"schema": 1, "target": "pinning", "nics": ["eth2"], "governor": "performance", "numa_balancing": 0}
PINNING |= {"irqbalance": "off", "numa_nodes": 2, "max_idle_latency_us": 10}


NIC = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/"
GPU = "/sys/devices/pci0000:16/0000:16:02.0/0000:18:00.0/"
CPU0 = "/sys/devices/system/cpu/cpu0/"


def translated(fake):
    """An IOMMU that translates every transfer."""
    fake.write("/proc/cmdline", "BOOT_IMAGE=/vmlinuz")
    fake.write("/sys/kernel/iommu_groups/0/type", "DMA")


@pytest.fixture
def node(host):
    """Make the node for a target."""
    return lambda base, **changes: host("gpu_node", base=base, **changes)


def wrong(report):
    """What differs, by key: found and wanted."""
    return {s["key"]: (s["found"], s["wanted"]) for s in report["settings"] if not s["ok"]}


def absent(report):
    """What does not apply, and why."""
    return {entry["key"]: entry["reason"] for entry in report["not_applicable"]}


def test_gpudirect_changes_exactly_this(node):
    """Catches ACS left on between GPU and NIC, small read requests, and a peer module lost at boot."""
    machine = node(GPUDIRECT)
    report = machine("apply")
    assert report["ok"], wrong(report)
    assert machine.done == [
        "modprobe nvidia_peermem",
        "setpci -s 0000:16:01.0 ECAP_ACS+0x6.w=0000",
        "setpci -s 0000:16:02.0 ECAP_ACS+0x6.w=0000",
        "setpci -s 0000:17:00.0 CAP_EXP+8.w=5000:7000",
        "setpci -s 0000:17:00.0 CAP_EXP+8.w=0010:0010",
    ]
    # Only the read request and relaxed ordering have changed in the register.
    assert machine.fake.state["registers"]["0000:17:00.0 CAP_EXP+8.w"] == "5930"
    modules = machine.fake.root / "etc/modules-load.d/shakedown-gpudirect.conf"
    assert modules.read_text() == "nvidia_peermem\n"


def test_pinning_changes_exactly_this(node):
    """Catches interrupts on the far socket, and a service that moves them back."""
    machine = node(PINNING)
    report = machine("apply")
    assert report["ok"], wrong(report)
    assert machine.done == ["systemctl --quiet disable --now irqbalance.service"]
    assert machine.system.written == [
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor=performance",
        "/sys/devices/system/cpu/cpu0/cpuidle/state2/disable=1",
        "/proc/sys/kernel/numa_balancing=0",
        "/proc/irq/101/smp_affinity_list=4",
        "/proc/irq/102/smp_affinity_list=5",
        "/proc/irq/103/smp_affinity_list=6",
    ]


@pytest.mark.parametrize("base", [GPUDIRECT, PINNING], ids=["gpudirect", "pinning"])
def test_second_run_changes_nothing_and_the_way_back_restores(node, base):
    """Catches a value that is set for ever, and one that comes back as something else."""
    machine = node(base)
    first = {s["key"]: s["found"] for s in machine("check")["settings"] if s["settable"]}
    machine("apply")
    calls = len(machine.done) + len(machine.system.written)
    assert machine("apply")["changes"] == []
    assert len(machine.done) + len(machine.system.written) == calls
    report = machine("rollback")
    assert report["ok"], report["error"]
    last = {s["key"]: s["found"] for s in report["settings"] if s["settable"]}
    # Of several governors the first comes back everywhere.
    assert first.pop("cpu.governor", "powersave").endswith("powersave")
    last.pop("cpu.governor", None)
    assert last == first


def test_dma_buf_is_preferred(node):
    """Catches a peer module loaded where it is not needed."""
    machine = node(GPUDIRECT)
    machine.fake.write(
        "/proc/driver/nvidia/version", "NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release"
    )
    report = machine("apply")
    assert "modprobe nvidia_peermem" not in machine.done
    assert absent(report)["module.nvidia_peermem"] == "dma-buf is there and preferred"


def test_no_path_to_gpu_memory_is_a_failure_with_its_reason(node):
    """Catches the inbox RDMA drivers, on which nvidia_peermem cannot load: not applicable, and not fine."""
    machine = node(GPUDIRECT)
    machine.fake.write("/proc/kallsyms", "0000000000000000 T ib_register_client\t[ib_core]")
    report = machine("apply")
    assert "modprobe nvidia_peermem" not in machine.done
    assert "cannot load" in absent(report)["module.nvidia_peermem"]
    assert wrong(report)["gpu_memory"][0] == "none"


def test_acs_is_never_touched_in_a_virtual_machine(node):
    """Catches the end of isolation between guests."""
    machine = node(GPUDIRECT)
    machine.fake.write("/proc/cpuinfo", "flags : fpu vme hypervisor")
    report = machine("apply")
    assert not [call for call in machine.done if "setpci" in call]
    assert "never off" in absent(report)["acs"]


@cases(
    "base, plant, key, found",
    (GPUDIRECT, lambda f: f.write(NIC + "current_link_width", "8"), "pcie.link.eth2", "x8 32.0 GT/s"),
    (
        GPUDIRECT,
        lambda f: f.write(NIC + "current_link_speed", "16.0 GT/s PCIe"),
        "pcie.link.eth2",
        "x16 16.0 GT/s",
    ),
    (GPUDIRECT, lambda f: f.write(GPU + "current_link_width", "4"), "pcie.link.gpu.0000:18:00.0", "x4"),
    (GPUDIRECT, lambda f: f.write(GPU + "resource", "0x0 0xfffffff 0x0"), "gpu.bar_mib.0000:18:00.0", 256),
    (
        GPUDIRECT,
        lambda f: f.state["registers"].update({"0000:17:00.0 CAP_EXP+8.w": "5910"}),
        "pcie.max_payload.eth2",
        128,
    ),
    (
        GPUDIRECT,
        lambda f: f.state["registers"].update({"0000:16:01.0 ECAP_ACS+0x6.w": "001d"}),
        "acs.0000:16:01.0",
        "001d",
    ),
    (GPUDIRECT, translated, "iommu", "translated"),
    (PINNING, lambda f: f.write("/proc/irq/102/smp_affinity_list", "0"), "irq.eth2", "101=4 102=0 103=6"),
    (PINNING, lambda f: f.write(NIC + "numa_node", "-1"), "numa.node.eth2", -1),
    (PINNING, lambda f: f.write("/proc/sys/kernel/numa_balancing", "1"), "numa.balancing", 1),
    (
        PINNING,
        lambda f: f.write(CPU0 + "cpufreq/scaling_governor", "powersave"),
        "cpu.governor",
        "performance powersave",
    ),
    (PINNING, lambda f: f.write("/sys/devices/system/node/node2/cpulist", "8"), "numa.nodes", 3),
    (
        PINNING,
        lambda f: f.state["services"].update({"irqbalance.service": ["enabled", "active"]}),
        "irqbalance",
        "on",
    ),
)
def test_planted_misconfiguration_is_found(node, base, plant, key, found):
    """Each entry is a fault on one node; the read-back must name that setting with the value found."""
    machine = node(base)
    machine("apply")
    plant(machine.fake)
    assert wrong(machine("check"))[key][0] == found


def test_a_gpu_at_rest_is_not_blamed(node):
    """Catches a false alarm: the sample GPU runs its link at 2.5 GT/s while idle."""
    machine = node(GPUDIRECT)
    machine("apply")
    assert wrong(machine("check")) == {}


def test_without_a_gpu_nothing_applies(host):
    """Catches a CPU node that fails for want of GPUs."""
    machine = host("virtio_rxe", base=GPUDIRECT, nics=["fab0"], acs_bridges=[])
    report = machine("apply")
    assert report["ok"]
    assert absent(report) == {"gpudirect": "there is no GPU in this host"}


@cases(
    "base, change, words",
    (GPUDIRECT, {"acs_bridges": ["; reboot"]}, "list PCI addresses"),
    (GPUDIRECT, {"max_read_request": 8192}, "use one of 128"),
    (GPUDIRECT, {"nics": "eth2"}, "list the names"),
    (PINNING, {"governor": "turbo"}, "use performance or keep"),
    (PINNING, {"numa_balancing": 2}, "from 0 to 1"),
    (PINNING, {"irqbalance": True}, "use off or keep"),
)
def test_bad_desired_state_is_refused(node, base, change, words):
    """Each entry is a file that must be refused with the key and the fix, and nothing touched."""
    machine = node(base, **change)
    with pytest.raises(BadDesired) as refused:
        machine("apply")
    assert words in str(refused.value)
    assert machine.done == []
    assert machine.system.written == []


ENVIRONMENT = {"schema": 1, "target": "environment", "clock": "synchronised"}
ENVIRONMENT |= {"roce": roce(queue=None, ecn=None, cnp={"dscp": 48, "priority": 6, "traffic_class": 6})}


def test_environment_is_written_and_foreign_lines_stay(node):
    """Catches a traffic class without ECT, and a site's own nccl.conf overwritten."""
    machine = node(ENVIRONMENT)
    machine.fake.state["clock"] = "synchronised"
    machine.fake.write("/etc/nccl.conf", "NCCL_IB_TC=41\nNCCL_SOCKET_IFNAME=bond0")
    assert machine("apply")["ok"]
    assert (machine.fake.root / "etc/nccl.conf").read_text() == "NCCL_SOCKET_IFNAME=bond0\nNCCL_IB_TC=106\n"
    assert "export UCX_IB_TRAFFIC_CLASS=106" in (machine.fake.root / "etc/shakedown/roce.env").read_text()
    assert machine("apply")["changes"] == []
    machine("rollback")
    text = (machine.fake.root / "etc/nccl.conf").read_text()
    assert sorted(text.splitlines()) == ["NCCL_IB_TC=41", "NCCL_SOCKET_IFNAME=bond0"]
    assert not (machine.fake.root / "etc/shakedown/roce.env").exists()


def test_a_free_running_clock_is_named(node):
    """Catches nodes whose logs cannot be compared; a virtual cluster may leave it."""
    machine = node(ENVIRONMENT)
    machine("apply")
    assert wrong(machine("check")) == {"clock": ("free", "synchronised")}
    kept = machine.desired | {"clock": "keep"}
    machine.desired = kept
    assert wrong(machine("check")) == {}


def slurmd(machine, limit):
    """Let a slurmd run there, with that limit of locked memory."""
    machine.fake.write("/proc/812/comm", "slurmd")
    machine.fake.write(
        "/proc/812/limits", f"Limit  Soft  Hard  Units\nMax locked memory  {limit}  {limit}  bytes"
    )


def test_locked_memory_is_freed_only_if_asked_and_given_back(node):
    """Catches: limits changed unasked, jobs left with slurmd's old one, or files left by a rollback."""
    machine = node(ENVIRONMENT | {"clock": "keep"})
    slurmd(machine, 8388608)
    machine("apply")
    folders = [
        machine.fake.root / f"etc/{x}" for x in ("security/limits.d", "systemd/system/slurmd.service.d")
    ]
    assert not any(folder.exists() for folder in folders)
    machine.desired |= {"memlock": "unlimited"}
    checked = machine("check")
    assert wrong(checked)["memlock.slurmd"] == ("8388608", "unlimited")
    assert not any(folder.exists() for folder in folders)  # --check changes nothing
    machine("apply")
    assert "LimitMEMLOCK=infinity" in (folders[1] / "90-shakedown-memlock.conf").read_text()
    assert "* hard memlock unlimited" in (folders[0] / "90-shakedown-memlock.conf").read_text()
    slurmd(machine, "unlimited")  # it was started again
    assert wrong(machine("check")) == {}
    assert machine("apply")["changes"] == []
    machine("rollback")
    assert not any(list(folder.iterdir()) for folder in folders if folder.exists())


def test_a_node_without_slurmd_gets_no_drop_in_for_it(node):
    """Catches: a unit made for a service that is not there, or its absence told as a fault."""
    machine = node(ENVIRONMENT | {"clock": "keep", "memlock": "unlimited"})
    assert machine("apply")["ok"]
    assert not (machine.fake.root / "etc/systemd/system/slurmd.service.d").exists()


def test_a_memlock_that_is_no_word_of_ours_is_refused(node):
    """Catches: a typing error that leaves the limit in force and says nothing."""
    with pytest.raises(BadDesired, match="memlock is 'infinite' -- use unlimited or keep"):
        node(ENVIRONMENT | {"memlock": "infinite"})("check")

"""The three drivers on recorded hosts: exact changes, a second run without any, and the way back."""

import json

import pytest
from host_settings.dcb import map_from, map_text
from host_settings.desired import BadDesired
from host_settings.system import ToolError

from tests.kit.cases import cases

BNXT = {"rdma_device": "bnxt_re0"}
RXE = {"netdev": "fab0", "rdma_device": "rxe0", "ipv4": "10.10.0.1/24", "link_speed_gbps": 1}
ALL_64 = " ".join(f"{d}:{ {26: 3, 48: 6}.get(d, 0) }" for d in range(64))
MLX5_ETS = (
    "dcb ets set dev eth2 tc-tsa 0:ets 1:ets 2:ets 3:ets 4:ets 5:ets 6:strict 7:ets "
    "tc-bw 0:50 1:0 2:0 3:50 4:0 5:0 6:0 7:0 prio-tc 0:0 1:0 2:0 3:3 4:0 5:0 6:6 7:0"
)
BNXT_ETS = (
    "dcb ets set dev eth2 tc-tsa 0:ets 1:ets 2:strict 3:strict 4:strict 5:strict 6:strict 7:strict "
    "tc-bw 0:50 1:50 2:0 3:0 4:0 5:0 6:0 7:0 prio-tc 0:0 1:0 2:0 3:1 4:0 5:0 6:{cnp} 7:0"
)
CONFIGFS = "/sys/kernel/config/rdma_cm"


def wrong(report):
    """What differs, by key: found and wanted."""
    return {s["key"]: (s["found"], s["wanted"]) for s in report["settings"] if not s["ok"]}


def test_mlx5_inbox_changes_in_this_order(host):
    """Catches a changed order: trust before ETS before PFC, everything before what reads it."""
    nic = host("connectx7_inbox")
    report = nic("apply")
    assert report["ok"], wrong(report)
    assert nic.done == [
        "ip link set dev eth2 mtu 9000",
        "ethtool -A eth2 rx off tx off",
        "ethtool -G eth2 rx 8192",
        "ethtool -G eth2 tx 8192",
        f"dcb app add dev eth2 dscp-prio {ALL_64}",
        MLX5_ETS,
        "dcb pfc set dev eth2 delay 40",
        "dcb pfc set dev eth2 prio-pfc all:off 3:on",
    ]
    debug = "/sys/kernel/debug/mlx5/0000:17:00.0/cc_params"
    assert nic.system.written == [
        "/proc/sys/net/ipv4/conf/eth2/arp_ignore=2",
        "/proc/sys/net/ipv4/conf/eth2/arp_announce=1",
        f"{debug}/np_cnp_prio_mode=0",
        f"{debug}/np_cnp_prio=6",
        f"{CONFIGFS}/mlx5_0/ports/1/default_roce_mode=RoCE v2",
        f"{CONFIGFS}/mlx5_0/ports/1/default_roce_tos=106",
    ]
    assert nic.fake.state["trust"] == "dscp"


def test_the_fec_in_use_is_told_as_switches_name_it(host):
    """Catches a FEC that never matches the switch's for its spelling, and a NIC refused for want of it."""
    nic = host("connectx7_inbox")
    told = {s["key"]: s["found"] for s in nic("check")["settings"]}
    assert told["link.fec"] == "rs"
    nic.fake.state["fec"] = "BaseR"
    assert {s["key"]: s["found"] for s in nic("check")["settings"]}["link.fec"] == "fc"
    nic.fake.state["fec"] = None
    report = nic("check")
    assert "link.fec" not in {s["key"] for s in report["settings"]}
    assert "link.fec" in {entry["key"] for entry in report["not_applicable"]}


@cases(
    "nic, changes",
    ("connectx7_inbox", {}),
    ("connectx6_vendor", {"link_speed_gbps": 200}),
    ("bcm57608_inbox", BNXT),
    ("bcm57508_vendor", {**BNXT, "link_speed_gbps": 200}),
    ("virtio_rxe", RXE),
)
class TestEveryNic:
    """What must hold whatever the driver."""

    def test_second_run_changes_nothing_and_no_link_flaps(self, host, nic, changes):
        """Catches a value whose read-back differs from what was written: it would be set again for ever."""
        machine = host(nic, **changes)
        assert machine("apply")["ok"]
        calls, toggles = len(machine.done), machine.fake.state.get("link_toggles", 0)
        again = machine("apply")
        assert again["changes"] == []
        assert len(machine.done) == calls
        assert machine.fake.state.get("link_toggles", 0) == toggles
        assert not wrong(machine("check"))

    def test_check_says_what_apply_then_does(self, host, nic, changes):
        """Catches a check mode that promises other changes than those that follow."""
        machine = host(nic, **changes)
        promised = machine("check")["changes"]
        assert machine.done == []
        # Whose a setting is stands in the promise alone: the one table of what would change needs it.
        told = [{key: value for key, value in change.items() if key != "ours"} for change in promised]
        assert told == machine("apply")["changes"]
        assert promised

    def test_rollback_restores_what_was_there(self, host, nic, changes):
        """Catches a value that is changed without a record, or that comes back as something else."""
        machine = host(nic, **changes)
        first = {s["key"]: s["found"] for s in machine("check")["settings"] if s["settable"]}
        machine("apply")
        # Drift between two runs must not become "what was there before".
        machine.fake.write(f"/sys/class/net/{machine.desired['netdev']}/mtu", "4200")
        machine("apply")
        report = machine("rollback")
        assert report["ok"], report["error"]
        last = {s["key"]: s["found"] for s in report["settings"] if s["settable"]}
        assert last.pop("dcbx.mode", None) in (None, "host ieee")
        first.pop("dcbx.mode", None)
        assert last == first

    def test_one_planted_fault_is_named_with_found_and_wanted(self, host, nic, changes):
        """Catches a read-back that looks at what was asked for and not at the machine."""
        machine = host(nic, **changes)
        machine("apply")
        device = machine.desired["rdma_device"]
        machine.fake.write(f"{CONFIGFS}/{device}/ports/1/default_roce_tos", "0")
        assert wrong(machine("check")) == {"rdma_cm.default_roce_tos": (0, 106)}


def test_mlx5_vendor_changes_only_what_differs(host):
    """Catches a needless PFC or ETS write; PFC toggles the link, and the map must lose 24 to 31 from 3."""
    nic = host("connectx6_vendor", link_speed_gbps=200)
    assert nic("apply")["ok"]
    assert nic.fake.state.get("link_toggles", 0) == 0
    [app] = [c for c in nic.done if c.startswith("dcb")]
    assert app.startswith("dcb app add dev eth2 dscp-prio ")
    entries = dict(e.split(":") for e in app.split()[6:])
    assert "26" not in entries  # already there
    assert entries["24"] == entries["31"] == entries["63"] == "0"
    assert "/sys/class/net/eth2/ecn/roce_np/cnp_dscp=48" in nic.system.written
    assert "/sys/class/net/eth2/ecn/roce_np/enable/3=1" in nic.system.written
    assert not [w for w in nic.system.written if "roce_rp" in w]


def test_bnxt_inbox_ets_before_pfc_before_app(host):
    """Catches PFC before ETS, which the driver refuses, and a CNP class left on the firmware's priority."""
    nic = host("bcm57608_inbox", **BNXT)
    report = nic("apply")
    assert report["ok"], wrong(report)
    assert [c for c in nic.done if c.startswith("dcb")] == [
        BNXT_ETS.format(cnp=2),
        "dcb pfc set dev eth2 prio-pfc all:off 3:on",
        "dcb app add dev eth2 dgram-port-prio 4791:3",
        "dcb app add dev eth2 dscp-prio 26:3 48:6",
    ]
    debug = "/sys/kernel/debug/bnxt_re/0000:17:00.0/cc_config"
    assert [w for w in nic.system.written if debug in w] == [
        f"{debug}/enable_cc=1",
        f"{debug}/tos_ecn=1",
        f"{debug}/alt_vlan_pcp=6",
    ]


def test_bnxt_vendor_deletes_before_it_adds(host):
    """Catches add-then-delete, after which the hardware has no entry for DSCP 26 although dcb shows one."""
    nic = host("bcm57508_vendor", **BNXT, link_speed_gbps=200)
    assert nic("apply")["ok"]
    assert [c for c in nic.done if "app" in c and "dscp" in c] == [
        "dcb app del dev eth2 dscp-prio 24:3 26:5",
        "dcb app add dev eth2 dscp-prio 26:3",
    ]
    assert nic.fake.state["hardware"] == {"4791": 3, "26": 3}
    assert BNXT_ETS.format(cnp=0) in nic.done


def test_bnxt_vendor_applies_once_and_after_all_attributes(host):
    """Catches attributes that are staged and never applied."""
    nic = host("bcm57508_vendor", **BNXT, link_speed_gbps=200)
    nic("apply")
    folder = "/sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc"
    assert [w for w in nic.system.written if folder in w] == [
        f"{folder}/ecn_marking=1",
        f"{folder}/disable_prio_vlan_tx=1",
        f"{folder}/roce_prio=3",
        f"{folder}/cnp_prio=6",
        f"{folder}/apply=1",
    ]


def test_firmware_that_owns_dcbx_is_one_sentence(host):
    """Catches a bare EINVAL, and changes that go on after it."""
    nic = host("bcm57608_inbox", **BNXT)
    nic.fake.state["firmware_lldp"] = True
    nic.fake.state["dcb"]["dcbx"] = ["lld_managed", "ieee"]
    report = nic("apply")
    assert not report["ok"]
    assert report["error"] == (
        "dcbx.mode: dcb dcbx set dev eth2 host ieee: Attribute write: Invalid argument -- the host must own "
        "DCBX (dcb dcbx show) on a physical function, with the firmware's LLDP agent off in NVM"
    )
    assert not [c for c in nic.done if "ets" in c or "pfc" in c or "app" in c]


def test_firmware_parameter_is_compared_and_never_set(host):
    """Catches a firmware that ignores CNPs on the RoCE priority, and a write that would need a reset."""
    nic = host("connectx7_inbox")
    nic("apply")
    nic.fake.state["firmware"]["ROCE_CC_PRIO_MASK_P1"] = 0
    assert wrong(nic("check")) == {"firmware.ROCE_CC_PRIO_MASK_P1": (0, 255)}
    assert nic("apply")["changes"] == []
    del nic.fake.state["firmware"]
    assert "firmware" in {entry["key"] for entry in nic("check")["not_applicable"]}


def test_missing_congestion_control_is_a_failure(host):
    """Catches a green read-back of a NIC whose CNP class nobody can see."""
    nic = host("connectx7_inbox")
    for name in ("np_cnp_dscp", "np_cnp_prio_mode", "np_cnp_prio"):
        (nic.fake.root / f"sys/kernel/debug/mlx5/0000:17:00.0/cc_params/{name}").unlink()
    nic("apply")
    assert wrong(nic("check")) == {
        "cnp.dscp": (None, 48),
        "cnp.priority_mode": (None, 0),
        "cnp.priority": (None, 6),
    }


@cases(
    "plant, key, found",
    (lambda f: f.write("/sys/class/net/eth2/speed", "100000"), "link.speed_gbps", 100.0),
    (lambda f: f.write("/sys/class/net/eth2/operstate", "down"), "link.state", "down"),
    (lambda f: f.write("/sys/class/net/eth2/mtu", "1500"), "mtu.host_bytes", 1500),
    (lambda f: f.state.update(active_mtu=1024), "mtu.rdma_bytes", 1024),
    (lambda f: f.state.update(ipv4="10.20.4.7/24"), "ipv4", ["10.20.4.7/24"]),
    (lambda f: f.state["dcb"]["pfc"].update(priorities=[3, 4]), "pfc.priorities", [3, 4]),
    (lambda f: f.state["dcb"]["pfc"].update(priorities=[]), "pfc.priorities", []),
    (lambda f: f.state["dcb"]["app"]["dscp_prio"].update({"26": 0}), "dscp.map", "0-47:0 48:6 49-63:0"),
    (lambda f: f.state["pause"].update(rx="on"), "pause.global", {"rx": "on", "tx": "off"}),
    (lambda f: f.state["rings"]["now"].update(rx=1024), "rings.rx", 1024),
    (lambda f: f.state["dcb"].update(dcbx=["ieee"]), "dcbx.mode", "ieee"),
    (lambda f: f.state.update(rdma={"mlx5_7": "eth2"}), "rdma.device", "mlx5_7"),
    (
        lambda f: f.write("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/2", "IB/RoCE v1"),
        "gid.type",
        "IB/RoCE v1",
    ),
    (lambda f: f.write("/proc/sys/net/ipv4/conf/eth2/arp_ignore", "0"), "arp.arp_ignore", 0),
    (lambda f: f.write("/sys/kernel/debug/mlx5/0000:17:00.0/cc_params/np_cnp_dscp", "4"), "cnp.dscp", 4),
)
def test_planted_misconfiguration_is_found(host, plant, key, found):
    """Each entry is a fault on one host; the read-back must name that setting with the value found."""
    nic = host("connectx7_inbox")
    nic("apply")
    plant(nic.fake)
    assert wrong(nic("check"))[key][0] == found


def test_rxe_makes_the_device_before_it_sets_the_tos(host):
    """Catches a ToS written to a device that is not there yet."""
    nic = host("virtio_rxe", **RXE)
    report = nic("apply")
    assert report["ok"]
    assert nic.done[0] == "rdma link add rxe0 type rxe netdev fab0"
    assert nic.system.written[-1] == f"{CONFIGFS}/rxe0/ports/1/default_roce_tos=106"
    reasons = {entry["key"]: entry["reason"] for entry in report["not_applicable"]}
    assert reasons.keys() == {"pause.global", "dcb", "dcqcn", "link.speed_gbps"}


@cases(
    "change, words",
    ({"netdev": "eth9"}, "there is no NIC 'eth9'; this host has eth2"),
    ({"netdev": "../eth2"}, "is no name of a NIC"),
    ({"ipv4": "10.20.3.7"}, "use an IPv4 address with its prefix length"),
    ({"mtu_bytes": {"host": 4096, "rdma": 4096}}, "use at least 4192"),
    ({"rdma_device": "mlx5_0; reboot"}, "rdma_device is 'mlx5_0; reboot'"),
    ({"roce": {}}, "roce.cnp is not a mapping"),
    ({"schema": 2}, "run the playbook that configures hosts again"),
    ({"link_speed_gbps": "fast"}, "link_speed_gbps is 'fast'"),
)
def test_bad_desired_state_is_refused_before_any_change(host, change, words):
    """Each entry is a file that must be refused with the key and the fix, and nothing touched."""
    nic = host("connectx7_inbox", **change)
    with pytest.raises(BadDesired) as refused:
        if "/" in nic.desired["netdev"]:
            from host_settings import targets

            targets.load_target(nic.system, nic.desired["netdev"], nic.folder)
        nic("apply")
    assert words in str(refused.value)
    assert nic.done == []


def test_the_management_nic_is_never_touched(host):
    """Catches a fabric_nics entry that is the way to the host."""
    nic = host("connectx7_inbox")
    head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask"
    route = f"{head}\neth2\t00000000\t0103140A\t0003\t0\t0\t0\t00000000"
    nic.fake.write("/proc/net/route", route)
    with pytest.raises(BadDesired, match="default route"):
        nic("apply")
    nic.fake.write("/proc/net/route", route.replace("\t00000000\t0103", "\t0003140A\t0103"))
    assert nic("apply")["ok"]


def test_ssh_session_nic_is_never_touched(host, monkeypatch):
    """Catches the same where the default route lies elsewhere."""
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 50000 10.20.3.7 22")
    with pytest.raises(BadDesired, match="carries this SSH session"):
        host("connectx7_inbox")("apply")


def test_a_running_job_is_not_interrupted(host):
    """Catches a link that is toggled under a job; what interrupts nothing is still set once it is alone."""
    nic = host("connectx7_inbox")
    nic.fake.write("/proc/4711/comm", "slurmstepd")
    with pytest.raises(ToolError, match="a Slurm job runs here -- drain the node"):
        nic("apply")
    assert nic.done == []
    assert nic.system.written == []
    (nic.fake.root / "proc/4711/comm").unlink()
    assert nic("apply")["ok"]
    nic.fake.write("/proc/4711/comm", "slurmstepd")
    nic.fake.write("/proc/sys/net/ipv4/conf/eth2/arp_ignore", "0")
    assert nic("apply")["ok"]
    with pytest.raises(ToolError, match="drain the node"):
        nic("rollback")


def test_the_keeper_of_slurms_scope_is_no_job(host):
    """Catches: an idle node with cgroup v2 taken for busy for ever; no setting of a link could be mended."""
    nic = host("connectx7_inbox")
    nic.fake.write("/proc/726/comm", "slurmstepd")
    nic.fake.write("/proc/726/cmdline", "/usr/sbin/slurmstepd\0infinity\0")
    nic.fake.write("/proc/4711/comm", "slurmstepd")
    nic.fake.write("/proc/4711/cmdline", "slurmstepd: [23.0]")
    with pytest.raises(ToolError, match="a Slurm job runs here -- drain the node"):
        nic("apply")
    (nic.fake.root / "proc/4711/comm").unlink()
    assert nic("apply")["ok"]


def test_unknown_driver_is_refused(host):
    """Catches a real NIC that would silently get Soft-RoCE."""
    nic = host("connectx7_inbox")
    link = nic.fake.root / "sys/devices/pci0000:16/0000:17:00.0/driver"
    link.unlink()
    link.symlink_to("../../../bus/pci/drivers/i40e")
    with pytest.raises(BadDesired, match="'i40e', which has no rules here"):
        nic("apply")


def test_record_of_before_holds_the_first_value_only(host):
    """Catches a second run that records its own value as what was there before."""
    nic = host("connectx7_inbox")
    nic("apply")
    nic.fake.write("/sys/class/net/eth2/mtu", "4200")
    nic("apply")
    record = json.loads((nic.fake.root / "var/lib/shakedown/settings/eth2.before.json").read_text())
    assert record["values"]["mtu.host_bytes"] == 1500
    assert record["values"]["dscp.map"] == ""


def test_dscp_map_text_is_reversible():
    """Catches a map that comes back different from the record."""
    maps = [{}, {26: 3}, {d: d >> 3 for d in range(64)}, {0: 0, 2: 0, 3: 0, 4: 1}]
    assert [map_from(map_text(m)) for m in maps] == maps
    assert map_text({d: d >> 3 for d in range(24)}) == "0-7:0 8-15:1 16-23:2"


def test_the_vendors_traffic_class_is_set_read_back_and_undone(host):
    """Catches: programs that set no class left in the default one, or the site's own value lost."""
    machine = host("connectx6_vendor", rdma_device="mlx5_0")
    path = machine.fake.root / "sys/class/infiniband/mlx5_0/tc/1/traffic_class"
    assert machine("apply")["ok"]
    assert path.read_text().strip() == "106"
    assert machine("apply")["changes"] == []
    machine("rollback")
    assert path.read_text().strip() == "26"


def test_the_reverse_path_filter_is_changed_only_if_asked(host):
    """Catches: a site's filter changed unasked, one that conf.all overrides passed, or one not given back."""
    machine = host("connectx6_vendor", rdma_device="mlx5_0")
    path = machine.fake.root / "proc/sys/net/ipv4/conf/eth2/rp_filter"
    machine("apply")
    assert path.read_text().strip() == "1"
    machine.desired["policy"] = machine.desired["policy"] | {"rp_filter": 2}
    assert machine("apply")["ok"]
    assert path.read_text().strip() == "2"
    machine.desired["policy"] = machine.desired["policy"] | {"rp_filter": 0}
    machine.fake.write("/proc/sys/net/ipv4/conf/all/rp_filter", "1")
    machine("apply")
    # The larger of the two is in force.
    assert wrong(machine("check"))["rp_filter.in_force"] == (1, 0)
    machine("rollback")
    assert path.read_text().strip() == "1"


FIRMWARE = {"PCI_WR_ORDERING": 1, "ATS_ENABLED": 0, "LLDP_NB_DCBX": 0, "ROCE_CC_PRIO_MASK": 255}


def with_firmware(machine, wanted, **more):
    """Give a host's NIC a wish for its firmware."""
    machine.desired["policy"] = machine.desired["policy"] | {"firmware": wanted} | more


def test_no_firmware_parameter_is_touched_unless_the_site_names_it(host):
    """Catches: a parameter written, or a reset demanded, that nobody asked for."""
    nic = host("connectx7_inbox")
    nic.fake.state["firmware"] |= {"PCI_WR_ORDERING": 0, "ATS_ENABLED": 1, "LLDP_NB_DCBX_P1": 1}
    nic("apply")
    assert not any("PCI_WR" in key or "ATS" in key or "LLDP" in key for key in wrong(nic("check")))
    assert not any(call.startswith("mlxconfig") for call in nic.done)


def test_named_firmware_parameters_are_compared_and_not_written(host):
    """Catches: a write to NVM without the second key."""
    nic = host("connectx7_inbox")
    nic.fake.state["firmware"] |= {"PCI_WR_ORDERING": 0, "ATS_ENABLED": 0, "LLDP_NB_DCBX_P1": 1}
    with_firmware(nic, FIRMWARE)
    nic("apply")
    report = nic("check")
    assert wrong(report) == {
        "firmware.PCI_WR_ORDERING": (0, 1),
        "firmware.PCI_WR_ORDERING.in_use": (0, 1),
        "firmware.LLDP_NB_DCBX_P1": (1, 0),
        "firmware.LLDP_NB_DCBX_P1.in_use": (1, 0),
    }
    assert not [entry for entry in report["changes"] if "firmware" in entry["key"]]
    assert not any(call.startswith("mlxconfig") for call in nic.done)
    # One listing says it all: what the site names is not compared a second time.
    keys = [s["key"] for s in report["settings"]]
    assert len(keys) == len(set(keys))


def test_firmware_is_written_with_the_key_waits_for_a_reset_and_is_undone(host):
    """Catches: a parameter called in use before the reset, and one that rollback leaves behind."""
    nic = host("connectx7_inbox")
    before = {"PCI_WR_ORDERING": 0, "ATS_ENABLED": 0, "LLDP_NB_DCBX_P1": 0}
    nic.fake.state["firmware"] |= before
    with_firmware(nic, FIRMWARE, firmware_write=True)
    planned = [did for change in nic("check")["changes"] for did in change["did"]]
    assert "mlxconfig -y -d 0000:17:00.0 set PCI_WR_ORDERING=1" in planned
    assert nic.fake.state["firmware"]["PCI_WR_ORDERING"] == 0  # --check changes nothing
    assert nic("apply")["ok"]
    assert wrong(nic("check")) == {"firmware.PCI_WR_ORDERING.in_use": (0, 1)}
    nic.fake.state["firmware_in_use"] = {}  # a reset
    assert not wrong(nic("check"))
    nic("rollback")
    assert before.items() <= nic.fake.state["firmware"].items()


def test_a_parameter_that_the_nic_has_not_hides_no_other(host):
    """Catches: mlxconfig's refusal of one name that leaves all others unknown."""
    nic = host("connectx7_inbox")
    nic.fake.state["firmware"] |= {"PCI_WR_ORDERING": 1}
    with_firmware(nic, {"PCI_WR_ORDERING": 1, "ADVANCED_PCI_SETTINGS": 1})
    nic("apply")
    assert {k for k in wrong(nic("check")) if k.startswith("firmware")} == {
        "firmware.ADVANCED_PCI_SETTINGS",
        "firmware.ADVANCED_PCI_SETTINGS.in_use",
    }


def test_firmware_without_its_tool_is_unknown_and_no_success(host):
    """Catches: a wish that passes because nothing can read it."""
    nic = host("connectx7_inbox")
    del nic.fake.state["firmware"]
    with_firmware(nic, {"PCI_WR_ORDERING": 1})
    nic("apply")
    assert wrong(nic("check"))["firmware.PCI_WR_ORDERING"] == (None, 1)


@pytest.mark.parametrize("dash", ["--", "-"])
def test_bnxt_nvm_is_read_in_either_syntax_written_with_the_key_and_undone(host, dash):
    """Catches: niccli's other dashes, mlx5's parameters asked of a bnxt NIC."""
    nic = host("bcm57608_inbox", rdma_device="bnxt_re0")
    nic.fake.state |= {"nvm": {"pcie_relaxed_ordering": 0, "performance_profile": 1}, "niccli_dash": dash}
    with_firmware(nic, {"pcie_relaxed_ordering": 1, "performance_profile": 1, "PCI_WR_ORDERING": 1})
    nic("apply")
    assert wrong(nic("check"))["firmware.pcie_relaxed_ordering"] == (0, 1)
    with_firmware(nic, {"pcie_relaxed_ordering": 1, "performance_profile": 1}, firmware_write=True)
    nic("apply")
    assert (
        f"niccli {dash}dev 0000:17:00.0 nvm {dash}setoption pcie_relaxed_ordering {dash}value 1" in nic.done
    )
    assert "firmware.pcie_relaxed_ordering" not in wrong(nic("check"))
    nic("rollback")
    assert nic.fake.state["nvm"] == {"pcie_relaxed_ordering": 0, "performance_profile": 1}


@pytest.mark.parametrize(
    ("firmware", "says"),
    [({"PCI_WR_ORDER": 1}, "names 'PCI_WR_ORDER'"), ({"CNP_DSCP": 64}, "from 0 to 63"), ([1], "no mapping")],
)
def test_a_wish_that_firmware_cannot_have_is_refused_before_any_change(host, firmware, says):
    """Catches: a misspelt parameter that reads as not asked for."""
    nic = host("connectx7_inbox")
    with_firmware(nic, firmware)
    with pytest.raises(BadDesired, match=says):
        nic("apply")
    assert nic.done == []


def test_interrupt_moderation_is_set_only_if_asked_and_given_back(host):
    """Catches: coalescing changed unasked; adaptive moderation left on, which overrules the time."""
    nic = host("connectx7_inbox")
    before = {"adaptive-rx": "on", "rx-usecs": "8"}
    nic.fake.state["coalesce"] = dict(before)
    nic("apply")
    assert nic.fake.state["coalesce"] == before
    nic.desired["policy"]["rx_usecs"] = "3"
    assert wrong(nic("check"))["coalesce.rx_usecs"] == (8, 3)
    assert nic.fake.state["coalesce"] == before  # --check changes nothing
    assert nic("apply")["ok"]
    assert nic.done[-2:] == ["ethtool -C eth2 adaptive-rx off", "ethtool -C eth2 rx-usecs 3"]
    assert nic("apply")["changes"] == []
    nic("rollback")
    assert nic.fake.state["coalesce"] == before


def test_a_driver_without_moderation_is_told_and_a_wrong_time_refused(host):
    """Catches: a NIC that fails for what it has not, and a time that no driver takes."""
    nic = host("connectx7_inbox")
    nic.desired["policy"]["rx_usecs"] = 16
    absent = {entry["key"]: entry["reason"] for entry in nic("check")["not_applicable"]}
    assert "no interrupt moderation" in absent["coalesce"]
    for bad in ("often", -1, True, 4096):
        nic.desired["policy"]["rx_usecs"] = bad
        with pytest.raises(BadDesired, match="rx_usecs"):
            nic("check")

"""Recorded machines from the node's own reader to the verdict: every fabric NIC of each stack, and faults."""

import functools
import itertools
import json
import random

import pytest

from shakedown.benchmarks.planning import site_of
from shakedown.collect.counters import counted, read_nodes
from shakedown.judge.verdict import judge
from shakedown.nics.counter_sets import RDMA
from shakedown.onnode import counters, ethtool_stats
from shakedown.onnode import counters as modules
from shakedown.plan.jobs import counter_tests
from shakedown.records.base import Outcome, Stage
from shakedown.records.results import JobRecord
from tests.kit.site import WHERE, document, hosts
from tests.machines.recorded import CASES, Machine, put
from tests.unit.nics.healthy import healthy
from tests.unit.nics.test_nic_profiles import plan_of


def renamed(driver):
    """Names of later releases of an RDMA driver, and those that limits have."""
    return next(sets.renamed for sets in RDMA if sets.driver == driver)


FAMILY = {"mlx5_core": "mlx5", "bnxt_en": "bnxt"}
LOST = {"mlx5": "rdma.packet_seq_err", "bnxt": "rdma.to_retransmits"}
CRC = {"mlx5": "ethtool.rx_crc_errors_phy", "bnxt": "ethtool.rx_fcs_err_frames"}
SECONDS = 20.0


@functools.cache
def planned(name, stack):
    """Plan and jobs of a site of two such machines; it is only read."""
    inventory = document(2)
    nics = Machine(name, stack).fabric
    rails = [{"name": f"rail{n}", "subnet": f"10.10.{n}.0/24"} for n in range(len(nics))]
    one = {"test": "ib_write_bw", "size_bytes": 65536, "iterations": 9, "rails_at_once": ["one"]}
    for number, host in enumerate(hosts(inventory), start=1):
        host["fabric"] |= {"system": "acme", "profile": "physical", "rails": rails}
        host["fabric"]["link_speed_gbps"] = nics[0]["gbps"]
        host["acceptance"] = {"perftest": [one]}
        host["fabric_nics"] = [
            {
                "rail": f"rail{n}",
                "netdev": nic["netdev"],
                "rdma_device": nic["rdma"],
                "driver": nic["driver"],
                "ipv4": f"10.10.{n}.{number}/24",
                "leaf": "leaf0",
                "leaf_port": f"swp{2 * n + number}",
            }
            for n, nic in enumerate(nics)
        ]
    return plan_of(site_of(inventory, WHERE))


class Node:
    """The node n1: a recorded machine whose NICs count, and its reader; n2 is its partner."""

    def __init__(self, case, tmp_path, monkeypatch):
        self.case = case
        self.machine, self.root, self.folder = Machine(*case), tmp_path / "root", tmp_path / "job"
        self.machine.plant(self.root)
        self.folder.mkdir()
        self.family = FAMILY[self.machine.fabric[0]["driver"]]
        self.speed = self.machine.fabric[0]["gbps"] * 1000
        self.before, self.after = {}, {}
        for number, nic in enumerate(self.machine.fabric):
            both = healthy(self.family, random.Random(number), SECONDS, self.speed)
            self.before[nic["netdev"]], self.after[nic["netdev"]] = map(dict, both)
        self.patch = monkeypatch
        self.now, self.of_modules = {}, tmp_path / "modules.json"
        for name, found in {
            "ethtool_family": lambda: 21,
            "statistics": lambda netdev: self.told(netdev, "ethtool."),
            "fec": lambda netdev, _family: self.told(netdev, "fec."),
        }.items():
            monkeypatch.setattr(ethtool_stats, name, found)
        monkeypatch.setattr(counters, "devlink_health", dict)
        readings, devices = modules.readings, counters.read_devices
        monkeypatch.setattr(modules, "readings", lambda: readings(self.of_modules, now_s=100.0))
        monkeypatch.setattr(counters, "read_devices", lambda: devices(self.root, live=True))
        monkeypatch.setenv("SLURMD_NODENAME", "n1")

    def told(self, netdev, prefix):
        """What one source says of a NIC now."""
        own = self.now.get(netdev, {})
        return {name.removeprefix(prefix): n for name, n in own.items() if name.startswith(prefix)}

    def read(self, when):
        """Run the reader once, as a job does."""
        self.now = {"before": self.before, "after": self.after}[when]
        clock = itertools.count(1000.0 + (SECONDS if when == "after" else 0.0), 0.001)
        self.patch.setattr(counters.time, "monotonic", lambda: next(clock))
        for nic in self.machine.fabric:
            interface = self.root / "sys/class/net" / nic["netdev"]
            device = self.root / "sys/class/infiniband" / nic["rdma"]
            for name, value in self.told(nic["netdev"], "netdev.").items():
                put(interface / ("" if "carrier" in name else "statistics") / name, str(value))
            for name, value in self.told(nic["netdev"], "rdma.").items():
                put(device / "ports/1/hw_counters" / name, str(value))
        told = {netdev: {"values": self.told(netdev, "dom."), "why": ""} for netdev in self.now}
        self.of_modules.write_text(json.dumps({"schema": 1, "taken_s": 60.0, "netdevs": told}))
        assert counters.main([when, str(self.folder)]) == 0

    def verdict(self):
        """What is said of all NICs of n1 over the mesh."""
        for when in ("before", "after"):
            self.read(when)
        plan, jobs = planned(*self.case)
        spec = next(spec for spec in jobs.jobs if spec.stage is Stage.FABRIC)
        test = counter_tests(jobs.jobs)[spec.name]
        about = {"run": "r1", "stage": spec.stage, "test": spec.name, "nodes": spec.nodes}
        job = JobRecord(job="7", state="COMPLETED", exit_code="0:0", **about)
        readings, flaws = read_nodes(self.folder, job, ("n1",))
        assert not flaws, flaws
        items = tuple(
            item.model_copy(update={"nodes": (("n1",),)})
            for item in plan.items
            if (item.stage, item.test) == (spec.stage, test) and item.metric.startswith("counter.")
        )
        assert {item.rails for item in items} == {(f"rail{n}",) for n in range(len(self.before))}
        part = plan.model_copy(update={"items": items, "nodes": ("n1",)})
        return judge(part, (), counted(plan, jobs, self.folder, job, spec, test, readings))


@pytest.fixture(params=CASES, ids="-".join)
def node(request, tmp_path, monkeypatch):
    """Each recorded machine with each driver stack."""
    return Node(request.param, tmp_path, monkeypatch)


def test_names_of_a_later_release(tmp_path, monkeypatch):
    """Catches: a Broadcom NIC with the driver of today never judged, and its lost packets with it."""
    node = Node(next(case for case in CASES if "thor2" in case[0]), tmp_path, monkeypatch)
    later = {
        f"rdma.{known}": f"rdma.{new}" for new, known in renamed("bnxt_re").items() if new != "np_cnp_pkts"
    }
    for reading in (node.before, node.after):
        for netdev, counters_of in reading.items():
            reading[netdev] = {later.get(name, name): n for name, n in counters_of.items()}
    for file in list(node.root.glob("sys/class/infiniband/*/ports/1/hw_counters/*")):
        if f"rdma.{file.name}" in later:
            file.unlink()
    assert node.verdict().outcome is Outcome.PASS
    nic = node.machine.fabric[1]["netdev"]
    node.after[nic]["rdma.local_ack_timeout_err"] += 3
    assert bad(node.verdict()) == {("counter.rdma.to_retransmits", "rail1")}


def bad(verdict, outcome=Outcome.FAIL):
    """The cells with that outcome, as (counter, rail)."""
    return {tuple(c.cell.split("/")[2::2][:2]) for c in verdict.cells if c.outcome is outcome}


@pytest.mark.slow
def test_a_healthy_machine_passes(node):
    """Catches: a stack whose names, renamed devices or number of NICs make counters that nobody judges."""
    verdict = node.verdict()
    assert verdict.outcome is Outcome.PASS, (verdict.reason, verdict.cells[:2])


@pytest.mark.slow
def test_a_fault_of_one_nic_is_told_of_that_nic(node):
    """Catches: loss or damage that the reader sees on one NIC told of another, or lost on the way."""
    *_, last = node.after
    for name in (LOST[node.family], CRC[node.family]):
        node.after[last][name] += 3
    rail = f"rail{len(node.after) - 1}"
    assert bad(node.verdict()) == {(f"counter.{n}", rail) for n in (LOST[node.family], CRC[node.family])}


@pytest.mark.slow
def test_a_module_without_diagnostics_and_one_that_alarms(node):
    """Catches: copper that cannot pass, or weak light of one NIC that the reader's file lost."""
    first, *_, last = [*node.after, *node.after]
    for reading in (node.before, node.after):
        for name in [name for name in reading[first] if name.startswith("dom.")]:
            del reading[first][name]
    if first != last:
        node.after[last]["dom.alarms"] = 1
    verdict = node.verdict()
    expected = {("counter.module.alarms", f"rail{len(node.after) - 1}")} if first != last else set()
    assert bad(verdict) == expected
    assert not bad(verdict, Outcome.INCONCLUSIVE)


@pytest.mark.slow
def test_a_driver_that_was_loaded_again_is_told_of_its_nic_alone(node):
    """Catches: a netdev made anew in mid-test whose counters, small again, pass for zero."""
    (number, nic), *_ = enumerate(node.machine.fabric)
    interface = node.root / "sys/class/net" / nic["netdev"]
    put(interface / "ifindex", "7")
    node.read("before")
    put(interface / "ifindex", "23")
    read, node.read = node.read, lambda when: None if when == "before" else read(when)
    verdict = node.verdict()
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert {rail for _, rail in bad(verdict, Outcome.INCONCLUSIVE)} == {f"rail{number}"}
    assert not bad(verdict)

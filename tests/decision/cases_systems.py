"""Inputs of the cases of known faults and of healthy reference systems."""

# ruff: noqa: D103  (expected.json names the fault of each case)

import json
from collections.abc import Iterable

from shakedown.references.files import load_profile
from tests.decision.case_folder import ALL_REDUCE, DROPS, WRITE_BW, Case, case, good, singles


@case
def sign_mtu_1024(c: Case) -> None:
    c.all_lines(c.plan(WRITE_BW, singles("n1", "n2")), lambda i: 391.0 if i else 369.4)


@case
def sign_mtu_2048(c: Case) -> None:
    tight = {**WRITE_BW, "tolerance": 0.01}
    c.all_lines(c.plan(tight, singles("n1", "n2")), lambda i: 391.0 if i else 384.1)


@case
def sign_pcie_downtrain(c: Case) -> None:
    c.all_lines(c.plan(WRITE_BW, singles("n1", "n2")), lambda i: 391.0 if i else 231.7)


@case
def sign_half_rate(c: Case) -> None:
    c.rails = [f"rail{i}" for i in range(8)]
    c.nodes = ["n16", "n17"]
    item = c.plan(WRITE_BW, singles("n16", "n17"), directions=["rx"])
    c.all_lines(item, lambda i: 196.0 if i == 11 else good(i))


@case
def sign_nvls_off(c: Case) -> None:
    c.rails = []
    reference = {**ALL_REDUCE, "id": "h200x8-nvls", "value": 480.0, "limit": 456.0, "ceiling": 700.0}
    reference["source"] = "NVIDIA GTC, 8 x H200 with NVLS"
    item = c.plan(
        reference,
        singles("n1", "n2"),
        stage="collective",
        test="nccl_all_reduce",
        metric="busbw",
        rails=[None],
        params={"size_bytes": 2**33},
    )
    c.all_lines(item, lambda i: 367.0 if i else 481.2)


@case
def sign_one_nic_of_eight(c: Case) -> None:
    c.rails = []
    item = c.plan(
        ALL_REDUCE,
        [["n1", "n2"]],
        stage="collective",
        test="nccl_all_reduce",
        metric="busbw",
        rails=[None],
        params={"size_bytes": 2**34},
    )
    c.line(item, ["n1", "n2"], 195.8)


@case
def sign_no_gdr(c: Case) -> None:
    c.rails = []
    reference = {**DROPS, "id": "all-channels-gdr", "value": 100.0, "limit": 100.0, "ceiling": 100.0}
    reference |= {"unit": "%", "better": "higher"}
    reference |= {"source": "every channel between nodes uses GPUDirect RDMA"}
    item = c.plan(
        reference,
        [["n1", "n2"]],
        stage="collective",
        test="nccl_all_reduce",
        metric="gdrdma_channels",
        rails=[None],
        params={"size_bytes": 2**34},
    )
    c.raw["nccl.log"] = "n1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0\n"
    c.line(item, ["n1", "n2"], 0.0, raw="raw/nccl.log")


def healthy(c: Case, profile: str, stages: Iterable[str]) -> None:
    """Every gating reference of a shipped profile, measured at its published value."""
    c.items.clear()
    c.rails = []
    loaded = load_profile(profile)
    for entry in loaded.entries:
        if not entry.gates or entry.stage.value not in stages:
            continue
        reference = json.loads(entry.reference().model_dump_json())
        params = {k: v for k, v in entry.scope.items() if isinstance(v, int | str) and k != "nodes"}
        counter = entry.metric.startswith("counter.")
        count = entry.scope.get("nodes")
        nodes = [c.nodes if isinstance(count, int) and count > 1 else c.nodes[:1]]
        item = c.plan(
            reference,
            [["leaf1"]] if counter else nodes,
            stage=entry.stage.value,
            test=entry.test,
            metric=entry.metric,
            rails=[None],
            params={"port": "Ethernet0"} if counter else params,
        )
        if counter:
            record = {"schema": 1, "run": c.name, "stage": entry.stage.value, "test": entry.test}
            record |= {"kind": "switch_port", "device": "leaf1", "port": "Ethernet0"}
            record |= {"counter": entry.metric.removeprefix("counter."), "before": 17, "after": 17}
            c.counters.append(json.dumps(record))
        else:
            c.line(item, item["nodes"][0], reference["value"])


@case
def healthy_tolly_xe9680_z9664f(c: Case) -> None:
    c.nodes = [f"n{i}" for i in range(1, 9)]
    healthy(c, "tolly_xe9680_z9664f", ("fabric", "collective", "application"))


@case
def healthy_pt_r7615_bcm57508(c: Case) -> None:
    healthy(c, "pt_r7615_bcm57508", ("node", "fabric", "collective"))


@case
def healthy_primergy_cdi(c: Case) -> None:
    c.nodes = ["tx2550"]
    healthy(c, "primergy_cdi", ("node", "application"))


@case
def healthy_ml_engineering(c: Case) -> None:
    c.nodes = ["a100"]
    healthy(c, "ml_engineering", ("node", "collective"))

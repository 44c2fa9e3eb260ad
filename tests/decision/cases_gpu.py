"""Inputs of the cases of GPUs and collectives on them."""

# ruff: noqa: D103  (expected.json names the fault of each case)

from tests.decision.case_folder import Case, Json, case, singles

BUSBW = {"id": "h200x4-all-reduce-8g", "value": 365.0, "tolerance": 0.03, "ceiling": 450.0}
BUSBW |= {"ceiling_source": "link gb_per_s=450", "unit": "GB/s", "better": "higher", "kind": "measured"}
BUSBW |= {"source": "measured for this project, 2026-11-20"}
NONE_WRONG = {"id": "none-wrong", "value": 0.0, "limit": 0.0, "unit": "1", "better": "lower"}
NONE_WRONG |= {"kind": "contract", "source": "the site's inventory and expectations"}
SIZE = {"dtype": "float", "size_bytes": 8589934592}


def busbw(c: Case, nodes: list[str]) -> Json:
    c.nodes, c.rails = nodes, []
    return c.plan(
        BUSBW,
        singles(*nodes),
        stage="collective",
        test="nccl_all_reduce",
        metric="busbw",
        rails=[None],
        params=SIZE,
    )


def check(c: Case, test: str, stage: str, params: Json) -> Json:
    return c.plan(
        NONE_WRONG, singles("n1"), stage=stage, test=test, metric="wrong", rails=[None], params=params
    )


@case
def gpus_that_cannot_be_measured(c: Case) -> None:
    problems = {
        "n1": ("environment", "no GPU on n1, 4 are planned"),
        "n2": ("environment", "3 GPUs on n2, 4 are planned"),
        "n3": ("busy", "GPUs of n3 are in use before the test by process 5868 (1636 MiB)"),
        "n4": ("environment", "the driver is too old for NCCL's CUDA: CUDA driver version is insufficient"),
        "n5": ("missing-tool", "a shared library is missing: libnccl.so.2: cannot open shared object file"),
        "n6": ("killed", "srun: hung, no end within 60 s; the watchdog ended this run only; last: ''"),
    }
    item = busbw(c, [*problems, "n7"])
    for node, (kind, message) in problems.items():
        # A number that was printed before does not help.
        c.line(item, [node], 365.0 if kind == "killed" else None, problem={"kind": kind, "message": message})
    c.line(item, ["n7"], 364.9)


@case
def gpus_not_as_wanted(c: Case) -> None:
    c.line(busbw(c, ["n1"]), ["n1"], 365.0)
    findings = {
        "count": (1.0, "3 GPUs, 4 planned"),
        "xid": (1.0, "1 Xid: NVRM: Xid (PCI:0000:00:07): 79, GPU has fallen off the bus."),
        "slowdown": (1.0, "clocks were slowed by hardware thermal slowdown"),
        "ecc": (0.0, "ECC is on, 0 uncorrectable errors"),
        "nvlink": (None, "nvidia-smi does not tell the NVLinks"),
    }
    for name, (wrong, detail) in findings.items():
        c.line(check(c, "gpu_state", "node", {"check": name}), ["n1"], wrong, detail=detail)


@case
def nccl_went_another_way(c: Case) -> None:
    c.line(busbw(c, ["n1"]), ["n1"], 365.0)
    findings = {
        "ranks": (0.0, "GPUs by host: [4], [4] planned"),
        "intra_node": (
            1.0,
            "connections inside the node: 96 by SHM, P2P wanted: data go through host memory",
        ),
        "nvls": (1.0, "NVLink SHARP is off, on wanted"),
        "network": (1.0, "8 of 8 connections between nodes go by Socket: TCP fallback, no RDMA"),
        "gdr": (1.0, "8 of 8 connections without GPUDirect RDMA"),
        "nics": (
            1.0,
            "NICs used by host: [['mlx5_0']], [['mlx5_0', 'mlx5_1']] planned: mlx5_1 carry nothing",
        ),
    }
    for name, (wrong, detail) in findings.items():
        params = {"check": name, "dtype": "float", "operation": "all_reduce"}
        c.line(check(c, "nccl_transport", "collective", params), ["n1"], wrong, detail=detail)


@case
def nccl_wrong_sum(c: Case) -> None:
    c.line(busbw(c, ["n1"]), ["n1"], 365.0)
    item = check(c, "nccl_all_reduce", "collective", SIZE)
    c.line(item, ["n1"], 7.0)


@case
def nccl_repeats_straddle_the_gate(c: Case) -> None:
    item = busbw(c, ["n1", "n2"])
    c.line(item, ["n1"], 356.0, samples=[340.0, 356.0, 365.0])
    c.line(item, ["n2"], 364.96, samples=[364.95, 364.96, 365.04])


def _sockets(c: Case, network: tuple[float, str], nics: tuple[float, str]) -> None:
    c.line(busbw(c, ["n1"]), ["n1"], 365.0)
    for name, (wrong, detail) in {"network": network, "nics": nics}.items():
        params = {"check": name, "dtype": "float", "operation": "all_reduce"}
        c.line(check(c, "nccl_transport", "collective", params), ["n1"], wrong, detail=detail)


@case
def nccl_sockets_as_expected(c: Case) -> None:
    _sockets(
        c,
        (0.0, "8 of 8 connections between nodes go by TCP, all of them wanted"),
        (0.0, "interfaces used by host: [['fab0', 'fab1']], [['fab0', 'fab1']] planned"),
    )


@case
def nccl_sockets_without_a_rail(c: Case) -> None:
    _sockets(
        c,
        (0.0, "8 of 8 connections between nodes go by TCP, all of them wanted"),
        (1.0, "interfaces used by host: [['fab0']], [['fab0', 'fab1']] planned: fab1 carry nothing"),
    )


@case
def gpu_behind_its_fellows(c: Case) -> None:
    c.line(busbw(c, ["n1"]), ["n1"], 365.0)
    detail = (
        "GPU 5 is 3.4% behind: 647.8 TFLOP/s, the other 7 GPUs' median is 670.5; another process: process "
        "1105 (638 MiB) was on it at the end; its clock is not lower than the others' 1470 MHz"
    )
    for gpu in range(8):
        item = check(c, "gpu_rate_bf16", "node", {"check": "straggler", "gpu": gpu})
        c.line(item, ["n1"], float(gpu == 5), detail=detail if gpu == 5 else "")


@case
def gpu_used_by_another_meanwhile(c: Case) -> None:
    c.nodes, c.rails = ["n1", "n2", "n3"], []
    item = c.plan(
        {**BUSBW, "id": "h200-gpu-rate-bf16", "value": 670.0, "unit": "TFLOP/s", "ceiling": 989.5},
        singles("n1", "n2", "n3"),
        stage="node",
        test="gpu_rate_bf16",
        metric="rate",
        rails=[None],
        params={"gpu": 0},
    )
    for node, value in (("n1", 669.0), ("n2", 655.0), ("n3", 640.0)):
        said = f"another process was on GPU 0 of {node} at the end: process 1105 (638 MiB)"
        c.line(item, [node], value, **({} if node == "n1" else {"disturbed": said}))


def _gdr(
    c: Case, near: float | None = 388.0, far: float | None = 250.0, wrong: str = "", **fields: Json
) -> None:
    """GPUDirect of one NIC at 400G: the floor is 353 Gb/s, of a far GPU 230 that the site signed."""
    of_400g = {**BUSBW, "unit": "Gb/s", "ceiling": 392.15, "ceiling_source": "RoCE v2 payload, 400G"}
    floor = {**of_400g, "id": "gdr", "value": 392.15, "tolerance": 0.1}
    signed = {**of_400g, "id": "gdr-far", "value": 250.0, "tolerance": 0.08}
    c.nodes, c.rails = ["n1", "n2"], ["rail0"]
    for memory, ref, value in (("host", floor, 390.0), ("near", floor, near), ("far", signed, far)):
        params = {"memory": memory, "rails_at_once": "one", "size_bytes": 1048576}
        given = {} if memory == "host" else fields
        where = {"test": "gpudirect_write", "directions": ["forward"], "params": params}
        c.line(c.plan(ref, [["n1", "n2"]], **where), ["n1", "n2"], value, **given)
        if memory == "host":
            continue
        item = c.plan(NONE_WRONG, [["n1", "n2"]], metric="wrong_memory", **where)
        bad = bool(wrong) and memory == "near"
        c.line(
            item,
            ["n1", "n2"],
            None if value is None and not wrong else float(bad),
            detail=wrong if bad else "",
            **({} if wrong else given),
        )


@case
def gdr_near_gpu_slow(c: Case) -> None:
    _gdr(c, near=200.0)


@case
def gdr_far_gpu_slow(c: Case) -> None:
    _gdr(c, far=180.0)


@case
def gdr_wrong_path(c: Case) -> None:
    _gdr(c, near=None, wrong="n2: perftest reached the GPU by peer-mem, dma-buf was ordered")


@case
def gdr_tool_without_cuda(c: Case) -> None:
    said = "n1 rail0: ib_write_bw --use_cuda=0 --version: Unsupported memory type"
    _gdr(c, near=None, far=None, problem={"kind": "not-run", "message": said})

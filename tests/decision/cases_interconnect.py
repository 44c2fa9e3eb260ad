"""Inputs of the cases of CPU-GPU path and inference."""

# ruff: noqa: D103  (expected.json names the fault of each case)

from tests.decision.case_folder import Case, Json, case, singles

RATE = {"id": "resnet50-rate", "value": 36500.0, "tolerance": 0.1, "unit": "queries/s", "better": "higher"}
RATE |= {"kind": "baseline", "source": "measured, one H200, PyTorch in half precision"}
DATA_RATE = {"id": "resnet50-data-rate", "value": 5.494, "tolerance": 0.1, "ceiling": 58.45}
DATA_RATE |= {"ceiling_source": "pcie_payload generation=5 width=16 max_payload_bytes=256", "unit": "GB/s"}
DATA_RATE |= {"better": "higher", "kind": "baseline", "source": "the rate x 150,528 B"}
PATH = {"id": "interconnect.path", "value": 0.0, "limit": 0.0, "unit": "1", "better": "lower"}
PATH |= {"kind": "contract", "source": "the site's plan of its PCIe paths"}


def searched(c: Case) -> Json:
    """Plan the peak of one GPU on two nodes; the first has one."""
    c.rails = []
    item = c.plan(
        RATE,
        singles("n1", "n2"),
        stage="application",
        test="resnet50_server",
        metric="rate",
        rails=[None],
        params={"gpus": 1},
    )
    c.line(item, ["n1"], 36281.0, samples=[36231.0, 36372.0, 36281.0])
    return item


@case
def inference_invalid(c: Case) -> None:
    message = "search.g1.json: a full run failed at 36336 queries/s or below"
    c.line(searched(c), ["n2"], None, problem={"kind": "parse", "message": message})


@case
def inference_bound_never_met(c: Case) -> None:
    message = "search.g1.json: no peak: the latency bound was never met, not even at 3710 queries/s"
    c.line(searched(c), ["n2"], None, problem={"kind": "parse", "message": message})


@case
def inference_throttled(c: Case) -> None:
    message = "GPU 0 was throttled, hardware thermal slowdown, at 1095 MHz, 91 degC, 512 W"
    c.line(searched(c), ["n2"], None, problem={"kind": "parse", "message": message})


@case
def inference_gpu_lost(c: Case) -> None:
    message = "worker 0 is lost: AcceleratorError: CUDA error: unspecified launch failure"
    c.line(searched(c), ["n2"], None, problem={"kind": "killed", "message": message}, state="COMPLETED")


@case
def inference_confirmed_on_both_sides(c: Case) -> None:
    # The median passes, one of the confirming runs does not: no run of three decides alone.
    c.line(searched(c), ["n2"], 32900.0, samples=[32700.0, 32900.0, 33100.0])


@case
def inference_above_the_link(c: Case) -> None:
    c.rails = []
    item = c.plan(
        DATA_RATE,
        singles("n1"),
        stage="application",
        test="resnet50_server",
        metric="data_rate",
        rails=[None],
        params={"gpus": 1},
    )
    c.nodes = ["n1"]
    c.line(item, ["n1"], 61.2)


@case
def path_x8_link(c: Case) -> None:
    c.rails, c.nodes = [], ["n1"]
    for gpu in (0, 1):
        item = c.plan(
            PATH,
            singles("n1"),
            stage="node",
            test="pcie_path",
            metric="wrong",
            rails=[None],
            params={"gpu": gpu, "what": "width"},
        )
        detail = f"GPU {gpu}: link 0000:17:01.0 to 0000:4{gpu}:00.0 is x8, planned x16" if gpu else None
        c.line(item, ["n1"], float(gpu), detail=detail)

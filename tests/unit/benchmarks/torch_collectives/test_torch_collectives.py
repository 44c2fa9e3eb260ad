"""Collectives through PyTorch: an output counts for what was ordered, and the NICs must have seen it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from shakedown.benchmarks.base.contract import Moved, Output, Read
from shakedown.benchmarks.registry import TOOLS
from shakedown.benchmarks.torch_collectives.output import (
    TorchCollectives,
    TorchSettings,
    parse_torch_collectives,
)
from shakedown.records.reading import BadInput
from shakedown.records.results import OutputRecord
from shakedown.run.nic_counters import JobFolder
from tests.kit.cases import cases
from tests.kit.refusal import refused

MIB = 1 << 20
ITERATIONS = 20
FACTOR = {"all_reduce": 1.5, "all_gather": 0.75, "reduce_scatter": 0.75, "broadcast": 1.0}
HOSTS = ("n1.site", "n1.site", "n2.site", "n2.site")


def header(**changes):
    """The first line of two nodes with two GPUs each."""
    line = {"type": "header", "torch": "2.11.0", "library": "2.28.9", "backend": "nccl"}
    return line | {"ranks": 4, "hosts": HOSTS, "iterations": ITERATIONS} | changes


def row(operation="all_reduce", size=MIB, messages=1, wrong=0, **changes):
    """One result that took a millisecond."""
    algbw = size * messages / 1e6
    rates = {"time_us": 1000.0, "algbw_gb_per_s": algbw, "busbw_gb_per_s": algbw * FACTOR[operation]}
    shape = {"type": "row", "operation": operation, "size_bytes": size, "messages": messages}
    return {**shape, **rates, "wrong": wrong, **changes}


def text(*lines):
    """What the program prints."""
    return "".join(json.dumps(line) + "\n" for line in lines)


def output(printed: str, operation: str = "all_reduce", **changes: object) -> Output:
    """One output of that order."""
    order = {"operations": tuple(FACTOR), "min_bytes": MIB, "max_bytes": MIB, "iterations": ITERATIONS}
    order |= {"large_bytes": MIB, "sizes": (MIB,), "ranks": {"n1": 2, "n2": 2}, "params": {"backend": "nccl"}}
    order |= {"variables": {}}
    record = OutputRecord(
        tool="torch-collectives",
        test=f"torch_{operation}",
        file="torch.jsonl",
        nodes=("n1", "n2"),
        exit_code=0,
        started="2026-11-20T00:00:00Z",
        duration_s=1.0,
    )
    return Output(printed, record, TorchSettings.model_validate(order | changes), JobFolder(Path()))


def read(one: Output) -> dict[str, float | None]:
    """Metric and its parameters, and the value."""
    values = [Read(*value) for value in TOOLS["torch-collectives"].metrics(one)]
    return {f"{v.metric} {' '.join(f'{k}={p}' for k, p in v.params.items())}": v.value for v in values}


def moved(one: Output) -> list[Moved]:
    """What must have gone over the NICs."""
    tool = TOOLS["torch-collectives"]
    assert tool.moved is not None
    return list(tool.moved(one))


@cases(
    "changes, says",
    ({"busbw_gb_per_s": 300.0}, "busbw contradicts algbw and the number of ranks"),
    ({"algbw_gb_per_s": 300.0}, "algbw contradicts size and time"),
    ({"type": "row", "size_bytes": 2 * MIB}, "algbw contradicts size and time"),
    ({"wrong": -1}, "wrong"),
)
def test_a_rate_that_size_time_and_ranks_do_not_give_is_refused(changes, says):
    """Catches: a bus bandwidth edited alone, which is the number that is judged."""
    refused(says, parse_torch_collectives, text(header(), row() | changes))


@pytest.mark.parametrize("operation", FACTOR)
def test_every_operation_has_its_own_factor(operation):
    """Catches: a good output of one operation refused by the factor of another."""
    assert read(output(text(header(), row(operation)), operation))[
        f"busbw size_bytes={MIB}"
    ] == pytest.approx(FACTOR[operation] * MIB / 1e6)


def test_one_rank_has_no_bus_bandwidth_to_contradict():
    """Catches: a run on one GPU refused, for which the program prints 0."""
    one = header(ranks=1, hosts=["n1"])
    assert parse_torch_collectives(text(one, row(busbw_gb_per_s=0.0))).rows


def test_a_row_that_is_there_twice_is_refused():
    """Catches: the better of two rows, pasted below the first, that is judged in its place."""
    better = row(time_us=500.0, algbw_gb_per_s=MIB / 5e5, busbw_gb_per_s=1.5 * MIB / 5e5)
    with pytest.raises(BadInput, match=f"all_reduce of 1 x {MIB} bytes once more"):
        parse_torch_collectives(text(header(), row(), better))


def test_the_comparison_does_not_stand_in_for_the_sweep():
    """Catches: an unchecked message judged as the checked one of the same size, which then has no `wrong`."""
    lines = header(), row(), row(wrong=None), row(size=MIB // 64, messages=64, wrong=None)
    found = read(output(text(*lines), many=64))
    assert found[f"wrong size_bytes={MIB}"] == 0
    assert found["large_over_small messages=64"] == pytest.approx(1.0)
    unchecked = read(output(text(header(), row(wrong=None)), many=64))
    assert f"busbw size_bytes={MIB}" not in unchecked


@cases("hosts", ("n1", "n1", "n1", "n1"), ("n1", "n1", "n1", "n2"), ("n1", "n2", "n3", "n4"))
def test_ranks_that_lay_elsewhere_are_not_what_was_ordered(hosts):
    """Catches: all ranks on one node, whose NVLink passes for the fabric between two."""
    refused(r"ranks by host, planned were 2 \+ 2", read, output(text(header(hosts=hosts), row())))
    assert read(output(text(header(hosts=("a", "a", "b", "b")), row())))  # whatever hosts call themselves


def test_times_that_do_not_fit_into_the_time_of_the_record_are_of_another_run():
    """Catches: rows of another run, or a record of another, with rates that agree with their own times."""
    long = row(time_us=6e4, algbw_gb_per_s=MIB / 6e7, busbw_gb_per_s=1.5 * MIB / 6e7)
    refused(r"counted over 1.2 s, the whole test took 1 s by its record", read, output(text(header(), long)))
    burst = row(wrong=None) | {"time_us": 3e5, "algbw_gb_per_s": MIB / 3e8, "busbw_gb_per_s": 1.5 * MIB / 3e8}
    refused(r"counted over 1.52 s", read, output(text(header(), row(), burst), many=64))


def test_nics_are_asked_for_the_least_that_an_operation_needs():
    """Catches: a collective between nodes certified although no NIC moved its bytes."""
    at = {one: moved(output(text(header(), *map(row, FACTOR)), one)) for one in FACTOR}
    calls = float(ITERATIONS * MIB)
    assert at["all_reduce"] == [Moved("n1", None, calls, calls), Moved("n2", None, calls, calls)]
    assert at["all_gather"] == [
        Moved("n1", None, calls / 2, calls / 2),
        Moved("n2", None, calls / 2, calls / 2),
    ]
    assert at["broadcast"] == [Moved("n1", None, calls, 0.0), Moved("n2", None, 0.0, calls)]


def test_every_message_of_the_comparison_counts_as_often_as_it_is_timed():
    """Catches: a thousand small messages asked of the NICs as one, or at the sweep's iterations."""
    lines = header(), row(wrong=None), row(size=MIB // 64, messages=64, wrong=None)
    found = moved(output(text(*lines), many=64))
    assert {one.sent for one in found} == {2.0 * MIB * ITERATIONS / 4}


def test_a_network_that_is_not_the_nics_under_test_is_not_asked_of_them():
    """Catches: good gloo, or NCCL over sockets, held to idle RDMA counters."""
    printed = text(header(), row())
    assert moved(output(printed))
    for variables in ({"NCCL_IB_DISABLE": "1"}, {"NCCL_NET": "Socket"}):
        assert moved(output(printed, variables=variables)) == []
    assert moved(output(text(header(backend="gloo"), row()), backend="gloo")) == []
    alone = text(header(ranks=2, hosts=HOSTS[:2]), row(busbw_gb_per_s=MIB / 1e6))
    assert moved(output(alone, ranks={"n1": 2})) == []


def test_one_message_is_not_compared_with_itself():
    """Catches: many: 1, whose two rows are one and the same."""
    with pytest.raises(ValueError, match="give 2 or more"):
        TorchCollectives(operations=(), many=1)


UUIDS = [f"GPU-7d46eb38-3edc-0c80-6f36-13338f314a0{n}" for n in range(2)]
PROCESSES = "gpu_uuid, pid, used_gpu_memory [MiB]\n"


def look_at_end(node: str, *, gpus: int = 2, exit_code: int = 0, said: str = PROCESSES) -> str:
    """Return a look at a node's GPUs: how many it lists, and what nvidia-smi said of their processes."""
    rows = "".join(f"{n}, {UUIDS[n]}, 700.00 W\n" for n in range(gpus))

    def command(out: str, code: int = 0) -> dict[str, object]:
        return {"argv": ["nvidia-smi"], "exit_code": code, "out": out, "error": ""}

    commands = {
        "gpus": command(f"index, uuid, power.limit [W]\n{rows}"),
        "processes": command(said, exit_code),
    }
    return json.dumps(
        {
            "schema": 1,
            "node": node,
            "when": "after",
            "taken": "2026-11-26T12:00:00.000+00:00",
            "commands": commands,
            "kernel": command(""),
            "numa": {},
        }
    )


@cases(
    "look, told",
    (look_at_end("n2"), ""),
    (
        look_at_end("n2", said=f"{PROCESSES}{UUIDS[1]}, 4711, 638 MiB\n"),
        "another process was on GPU 1 of n2 at the end: process 4711 (638 MiB)",
    ),
    (
        look_at_end("n2", exit_code=9, said="Unable to determine the device handle"),
        "who else was on the GPUs of n2 at the end is not known: "
        "nvidia-smi said 'Unable to determine the device handle'",
    ),
    (look_at_end("n2", gpus=1), "GPU 1 of n2 was not there at the end"),
    (None, "who else was on the GPUs of n2 at the end is not known: they were not looked at"),
)
def test_what_was_at_the_end_is_told_with_each_figure(tmp_path, look, told):
    """Catches: figures of GPUs that somebody worked on after the first look, or that fell off the bus, or of
    which nobody knows, taken as the cluster's own.
    """
    for node in ("n1", "n2"):
        (tmp_path / f"gpus.{node}.before.json").write_text(look_at_end(node))
    (tmp_path / "files.json").write_text("{}")
    (tmp_path / "gpus.n1.after.json").write_text(look_at_end("n1"))
    if look is not None:
        (tmp_path / "gpus.n2.after.json").write_text(look)
    burst = (row(size=MIB // n, messages=n, wrong=None) for n in (1, 1024))
    printed = text(header(), row(), *burst)
    for folder, disturbed in ((tmp_path, told), (Path(), "")):  # gloo's jobs look at no GPU
        one = replace(output(printed, many=1024, large_bytes=MIB), folder=JobFolder(folder))
        values = [Read(*value) for value in TOOLS["torch-collectives"].metrics(one)]
        assert {v.metric for v in values} == {"busbw", "wrong", "large_over_small"}
        assert {v.disturbed for v in values if v.metric != "wrong"} == {disturbed}
        assert {v.disturbed for v in values if v.metric == "wrong"} == {""}


OF_RANKS = {"gpus": ("NVIDIA H200",) * 4, "uuids": ("GPU-1", "GPU-2", "GPU-1", "GPU-2")}


def test_each_rank_tells_its_gpu():
    """Catches: ranks of one node on one GPU, or collectives on GPUs that nobody names."""
    tool = TOOLS["torch-collectives"]
    printed = output(text(header(**OF_RANKS), row()))
    assert list(tool.gpus(printed)) == [*OF_RANKS["gpus"], *OF_RANKS["uuids"]] and read(printed)
    twice = OF_RANKS | {"uuids": ("GPU-1", "GPU-1", "GPU-2", "GPU-3")}
    refused("several ranks ran on GPU-1", read, output(text(header(**twice), row())))
    with pytest.raises(BadInput, match="as many hosts and GPUs as ranks"):
        parse_torch_collectives(text(header(gpus=("NVIDIA H200",)), row()))

"""Writes runs with sweeps of nccl-tests and PyTorch, as the jobs leave them: every number is given."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shakedown.physics.collectives import Collective, busbw_factor
from tests.kit.job import output, write_job, write_outputs

Times = Mapping[int, Sequence[float]]  # by size, the time of every repeat in us
REFERENCE = {"id": "r", "value": 1, "limit": 1, "unit": "us", "better": "lower", "kind": "measured"}
REFERENCE |= {"source": "made"}


def nccl_text(
    operation: str,
    times: Mapping[int, float],
    *,
    ranks: int = 4,
    dtype: str = "float",
    gpu: str = "NVIDIA H200",
    nccl: int = 22809,
    wrong: int = 0,
) -> str:
    """Return what nccl-tests 2.19 prints."""
    sizes = sorted(times)
    factor = busbw_factor(Collective(operation), ranks)
    # The count is one rank's where an operation splits the buffer (GetCollByteCount in src/<operation>.cu).
    width = 2 if dtype == "half" else 4
    width *= ranks if operation in ("all_gather", "reduce_scatter", "alltoall") else 1
    # Today's nccl-tests moves 16 B a rank or a multiple, and prints what it moves.
    unit = 16 * ranks if width > 4 else 1
    rows, rates = [], []
    for asked in sizes:
        size = asked // unit * unit or asked
        algbw = size / times[asked] / 1e3
        rates.append(round(algbw * factor, 2))
        timing = f"{times[asked]:9.2f} {algbw:7.2f} {algbw * factor:7.2f}"
        rows.append(
            f"{size:12} {size // width:13} {dtype:>9} {'sum':>7} {-1:7} {timing} {wrong:7} {timing}       0"
        )
    step = sizes[1] // sizes[0] if len(sizes) > 1 else 2
    lines = [
        f"# nccl-tests version 2.19.6 nccl-headers={nccl} nccl-library={nccl}",
        f"# Collective test starting: {operation}_perf",
        f"# nThread 1 nGpus {ranks} minBytes {sizes[0]} maxBytes {sizes[-1]} step: {step}(factor) "
        "warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0",
        "#",
        "# Using devices",
        *(f"#  Rank {r:2} Group  0 Pid   100 on  n1 device {r:2} [0000:00:0{r}] {gpu}" for r in range(ranks)),
        "#",
        "#                                                     out-of-place                       in-place",
        "#       size         count      type   redop    root" + 2 * "     time   algbw   busbw  #wrong",
        "#        (B)    (elements)                          " + 2 * "     (us)  (GB/s)  (GB/s)        ",
        *rows,
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}",
        f"# Avg bus bandwidth    : {sum(rates) / len(rates):g} ",
        "#",
        f"# Collective test concluded: {operation}_perf",
        "#",
        "",
    ]
    return "\n".join(lines)


def write_run(
    folder: Path,
    operations: Mapping[str, Times],
    *,
    system: str = "site",
    nodes: Sequence[str] = ("n1",),
    launcher: str = "one-process",
    dtype: str = "float",
    variables: Mapping[str, str] | None = None,
    ranks: int = 4,
    torch: Times | None = None,
    log: str = "",
    network: str = "",
    label: str = "",
    profile: str | None = None,
    order: Mapping[str, Any] | None = None,
    **text: Any,
) -> Path:
    """Write a run; each operation is a job of its own, so that each has its own sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    jobs = []
    for operation, times in operations.items():
        name, test = f"collective.{operation}.{nodes[0]}{network}{label}", f"nccl_{operation}"
        repeats = len(next(iter(times.values())))
        settings = {"operations": [operation], "sizes": sorted(times), "repeats": repeats, "dtype": dtype}
        settings |= {"time_below_bytes": 1 << 20, "launcher": launcher, "split": "none", "network": network}
        settings |= {"iterations": 20, "warmup": 5, "gpus": {node: ranks // len(nodes) for node in nodes}}
        settings |= {"variables": dict(variables or {}), "min_bytes": min(times), "max_bytes": max(times)}
        settings |= {"factor": 2, "tuning": False, "params": {"dtype": dtype}, "timeout_s": 300}
        settings |= {"expect": {"nvls": False, "nics": {}}, **(order or {})}
        jobs.append(_job(name, "nccl", test, nodes, settings))
        raw = _raw(folder, name)
        output = {"tool": "nccl", "test": test, "file": f"{test}.r1.txt", "params": {"dtype": dtype}}
        outputs = [output]
        for number in range(repeats):
            one = {size: found[number] for size, found in times.items()}
            content = nccl_text(operation, one, ranks=ranks, dtype=dtype, **text)
            (raw / f"{test}.r{number + 1}.txt").write_text(content)
        if log:
            (raw / f"{test}.log").write_text(log)
            outputs.append(
                {
                    **output,
                    "tool": "nccl-log",
                    "test": "nccl_transport",
                    "file": f"{test}.log",
                    "params": {"operation": operation},
                }
            )
        _journal(raw, nodes, outputs)
    if torch:
        settings = {"operations": ["all_reduce"], "sizes": sorted(torch), "backend": "nccl", "iterations": 20}
        settings |= {"ranks": {nodes[0]: ranks}, "variables": dict(variables or {}), "many": 0}
        settings |= {"python": "/opt/torch/bin/python", "min_bytes": 64, "max_bytes": 64}
        settings |= {"params": {"backend": "nccl"}}
        jobs.append(_job("collective.torch", "torch_collectives", "torch_all_reduce", nodes, settings))
        raw = _raw(folder, "collective.torch")
        (raw / "torch.jsonl").write_text(_torch_text(torch, ranks))
        _journal(
            raw, nodes, [{"tool": "torch-collectives", "test": "torch_all_reduce", "file": "torch.jsonl"}]
        )
    item = {"stage": "collective", "test": "t", "metric": "time", "unit": "us", "better": "lower"}
    item |= {"nodes": [["n1"]], "reference": "r"}
    plan = {"schema": 1, "run": folder.name, "system": system, "profile": profile}
    plan |= {"created": "2026-11-20T08:00:00Z", "nodes": list(nodes), "items": [item]}
    plan |= {"references": {"r": REFERENCE}}
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "jobs.json").write_text(json.dumps({"schema": 1, "run": folder.name, "jobs": jobs, "nics": {}}))
    return folder


def _job(name: str, kind: str, test: str, nodes: Sequence[str], settings: dict[str, Any]) -> dict[str, Any]:
    about = {"name": name, "kind": kind, "stage": "collective", "tests": [test], "nodes": list(nodes)}
    return about | {"time_limit_s": 60, "settings": settings}


def _raw(folder: Path, name: str) -> Path:
    return write_job(folder / "raw" / f"{name}.a1", run=folder.name, stage="collective", job=name, nodes=[])


def _journal(raw: Path, nodes: Sequence[str], outputs: Sequence[dict[str, Any]]) -> None:
    write_outputs(
        raw, ({**output(one["tool"], one["file"], *nodes, duration_s=300.0), **one} for one in outputs)
    )


def _torch_text(times: Times, ranks: int) -> str:
    header = {"type": "header", "torch": "2.11.0", "library": "2.28.9", "backend": "nccl", "ranks": ranks}
    header["hosts"] = ["n1"] * ranks
    rows = [
        {
            "type": "row",
            "operation": "all_reduce",
            "size_bytes": size,
            "messages": 1,
            "time_us": time,
            "algbw_gb_per_s": size / time / 1e3,
            "busbw_gb_per_s": size / time / 1e3 * busbw_factor(Collective.ALL_REDUCE, ranks),
            "wrong": 0,
        }
        for size, (time,) in times.items()
    ]
    return "".join(json.dumps(line) + "\n" for line in (header, *rows))

"""Writes what nccl-tests would print for a small all_reduce on several nodes (layouts of 2.13 and 2.19)."""


def table(*, spread: bool) -> list[str]:
    """Headings and two rows; `spread` adds the columns of -I."""
    extra = "    i_min    i_max    i_p99    i_cv%" if spread else ""
    values = "    19.00    25.00    24.00     1.50" if spread else ""
    timing = f"    20.00    0.00    0.00      0{values}"
    names = f"     time   algbw   busbw  #wrong{extra}"
    return [
        "#",
        "#                                                     out-of-place                       in-place",
        f"#       size         count      type   redop    root{names}{names}",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)",
        *(f"{size:12}  {size // 4:12}     float     sum      -1{timing}{timing}" for size in (8, 16)),
    ]


def text(*, named: bool = False, spread: bool = False) -> str:
    """A run on two nodes of two GPUs; `named` as from 2.16 on, which states what it runs."""
    lines = [
        *(["# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22706"] if named else []),
        *(["# Collective test starting: all_reduce_perf"] if named else []),
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20"
        " agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
        *(
            f"#  Rank {r:2} Group  0 Pid {100 + r:6} on {host:>10} device {r % 2:2} [0x{r:02x}] NVIDIA H100"
            for r, host in enumerate(["n1", "n1", "n2", "n2"])
        ),
        *table(spread=spread),
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 0.0009 ",
        "#",
        *(["# Collective test concluded: all_reduce_perf", "#"] if named else []),
        "",
    ]
    return "\n".join(lines)

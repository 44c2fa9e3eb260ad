"""`shakedown ceiling ...`: what physics allows, so that a result can be called good, bad or impossible."""

import json
import sys
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Annotated

import typer

from shakedown.commands.arguments import command, group
from shakedown.physics import collectives, training
from shakedown.physics.collectives import Collective
from shakedown.physics.ethernet import (
    RDMA_MTUS_BYTES,
    RoceOperation,
    packet_overhead_bytes,
    payload_ceiling_gbps,
)
from shakedown.physics.host_links import Transfer, payload_ceiling_gb_per_s, raw_gb_per_s
from shakedown.records.reading import BadInput, ExitStatus

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Measured = Annotated[
    float | None,
    typer.Option(
        help="A result in the ceiling's unit: print its share of the ceiling; exit status 1 if it is above."
    ),
]
Speed = Annotated[float, typer.Option("--speed-gbps", help="Link speed as sold, Gb/s (10^9 bit/s).")]
Mtu = Annotated[int, typer.Option("--mtu", help="RDMA MTU in bytes: 1024, 2048 or 4096.")]
IpVersion = Annotated[int, typer.Option("--ip", help="IP version, 4 or 6.")]
Ranks = Annotated[int, typer.Option("--ranks", help="GPUs in the collective.")]

_EPILOG = "Values are per direction. Gb/s is 10^9 bit/s, GB/s is 10^9 byte/s; perftest's MB/s is MiB/s."


_ceiling = group(
    "ceiling",
    "Physical ceilings and training arithmetic. A result above its ceiling is a measurement error.",
    epilog=_EPILOG,
)


@command(
    "shakedown ceiling roce --speed-gbps 400 --mtu 4096",
    "shakedown ceiling roce --operation read --message-bytes 65536 --measured 390.89",
    "shakedown ceiling roce --table",
    of=_ceiling,
)
def roce(
    speed_gbps: Speed = 400,
    mtu: Mtu = 4096,
    operation: Annotated[RoceOperation, typer.Option(help="What carries the data.")] = RoceOperation.WRITE,
    message_bytes: Annotated[int | None, typer.Option(help="Message size; none: endless.")] = None,
    ip: IpVersion = 4,
    vlan: Annotated[bool, typer.Option("--vlan", help="Frames carry a VLAN tag.")] = False,
    table: Annotated[bool, typer.Option("--table", help="All MTUs at 100, 200, 400 and 800 Gb/s.")] = False,
    measured: Measured = None,
    as_json: Json = False,
) -> int:
    """Payload ceiling of one RoCE v2 link.

    Every packet pays 82 B beside its payload (IPv4; 102 B IPv6; +4 B VLAN), a WRITE
    16 B (RETH) per message, a READ 4 B (AETH) on its first and last response.
    """

    def ceiling(speed: float, rdma_mtu: int) -> float:
        return payload_ceiling_gbps(
            speed,
            rdma_mtu_bytes=rdma_mtu,
            operation=operation,
            message_bytes=message_bytes,
            ip_version=ip,
            vlan=vlan,
        )

    if table:
        speeds = (100, 200, 400, 800)
        rows = [
            {"rdma_mtu_bytes": m, "efficiency": ceiling(1, m)} | {f"{s}G": ceiling(s, m) for s in speeds}
            for m in RDMA_MTUS_BYTES
            if m >= 1024
        ]
        return _table(rows, as_json, unit="Gb/s of payload")
    gbps = ceiling(speed_gbps, mtu)
    return _answer(
        gbps,
        "Gb/s",
        f"RoCE v2 {operation.value} at {speed_gbps:g} Gb/s, RDMA MTU {mtu} B, "
        f"IPv{ip}{', VLAN' if vlan else ''}, "
        f"{f'{message_bytes} B' if message_bytes else 'endless'} messages: "
        f"{packet_overhead_bytes(ip_version=ip, vlan=vlan)} B of headers a packet",
        {"gb_per_s": gbps / 8, "efficiency": gbps / speed_gbps},
        measured,
        as_json,
    )


@command(
    "shakedown ceiling pcie --generation 5 --width 16 --mps 256 --measured 55.5",
    "shakedown ceiling pcie --generation 5 --width 8",
    of=_ceiling,
)
def pcie(
    generation: Annotated[int, typer.Option(help="PCIe generation, 1 to 6.")] = 5,
    width: Annotated[int, typer.Option(help="Lanes.")] = 16,
    mps: Annotated[int, typer.Option("--mps", help="MaxPayload in bytes, as lspci -vv shows it.")] = 256,
    transfer: Annotated[Transfer, typer.Option(help="h2d: device reads; d2h: device writes.")] = Transfer.H2D,
    measured: Measured = None,
    as_json: Json = False,
) -> int:
    """Payload ceiling of one PCIe link and direction, GB/s."""
    ceiling = payload_ceiling_gb_per_s(generation, width, max_payload_bytes=mps, transfer=transfer)
    raw = raw_gb_per_s(generation, width)
    return _answer(
        ceiling,
        "GB/s",
        f"PCIe Gen{generation} x{width}, MPS {mps} B, {transfer.value}: raw {raw:.2f} GB/s",
        {"raw_gb_per_s": raw, "gbps": 8 * ceiling},
        measured,
        as_json,
    )


@command(
    "shakedown ceiling busbw all_reduce --nodes 8 --nics-per-node 8 --speed-gbps 400",
    "shakedown ceiling busbw all_reduce --nodes 1 --gpus-per-node 8 --nvlink-gb-per-s 450",
    of=_ceiling,
)
def busbw(
    collective: Annotated[
        Collective, typer.Argument(help="Collective, as nccl-tests names it.")
    ] = Collective.ALL_REDUCE,
    nodes: Annotated[int, typer.Option(help="Nodes; with 1, NVLink only.")] = 8,
    gpus_per_node: Annotated[int, typer.Option(help="GPUs per node.")] = 8,
    nics_per_node: Annotated[int, typer.Option(help="NICs per node.")] = 8,
    speed_gbps: Speed = 400,
    mtu: Mtu = 4096,
    ip: IpVersion = 4,
    nvlink_gb_per_s: Annotated[float, typer.Option(help="NVLink rate of one GPU, per direction.")] = 450,
    as_json: Json = False,
) -> int:
    """Bus bandwidth ceilings of a collective, per algorithm, GB/s.

    Read the algorithm in the NCCL log first: more than the ring ceiling is legal only without Ring.
    """
    ranks = nodes * gpus_per_node
    factor = collectives.busbw_factor(collective, ranks)
    rows: list[dict[str, object]] = []
    if nodes == 1:
        rows.append({"algorithm": "Ring over NVLink", "busbw_gb_per_s": nvlink_gb_per_s})
        if collective is Collective.ALL_REDUCE:
            nvls = collectives.nvls_all_reduce_busbw_gb_per_s(nvlink_gb_per_s, ranks=ranks)
            rows.append({"algorithm": "NVLS (model; 0.60 to 0.69 of it measured)", "busbw_gb_per_s": nvls})
    else:
        nic = payload_ceiling_gbps(speed_gbps, rdma_mtu_bytes=mtu, ip_version=ip) / 8
        if collective is Collective.ALLTOALL:
            per_rank = nic * nics_per_node / gpus_per_node
            ceiling = collectives.alltoall_busbw_gb_per_s(per_rank, ranks=ranks, ranks_per_node=gpus_per_node)
            rows.append({"algorithm": "alltoall, per rank", "busbw_gb_per_s": ceiling})
        else:
            ring = collectives.flat_ring_busbw_gb_per_s([nic] * nics_per_node)
            slow = collectives.flat_ring_busbw_gb_per_s([nic] * (nics_per_node - 1) + [nic / 2])
            rows.append({"algorithm": "Ring", "busbw_gb_per_s": ring})
            rows.append({"algorithm": "Ring, one NIC at half rate", "busbw_gb_per_s": slow})
        if collective is Collective.ALL_REDUCE:
            tree = collectives.hierarchical_busbw_gb_per_s(
                nic * nics_per_node, ranks=ranks, ranks_per_node=gpus_per_node
            )
            rows.append({"algorithm": "hierarchical (Tree, NVLSTree)", "busbw_gb_per_s": tree})
    return _table(rows, as_json, unit=f"GB/s busbw; busbw = algbw x {factor:.4g} at {ranks} ranks")


@command(
    "shakedown ceiling volume --payload-gb 137.95 --ranks 64",
    "shakedown ceiling volume --payload-gb 320 --ranks 2 --gb-per-s 25",
    of=_ceiling,
)
def volume(
    payload_gb: Annotated[float, typer.Option(help="Payload in GB (10^9 B): parameters x bytes each.")],
    ranks: Ranks = 64,
    gb_per_s: Annotated[float, typer.Option(help="Rate per rank and direction, GB/s.")] = 49.02,
    as_json: Json = False,
) -> int:
    """What each rank sends per step, and how long that takes."""
    payload = payload_gb * 1e9
    volumes = {
        "one copy": payload,
        "all_reduce (DDP gradients)": training.all_reduce_bytes(payload, ranks),
        "all_gather or reduce_scatter": training.all_gather_bytes(payload, ranks),
        "full shard, gathers of one micro-batch": 2 * training.all_gather_bytes(payload, ranks),
    }
    rows: list[dict[str, object]] = [
        {"pattern": k, "gb_per_rank": v / 1e9, "time_s": training.transfer_time_s(v, gb_per_s)}
        for k, v in volumes.items()
    ]
    return _table(rows, as_json, unit=f"{ranks} ranks at {gb_per_s:g} GB/s")


@command(
    "shakedown ceiling step --parameters 2e9 --tokens 32768 --gpus 8 --peak-tflops 312 --recompute",
    of=_ceiling,
)
def step(
    parameters: Annotated[float, typer.Option(help="Parameters of the model, e.g. 2e9.")],
    tokens: Annotated[int, typer.Option(help="Tokens per step: sequence length x global batch.")],
    gpus: Annotated[int, typer.Option(help="GPUs.")] = 8,
    peak_tflops: Annotated[float, typer.Option(help="Dense peak of one GPU, TFLOP/s.")] = 989.4,
    at_mfu: Annotated[float, typer.Option("--mfu", help="Expected utilisation, 0 to 1.")] = 0.5,
    gb_per_s: Annotated[float, typer.Option(help="Rate of the slowest link, per rank, GB/s.")] = 49.02,
    gradient_bytes: Annotated[int, typer.Option(help="Bytes per gradient.")] = 4,
    recompute: Annotated[bool, typer.Option("--recompute", help="Activations are recomputed.")] = False,
    as_json: Json = False,
) -> int:
    """Does a data-parallel training step wait for the network or for the GPUs?

    Compute: 2 x 3 (recomputing: 4) x P x tokens / (GPUs x MFU x peak). Communication: one all-reduce of the
    gradients. Both overlap at best.
    """
    times = training.StepTime(
        compute_s=training.step_compute_time_s(
            parameters,
            tokens=tokens,
            gpus=gpus,
            peak_tflop_per_s=peak_tflops,
            mfu=at_mfu,
            recompute=recompute,
        ),
        communication_s=training.transfer_time_s(
            training.all_reduce_bytes(parameters * gradient_bytes, gpus), gb_per_s
        ),
    )
    result = {
        "compute_s": times.compute_s,
        "communication_s": times.communication_s,
        "step_s": times.step_s,
        "bottleneck": times.bottleneck,
    }
    text = (
        f"compute {times.compute_s:.4g} s, communication {times.communication_s:.4g} s: "
        f"the step waits for {times.bottleneck} and takes at least {times.step_s:.4g} s"
    )
    return _print(result, text, as_json)


@command(
    "shakedown ceiling sharded-step --layers 32 --gather-s 0.145 --root-gather-s 0.191 "
    "--forward-s 0.0111 --backward-s 0.0125 --measured 10.04",
    of=_ceiling,
)
def sharded_step(
    layers: Annotated[int, typer.Option(help="Layers whose weights are gathered, e.g. 32.")],
    gather_s: Annotated[float, typer.Option(help="To gather one layer's weights, s, as measured.")],
    forward_s: Annotated[float, typer.Option(help="Computing of one layer forward, s.")],
    backward_s: Annotated[float, typer.Option(help="Computing of one layer backward, s.")],
    root_gather_s: Annotated[float, typer.Option(help="To gather embedding and head, once, s.")] = 0.0,
    reduce_s: Annotated[float, typer.Option(help="To reduce one layer's gradients, s.")] = 0.0,
    head_s: Annotated[float, typer.Option(help="Head, loss and optimiser, s.")] = 0.0,
    measured: Annotated[float | None, typer.Option(help="A measured step, s: print the difference.")] = None,
    as_json: Json = False,
) -> int:
    """How long does a step take whose weights are sharded over all ranks (FSDP)?

    Gathers run one after the other; each layer computes while the next one's weights travel. The times come
    from measurements: gathers of a layer's size through PyTorch over the same network, computing from the
    trainer's log.
    """
    step_s = training.sharded_step_time_s(
        layers,
        gather_s=gather_s,
        root_gather_s=root_gather_s,
        reduce_s=reduce_s,
        layer_forward_s=forward_s,
        layer_backward_s=backward_s,
        head_s=head_s,
    )
    moving_s = root_gather_s + layers * (2 * gather_s + reduce_s)
    result = {
        "step_s": step_s,
        "network_s": moving_s,
        "computing_s": layers * (forward_s + backward_s) + head_s,
    }
    text = f"step {step_s:.4g} s: network {moving_s:.4g} s, computing {result['computing_s']:.4g} s"
    if measured is not None:
        if not (isfinite(measured) and measured > 0):
            raise BadInput(f"a step of {measured:g} s", fix="give the measured step in seconds")
        result["measured_s"], result["off"] = measured, step_s / measured - 1
        text += f"; {100 * result['off']:+.1f} % of the measured {measured:.4g} s"
    return _print(result, text, as_json)


@command(
    "shakedown ceiling mfu --model llama2-7b --sequence 2048 --gpus 1 --gpu h200 --tokens-per-s 12250",
    of=_ceiling,
)
def mfu(
    tokens_per_s: Annotated[float, typer.Option(help="Tokens per second of the whole job.")],
    model: Annotated[str, typer.Option(help="llama2-7b, llama2-13b or llama2-70b.")] = "llama2-70b",
    sequence: Annotated[int, typer.Option(help="Sequence length in tokens.")] = 8192,
    gpus: Annotated[int, typer.Option(help="GPUs.")] = 8,
    gpu: Annotated[str, typer.Option(help="a100, h100, h200, b200 or l40s.")] = "h100",
    peak_tflops: Annotated[float | None, typer.Option(help="Dense peak of one GPU instead, TFLOP/s.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Full training instead of LoRA.")] = False,
    as_json: Json = False,
) -> int:
    """Model FLOP utilisation, by the matrix products of training with LoRA of rank 16, or in full."""
    shape = training.LLAMA2.get(model)
    if shape is None:
        raise BadInput(f"model {model!r} has no known shape", fix=f"use {', '.join(training.LLAMA2)}")
    peak = peak_tflops if peak_tflops is not None else training.PEAK_BF16_TFLOP_PER_S.get(gpu)
    if peak is None:
        known = ", ".join(training.PEAK_BF16_TFLOP_PER_S)
        raise BadInput(f"GPU {gpu!r} has no known peak", fix=f"use {known}, or give --peak-tflops")
    flop = training.flop_per_token(shape, sequence_tokens=sequence, lora_rank=0 if full else 16)
    share = training.mfu(tokens_per_s, flop_per_token=flop, gpus=gpus, peak_tflop_per_s=peak)
    text = (
        f"{100 * share:.1f} %  MFU of {gpus} x {peak:g} TFLOP/s: {flop:.4g} FLOP per token "
        f"({'full training' if full else 'LoRA of rank 16'}, {shape.parameters:,} parameters)"
    )
    _print({"mfu": share, "flop_per_token": flop, "parameters": shape.parameters}, text, as_json)
    if share > 1:
        print("shakedown: more than the peak is impossible: a measurement error", file=sys.stderr)
        return ExitStatus.FAIL
    return ExitStatus.PASS


@command(
    "shakedown ceiling training --data resnet50 --epochs 37 --minutes 53.1 --link-gb-per-s 32",
    "shakedown ceiling training --data retinanet --epochs 5 --gb-per-s 2.64 --baseline-minutes 70",
    of=_ceiling,
    name="training",
)
def training_input(
    data: Annotated[str, typer.Option(help="What is read: resnet50 or retinanet.")],
    epochs: Annotated[float | None, typer.Option(help="How often the data are read.")] = None,
    minutes: Annotated[float | None, typer.Option(help="How long the training takes.")] = None,
    gb_per_s: Annotated[float | None, typer.Option(help="Rate at which it reads, GB/s.")] = None,
    link_gb_per_s: Annotated[
        float | None, typer.Option(help="What the link or path carries, GB/s: print the rate's share of it.")
    ] = None,
    baseline_minutes: Annotated[
        float | None, typer.Option(help="How long it takes elsewhere: print how much longer it takes here.")
    ] = None,
    as_json: Json = False,
) -> int:
    """What a training reads over the way from CPU to GPU; the third of epochs, minutes and rate.

    rate = epochs x samples x bytes of a sample / time. Give two of --epochs, --minutes and --gb-per-s.
    """
    read = training.DATA_SETS.get(data)
    if read is None:
        raise BadInput(f"{data!r} is no known data set", fix=f"use {', '.join(training.DATA_SETS)}")
    if epochs is not None and minutes is not None and gb_per_s is None:
        gb_per_s = training.input_gb_per_s(read, epochs=epochs, minutes=minutes)
    elif epochs is not None and minutes is None and gb_per_s is not None:
        minutes = training.training_minutes(read, epochs=epochs, gb_per_s=gb_per_s)
    elif epochs is None and minutes is not None and gb_per_s is not None:
        epochs = training.epochs_of(read, minutes=minutes, gb_per_s=gb_per_s)
    else:
        raise BadInput("the third number follows from two", fix="give two of epochs, minutes and GB/s")
    result: dict[str, object] = {"epochs": epochs, "minutes": minutes, "gb_per_s": gb_per_s}
    text = f"{epochs:.4g} epochs in {minutes:.4g} min read {gb_per_s:.4g} GB/s"
    if link_gb_per_s is not None:
        share = training.share_percent(gb_per_s, link_gb_per_s)
        result["share_percent"] = share
        text += f", {share:.4g} % of {link_gb_per_s:g} GB/s"
    if baseline_minutes is not None:
        longer = training.slowdown_percent(minutes, baseline_minutes)
        result["slowdown_percent"] = longer
        text += (
            f", {abs(longer):.4g} % {'longer' if longer >= 0 else 'shorter'} than {baseline_minutes:g} min"
        )
    return _print(result, text, as_json)


def _answer(
    ceiling: float, unit: str, formula: str, more: dict[str, float], measured: float | None, as_json: bool
) -> int:
    if measured is not None and not isfinite(measured):
        raise BadInput(f"--measured {measured} is no number", fix="give the tool's figure")
    result: dict[str, object] = {"ceiling": ceiling, "unit": unit, "formula": formula, **more}
    lines = [f"{ceiling:.2f} {unit}  {formula}"]
    impossible = measured is not None and measured > ceiling
    if measured is not None:
        result |= {"measured": measured, "share": measured / ceiling, "impossible": impossible}
        lines.append(f"{measured:g} {unit} is {100 * measured / ceiling:.2f} % of it")
        if impossible:
            lines.append("more than physics allows: a measurement error, never a pass")
    _print(result, "\n".join(lines), as_json)
    return ExitStatus.FAIL if impossible else ExitStatus.PASS


def _table(rows: Sequence[Mapping[str, object]], as_json: bool, *, unit: str) -> int:
    texts = [list(rows[0]), *([_cell(k, v) for k, v in row.items()] for row in rows)]
    widths = [max(len(text[i]) for text in texts) for i in range(len(texts[0]))]
    lines = [unit]
    for text in texts:
        # The first column names the row where it is words, and is a number like the others where it is not.
        first = text[0].rjust(widths[0]) if texts[1][0].isdigit() else text[0].ljust(widths[0])
        lines.append("  ".join([first, *(t.rjust(w) for t, w in zip(text[1:], widths[1:], strict=True))]))
    return _print({"unit": unit, "rows": rows}, "\n".join(lines), as_json)


def _cell(key: str, value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    if key == "efficiency":
        return f"{value:.4f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def _print(result: Mapping[str, object], text: str, as_json: bool) -> int:
    print(json.dumps(result, indent=2) if as_json else text)
    return ExitStatus.PASS

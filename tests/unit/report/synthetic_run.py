"""Runs of any size with known faults, written as run folders. No figure here is a measurement."""

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shakedown.judge.verdict import judge_cells, summarise
from shakedown.records.base import Better, Stage, cell_id
from shakedown.records.plan import Plan, PlanItem, Reference, ReferenceKind
from shakedown.records.results import Component, CounterReading, Measurement, RunProblem, Snapshot
from shakedown.report.source import ReportSource
from shakedown.run import folder as runs
from tests.kit import records

HIGHER, LOWER = Better.HIGHER, Better.LOWER
CREATED = "2026-11-20T08:00:00Z"


def reference(ident: str, value: float, unit: str, better: Better = HIGHER, **more: object) -> Reference:
    """A reference with a source; 5 % tolerance unless `more` says otherwise."""
    if "limit" not in more and "tolerance" not in more:
        more["tolerance"] = 0.05
    return Reference.model_validate(
        {
            "id": ident,
            "value": value,
            "unit": unit,
            "better": better,
            "kind": ReferenceKind.MEASURED,
            "source": "made up for a test",
            "set_by": "A. Tester, 2026-11-01",
            **more,
        }
    )


REFERENCES = {
    r.id: r
    for r in (
        reference(
            "mtu", 0, "mismatches", LOWER, limit=0, kind="contract", source="fabric intent: RDMA MTU 4096"
        ),
        reference(
            "h2d",
            55.4,
            "GB/s",
            tolerance=0.06,
            ceiling=58.45,
            ceiling_source="PCIe Gen5 x16, MPS 256",
            source="H200 host, nvbandwidth 0.8",
        ),
        reference(
            "write-bw",
            390.89,
            "Gb/s",
            tolerance=0.02,
            ceiling=392.15,
            ceiling_source="RoCEv2 over IPv4 at RDMA MTU 4096, 400G",
            source="Tolly, May 2024, Dell Z9664F-ON, 8 NICs at once",
            kind="vendor",
            fleet_min_effect=0.02,
        ),
        reference(
            "write-lat", 3.2, "us", LOWER, tolerance=0.25, source="earlier runs of this site", kind="baseline"
        ),
        reference(
            "lora", 17.1, "samples/s", tolerance=0.05, source="Tolly, May 2024, computed from 2 h 06 min"
        ),
        reference(
            "no-loss", 0, "packets", LOWER, limit=0, kind="contract", source="lossless class: none allowed"
        ),
    )
}
SIZES = [8 << (2 * i) for i in range(16)]  # 8 B to 8 GiB
ERROR_COUNTERS = ("out_of_sequence", "packet_seq_err", "local_ack_timeout_err")


def _busbw(size: int) -> float:
    return 389.7 / (1 + 4e7 / size)


def _latency(size: int) -> float:
    return 38.0 + size / 220e3


for _size in SIZES:
    REFERENCES[f"busbw-{_size}"] = reference(
        f"busbw-{_size}",
        round(_busbw(_size), 6),
        "GB/s",
        ceiling=392.1,
        ceiling_source="ring over 8 × 400G NICs",
    )
    REFERENCES[f"time-{_size}"] = reference(
        f"time-{_size}", round(_latency(_size), 3), "us", LOWER, tolerance=0.15
    )


@dataclass
class Faults:
    """What is wrong with a run."""

    slow_rail: tuple[str, str] | None = None  # (node, rail) at half rate
    slow_h2d: str | None = None
    impossible: bool = False
    missing_pair_results: int = 0
    killed_job: bool = False
    busy_node: str | None = None
    counter: tuple[str, str, int] | None = None  # (node, counter, delta)
    slow_collective: bool = False
    nothing: bool = False
    extra: list[Measurement] = field(default_factory=list)
    bad_cells: tuple[str, ...] = ()  # at half of their reference


def matchings(nodes: list[str], rounds: int, seed: int) -> list[tuple[str, str]]:
    """Disjoint pairs, a few rounds of them; all pairs where there are few nodes."""
    if len(nodes) <= 16:
        return [(a, b) for i, a in enumerate(nodes) for b in nodes[i + 1 :]]
    shuffled = list(nodes)
    rng = random.Random(seed)
    pairs: dict[tuple[str, str], None] = {}
    for _ in range(rounds):
        rng.shuffle(shuffled)
        for a, b in zip(shuffled[::2], shuffled[1::2], strict=False):
            pairs.setdefault((min(a, b), max(a, b)))
    return list(pairs)


def make_plan(
    nodes: int, rails: int = 8, *, metrics: int = 3, run: str = "run-1", caveats: Iterable[str] = ()
) -> Plan:
    """A plan over all stages; `metrics` above 3 adds single-node metrics."""
    names = [f"n{i:0{len(str(nodes))}d}" for i in range(1, nodes + 1)]
    rail_names = tuple(f"rail{i}" for i in range(rails))
    single = tuple((n,) for n in names)

    def item(stage: Stage, test: str, metric: str, ref: str, **more: object) -> PlanItem:
        r = REFERENCES[ref]
        return PlanItem.model_validate(
            {
                "stage": stage,
                "test": test,
                "metric": metric,
                "unit": r.unit,
                "better": r.better,
                "reference": ref,
            }
            | more
        )

    pairs = tuple(matchings(names, 3, 7))
    items = [
        item(Stage.CONFIG, "read_back", "mtu_mismatch", "mtu", nodes=single, rails=rail_names),
        *(
            item(
                Stage.NODE,
                "nvbandwidth",
                f"host_to_device_{i}" if i else "host_to_device",
                "h2d",
                nodes=single,
                rails=rail_names,
            )
            for i in range(max(1, metrics - 2))
        ),
        item(
            Stage.FABRIC,
            "ib_write_bw",
            "bandwidth",
            "write-bw",
            nodes=pairs,
            rails=rail_names,
            directions=("forward", "reverse"),
            params={"size_bytes": 65536, "qps": 4},
        ),
        item(
            Stage.FABRIC,
            "ib_write_lat",
            "p50",
            "write-lat",
            nodes=pairs,
            rails=rail_names[:1],
            directions=("forward",),
            params={"size_bytes": 8},
        ),
        *(
            item(
                Stage.COLLECTIVE,
                "all_reduce",
                metric,
                f"{prefix}-{size}",
                nodes=(tuple(names),),
                params={"size_bytes": size},
            )
            for metric, prefix in (("busbw", "busbw"), ("time", "time"))
            for size in SIZES
        ),
        item(Stage.APPLICATION, "lora", "samples_per_s", "lora", nodes=(tuple(names),)),
        *(
            item(
                Stage.FABRIC,
                "ib_write_bw",
                f"counter.{counter}",
                "no-loss",
                nodes=single,
                rails=(rail,),
                params={"port": f"mlx5_{i}"},
            )
            for i, rail in enumerate(rail_names)
            for counter in ERROR_COUNTERS
        ),
    ]
    used = {i.reference for i in items}
    return records.plan(
        *items,
        references=({k: r for k, r in REFERENCES.items() if k in used}).values(),
        schema=1,
        run=run,
        system="lab-tolly",
        profile="tolly_xe9680_z9664f",
        created=CREATED,
        nodes=tuple(names),
        rails=rail_names,
        caveats=tuple(caveats),
    )


def _clock(second: float) -> str:
    minute, s = divmod(int(second), 60)
    hour, m = divmod(minute, 60)
    return f"2026-11-20T{9 + hour:02d}:{m:02d}:{s:02d}Z"


def measurements(plan: Plan, faults: Faults, seed: int = 1) -> Iterator[Measurement]:
    """A measurement of every planned cell, less what the faults take away."""
    if faults.nothing:
        return
    rng = random.Random(seed)
    for number, item in enumerate(plan.items):
        if item.metric.startswith("counter."):
            continue
        ref = plan.references[item.reference]
        skipped = 0
        for _, nodes, rail, direction in item.cells():
            value, problem, state = (
                _value(item, nodes, rail, direction, faults, rng, ref.value),
                None,
                "COMPLETED",
            )
            if item.test == "ib_write_lat" and faults.missing_pair_results > skipped:
                skipped += 1
                continue
            if item.test == "lora" and faults.killed_job:
                value, state = None, "TIMEOUT"
            if faults.busy_node in nodes and len(nodes) == 1 and item.stage is Stage.NODE:
                problem = RunProblem(kind="busy", message="GPU 3 was in use by pid 4117 before the test")
            samples = ()
            if value is not None:
                samples = tuple(round(value * f, 6) for f in (0.9995, 1.0, 1.0003))
                if ref.value == 0:
                    samples = ()
            yield records.measured(
                item,
                nodes,
                value,
                schema=1,
                run=plan.run,
                rail=rail,
                direction=direction,
                samples=samples,
                job=str(1000 + number),
                state=state,
                started=_clock(40 * number),
                duration_s=31.5,
                raw=f"raw/{1000 + number}/{item.test}.txt",
                problem=problem,
            )
    yield from faults.extra


def _cell(item: PlanItem, nodes: tuple[str, ...], rail: str | None, direction: str | None) -> str:
    return cell_id(item.stage, item.test, item.metric, nodes, rail, direction, item.params)


def _value(
    item: PlanItem,
    nodes: tuple[str, ...],
    rail: str | None,
    direction: str | None,
    faults: Faults,
    rng: random.Random,
    good: float,
) -> float | None:
    value = good * rng.uniform(0.9965, 1.0015)
    if good == 0:
        return 0.0
    if faults.bad_cells and _cell(item, nodes, rail, direction) in faults.bad_cells:
        return good / 2
    if item.test == "ib_write_bw":
        if faults.slow_rail and faults.slow_rail[0] in nodes and faults.slow_rail[1] == rail:
            value = 196.0 * rng.uniform(0.998, 1.002)
        if faults.impossible and nodes == item.nodes[0] and rail == "rail0" and direction == "forward":
            value = 401.3
    if item.test == "nvbandwidth" and nodes[0] == faults.slow_h2d and rail == "rail1":
        value = 27.4
    if item.stage is Stage.COLLECTIVE and faults.slow_collective:
        value *= 0.52 if item.better is HIGHER else 1.9
    return round(value, 4)


def counters(plan: Plan, faults: Faults) -> Iterator[CounterReading]:
    """A reading of every planned counter."""
    if faults.nothing:
        return
    for item in plan.items:
        if not item.metric.startswith("counter."):
            continue
        counter = item.metric.removeprefix("counter.")
        for _, nodes, rail, _ in item.cells():
            delta = 0
            if faults.counter and faults.counter[:2] == (nodes[0], counter) and rail == "rail0":
                delta = faults.counter[2]
            yield records.counter(
                schema=1,
                run=plan.run,
                stage=item.stage,
                test=item.test,
                device=nodes[0],
                port=str(item.params["port"]),
                rail=rail,
                peer=f"leaf{str(rail)[4:]}/Eth1/{nodes[0][1:].lstrip('0')}",
                counter=counter,
                before=12,
                after=12 + delta,
            )


def inventory(plan: Plan) -> Snapshot:
    """An inventory in which the third node has another firmware."""
    components = []
    for number, node in enumerate(plan.nodes):
        firmware = "28.39.1002" if number != 2 else "28.36.1010"
        components.append(
            Component(host=node, kind="node", name="chassis", attributes={"model": "XE9680", "bios": "2.1.5"})
        )
        components += [
            Component(
                host=node,
                kind="nic",
                name=f"mlx5_{i}",
                attributes={"model": "ConnectX-7", "firmware": firmware, "pcie": "Gen5 x16"},
            )
            for i in range(len(plan.rails))
        ]
    return Snapshot(schema=1, run=plan.run, taken=CREATED, components=tuple(components))


RAW = """ RDMA_Write BW Test
 Dual-port       : OFF		Device         : mlx5_3
 Number of qps   : 4		Transport type : IB
 Mtu             : 4096[B]
 Link type       : Ethernet
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      448000           196.11             196.02		     0.373881
---------------------------------------------------------------------------------------
"""


def trainer_log(steps: int) -> str:
    """A log of the trainer's own format in which two ranks report and one step has no finite loss."""
    header = {"type": "header", "model": "tiny", "method": "lora", "precision": "bf16", "parallelism": "ddp"}
    header |= {"world_size": 2, "sequence_length": 128, "global_batch_samples": 8, "micro_batch_samples": 4}
    header |= {"steps": steps, "parameters": 1000, "trainable_parameters": 10}
    lines = [header]
    for step in range(1, steps + 1):
        for rank in (0, 1):
            line = {"type": "step", "step": step, "rank": rank, "step_time_s": 0.1, "samples": 8}
            line |= {"tokens": 1024}
            if rank == 1 and step != 3:
                line["loss"] = 1 + 2 / step
            lines.append(line)
    lines.append(
        {
            "type": "summary",
            "steps": steps,
            "elapsed_s": 0.1 * steps,
            "samples": 8 * steps,
            "tokens": 1024 * steps,
            "samples_per_s": 80.0,
            "tokens_per_s": 10240.0,
        }
    )
    return "".join(json.dumps(line) + "\n" for line in lines)


def write(folder: Path, plan: Plan, faults: Faults | None = None, raw: str = RAW) -> Path:
    """Write a run folder and return it."""
    faults = faults or Faults()
    runs.write_plan(folder, plan)
    found = list(measurements(plan, faults))
    runs.write_lines(folder / runs.RESULTS, found)
    runs.write_lines(folder / runs.COUNTERS, counters(plan, faults))
    runs.write_inventory(folder, inventory(plan))
    for path in {m.raw for m in found if m.raw}:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        log = trainer_log(400) if path.endswith("/lora.txt") else raw
        (folder / path).write_text(log, encoding="utf-8")
    return folder


def judged(plan: Plan, faults: Faults | None = None) -> ReportSource:
    """Return the run judged, without a folder."""
    faults = faults or Faults()
    found, read = list(measurements(plan, faults)), list(counters(plan, faults))
    cells = judge_cells(plan, found, read)
    return ReportSource(plan, found, read, inventory(plan), cells, summarise(plan, cells))

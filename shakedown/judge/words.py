"""What is measured, and where, in the words of the field: `NCCL all-reduce of 8 GiB on n1 and n2`."""

from __future__ import annotations

import re
from typing import NamedTuple

from shakedown.benchmarks.registry import TEST_WORDS
from shakedown.nos.readings import WHOLE_SWITCH
from shakedown.records.base import Stage
from shakedown.records.plan import PlanItem
from shakedown.records.wording import printable, size, those

_OPERATIONS = {
    "allreduce": "all-reduce",
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "alltoall": "all-to-all",
    "reduce_scatter": "reduce-scatter",
    "sendrecv": "send-receive",
    "pingpong": "ping-pong",
}
_OF_AN_OPERATION = ("gdrdma_channels", "large_over_small")
CLOCK = "clock"
# Settings whose finding names the place and all else by itself.
OWNERS = ("ipv4.duplicates", "ipv4.neighbours", "ipv4.routes")
CORRECTNESS = "correctness of "
_LIBRARIES = {"nccl": "NCCL", "torch": "PyTorch", "mpi": "MPI"}
# What a cell of these found names the place and all else by itself.
TELL_ALL = ("traffic_class",)
# What a metric adds to its test; what says no more than the test itself adds nothing.
_METRICS = {
    "bandwidth": "",
    "bandwidth_in": "bandwidth received",
    "bandwidth_both": "bidirectional bandwidth",
    "busbw": "bandwidth",
    "comm_share": "share of time in communication",
    "layout_overhead": "share of a step that its layout costs",
    "data_rate": "data rate",
    "differs": "",
    "final_loss": "final loss",
    "gdrdma_channels": "share of channels with GPUDirect RDMA",
    "held_back": "pauses and marks",
    "large_over_small": "time of many small messages over one large",
    "latency_p99": "latency (99th percentile)",
    "latency_typical": "latency",
    "mfu": "FLOPs utilisation",
    "nonfinite_steps": "steps without a finite or falling loss",
    "odd": "",
    "rank_skew": "slowest rank's lag",
    "samples_per_s": "samples per second",
    "share": "",
    "share_of_host": "share of host memory's bandwidth",
    "traffic_share": "share of the expected traffic",
    "wrong": "",
    "wrong_memory": "memory that perftest used",
}
_COUNTERS = {
    "alarms": "alarms raised by the cable's own module",
    "cnp_queue_drops": "congestion notifications dropped from their queue",
    "drops": "dropped packets",
    "duplicate_request": "duplicate requests",
    "ecn_marked_ppm": "ECN marks per million packets",
    "link_down_events_phy": "link losses",
    "link_downed": "link losses",
    "out_of_seq_request": "requests out of sequence",
    "pfc_rx_ppm": "pauses received per million packets",
    "pfc_tx_ppm": "pauses sent per million packets",
    "rcvd_pkts": "received RoCE packets",
    "rcvd_seq_err": "answers out of sequence",
    "retry_exceeded_err": "retries given up",
    "roce_ingress_drops": "RoCE packets dropped at ingress",
    "roce_lost_packets": "RoCE packets lost in the switch",
    "roce_misclassified_rx_packets": "RoCE packets in another class",
    "roce_queue_drops": "packets dropped from the RoCE queue",
    "roce_rx_packets": "received RoCE packets",
    "rx_crc_errors": "received frames with bit errors",
    "rx_crc_errors_phy": "received frames with bit errors",
    "rx_discards_phy": "packets discarded by the NIC",
    "rx_drops": "dropped received packets",
    "rx_dropped": "dropped received packets",
    "rx_errors": "receive errors",
    "rx_utilisation_ppm": "millionths of the link's rate received",
    "tx_drops": "packets dropped at egress",
    "tx_errors": "transmit errors",
    "tx_utilisation_ppm": "millionths of the link's rate sent",
    "warnings": "warnings raised by the cable's own module",
    "link_flaps": "changes of the link",
    "fec_uncorrectable": "frames that FEC could not mend",
    "watchdog_events": "PFC watchdog events",
}
_TO_GPU, _FROM_GPU = "from host to GPU", "from GPU to host"
_COPIES = {
    "h2d": _TO_GPU,
    "d2h": _FROM_GPU,
    "host_to_device": _TO_GPU,
    "device_to_host": _FROM_GPU,
    "device_to_device": "between GPUs",
}
# What is worked out of a NIC's counters, by the whole name. Who is held back is not who is slow.
_HELD = "millionths of the time in which it held its switch back in priority N"
_WORKED_OUT = {
    "pause.prioN_rx_ppm": "millionths of the time in which its switch held it back in priority N "
    "(slow is what it sends to, or the way there)",
    "pause.prioN_tx_ppm": _HELD,
    "pause.prioN_unmarked_ppm": f"{_HELD} without congestion",
    "class.prioN_missed_ppm": "millionths of its received RoCE bytes outside priority N",
    "class.prioN_tx_missed_ppm": "millionths of its sent RoCE bytes outside priority N",
    "twice.received_ppm": "millionths of its received RoCE packets that came twice, copied on the way",
    "phy.pre_fec_ber_e12": "bit errors before FEC in 10^12 bits",
    "phy.symbol_errors_e15": "symbol errors in 10^15 bits",
}
_PRIORITY = re.compile(r"prio([0-7])_")
_IN_CLASS = re.compile(r"tc([0-7])_(rx|tx)_(bytes|packets)")
_PERFTEST = re.compile(r"ib_(write|read|send)_(bw|lat)(_confirm)?")
_MEMCPY = re.compile(
    r"(host_to_device|device_to_host|device_to_device)_(bidirectional_)?memcpy(_read|_write)?_\w+"
)


class Place(NamedTuple):
    """Where a cell is measured."""

    nodes: tuple[str, ...]
    rail: str
    direction: str

    @staticmethod
    def of(cell: str) -> Place:
        """Return the place that a cell's identity names; `-` becomes nothing."""
        _, _, _, nodes, rail, direction, _ = printable(cell).split("/", 6)
        return Place(tuple(nodes.split(",")), rail.strip("-"), direction.strip("-"))

    @property
    def ways(self) -> tuple[str, str] | None:
        """The node that sends and the node that receives, where that is one each."""
        if len(self.nodes) != 2 or self.direction not in ("forward", "reverse"):
            return None
        first, second = self.nodes
        return (first, second) if self.direction == "forward" else (second, first)

    def __str__(self) -> str:
        rail = f" on {self.rail}" if self.rail else ""
        if self.ways:
            return f"from {self.ways[0]} to {self.ways[1]}{rail}"
        way = f", {'receiving' if self.direction == 'rx' else 'sending'}" if self.direction in _WAYS else ""
        return f"at {those(self.nodes, 'node')}{rail}{way}"


_WAYS = ("rx", "tx")
_MEMORIES = {"host": "host memory", "near": "nearest GPU", "far": "far GPU"}


def kind(item: PlanItem) -> str:
    """Return what a block of cells measures, without where: `RDMA write bandwidth`."""
    test, metric = item.test, item.metric
    if metric.startswith("counter."):
        return counter(metric.removeprefix("counter."))
    if found := _PERFTEST.fullmatch(test):
        again = " measured again" if found[3] else ""
        what = _METRICS.get(metric) or metric.replace("_", " ")
        return f"RDMA {found[1]} {what}{again}"
    if found := _MEMCPY.fullmatch(test):
        both = " in both directions" if found[2] else ""
        return f"copy {_COPIES[found[1]]}{both}"
    what = _METRICS.get(metric, metric.replace("_", " "))
    if metric == "wrong" and test.partition("_")[0] in _LIBRARIES and test not in TEST_WORDS:
        return f"{CORRECTNESS}{test_words(test)}"
    if item.stage is Stage.APPLICATION or metric in _OF_AN_OPERATION:
        return printable(f"{what} in {test_words(test)}")
    return printable(f"{test_words(test)} {what}".strip())


def test_words(test: str) -> str:
    """Return the name of a test in words."""
    prefix, _, operation = test.partition("_")
    if found := _PERFTEST.fullmatch(test):
        return f"RDMA {found[1]}"
    if test not in TEST_WORDS and prefix in _LIBRARIES:
        return printable(f"{_LIBRARIES[prefix]} {_OPERATIONS.get(operation, operation.replace('_', ' '))}")
    return printable(TEST_WORDS.get(test) or test.replace("_", " "))


def test(item: PlanItem) -> str:
    """Return the test of a block of cells in words, whatever is measured of it; nothing for counters."""
    return "" if item.metric.startswith("counter.") else test_words(item.test)


def library(item: PlanItem) -> str:
    """Return the library whose operation a block of cells measures, or nothing."""
    return _LIBRARIES.get(item.test.partition("_")[0], "")


def counter(name: str) -> str:
    """Return what a counter of a NIC or a switch counts."""
    priority = _PRIORITY.search(name)
    worked_out = _WORKED_OUT.get(_PRIORITY.sub("prioN_", name))
    if worked_out:
        return worked_out.replace("priority N", f"priority {priority[1]}") if priority else worked_out
    last = name.removesuffix(".nic").rpartition(".")[2]  # ice names what is of the whole port so
    if found := _IN_CLASS.fullmatch(last):
        return f"{found[3]} {'received' if found[2] == 'rx' else 'sent'} in class {found[1]}"
    return _COUNTERS.get(last) or printable(last.replace("_", " "))


def counted(item: PlanItem, cell: str, many: str) -> str:
    """Return the start of a sentence about a counter: `leaf1 counted 12 dropped packets on port swp1`."""
    place, port = Place.of(cell), item.params.get("port")
    on = " of ".join(
        part
        for part in (f"port {port}" if port not in (None, place.rail, WHOLE_SWITCH) else "", place.rail)
        if part
    )
    return printable(f"{those(place.nodes, 'node')} counted {many} {kind(item)}{' on ' if on else ''}{on}")


def subject(item: PlanItem, cell: str) -> str:
    """Return what one cell measures and where, for the start of a sentence."""
    place, params = Place.of(cell), item.params
    gpus, gpu, port = params.get("gpus"), params.get("gpu"), params.get("port")
    where = those(place.nodes, "node")
    rail = f" on {place.rail}" if place.rail else ""
    if item.metric.startswith("counter."):
        on = f", port {port}" if port not in (None, place.rail, WHOLE_SWITCH) else ""
        return printable(f"the counter of {kind(item)} at {where}{on}{rail}")
    part = ""
    if item.test == "copy" and place.direction:
        way, _, duplex = place.direction.partition("_")
        some = f"{gpus} GPUs at once" if isinstance(gpus, int) and gpus > 1 else f"GPU {gpu}"
        text = f"copy {_COPIES.get(way, way)}".replace("GPU", some)
        return printable(f"{text}{' in both directions' if duplex else ''} at {where}")
    if _MEMCPY.fullmatch(item.test):
        peer = f" with GPU {params['peer']}" if "peer" in params else ""
        text = (
            kind(item).replace("GPUs", f"GPU {gpu}{peer}")
            if peer
            else kind(item).replace("GPU", f"GPU {gpu}")
        )
        return printable(f"{text} at {where}")
    if isinstance(gpus, int) and item.test not in ("copy",):
        part = f" with {gpus} {'GPU' if gpus == 1 else 'GPUs'}"
    bytes_ = params.get("size_bytes")
    if isinstance(bytes_, int | float) and not _PERFTEST.fullmatch(item.test):
        part += f" of {size(bytes_)}"
    if "size_class" in params:
        part += f" with {params['size_class']} messages"
    if memory := _MEMORIES.get(str(params.get("memory"))):
        part += f", {memory}"
    if params.get("rails_at_once") == "all":
        part += ", all rails at once"
    return printable(f"{kind(item)}{part}{_over(item)} {place}")


def _over(item: PlanItem) -> str:
    """Return which network it is, where it is not the RoCE fabric: a run may measure several."""
    network = item.params.get("network", "roce")
    return "" if network == "roce" else f" over network {network}"


def not_as_planned(item: PlanItem, cell: str) -> str:
    """Return the start of a sentence about a check that found something wrong; its detail goes on."""
    place, params = Place.of(cell), item.params
    where = those(place.nodes, "node")
    rail = f" on {place.rail}" if place.rail else ""
    gpu, port = params.get("gpu"), params.get("port")
    operation = str(params.get("operation", ""))
    operation = _OPERATIONS.get(operation, operation.replace("_", " "))
    sentence = {
        "crosscheck": f"LLDP does not confirm the cable of {where}{rail}"
        if params.get("what") == "cabling"
        else f"the two ends of the cable of {where}{rail} do not agree",
        "gpu_state": f"{'the GPUs' if gpu is None else f'GPU {gpu}'} of {where} "
        f"{'are' if gpu is None else 'is'} not as planned",
        "inventory": f"{where} differs from its like",
        "mpi_allreduce_transport": f"MPI all-reduce on {where} does not run as planned",
        "mpi_pingpong_transport": f"MPI ping-pong on {where} does not run as planned",
        "nccl_transport": f"NCCL {operation}{_over(item)} on {where} does not run as planned",
        "ordered": f"{where} is not what was ordered: {params.get('what')}",
        "pcie_path": f"the PCIe path of GPU {gpu} at {where} is not as planned",
        "settings": f"the settings of {where}{rail} are not as wanted",
        "switch_settings": f"the settings of {where}{f' for port {port}' if port else ''} are not as wanted",
    }.get(item.test)
    return printable(sentence or f"{subject(item, cell)} is not as wanted")

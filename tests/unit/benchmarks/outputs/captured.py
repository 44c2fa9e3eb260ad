"""The captured outputs, and which parser reads which."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from shakedown.benchmarks.gpu.output import parse_nvbandwidth, parse_nvidia_smi, parse_query
from shakedown.benchmarks.inference.output import parse_loadgen
from shakedown.benchmarks.lora.output import parse_trainer
from shakedown.benchmarks.mpi.output import parse_allreduce
from shakedown.benchmarks.nccl.log import parse_nccl_log
from shakedown.benchmarks.nccl.output import parse_nccl
from shakedown.benchmarks.perftest.output import parse_perftest
from shakedown.benchmarks.storage.output import parse_fio
from shakedown.benchmarks.stream.output import parse_stream
from shakedown.nics.parsers import parse_ethtool, parse_rdma

FOLDER = Path(__file__).parent / "captures"

PARSERS: dict[str, Callable[..., object]] = {"perftest": parse_perftest, "nccl-tests": parse_nccl}
PARSERS |= {"nccl": parse_nccl_log, "nvbandwidth": parse_nvbandwidth, "loadgen": parse_loadgen}
PARSERS |= {"trainer": parse_trainer, "ethtool": parse_ethtool, "rdma": parse_rdma}
PARSERS |= {"nvidia-smi": parse_nvidia_smi, "mpi-allreduce": parse_allreduce, "stream": parse_stream}
PARSERS |= {"fio": parse_fio}
# Without a header: the fields must be named.
QUERY_FIELDS = ("index", "name", "memory.total", "power.draw")
PARSE_BARE_QUERY = partial(parse_query, fields=QUERY_FIELDS)


def read(name: str) -> str:
    """The text of a capture."""
    return (FOLDER / name).read_text(encoding="utf-8")


def parser_of(name: str) -> Callable[..., object]:
    """The parser of a capture, by the first word of its name."""
    return PARSERS[name.split("_", 1)[0]]


CAPTURES = sorted(path.name for path in FOLDER.iterdir() if path.suffix in {".txt", ".json", ".jsonl"})

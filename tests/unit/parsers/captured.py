"""The captured outputs, and which parser reads which."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from shakedown.parsers.ethtool import parse_ethtool
from shakedown.parsers.loadgen import parse_loadgen
from shakedown.parsers.nccl import parse_nccl
from shakedown.parsers.nccl_log import parse_nccl_log
from shakedown.parsers.nvbandwidth import parse_nvbandwidth
from shakedown.parsers.nvidia_smi import parse_nvidia_smi, parse_query
from shakedown.parsers.perftest import parse_perftest
from shakedown.parsers.rdma import parse_rdma
from shakedown.parsers.trainer import parse_trainer

FOLDER = Path(__file__).parent / "captures"

PARSERS: dict[str, Callable[..., object]] = {
    "perftest": parse_perftest,
    "nccl-tests": parse_nccl,
    "nccl": parse_nccl_log,
    "nvbandwidth": parse_nvbandwidth,
    "loadgen": parse_loadgen,
    "trainer": parse_trainer,
    "ethtool": parse_ethtool,
    "rdma": parse_rdma,
    "nvidia-smi": parse_nvidia_smi,
}
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

"""`shakedown parse`: one line and status 2 for what cannot be used, JSON and tables for what can."""

import json
import subprocess
import sys

import captured
import pytest

from shakedown.commands.parse import MAX_BYTES, parse, parsers
from shakedown.records.errors import BadInput

WRITE_BW = "perftest_25.01_rxe_write_bw_client.txt"


@pytest.mark.parametrize(
    ("tool", "name", "key", "value"),
    [
        ("perftest", WRITE_BW, "operation", "write"),
        ("nccl", "nccl-tests_2.19.6_all_reduce_4xH200.json", "operation", "all_reduce"),
        ("nccl-log", "nccl_2.28.9_debug_info_all_reduce_16G_4xH200.txt", "socket_fallback", False),
        ("nvbandwidth", "nvbandwidth_0.8_4xH200.json", "version", "v0.8"),
        ("loadgen", "loadgen_6.0.17_server_valid.txt", "valid", True),
        ("trainer", "trainer_synthetic_2ranks.jsonl", "tool", "trainer"),
        ("ethtool", "ethtool_6.14_virtio.txt", "tool", "ethtool"),
        ("rdma", "rdma_6.15_statistic_rxe.json", "tool", "rdma"),
        ("nvidia-smi", "nvidia-smi_topo_m_4xH200.txt", "tool", "nvidia-smi topo"),
    ],
)
def test_every_tool(tool, name, key, value, capsys):
    """Catches a tool that is listed and not wired up, and tables that cannot be printed."""
    file = captured.FOLDER / name
    assert parse(tool, file, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)[key] == value
    assert parse(tool, file) == 0
    assert key in capsys.readouterr().out


@pytest.mark.parametrize("tool", parsers())
def test_every_parser_refuses_what_its_tool_did_not_write(tool, tmp_path):
    """Catches a parser that is registered under a wrong name, or that reads any text as a result."""
    file = tmp_path / "other.txt"
    file.write_text("No such output.\n")
    with pytest.raises(BadInput, match=r"other\.txt"):
        parse(tool, file)


@pytest.fixture
def refused(shakedown):
    """A runner of the command that gives the one line of its refusal."""

    def run(*words: object) -> str:
        status, out, error = shakedown("parse", *words)
        assert (status, out, error.count("\n")) == (2, "", 1)
        return error

    return run


def test_refusals(refused, tmp_path):
    """Catches a refusal that is a traceback, several lines, or status 1."""
    file = tmp_path / "x.txt"
    assert "No such file" in refused("perftest", file)
    file.write_bytes(b"ok\n\xff\xfe\n")
    assert f"{file}:2: byte 0xff is not UTF-8" in refused("perftest", file)
    with file.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    assert "larger than 64 MiB" in refused("perftest", file)
    file.write_text(captured.read(WRITE_BW)[:-30])
    assert f"{file}:24: output ends before the dashes" in refused("perftest", file)
    assert "--partial is not for perftest" in refused("perftest", file, "--partial")
    assert "--report-gbits is not for nccl" in refused("nccl", file, "--report-gbits")
    assert "no labels" in refused("perftest", file, "--task", "0")


def test_options_reach_the_parser(shakedown, refused, tmp_path):
    """Catches an option that is taken and not passed on."""
    file = tmp_path / "x.txt"
    lines = captured.read(WRITE_BW).splitlines()
    file.write_text("".join(f"0: {line}\n1: srv {line}\n" for line in lines))
    assert "several tasks" in refused("perftest", file)
    assert shakedown("parse", "perftest", file, "--task", "0")[0] == 0
    assert "no output of task 2 -- its tasks are 0, 1" in refused("perftest", file, "--task", "2")
    assert "contradicts --report-gbits" in refused("perftest", captured.FOLDER / WRITE_BW, "--report-gbits")
    file.write_text("0, NVIDIA H200\n")
    assert shakedown("parse", "nvidia-smi", file, "--fields", "index,name")[0] == 0
    file.write_text("".join(captured.read("trainer_synthetic_2ranks.jsonl").splitlines(keepends=True)[:2]))
    assert "ends before the summary" in refused("trainer", file)
    assert shakedown("parse", "trainer", file, "--partial")[0] == 0


def test_importing_the_command_is_cheap():
    """Catches pydantic or rich imported before a command is chosen: `shakedown --help` must stay fast."""
    code = (
        "import sys, shakedown.commands.parse; print('pydantic' in sys.modules, 'rich.table' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split()[0] == "False"

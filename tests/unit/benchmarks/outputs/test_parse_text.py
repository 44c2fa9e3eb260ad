"""The shared ground: numbers, labels, colours, Slurm's messages, JSON."""

import json
import subprocess
import sys

import captured
import pytest

from shakedown.benchmarks.lora.output import TrainerHeader, TrainerStep, TrainerSummary, parse_trainer
from shakedown.commands.parse import MAX_BYTES, parse, parsers
from shakedown.records.reading import BadInput
from shakedown.records.tool_text import TextSource, half_digit, split_labels
from tests.kit.cases import cases

SOURCE = TextSource("x\n", "f")


@cases("token", "", " 1", "1_000", "0x10", "1.5", "١", "1e3", "--1", "9" * 30, None, True, 1.0)
def test_only_decimal_digits_are_integers(token):
    """Catches what Python's int() accepts and no tool prints, and digits of another script."""
    with pytest.raises(BadInput, match="should be a whole number"):
        SOURCE.integer(token, "n")


@cases("token", "", "nan", "inf", "-inf", "1e999", "1_0.5", "1,5", "N/A", "0x1p3", "١.٥", None, True, 10**400)
def test_only_finite_decimals_are_numbers(token):
    """Catches infinities, NaN and what Python's float() accepts beyond them."""
    with pytest.raises(BadInput, match="should be a finite number"):
        SOURCE.number(token, "n")


def test_numbers():
    """Catches a sign, a fraction or an exponent lost."""
    assert [SOURCE.integer(x, "n") for x in ("0", "-7", "18446744073709551615", 3)] == [0, -7, 2**64 - 1, 3]
    assert [SOURCE.number(x, "n") for x in ("0.10", "-2.5e-3", "1e+06", 4)] == [0.1, -0.0025, 1e6, 4.0]


@pytest.mark.parametrize(
    ("token", "half"), [("12.34", 0.005), ("7", 0.5), ("1.2e+04", 500.0), ("0e999", None)]
)
def test_half_a_digit(token, half):
    """Catches a tolerance of the wrong power of ten."""
    assert half_digit(token) == (pytest.approx(half) if half else float("inf"))


def test_refusal_names_file_line_and_fix():
    """Catches a message from which nobody finds the place."""
    with pytest.raises(BadInput) as refused:
        TextSource("a\nb\x07c\n", "raw/n1.txt")
    assert str(refused.value).startswith("raw/n1.txt:2: control character")
    assert " -- capture the tool's output as plain text" in str(refused.value)


@pytest.mark.parametrize("text", ["\x1b[2Ja", "a\x1b[3Db", "a\rb", "a\x00b", "a\x9bb", "\x1b]0;title\x07a"])
def test_what_moves_the_cursor_is_refused(text):
    """Catches a terminal recording in which later text overwrote earlier text."""
    with pytest.raises(BadInput, match="control character"):
        TextSource(text)


BESIDE = {
    "libibverbs: Warning: couldn't open config directory '/etc/libibverbs.d'.": 1,
    "libibverbs: Warning: RLIMIT_MEMLOCK is 32768 byte.\n   This will severely limit memory registrations": 2,
    "librdmacm: Warning: couldn't read ABI version.": 1,
    "mlx5: Warning: fork support is not enabled": 1,
    "libnuma: Warning: /sys not mounted or invalid. Assuming one node: No such file or directory": 1,
    "libgomp: Invalid value for environment variable OMP_NUM_THREADS": 1,
    "ERROR: ld.so: object '/usr/lib/x.so' from LD_PRELOAD cannot be preloaded (cannot open): ignored.": 1,
    "[1732869999.123456] [gpu1:1234 :0]   parser.c:2036 UCX  WARN  unused environment variables: UCX_HOME": 1,
    "[gpu1:12345] PMIX ERROR: ERROR in file ../src/mca/gds/ds12/gds_ds12_lock_pthread.c at line 168": 1,
    "[gpu1:123] mca_base_component_repository_open: unable to open mca_btl_openib: librdmacm: (ignored)": 1,
    "hwloc/linux: failed to find sysfs cpu topology directory, aborting linux discovery.": 1,
    "Invalid MIT-MAGIC-COOKIE-1 key": 1,
    "/bin/bash: warning: setlocale: LC_ALL: cannot change locale (tr_TR.UTF-8)": 1,
    "perl: warning: Setting locale failed.": 1,
    "/etc/profile.d/lmod.sh: line 3: module: command not found": 1,
    "ERROR: This container was built for NVIDIA Driver Release 580.82 or later, but 535 was detected": 1,
    f"{'-' * 74}\nA process has executed fork()\nother system errors; your job may hang\n{'-' * 74}": 1,
    f"{'*' * 76}\n* hwloc 2.9.0 received invalid information\n*\n* Failed with: ...\n{'*' * 76}": 1,
}


@pytest.mark.parametrize("words", BESIDE)
def test_what_others_say_beside_a_tool_costs_no_result_and_is_told(words):
    """Catches: a whole mesh INCONCLUSIVE for a library's word about a NIC that is in another machine."""
    for name in (
        "perftest_25.01_rxe_write_bw_client.txt",
        "perftest_4.5_rxe_write_lat_client.txt",
        "nvbandwidth_0.8_4xH200.json",
    ):
        plain = captured.read(name)
        for text in (f"{words}\n{plain}", f"{plain}{words}\n"):
            found = captured.parser_of(name)(text)
            if name.startswith("perftest"):
                assert len(found.warnings) == BESIDE[words]
                found = found.model_copy(update={"warnings": ()})
            assert found == captured.parser_of(name)(plain)


@cases(
    "words",
    "Couldn't connect to 10.0.0.1:18515",
    "Failed status 12: wr_id 0 syndrom 0x81",
    "libibverbs: fatal error",
)
def test_what_a_tool_says_itself_still_refuses_its_output(words):
    """Catches: an error of the test's own that passes for another program's word."""
    plain = captured.read("perftest_25.01_rxe_write_bw_client.txt")
    with pytest.raises(BadInput, match="reported an error"):
        captured.parser_of("perftest")(f"{words}\n{plain}")
    with pytest.raises(BadInput, match=r"the tool said nothing, only: 'libibverbs: Warning"):
        captured.parser_of("perftest")("libibverbs: Warning: no userspace device-specific driver found\n")


def test_an_image_may_greet_before_json():
    """Catches: NGC's banner before nvbandwidth's JSON, which cost every copy of the node."""
    name = "nvbandwidth_0.8_4xH200.json"
    plain = captured.read(name)
    greeting = "=============\n== PyTorch ==\n=============\n\nNVIDIA Release 25.10 (build 221210393)\n"
    assert captured.parser_of(name)(greeting + plain) == captured.parser_of(name)(plain)


@cases("text", "", "\n\n", "  \n", "\x1b[0m\n", "0: \n0:\n", "srun: job 5 queued and waiting\n")
def test_no_output_is_refused(text):
    """Catches an empty file taken for a result."""
    with pytest.raises(BadInput, match="no output"):
        TextSource(text)


@pytest.mark.parametrize("label", ["0: ", " 3: ", "12: ", "[1,0]<stdout>:"])
def test_the_label_of_one_task_is_taken_off(label):
    """Catches labels read as part of the output, and line numbers that they shift."""
    source = TextSource("".join(f"{label}{x}\n" for x in ("a", "", " b")))
    assert [(line.number, line.text) for line in source.lines] == [(1, "a"), (2, ""), (3, " b"), (4, "")]


def test_labels_of_several_tasks_are_refused_and_can_be_split():
    """Catches rows of two tasks read as one table."""
    text = "0: a\n1: x\n0: b\nsrun: Job step creation temporarily disabled, retrying\n1: y\n"
    with pytest.raises(BadInput, match=r"several tasks is interleaved \(labels 0, 1\) -- .*--task"):
        TextSource(text)
    assert split_labels(text) == {"0": "a\n\nb\n\n\n", "1": "\nx\n\n\ny\n"}
    assert split_labels("a\n0: b\n") == {}


def test_lines_that_only_look_labelled_are_left_alone():
    """Catches a tool's own "1: " eaten because some other line has it too."""
    assert [line.text for line in TextSource("0: a\nb\n").lines] == ["0: a", "b", ""]


@pytest.mark.parametrize("read", [TextSource, split_labels])
def test_a_line_without_a_label_among_labelled_ones_is_refused(read):
    """Catches a launcher's own message taken for a task's, and all labels then taken for output."""
    with pytest.raises(BadInput, match="without a task's label: 'WARNING: no fabric'") as refused:
        read("[1,0]<stdout>:a\n[1,0]<stdout>:b\nWARNING: no fabric\n", file="f")
    assert str(refused.value).startswith("f:3: ")


@cases(
    "line",
    "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-11-20T10:00:00 DUE TO TIME LIMIT ***",
    "srun: error: n2: task 1: Exited with exit code 1",
    "slurmstepd-n1: error: Detected 1 oom_kill event in StepId=12.0",
    "srun: error: n1: task 0: Segmentation fault (core dumped)",
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
)
def test_a_step_that_slurm_ended_is_refused(line):
    """Catches the output of a killed step that happens to look whole."""
    for text in (f"a\n{line}\nb\n", f"0: a\n{line}\n"):
        with pytest.raises(BadInput, match="Slurm ended the step"):
            TextSource(text)
    assert TextSource("srun: job 5 queued and waiting for resources\na\n").lines[0].text == "a"


@pytest.mark.parametrize("name", [x for x in captured.CAPTURES if not x.startswith("ethtool")])
def test_decorated_captures_read_the_same(name):
    """Catches a parser that is put off by CRLF, colour or a label of a terminal or of srun."""
    text, parse = captured.read(name), captured.parser_of(name)
    plain = parse(text)
    assert parse(text.replace("\n", "\r\n")) == plain
    lines = text.removesuffix("\n").split("\n")
    assert parse("".join(f"\x1b[1;31m{line}\x1b[0m\x1b[K\n" for line in lines)) == plain
    assert parse("".join(f" 3: {line}\n" for line in lines)) == plain


LOG = captured.read("trainer_synthetic_2ranks.jsonl")
LINES = LOG.splitlines()


def test_values():
    """Catches a field dropped between what the trainer writes and what the verdict reads."""
    result = parse_trainer(LOG)
    assert (result.header.method, result.header.world_size, result.header.hosts) == ("lora", 2, ("n1", "n2"))
    step = result.steps[0]
    assert (step.step, step.rank, step.step_time_s, step.samples, step.tokens) == (1, 0, 3.25, 8, 65536)
    assert (step.loss, step.grad_norm, step.memory_bytes) == (1.41, 0.9, 64424509440)
    assert (step.power_w, step.comm_s, step.mfu) == (612.5, 0.021, 0.37)
    assert result.steps[1].loss is None
    assert result.summary is not None
    assert (result.summary.steps, result.summary.samples_per_s) == (2, 2.46)


def test_what_the_models_write_is_read_back():
    """Catches a writer and a reader that drift apart."""
    result = parse_trainer(LOG)
    records: list[TrainerHeader | TrainerStep | TrainerSummary | None] = [
        result.header,
        *result.steps,
        result.summary,
    ]
    text = "".join(x.model_dump_json(exclude_none=True) + "\n" for x in records if x is not None)
    assert parse_trainer(text) == result


@cases(
    "text, message",
    ("\n".join(LINES[:-1]) + "\n", "ends before the summary"),
    (LOG[:-20], "ends before the end of its last line"),
    ("\n".join(LINES[1:]) + "\n", "first line is not the header"),
    (LOG + LINES[1] + "\n", "line after the summary"),
    ("\n".join([LINES[0], *LINES]) + "\n", "second header"),
    ("\n".join([*LINES[:3], *LINES[4:]]) + "\n", "the summary counts 2 steps, the log has"),
    ("\n".join([*LINES[:1], *LINES[3:]]) + "\n", "step 2 of rank 0 after step 0"),
    ("\n".join([*LINES[:2], *LINES[1:]]) + "\n", "step 1 of rank 0 after step 1"),
    (LOG.replace('"rank":1', '"rank":2', 1), "rank 2 of a job of 2"),
    (LOG.replace('"loss":1.41', '"loss":NaN'), "not a finite number"),
    (LOG.replace('"loss":1.41', '"loss":1e999'), "finite number"),
    (LOG.replace('"loss":1.41', '"loss":"1.41"'), "loss"),
    (LOG.replace('"step_time_s":3.25', '"step_time_s":0', 1), "step_time_s"),
    (LOG.replace('"step_time_s":3.25', '"step_time":3.25', 1), "step_time"),
    (LOG.replace('"type":"step"', '"type":"stop"', 1), "unknown type 'stop'"),
    (LOG.replace('"schema_version":1', '"schema_version":2'), "schema_version"),
    ("\n".join([LINES[0], LINES[-1]]) + "\n", "the log has none"),
)
def test_damaged_logs_are_refused(text, message):
    """Catches a killed job's log taken for a finished one, and a lost step."""
    assert text != LOG
    with pytest.raises(BadInput, match=message):
        parse_trainer(text)


def test_a_truncated_log_on_request():
    """Catches a half-written last line read as a step."""
    cut = "\n".join(LINES[:4]) + "\n" + LINES[4][:30]
    result = parse_trainer(cut, allow_truncated=True)
    assert result.summary is None
    assert [(step.step, step.rank) for step in result.steps] == [(1, 0), (1, 1), (2, 0)]
    with pytest.raises(BadInput, match=r"not JSON|ends before"):
        parse_trainer(cut + "\n", allow_truncated=True)  # the line was ended, so it is damaged, not cut off


WRITE_BW = "perftest_25.01_rxe_write_bw_client.txt"


@cases(
    "tool, name, key, value",
    ("perftest", WRITE_BW, "operation", "write"),
    ("nccl", "nccl-tests_2.19.6_all_reduce_4xH200.txt", "operation", "all_reduce"),
    ("nccl-log", "nccl_2.28.9_debug_info_all_reduce_16G_4xH200.txt", "socket_fallback", False),
    ("nvbandwidth", "nvbandwidth_0.8_4xH200.json", "version", "v0.8"),
    ("loadgen", "loadgen_6.0.17_server_valid.txt", "valid", True),
    ("trainer", "trainer_synthetic_2ranks.jsonl", "tool", "trainer"),
    ("ethtool", "ethtool_6.14_virtio.txt", "tool", "ethtool"),
    ("rdma", "rdma_6.15_statistic_rxe.json", "tool", "rdma"),
    ("nvidia-smi", "nvidia-smi_topo_m_4xH200.txt", "tool", "nvidia-smi topo"),
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

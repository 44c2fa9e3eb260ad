"""The shared ground: numbers, labels, colours, Slurm's messages, JSON."""

import captured
import pytest

from shakedown.records.errors import BadInput
from shakedown.records.tool_text import TextSource, half_digit, split_labels

SOURCE = TextSource("x\n", "f")


@pytest.mark.parametrize(
    "token", ["", " 1", "1_000", "0x10", "1.5", "١", "1e3", "--1", "9" * 30, None, True, 1.0]
)
def test_only_decimal_digits_are_integers(token):
    """Catches what Python's int() accepts and no tool prints, and digits of another script."""
    with pytest.raises(BadInput, match="should be a whole number"):
        SOURCE.integer(token, "n")


@pytest.mark.parametrize(
    "token", ["", "nan", "inf", "-inf", "1e999", "1_0.5", "1,5", "N/A", "0x1p3", "١.٥", None, True, 10**400]
)
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


@pytest.mark.parametrize(
    "text", ["", "\n\n", "  \n", "\x1b[0m\n", "0: \n0:\n", "srun: job 5 queued and waiting\n"]
)
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


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-11-20T10:00:00 DUE TO TIME LIMIT ***",
        "srun: error: n2: task 1: Exited with exit code 1",
        "slurmstepd-n1: error: Detected 1 oom_kill event in StepId=12.0",
        "srun: error: n1: task 0: Segmentation fault (core dumped)",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
    ],
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

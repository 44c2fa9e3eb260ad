"""Fuzzing: a parser refuses with BadInput or returns a valid result, and a cut output is never complete."""

import re

import captured
import mutations
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from shakedown.records.reading import BadInput

pytestmark = pytest.mark.slow  # thousands of damaged outputs
FUZZ = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)

# Everything that was printed after this is decoration: the output before it is whole.
_ENDS = {
    "nccl-tests": re.compile(r"# Collective test concluded: \S+"),
    "nccl": re.compile(r"(?s).*Destroy COMPLETE"),
    "stream": re.compile(r"(?m)^Solution Validates"),
}
TOKENS = ["nan", "-1", "N/A", "", "0x1F", "1e999", "9" * 400, "OK", "{", "]", "\u0661", "[Unknown Error]"]
TOKENS += ["\t"]


def outcome(parse, text: str) -> BaseModel | None:
    """The result, None if it was refused; anything else is a bug and raises."""
    try:
        result = parse(text)
    except BadInput as refused:
        assert "\n" not in str(refused)
        return None
    assert isinstance(result, BaseModel)
    type(result).model_validate_json(result.model_dump_json())  # a valid result, with finite numbers
    return result


@pytest.mark.parametrize("tool", [*captured.PARSERS, "query"])
@given(
    text=st.one_of(
        st.text(max_size=300), st.text(alphabet='0123456789.,:[]{}"#- \t\nabnCS\x1b\r', max_size=300)
    )
)
@FUZZ
def test_arbitrary_text(tool, text):
    """Catches an exception that is not a refusal."""
    outcome(captured.PARSERS.get(tool, captured.PARSE_BARE_QUERY), text)


@st.composite
def damaged(draw, text: str) -> str:
    """A capture with some tokens, characters or lines changed, lost or doubled."""
    lines = text.split("\n")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(["drop", "double", "swap", "token", "character", "splice"]))
        if kind == "drop":
            lines[at : at + 1] = []
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "swap":
            other = draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == "splice":
            lines[at] += lines[draw(st.integers(0, len(lines) - 1))]
        elif lines[at]:
            start = draw(st.integers(0, len(lines[at]) - 1))
            new = draw(st.sampled_from(TOKENS)) if kind == "token" else draw(st.characters(codec="utf-8"))
            end = start + (len(lines[at][start:].split(" ")[0]) if kind == "token" else 1)
            lines[at] = lines[at][:start] + new + lines[at][end:]
        if not lines:
            return ""
    return "\n".join(lines)


@pytest.mark.parametrize("name", captured.CAPTURES)
@given(data=st.data())
@FUZZ
def test_damaged_captures(name, data):
    """Catches an exception that is not a refusal, where the text is almost right."""
    outcome(captured.parser_of(name), data.draw(damaged(captured.read(name))))


def content_end(name: str) -> int:
    """Where the content of a capture ends."""
    text = captured.read(name)
    pattern = _ENDS.get(name.split("_", 1)[0]) if name.endswith(".txt") else None
    match = pattern.search(text) if pattern else None
    return match.end() if match else len(text.rstrip())


def cuts(name: str) -> list[int]:
    """Every line's end and, of every line, three places within; all before the content's end."""
    text, end = captured.read(name), content_end(name)
    places, start = set(), 0
    for line in text.split("\n"):
        places |= {start + len(line) * part // 4 for part in range(5)} | {start + len(line) + 1}
        start += len(line) + 1
    places = sorted(x for x in places if x < end)
    return places[:: max(1, len(places) // 150)] + places[-20:]


@pytest.mark.parametrize("name", captured.CAPTURES)
def test_a_cut_capture_is_never_complete(name):
    """Catches truncated output read as complete."""
    text = captured.read(name)
    for cut in cuts(name):
        assert outcome(captured.parser_of(name), text[:cut]) is None, f"cut at {cut}"


# One of each form: text and JSON, every version's layout, every scenario.
GOOD = ("ethtool_6.14_virtio.txt", "loadgen_6.0.17_multi_stream_invalid.txt")
GOOD += ("loadgen_6.0.17_offline_invalid.txt", "loadgen_6.0.17_server_valid.txt")
GOOD += ("loadgen_6.0.17_single_stream_valid.txt", "mpi-allreduce_5.0.7_tcp_2nodes.jsonl")
GOOD += ("nccl-tests_2.19.6_all_reduce_4xH200.txt", "nccl-tests_2.19.6_reduce_scatter_4xH200.txt")
GOOD += ("nccl_2.28.9_debug_info_all_reduce_16G_4xH200.txt",)
GOOD += ("nvbandwidth_0.8_4xH200.json", "nvidia-smi_topo_m_4xH200.txt")
GOOD += ("perftest_25.01_rxe_write_bw_qp4_cpu_client.txt", "perftest_25.01_rxe_write_bw_sweep_client.txt")
GOOD += ("perftest_4.5_rxe_write_lat_sweep_server.txt", "rdma_6.15_statistic_rxe.json")
GOOD += ("stream_shakedown_2cores.txt", "trainer_synthetic_2ranks.jsonl")
MUTATIONS = 60  # of a kind and a file


def values(name: str, text: str) -> object:
    """What a text says, or None if it is refused; the order of processes' lines and warnings left out."""
    result = outcome(captured.parser_of(name), text)
    if result is None:
        return None
    found = result.model_dump(exclude={"warnings"})
    if name.startswith(("nccl_", "trainer_")):
        return {key: sorted(map(str, x)) if isinstance(x, tuple) else x for key, x in found.items()}
    return found


def accepted(kind) -> tuple[list[str], int]:
    """Which damaged files were read with other values and no sign, and how many were tried."""
    wrong, tried = [], 0
    for name in GOOD:
        text = captured.read(name)
        good = values(name, text)
        for damaged in mutations.mutations(name, text, kind, MUTATIONS):
            tried += 1
            # A line of this file is a port. Only who knows the node's ports can miss one of them.
            if name.startswith("rdma_") and damaged.count("ifname") < text.count("ifname"):
                continue
            if values(name, damaged) not in (None, good):
                wrong.append(name)
    return wrong, tried


@pytest.mark.parametrize("kind", mutations.CUTS)
def test_cut_and_dropped_lines_are_always_seen(kind):
    """Catches a reading that lost a line and is read as another, whole one."""
    wrong, tried = accepted(kind)
    assert tried > 300
    assert wrong == []


@pytest.mark.parametrize("kind", mutations.OTHERS)
def test_damaged_lines_are_mostly_seen(kind):
    """Catches a parser that takes doubled, moved or foreign lines for its own; no more than 5 % may pass."""
    wrong, tried = accepted(kind)
    assert tried > 300
    assert len(wrong) <= 0.05 * tried, wrong


@pytest.mark.parametrize("kind", mutations.DIGITS)
def test_damaged_digits_are_never_a_crash(kind):
    """Catches an exception that is no refusal; many a digit has no second witness in its output."""
    _, tried = accepted(kind)
    assert tried > 300


# Not NCCL's log: the rows between its lines are another parser's.
@pytest.mark.parametrize("name", [x for x in captured.CAPTURES if x.endswith(".txt") and "nccl_" not in x])
@given(data=st.data())
@settings(FUZZ, max_examples=15)
def test_a_digit_replaced_by_a_letter_is_never_read(name, data):
    """Catches a number that is skipped, or read up to its first letter, in the rows that hold the results."""
    text = captured.read(name)
    figures = r"|^.* : \d+\.?\d*$" if name.startswith("loadgen") else ""
    rows = [m.span() for m in re.finditer(r"(?m)^ *\d[\d.]* +\d.*$" + figures, text)]
    if not rows:
        return
    start, end = data.draw(st.sampled_from(rows))
    digits = [i for i in range(start, end) if text[i].isdigit()]
    at = data.draw(st.sampled_from(digits))
    changed = text[:at] + "x" + text[at + 1 :]
    result = outcome(captured.parser_of(name), changed)
    assert result is None or str(result) == str(captured.parser_of(name)(text)).replace(
        *_name_change(text, at)
    )


def _name_change(text: str, at: int) -> tuple[str, str]:
    """A digit of a name (not of a number) may become a letter: the name is then read as it stands."""
    word = re.search(r"\S+$", text[:at])
    tail = re.match(r"\S*", text[at:])
    assert tail is not None
    head = word.group() if word else ""
    return head + tail.group(), head + "x" + tail.group()[1:]

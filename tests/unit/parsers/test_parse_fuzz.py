"""Fuzzing: a parser refuses with BadInput or returns a valid result, and a cut output is never complete."""

from __future__ import annotations

import re

import captured
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from shakedown.records.errors import BadInput

FUZZ = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)

# Everything that was printed after this is decoration: the output before it is whole.
_ENDS = {
    "nccl-tests": re.compile(r"# Collective test concluded: \S+"),
    "nccl": re.compile(r"(?s).*Destroy COMPLETE"),
}
TOKENS = [
    "nan",
    "-1",
    "N/A",
    "",
    "0x1F",
    "1e999",
    "9" * 400,
    "OK",
    "{",
    "]",
    "\u0661",
    "[Unknown Error]",
    "\t",
]


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
        if name.startswith("ethtool") and text[:cut].endswith("\n") and text[:cut].count("\n") > 1:
            continue  # has no end mark: such a cut cannot be seen (see shakedown.nics.ethtool)
        assert outcome(captured.parser_of(name), text[:cut]) is None, f"cut at {cut}"


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

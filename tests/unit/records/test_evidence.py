"""Evidence that is JSON, or lines of it, says each thing once, whatever lies before it."""

import pytest

from shakedown.records.errors import BadInput
from shakedown.records.reading import read_evidence

TWICE = '{"wrong": 3, "wrong": 0}'


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.json", TWICE, ""),
        ("a.json", " " * 300 + TWICE, ""),
        ("a.json", "\ufeff" + TWICE, ""),
        ("a.json", '{"rows": [\n' + TWICE + "]}\n", ""),
        ("torch.jsonl", "a warning of a library\n" + TWICE + "\n", ":2"),
        ("torch.jsonl", "\n\n" + TWICE, ":3"),
        ("torch.jsonl", '{"a": 1}\n{"b": 1}\n  ' + TWICE + "\n", ":3"),
        ("all.txt", "# header\n[1,0]\n" + TWICE + "\r\n", ":3"),
    ],
)
def test_a_key_that_is_there_twice_is_refused_wherever_it_stands(tmp_path, name, text, line):
    """Catches: the last of two values taken, where a warning, spaces or a byte order mark lie before it."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=f"{name}{line}: duplicate key 'wrong'"):
        read_evidence(tmp_path / name)


@pytest.mark.parametrize("text", ["", "{", "[0] NCCL INFO\n", '{"a": 1}\n{"a": 2}\n', "[1,0] # nThread 1\n"])
def test_what_is_no_json_is_for_its_own_reader(tmp_path, text):
    """Catches: text refused that only begins as JSON does."""
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    assert read_evidence(tmp_path / "a.txt") == text.encode()

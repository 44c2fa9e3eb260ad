"""Nodes with different versions of NCCL are named before anything is measured."""

import os
import shutil
import subprocess

import pytest

from shakedown.onnode.gpus import differ, loaded_by, version
from tests.kit.cases import cases


def seen(node, said):
    """What one node's look says of its NCCL."""
    return {"node": node, "nccl": said and {"path": "/lib/libnccl.so.2", "version": said}}


@cases(
    "looks, said",
    ([seen("n1", "2.28.9"), seen("n2", "2.28.9")], None),
    ([seen("n1", "2.28.9"), seen("n2", None)], None),  # linked statically there: nobody knows
    ([seen("n1", "2.28.9"), {"node": "n2"}], None),
    ([seen("n1", "2.28.9"), seen("n2", "2.28.3")], "NCCL 2.28.9 on n1, NCCL 2.28.3 on n2: "),
    (
        [*(seen(f"n{i}", "2.28.9") for i in range(1, 6)), seen("n6", "2.28.3")],
        "NCCL 2.28.3 on n6, NCCL 2.28.9 on n1, n2, n3 and 2 more: ",
    ),
)
def test_who_has_another_version_is_named_first(looks, said):
    """Catches: NCCL's own refusal, which gives ranks and no node, or a hang; and healthy nodes refused."""
    found = differ(looks)
    assert (found is None) if said is None else found and found["message"].startswith(said)


@pytest.mark.parametrize(("number", "said"), [(22809, "2.28.9"), (2708, "2.7.8"), (21005, "2.10.5")])
def test_the_number_of_a_version_is_read_in_both_ways(number, said):
    """Catches: 2.7.8 and 2.28.9 read by one rule."""
    assert version(number) == said


@pytest.fixture
def program(tmp_path):
    """A program that is linked to a libnccl of ours, which says what it is told."""
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    code = "int ncclGetVersion(int *v) { *v = 22803; return 0; }"
    for name, text, more in (
        ("libnccl.so.2", code, ["-shared", "-fPIC", "-Wl,-soname,libnccl.so.2"]),
        ("perf", "int ncclGetVersion(int *); int main(void) { int v; return ncclGetVersion(&v); }", []),
    ):
        source = tmp_path / f"{name}.c"
        source.write_text(text)
        linked = [] if more else [str(tmp_path / "libnccl.so.2")]
        subprocess.run(["cc", *more, "-o", tmp_path / name, source, *linked], check=True)
    return tmp_path / "perf"


def test_what_the_loader_would_take_is_asked_and_not_what_is_installed(program, monkeypatch):
    """Catches: the version of a package told, where the loader takes another library."""
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{program.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    found = loaded_by(str(program))
    assert found == {"path": f"{program.parent}/libnccl.so.2", "version": "2.28.3"}
    assert loaded_by("/bin/sh") is None
    assert loaded_by("/no/such/program") is None

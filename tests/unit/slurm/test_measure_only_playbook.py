"""The acceptance playbook on a cluster where site.yml never ran: one folder is written, and nothing else."""

import shutil
import sys
from pathlib import Path

import pytest
from submit_host import SubmitHost

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

# Stands for uv, which would need a package index: the programs of its environment are the submit host's own.
_UV = """#!/bin/sh
echo "uv $*" >> {kept}/uv.log
[ "$1" = venv ] || exit 0
for place; do :; done
mkdir -p "$place/bin" "$place/lib/python{version}/site-packages"
cp {kept}/python {kept}/reframe "$place/bin/"
"""
_REFRAME = """#!/bin/sh
case " $* " in *" --list "*) echo "Found 1 check(s)"; exit 0;; esac
exec {kept}/reframe.run "$@"
"""


def script(path: Path, text: str, **words: str) -> None:
    """Write a program."""
    path.write_text(text.format(**words))
    path.chmod(0o755)


@pytest.fixture
def bare(tmp_path):
    """A submit host whose shared folder is empty."""
    site, kept = SubmitHost(tmp_path), tmp_path / "kept"
    kept.mkdir()
    (site.home / "venv/bin/reframe").rename(kept / "reframe.run")
    (site.home / "venv/bin/python").rename(kept / "python")
    shutil.rmtree(site.home / "venv")
    (site.home / "runs").rmdir()
    (site.home / "site.json").unlink()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    script(kept / "reframe", _REFRAME, kept=str(kept))
    script(kept / "uv", _UV, kept=str(kept), version=version)
    return site


def test_a_cluster_that_is_only_measured(bare, tmp_path):
    """Catches: a run that needs what site.yml installs, or that writes anything beside the shared folder."""
    bare.plan("one")
    before = {path for path in tmp_path.rglob("*") if bare.home not in (path, *path.parents)}
    options = ("-e", f"reframe_uv={tmp_path}/kept/uv", "-e", '{"fabric": {"system": "lab"}}')
    _, said = bare.play("one", *options, limit_s=800)
    assert bare.text("stages").split() == ["config", "fabric", "collective"], said[-3000:]
    assert "Report:" in said
    assert {"venv", "src", "runs", "site.json"} <= {path.name for path in bare.home.iterdir()}
    after = {path for path in tmp_path.rglob("*") if bare.home not in (path, *path.parents)}
    new = {path for path in after - before if bare.runs not in path.parents}
    assert {path.name for path in new} == {"uv.log"}  # our own stand-in's

    # Without the folder it is refused before anything is written.
    shutil.rmtree(bare.home)
    bare.plan("three")
    status, said = bare.play("three", *options)
    assert status != 0
    assert f"head: {bare.home} does not exist: make it, on the file system that all nodes share" in said
    assert not bare.home.exists()

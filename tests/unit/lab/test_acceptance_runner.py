"""`make acceptance` on a machine where something is wrong: one line, nothing left behind."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from lab import acceptance, cluster
from lab.errors import LabError


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A checkout and a cache of its own; whoever boots a lab fails the test."""
    monkeypatch.setattr(acceptance, "CHECKOUT", tmp_path / "checkout")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cluster.Lab, "up", lambda *_, **__: pytest.fail("booted"))
    monkeypatch.setattr(acceptance.cluster, "stop", lambda *_, **__: False)
    return tmp_path


def test_a_run_is_never_overwritten(here):
    """Catches: yesterday's evidence replaced by today's run."""
    (here / "checkout/reports/runs/monday").mkdir(parents=True)
    with pytest.raises(LabError, match="a run monday already"):
        acceptance.run(run_id="monday")


def test_runs_that_cannot_be_written_are_named_before_anything_starts(here):
    """Catches: twenty minutes of work before the first file cannot be written."""
    (here / "checkout").mkdir()
    (here / "checkout/reports").write_text("a file where a folder should be")
    with pytest.raises(LabError, match="cannot be written"):
        acceptance.run()


def test_an_unreachable_index_leaves_no_half_wheelhouse(here, monkeypatch):
    """Catches: half a folder of wheels taken for a whole one by the next call."""
    failed = subprocess.CompletedProcess([], 1, "", "WARNING: retrying\nERROR: Could not find a version\n")
    monkeypatch.setattr(acceptance.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(LabError, match="ERROR: Could not find a version"):
        acceptance.wheelhouse(acceptance.Steps())
    assert list((here / "cache/shakedown/wheels").iterdir()) == []


def test_wheels_are_downloaded_once_for_a_lock(here, monkeypatch):
    """Catches: a second call that needs the network again."""
    calls = []

    def download(argv, **_):
        calls.append(argv)
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr(acceptance.subprocess, "run", download)
    first = acceptance.wheelhouse(acceptance.Steps())
    assert acceptance.wheelhouse(acceptance.Steps()) == first
    assert len(calls) == 1
    assert "--require-hashes" in calls[0]


def test_plain_ssh_is_what_sites_get(here):
    """Catches: the plain-SSH test of the lab driven by Mitogen all the same."""
    assert "ANSIBLE_STRATEGY" in acceptance.environment("x", here)
    assert "ANSIBLE_STRATEGY" not in acceptance.environment("x", here, plain_ssh=True)


SETUP = "lab/setup.sh"


def test_an_unsupported_system_is_refused_in_one_line(tmp_path):
    """Catches: apt-get called on a system that has none, or a traceback instead of a sentence."""
    script = (acceptance.CHECKOUT / SETUP).read_text(encoding="utf-8")
    release = tmp_path / "os-release"
    release.write_text('ID=fedora\nPRETTY_NAME="Fedora Linux 43"\n')
    (tmp_path / "lab").mkdir()
    (tmp_path / SETUP).write_text(script.replace("/etc/os-release", str(release)))
    done = subprocess.run(["sh", SETUP], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Fedora Linux 43 is not supported" in done.stderr


@pytest.mark.parametrize("well", [True, False])
def test_only_a_lab_that_converged_is_saved_as_such(here, monkeypatch, well):
    """Catches: tests that begin with a lab of which half is configured; a failure without Ansible's words."""
    saved = []
    (here / "disks").mkdir()
    lab = SimpleNamespace(
        name="x", site="own", paths=SimpleNamespace(disks=here / "disks"), save=saved.append
    )

    def played(book, _steps, *, log, **_):
        log.write_text(f"{book}: n2 is unreachable")
        return well

    monkeypatch.setattr(acceptance, "wheelhouse", lambda _steps: here)
    monkeypatch.setattr(acceptance, "playbook", played)
    with nullcontext() if well else pytest.raises(LabError, match=r"site\.yml failed") as failed:
        acceptance.converge(lab)
    assert saved == (["converged"] if well else [])
    assert well or failed.value.detail == "site.yml: n2 is unreachable"


def test_a_lab_that_somebody_else_has_set_up_is_not_converged(here):
    """Catches: the foreign site's Slurm replaced by ours, and then told as left alone."""
    with pytest.raises(LabError, match="set up already"):
        acceptance.converge(SimpleNamespace(name="x", site="foreign"))

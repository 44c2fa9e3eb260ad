"""The lab tests' own fixtures: which lab a test gets, and under which id it makes a run."""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace

import pytest

from lab.errors import LabError
from lab.paths import CHECKOUT


@pytest.fixture
def fixtures(monkeypatch):
    """tests/lab/conftest.py with labs that only note what is done to them; they lie in `up`."""
    name = "conftest_of_lab_tests"
    spec = importlib.util.spec_from_file_location(name, CHECKOUT / "tests/lab/conftest.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    up: dict[str, SimpleNamespace] = {}

    def boot(_nodes, lab, **_options):
        status = SimpleNamespace(snapshots=[])
        up[lab] = SimpleNamespace(
            name=lab,
            save=status.snapshots.append,
            status=lambda: status,
            restore=status.snapshots.index,
            mistimed=list,
        )
        return up[lab]

    def find(lab):
        if lab not in up:
            raise LabError(f"lab {lab} is not up")
        return up[lab]

    labs = SimpleNamespace(up=boot, open=find)
    monkeypatch.setattr(module, "cluster", SimpleNamespace(Lab=labs, stop=lambda lab: up.pop(lab, None)))
    monkeypatch.setattr(module, "wheelhouse", lambda _steps: CHECKOUT)
    monkeypatch.setattr(module.Site, "play", lambda *_: (True, ""))
    monkeypatch.delenv("SHAKEDOWN_KEEP_LAB", raising=False)
    module.up = up
    return module


def test_a_lab_that_others_still_need_is_not_ended(fixtures, tmp_path):
    """Catches: one module's own lab that ends the session's, so that every later lab test fails."""
    with fixtures.converged(2, "test", tmp_path) as session:
        for _ in range(2):  # two modules, one after the other
            with fixtures.converged(2, "test", tmp_path) as module:
                assert fixtures.up == {session.lab.name: session.lab, module.lab.name: module.lab}
                assert session.lab.name != module.lab.name
            assert fixtures.up == {"test": session.lab}
    assert fixtures.up == {}


def test_a_lab_that_is_kept_is_the_next_ones_too(fixtures, tmp_path, monkeypatch):
    """Catches: a lab booted beside the one that SHAKEDOWN_KEEP_LAB=1 keeps, or that one ended."""
    monkeypatch.setenv("SHAKEDOWN_KEEP_LAB", "1")
    with fixtures.converged(2, "test", tmp_path) as first, fixtures.converged(2, "test", tmp_path) as second:
        assert first.lab is second.lab
    assert fixtures.up == {"test": first.lab}


def test_a_kept_lab_without_its_clocks_is_made_anew(fixtures, tmp_path, monkeypatch):
    """Catches: a lab that was converged on a busy host, in which every healthy run is INCONCLUSIVE."""
    monkeypatch.setenv("SHAKEDOWN_KEEP_LAB", "1")
    with fixtures.converged(2, "test", tmp_path) as first:
        first.lab.mistimed = lambda: ["n2"]
    with fixtures.converged(2, "test", tmp_path) as second:
        assert second.lab is not first.lab


def test_a_repetition_makes_a_run_of_its_own(fixtures, tmp_path):
    """Catches: the second of three rounds refused, because its run id was used by the first."""
    site = fixtures.Site(None, tmp_path, tmp_path)
    used = []
    for _ in range(3):
        used.append(site.unused("loss"))
        (tmp_path / used[-1]).mkdir()
    assert used == ["loss", "loss-2", "loss-3"]

"""`make acceptance` on a machine where something is wrong: one line, nothing left behind."""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from lab import acceptance, clocks, cluster, processes
from lab.errors import LabError
from lab.paths import CHECKOUT
from lab.topology import Topology


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
            ssh=lambda *_: SimpleNamespace(stdout="n1 idle\nn2 idle\n"),
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


def test_a_kept_lab_is_used_once_its_slurm_has_its_nodes(fixtures, tmp_path, monkeypatch):
    """Catches: a first test that finds a node down, since the lab jumped back to its snapshot just before."""
    monkeypatch.setenv("SHAKEDOWN_KEEP_LAB", "1")
    states = iter(["n1 idle\nn2 down*\n", "n1 idle\nn2 idle\n"])
    monkeypatch.setattr(fixtures.time, "sleep", lambda _s: None)
    with fixtures.converged(2, "test", tmp_path) as first:
        first.lab.ssh = lambda *_: SimpleNamespace(stdout=next(states))
    with fixtures.converged(2, "test", tmp_path) as second:
        assert second.lab is first.lab
    assert not list(states)


def test_faults_alone_are_cleared_and_all_else_goes_back_to_the_snapshot(fixtures, tmp_path, monkeypatch):
    """Catches: a test that begins with what an earlier one did to a machine, its fault, or a lost clock."""
    monkeypatch.setenv("SHAKEDOWN_KEEP_LAB", "new")
    done, machine = [], SimpleNamespace(fault="")
    with fixtures.converged(2, "test", tmp_path) as made:
        made.lab.restore = lambda _tag: done.append("restored")
        made.lab.fault_clear = lambda: done.append("cleared")
        made.lab.status().machines = [machine]
    with fixtures.converged(2, "test", tmp_path) as site:
        assert (site.lab, done) == (made.lab, [])
        machine.fault = "loss 2 %"
        site.clear()
        assert done == ["cleared"]
        site.lab.mistimed = lambda: ["n2"]
        site.clear()
        assert done == ["cleared", "restored"]
        site.lab.mistimed = list
        site.restore()
        site.clear()
        assert done == ["cleared", *["restored"] * 3]


def test_a_repetition_makes_a_run_of_its_own(fixtures, tmp_path):
    """Catches: the second of three rounds refused, because its run id was used by the first."""
    site = fixtures.Site(None, tmp_path, tmp_path)
    used = []
    for _ in range(3):
        used.append(site.unused("loss"))
        (tmp_path / used[-1]).mkdir()
    assert used == ["loss", "loss-2", "loss-3"]


class Lab:
    """A lab whose nodes go by the clock sources that a test gives them, one for each boot."""

    def __init__(self, sources: dict[str, list[str]], accelerator: str = "tcg") -> None:
        self.topology = Topology(2)
        self.state = SimpleNamespace(accelerator=accelerator)
        self.sources = sources
        self.boots: list[str] = []
        self.said: list[str] = []

    def ssh(self, machine: str, command: Sequence[str], timeout_s: float) -> Any:
        """Answer with the clock source."""
        answer = self.sources[machine][0] if command[0] == "cat" else ""
        return subprocess.CompletedProcess(command, 0, f"{answer}\n", "")

    def guest(self, name: str) -> Any:
        """What runs of a machine."""
        return SimpleNamespace(process=SimpleNamespace(name=name, pid=1), ssh_port=2)

    def start(self, machine: Any, port: int) -> None:
        """Boot it with its next clock source."""
        assert port == 2
        self.boots.append(machine.name)
        self.sources[machine.name].pop(0)

    def wait_for_ssh(self, machines: Sequence[Any]) -> None:
        """It answers at once."""
        assert [machine.name for machine in machines] == self.boots[-1:]

    def progress(self, line: str) -> None:
        """Keep what was said."""
        self.said.append(line)


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Processes that were ended."""
    names: list[str] = []
    monkeypatch.setattr(processes, "end", lambda those, at_once: names.extend(one.name for one in those))
    return names


def settle(lab: Lab) -> None:
    """As after the first boot."""
    clocks.settle(lab, [machine.name for machine in lab.topology.machines])  # type: ignore[arg-type]


def test_a_node_that_lost_the_tsc_is_booted_once_more_and_no_other(ended: list[str]) -> None:
    """Catches a lab in which perftest cannot time, so that every healthy run is INCONCLUSIVE."""
    lab = Lab({"n1": ["tsc"], "n2": ["hpet", "tsc"]})
    settle(lab)
    assert (ended, lab.boots) == (["n2"], ["n2"])
    assert lab.said == ["n2's kernel goes by hpet and not by the TSC; booting it once more"]


def test_where_it_does_not_help_it_is_said_with_the_way_out() -> None:
    """Catches boots without end, and a lab whose figures will decide nothing without a word of it."""
    lab = Lab({"n1": ["hpet", "hpet", "hpet"], "n2": ["tsc"]})
    settle(lab)
    assert lab.boots == ["n1"]
    assert "goes by hpet again: perftest cannot time there" in lab.said[-1]


def test_a_guest_with_the_hosts_clock_is_left_alone() -> None:
    """Catches every start under KVM booting all nodes twice: there it is kvm-clock."""
    lab = Lab({"n1": ["kvm-clock"], "n2": ["kvm-clock"]}, "kvm")
    settle(lab)
    assert lab.boots == lab.said == []


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

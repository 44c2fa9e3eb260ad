"""Converged labs for the lab tests; every test begins from the snapshot taken right after."""

import itertools
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import cluster
from lab.acceptance import BIN, CONVERGED, INVENTORY, Steps, environment, playbook, wheelhouse
from lab.errors import LabError
from lab.paths import CHECKOUT
from lab.spaces.cluster import SpaceLab
from tests.kit.run import ran

NAME = os.environ.get("SHAKEDOWN_TEST_LAB", "test")
SHORT = [
    {"test": "ib_write_bw", "size_bytes": 65536, "iterations": 100, "rails_at_once": ["one", "all"]},
    {"test": "ib_send_lat", "size_bytes": 64, "iterations": 50},
]
LAB_GPUS = CHECKOUT / "inventories/lab_gpus"
# Two of what Slurm takes for GPUs, for stand-ins of NVIDIA's programs.
GPUS = {
    "gpus": [{"index": number, "model": "H100-SXM"} for number in range(2)],
    "slurm_gpu_files": dict.fromkeys(("n1", "n2"), "/dev/null,/dev/zero"),
}
_IN_USE: set[str] = set()  # labs that a fixture has up now


@dataclass
class Site:
    """The lab, its playbooks, and where their output goes."""

    lab: cluster.Lab | SpaceLab
    wheels: Path
    folder: Path
    inventory: Path = INVENTORY
    converged: bool = False
    as_saved: bool = False  # but for faults that `fault_clear` undoes
    logs: list[Path] = field(default_factory=list)

    @cached_property
    def short_inventory(self) -> Path:
        """The inventory with a short fabric stage."""
        file = self.inventory / "group_vars/all/acceptance.yml"
        asked = yaml.safe_load(file.read_text(encoding="utf-8"))
        asked["acceptance"]["perftest"] = SHORT
        return inventory_with(self.folder / "short", acceptance=asked)

    def play(self, book: str, *, on: Path | None = None, **options: Any) -> tuple[bool, str]:
        """Run a playbook; return whether it ended well, and what it printed."""
        log = self.folder / f"{len(self.logs)}.{book}.log"
        self.logs.append(log)
        well = playbook(
            book,
            Steps(),
            name=self.lab.name,
            wheels=self.wheels,
            log=log,
            inventory=on or self.inventory,
            **options,
        )
        return well, log.read_text(encoding="utf-8")

    def unchanged(self, **options: Any) -> set[str]:
        """Play site.yml again and hold that it changed nothing; return the hosts that it looked at."""
        well, printed = self.play("site.yml", **options)
        assert well, printed[-4000:]
        recap = re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", printed, re.MULTILINE)
        changed = re.findall(r"^TASK \[(.*)\] \*+$(?:\n(?!TASK).*)*?\n(changed: .*)$", printed, re.MULTILINE)
        assert all(count == "0" for _, count in recap), (recap, changed)
        return {host for host, _ in recap}

    def unused(self, run_id: str) -> str:
        """Return the id, of a repetition with a number behind it: an id that was used is refused."""
        again = (f"{run_id}-{number}" for number in itertools.count(2))
        return next(x for x in itertools.chain([run_id], again) if not (self.folder / x).exists())

    def accept(
        self,
        run_id: str,
        *stages: str,
        short: bool = False,
        on: Path | None = None,
        planned: Callable[[Path], object] | None = None,
    ) -> tuple[int, dict[str, Any], Path]:
        """Make a run; return the verdict's exit status, the verdict and the run's folder.

        `short`: two of perftest's operations, with few iterations, for faults that any of them shows.
        `on`: another inventory. `planned`: called with the folder once it has its plan, before anything runs.
        """
        run_id = self.unused(run_id)
        options = ("-e", f"run_root={self.folder}")
        inventory = on or (self.short_inventory if short else self.inventory)
        if stages or planned:  # of a plan of the whole site: what is left out is NOT-RUN
            plan = [BIN / "shakedown", "plan", inventory, "--output", self.folder / run_id]
            known = environment(self.lab.name, self.wheels)
            subprocess.run(plan, check=True, capture_output=True, env=known)
        if stages:
            options += ("-e", f"acceptance_stages={','.join(stages)}")
        if planned:
            planned(self.folder / run_id)
        self.play("acceptance.yml", run_id=run_id, options=options, on=inventory)
        run = self.folder / run_id
        judged = ran(BIN / "shakedown", "verdict", run, "--json")
        assert judged.returncode in (0, 1, 3), judged.stderr
        return judged.returncode, json.loads(judged.stdout), run

    def restore(self) -> None:
        """Bring everything back to the state right after the playbook, and wait until Slurm is ready."""
        self.lab.restore(CONVERGED)
        self.as_saved = False  # whoever asks for it changes machines
        self.wait_for_nodes(
            None, lambda state: state == "idle", "Slurm does not come back after the snapshot was restored"
        )

    def clear(self) -> None:
        """Undo planted faults, for a test that plants no others: a restored emulator is slow at first.

        What a test before this one did to machines, and a clock that one lost, only a snapshot undoes.
        """
        if not self.as_saved or self.lab.mistimed():
            self.restore()
        elif any(machine.fault for machine in self.lab.status().machines):
            self.lab.fault_clear()
        self.as_saved = True

    def tell_neighbours(self) -> None:
        """Let lldpd say at once what is at its ports, and not within 30 s (tx-interval).

        The leaf's was seen to hear nobody after a start, and not later either: it is started once more.
        """
        for look in range(1, 17):  # a busy host's guests took more than 15 s
            for machine in ("leaf0", "n1", "n2"):
                assert self.lab.ssh(machine, ["lldpcli", "update"]).returncode == 0, machine
            time.sleep(5)
            heard = self.lab.ssh("leaf0", ["lldpcli", "show", "neighbors", "summary"]).stdout
            # Of the fabric's ports: the management network tells of the same nodes.
            on_ports = "".join(re.findall(r"Interface: +swp(?s:.*?)(?=\n---)", heard))
            if re.search(r"SysName: +n1\b", on_ports) and re.search(r"SysName: +n2\b", on_ports):
                return
            if look % 4 == 0:
                assert self.lab.ssh("leaf0", ["systemctl", "restart", "lldpd"]).returncode == 0
        pytest.fail(f"the leaf hears no node by LLDP:\n{heard}")

    def wait_for_nodes(self, name: str | None, wanted: Callable[[str], bool], complaint: str) -> None:
        """Wait until Slurm's state of a node, or of all, is a wanted one."""
        look = ["sinfo", "--noheader", "--Node", "--format=%N %T", *([f"--nodes={name}"] if name else [])]
        deadline, states = time.monotonic() + 180, ""
        while time.monotonic() < deadline:
            states = self.lab.ssh("head", look).stdout
            if states and all(wanted(line.split()[1]) for line in states.splitlines()):
                return
            time.sleep(2)
        pytest.fail(f"{complaint}:\n{states}")


def pytest_addoption(parser):
    """Let a person ask for more than one round."""
    parser.addoption("--repetitions", type=int, default=1, help="How often each test runs, in one lab.")


def pytest_generate_tests(metafunc):
    """Make as many tests of one as a person asked for."""
    count = metafunc.config.getoption("--repetitions")
    if count > 1:
        metafunc.fixturenames.append("repetition")
        metafunc.parametrize("repetition", range(1, count + 1))


@contextmanager
def converged(
    nodes: int, name: str, folder: Path, inventory: Path = INVENTORY, *, site: str = "own"
) -> Iterator[Site]:
    """Boot a lab, converge it and save it; take it down at the end.

    Where another fixture has a lab of that name, as `site` has for the whole session, this one gets a name of
    its own: to end that lab would fail every later test that begins with it.

    With SHAKEDOWN_KEEP_LAB=1 it stays up for the next tests of the same playbooks, which begin with it. With
    SHAKEDOWN_KEEP_LAB=new nothing has been done to it yet since it was converged.
    """
    keep = os.environ.get("SHAKEDOWN_KEEP_LAB") in ("1", "new")
    if keep and (kept := _kept(name, folder, inventory)):
        yield kept
        return
    while name in _IN_USE:
        name += "b"
    _IN_USE.add(name)
    try:
        cluster.stop(name)
        lab = cluster.Lab.up(nodes, name, site=site, progress=lambda line: print(line, flush=True))
        made = Site(lab, wheelhouse(Steps()), folder, inventory)
        made.converged, printed = made.play("site.yml")
        assert made.converged, f"site.yml failed in {CHECKOUT}:\n{printed[-4000:]}"
        lab.save(CONVERGED)
        made.as_saved = True
        yield made
    finally:
        _IN_USE.discard(name)
        if not keep:
            cluster.stop(name)


def _kept(name: str, folder: Path, inventory: Path) -> Site | None:
    """Return the lab that was left up and converged, by tests or `python -m lab converge`, if it is fit.

    One that was converged beside other work may have lost its clocks, for good: it is made anew.
    """
    try:
        lab = cluster.Lab.open(name)
        if CONVERGED not in lab.status().snapshots:
            return None
        new = os.environ["SHAKEDOWN_KEEP_LAB"] == "new"
        kept = Site(lab, wheelhouse(Steps()), folder, inventory, converged=True, as_saved=new)
        kept.clear()
    except LabError:
        return None
    return None if lab.mistimed() else kept


def inventory_with(folder: Path, of: Path = INVENTORY, **variables: Any) -> Path:
    """Make a copy of a lab's inventory, with other group variables: a file for each name."""
    inventory = folder / "inventory"
    mine = inventory / "group_vars/all"
    mine.mkdir(parents=True)
    for path in of.glob("group_vars/**/*.yml"):
        if path.stem not in variables:
            (inventory / path.relative_to(of)).symlink_to(path.resolve())
    for name, value in variables.items():
        (mine / f"{name}.yml").write_text(yaml.safe_dump(value))
    script = inventory / "hosts.sh"
    script.write_text(f'#!/bin/sh\nexec "{BIN}/python" "{CHECKOUT}/inventories/{of.name}/hosts.py" "$@"\n')
    script.chmod(0o755)
    return inventory


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The lab of two compute nodes, booted and converged once."""
    with converged(2, NAME, tmp_path_factory.mktemp("lab")) as made:
        yield made


@pytest.fixture
def cleared(site):
    """The lab without faults, for a test that changes no machine but by faults of the lab."""
    site.clear()
    return site


@pytest.fixture
def fresh(cleared):
    """The lab as it was right after the playbook, without faults; the test may change machines."""
    cleared.as_saved = False
    return cleared


@pytest.fixture(scope="session")
def spaces(tmp_path_factory):
    """Two nodes as namespaces of this host, and their head, converged."""
    lab = SpaceLab.up(2, "0", f"{NAME}-spaces")
    try:
        # The machines run this host's own Python, whichever one the tests have.
        version = "import sys; print('%d.%d' % sys.version_info[:2])"
        python = ran("/usr/bin/python3", "-c", version, check=True).stdout.strip()
        wheels = wheelhouse(Steps(), python=python)
        folder = tmp_path_factory.mktemp("spaces")
        made = Site(lab, wheels, folder, inventory_with(folder, LAB_GPUS, gpus=GPUS))
        well, printed = made.play("site.yml")
        assert well, printed[-4000:]
        yield made
    finally:
        lab.down()

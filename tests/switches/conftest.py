"""Run the role against scripted devices, through Ansible's own connection plugins."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit.run import ran

ROOT = Path(__file__).resolve().parents[2]
FABRIC = yaml.safe_load((ROOT / "inventories/lab/group_vars/all/fabric.yml").read_text())["fabric"]

# A playbook takes about 100 s on a free core and three times that on a busy one; this only ends what hangs.
HANGS_S = 900


def pytest_collection_modifyitems(items):
    """Give every test here the time of its playbook."""
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(HANGS_S + 60))


@pytest.fixture
def loop() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Run coroutines in a thread of their own, beside the playbook."""
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever, daemon=True)
    thread.start()
    yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, running).result(120)
    asyncio.run_coroutine_threadsafe(_end_tasks(), running).result(30)
    running.call_soon_threadsafe(running.stop)
    thread.join(10)
    running.close()


async def _end_tasks() -> None:
    """End what a device still does: a child left behind complains after pytest's last line."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def ended(monkeypatch) -> Callable[[Callable[[], bool]], None]:
    """Kill the next playbook, and nothing on the switch, as soon as something is seen there."""

    def arm(seen: Callable[[], bool]) -> None:
        def run(
            argv: list[str], *, timeout: float, check: bool, capture_output: bool, **more: Any
        ) -> subprocess.CompletedProcess[str]:
            monkeypatch.undo()
            child = subprocess.Popen(
                argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, **more
            )
            deadline = time.monotonic() + timeout
            while child.poll() is None and not seen() and time.monotonic() < deadline:
                time.sleep(0.05)
            assert child.poll() is None, child.communicate()[0]
            os.killpg(child.pid, signal.SIGKILL)
            return subprocess.CompletedProcess(argv, child.wait(), child.communicate()[0], "")

        monkeypatch.setattr("tests.kit.run.subprocess.run", run)

    return arm


@dataclass
class Result:
    """What a playbook run came to."""

    code: int
    output: str
    changed: int


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., Result]:
    """Run the role on one switch `leaf1` with these variables; extra arguments go to ansible-playbook.

    `place` is another admin's folder, with connections of its own; `machine` is another controller.
    """
    home = tmp_path

    def run(
        variables: dict[str, Any],
        *arguments: str,
        role: str = "roce_switch",
        start: str = "main",
        place: str = "",
        machine: str = "",
    ) -> Result:
        tmp_path = home / place
        tmp_path.mkdir(exist_ok=True)
        if machine:
            there = {"_roce_switch_controller": machine, "_roce_switch_claims": str(tmp_path)}
            arguments = (*arguments, "-e", json.dumps(there))
        hosts = {"leaf1": {"roce_switch_manage": True, **variables}, "n1": {}, "n2": {}}
        (tmp_path / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
        tasks = [{"ansible.builtin.include_role": {"name": role, "tasks_from": start}}]
        book = [{"hosts": "leaf1", "gather_facts": False, "tasks": tasks}]
        (tmp_path / "play.yml").write_text(yaml.safe_dump(book))
        plugins = ROOT / "roles/roce_switch"
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
            "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
            "ANSIBLE_TERMINAL_PLUGINS": str(plugins / "terminal_plugins"),
            "ANSIBLE_CLICONF_PLUGINS": str(plugins / "cliconf_plugins"),
            "ANSIBLE_HOST_KEY_CHECKING": "False",
            "ANSIBLE_LOCAL_TEMP": str(tmp_path / "tmp"),
            "ANSIBLE_PERSISTENT_CONTROL_PATH_DIR": str(tmp_path / "pc"),
            "ANSIBLE_PERSISTENT_COMMAND_TIMEOUT": "8",
            "ANSIBLE_PERSISTENT_CONNECT_TIMEOUT": "30",
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_DEPRECATION_WARNINGS": "False",
        }
        (tmp_path / "ansible.cfg").write_text("[defaults]\n")
        done = ran(
            Path(sys.executable).parent / "ansible-playbook",
            "-i",
            tmp_path / "inventory.yml",
            "-e",
            json.dumps({"fabric": FABRIC}),
            *arguments,
            tmp_path / "play.yml",
            env=environment,
            cwd=tmp_path,
            timeout=HANGS_S,
        )
        output = done.stdout + done.stderr
        recap = next((line for line in output.splitlines() if line.startswith("leaf1 ")), "")
        changed = int(recap.split("changed=")[1].split()[0]) if recap else -1
        return Result(done.returncode, output, changed)

    return run

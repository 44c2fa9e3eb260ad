"""The lab's head as a site's login node: this project, its environment and its inventory on that host."""

import json
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from lab.acceptance import BIN, GUEST_PYTHON, INVENTORY, Steps, environment, wheelhouse
from lab.cluster import Lab
from lab.paths import CHECKOUT, cache_root

PROJECT = "/opt/shakedown"
SITE = f"{PROJECT}/inventories/SITE"
# As docs/how-to/nightly.md has it for a host without a package index; uv is there since playbooks/site.yml.
INSTALL = """
export PATH=/shared/shakedown-code/bin:$PATH
uv venv --no-project .venv
uv pip install --no-index --find-links=wheels --no-deps --require-hashes -r requirements/controller.txt
uv pip install --no-index --find-links=wheels --no-deps --editable .
"""
# What makes Ansible quick on an emulated host (lab.acceptance.environment); a site needs neither.
EMULATED = {
    "ANSIBLE_STRATEGY": "mitogen_linear",
    "ANSIBLE_STRATEGY_PLUGINS": (
        f"{PROJECT}/.venv/lib/python{GUEST_PYTHON}/site-packages/ansible_mitogen/plugins/strategy"
    ),
    "ANSIBLE_TIMEOUT": "120",
    "ANSIBLE_FORCE_COLOR": "0",
}


@dataclass(frozen=True)
class LoginNode:
    """A shell there, in the project's folder."""

    lab: Lab

    def run(self, script: str, *, timeout_s: float = 600) -> tuple[int, str]:
        """Run lines of shell, ended by the first that fails; return its exit status and what was printed."""
        done = self.lab.ssh(
            "head", ["bash", "-c", f"exec 2>&1; set -e; cd {PROJECT}; {script}"], timeout_s=timeout_s
        )
        return done.returncode, done.stdout + done.stderr

    def shakedown(self, words: str, *, timeout_s: float = 600) -> tuple[int, str]:
        """Run a line of a docs page as it stands there, in the activated environment."""
        settings = " ".join(shlex.quote(f"{k}={v}") for k, v in EMULATED.items())
        return self.run(f"export {settings}; . .venv/bin/activate; {words}", timeout_s=timeout_s)

    def quick(self) -> None:
        """Let the timer's service have what makes Ansible quick here."""
        folder = "/etc/systemd/system/shakedown-nightly.service.d"
        lines = "".join(f"Environment={k}={v}\n" for k, v in EMULATED.items())
        done = self.lab.ssh(
            "head",
            ["sh", "-c", f"mkdir -p {folder} && cat > {folder}/lab.conf && systemctl daemon-reload"],
            input_text=f"[Service]\n{lines}",
        )
        assert done.returncode == 0, done.stderr

    def night_while(self, act: Callable[[], None]) -> dict[str, Any]:
        """Start the timer's service, do something while it measures, and return what it delivered."""
        ended: list[tuple[int, str]] = []
        start = partial(self.run, "systemctl start shakedown-nightly.service", timeout_s=3000)
        night = threading.Thread(target=lambda: ended.append(start()), daemon=True)
        night.start()
        deadline = time.monotonic() + 300
        while (
            night.is_alive() and time.monotonic() < deadline and self.run("ls /var/lib/shakedown/runs/*")[0]
        ):
            time.sleep(1)
        assert night.is_alive(), ended
        act()
        night.join()
        assert ended == [(0, "")], (ended, self.run("journalctl --unit=shakedown-nightly --lines=30")[1])
        return json.loads(self.run("cat /var/lib/shakedown/last-night.json")[1])


def login_node(lab: Lab, wheels: Path, inventory: Path, work: Path) -> LoginNode:
    """Carry the project, the wheels and the inventory to the head, and install them there."""
    carried = work / "carried"
    _inventory(lab, wheels, inventory, carried / "inventories/SITE")
    (carried / "wheels").symlink_to(wheelhouse(Steps(), CHECKOUT / "requirements/controller.txt"))
    node = LoginNode(lab)
    made = lab.ssh("head", ["mkdir", "-p", PROJECT])
    assert made.returncode == 0, made.stderr
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--", ".", ":!tests"], cwd=CHECKOUT, check=True, capture_output=True
    ).stdout
    _send(lab, CHECKOUT, "--from0", "--files-from=-", given=tracked)
    _send(lab, carried, "--recursive", "--copy-links")
    _send(lab, _build_wheel(), "--recursive", into="wheels/")
    _keys(lab)
    status, said = node.run(INSTALL, timeout_s=1200)
    assert status == 0, said
    return node


def _inventory(lab: Lab, wheels: Path, inventory: Path, folder: Path) -> None:
    """Write the site as the head sees it: addresses of the management network, and itself."""
    asked = [BIN / "python", INVENTORY / "hosts.py", "--list"]
    shown = subprocess.run(
        asked, check=True, capture_output=True, text=True, env=environment(lab.name, wheels)
    ).stdout
    document = json.loads(shown)
    hosts = {
        name: {k: v for k, v in own.items() if not k.startswith("ansible_")}
        | {"ansible_host": own["mgmt_ip"]}
        for name, own in document.pop("_meta")["hostvars"].items()
    }
    hosts["head"]["ansible_connection"] = "local"
    document.pop("all")
    groups = {
        name: {
            "hosts": {host: hosts[host] for host in group.get("hosts", [])},
            "children": {child: {} for child in group.get("children", [])},
        }
        for name, group in document.items()
    }
    folder.mkdir(parents=True)
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": groups}}))
    shutil.copytree(inventory / "group_vars", folder / "group_vars")


def _send(lab: Lab, source: Path, *options: str, into: str = "", given: bytes = b"") -> None:
    *shell, host = lab.ssh_argv("head")
    argv = ["rsync", "--links", "--perms", *options, f"--rsh={shlex.join(shell)}", f"{source}/"]
    subprocess.run([*argv, f"{host}:{PROJECT}/{into}"], check=True, input=given, timeout=600)


def _build_wheel() -> Path:
    """Return a folder with what builds this project: no lock names it."""
    folder = cache_root() / "wheels" / "build"
    if not folder.is_dir():
        aside = folder.with_name(".build")
        argv = [BIN / "python", "-m", "pip", "download", "--quiet", "--no-deps", f"--dest={aside}"]
        argv += ["setuptools"]
        subprocess.run(argv, check=True, timeout=300)
        aside.rename(folder)
    return folder


def _keys(lab: Lab) -> None:
    """Let root of the head reach the other machines, as an administrator of a cluster can."""
    known = f"10.20.0.* {lab.image.host_key()}\n"
    for path, mode, content in (
        ("/root/.ssh/id_ed25519", "600", lab.image.key.read_text()),
        ("/root/.ssh/known_hosts", "644", known),
    ):
        script = f"umask 077; cat > {path}; chmod {mode} {path}"
        done = lab.ssh("head", ["sh", "-c", script], input_text=content)
        assert done.returncode == 0, done.stderr

"""Asks the hosts of an Ansible inventory, in one pass of `playbooks/discover.yml`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from shakedown.discover.answers import Answers, answers_of
from shakedown.discover.program import answers_in, program
from shakedown.records.errors import BadInput
from shakedown.records.untrusted import loads

HOUSE = Path(__file__).resolve().parents[2]
_PLAYBOOK = "playbooks/discover.yml"


def ask_ansible(inventory: str) -> Answers:
    """Return what the hosts of group `compute` answer, or all hosts where there is no such group.

    Args:
        inventory: as `ansible-playbook -i` takes it: a folder, a file or `n1,n2,`.

    Raises:
        BadInput: Ansible is missing or cannot read the inventory, or no host answered.
    """
    command = Path(sys.executable).with_name("ansible-playbook")
    found = str(command) if command.exists() else shutil.which("ansible-playbook")
    if found is None:
        raise BadInput(
            "ansible-core is not installed", fix="pip install 'shakedown[controller]', or run make setup"
        )
    if not (HOUSE / _PLAYBOOK).is_file():
        raise BadInput(f"no {_PLAYBOOK} here", fix="run it from a checkout of Shakedown, or use --slurm")
    if "," not in inventory and not Path(inventory).exists():
        raise BadInput(
            "no such inventory",
            fix="give a folder, a file, or a list of hosts that ends in a comma",
            file=inventory,
        )
    where = inventory if "," in inventory else str(Path(inventory).resolve())
    with tempfile.TemporaryDirectory(prefix="shakedown-discover-") as folder:
        probe, answers = Path(folder) / "probe.py", Path(folder) / "answers.json"
        probe.write_text(program(), encoding="utf-8")
        variables = [f"--extra-vars=discover_program={probe}", f"--extra-vars=discover_file={answers}"]
        done = subprocess.run(
            [found, "-i", where, _PLAYBOOK, *variables],
            cwd=HOUSE,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        )
        # Hosts that cannot be reached make its exit status 4; they are named below.
        if not answers.exists():
            lines = (done.stderr + done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
            words = next((line for line in lines if "ERROR" in line or "fatal" in line), lines[-1])
            raise BadInput(
                f"ansible-playbook: {words[:300]}", fix="mend the inventory, or see ansible -m ping"
            )
        return answers_from(loads(answers.read_bytes()))


def answers_from(written: Any) -> Answers:  # noqa: ANN401  (JSON of the playbook)
    """Return the answers in what the playbook wrote. Raises BadInput if no host answered."""
    documents: dict[str, object] = {}
    silent, connections, addresses = {}, {}, {}
    for host, seen in written["hosts"].items():
        found = answers_in(str(seen["text"]))
        if len(found) == 1:
            documents[host] = next(iter(found.values()))
            connections[host] = seen["ways"]
            if seen["mgmt_ip"]:
                addresses[host] = str(seen["mgmt_ip"])
        else:
            silent[host] = " ".join(str(seen["said"]).split())[:300] or "no answer"
    if not documents:
        first = next(iter(silent.items()), ("none", "group compute has no hosts"))
        raise BadInput(f"no host answered; {first[0]}: {first[1]}", fix="see ansible -m ping")
    return answers_of(
        documents,
        silent=silent,
        connections=connections,
        addresses=addresses,
        submit=written["submit"] or None,
    )

"""Somebody else's cluster: what its owner has set up, by scripts of their own and not by Shakedown's roles.

| what | how |
|---|---|
| Slurm | slurmdbd with MariaDB, accounts, limits and QOS enforced, no jobs of root |
| partition ``gpu`` | at most 20 minutes; n1, n2 and a1, which its owner has drained |
| reservation ``maint_nov`` | maintenance, for alice alone |
| accounts of alice | ``bench``, and ``small`` with at most one node a job; bob has none |
| folders | /home and /scratch by NFS with root_squash |
| software | Lmod with ``openmpi/5.0.7`` and ``ucx/1.18`` in /opt/site; the system has no MPI |
"""

from __future__ import annotations

import base64
import secrets
import shlex
import threading
from pathlib import Path

from lab.errors import LabError
from lab.image import Progress
from lab.machines import Machines, parallel
from lab.topology import HEAD, Machine

USER = "alice"
_SCRIPTS = Path(__file__).with_name("scripts")
# Emulated on two busy cores, MariaDB and slurmdbd come up within one to two minutes.
_PATIENCE_S = 900.0
# As Slurm's configuration names them.
_NODES = 2


def check_size(nodes: int) -> None:
    """Raise LabError for another number of compute nodes than their Slurm has."""
    if nodes != _NODES:
        raise LabError(f"the foreign site has {_NODES} compute nodes", fix=f"use --nodes {_NODES}")


def set_up(machines: Machines, progress: Progress) -> None:
    """Make the machines that site. Raises LabError with the last words of what failed."""
    computes = [m for m in machines.topology.machines if m.role == "compute"]
    key = base64.b64encode(secrets.token_bytes(1024)).decode()
    head = machines.topology.machine(HEAD)

    def everywhere(machine: Machine, _stop: threading.Event) -> None:
        _run(machines, machine.name, "every", MUNGE_KEY=key)

    def compute(machine: Machine, _stop: threading.Event) -> None:
        _run(machines, machine.name, "compute")

    progress("their users and MUNGE")
    parallel(everywhere, [head, *computes])
    progress("their file system, accounting and Slurm")
    _run(machines, HEAD, "head")
    parallel(compute, computes)
    progress("their maintenance reservation")
    _run(machines, HEAD, "last")


def _run(machines: Machines, name: str, script: str, **variables: str) -> None:
    given = "".join(f"{key}={shlex.quote(value)}\n" for key, value in variables.items())
    text = given + (_SCRIPTS / f"{script}.sh").read_text(encoding="utf-8")
    done = machines.ssh(name, ["sh", "-s"], timeout_s=_PATIENCE_S, input_text=text)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no reason given"]
        raise LabError(
            f"{name}: {script}.sh ended with {done.returncode}: {said[-1][:300]}",
            fix=f"see lab/foreign/scripts/{script}.sh",
            detail="\n".join(said[-20:]),
        )

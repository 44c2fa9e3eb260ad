"""`host-settings sign`: this node's word that a job of an order left these outputs, and when.

Whoever asks sends two SHA-256 digests in hexadecimal, 128 characters and nothing else: of the order, and of a
list of outputs. What is signed is a line of this program's own making, in the namespace `shakedown` alone,
with the node's SSH host key. So nothing that a user chooses is ever signed as it is, and the signature is
good for no login and no file. Each user's lines about one order are a chain: a line names the one before by
its digest, has a number and a time, and none can be taken out, put in or made again later without its being
seen. A line also says how many lines other users have about the order: a run that somebody makes again as
another user begins a chain of its own.

What is kept: one small file, of at most MOST_CHAINS chains, MOST_OF_A_USER of them one user's.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import select
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

from host_settings.system import System

NAMESPACE, PURPOSE = "shakedown", "shakedown-outputs"
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
STATE = "/var/lib/shakedown-sign/chains.json"
# Two digests in lower-case hexadecimal.
REQUEST_BYTES = 128
_REQUEST = re.compile(rb"[0-9a-f]{128}\Z")
MOST_CHAINS, MOST_OF_A_USER = 4_096, 256
# A chain that nothing was added to for so long gives its place away; no order is valid for as long.
_FORGOTTEN_AFTER_S = 120 * 86_400.0
_NO_LINK = "0" * 64
_TIMEOUT_S = 20
_WAIT_S = 2.0  # for the request; while it waits, others are kept out
_Chains = dict[str, list[Any]]  # "UID:ORDER": [number, digest of the last line, seconds since the epoch]


class Refused(Exception):  # noqa: N818  (what was asked is at fault)
    """Nothing was signed, and why."""


def serve(system: System, connection: int) -> str:
    """Return the answer to one request on a socket: `link` and `signature`, or `error`, as JSON."""
    try:
        with socket.socket(fileno=os.dup(connection)) as peer:
            request, uid = _request(peer), _user(peer)
        return json.dumps(signed(system, request[:64], request[64:], uid))
    except (Refused, OSError, subprocess.SubprocessError) as error:
        return json.dumps({"error": " ".join(str(error).split())[:300]})


def _request(peer: socket.socket) -> str:
    """Return the two digests. Raises Refused; who sends nothing is not waited for."""
    request, deadline = b"", time.monotonic() + _WAIT_S
    while len(request) < REQUEST_BYTES:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([peer], [], [], left)[0]:
            break
        block = peer.recv(REQUEST_BYTES - len(request))
        if not block:
            break
        request += block
    if not _REQUEST.match(request):
        raise Refused("a request is two SHA-256 digests: 128 hexadecimal characters within 2 s")
    return request.decode()


def _user(peer: socket.socket) -> int:
    """Return the user that asks, as the kernel says it (SO_PEERCRED, unix(7))."""
    packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", packed)[1])


def signed(system: System, order: str, digest: str, uid: int) -> dict[str, str]:
    """Return the next line of a user's chain about an order, and its signature.

    Raises Refused, OSError and subprocess.SubprocessError; the chain is then as it was.
    """
    path = system.path(STATE)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = _read(path)
        chains: _Chains = state["chains"]
        now, name = time.time(), f"{uid}:{order}"
        number, before, _ = chains.get(name, [0, _NO_LINK, now])
        if name not in chains:
            _make_room(chains, uid, now)
        link = json.dumps(
            {
                "schema": 1,
                "purpose": PURPOSE,
                "order": order,
                "number": number + 1,
                "before": before,
                "digest": digest,
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
                "uid": uid,
                "signed": state["signed"] + 1,
                "others": sum(
                    known[0] for of, known in chains.items() if of != name and of.endswith(f":{order}")
                ),
                "machine": _machine(system),
            }
        )
        signature = _sign(system, link.encode())
        chains[name] = [number + 1, hashlib.sha256(link.encode()).hexdigest(), now]
        _write(path, {"schema": 1, "signed": state["signed"] + 1, "chains": chains})
    return {"link": link, "signature": signature}


def _make_room(chains: _Chains, uid: int, now: float) -> None:
    """Forget chains that are long over. Raises Refused where that leaves no room for another."""
    for name in [n for n, (_, _, at) in chains.items() if now - at > _FORGOTTEN_AFTER_S]:
        del chains[name]
    if sum(name.startswith(f"{uid}:") for name in chains) >= MOST_OF_A_USER:
        raise Refused(f"user {uid} has signed outputs of {MOST_OF_A_USER} orders here: no room for another")
    if len(chains) >= MOST_CHAINS:
        raise Refused(f"outputs of {MOST_CHAINS} orders were signed here: no room for another")


def _read(path: Path) -> dict[str, Any]:
    """Return the chains; none where none was ever begun. Raises Refused for a damaged file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {"schema": 1, "signed": 0, "chains": {}}
    try:
        state = json.loads(text)
        if isinstance(state["signed"], int) and isinstance(state["chains"], dict):
            return dict(state)
    except (ValueError, KeyError, TypeError):
        pass
    raise Refused(f"{path} is damaged: remove it; the chains that it held then end, which verify names")


def _write(path: Path, state: dict[str, Any]) -> None:
    aside = path.with_suffix(".new")
    with aside.open("w", encoding="utf-8") as file:
        file.write(json.dumps(state) + "\n")
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def _machine(system: System) -> str:
    """What stands for machine-id(5) here, as the snapshot of the hosts has it."""
    found = system.read("/etc/machine-id")
    return hashlib.sha256(b"shakedown " + found.encode()).hexdigest()[:32] if found else ""


def _sign(system: System, text: bytes) -> str:
    done = subprocess.run(
        ["ssh-keygen", "-Y", "sign", "-q", "-f", str(system.path(HOST_KEY)), "-n", NAMESPACE],
        input=text,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
        raise Refused(f"ssh-keygen: {said.splitlines()[-1][:200]}")
    return done.stdout.decode("ascii")

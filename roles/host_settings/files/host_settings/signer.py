"""`host-settings sign`: this node's word that a job of an order left these outputs, and when.

Whoever asks sends two SHA-256 digests in hexadecimal, 128 characters and nothing else: of the order, and of a
list of outputs. What is signed is a line of this program's own making, in the namespace `shakedown` alone,
with the node's SSH host key. So nothing that a user chooses is ever signed as it is, and the signature is
good for no login and no file. Each user's lines about one order are a chain: a line names the one before by
its digest, has a number and a time, and none can be taken out, put in or made again later without its being
seen. An order says whose jobs they are: what other users had signed about it counts for nothing.

In place of the second digest a request may have TRIAL. Then nothing is added to the chain: its place is
kept, the folder is made in which this user's jobs note what they write (noted.py), and that is signed.

What is kept: one small file, of at most MOST_OF_A_USER chains of each user that this host knows. Those it
does not know have as many together: an ordinary user has ten thousands of subordinate ids (subuid(5)).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pwd
import re
import select
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

from host_settings.system import System

NAMESPACE, PURPOSE, ON_TRIAL = "shakedown", "shakedown-outputs", "shakedown-trial"
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
STATE = "/var/lib/shakedown-sign/chains.json"
NOTES = "/run/shakedown/notes"  # a folder of each user's own; its parent is root's
# Two digests in lower-case hexadecimal.
REQUEST_BYTES = 128
TRIAL = "?" * 64
_REQUEST = re.compile(rb"[0-9a-f]{64}(?:[0-9a-f]{64}|\?{64})\Z")
MOST_OF_A_USER = 256
_UNKNOWN = "whom this host does not know"
# A chain that nothing was added to for so long gives its place away; no order is valid for as long.
_FORGOTTEN_AFTER_S = 120 * 86_400.0
_NO_LINK = "0" * 64
_TIMEOUT_S = 20
_WAIT_S = 2.0  # for the request; while it waits, others are kept out
# "UID:ORDER": [number, digest of the last line, seconds since the epoch, in whose quota]
_Chains = dict[str, list[Any]]


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
    """Return the next line of a user's chain about an order, and its signature; for TRIAL one of no chain.

    Raises Refused, OSError and subprocess.SubprocessError; the chain is then as it was.
    """
    path = system.path(STATE)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        chains = _read(path)
        now, name = time.time(), f"{uid}:{order}"
        if name not in chains:
            chains[name] = [0, _NO_LINK, now, _make_room(chains, uid, now)]
        number, before = chains[name][:2]
        about = {
            "schema": 1,
            "order": order,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
            "uid": uid,
            "machine": _machine(system),
        }
        if digest == TRIAL:
            _make_notes(system.path(NOTES) / str(uid), uid)
            link = json.dumps({**about, "purpose": ON_TRIAL})
        else:
            line = {**about, "purpose": PURPOSE, "number": number + 1, "before": before, "digest": digest}
            link = json.dumps(line)
            chains[name][:3] = number + 1, hashlib.sha256(link.encode()).hexdigest(), now
        signature = _sign(system, link.encode())
        _write(path, {"schema": 1, "chains": chains})
    return {"link": link, "signature": signature}


def _make_room(chains: _Chains, uid: int, now: float) -> str:
    """Forget chains that are long over; return in whose quota another one is. Raises Refused: it is full."""
    for name in [n for n, chain in chains.items() if now - chain[2] > _FORGOTTEN_AFTER_S]:
        del chains[name]
    try:
        whose = f"user {pwd.getpwuid(uid).pw_uid}"
    except KeyError:
        whose = _UNKNOWN
    if sum(chain[3] == whose for chain in chains.values()) >= MOST_OF_A_USER:
        whom = f"users {whose}" if whose == _UNKNOWN else whose
        raise Refused(f"outputs of {MOST_OF_A_USER} orders were signed here for {whom}: no room for another")
    return whose


def _make_notes(folder: Path, uid: int) -> None:
    """Make the folder of a user's notes. Only root can make it there: what is found is of this program."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != uid:
        os.chown(folder, uid, -1)


def _read(path: Path) -> _Chains:
    """Return the chains; none where none was ever begun. Raises Refused for a damaged file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        # Older lines do not say in whose quota they are.
        chains = {
            n: [*c[:3], *(c[3:] or [f"user {int(n.split(':')[0])}"])]
            for n, c in json.loads(text)["chains"].items()
        }
        if all(isinstance(c[0], int) and isinstance(c[2], (int, float)) for c in chains.values()):
            return chains
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
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

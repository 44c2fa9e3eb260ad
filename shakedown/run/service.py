"""Ask a service of this node that answers with one JSON document. Standard library.

python3 service.py SOCKET REQUEST TIMEOUT-S     (prints the document; status 1: why not, on stderr)
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LARGEST_ANSWER = 16 << 20  # bytes; a node with hundreds of PCI functions answers with 150 kB
_BETWEEN_S = 0.5
SIGNER = "/run/shakedown/sign.sock"
TRIAL = "?" * 64  # in place of the digest of outputs: nothing is added to a chain (signer.py)
_SIGN_TIMEOUT_S = 60.0
NODE = "/run/shakedown/node.sock"
_NODE_TIMEOUT_S = 60.0  # an emulated node takes seconds to start the service
_HEX = re.compile(r"(?:[0-9a-f]{2}){1,256}\Z")


def ask(path: str, timeout_s: float, request: bytes = b"") -> dict[str, Any]:
    """Return the document of the service behind a Unix socket.

    systemd serves a few connections at a time and closes the others at once: being turned away is no answer,
    so it is asked again until the time is over. Whoever keeps others out makes them wait, and no more.

    Args:
        path: the socket's.
        timeout_s: how long to wait for the answer, in seconds, in all.
        request: what the service is told, where it takes something in.

    Raises:
        OSError: there is no such service, or it did not end its answer in time.
        ValueError: the answer is too long, empty to the end, or no JSON object.
    """
    deadline = time.monotonic() + timeout_s
    answer = b""
    while not answer:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError, BlockingIOError):  # turned away
            answer = _once(path, deadline, request)
        if not answer and time.monotonic() + _BETWEEN_S > deadline:
            raise ValueError("it turned everybody away, or has no answer")
        if not answer:
            time.sleep(_BETWEEN_S)
    document = json.loads(answer)
    if not isinstance(document, dict):
        raise ValueError("the answer is no JSON object")
    return document


def _once(path: str, deadline: float, request: bytes) -> bytes:
    """Return the answer to one connection; empty where the service closed it."""
    answer = bytearray()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
        service.settimeout(max(0.1, deadline - time.monotonic()))
        service.connect(path)
        if request:  # sending nothing to a service that has answered and closed is a broken pipe as well
            service.sendall(request)
        while block := service.recv(1 << 16):
            answer += block
            if len(answer) > LARGEST_ANSWER:
                raise ValueError("the answer is too long")
            if time.monotonic() > deadline:
                raise TimeoutError("the answer did not end in time")
    return bytes(answer)


def sign(request: str, path: str = SIGNER, timeout_s: float = _SIGN_TIMEOUT_S) -> dict[str, str]:
    """Return `link` and `signature` of this host's signing service for two digests in hexadecimal.

    A node asks its own for its outputs, the submit host its own for the chain of jobs (`host-settings sign`).

    Raises:
        OSError: there is no service, or it was busy all the time.
        ValueError: it refused, or answered nonsense.
    """
    document = ask(path, timeout_s, request.encode("ascii"))
    if "error" in document:
        raise ValueError(str(document["error"]))
    link, signature = document.get("link"), document.get("signature")
    if not isinstance(link, str) or not isinstance(signature, str):
        raise ValueError("the answer is no signature")
    return {"link": link, "signature": signature}


def signer(path: str = SIGNER) -> Callable[[str], dict[str, str]] | None:
    """Return what signs two digests on this host; None where it has no such service."""
    return (lambda request: sign(request, path)) if Path(path).exists() else None


def of_node(path: str = NODE, timeout_s: float = _NODE_TIMEOUT_S) -> dict[str, Any]:
    """Return what root alone may read: `kernel`, `kernel_error` and `pci`. Raises OSError or ValueError.

    The service of roles/host_settings takes no input. Where a site does not have it, what needs it is not
    run, with that reason.
    """
    document = ask(path, timeout_s)
    if (
        not isinstance(document.get("kernel"), list)
        or not all(isinstance(line, str) for line in document["kernel"])
        or not isinstance(document.get("kernel_error"), str)
        or not isinstance(document.get("pci"), dict)
    ):
        raise ValueError("the answer is no reading of a node")
    return document


def config_spaces(path: str = NODE) -> dict[str, bytes]:
    """Return PCI configuration spaces by address; none where there is no service."""
    try:
        found = of_node(path)["pci"]
    except (OSError, ValueError):
        return {}
    return {str(bdf): bytes.fromhex(text) for bdf, text in found.items() if _HEX.match(str(text))}


def main(argv: list[str]) -> int:
    """Print the answer to one request; return the exit status."""
    try:
        document = ask(argv[0], float(argv[2]), argv[1].encode())
    except (OSError, ValueError) as error:
        print(f"{argv[0]}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    if "error" in document:
        print(f"{argv[0]}: {document['error']}", file=sys.stderr)
        return 1
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    if globals().get("__package__"):  # not read from standard input, where nothing else of us is
        from shakedown.records.program import ended

        ended(lambda: main(sys.argv[1:]))
    sys.exit(main(sys.argv[1:]))

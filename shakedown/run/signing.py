"""Ask this host's signing service (`host-settings sign`).

A node asks its own for its outputs, the submit host its own for the chain of jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shakedown.run import service

SOCKET = "/run/shakedown/sign.sock"
_TIMEOUT_S = 60.0


def ask(request: str, path: str = SOCKET, timeout_s: float = _TIMEOUT_S) -> dict[str, str]:
    """Return the service's `link` and `signature` for two digests in hexadecimal.

    Raises:
        OSError: there is no service, or it was busy all the time.
        ValueError: it refused, or answered nonsense.
    """
    document = service.ask(path, timeout_s, request.encode("ascii"))
    if "error" in document:
        raise ValueError(str(document["error"]))
    link, signature = document.get("link"), document.get("signature")
    if not isinstance(link, str) or not isinstance(signature, str):
        raise ValueError("the answer is no signature")
    return {"link": link, "signature": signature}


def signer(path: str = SOCKET) -> Callable[[str], dict[str, str]] | None:
    """Return what signs two digests on this host; None where it has no such service."""
    return (lambda request: ask(request, path)) if Path(path).exists() else None

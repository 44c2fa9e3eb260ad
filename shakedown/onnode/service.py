"""Ask a service of this node that takes no input and answers with one JSON document. Standard library."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

LARGEST_ANSWER = 16 << 20  # bytes; a node with hundreds of PCI functions answers with 150 kB


def ask(path: str, timeout_s: float) -> dict[str, Any]:
    """Return the document of the service behind a Unix socket.

    Raises:
        OSError: there is no such service, or it did not end its answer in `timeout_s`.
        ValueError: the answer is too long, or no JSON object.
    """
    answer = bytearray()
    deadline = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
        service.settimeout(timeout_s)
        service.connect(path)
        while block := service.recv(1 << 16):
            answer += block
            if len(answer) > LARGEST_ANSWER:
                raise ValueError("the answer is too long")
            if time.monotonic() > deadline:
                raise TimeoutError("the answer did not end in time")
    document = json.loads(answer)
    if not isinstance(document, dict):
        raise ValueError("the answer is no JSON object")
    return document

"""A connection to a host that answers from a record, after as long as a host would take.

In a play with REPLAY_RECORD=1 modules run for real, here, and what they print is kept; afterwards every host
prints the same. So a hundred hosts cost the controller what a hundred real ones would, and no more.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: replayed
short_description: answers from a record
description: For benchmarks of the controller.
author: Shakedown
extends_documentation_fragment: [connection_pipelining]
options:
  pipelining:  # set where ssh's is, so that what ansible.cfg says of ssh holds here
    ini:
      - {section: defaults, key: pipelining}
      - {section: connection, key: pipelining}
      - {section: ssh_connection, key: pipelining}
"""


class Connection(ConnectionBase):
    """Runs small shell commands here, and answers for modules."""

    transport = "replayed"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Return status, output and errors of a command; a module's from the record."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        time.sleep(float(os.environ["REPLAY_ROUND_TRIP_S"]))
        payload = in_data or self._payload(cmd)
        if payload is None:
            done = subprocess.run(["/bin/sh", "-c", cmd], capture_output=True, check=False)
            return done.returncode, done.stdout, done.stderr
        # The module's arguments stand in the payload as JSON within a string.
        action = re.search(rb'\\*"action\\*": \\*"(\w+)\\*"', payload)
        record = Path(os.environ["REPLAY_FOLDER"], (action[1] if action else b"other").decode())
        if os.environ.get("REPLAY_RECORD"):
            done = subprocess.run(["/bin/sh", "-c", cmd], input=in_data, capture_output=True, check=False)
            record.write_bytes(done.stdout)
            return done.returncode, done.stdout, done.stderr
        time.sleep(float(os.environ["REPLAY_MODULE_S"]))
        return 0, record.read_bytes(), b""

    def _payload(self, cmd: str) -> bytes | None:
        found = re.search(r"\S*/AnsiballZ_\w+\.py", cmd)
        runs = found and "chmod" not in cmd.partition("&&")[0]
        return Path(found[0]).read_bytes() if found and runs else None

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file."""
        time.sleep(float(os.environ["REPLAY_ROUND_TRIP_S"]))
        shutil.copy(in_path, out_path)

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Copy a file back."""
        shutil.copy(in_path, out_path)

    def close(self) -> None:
        """Nothing is open."""
        self._connected = False

"""Send RoCE around the ring of all nodes, and count at each receiver what arrives. Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shakedown.benchmarks.perftest.mesh.driver import beside_mesh, drive
from shakedown.benchmarks.perftest.mesh.perftest import SYSFS
from shakedown.benchmarks.perftest.mesh.spec import Spec
from shakedown.benchmarks.perftest.mesh.store import NodeFiles
from shakedown.onnode.journal import now, ran
from shakedown.onnode.noted import note
from shakedown.records.reading import ExitStatus

NAME = "traffic_class"  # the kind of job, the tool of its outputs and the test of its cells
OPERATION = "ib_write_bw"  # what perftest runs: its server is where the data arrives


def evidence_name(output: str) -> str:
    """Return the file in which the receiving node keeps what it counted, by the file of perftest's output."""
    return f"arrived.{output.removesuffix('.txt')}.json"


# Two things are kept as they were found, and judged later: the counters that the NIC has of each priority,
# and the headers that the node's own service (roles/host_settings, arrivals.py) saw in a sample of the
# packets.

SOCKET = "/run/shakedown/arrivals.sock"
# An emulated node takes seconds to start the service.
_SERVICE_S = 30.0
_LARGEST_ANSWER = 4 << 20
_ETHTOOL_S = 20.0
# Of what priority the NIC received so many bytes and packets: mlx5 (en_stats.c), bnxt (bnxt_ethtool.c).
_PRIORITY = re.compile(r"\s*(rx_prio[0-7]_(?:bytes|packets)|rx_(?:bytes|packets)_pri[0-7]): *(\d{1,20})\s*\Z")
# bnxt's firmware writes these to memory once a second (bnxt.h, BNXT_DEF_STATS_COAL_TICKS).
_LATE, _LATE_S = "_pri", 1.5


class Service:
    """The node's count of arriving packets, from `start` to `finish`.

    Attributes:
        problem: why there is none.
    """

    def __init__(self, path: str = SOCKET) -> None:
        self._path, self._connection = path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.problem = ""

    def start(self) -> None:
        """Return once packets are counted, or once it is known why they are not."""
        try:
            self._connection.settimeout(_SERVICE_S)
            self._connection.connect(self._path)
            said = b""
            while not said.endswith(b"\n"):
                block = self._connection.recv(64)
                if not block or len(said) > 64:
                    raise ValueError("the service does not count")
                said += block
            if said != b"ready\n":
                raise ValueError("the service does not count")
        except (OSError, ValueError) as error:
            self.problem = f"{self._path}: {error}; run the playbook that configures hosts"

    def finish(self) -> dict[str, Any]:
        """Return what was counted; nothing, and `problem`, if that is not known."""
        answer = bytearray()
        with self._connection as connection:
            if self.problem:
                return {}
            try:
                connection.shutdown(socket.SHUT_WR)
                while block := connection.recv(1 << 16):
                    answer += block
                    if len(answer) > _LARGEST_ANSWER:
                        raise ValueError("the answer is too long")
                document = json.loads(answer)
                if not isinstance(document, dict) or not isinstance(document.get("netdevs"), dict):
                    raise ValueError("the answer is no count")
            except (OSError, ValueError) as error:
                self.problem = f"{self._path}: {error}"
                return {}
        return document


def priorities(netdev: str) -> tuple[dict[str, int], str]:
    """Return a NIC's counters of received bytes and packets by priority, and why there are none."""
    program = shutil.which("ethtool", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        return {}, "there is no ethtool"
    done = ran((program, "-S", netdev), _ETHTOOL_S, LC_ALL="C")
    if done is None:
        return {}, f"ethtool -S {netdev} cannot run, or has no end within {_ETHTOOL_S:g} s"
    found = {m[1]: int(m[2]) for line in done.stdout.splitlines() if (m := _PRIORITY.match(line))}
    return found, "" if found else f"the driver of {netdev} counts no received bytes by priority"


def settled(netdevs: Mapping[str, str]) -> dict[str, tuple[dict[str, int], str]]:
    """Return the counters of each output's netdev, once they hold what has arrived by now."""
    found = {output: priorities(netdev) for output, netdev in netdevs.items()}
    if any(name[:-1].endswith(_LATE) for counters, _ in found.values() for name in counters):
        time.sleep(_LATE_S)
        found = {output: priorities(netdev) for output, netdev in netdevs.items()}
    return found


def watching(folder: Path, node: str, service: str = SOCKET) -> Any:  # noqa: ANN401  (a mesh's `Watch`)
    """Return what the mesh's driver enters around everything that this node serves."""

    @contextlib.contextmanager
    def watch(netdevs: Mapping[str, str]) -> Iterator[None]:
        started, before = now(), settled(netdevs)
        count = Service(service)
        count.start()
        try:
            yield
        finally:
            document = count.finish()
            after = settled(netdevs)
            for output, netdev in netdevs.items():
                seen = document.get("netdevs", {}).get(netdev)
                text = {
                    "schema": 1,
                    "node": node,
                    "netdev": netdev,
                    "started": started,
                    "ended": now(),
                    "priorities": {"before": before[output][0], "after": after[output][0]},
                    "no_priorities": before[output][1] or after[output][1],
                    "headers": seen,
                    "no_headers": count.problem or ("" if seen else f"the service does not know {netdev}"),
                }
                with contextlib.suppress(OSError):
                    (folder / evidence_name(output)).write_text(
                        json.dumps(text, indent=1) + "\n", encoding="utf-8"
                    )
                    note(folder, evidence_name(output))

    return watch


#     srun --ntasks-per-node=1 python -m shakedown.benchmarks.traffic_class.job FOLDER
#
# FOLDER/spec.json is the mesh's specification, and what must arrive beside it. The mesh's own drivers send; a
# cell that they could not measure is noted with the reason, which is no failure of this job.


def main(arguments: list[str], *, sysfs: Path = SYSFS, service: str = SOCKET) -> int:
    """Run this node's part; returns the exit status."""

    def send(folder: Path, spec: Spec, digest: str, node: str, _: Mapping[str, Any]) -> int:
        store = NodeFiles(folder, node, tool=NAME, test_of=lambda _perftests: NAME)
        return drive(spec, digest, node, folder, sysfs, store=store, watch=watching(folder, node, service))

    status = beside_mesh(NAME, "wanted", arguments, send)
    return ExitStatus.PASS if status == ExitStatus.INCOMPLETE else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

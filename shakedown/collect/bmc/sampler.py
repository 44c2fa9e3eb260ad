"""Reads all BMCs again and again while a run measures; each node's readings go into a file of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from shakedown.collect.bmc.reader import TIMEOUT_S, Reader
from shakedown.collect.bmc.readings import NoReading
from shakedown.run.folder import RAW
from shakedown.run.server_power import FOLDER, PowerSample


def sample(
    run: Path, readers: Mapping[str, Reader], *, every_s: float, for_s: float, stop: threading.Event
) -> dict[str, tuple[int, int]]:
    """Read until the time is over or `stop` is set; return (readings, failures) by node.

    A slow or dead BMC delays its own node's readings alone.
    """
    folder = run / RAW / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    counts: dict[str, tuple[int, int]] = dict.fromkeys(readers, (0, 0))
    until = time.monotonic() + for_s

    def follow(node: str) -> None:
        good = bad = 0
        with (folder / f"{node}.jsonl").open("a", encoding="utf-8") as out:
            while True:
                begun = time.monotonic()
                found = _once(readers[node])
                good, bad = good + (found.watts is not None), bad + (found.watts is None)
                out.write(found.model_dump_json(by_alias=True, exclude_none=True) + "\n")
                out.flush()
                counts[node] = good, bad
                pause = max(0.0, begun + every_s - time.monotonic())
                if time.monotonic() + pause >= until or stop.wait(pause):
                    return

    threads = [threading.Thread(target=follow, args=(node,), daemon=True) for node in readers]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            # A BMC that sends a byte now and then must not keep the command; the limit lets Ctrl-C be heard.
            while thread.is_alive() and time.monotonic() < until + 2 * TIMEOUT_S:
                thread.join(0.2)
    except KeyboardInterrupt:
        stop.set()
        for thread in threads:
            thread.join(2 * TIMEOUT_S)  # a reading that has begun ends by itself
    return counts


def _once(read: Reader) -> PowerSample:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    try:
        return PowerSample(time=now, watts=read())
    except NoReading as none:
        return PowerSample(time=now, problem=str(none)[:200])

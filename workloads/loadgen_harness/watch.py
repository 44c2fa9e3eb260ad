"""Watches the GPUs' clocks during a search, so that a throttled result is known as one."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from shakedown.benchmarks.inference.peak import FIELDS

_EVERY_MS = 500


class GpuWatch:
    """`nvidia-smi` in a loop, writing a line for every GPU and moment; nothing at all for no GPUs.

    GPUs are named by UUID: numbers are the driver's, not those of CUDA_VISIBLE_DEVICES or of a job's cgroup.
    """

    def __init__(self, file: Path, gpus: Sequence[str]) -> None:
        self.file, self.gpus = file, gpus
        self.problem = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> GpuWatch:
        if self.gpus:
            command = [
                "nvidia-smi",
                f"--id={','.join(self.gpus)}",
                f"--query-gpu={','.join(FIELDS)}",
                "--format=csv,noheader,nounits",
                f"--loop-ms={_EVERY_MS}",
            ]
            try:
                with self.file.open("ab") as out:
                    self._process = subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
                    )
            except OSError as error:
                self.problem = f"nvidia-smi, so throttling would go unseen: {error}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        if self._process.poll() is not None:
            self.problem = (
                f"nvidia-smi ended by itself with {self._process.returncode}: throttling went unseen"
            )
        else:
            self._process.terminate()
        self._process.wait()
        # The last line may be cut off.
        whole = self.file.read_bytes()
        self.file.write_bytes(whole[: whole.rfind(b"\n") + 1])

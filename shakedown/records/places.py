"""Where the parts of Shakedown lie on this machine. Standard library only: compute nodes use this."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
# What PYTHONPATH must hold for another interpreter to find this package.
SOURCE = PACKAGE.parent
# LoadGen's harness and the LoRA trainer, in a checkout and on the submit host; other environments run them.
WORKLOADS = SOURCE / "workloads"

"""A node as Slurm has it: its states, and who took it out of service."""

from __future__ import annotations

from dataclasses import dataclass

# What the reason of a node that we drained begins with; nothing else tells ours from others'.
PREFIX = "shakedown:"


@dataclass(frozen=True)
class NodeState:
    """One node as Slurm reports it (`scontrol show node`)."""

    name: str
    states: frozenset[str]  # IDLE, ALLOCATED, DRAIN, DOWN, ...
    reason: str = ""
    by: str = ""  # who set the reason

    @property
    def drained(self) -> bool:
        """Whether it was taken out of service on purpose."""
        return "DRAIN" in self.states

    @property
    def ours(self) -> bool:
        """Whether we drained it: our own prefix in the reason decides, and nothing else."""
        return self.drained and self.reason.startswith(PREFIX)

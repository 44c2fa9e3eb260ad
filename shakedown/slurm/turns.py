"""Jobs that share a node take turns: each waits in Slurm for those that were submitted before it.

`--exclusive` alone does not do: a partition of another owner may set it aside (OverSubscribe=FORCE), and the
order would be Slurm's choice.
"""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Turns:
    """Jobs that are about to be submitted or under way, with their nodes, in the order of submission."""

    _jobs: dict[str, tuple[frozenset[str], Callable[[], object]]] = field(default_factory=dict)

    def after(self, name: str, nodes: tuple[str, ...], job_id: Callable[[], object]) -> list[str]:
        """Take a job in and return the options of sbatch by which it waits for its turn.

        Args:
            name: the job's; a second attempt takes the first one's place.
            nodes: those that it holds.
            job_id: returns nothing until it is submitted.
        """
        self._jobs.pop(name, None)
        mine = frozenset(nodes)
        before = [str(known) for held, asked in self._jobs.values() if held & mine and (known := asked())]
        self._jobs[name] = mine, job_id
        # afterany: also after a job that failed, and at once after one that Slurm has forgotten.
        return [f"--dependency=afterany:{':'.join(before)}"] if before else []

    def ended(self, name: str) -> None:
        """Forget a job that has ended."""
        self._jobs.pop(name, None)

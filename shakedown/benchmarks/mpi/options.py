"""What acceptance asks of MPI."""

from __future__ import annotations

from pydantic import Field

from shakedown.records.base import Record


class Sweep(Record):
    """Message sizes of an MPI benchmark; each needs a reference."""

    min_bytes: int = Field(gt=0, multiple_of=4)
    max_bytes: int = Field(gt=0, multiple_of=4)
    factor: int = Field(default=2, ge=2)
    iterations: int = Field(default=10, gt=0)

    def steps(self) -> tuple[int, ...]:
        """Return the sizes of the all-reduce in bytes: from the smallest on, each by the factor larger."""
        sizes = [self.min_bytes]
        while sizes[-1] * self.factor <= self.max_bytes:
            sizes.append(sizes[-1] * self.factor)
        return tuple(sizes)

    def powers_of_two(self) -> tuple[int, ...]:
        """Return the powers of two between the bounds, in bytes: the sizes of mpi4py's ping-pong."""
        return tuple(1 << i for i in range(33) if self.min_bytes <= 1 << i <= self.max_bytes)


class Mpi(Record):
    """The MPI benchmarks of the collective stage."""

    pingpong: Sweep | None = None
    allreduce: Sweep | None = None

"""Put a signed order into the run that it is for.

    python -m shakedown.evidence.take_order RUN-FOLDER ORDER

Refused, with exit status 2, if the order is of another plan, not valid now, or its signature does not hold.
"""

from __future__ import annotations

import sys
from pathlib import Path

from shakedown.evidence.orders import take
from shakedown.records.errors import ExitStatus
from shakedown.records.program import ended, status_of


def main(argv: list[str]) -> int:
    """Take the order; return the exit status."""
    if len(argv) != 2:
        print("usage: python -m shakedown.evidence.take_order RUN-FOLDER ORDER", file=sys.stderr)
        return ExitStatus.BAD_INPUT
    return status_of(lambda: take(Path(argv[0]), Path(argv[1])))


if __name__ == "__main__":
    ended(lambda: main(sys.argv[1:]))

"""Put a signed order into the run that it is for.

    python -m shakedown.bundle.take_order RUN-FOLDER ORDER

Refused, with exit status 2, if the order is of another plan, not valid now, or its signature does not hold.
"""

from __future__ import annotations

import sys
from pathlib import Path

from shakedown.bundle.orders import take
from shakedown.records.errors import BadInput, ExitStatus


def main(argv: list[str]) -> int:
    """Take the order; return the exit status."""
    if len(argv) != 2:
        print("usage: python -m shakedown.bundle.take_order RUN-FOLDER ORDER", file=sys.stderr)
        return ExitStatus.BAD_INPUT
    try:
        take(Path(argv[0]), Path(argv[1]))
    except (BadInput, OSError) as error:
        print(error, file=sys.stderr)
        return ExitStatus.BAD_INPUT
    return ExitStatus.PASS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

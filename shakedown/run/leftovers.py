"""What a process that was killed left half-written beside the files of a run or a store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

# As `write_aside` names what it is writing: .NAME.PID.new
_ASIDE = re.compile(r"\..+\.(\d{1,10})\.new")


def leftovers(folder: Path) -> Iterator[Path]:
    """Yield the half-written files below a folder whose writers are gone; links are not followed."""
    for inside, _, files in os.walk(folder):
        for name in sorted(files):
            named = _ASIDE.fullmatch(name)
            path = Path(inside, name)
            if named and not path.is_symlink() and not _lives(int(named[1])):
                yield path


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True

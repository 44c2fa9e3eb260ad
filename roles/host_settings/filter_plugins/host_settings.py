"""The program's sources as one value, read at once: lookups, one a file, cost every host of a play more."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def program(role_path: str) -> dict[str, str]:
    """Text of the program and of the modules beside it, by name, as they are installed."""
    files = Path(role_path) / "files"
    names = [
        "host-settings",
        *sorted(f"host_settings/{p.name}" for p in (files / "host_settings").glob("*.py")),
    ]
    return {name: (files / name).read_text(encoding="utf-8") for name in names}


class FilterModule:
    """The filter for Ansible."""

    def filters(self) -> dict[str, Any]:
        """The name as used in the role."""
        return {"host_settings_program": program}

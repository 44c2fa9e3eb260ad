#!/usr/bin/env python3
"""Write docs/reference and roles/*/README.md from what they describe: `make docs`.

With --check nothing is written: what differs from the committed files is named, and the exit status is 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs"), str(ROOT / "research")]

# They lie beside this program.
from generator import (  # noqa: E402
    audit,
    commands,
    errata,
    forgeries,
    licences,
    models,
    nic_counters,
    noise,
    published,
    roles,
    switch_cases,
    tools,
)


def pages() -> dict[str, str]:
    """Return every generated file: its path in the repository, and its text."""
    return {
        **models.pages(),
        **commands.pages(),
        **noise.pages(),
        **nic_counters.pages(),
        **roles.pages(ROOT),
        **published.pages(ROOT),
        **errata.pages(),
        **audit.pages(),
        **forgeries.pages(),
        **licences.pages(),
        **switch_cases.pages(),
        **tools.pages(),
    }


def main() -> int:
    """Write the pages, or compare them."""
    made = pages()
    stale = [name for name, text in made.items() if _read(ROOT / name) != text]
    for name in stale:
        if "--check" in sys.argv[1:]:
            print(f"{name} is not what its sources say: run make docs", file=sys.stderr)
        else:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(made[name], encoding="utf-8")
            print(f"written: {name}")
    return 1 if stale and "--check" in sys.argv[1:] else 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main())

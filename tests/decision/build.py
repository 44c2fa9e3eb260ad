"""Writes the inputs of the decision cases; `expected.json` beside them is written by hand and never by this.

`python tests/decision/build.py` rewrites every folder after a change of the records.
"""

from __future__ import annotations

import cases_arrivals  # noqa: F401  (each module registers its cases)
import cases_bugs  # noqa: F401
import cases_fabric  # noqa: F401
import cases_gpu  # noqa: F401
import cases_incast  # noqa: F401
import cases_interconnect  # noqa: F401
import cases_lora  # noqa: F401
import cases_rules  # noqa: F401
import cases_systems  # noqa: F401
from case_folder import CASES, HERE


def main() -> None:
    """Rewrite the inputs of every case."""
    for build in CASES:
        build().write()
    # What no record can express: a process killed in the middle of a line.
    results = HERE / "killed_in_a_line" / "run" / "results.jsonl"
    results.write_text(results.read_text()[:-90])


if __name__ == "__main__":
    main()

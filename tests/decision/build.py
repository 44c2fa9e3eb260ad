"""Makes the inputs of the decision cases: what a run leaves on disk, for one verdict each.

`expected.json` in a case's folder names the fault and the verdict; it is written by hand. The function of the
case's name in a `cases_*.py` makes the inputs, once for each session of tests. To look at one, or at all:

    python tests/decision/build.py CASE DIR      the case's inputs, in DIR
    python tests/decision/build.py --in-place    each case's inputs in its folder, as `run`, which git ignores
"""

import argparse
import importlib
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))

from tests.decision.case_folder import CASES  # noqa: E402

for module in sorted(HERE.glob("cases_*.py")):
    importlib.import_module(f"tests.decision.{module.stem}")  # registers its cases


def write_case(name: str, folder: Path) -> None:
    """Write the inputs of one case into a folder, which is made.

    A file that lies beside `expected.json` is an input that no record can express, and taken as it is.
    """
    CASES[name]().write(folder)
    for file in (HERE / name).iterdir():
        if file.is_file() and file.name != "expected.json":
            shutil.copy(file, folder)


def write_all(root: Path) -> None:
    """Write the inputs of every case as `CASE/run` below a folder."""
    for name in CASES:
        run = root / name / "run"
        shutil.rmtree(run, ignore_errors=True)
        write_case(name, run)


def main() -> None:
    """Write the inputs of one case, or of all."""
    parser = argparse.ArgumentParser(description="Write the inputs of decision cases.")
    parser.add_argument(
        "case", nargs="?", choices=sorted(CASES), metavar="CASE", help="a folder of tests/decision"
    )
    parser.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="where to; it is made")
    parser.add_argument("--in-place", action="store_true", help="write all as CASE/run here")
    asked = parser.parse_args()
    if asked.in_place and asked.case is None:
        write_all(HERE)
    elif asked.folder is not None and not asked.in_place:
        if asked.folder.exists():
            parser.error(f"{asked.folder} exists: name a folder that does not")
        write_case(asked.case, asked.folder)
    else:
        parser.error("give CASE and DIR, or --in-place")


if __name__ == "__main__":
    main()

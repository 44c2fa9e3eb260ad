"""Packs a run folder into one archive, which is the same to the byte whoever packs it, and when.

    python tests/runs/pack.py reports/runs/RUN-ID tests/runs/NAME

What `shakedown collect`, `verdict` and `report` make from the raw files stays out: the tests make it anew.
"""

import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

ARCHIVE = "run.tar.xz"
RECORDED = ("inventory.json", "jobs.json", "plan.json", "raw")  # the rest is made from these


def recorded_files(run: Path) -> Iterator[Path]:
    """Yield the files of a run that were written when it was made, in the order of their names.

    Raises SystemExit: something is neither a file nor a folder.
    """
    found = [path for name in RECORDED for path in (run / name, *(run / name).rglob("*")) if path.exists()]
    for path in sorted(found, key=lambda path: path.relative_to(run).as_posix()):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise SystemExit(f"{path}: neither a file nor a folder")
        if path.is_file():
            yield path


def pack(run: Path, archive: Path) -> None:
    """Write the archive of a run.

    Raises SystemExit: the folder holds no plan, or something that is no file.
    """
    if not (run / "plan.json").is_file():
        raise SystemExit(f"{run}: no plan.json, so this is no run")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz", format=tarfile.USTAR_FORMAT, preset=9) as tar:
        for path in recorded_files(run):
            member = tarfile.TarInfo(path.relative_to(run).as_posix())
            member.size, member.mode = path.stat().st_size, 0o644
            with path.open("rb") as content:
                tar.addfile(member, content)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: python tests/runs/pack.py RUN FOLDER")
    pack(Path(sys.argv[1]), Path(sys.argv[2]) / ARCHIVE)

"""The files of a run, and what an ended write left."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from shakedown.records.reading import BadInput, read_bytes, read_output
from shakedown.records.writing import write_aside
from shakedown.run.folder import COUNTERS, INVENTORY, RAW, RESULTS
from shakedown.run.redact import redact_bytes

SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"


def refuse_sealed(folder: Path, then: str) -> None:
    """Refuse to change a sealed run. `then`: the command that would, in the words of a way out."""
    if os.path.lexists(folder / SUMS):
        raise BadInput(
            "is sealed, and this would change it",
            fix=f"copy it, or remove its {SUMS} and {SIGNATURE}, {then}, and seal it anew",
            file=folder,
        )


DEEPEST = 16  # a run's own folders are three deep


def run_files(folder: Path, flaws: list[BadInput] | None = None) -> Iterator[str]:
    """Yield every file of a bundle, sorted, seals left out.

    Args:
        folder: the run's.
        flaws: gets why something below `raw/` is no file of a run; it is passed over then.

    Raises BadInput: a link, a special file, an odd name or a folder nested too deeply, unless it lies below
    `raw/` and there are `flaws` to say so.
    """
    found = []
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        for entry in sorted(os.scandir(folder / inside), key=lambda entry: entry.name):
            name = f"{inside}/{entry.name}" if inside else entry.name
            flaw = _flaw(folder, name, entry)
            if flaw is None and entry.is_dir(follow_symlinks=False):
                waiting.append(name)
            elif flaw is None:
                found.append(name)
            elif flaws is not None and name.startswith(f"{RAW}/"):
                flaws.append(flaw)
            else:
                raise flaw
    yield from sorted(set(found) - {SUMS, SIGNATURE})


def empty_folders(folder: Path) -> list[str]:
    """Return the folders of a run that hold no file, the innermost first: no checksum covers them."""
    return [
        Path(inside).relative_to(folder).as_posix()
        for inside, folders, files in os.walk(folder, topdown=False)
        if not files and Path(inside) != folder and not any(_holds_files(Path(inside) / f) for f in folders)
    ]


def _holds_files(folder: Path) -> bool:
    return any(files for _, _, files in os.walk(folder))


def _flaw(folder: Path, name: str, entry: os.DirEntry[str]) -> BadInput | None:
    """Return why this can be no file or folder of a run."""
    if not name.isprintable() or "\\" in name:
        return BadInput(f"file name {name!r} cannot be sealed", fix="rename it", file=folder)
    if not entry.is_file(follow_symlinks=False) and not entry.is_dir(follow_symlinks=False):
        return BadInput("is a link or special file", fix="copy it or remove it", file=folder / name)
    if name.count("/") >= DEEPEST:
        return BadInput(f"lies more than {DEEPEST} folders deep", fix="remove it", file=folder / name)
    return None


def redact_folder(folder: Path, flaws: list[BadInput] | None = None) -> list[str]:
    """Redact every raw output and record of a run in place; return the files that changed.

    `flaws`: as for `redacted_files`.
    """
    changed = []
    for name, content, clean in redacted_files(folder, flaws):
        if content != clean:
            write_aside(folder / name, clean)
            changed.append(name)
    return changed


def redacted_files(folder: Path, flaws: list[BadInput] | None = None) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield (file, content, redacted content) of what tools and jobs wrote.

    `flaws` gets why something below `raw/` was passed over: links, special files, and what is too large to
    be an output. No reader takes them either. Without `flaws` they are refused.
    """
    for name in run_files(folder, flaws):
        of_a_tool = name.startswith(f"{RAW}/")
        if not of_a_tool and name not in (RESULTS, COUNTERS, INVENTORY):
            continue
        try:
            content = read_output(folder / name) if of_a_tool else read_bytes(folder / name)
        except BadInput as refused:
            if flaws is None or not of_a_tool:
                raise
            flaws.append(refused)
            continue
        yield name, content, redact_bytes(content)


_ASIDE = re.compile(r"\..+\.(\d{1,10})\.new")  # as `write_aside` names what it is writing: .NAME.PID.new


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

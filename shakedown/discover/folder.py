"""Writes a site's folder, whole or not at all, and never over one that is there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from shakedown.discover.render import SiteFile
from shakedown.records.errors import BadInput


def write_folder(folder: Path, files: Iterable[SiteFile]) -> None:
    """Write the files into a new folder.

    Raises:
        BadInput: something is there already, or the folder above it is missing.
    """
    if not folder.parent.is_dir():
        raise BadInput(
            "no such folder", fix="make it, or name a folder under inventories/", file=folder.parent
        )
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for file in files:
            path = aside / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.text, encoding="utf-8")
        aside.chmod(0o755)
        # Renaming onto a folder with something in it fails, so that one made meanwhile stays as it is; an
        # empty one, or a link, would be replaced.
        if os.path.lexists(folder):
            raise BadInput("is there already", fix="name a new folder; nothing was written", file=folder)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)

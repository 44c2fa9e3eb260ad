"""A copy of Shakedown, for tests that change it as a contributor would."""

import os
import shutil
from pathlib import Path

import shakedown
from tests.kit.run import python
from tests.kit.site import CHECKOUT

_NO_CACHES = shutil.ignore_patterns("__pycache__", "*.pyc")


class House:
    """The package `shakedown` as files of its own; tests and docs are still those of this checkout."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.package = place / "shakedown"
        shutil.copytree(Path(shakedown.__file__).parent, self.package, ignore=_NO_CACHES)

    def add(self, source: Path, where: str) -> None:
        """Copy a folder into the package."""
        shutil.copytree(source, self.package / where, ignore=_NO_CACHES)

    def write(self, where: str, text: str) -> None:
        """Write a new file of the package."""
        assert not (self.package / where).exists(), f"{where} is there already"
        (self.package / where).write_text(text)

    def edit(self, where: str, line: str, becomes: str) -> None:
        """Replace a text that stands once in a file of the package."""
        text = (self.package / where).read_text()
        assert text.count(line) == 1, f"{where} has {text.count(line)} times {line!r}"
        (self.package / where).write_text(text.replace(line, becomes))

    def run(self, *words: str) -> str:
        """Run this interpreter with the copy; return what it prints. Raises AssertionError where it fails."""
        path = f"{self.place}:{CHECKOUT}:{CHECKOUT}/docs:{CHECKOUT}/tests/unit/report"
        variables = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        done = python(*words, cwd=self.place, env=variables)
        assert done.returncode == 0, done.stderr
        return done.stdout

"""The wheel, built once for all tests of what is installed."""

import shutil
from pathlib import Path

import pytest
from installed import ROOT, UV, done


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built through a source archive and without what lies in an old build/."""
    folder = tmp_path_factory.mktemp("build")
    for name in ("bin", "shakedown", "reports/templates", "reframe_tests", "workloads"):
        drop = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / "source" / name, symlinks=True, ignore=drop)
    (folder / "source/docs/reference").mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE", "docs/reference/shakedown.1"):
        shutil.copy(ROOT / name, folder / "source" / name)
    built = done([UV, "build", "--quiet", "--no-config", "--out-dir", folder / "dist", folder / "source"])
    assert built.returncode == 0, built.stderr
    (found,) = (folder / "dist").glob("*.whl")
    return found

#!/usr/bin/env python3
"""Build the collection shakedown.roce from the roles: `make collection`, or `collection/build.py FOLDER`.

Ansible finds plugins that lie in a role only outside a collection. So they move to the collection's
`plugins`, and the roles' filters and modules are called by their full names. What roles and filters need of
the sources lies beside them.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAME = "shakedown.roce"
# Folders of a role that hold plugins, and those of a collection.
PLUGINS = {
    "action_plugins": "action",
    "cliconf_plugins": "cliconf",
    "filter_plugins": "filter",
    "library": "modules",
    "terminal_plugins": "terminal",
}
# What roles copy to hosts and filters import, where roles look for it: two folders above themselves.
SOURCES = ("shakedown", "reframe_tests", "workloads", "requirements")
# In front of a filter's imports: its own sources before others, and in words what else it needs.
_HEAD = """\
import sys as _sys
from pathlib import Path as _Path

if "shakedown" not in _sys.modules:
    _sys.path.insert(0, str(_Path(__file__).resolve().parents[2]))
try:
    import pydantic as _pydantic  # noqa: F401
    import yaml as _yaml  # noqa: F401
except ImportError as _error:
    raise ImportError(
        f"{NAME} needs the Python packages pydantic and PyYAML where ansible-playbook runs: {_error} -- "
        f"install them for {_sys.executable}"
    ) from None
""".replace("{NAME}", NAME)


def stage(folder: Path) -> None:
    """Write the collection's files into an empty folder. Raises ValueError if roles share a plugin's name."""
    drop = shutil.ignore_patterns("__pycache__", *PLUGINS)
    shutil.copytree(ROOT / "roles", folder / "roles", ignore=drop)
    for source in SOURCES:
        shutil.copytree(ROOT / source, folder / source, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "meta"):
        copy = shutil.copytree if (ROOT / "collection" / name).is_dir() else shutil.copy
        copy(ROOT / "collection" / name, folder / name)
    shutil.copy(ROOT / "LICENSE", folder)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    text = (ROOT / "collection/galaxy.yml").read_text()
    (folder / "galaxy.yml").write_text(re.sub(r"(?m)^version: .*$", f"version: {version}", text))
    filters: set[str] = set()
    tasks: set[str] = set()
    for kind, place in PLUGINS.items():
        (folder / "plugins" / place).mkdir(parents=True)
        for path in sorted(ROOT.glob(f"roles/*/{kind}/*.py")):
            target = folder / "plugins" / place / path.name
            if target.exists():
                raise ValueError(f"two roles have a plugin {path.name}: rename one")
            target.write_text(_plugin(path, kind))
            filters |= filter_names(path) if kind == "filter_plugins" else set()
            tasks |= {path.stem} if kind in ("library", "action_plugins") else set()
    for path in [*folder.glob("roles/**/*.yml"), *folder.glob("roles/**/*.j2")]:
        path.write_text(with_full_names(path.read_text(), filters, tasks))


def _plugin(path: Path, kind: str) -> str:
    text = path.read_text()
    if kind == "filter_plugins":
        marker = "from __future__ import annotations\n"
        return text.replace(marker, f"{marker}\n{_HEAD}", 1)
    # What an action plugin reads of its role: roles/NAME/files, now two folders further up.
    return text.replace("parents[1]", f'parents[2] / "roles" / "{path.parents[1].name}"')


def filter_names(path: Path) -> set[str]:
    """Return the names of the filters in a file: the keys that FilterModule.filters returns."""
    tree = ast.parse(path.read_text())
    returns = [
        node.value
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name == "filters"
        for node in ast.walk(function)
        if isinstance(node, ast.Return)
    ]
    return {
        key.value
        for value in returns
        if isinstance(value, ast.Dict)
        for key in value.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def with_full_names(text: str, filters: set[str], tasks: set[str]) -> str:
    """Return a task file or template with the collection's name before each of its filters and modules.

    Ansible finds a collection's own modules without it; its strategy Mitogen does not.
    """
    names = "|".join(sorted(filters, key=len, reverse=True))
    text = re.sub(rf"(\|\s*(?:(?:map|select|reject)\(\s*['\"])?)({names})\b", rf"\1{NAME}.\2", text)
    return re.sub(rf"(?m)^( +)({'|'.join(sorted(tasks))}):$", rf"\1{NAME}.\2:", text)


def build(output: Path) -> Path:
    """Build the collection and return its file. Raises CalledProcessError if ansible-galaxy refuses it."""
    galaxy = Path(sys.executable).with_name("ansible-galaxy")
    with tempfile.TemporaryDirectory() as folder:
        stage(Path(folder))
        argv = [galaxy, "collection", "build", "--force", folder, "--output-path", output]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return max(output.glob("shakedown-roce-*.tar.gz"), key=lambda path: path.stat().st_mtime)


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"))

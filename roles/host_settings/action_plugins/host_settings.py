"""Adds the sources of the program and its units to the arguments of the module host_settings.

They are the same for every host. Ansible imports an action plugin before it forks a worker for each host, so
they are read once in a play, and no host's worker templates them or sends them back with its result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

_FILES = Path(__file__).resolve().parents[1] / "files"


def _texts(*patterns: str) -> dict[str, str]:
    """Text of the files below `files` that match, by name relative to it."""
    found = sorted(path for pattern in patterns for path in _FILES.glob(pattern))
    return {str(path.relative_to(_FILES)): path.read_text(encoding="utf-8") for path in found}


# Installed as they are.
PROGRAM = _texts("host-settings", "host_settings/*.py")
UNITS = {f"/etc/systemd/system/{Path(name).name}": text for name, text in _texts("systemd/*").items()}


class ActionModule(ActionBase):
    """Runs the module with what it installs."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module; the result is the module's own."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = {**self._task.args, "program": PROGRAM}
        if given["action"] == "apply":  # the units stay after a rollback, which removes files
            given["files"] = {**UNITS, **given.get("files", {})}
        result.update(self._execute_module(module_args=given, task_vars=task_vars))
        self._remove_tmp_path(self._connection._shell.tmpdir)
        return result

"""What is no YAML in an inventory's files: Ansible says so without the file or the line."""

from __future__ import annotations

from pathlib import Path

import yaml

from shakedown.intent.places import group_and_host_files
from shakedown.records.errors import BadInput

_LARGEST = 4 << 20  # bytes; what is larger is Ansible's own matter


def refuse_no_yaml(inventory: Path) -> None:
    """Refuse the first of an inventory's files that is no YAML; nothing if there is none.

    Raises:
        BadInput: naming file and line.
    """
    own = sorted(inventory.glob("*.y*ml")) if inventory.is_dir() else [inventory]
    for file in (*own, *group_and_host_files(inventory)):
        if file.suffix not in (".yml", ".yaml"):
            continue  # an INI, or a program
        try:
            if file.stat().st_size <= _LARGEST:
                yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise BadInput(
                f"is no YAML: {error.problem or error.context}",
                fix="mend that line, or the one above it",
                file=file,
                line=mark.line + 1 if mark else None,
            ) from None
        except (OSError, ValueError, RecursionError, yaml.YAMLError):
            continue

"""Where a key of an inventory stands. Ansible merges files without a trace, so they are searched again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path

from shakedown.records.yaml_lines import key_lines

_VARIABLES = ("group_vars", "host_vars")


def find(inventory: Path, key: Sequence[Hashable], host: str | None = None) -> tuple[Path, int] | None:
    """Return file and line of a key, or of the nearest one above it that is written down.

    Args:
        inventory: the inventory's folder or file.
        key: the path from the variable on, such as ("fabric", "roce", "dscp").
        host: whose value it is, where hosts may differ.
    """
    best: tuple[tuple[int, bool, int], Path, int] | None = None
    for file in variable_files(inventory):
        named = host is not None and host in (file.stem, file.parent.name)
        for at, line in key_lines(file):
            depth = _matches(at, key)
            # A deeper key says more; then the host's own place; then a file of its own over a list of hosts.
            rank = (depth, named or (host is not None and host in at), -len(at))
            if depth and (best is None or rank > best[0]):
                best = (rank, file, line)
    return best and (best[1], best[2])


def _matches(at: Sequence[Hashable], key: Sequence[Hashable]) -> int:
    """Return how many parts of `key`, from its first, this path ends with."""
    for depth in range(min(len(key), len(at)), 0, -1):
        if tuple(at[-depth:]) == tuple(key[:depth]):
            return depth
    return 0


def variable_files(inventory: Path) -> Iterator[Path]:
    """Yield the YAML files of an inventory: its hosts, and what lies under group_vars and host_vars."""
    folder = inventory if inventory.is_dir() else inventory.parent
    beside = sorted(folder.iterdir()) if inventory.is_dir() else [inventory]
    for file in beside:
        if file.suffix in (".yml", ".yaml") and file.is_file():
            yield file
    yield from group_and_host_files(inventory)


def group_and_host_files(inventory: Path) -> Iterator[Path]:
    """Yield the YAML files under group_vars and host_vars."""
    folder = inventory if inventory.is_dir() else inventory.parent
    for name in _VARIABLES:
        for file in sorted((folder / name).rglob("*")):
            if file.suffix in (".yml", ".yaml", "") and file.is_file():
                yield file

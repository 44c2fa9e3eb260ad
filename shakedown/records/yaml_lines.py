"""YAML with the line of each value, from PyYAML's safe node tree; no object is ever constructed.

libyaml reads it where PyYAML was built with it: ten times faster, and a shipped profile has 2,000 lines.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import yaml

from shakedown.records.errors import BadInput

MAX_BYTES = 4 * 2**20
MAX_DEPTH = 12

_Loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader

# The path of a value, such as ("references", 3, "rows", 0, "value"), and the line of each.
At = tuple[Hashable, ...]
Lines = dict[At, int]


def key_lines(path: Path) -> Iterator[tuple[At, int]]:
    """Yield the path of every key and list entry of a file that may use all of YAML, and its line.

    What stands behind an alias is named where it was written. A file that is not YAML, or too large, or
    encrypted, has no keys.
    """
    loader = None
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            return
        text = data.decode()
        if _too_deep(text, 2 * MAX_DEPTH) is not None:
            return
        loader = _Loader(text)
        node = loader.get_single_node()
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError):
        return
    finally:
        if loader is not None:
            loader.dispose()
    if node is not None:
        yield from _keys(node, (), set())


def _too_deep(text: str, limit: int) -> int | None:
    """Return the first line that is nested deeper than that: composing it would exhaust the stack."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > limit:
            assert event.start_mark is not None
            return event.start_mark.line + 1
    return None


def _keys(node: yaml.Node, at: At, seen: set[int]) -> Iterator[tuple[At, int]]:
    if id(node) in seen or len(at) > 2 * MAX_DEPTH:
        return
    seen.add(id(node))
    children: list[tuple[At, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        children = [((*at, key.value), key, value) for key, value in node.value if isinstance(key.value, str)]
    elif isinstance(node, yaml.SequenceNode):
        children = [((*at, number), value, value) for number, value in enumerate(node.value)]
    for here, marked, value in children:
        yield here, marked.start_mark.line + 1
        yield from _keys(value, here, seen)


def parse_strict(path: Path) -> tuple[Any, Lines]:
    """Return a file's plain data and the line of each value.

    Raises:
        BadInput: it is not YAML of mappings, lists and plain values, or uses anchors, tags or a key twice.
    """
    data = path.read_bytes()
    if len(data) > MAX_BYTES:
        raise BadInput(f"{len(data)} bytes are too many", fix=f"keep it below {MAX_BYTES}", file=path)
    loader = None
    try:
        text = data.decode()
        if (line := _too_deep(text, MAX_DEPTH)) is not None:
            raise BadInput("nested too deep", fix="write it flatter", file=path, line=line)
        loader = _Loader(text)
        node = loader.get_single_node()
        tree = _Tree(loader, path)
        return (None if node is None else tree.plain(node, ())), tree.lines
    except UnicodeDecodeError as error:
        raise BadInput("not UTF-8 text", fix="save it as UTF-8", file=path) from error
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or error
        raise BadInput(
            f"not YAML: {problem}",
            fix="check it with yamllint",
            file=path,
            line=min(mark.line + 1, data.count(b"\n") + 1) if mark else None,
        ) from error
    finally:
        if loader is not None:
            loader.dispose()


class _Tree:
    """Turns nodes into dicts, lists and scalars; refuses what could hide or multiply something."""

    def __init__(self, loader: yaml.SafeLoader | yaml.CSafeLoader, path: Path) -> None:
        self.loader, self.path = loader, path
        self.lines: Lines = {}
        self.seen: set[int] = set()

    def plain(self, node: yaml.Node, at: At) -> Any:  # noqa: ANN401
        line = node.start_mark.line + 1
        if id(node) in self.seen:
            raise BadInput(
                "anchors and aliases are not allowed", fix="write it out", file=self.path, line=line
            )
        if at in self.lines:
            raise BadInput(f"{at[-1]!r} is given twice", fix="say it once", file=self.path, line=line)
        self.seen.add(id(node))
        self.lines[at] = line
        if isinstance(node, yaml.ScalarNode):
            return self.loader.construct_object(node)
        if node.tag not in ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            raise BadInput(f"tag {node.tag} is not allowed", fix="remove it", file=self.path, line=line)
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(child, (*at, i)) for i, child in enumerate(node.value)]
        assert isinstance(node, yaml.MappingNode)
        result = {}
        for key_node, value_node in node.value:
            key = self.loader.construct_object(key_node)
            if not isinstance(key, str):
                raise BadInput(f"key {key!r} is not text", fix="quote it", file=self.path, line=line)
            result[key] = self.plain(value_node, (*at, key))
        return result

"""Where in the inventory's files a value stands, and a refusal that names the place."""

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from stat import S_ISREG
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from shakedown.intent.rules import Contradiction, Problem
from shakedown.records.base import words_of
from shakedown.records.reading import UNKNOWN, BadInput, nearest, walk

# YAML with the line of each value, from PyYAML's safe node tree; no object is ever constructed.
#
# libyaml reads it where PyYAML was built with it: ten times faster, and a shipped profile has 2,000 lines.

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
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES or _too_deep(text := data.decode(), 2 * MAX_DEPTH) is not None:
            return
        node = yaml.compose(text, Loader=_Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError):
        return
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

    Raises OSError, and BadInput: it is no plain file, not YAML of mappings, lists and plain values, or uses
    anchors, tags or a key twice.
    """
    if not S_ISREG((found := path.stat()).st_mode):  # a pipe never ends
        raise BadInput("is no plain file", fix="give a file of YAML", file=path)
    if found.st_size > MAX_BYTES:
        raise BadInput(f"{found.st_size} bytes are too many", fix=f"keep it below {MAX_BYTES}", file=path)
    data, loader = path.read_bytes(), None
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


# Where a key of an inventory stands. Ansible merges files without a trace, so they are searched again.

_VARIABLES = ("group_vars", "host_vars")


def find(
    inventory: Path,  # the inventory's folder or file
    key: Sequence[Hashable],  # the path from the variable on, such as ("fabric", "roce", "dscp")
    host: str | None = None,  # whose value it is, where hosts may differ
) -> tuple[Path, int] | None:
    """Return file and line of a key, or of the nearest one above it that is written down."""
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


def refuse_odd_files(inventory: Path) -> None:
    """Refuse what is no plain file where one is read: a pipe never ends. A link to a plain file is one.

    What is hidden is nobody's to read, here and for Ansible.
    """
    beside = () if inventory.is_dir() else (inventory.parent / name for name in _VARIABLES)
    found, seen = [inventory, *(one for one in beside if one.exists())], set[Path]()
    while found:
        path = found.pop()
        if path.is_dir() and (path == inventory or path.suffix not in (".yml", ".yaml")):
            if path.resolve() not in seen:
                seen.add(path.resolve())
                found += (one for one in path.iterdir() if one.name[0] != ".")
        elif not path.is_file():
            raise BadInput("is no plain file", fix="take it out of the site's folder", file=path)


_LARGEST = 4 << 20  # bytes; what is larger is Ansible's own matter
_LARGEST_FILE = 64 << 20  # bytes: hosts of 4,096 nodes with all their NICs are a few
_MOST_MERGED = 100_000  # nodes of a document, once what stands behind its aliases is written out


def refuse_bombs(inventory: Path) -> None:
    """Refuse a file that only exhausts memory or time: far too large, or with aliases of aliases.

    YAML shares what stands behind an alias; a merge (`<<`), and Ansible's templates, copy it on each level.
    """
    for file in variable_files(inventory):
        if file.stat().st_size > _LARGEST_FILE:
            what = f"is larger than {_LARGEST_FILE} bytes"
            raise BadInput(what, fix="it is no file of an inventory: remove it", file=file)
        data = file.read_bytes()
        if b"*" in data and b"&" in data and (line := _line_of_a_bomb(data)):
            what = f"its merges and aliases are more than {_MOST_MERGED} values when written out"
            raise BadInput(
                what, fix="write out what is meant, without aliases of aliases", file=file, line=line
            )


def _line_of_a_bomb(data: bytes) -> int | None:
    """Return the line at which a document is too large once aliases are written out; None if it never is."""
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = []
    total = 0
    try:
        for event in yaml.parse(data, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent):
                total += sizes.get(event.anchor or "", 1)
            elif isinstance(event, yaml.NodeEvent):
                total += 1
                if isinstance(event, yaml.CollectionStartEvent):
                    open_.append((event.anchor, total))
                elif event.anchor:
                    sizes[event.anchor] = 1
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, begin = open_.pop()
                if anchor:
                    sizes[anchor] = total - begin + 1
            if total - len(data) > _MOST_MERGED:  # no document has more values of its own than bytes
                assert event.start_mark is not None
                return event.start_mark.line + 1
    except (yaml.YAMLError, ValueError):
        return None  # Ansible says what is wrong
    return None


def refuse_no_yaml(inventory: Path) -> None:
    """Refuse the first of an inventory's files that is no YAML; nothing if there is none.

    Raises BadInput: naming file and line.
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


# A plain value that YAML 1.1 takes for a date, and that may not be one (31 February).
_DATE = re.compile(r"(?<![\w\"'-])(\d{4})-(\d\d?)-(\d\d?)(?![\w\"'-])")


def refuse_impossible_date(inventory: Path) -> None:
    """Refuse the first day of an inventory's files that there is not; nothing if there is none.

    Raises BadInput: naming file and line.
    """
    for file in group_and_host_files(inventory):
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for number, line in enumerate(lines, start=1):
            for match in _DATE.finditer(line.partition("#")[0]):
                try:
                    date(*map(int, match.groups()))
                except ValueError as error:
                    raise BadInput(
                        f"{match[0]} is no day: {error}",
                        fix="write one that there is",
                        file=file,
                        line=number,
                    ) from None


# What a person reads of a value of another kind; pydantic's own words are Python's.
_KEYS = "must be keys with values (KEY: VALUE)"
_WORDS = {
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": _KEYS,
    "model_type": _KEYS,
    "model_attributes_type": _KEYS,
    "string_type": "must be one text",
    "bool_type": "must be true or false",
    "too_short": "must not be empty",
}
_MOST = 5  # enough to mend an inventory by; the rest shows when these are gone


def refuse(found: Sequence[tuple[str | None, Problem]], inventory: Path) -> BadInput:
    """Return the refusal of an inventory: (host or None, problem) each, at least one.

    What several hosts have in common is said once, with their names. File and line are the first one's.
    """
    hosts: dict[Problem, list[str]] = {}
    same: dict[tuple[str, str], Problem] = {}
    for host, problem in found:
        first = same.setdefault((problem.what, problem.fix), problem)
        hosts.setdefault(first, []).extend([host] if host and host not in hosts.get(first, []) else [])
    said = []
    for problem, names in hosts.items():
        text = f"{span(names)}: {problem}" if names else str(problem)
        other = find(inventory, problem.other) if problem.other and inventory.exists() else None
        said.append(f"{text} (the other place: {other[0].name}:{other[1]})" if other else text)
    first, names = next(iter(hosts.items()))
    place = find(inventory, first.key, names[0] if names else None) if inventory.exists() else None
    more = f"; and {len(said) - _MOST} more" if len(said) > _MOST else ""
    file, line = place or (inventory, None)
    return BadInput("; ".join(said[:_MOST]) + more, file=file, line=line)


def span(names: Iterable[str]) -> str:
    """Return names in short: `n1..n8, login`; names whose last number runs on are drawn together."""
    runs: list[list[str]] = []
    for name in names:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(f"{run[0]}..{run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def _follows(one: str, other: str) -> bool:
    a, b = (re.fullmatch(r"(.*?)(\d{1,9})", name) for name in (one, other))
    return a is not None and b is not None and a[1] == b[1] and int(a[2]) + 1 == int(b[2])


_GROUP = re.compile(r"[^,\[\]]*(?:\[[0-9,-]+\][^,\[\]]*)?")
# Slurm's own limit of one expression is of this order; a typing error must not fill the memory.
_MOST_NAMES = 65_536


def expanded(text: str, what: str) -> Iterator[str]:
    """Yield the names of one expression, such as `gpu[001-003,007],n1`; `what` is where it stands.

    Raises BadInput.
    """
    groups, at = [], 0
    while at <= len(text):
        found = _GROUP.match(text, at)
        assert found is not None  # the pattern matches the empty text
        groups.append(found[0])
        if found.end() < len(text) and text[found.end()] != ",":
            raise BadInput(f"{what} {text[:80]!r} cannot be read", fix="write gpu[001-003,007] or n1,n2")
        at = found.end() + 1
    for group in groups:
        head, _, rest = group.partition("[")
        inside, _, tail = rest.partition("]")
        if not head:
            raise BadInput(f"{what} {text[:80]!r} has an empty name", fix="write gpu[001-003,007] or n1,n2")
        if not inside:
            yield head
            continue
        for span in inside.split(","):
            first, dash, last = span.partition("-")
            last = last if dash else first
            if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
                raise BadInput(f"{what}: {span[:40]!r} in {text[:80]!r} is no range", fix="write 001-003")
            if int(last) - int(first) >= _MOST_NAMES:
                raise BadInput(f"{what}: {span[:40]!r} names too many nodes", fix="write 001-003")
            width = len(first)
            yield from (f"{head}{n:0{width}d}{tail}" for n in range(int(first), int(last) + 1))


def problems_of(error: ValidationError, model: type[BaseModel], at: tuple[str, ...]) -> list[Problem]:
    """Return what a model refused, in words: unknown keys with the nearest known one first.

    `at` is the path of the model's own variable. A key that is missing because it is misspelt is said once.
    """
    unknown: list[Problem] = []
    others: list[Problem] = []
    instead: set[tuple[str | int, ...]] = set()
    for detail in error.errors(include_url=False):
        loc = detail["loc"]
        if detail["type"] in UNKNOWN:
            path, known = walk(model, loc[:-1])
            near = nearest(str(loc[-1]), known)
            instead.update([(*loc[:-1], near)] if near else [])
            what = f"{_dotted((*at, *path))}: unknown key {str(loc[-1])[:80]!r}"
            unknown.append(Problem((*at, *loc), what, f"use {near}" if near else "take it out"))
    unions = {d["loc"][:n] for d in error.errors(include_url=False) for n in range(1, len(d["loc"]) - 1)}
    for detail in error.errors(include_url=False):
        loc = detail["loc"]
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, Contradiction):
            others += cause.problems
        elif detail["type"] == "missing" and loc not in instead:
            others.append(Problem((*at, *loc), f"{_dotted((*at, *loc))} is missing", "add it"))
        elif detail["type"] not in ("missing", *UNKNOWN):
            if (
                detail["type"] == "literal_error"
                and loc[:-1] in unions
                and str(loc[-1]).startswith("literal[")
            ):
                continue  # the word instead of a block that is there, and is wrong inside
            text = _WORDS.get(detail["type"]) or words_of(detail)
            given = detail["input"]
            value = f" {given!r:.80}" if isinstance(given, str | int | float | None) else ""
            # Without pydantic's own marks, which no file holds.
            place = _dotted((*at, *walk(model, loc)[0]))
            named = f"{place}{value}: " if place else ""  # of the whole site, not of one key
            others.append(Problem((*at, *loc), f"{named}{text}", "correct it"))
    return [*unknown, *others]


def _dotted(path: Sequence[str | int]) -> str:
    return ".".join(str(part)[:80] for part in path)

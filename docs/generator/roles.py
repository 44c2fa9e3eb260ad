"""The README of every role, from its argument specification, defaults and read-back; and their list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from generator.text import code, made, sentence, table

_HEAD = ("variable", "type", "required", "default", "description")
_INCLUDES = ("include_role", "import_role", "ansible.builtin.include_role", "ansible.builtin.import_role")
# More numbers in a row than this are shown as a range.
_FEW = 3
# Which playbook is the example where several use a role.
_PLAYBOOKS = ("site.yml", "acceptance.yml", "nightly.yml")


def pages(root: Path) -> dict[str, str]:
    """Return the README of every role and the list of them."""
    roles = sorted(path.parents[1] for path in root.glob("roles/*/meta/argument_specs.yml"))
    users = _users(root)
    made_pages = {f"roles/{role.name}/README.md": _readme(role, users.get(role.name, [])) for role in roles}
    rows = [(f"[{role.name}](../../roles/{role.name}/README.md)", _short(_specs(role))) for role in roles]
    index = [made("roles/*/meta/argument_specs.yml"), "# The roles\n"]
    index += ["Each is a page of its own: variables, read-back, and the play that uses it.\n"]
    return {**made_pages, "docs/reference/roles.md": "\n".join([*index, table(("role", ""), rows)])}


def _readme(role: Path, users: list[str]) -> str:
    specs, defaults = _specs(role), _defaults(role)
    parts = [made("this role's meta, defaults and tasks"), f"# {role.name}\n", sentence(_short(specs)) + "\n"]
    shown: list[Any] = []
    for spec in specs.values():
        options = spec.get("options", {})
        if options and options in shown:
            continue  # rollback takes what main takes
        shown.append(options)
        same = [name for name, other in specs.items() if other.get("options", {}) == options]
        parts.append(f"## Variables of {', '.join(code(f'{name}.yml') for name in same)}\n")
        if spec["short_description"] != _short(specs):
            parts.append(sentence(spec["short_description"]) + "\n")
        parts.append(table(_HEAD, _rows(options, defaults)) if options else "None.\n")
    parts += ["## What it reads back\n", _read_back(role), "## Example\n", _example(role.name, specs, users)]
    return "\n".join(parts)


def _specs(role: Path) -> dict[str, Any]:
    specs: dict[str, Any] = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    return specs


def _short(specs: dict[str, Any]) -> str:
    return str(next(iter(specs.values()))["short_description"])


def _defaults(role: Path) -> dict[str, Any]:
    file = role / "defaults/main.yml"
    return (yaml.safe_load(file.read_text()) or {}) if file.is_file() else {}


def _rows(options: dict[str, Any], defaults: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, ...]]:
    for name, option in options.items():
        default = option.get("default", defaults.get(name) if not prefix else None)
        shown = "" if default is None else code(_value(default))
        required = "yes" if option.get("required") else "no"
        yield code(prefix + name), _type(option), required, shown, sentence(option.get("description", ""))
        step = "[]." if option.get("type") == "list" else "."
        yield from _rows(option.get("options", {}), {}, f"{prefix}{name}{step}")


def _value(default: object) -> str:
    return default if isinstance(default, str) else json.dumps(default, ensure_ascii=False)


def _type(option: dict[str, Any]) -> str:
    kind = f"list of {option['elements']}" if "elements" in option else str(option.get("type", "str"))
    choices = option.get("choices", [])
    numbers = all(type(choice) is int for choice in choices)
    if numbers and len(choices) > _FEW and choices == list(range(choices[0], choices[-1] + 1)):
        return f"{kind}, {choices[0]} to {choices[-1]}"
    return f"{kind}: {', '.join(code(str(choice)) for choice in choices)}" if choices else kind


def _tasks(value: object) -> Iterator[dict[str, Any]]:
    """Yield every task of a document, those in blocks as well."""
    for part in value if isinstance(value, list) else []:
        if isinstance(part, dict):
            yield part
            for key in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "roles"):
                yield from _tasks(part.get(key))


def _read_back(role: Path) -> str:
    file = role / "tasks/verify.yml"
    if file.is_file():
        text = file.read_text()
        names = [task["name"] for task in _tasks(yaml.safe_load(text)) if "name" in task]
        head = re.match(r"(?:# .*\n)+", text)
        said = " ".join(line.lstrip("# ") for line in head[0].splitlines()) + "\n\n" if head else ""
        return f"{said}`tasks/verify.yml`:\n\n" + "".join(f"- {name}\n" for name in names)
    delegated = set()
    for tasks in sorted(role.glob("tasks/*.yml")):
        for task in _tasks(yaml.safe_load(tasks.read_text())):
            called = next((task[key] for key in _INCLUDES if key in task), None)
            if isinstance(called, dict) and called.get("tasks_from") == "verify":
                delegated.add(called["name"])
    if delegated:
        links = ", ".join(f"[{name}](../{name}/README.md)" for name in sorted(delegated))
        return f"Every setting, through {links}.\n"
    return "Nothing of its own.\n"


def _users(root: Path) -> dict[str, list[str]]:
    """Return which playbooks name each role, with the tags of the play."""
    found: dict[str, list[str]] = {}
    files = sorted(root.glob("playbooks/*.yml"), key=lambda file: (file.name not in _PLAYBOOKS, file.name))
    for file in sorted(files, key=lambda file: file.name != _PLAYBOOKS[0]):
        for play in yaml.safe_load(file.read_text()) or []:
            tags = [tag for tag in play.get("tags", []) if tag != "always"]
            run = f"ansible-playbook -i inventories/SITE {file.relative_to(root)}"
            command = f"{run} --tags {','.join(tags)}" if tags else run
            for task in _tasks([play]):
                called = next((task[key] for key in _INCLUDES if key in task), task)
                name = called.get("role") or called.get("name") if isinstance(called, dict) else None
                if (called is not task or "role" in task) and command not in found.setdefault(str(name), []):
                    found[str(name)].append(command)
            for name in play.get("roles", []):
                if isinstance(name, str) and command not in found.setdefault(name, []):
                    found[name].append(command)
    return found


def _example(name: str, specs: dict[str, Any], users: list[str]) -> str:
    lines = [f"```\n{users[0]}\n```\n"] if users else []
    entry = next(iter(specs))
    needed = [key for key, option in specs[entry].get("options", {}).items() if option.get("required")]
    task = [f"- name: {name}", "  ansible.builtin.include_role:", f"    name: {name}"]
    task += [f"    tasks_from: {entry}"] if entry != "main" else []
    task += [f"  # needs {', '.join(needed)}"] if needed else []
    return "\n".join([*lines, "```yaml", *task, "```", ""])

"""Fields of models: path, type, default and meaning, read from pydantic and from the comments beside them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import json
import re
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

from generator.text import sentence
from pydantic import BaseModel, TypeAdapter

Model = type[Any]
_BOUNDS = {"minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}", "exclusiveMaximum": "< {}"}
_TYPES = {"integer": "whole number", "number": "number", "string": "text", "boolean": "yes or no"}
# The tools' own instructions in comments, which say nothing to the reader.
_NOT_PROSE = re.compile(r"\s*\b(?:noqa|type: ignore|pragma)\b.*", re.DOTALL)


@dataclass(frozen=True)
class Row:
    """One key."""

    path: str
    type: str
    default: str
    meaning: str


def rows(model: Model, prefix: str = "") -> Iterator[Row]:
    """Yield every key of a model and of the models in it, in the order of the source."""
    schema = TypeAdapter(model).json_schema(by_alias=True)
    definitions = schema.get("$defs", {})
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    required = set(schema.get("required", []))
    for name, annotation, description in _fields(model):
        part = schema["properties"][name]
        found = inner_models(annotation)
        inner = found[0] if len(found) == 1 else None
        path = f"{prefix}{name}"
        meaning = sentence(description) or (first_paragraph(inner) if inner else "")
        default = "required" if name in required else _default(part)
        yield Row(path, _type(part, definitions), default, meaning)
        if inner is not None:
            yield from rows(inner, f"{path}{_step(part)}.")


def first_paragraph(model: Model) -> str:
    """Return the first paragraph of a class's docstring, on one line."""
    return " ".join((inspect.getdoc(model) or "").split("\n\n")[0].split())


def inner_models(annotation: object) -> list[Model]:
    """Return the models that an annotation holds, in whatever list or alternative."""
    if isinstance(annotation, type) and (
        issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation)
    ):
        return [annotation]
    # The origin's own arguments; those of Annotated hold the constraints as well, which are no types.
    return list(dict.fromkeys(model for part in get_args(annotation) for model in inner_models(part)))


def _fields(model: Model) -> Iterator[tuple[str, Any, str]]:
    """Yield name as written in a file, annotation and description of each field."""
    comments = _comments(model)
    if dataclasses.is_dataclass(model):
        hints = inspect.get_annotations(model, eval_str=True)
        for field in dataclasses.fields(model):
            yield field.name, hints[field.name], comments.get(field.name, "")
        return
    for name, info in model.model_fields.items():
        yield info.alias or name, info.annotation, info.description or comments.get(name, "")


def _comments(model: Model) -> dict[str, str]:
    """Return what the source says of each field: a comment at its end, or the lines right above it."""
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if owner is object or owner is BaseModel:
            continue
        try:
            source = textwrap.dedent(inspect.getsource(owner))
        except (OSError, TypeError):
            continue
        by_line: dict[int, tuple[str, bool]] = {}
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                text = _NOT_PROSE.sub("", token.string.lstrip("#").strip())
                by_line[token.start[0]] = (text, token.line.strip().startswith("#"))
        (definition,) = ast.parse(source).body
        assert isinstance(definition, ast.ClassDef)
        for statement in definition.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                found[statement.target.id] = _beside(statement, by_line)
    return found


def _beside(statement: ast.AnnAssign, by_line: dict[int, tuple[str, bool]]) -> str:
    above: list[str] = []
    line = statement.lineno - 1
    while by_line.get(line, ("", False))[1]:
        above.insert(0, by_line[line][0])
        line -= 1
    end = statement.end_lineno or statement.lineno
    within = [by_line[n][0] for n in range(statement.lineno, end + 1) if n in by_line]
    return " ".join(filter(None, [*above, *within]))


def _step(part: dict[str, Any]) -> str:
    """Return what stands between a key and those below it: `[]` for each element, `.NAME` for each name."""
    kinds = {one.get("type") for one in (part, *part.get("anyOf", ()))}
    named = _named(part) is not None
    return "[]" if "array" in kinds else ".NAME" if named else ""


def _named(part: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the values of a mapping with free names are, or None if it is no such mapping."""
    if part.get("type") != "object":
        return None
    values = next(iter(part.get("patternProperties", {}).values()), part.get("additionalProperties"))
    return values if isinstance(values, dict) else None


def _default(part: dict[str, Any]) -> str:
    if part.get("default") in (None, {}, []):
        return "none"
    value = part["default"]
    if isinstance(value, dict):
        return "as below"
    return f"`{value}`" if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


Part = dict[str, Any]


def _type(part: Part, definitions: Part) -> str:
    """Return a JSON schema in words."""
    for keyword, words in _FORMS.items():
        if keyword in part:
            return words(part, definitions)
    return _COMPOUND.get(part.get("type", ""), _plain)(part, definitions)


def _reference(part: Part, definitions: Part) -> str:
    target = definitions[part["$ref"].rpartition("/")[2]]
    return "keys below" if target.get("type") == "object" else _type(target, definitions)


def _either(part: Part, definitions: Part) -> str:
    either = part.get("anyOf") or part["oneOf"]
    kinds = [_type(one, definitions) for one in either if one.get("type") != "null"]
    return " or ".join(dict.fromkeys(kinds))


def _list(part: Part, definitions: Part) -> str:
    if "prefixItems" in part:
        return "list of " + ", ".join(_type(one, definitions) for one in part["prefixItems"])
    return f"list of {_type(part['items'], definitions)}" if part.get("items") else "empty list"


def _mapping(part: Part, definitions: Part) -> str:
    values = _named(part)
    return f"{_type(values, definitions)} by name" if values else "keys and values"


def _plain(part: Part, _: Part) -> str:
    limits = [form.format(part[bound]) for bound, form in _BOUNDS.items() if bound in part]
    limits += [f"multiple of {part['multipleOf']}"] if "multipleOf" in part else []
    return " ".join([_TYPES.get(part.get("type", ""), "anything"), ", ".join(limits)]).strip()


def _choice(values: list[Any]) -> str:
    return ", ".join(f"`{value if isinstance(value, str) else json.dumps(value)}`" for value in values)


_FORMS: dict[str, Callable[[Part, Part], str]] = {
    "$ref": _reference,
    "anyOf": _either,
    # Those that a key tells apart are the formulas of ceilings.
    "oneOf": lambda part, found: "formula" if "discriminator" in part else _either(part, found),
    "const": lambda part, _: _choice([part["const"]]),
    "enum": lambda part, _: _choice(part["enum"]),
}
_COMPOUND = {"array": _list, "object": _mapping}

"""Typed access to the fields of a mesh specification. Standard library only, like its user."""

from __future__ import annotations

import re
from typing import NoReturn

from shakedown.records.errors import BadInput

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")


class FieldReader:
    """Typed access to outside data; whatever does not fit is refused with the field's name."""

    def __init__(self, file: str | None) -> None:
        self.file = file

    def refuse(self, where: str, value: object, fix: str) -> NoReturn:
        """Raise the refusal of one value."""
        raise BadInput(f"{where}: {str(value)[:80]!r} cannot be used", fix=fix, file=self.file)

    def table(
        self, value: object, where: str, required: tuple[str, ...], optional: dict[str, object]
    ) -> dict[str, object]:
        """Return an object with exactly these fields."""
        if not isinstance(value, dict):
            raise BadInput(f"{where} is not an object", fix="write a JSON object", file=self.file)
        unknown = sorted(str(k) for k in value if k not in required and k not in optional)
        missing = [k for k in required if k not in value]
        if unknown or missing:
            wrong = f"unknown {unknown[0]!r}" if unknown else f"{missing[0]!r} is missing"
            known = ", ".join((*required, *optional))
            raise BadInput(f"{where}: {wrong}", fix=f"fields are {known}", file=self.file)
        return {**optional, **value}

    def mapping(self, value: object, where: str) -> dict[str, object]:
        """Return an object whose keys are names."""
        if not isinstance(value, dict) or not value:
            raise BadInput(f"{where}: no entries", fix="write a JSON object", file=self.file)
        for key in value:
            if not _NAME.match(str(key)):
                self.refuse(where, key, "names have letters, digits, '.', '_' and '-', at most 63")
        return value

    def items(self, value: object, where: str) -> list[object]:
        """Return a list that is not empty."""
        if not isinstance(value, list) or not value:
            raise BadInput(f"{where}: not a list with entries", fix="write a JSON list", file=self.file)
        return value

    def name(self, value: object, where: str) -> str:
        """Return a name."""
        if not isinstance(value, str) or not _NAME.match(value):
            self.refuse(where, value, "names have letters, digits, '.', '_' and '-', at most 63")
        return value

    def choices(self, value: object, where: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
        """Return some of `allowed`, each at most once."""
        chosen = self.items(value, where)
        for item in chosen:
            if item not in allowed or chosen.count(item) > 1:
                self.refuse(where, item, f"use each of {', '.join(allowed)} at most once")
        return tuple(str(item) for item in chosen)

    def integer(self, value: object, where: str, low: int, high: int) -> int:
        """Return a whole number within bounds."""
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.refuse(where, value, f"use a whole number from {low} to {high}")
        return value

    def seconds(self, value: object, where: str) -> float:
        """Return a time."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86400:
            self.refuse(where, value, "use seconds, more than 0 and at most 86400")
        return float(value)

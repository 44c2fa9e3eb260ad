"""Settings, and the changes that bring what is found to what is wanted. Pure: no input, no output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Union

Value = Any  # what JSON can hold; None means "not there"


@dataclass(frozen=True)
class Run:
    """Run a program."""

    argv: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.argv)


@dataclass(frozen=True)
class Write:
    """Write an attribute of sysfs, procfs or debugfs."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"write {self.path} {self.text}"


@dataclass(frozen=True)
class ConfigfsWrite:
    """Write attributes of a configfs item that exists only while its folder is held."""

    folder: str
    attributes: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"write {self.folder} " + " ".join(f"{name}={text!r}" for name, text in self.attributes)


@dataclass(frozen=True)
class WriteFile:
    """Replace a file as a whole (None: remove it)."""

    path: str
    text: str | None

    def __str__(self) -> str:
        return f"{'remove' if self.text is None else 'write'} {self.path}"


Action = Union[Run, Write, ConfigfsWrite, WriteFile]


@dataclass(frozen=True)
class Setting:
    """One value with its place in the read-back.

    `actions` gives the actions that bring it to a value. It is None for a consequence of other settings or
    of the machine, which is compared but cannot be set here. `interrupts` says what a change stops for a
    while, `hint` why a change may be refused.
    """

    key: str
    found: Value
    wanted: Value
    actions: Callable[[Value], tuple[Action, ...]] | None = None
    interrupts: str = ""
    hint: str = ""

    @property
    def ok(self) -> bool:
        """Whether found and wanted are the same."""
        return bool(self.found == self.wanted)


def attribute_writer(path: str) -> Callable[[Value], tuple[Action, ...]]:
    """The `actions` of a setting that is one attribute file; None (it was not there) writes nothing."""
    return lambda value: () if value is None else (Write(path, str(value)),)


@dataclass(frozen=True)
class NotApplicable:
    """A setting that this NIC does not have, and why."""

    key: str
    reason: str


@dataclass(frozen=True)
class Change:
    """A setting to be changed, and how."""

    key: str
    found: Value
    wanted: Value
    actions: tuple[Action, ...]
    interrupts: str
    hint: str


Item = Union[Setting, NotApplicable]


def settings_of(items: Iterable[Item]) -> list[Setting]:
    """The comparable settings among the items."""
    return [item for item in items if isinstance(item, Setting)]


def changes_to_apply(items: Iterable[Item]) -> list[Change]:
    """The changes from found to wanted, in the order of the items."""
    return [
        Change(s.key, s.found, s.wanted, s.actions(s.wanted), s.interrupts, s.hint)
        for s in settings_of(items)
        if s.actions is not None and not s.ok
    ]


def changes_to_restore(items: Iterable[Item], before: Mapping[str, Value]) -> list[Change]:
    """The changes from found to what was recorded before, in reverse order."""
    return [
        Change(s.key, s.found, before[s.key], s.actions(before[s.key]), s.interrupts, s.hint)
        for s in reversed(settings_of(items))
        if s.actions is not None and s.key in before and s.found != before[s.key]
    ]

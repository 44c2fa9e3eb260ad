"""What a config job is ordered to read back."""

from __future__ import annotations

from typing import Any

from shakedown.records.base import Record


class SettingsOrder(Record):
    """By node: its targets with the rail of each, and what each target must show, by setting."""

    targets: dict[str, dict[str, str | None]]
    expect: dict[str, dict[str, dict[str, Any]]]

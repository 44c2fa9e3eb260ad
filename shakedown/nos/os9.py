"""Dell OS9: configured, and read back as text against what was wanted. Nothing more is understood of it."""

from __future__ import annotations

from shakedown.nos.system import SwitchSystem

SYSTEM = SwitchSystem(
    name="os9",
    tells=frozenset(),
    lossless_limit=2,  # a dcb-map takes two
)

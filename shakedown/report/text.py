"""Numbers, sizes, series and outside text as a reader wants them. Everything shown passes through `inert`."""

import math
import re
import unicodedata
from collections.abc import Sequence

from shakedown.records import wording
from shakedown.records.base import Params

size = wording.size  # sizes read alike in pages and in sentences
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
# Format characters (Cf) reorder or hide text: a name must not read otherwise than it is.
_REVEALED = {"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"}


def inert(text: str) -> str:
    """Return text whose every character is visible: terminal escapes go, control and bidi marks are spelled.

    Line feeds and tabs stay. Escaping for HTML, XML or Markdown is the renderer's task.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return "".join(
        f"\\u{ord(c):04x}" if c not in "\n\t" and unicodedata.category(c) in _REVEALED else c for c in text
    )


def unit(name: str) -> str:
    """Return a unit as it stands behind a number: nothing for a plain count, whose unit is 1."""
    return "" if name == "1" else name


def number(value: float | None) -> str:
    """Return a number at the four significant digits that a measurement supports; an en dash for none."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    if abs(value) < 0.01:
        return f"{value:.4g}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def whole(value: int | None) -> str:
    """Return a whole number with all its digits; an en dash for none."""
    return "–" if value is None else f"{value:,}"


def percent(part: float | None, whole: float | None) -> str:
    """Return part of whole in percent, never rounded up to 100 when it is less."""
    if part is None or not whole or not math.isfinite(part):
        return "–"
    ratio = 100 * part / whole
    shown = f"{ratio:.1f}"
    if shown == "100.0" and ratio < 100:
        shown = "99.9"
    elif ratio >= 1000:
        shown = f"{ratio:,.0f}"
    return f"{shown} %"


def params(values: Params) -> str:
    """Return parameters as `qps=4, size 64 KiB`, sorted by name."""
    parts = []
    for name in sorted(values):
        value = values[name]
        if name.endswith("size_bytes") and isinstance(value, int | float) and not isinstance(value, bool):
            parts.append(f"{name.removesuffix('_bytes').replace('_', ' ')} {size(value)}")
        else:
            parts.append(f"{name}={value}")
    return ", ".join(parts)


def duration(seconds: float | None) -> str:
    """Return a duration as `2 h 06 min`, `4 min 05 s` or `12.3 s`."""
    if seconds is None:
        return "–"
    if seconds >= 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    if seconds >= 60:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{seconds:.1f} s"


def counted(count: int, singular: str, plural: str = "") -> str:
    """Return `1 cell`, `2,000 cells`."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def node_list(nodes: tuple[str, ...], most: int = 4) -> str:
    """Return the nodes of a cell; a long list is cut and says how many are left out."""
    if len(nodes) <= most:
        return ", ".join(nodes)
    return f"{', '.join(nodes[:2])} … {nodes[-1]} ({len(nodes):,} nodes)"


def some(names: tuple[str, ...], most: int) -> str:
    """Return names, or of many the first and the last and their count."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({len(names):,})"


BLOCKS = "▁▂▃▄▅▆▇█"
GAP = "·"


def text(values: Sequence[float], width: int = 60) -> str:
    """Return the last `width` nights in block characters, a dot where there is no value."""
    shown = list(values)[-width:]
    low, high = _span(shown)
    return "".join(GAP if math.isnan(v) else BLOCKS[min(7, int(8 * (v - low) / (high - low)))] for v in shown)


def points(
    values: Sequence[float], at: Sequence[float], width: float, height: float
) -> list[list[tuple[float, float]]]:
    """Return unbroken stretches of (x, y) in a box, y downwards. `at` are places from 0 to 1."""
    low, high = _span(values)
    stretches: list[list[tuple[float, float]]] = [[]]
    for value, place in zip(values, at, strict=True):
        if math.isnan(value):
            stretches.append([])
        else:
            y = height * (1 - (value - low) / (high - low))
            stretches[-1].append((round(width * place, 1), round(y, 1)))
    return [s for s in stretches if s]


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Return the range to draw: at least 4 % of the value, so that noise does not look like a storm."""
    finite = [v for v in values if not math.isnan(v)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    least = 0.04 * max(abs(low), abs(high)) or 1.0
    spare = max(0.0, least - (high - low)) / 2
    return low - spare, high + spare

"""Redaction by its expressions alone, each over every line: slow, and what the quick way must agree with."""

import json
import re
from collections.abc import Callable

from shakedown.run import redact as redaction
from shakedown.run import secret_kinds as kinds
from shakedown.run.secret_kinds import MASK, NAME

_START = r"(?<![A-Za-z0-9_.-])"
_QUOTED = r"""(?P<quote>\\{0,8}["'])(?:.*?(?<!\\)(?P=quote)|.*)"""
_WORD = r"""(?:[^\s"'\\]|\\(?!["']))+(?<![,;}\]])"""
_LINE = re.compile(
    rf"""(?P<quote>)(?<!["'\\]){_START}(?P<head>{NAME}[ \t]*:[ \t]+)"""
    r"""(?P<value>(?!\\{0,8}["'])\S(?:.*\S)?)""",
    re.IGNORECASE,
)
_ASSIGNMENT = re.compile(
    rf"""(?P<head>(?:(?P<key>\\{{0,8}}["'])|{_START}){NAME}(?(key)(?P=key))[ \t]*"""
    r"""(?:[:=]{1,3}+>?|[＝：])[ \t]*)"""
    rf"""(?P<value>{_QUOTED}|(?:(?:Bearer|Basic|Digest|Negotiate)[ \t]+)?{_WORD})""",
    re.IGNORECASE,
)
_OPTION = re.compile(rf"(?<!\S)(?P<head>--?{NAME}[ \t]+)(?P<value>{_QUOTED}|(?!-){_WORD})", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?[,;}\]]*", re.IGNORECASE)
_CONSTANT = re.compile(r"(?:true|false|null|none|yes|no)[,;}\]]*", re.IGNORECASE)
_DOTTED = re.compile(r"[A-Za-z0-9_.-]{16,}")
_HEAD = re.compile(r"\beyJ(?=[A-Za-z0-9_-]{8})")
_DUMP_LINE = r"(?:declare -x |export )?[A-Za-z_][A-Za-z0-9_]*=[^\n]*"
_DUMP = re.compile(rf"(?:^{_DUMP_LINE}(?:\n|\Z)){{4,}}", re.MULTILINE)
_DUMP_MARK = re.compile(r"^(?:declare -x |export )?(?:PATH|HOME|PWD|SHELL|USER|LANG|TERM)=", re.MULTILINE)


def plainly(text: str) -> str:
    """Return text without environment dumps and secrets."""
    for _, expression, instead in kinds.WHOLES:
        text = expression.sub(instead, text)
    text = _without_json_dumps(text)
    text = _DUMP.sub(lambda m: f"environment {MASK}\n" if _DUMP_MARK.search(m[0]) else m[0], text)
    for _, where, *within in kinds.RULES:
        text = where.sub(_masked_within(*within) if within else rf"\1{MASK}", text)
    text = kinds.URL.sub(rf"\1{MASK}@", text)
    for expression, _ in kinds.PAIRED:
        text = expression.sub(rf"\1{MASK}", text)
    text = kinds.BELOW.sub(redaction._below_masked, text)
    return "\n".join(_line(line) for line in text.split("\n"))


def _masked_within(inner: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    return lambda found: inner.sub(rf"\1{MASK}", found[0])


def _line(line: str) -> str:
    for expression in (_LINE, _ASSIGNMENT, _OPTION):
        line = expression.sub(_masked, line)
    line = kinds.KNOWN.sub(MASK, kinds.HEADER.sub(rf"\1\2{MASK}", line))
    return _DOTTED.sub(_web_token_masked, line)


def _masked(match: re.Match[str]) -> str:
    value, quote = match["value"], match["quote"] or ""
    bare = value.removeprefix(quote).removesuffix(quote) if quote else value
    first = bare.split(maxsplit=1)[0] if bare.strip() else ""
    harmless = _CONSTANT.fullmatch(first) or (match["password"] is None and _NUMBER.fullmatch(first))
    if not first or harmless or not bare.strip("[]{},; \t"):
        return match[0]
    mark = quote or match.groupdict().get("key") or ""
    return f"{match['head']}{mark}{MASK}{mark}"


def _web_token_masked(word: re.Match[str]) -> str:
    parts = word[0].split(".")
    done, i = [], 0
    while i < len(parts):
        at = next((m.start() for m in _HEAD.finditer(parts[i])), -1)
        if at >= 0 and i + 2 < len(parts) and len(parts[i + 1]) >= 8:
            done.append(parts[i][:at] + MASK)
            i += 3
        else:
            done.append(parts[i])
            i += 1
    return ".".join(done)


def _without_json_dumps(text: str) -> str:
    parts: list[str] = []
    position = 0
    while key := kinds.STRUCTURE_KEY.search(text, position):
        start = key.end()
        parts.append(text[position:start])
        try:
            _, position = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            return "".join((*parts, MASK))
        parts.append("[]" if text[start] == "[" else "{}")
    return "".join((*parts, text[position:]))

"""Removes secrets and environment dumps from any text, before it is written anywhere.

nccl-tests `-J` writes the whole environment of the job into its result file, scripts echo theirs, and
tools print the URLs they were given. Redaction works on text, because raw outputs are kept as the tools
wrote them, whatever their format. When in doubt it removes too much of a secret's line, never of another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

# A plain word: assigned to a secret's name it is redacted into itself, so that redacting twice is harmless.
MASK = "REDACTED"

# What the name of a secret ends in: HF_TOKEN, aws_secret_access_key, db-password.
_PASSWORDS = r"passw(?:or)?d|passphrase|[_-]pwd|secret"
_OTHERS = r"token|api_?key|[_-]key|credentials?|authorization|cookie"
_NAME = rf"[A-Za-z0-9_.-]{{0,128}}(?:(?P<password>{_PASSWORDS})|{_OTHERS})(?:_b64)?"
_START = r"(?<![A-Za-z0-9_.-])"
_QUOTED = r"""(?P<quote>\\{0,8}["'])(?:.*?(?<!\\)(?P=quote)|.*)"""
_WORD = r"""(?:[^\s"'\\]|\\(?!["']))+(?<![,;}\]])"""
# `password: correct horse battery`, as in YAML, logs and HTTP headers: to the end of the line.
_LINE = re.compile(
    rf"""(?P<quote>)(?<!["'\\]){_START}(?P<head>{_NAME}[ \t]*:[ \t]+)"""
    r"""(?P<value>(?!\\{0,8}["'])\S(?:.*\S)?)""",
    re.IGNORECASE,
)
# name=value, name:value, "name": "value"; quotes may be escaped, as in JSON within a string.
_ASSIGNMENT = re.compile(
    rf"""(?P<head>(?:(?P<key>\\{{0,8}}["'])|{_START}){_NAME}(?(key)(?P=key))[ \t]*(?::=|[=:])[ \t]*)"""
    rf"""(?P<value>{_QUOTED}|(?:(?:Bearer|Basic|Digest|Negotiate)[ \t]+)?{_WORD})""",
    re.IGNORECASE,
)
_OPTION = re.compile(rf"(?<!\S)(?P<head>--?{_NAME}[ \t]+)(?P<value>{_QUOTED}|(?!-){_WORD})", re.IGNORECASE)
# Counts (`"eos_token": 2`, `seconds_per_token=0.02`) and settings are no secrets, unless as a password.
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?[,;}\]]*", re.IGNORECASE)
_CONSTANT = re.compile(r"(?:true|false|null|none|yes|no)[,;}\]]*", re.IGNORECASE)

_PRIVATE_KEY = re.compile(
    r"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?)-----.*?(?:-----END \1-----|\Z)", re.DOTALL
)
_HEADER = re.compile(r"\b(Bearer|Basic|Digest|Negotiate)([ \t]+)[A-Za-z0-9+/_.~=-]{8,}", re.IGNORECASE)
_URL = re.compile(r"\b([a-z][a-z0-9+.-]{1,16}://)[^\s/@\"'<>]{1,512}@", re.IGNORECASE)
# Tokens that name themselves by their prefix.
_KNOWN = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|hf_[A-Za-z0-9]{20,}|nvapi-[A-Za-z0-9_-]{20,}|sk-[A-Za-z0-9_-]{20,}|xox[abpors]-[A-Za-z0-9-]{10,}"
    r"|AKIA[0-9A-Z]{16})"
)

# Words of the letters of a JSON web token, and where one begins in them.
_DOTTED = re.compile(r"[A-Za-z0-9_.-]{16,}")
_LEAST_OF_A_PART = 8
_HEAD = re.compile(r"\beyJ(?=[A-Za-z0-9_-]{8})")

# What a JSON key like "env" or "credentials" holds, if it is an array or an object, goes as a whole.
_STRUCTURE_KEY = re.compile(rf'"(?:env|environ|environment|{_NAME})"\s*:\s*(?=[\[{{])', re.IGNORECASE)
_ENVIRON_REPR = re.compile(r"\benviron\(\{.*?(?:\}\)|\Z)", re.DOTALL)
# A dump by env(1), printenv or export -p: four or more assignments, one a line, among them a usual one.
_DUMP_LINE = r"(?:declare -x |export )?[A-Za-z_][A-Za-z0-9_]*=[^\n]*"
_DUMP = re.compile(rf"(?:^{_DUMP_LINE}(?:\n|\Z)){{4,}}", re.MULTILINE)
_DUMP_MARK = re.compile(r"^(?:declare -x |export )?(?:PATH|HOME|PWD|SHELL|USER|LANG|TERM)=", re.MULTILINE)


# What must stand in a line, in lower case, before one of the slower expressions above can match in it.
_OF_A_NAME = (
    "passw",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "_key",
    "-key",
    "credential",
    "authorization",
    "cookie",
)
_OF_A_HEADER = ("bearer", "basic", "digest", "negotiate")
_OF_A_TOKEN = (
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "hf_",
    "nvapi-",
    "sk-",
    "xox",
    "akia",
)


def redact(text: str) -> str:
    """Return text without environment dumps and secrets. Redacting twice changes nothing more.

    Most lines of a log hold no word that a secret needs, so the expressions only see those that do.
    """
    if "PRIVATE KEY" in text:
        text = _PRIVATE_KEY.sub(MASK, text)
    text = _without_json_dumps(text)
    if "environ({" in text:
        text = _ENVIRON_REPR.sub(f"environ({MASK})", text)
    if _DUMP_MARK.search(text):
        text = _DUMP.sub(lambda m: f"environment {MASK}\n" if _DUMP_MARK.search(m[0]) else m[0], text)
    text = _on_lines_with(("://",), text, lambda line: _URL.sub(rf"\1{MASK}@", line))
    text = _on_lines_with(_OF_A_NAME, text, _without_named)
    text = _on_lines_with(_OF_A_HEADER, text, lambda line: _HEADER.sub(rf"\1\2{MASK}", line))
    text = _on_lines_with(_OF_A_TOKEN, text, lambda line: _KNOWN.sub(MASK, line))
    return _on_lines_with(("eyj",), text, _without_web_tokens)


def redact_bytes(content: bytes) -> bytes:
    """Return a file's content redacted, whatever bytes of it are no UTF-8."""
    return redact(content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _on_lines_with(words: Iterable[str], text: str, change: Callable[[str], str]) -> str:
    """Apply a change to each line that holds one of the words, in any case."""
    lower = text.lower()
    # Lower case of some letters outside ASCII is longer than they are; then no place of one is the other's.
    if len(lower) != len(text):
        return "\n".join(change(line) for line in text.split("\n"))
    starts: set[int] = set()
    for word in words:
        at = lower.find(word)
        while at >= 0:
            starts.add(text.rfind("\n", 0, at) + 1)
            end = text.find("\n", at)
            at = lower.find(word, end) if end >= 0 else -1
    parts, position = [], 0
    for start in sorted(starts):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        parts += [text[position:start], change(text[start:end])]
        position = end
    return "".join((*parts, text[position:]))


def _without_named(line: str) -> str:
    for expression in (_LINE, _ASSIGNMENT, _OPTION):
        line = expression.sub(_masked, line)
    return line


def _without_web_tokens(line: str) -> str:
    """Mask JSON web tokens, `eyJ...` and two more parts between dots.

    One expression for it would look at the rest of the line from each `eyJ` in it.
    """
    return _DOTTED.sub(_web_token_masked, line)


def _web_token_masked(word: re.Match[str]) -> str:
    parts = word[0].split(".")
    done, i = [], 0
    while i < len(parts):
        at = next((m.start() for m in _HEAD.finditer(parts[i])), -1)
        if at >= 0 and i + 2 < len(parts) and len(parts[i + 1]) >= _LEAST_OF_A_PART:
            done.append(parts[i][:at] + MASK)
            i += 3
        else:
            done.append(parts[i])
            i += 1
    return ".".join(done)


def _masked(match: re.Match[str]) -> str:
    value, quote = match["value"], match["quote"] or ""
    bare = value.removeprefix(quote).removesuffix(quote) if quote else value
    first = bare.split(maxsplit=1)[0] if bare.strip() else ""
    harmless = _CONSTANT.fullmatch(first) or (not match["password"] and _NUMBER.fullmatch(first))
    if not first or harmless:
        return match[0]
    # A bare number after a quoted key is JSON, and must stay JSON.
    mark = quote or match.groupdict().get("key") or ""
    return f"{match['head']}{mark}{MASK}{mark}"


def _without_json_dumps(text: str) -> str:
    """Empty every JSON array or object under such a key; one that never closes is cut off to the end."""
    parts: list[str] = []
    position = 0
    while key := _STRUCTURE_KEY.search(text, position):
        start = key.end()
        parts.append(text[position:start])
        try:
            _, position = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            return "".join((*parts, MASK))
        parts.append("[]" if text[start] == "[" else "{}")
    return "".join((*parts, text[position:]))

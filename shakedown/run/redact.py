"""Removes secrets and environment dumps from any text, before it is written anywhere.

nccl-tests `-J` writes the whole environment of the job into its result file, scripts echo theirs, and
tools print the URLs they were given. Redaction works on text, because raw outputs are kept as the tools
wrote them, whatever their format. When in doubt it removes too much of a secret's line, never of another.
"""

from __future__ import annotations

import json
import re

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
# Tokens that name themselves by their prefix, and JSON web tokens.
_KNOWN = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|hf_[A-Za-z0-9]{20,}|nvapi-[A-Za-z0-9_-]{20,}|sk-[A-Za-z0-9_-]{20,}|xox[abpors]-[A-Za-z0-9-]{10,}"
    r"|AKIA[0-9A-Z]{16}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"
)

# What a JSON key like "env" or "credentials" holds, if it is an array or an object, goes as a whole.
_STRUCTURE_KEY = re.compile(rf'"(?:env|environ|environment|{_NAME})"\s*:\s*(?=[\[{{])', re.IGNORECASE)
_ENVIRON_REPR = re.compile(r"\benviron\(\{.*?(?:\}\)|\Z)", re.DOTALL)
# A dump by env(1), printenv or export -p: four or more assignments, one a line, among them a usual one.
_DUMP_LINE = r"(?:declare -x |export )?[A-Za-z_][A-Za-z0-9_]*=[^\n]*"
_DUMP = re.compile(rf"(?:^{_DUMP_LINE}(?:\n|\Z)){{4,}}", re.MULTILINE)
_DUMP_MARK = re.compile(r"^(?:declare -x |export )?(?:PATH|HOME|PWD|SHELL|USER|LANG|TERM)=", re.MULTILINE)


def redact(text: str) -> str:
    """Return text without environment dumps and secrets. Redacting twice changes nothing more."""
    text = _PRIVATE_KEY.sub(MASK, text)
    text = _without_json_dumps(text)
    text = _ENVIRON_REPR.sub(f"environ({MASK})", text)
    text = _DUMP.sub(lambda m: f"environment {MASK}\n" if _DUMP_MARK.search(m[0]) else m[0], text)
    text = _URL.sub(rf"\1{MASK}@", text)
    text = _LINE.sub(_masked, text)
    text = _ASSIGNMENT.sub(_masked, text)
    text = _OPTION.sub(_masked, text)
    text = _HEADER.sub(rf"\1\2{MASK}", text)
    return _KNOWN.sub(MASK, text)


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

"""Redaction by its expressions alone, each over every line: slow, and what the quick way must agree with."""

import json
import re

MASK = "REDACTED"
_PASSWORDS = r"passw(?:or)?d|passphrase|[_-]pwd|secret"
_OTHERS = r"token|api_?key|[_-]key|credentials?|authorization|cookie"
_NAME = rf"[A-Za-z0-9_.-]{{0,128}}(?:(?P<password>{_PASSWORDS})|{_OTHERS})(?:_b64)?"
_START = r"(?<![A-Za-z0-9_.-])"
_QUOTED = r"""(?P<quote>\\{0,8}["'])(?:.*?(?<!\\)(?P=quote)|.*)"""
_WORD = r"""(?:[^\s"'\\]|\\(?!["']))+(?<![,;}\]])"""
_LINE = re.compile(
    rf"""(?P<quote>)(?<!["'\\]){_START}(?P<head>{_NAME}[ \t]*:[ \t]+)"""
    r"""(?P<value>(?!\\{0,8}["'])\S(?:.*\S)?)""",
    re.IGNORECASE,
)
_ASSIGNMENT = re.compile(
    rf"""(?P<head>(?:(?P<key>\\{{0,8}}["'])|{_START}){_NAME}(?(key)(?P=key))[ \t]*(?::=|[=:])[ \t]*)"""
    rf"""(?P<value>{_QUOTED}|(?:(?:Bearer|Basic|Digest|Negotiate)[ \t]+)?{_WORD})""",
    re.IGNORECASE,
)
_OPTION = re.compile(rf"(?<!\S)(?P<head>--?{_NAME}[ \t]+)(?P<value>{_QUOTED}|(?!-){_WORD})", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?[,;}\]]*", re.IGNORECASE)
_CONSTANT = re.compile(r"(?:true|false|null|none|yes|no)[,;}\]]*", re.IGNORECASE)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?)-----.*?(?:-----END \1-----|\Z)", re.DOTALL
)
_HEADER = re.compile(r"\b(Bearer|Basic|Digest|Negotiate)([ \t]+)[A-Za-z0-9+/_.~=-]{8,}", re.IGNORECASE)
_URL = re.compile(r"\b([a-z][a-z0-9+.-]{1,16}://)[^\s/@\"'<>]{1,512}@", re.IGNORECASE)
_KNOWN = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|hf_[A-Za-z0-9]{20,}|nvapi-[A-Za-z0-9_-]{20,}|sk-[A-Za-z0-9_-]{20,}|xox[abpors]-[A-Za-z0-9-]{10,}"
    r"|AKIA[0-9A-Z]{16})"
)
_DOTTED = re.compile(r"[A-Za-z0-9_.-]{16,}")
_HEAD = re.compile(r"\beyJ(?=[A-Za-z0-9_-]{8})")
_STRUCTURE_KEY = re.compile(rf'"(?:env|environ|environment|{_NAME})"\s*:\s*(?=[\[{{])', re.IGNORECASE)
_ENVIRON_REPR = re.compile(r"\benviron\(\{.*?(?:\}\)|\Z)", re.DOTALL)
_DUMP_LINE = r"(?:declare -x |export )?[A-Za-z_][A-Za-z0-9_]*=[^\n]*"
_DUMP = re.compile(rf"(?:^{_DUMP_LINE}(?:\n|\Z)){{4,}}", re.MULTILINE)
_DUMP_MARK = re.compile(r"^(?:declare -x |export )?(?:PATH|HOME|PWD|SHELL|USER|LANG|TERM)=", re.MULTILINE)


def plainly(text: str) -> str:
    """Return text without environment dumps and secrets."""
    text = _without_json_dumps(_PRIVATE_KEY.sub(MASK, text))
    text = _ENVIRON_REPR.sub(f"environ({MASK})", text)
    text = _DUMP.sub(lambda m: f"environment {MASK}\n" if _DUMP_MARK.search(m[0]) else m[0], text)
    return "\n".join(_line(line) for line in text.split("\n"))


def _line(line: str) -> str:
    line = _URL.sub(rf"\1{MASK}@", line)
    for expression in (_LINE, _ASSIGNMENT, _OPTION):
        line = expression.sub(_masked, line)
    line = _KNOWN.sub(MASK, _HEADER.sub(rf"\1\2{MASK}", line))
    return _DOTTED.sub(_web_token_masked, line)


def _masked(match: re.Match[str]) -> str:
    value, quote = match["value"], match["quote"] or ""
    bare = value.removeprefix(quote).removesuffix(quote) if quote else value
    first = bare.split(maxsplit=1)[0] if bare.strip() else ""
    harmless = _CONSTANT.fullmatch(first) or (not match["password"] and _NUMBER.fullmatch(first))
    if not first or harmless:
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
    while key := _STRUCTURE_KEY.search(text, position):
        start = key.end()
        parts.append(text[position:start])
        try:
            _, position = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            return "".join((*parts, MASK))
        parts.append("[]" if text[start] == "[" else "{}")
    return "".join((*parts, text[position:]))

"""Removes secrets and environment dumps from any text, before it is written anywhere.

nccl-tests `-J` writes the whole environment of the job into its result file, scripts echo theirs, and
tools print the URLs they were given. Redaction works on text, because raw outputs are kept as the tools
wrote them, whatever their format. When in doubt it removes too much of a secret's line, never of another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

# A plain word: assigned to a secret's name it is redacted into itself, so that redacting twice is harmless.
MASK = "REDACTED"

# What the name of a secret ends in: HF_TOKEN, aws_secret_access_key, db-password.
# Looked for where a name ends and nowhere else in it: within long words that costs a try for each letter.
_PASSWORDS = ("passwd", "password", "passphrase", "_pwd", "-pwd", "secret")
_OTHERS = (
    "token",
    "apikey",
    "api_key",
    "_key",
    "-key",
    "credential",
    "credentials",
    "authorization",
    "cookie",
)


def _ending_in(words: tuple[str, ...]) -> str:
    return "|".join(f"(?<={word}{coded})" for word in words for coded in ("", "_b64"))


_NAME = rf"[A-Za-z0-9_.-]++(?:(?P<password>{_ending_in(_PASSWORDS)})|{_ending_in(_OTHERS)})"
_START = r"(?<![A-Za-z0-9_.-])"
# Where a value begins: with a quote, escaped ones as in JSON within a string; or as a word, of which what
# closes a list is no part. Whole words are taken at once (`++`), or a long one costs a state for each letter.
_QUOTE = re.compile(r"""\\{0,8}["']""")
_QUOTED = r"""(?=\\{0,8}["'])"""
_LETTER = r"""(?:[^\s"'\\,;}\]]|\\(?!["']))"""
_WORD = re.compile(r"""(?:[^\s"'\\]++|\\(?!["']))++""")
_A_WORD = rf"(?=[,;}}\]]*+{_LETTER})"
_SCHEME = re.compile(rf"(?:Bearer|Basic|Digest|Negotiate)[ \t]+{_A_WORD}", re.IGNORECASE)
# `password: correct horse battery`, as in YAML, logs and HTTP headers: to the end of the line.
_LINE = re.compile(rf"""(?<!["'\\]){_START}{_NAME}[ \t]*:[ \t]+(?!\\{{0,8}}["'])(?=\S)""", re.IGNORECASE)
# name=value, name:value, "name": "value"; quotes may be escaped, as in JSON within a string.
_ASSIGNMENT = re.compile(
    rf"""(?:(?P<key>\\{{0,8}}["'])|{_START}){_NAME}(?(key)(?P=key))[ \t]*(?::=|[=:])[ \t]*"""
    rf"""(?:{_QUOTED}|{_A_WORD})""",
    re.IGNORECASE,
)
_OPTION = re.compile(
    rf"(?<!\S)--?(?!(?:key|pwd)(?:_b64)?[ \t]){_NAME}[ \t]+(?:{_QUOTED}|(?!-){_A_WORD})", re.IGNORECASE
)
# Counts (`"eos_token": 2`, `seconds_per_token=0.02`) and settings are no secrets, unless as a password.
_WORDS_OF_SETTINGS = r"(?:true|false|null|none|yes|no)"
_CONSTANT = re.compile(rf"{_WORDS_OF_SETTINGS}[,;}}\]]*", re.IGNORECASE)
_HARMLESS = re.compile(rf"(?:{_WORDS_OF_SETTINGS}|[-+]?[0-9.]+(?:e[-+]?[0-9]+)?)[,;}}\]]*", re.IGNORECASE)
# What of them there is to look for in lines that hold such a name, and what they need beside it.
_NAMED = ((_LINE, (": ", ":\t")), (_ASSIGNMENT, ("=", ":")), (_OPTION, ("-",)))

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
_DUMP_LINE = r"(?:declare -x |export )?[A-Za-z_][A-Za-z0-9_]*+=[^\n]*+"
_DUMP = re.compile(rf"(?:^{_DUMP_LINE}(?:\n|\Z)){{4,}}+", re.MULTILINE)
# Looked for behind a line's end, which is found far sooner than what `^` stands for.
_DUMP_MARK = re.compile(r"\n(?:declare -x |export )?(?:PATH|HOME|PWD|SHELL|USER|LANG|TERM)=")


def _each(*words: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(word) for word in words)


# What must stand in a line, in lower case, before one of the slower expressions above can match in it. One by
# one, because what begins with fixed letters is found as quickly as memory is read, and alternatives are not.
_OF_A_NAME = _each(
    *(
        rf"{word}(?:_b64)?(?![a-z0-9_.-])"  # a name ends with it: `tokens_per_s` is none
        for word in (
            *("passw(?:or)?d", "passphrase", "pwd", "secret", "token", "_key", "-key", "apikey"),
            *("credentials?", "authorization", "cookie"),
        )
    )
)
_OF_A_HEADER = _each("bearer", "basic", "digest", "negotiate")
_OF_A_TOKEN = _each("gh[pousr]_", "github_pat_", "glpat-", "hf_", "nvapi-", "sk-", "xox", "akia")
_OF_A_URL, _OF_A_WEB_TOKEN = _each("://"), _each("eyj")
_WORDS = (*_OF_A_NAME, *_OF_A_HEADER, *_OF_A_TOKEN, *_OF_A_URL, *_OF_A_WEB_TOKEN)

# A file with more is no output of a tool: what comes after goes as a whole, so that reading stays quick.
_MOST = 500_000
_MOST_NAMES = 3_000_000  # with or without a value: `token=` and nothing after it costs a look as well
_MOST_OF_A_DUMP = 4 * 2**20  # characters; Linux gives a process 2 MiB of arguments and environment
_CHUNK = 2**18  # characters
_DENSE = 64  # characters for each line with such a word; then lines are not looked for
_DECODER = json.JSONDecoder()
_BRACKET = re.compile(r'[\[{]|(?P<close>[]}])|"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def redact(text: str) -> str:
    """Return text without environment dumps and secrets. Redacting twice changes nothing more.

    Most lines of a log hold no word that a secret needs, so the expressions only see those that do.
    """
    if "PRIVATE KEY" in text:
        text = _PRIVATE_KEY.sub(MASK, text)
    text = _without_json_dumps(text)
    if "environ({" in text:
        text = _ENVIRON_REPR.sub(f"environ({MASK})", text)
    if _DUMP_MARK.search(f"\n{text}"):
        text = _DUMP.sub(lambda m: f"environment {MASK}\n" if _DUMP_MARK.search(f"\n{m[0]}") else m[0], text)
    left = [*[_MOST] * len(_NAMED), _MOST_NAMES]
    parts: list[str] = []
    for chunk in _chunks(text):
        parts.append(_chunk_redacted(chunk, left))
        if min(left) < 0:
            return "".join((*parts, MASK))
    return "".join(parts)


def redact_bytes(content: bytes) -> bytes:
    """Return a file's content redacted, whatever bytes of it are no UTF-8."""
    return redact(content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _chunks(text: str) -> Iterator[str]:
    """Yield the text in pieces of whole lines: what is kept of each place in it stays small."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _CHUNK) + 1 or len(text)
        yield text[start:end]
        start = end


def _chunk_redacted(text: str, left: list[int]) -> str:
    """Return whole lines without secrets, cut off where there is none `left` of a kind, or of all names."""
    lower = _folded(text)
    starts: set[int] = set()
    for word in _WORDS:
        found = word.search(lower)
        while found:
            starts.add(lower.rfind("\n", 0, found.start()) + 1)
            if len(starts) > len(text) // _DENSE:
                return _lines_redacted(text, lower, left)
            end = lower.find("\n", found.start())
            found = word.search(lower, end) if end >= 0 else None
    parts: list[str] = []
    position, waiting = 0, sorted(starts, reverse=True)
    while waiting and min(left) >= 0:
        start = end = waiting.pop()
        while end == start or (waiting and waiting[-1] == end):  # lines beside one another in one go
            if end != start:
                waiting.pop()
            end = text.find("\n", end) + 1 or len(text)
        parts += [text[position:start], _lines_redacted(text[start:end], lower[start:end], left)]
        position = end
    return "".join(parts) if min(left) < 0 else "".join((*parts, text[position:]))


def _folded(text: str) -> str:
    """Return text of the same length in lower case, as expressions read it that ignore case."""
    if text.isascii():
        return text.lower()
    for odd, letter in (("\u0130", "i"), ("\u0131", "i"), ("\u017f", "s")):
        text = text.replace(odd, letter)
    return text.lower()


def _lines_redacted(text: str, lower: str, left: list[int]) -> str:
    """Return lines without secrets; no expression here goes past the end of a line."""
    if _any(_OF_A_URL, lower):
        text = _URL.sub(rf"\1{MASK}@", text)
    if names := sum(sum(1 for _ in word.finditer(lower)) for word in _OF_A_NAME):
        left[-1] -= names
        if left[-1] < 0:
            return ""
        for kind, (expression, needs) in enumerate(_NAMED):
            if any(mark in text for mark in needs):
                text, left[kind] = _without_named(expression, text, left[kind])
    if _any(_OF_A_HEADER, lower):
        text = _HEADER.sub(rf"\1\2{MASK}", text)
    if _any(_OF_A_TOKEN, lower):
        text = _KNOWN.sub(MASK, text)
    return _DOTTED.sub(_web_token_masked, text) if _any(_OF_A_WEB_TOKEN, lower) else text


def _any(words: tuple[re.Pattern[str], ...], lower: str) -> bool:
    return any(word.search(lower) for word in words)


def _without_named(expression: re.Pattern[str], text: str, left: int) -> tuple[str, int]:
    """Mask the values after names of secrets; cut the text off before one of which none is `left`.

    Returns the text, and how many are left; below zero it was cut off.
    """
    parts: list[str] = []
    position, line_end = 0, 0
    match = expression.search(text)
    while match:
        left -= 1
        if left < 0:
            return "".join((*parts, text[position : match.start()])), left
        start = match.end()
        if start >= line_end:
            line_end = text.find("\n", start)
            line_end = len(text) if line_end < 0 else line_end
        quote, end = _value(expression, text, start, line_end)
        if _is_secret(text[start + len(quote) : end].removesuffix(quote), match["password"] is not None):
            # A bare number after a quoted key is JSON, and must stay JSON.
            mark = quote or (match["key"] if expression is _ASSIGNMENT else "") or ""
            parts += [text[position:start], mark, MASK, mark]
            position = end
        match = expression.search(text, end)
    return "".join((*parts, text[position:])) if parts else text, left


def _value(expression: re.Pattern[str], text: str, start: int, line_end: int) -> tuple[str, int]:
    """Return the quote that a value begins with, or nothing, and where the value ends."""
    if expression is _LINE:
        return "", start + len(text[start:line_end].rstrip())
    if quoted := _QUOTE.match(text, start):
        quote = quoted[0]
        at = text.find(quote, quoted.end(), line_end)
        while at >= 0 and text[at - 1] == "\\":
            at = text.find(quote, at + 1, line_end)
        return quote, line_end if at < 0 else at + len(quote)
    if expression is _ASSIGNMENT and (scheme := _SCHEME.match(text, start)):
        start = scheme.end()
    word = _WORD.match(text, start)
    return "", start + len(word[0].rstrip(",;}]")) if word else start


def _is_secret(bare: str, password: bool) -> bool:
    words = bare.split(maxsplit=1)
    if not words:
        return False
    return not (_CONSTANT.fullmatch(words[0]) if password else _HARMLESS.fullmatch(words[0]))


def _web_token_masked(word: re.Match[str]) -> str:
    """Mask JSON web tokens, `eyJ...` and two more parts between dots.

    One expression for it would look at the rest of the line from each `eyJ` in it.
    """
    text = word[0]
    parts: list[str] = []
    position, at = 0, 0
    while head := _HEAD.search(text, at):
        first = text.find(".", head.start())
        second = text.find(".", first + 1) if first >= 0 else -1
        if second < 0:
            break
        if second - first > _LEAST_OF_A_PART:
            at = text.find(".", second + 1)
            at = len(text) if at < 0 else at
            parts += [text[position : head.start()], MASK]
            position = at
        else:
            at = first + 1
    return "".join((*parts, text[position:]))


def _without_json_dumps(text: str) -> str:
    """Empty every JSON array or object under such a key; one that never closes is cut off to the end."""
    parts: list[str] = []
    position = 0
    left = _MOST
    while key := _STRUCTURE_KEY.search(text, position):
        start, left = key.end(), left - 1
        parts.append(text[position:start])
        end = _closing(text, start)
        try:
            if left < 0 or end < 0:
                raise ValueError
            _DECODER.decode(text[start:end])
        except (ValueError, RecursionError):
            return "".join((*parts, MASK))
        parts.append("[]" if text[start] == "[" else "{}")
        position = end
    return "".join((*parts, text[position:]))


def _closing(text: str, start: int) -> int:
    """Return where the array or object that begins there ends; -1 if nowhere, or only after too much."""
    depth = 0
    for bracket in _BRACKET.finditer(text, start, start + _MOST_OF_A_DUMP):
        if bracket["close"]:
            depth -= 1
            if not depth:
                return bracket.end()
        elif bracket[0][0] != '"':
            depth += 1
    return -1

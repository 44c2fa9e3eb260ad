"""Removes secrets and environment dumps from any text, before it is written anywhere.

nccl-tests `-J` writes the whole environment of the job into its result file, scripts echo theirs, and
tools print the URLs they were given. Redaction works on text, because raw outputs are kept as the tools
wrote them, whatever their format. When in doubt it removes too much of a secret's line, never of another.
What secrets look like is in `secret_kinds`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from shakedown.run import secret_kinds as kinds
from shakedown.run.secret_kinds import MASK

# A file with more is no output of a tool: what comes after goes as a whole, so that reading stays quick.
_MOST = 500_000
_MOST_NAMES = 3_000_000  # with or without a value: `token=` and nothing after it costs a look as well
_MOST_OF_A_DUMP = 4 * 2**20  # characters; Linux gives a process 2 MiB of arguments and environment
_CHUNK = 2**18  # characters
_MOST_BROKEN = 2**18  # characters that lines may go on for which belong together
_LONG = 2**16  # bytes without an end of a line or of a word; may be as many times the same
_DENSE = 64  # characters for each line with such a word; then lines are not looked for
_HOLE = b"\0" * 2**16  # as a sparse file is full of, which costs nothing to make
_DECODER = json.JSONDecoder()
_BRACKET = re.compile(r'[\[{]|(?P<close>[]}])|"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def redact(text: str) -> str:
    """Return text without environment dumps and secrets. Redacting twice changes nothing more.

    Most lines of a log hold no word that a secret needs, so the expressions only see those that do.
    """
    if "\0" in text:
        text = _wide(text)
    for mark, expression, instead in kinds.WHOLES:
        if mark in text:
            text = expression.sub(instead, text)
    text = _without_json_dumps(text)
    if kinds.DUMP_MARK.search(f"\n{text}"):
        text = kinds.DUMP.sub(
            lambda m: f"environment {MASK}\n" if kinds.DUMP_MARK.search(f"\n{m[0]}") else m[0], text
        )
    left = [*[_MOST] * len(kinds.NAMED), _MOST_NAMES]
    parts: list[str] = []
    for chunk in _chunks(text):
        parts.append(_chunk_redacted(chunk, left))
        if min(left) < 0:
            return "".join((*parts, MASK))
    return "".join(parts)


def redact_bytes(content: bytes) -> bytes:
    """Return a file's content redacted, whatever bytes of it are no UTF-8."""
    short = content.replace(_HOLE, b"\0")
    if len(short) < len(content) and redact_bytes(short) == short:
        return content
    return redact(content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _wide(text: str) -> str:
    """Return text that is UTF-16, read as if it were not, redacted; other text as it is."""
    for codec in ("latin-1", "utf-8"):
        try:
            raw = text.encode(codec, "surrogateescape" if codec == "utf-8" else "strict")
            break
        except UnicodeEncodeError:
            continue
    else:  # no file's content
        return text
    for at, order in ((1, "utf-16-le"), (0, "utf-16-be")):
        if raw[at::2].count(0) > len(raw) // 4 > 2 * raw[1 - at :: 2].count(0):
            whole = len(raw) // 2 * 2
            clean = redact(raw[:whole].decode(order, "surrogatepass")).encode(order, "surrogatepass")
            return (clean + raw[whole:]).decode(codec, "surrogateescape")
    return text


def _chunks(text: str) -> Iterator[str]:
    """Yield the text in pieces of whole lines: what is kept of each place in it stays small."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _CHUNK) + 1 or len(text)
        most = end + _MOST_BROKEN
        while end < most and _goes_on(text, end, True):
            end = text.find("\n", end) + 1 or len(text)
        yield text[start:end]
        start = end


# What a line ends or begins with that belongs to the one before it.
_OPEN = (":", "=", "\\", "|", ">", "+", "-", ",", '"', "'")
_NEXT = re.compile(r"""[ \t]*(?:-[ \t]|:|<?["'\\]{0,9}(?:val|string))""", re.IGNORECASE)
_SERVER = re.compile("tacacs|radius|snmp_community", re.IGNORECASE)


def _goes_on(text: str, end: int, indented: bool) -> bool:
    """Return whether what stands in the line before `end` may have its value in the next."""
    if end >= len(text):
        return False
    return (
        (indented and text[end] in " \t")
        or text[max(end - 8, 0) : end].rstrip().endswith(_OPEN)
        or _NEXT.match(text, end) is not None
    )


def _chunk_redacted(text: str, left: list[int]) -> str:
    """Return whole lines without secrets, cut off where there is none `left` of a kind, or of all names."""
    lower = _folded(text)
    words = _words_in(lower)
    starts: set[int] = set()
    for _, expression in words:
        found = expression.search(lower)
        while found:
            starts.add(lower.rfind("\n", 0, found.start()) + 1)
            if len(starts) > len(text) // _DENSE:
                return _lines_redacted(text, lower, words, left)
            end = lower.find("\n", found.start())
            found = expression.search(lower, end) if end >= 0 else None
    parts: list[str] = []
    position, waiting = 0, sorted(starts, reverse=True)
    while waiting and min(left) >= 0:
        start = waiting.pop()
        end = _block_end(text, start, waiting)
        parts += [text[position:start], _lines_redacted(text[start:end], lower[start:end], words, left)]
        position = end
    return "".join(parts) if min(left) < 0 else "".join((*parts, text[position:]))


def _words_in(lower: str) -> set[kinds.Word]:
    """Return the words that may stand in text, and few others; what repeats is looked at once."""
    whole = lower.encode("utf-8", "surrogatepass").translate(kinds.SEPARATED, kinds.FILLERS)
    pieces = set(whole.split(b"\n"))
    long = [piece for piece in pieces if len(piece) > _LONG]
    words: set[kinds.Word] = set()
    for seen in (b"\n".join(pieces.difference(long)), *long):
        absent = {letter for letter in b"abcdefghijklmnopqrstuvwxyz_-" if letter not in seen}
        words |= {word for word in kinds.WORDS if absent.isdisjoint(word.letters) and word.letters in seen}
    return words


def _block_end(text: str, start: int, waiting: list[int]) -> int:
    """Return where lines end that belong together, or lie beside one another; none of them is `waiting`."""
    end, served = start, False
    while True:
        line, end = end, text.find("\n", end) + 1 or len(text)
        served = (served and text[line] in " \t") or _SERVER.search(text, line, end) is not None
        while waiting and waiting[-1] < end:
            waiting.pop()
        if not (waiting and waiting[-1] == end) and not _goes_on(text, end, served):
            return end


def _folded(text: str) -> str:
    """Return text of the same length in lower case, as expressions read it that ignore case."""
    if text.isascii():
        return text.lower()
    for odd, letter in (("\u0130", "i"), ("\u0131", "i"), ("\u017f", "s")):
        text = text.replace(odd, letter)
    return text.lower()


def _lines_redacted(text: str, lower: str, words: set[kinds.Word], left: list[int]) -> str:
    """Return lines without secrets; of the words only those are looked for that the chunk has."""

    def has(group: tuple[kinds.Word, ...]) -> bool:
        return any(word in words and word.expression.search(lower) for word in group)

    names = sum(sum(1 for _ in word.expression.finditer(lower)) for word in kinds.OF_A_NAME if word in words)
    left[-1] -= names
    if left[-1] < 0:
        return ""
    for group, where, *within in kinds.RULES:
        if has(group):
            text = where.sub(_masked_within(*within) if within else rf"\1{MASK}", text)
    url, header, known = (has(group) for group, *_ in kinds.BY_WORD)
    if url:
        text = kinds.URL.sub(rf"\1{MASK}@", text)
    if names:
        for expression, marks in kinds.PAIRED:
            if any(mark in lower for mark in marks):
                text = expression.sub(rf"\1{MASK}", text)
        if kinds.BROKEN.search(text):
            text = kinds.BELOW.sub(_below_masked, text)
        for kind, (expression, needs) in enumerate(kinds.NAMED):
            if any(mark in text for mark in needs):
                text, left[kind] = _without_named(expression, text, left[kind])
    if header:
        text = kinds.HEADER.sub(rf"\1\2{MASK}", text)
    if known:
        text = kinds.KNOWN.sub(MASK, text)
    return kinds.DOTTED.sub(_web_token_masked, text) if has(kinds.OF_A_WEB_TOKEN) else text


def _masked_within(inner: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    return lambda found: inner.sub(rf"\1{MASK}", found[0])


def _below_masked(found: re.Match[str]) -> str:
    """Mask what stands in the lines below a name, unless it is a count or a setting."""
    head, password = found["head"], found["password"] is not None
    if found["items"]:
        items = re.sub(
            r"(\n[ \t]*-[ \t]+)([^\r\n]*)",
            lambda item: f"{item[1]}{MASK}" if _is_secret(item[2], password) else item[0],
            found["items"],
        )
        return f"{head}{items}"
    if found["value"]:
        if not _is_secret(found["value"], password):
            return found[0]
        return f"{head}{found['joint']}{found['q'] or ''}{MASK}{found['end']}"
    joint = found["block"] or found["plain"]
    return f"{head}{joint}{MASK}" if _is_secret(found[0][len(head) + len(joint) :], password) else found[0]


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
            mark = quote or (match["key"] if expression is kinds.ASSIGNMENT else "") or ""
            parts += [text[position:start], mark, MASK, mark]
            position = end
        match = expression.search(text, end)
    return "".join((*parts, text[position:])) if parts else text, left


def _value(expression: re.Pattern[str], text: str, start: int, line_end: int) -> tuple[str, int]:
    """Return the quote that a value begins with, or nothing, and where the value ends."""
    if expression is kinds.LINE:
        return "", start + len(text[start:line_end].rstrip())
    if quoted := kinds.QUOTE.match(text, start):
        quote = quoted[0]
        at = text.find(quote, quoted.end(), line_end)
        while at >= 0 and text[at - 1] == "\\":
            at = text.find(quote, at + 1, line_end)
        return quote, line_end if at < 0 else at + len(quote)
    if expression is kinds.ASSIGNMENT and (scheme := kinds.SCHEME.match(text, start)):
        start = scheme.end()
    word = kinds.WORD.match(text, start)
    return "", start + len(word[0].rstrip(",;}]")) if word else start


def _is_secret(bare: str, password: bool) -> bool:
    words = bare.split(maxsplit=1)
    if not words or not bare.strip("[]{},; \t"):  # an empty list or object, or where one begins
        return False
    return not (kinds.CONSTANT.fullmatch(words[0]) if password else kinds.HARMLESS.fullmatch(words[0]))


def _web_token_masked(word: re.Match[str]) -> str:
    """Mask JSON web tokens, `eyJ...` and two more parts between dots.

    One expression for it would look at the rest of the line from each `eyJ` in it.
    """
    text = word[0]
    parts: list[str] = []
    position, at = 0, 0
    while head := kinds.HEAD.search(text, at):
        first = text.find(".", head.start())
        second = text.find(".", first + 1) if first >= 0 else -1
        if second < 0:
            break
        if second - first > kinds.LEAST_OF_A_PART:
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
    while key := kinds.STRUCTURE_KEY.search(text, position):
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

"""What a night has to say, and how it reaches people and machines: file, metrics, mail, signed webhook."""

import hashlib
import hmac
import smtplib
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Literal

from shakedown.daytwo.draining import Action
from shakedown.daytwo.history.alarms_and_steps import HistoryChange
from shakedown.daytwo.nightly.playbook import Delivery, Mail, Webhook
from shakedown.records.base import Outcome, Record
from shakedown.records.reading import BadInput
from shakedown.records.wording import NOT_REQUIRED, count, number, printable
from shakedown.records.writing import write_aside


class Night(Record):
    """One night, for file, mail and webhook."""

    schema_version: Literal[1] = 1
    system: str
    run: str
    started: str
    ended: str
    outcome: Outcome = Outcome.NOT_RUN
    reason: str
    measured: int = 0
    planned: int = 0
    nodes: tuple[str, ...] = ()  # measured tonight
    not_idle: dict[str, str]  # node: what Slurm says of it
    shares: int = 0
    nights_to_cover: int
    never: tuple[str, ...] = ()  # what acceptance asks for and no night measures, with the reason
    overdue: tuple[str, ...]  # node slot, beyond twice the nights that a round takes
    failed: tuple[str, ...] = ()  # reasons of cells, each with its place, worst first
    alarms: tuple[HistoryChange, ...] = ()  # standing
    actions: tuple[Action, ...] = ()
    acted: bool
    problems: tuple[str, ...]

    @property
    def calm(self) -> bool:
        """Whether the night needs no attention."""
        return self.outcome == "PASS" and not (self.alarms or self.overdue or self.problems)


def subject(night: Night) -> str:
    """Return one line: the outcome, and what else needs a look."""
    parts = [f"{night.outcome} {night.system} {night.run}"]
    parts += [count(len(night.alarms), "standing alarm")] if night.alarms else []
    drained = [a.node for a in night.actions if a.action == "drain"]
    if drained:
        parts.append(f"{'drained' if night.acted else 'to drain'}: {', '.join(drained)}")
    parts += [count(len(night.problems), "problem")] if night.problems else []
    return printable(", ".join(parts))


def text(night: Night) -> str:
    """Return the morning's text."""
    lines = [
        subject(night),
        night.reason,
        f"{night.measured} of {night.planned} cells measured on {count(len(night.nodes), 'node')} in "
        f"{count(night.shares, 'group')}, {night.started} to {night.ended}",
        f"every node x rail x test has its turn in {count(night.nights_to_cover, 'idle night')}",
        *(f"in acceptance alone: {one}" for one in night.never),
    ]
    if night.not_idle:
        some = ", ".join(f"{n} ({s})" for n, s in list(night.not_idle.items())[:10])
        more = len(night.not_idle) - 10
        lines.append(f"not idle: {some}{f' and {more} more' if more > 0 else ''}")
    for title, found in (
        ("problems", night.problems),
        ("did not pass", [c for c in night.failed if not c.endswith(NOT_REQUIRED)][:20]),
        ("alarms", [_alarm(f) for f in night.alarms[:20]]),
        ("overdue", night.overdue[:20]),
        ("drain", [f"{a.node}: {a.action}: {a.reason}" for a in night.actions[:20]]),
        ("decides nothing", [c for c in night.failed if c.endswith(NOT_REQUIRED)][:20]),
    ):
        if found:
            lines += ["", f"{title}:", *(f"  {line}" for line in found)]
    if night.actions and not night.acted:
        lines.append("  (proposals only: Slurm was not changed)")
    return "\n".join(printable(line) for line in lines) + "\n"


def _alarm(f: HistoryChange) -> str:
    cause = f"; coincides with {f.coincides[0]}" if f.coincides else ""
    slow = "drifts, " if f.kind == "drift" else ""
    return (
        f"{f.node} {f.metric} {slow}{f.shift:+.2%} since {f.time[:10]} "
        f"({number(f.before, f.unit)} -> {number(f.after, f.unit)} {f.unit}){cause}"
    )


def metrics(night: Night) -> str:
    """Return the night for the node exporter's textfile collector."""
    from datetime import datetime

    from shakedown.report.machines import family

    system = {"system": night.system}
    ended = datetime.fromisoformat(night.ended).timestamp()
    outcomes = [o.value for o in Outcome if o not in (Outcome.WAIVED, Outcome.BASELINE)]  # no night's
    drained = [a for a in night.actions if a.action == "drain"]
    return "".join(
        (
            family(
                "shakedown_nightly_outcome",
                "1 for the outcome of the last night, 0 for the three others.",
                ((system | {"outcome": o}, int(o == night.outcome)) for o in outcomes),
            ),
            *(
                family(f"shakedown_nightly_{name}", words, [(system, value)])
                for name, words, value in (
                    ("end_seconds", "When it ended, Unix time.", ended),
                    ("cells_planned", "Cells planned.", night.planned),
                    ("cells_measured", "Cells measured.", night.measured),
                    ("nodes", "Nodes measured.", len(night.nodes)),
                    ("nodes_not_idle", "Nodes left out.", len(night.not_idle)),
                    ("overdue", "Slots of nodes overdue.", len(night.overdue)),
                    ("problems", "Its problems.", len(night.problems)),
                    ("alarms", "Standing alarms.", len(night.alarms)),
                    ("to_drain", "Nodes drained, or proposed to be.", len(drained)),
                )
            ),
            family(
                "shakedown_nightly_alarm_shift",
                "Relative shift of a standing alarm, negative for worse.",
                ((system | {"node": f.node, "metric": f.metric}, f.shift) for f in night.alarms),
            ),
        )
    )


# One way that fails does not keep the others from being tried, and never changes what the night found.

_TIMEOUT_S = 30
SIGNATURE, STAMP = "X-Shakedown-Signature", "X-Shakedown-Timestamp"


def deliver(night: Night, wanted: Delivery) -> list[str]:
    """Deliver in every way that is asked for; return what went wrong, one line each."""
    ways: dict[str, Callable[[Night, Any], None]] = {
        "file": _file,
        "textfile": _textfile,
        "mail": _mail,
        "webhook": _webhook,
    }
    failed = []
    for name, way in ways.items():
        where = getattr(wanted, name)
        if where is None or (night.calm and getattr(where, "only_if_needed", False)):
            continue
        try:
            way(night, where)
        except (OSError, BadInput, smtplib.SMTPException) as error:
            failed.append(f"{name}: {error}")
    return failed


def signature(key: bytes, stamp: str, body: bytes) -> str:
    """Return what proves a webhook's origin: HMAC-SHA256 (RFC 2104) over `stamp`, a dot and the body.

    The receiver computes the same, compares in constant time and refuses a stamp that is minutes old.
    """
    return "sha256=" + hmac.new(key, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _file(night: Night, file: str) -> None:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_aside(path, text(night).encode())
    write_aside(path.with_suffix(".json"), (night.model_dump_json(indent=1) + "\n").encode())


def _textfile(night: Night, file: str) -> None:
    write_aside(Path(file), metrics(night).encode())
    Path(file).chmod(0o644)  # node_exporter is another user


def _mail(night: Night, mail: Mail) -> None:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = subject(night), mail.sender, ", ".join(mail.to)
    message.set_content(text(night))
    with smtplib.SMTP(mail.server, mail.port, timeout=_TIMEOUT_S) as server:
        server.send_message(message)


def _webhook(night: Night, hook: Webhook) -> None:
    body, stamp = night.model_dump_json().encode(), str(int(time.time()))
    headers = {"Content-Type": "application/json", STAMP: stamp}
    headers[SIGNATURE] = signature(_key(Path(hook.key_file)), stamp, body)
    request = urllib.request.Request(hook.url, body, headers, method="POST")  # noqa: S310  (checked when read)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            answer.read(1)
    except urllib.error.HTTPError as error:
        raise BadInput(f"{hook.url} answered {error.code}", fix="does it know the key?") from None


def _key(path: Path) -> bytes:
    mode = path.stat().st_mode
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadInput("others can read the key", fix="chmod 600", file=path)
    key = path.read_bytes().strip()
    if len(key) < 16:
        raise BadInput("the key is shorter than 16 bytes", fix="openssl rand -hex 32", file=path)
    return key

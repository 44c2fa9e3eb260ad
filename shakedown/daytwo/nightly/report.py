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
from typing import Literal

from shakedown.daytwo.draining import Action
from shakedown.daytwo.history.alarms_and_steps import HistoryChange
from shakedown.daytwo.nightly.playbook import Delivery, Mail, Webhook
from shakedown.records.base import Outcome, Record
from shakedown.records.errors import BadInput
from shakedown.records.wording import NOT_REQUIRED, count, number, printable
from shakedown.run.folder import write_aside


class Night(Record):
    """One night, for file, mail and webhook."""

    schema_version: Literal[1] = 1
    system: str
    run: str
    started: str
    ended: str
    outcome: Outcome
    reason: str
    measured: int
    planned: int
    nodes: tuple[str, ...]  # measured tonight
    not_idle: dict[str, str]  # node: what Slurm says of it
    shares: int
    nights_to_cover: int
    overdue: tuple[str, ...]  # node slot, beyond twice the nights that a round takes
    failed: tuple[str, ...]  # reasons of cells, each with its place, worst first
    alarms: tuple[HistoryChange, ...]  # standing
    actions: tuple[Action, ...]
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
            family("shakedown_nightly_end_seconds", "When it ended, Unix time.", [(system, ended)]),
            family("shakedown_nightly_cells_planned", "Cells planned.", [(system, night.planned)]),
            family("shakedown_nightly_cells_measured", "Cells measured.", [(system, night.measured)]),
            family("shakedown_nightly_nodes", "Nodes measured.", [(system, len(night.nodes))]),
            family("shakedown_nightly_nodes_not_idle", "Nodes left out.", [(system, len(night.not_idle))]),
            family("shakedown_nightly_overdue", "Slots of nodes overdue.", [(system, len(night.overdue))]),
            family("shakedown_nightly_problems", "Its problems.", [(system, len(night.problems))]),
            family("shakedown_nightly_alarms", "Standing alarms.", [(system, len(night.alarms))]),
            family(
                "shakedown_nightly_to_drain", "Nodes drained, or proposed to be.", [(system, len(drained))]
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
    ways: list[tuple[str, Callable[[], None]]] = []
    if wanted.file is not None:
        ways.append(("file", lambda: _file(night, Path(wanted.file or ""))))
    if wanted.textfile is not None:
        ways.append(("textfile", lambda: _textfile(night, Path(wanted.textfile or ""))))
    if wanted.mail is not None and not (wanted.mail.only_if_needed and night.calm):
        ways.append(("mail", lambda: _mail(night, wanted.mail)))
    if wanted.webhook is not None and not (wanted.webhook.only_if_needed and night.calm):
        ways.append(("webhook", lambda: _webhook(night, wanted.webhook)))
    failed = []
    for name, way in ways:
        try:
            way()
        except (OSError, BadInput, smtplib.SMTPException) as error:
            failed.append(f"{name}: {error}")
    return failed


def signature(key: bytes, stamp: str, body: bytes) -> str:
    """Return what proves a webhook's origin: HMAC-SHA256 (RFC 2104) over `stamp`, a dot and the body.

    The receiver computes the same, compares in constant time and refuses a stamp that is minutes old.
    """
    return "sha256=" + hmac.new(key, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _file(night: Night, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_aside(path, text(night).encode())
    write_aside(path.with_suffix(".json"), (night.model_dump_json(indent=1) + "\n").encode())


def _textfile(night: Night, path: Path) -> None:
    write_aside(path, metrics(night).encode())
    path.chmod(0o644)  # node_exporter is another user


def _mail(night: Night, mail: Mail | None) -> None:
    assert mail is not None
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = subject(night), mail.sender, ", ".join(mail.to)
    message.set_content(text(night))
    with smtplib.SMTP(mail.server, mail.port, timeout=_TIMEOUT_S) as server:
        server.send_message(message)


def _webhook(night: Night, hook: Webhook | None) -> None:
    assert hook is not None
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

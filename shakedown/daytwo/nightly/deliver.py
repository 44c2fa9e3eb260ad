"""Brings the night's report to people and machines: file, metrics, mail, signed webhook.

One way that fails does not keep the others from being tried, and never changes what the night found.
"""

from __future__ import annotations

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

from shakedown.daytwo.nightly.config import Delivery, Mail, Webhook
from shakedown.daytwo.nightly.report import Night, metrics, subject, text
from shakedown.records.errors import BadInput
from shakedown.run.folder import write_aside

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

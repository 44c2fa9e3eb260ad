"""Watts that BMCs tell."""

from __future__ import annotations

import base64
import http.client
import os
import re
import shutil
import signal
import ssl
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from shakedown.intent.places import parse_strict
from shakedown.records.base import Record, shape
from shakedown.records.reading import BadInput, loads, read_plain
from shakedown.records.wording import FILE_NAME
from shakedown.records.writing import append_line
from shakedown.run.folder import RAW
from shakedown.run.server_power import FOLDER, MOST_WATTS, PowerSample

# Which BMC reads which node, and with what password: a file that stays on the machine that reads them.

_LONGEST_PASSWORD = 256
# Nothing that a program could take for an option, a path or a second address; here `$` is the very end.
_ADDRESS = shape(r"^[A-Za-z0-9][A-Za-z0-9.:-]{0,253}$", "a host name or IP address", "10.0.9.17")
_USER = shape(r"^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,31}$", "a user's name of 32 characters at most", "monitor")
_CHASSIS = shape(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$", "the id of a chassis in Redfish", "System.Embedded.1")
_NODE = shape(f"^{FILE_NAME}$", "a node's name, which is also that of a file", "gpu001")


class Bmc(Record):
    """One node's BMC."""

    through: Literal["redfish", "ipmi"]  # redfish over HTTPS, or ipmitool's lanplus
    address: Annotated[str, _ADDRESS]  # host name or IP address
    user: Annotated[str, _USER]  # who may read power; no more rights are needed
    # Of mode 600; relative to the file that names it.
    password_file: Annotated[str, Field(min_length=1, max_length=1000)]
    # Certificates that Redfish's own must be signed by; none: the system's.
    ca_file: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    # Of Redfish, where a BMC has several that tell a power.
    chassis: Annotated[str, _CHASSIS] | None = None
    port: Annotated[int, Field(gt=0, lt=65536)] | None = None  # where it is not the usual one


class Bmcs(Record):
    """All nodes' BMCs."""

    bmcs: dict[Annotated[str, _NODE], Bmc] = Field(min_length=1)


def read_bmcs(file: Path) -> dict[str, Bmc]:
    """Return the BMCs by node, with paths made whole. Raises BadInput."""
    document, lines = parse_strict(file)
    try:
        found = Bmcs.model_validate(document)
    except ValidationError as error:
        at = error.errors()[0]["loc"]
        while at and at not in lines:
            at = at[:-1]
        # What was given is not repeated: it may be a password in the wrong place.
        key = ".".join(map(str, error.errors()[0]["loc"]))[:200]
        raise BadInput(
            f"{key or 'the file'} is not as expected",
            fix="give bmcs: NODE: {through, address, user, password_file}",
            file=file,
            line=lines.get(at, 1),
        ) from None
    folder = file.parent
    return {
        node: bmc.model_copy(
            update={
                "password_file": str(folder / bmc.password_file),
                "ca_file": str(folder / bmc.ca_file) if bmc.ca_file else None,
            }
        )
        for node, bmc in found.bmcs.items()
    }


def password(bmc: Bmc) -> str:
    """Return a BMC's password.

    Raises:
        BadInput: no such file, one that others can read, or no password in it. What it holds is not said.
    """
    file = Path(bmc.password_file)
    fix = "write the password into a file of mode 600"
    content = read_plain(file, fix)
    if content is None:
        raise BadInput("no such password file", fix=fix, file=file)
    if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadInput("others can read the password", fix="chmod 600", file=file)
    try:
        found = content.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        found = ""
    if not 0 < len(found) <= _LONGEST_PASSWORD or not found.isprintable():
        raise BadInput("holds no password of one line", fix=fix, file=file)
    return found


# Sources: DCMI 1.5, section 6.6.1, Get Power Reading (the words are ipmitool's, lib/ipmi_dcmi.c); DMTF
# DSP0266 and DSP2046, schemas Chassis, EnvironmentMetrics (PowerWatts) and Power (PowerControl, deprecated
# but common).

ROOT = "/redfish/v1/Chassis"
# A path on the same BMC, never another host, another scheme or a way up.
_LINK = re.compile(r"/redfish/v1/[A-Za-z0-9._~()/-]{1,300}\Z")
_DCMI = re.compile(
    r"^[^\S\n]*+Instantaneous power reading[^\S\n]*:[^\S\n]*([0-9]{1,6}) Watts[^\S\n]*$", re.MULTILINE
)
_STATE = re.compile(r"^[^\S\n]*+Power reading state is[^\S\n]*:[^\S\n]*(\w+)[^\S\n]*$", re.MULTILINE)
_MOST_CHASSIS = 16


class NoReading(ValueError):  # noqa: N818  (a BMC without a reading is no error of this program)
    """A BMC gave no power. The text is ours alone: nothing that the BMC wrote is in it."""


def parse_dcmi(text: str) -> float:
    """Return the instantaneous power in watts. Raises NoReading."""
    states = _STATE.findall(text)
    if states and set(states) != {"activated"}:
        raise NoReading("the BMC's power reading is not activated")
    found = _DCMI.findall(text)
    if len(found) != 1:
        raise NoReading("ipmitool printed no power reading")
    return _watts(int(found[0]))


def redfish_power(get: Callable[[str], bytes], chassis: str | None = None) -> float:
    """Return the power of a server in watts.

    Args:
        get: returns what the BMC answers under a path; raises NoReading.
        chassis: the one to read; None: all are asked, and one alone may have a reading.

    Raises:
        NoReading: no chassis tells a power, several do, or an answer is no such resource.
    """
    if chassis is not None:
        paths = [f"{ROOT}/{chassis}"]
    else:
        members = _object(get(ROOT)).get("Members")
        if not isinstance(members, list) or not 0 < len(members) <= _MOST_CHASSIS:
            raise NoReading("the BMC lists no chassis")
        paths = [_link(member) for member in members]
    found = [watts for path in paths if (watts := _of_chassis(get, path)) is not None]
    if len(found) != 1:
        raise NoReading(f"{len(found)} chassis tell a power: name one as chassis")
    return found[0]


def _of_chassis(get: Callable[[str], bytes], path: str) -> float | None:
    resource = _object(get(path))
    if "EnvironmentMetrics" in resource:
        metrics = _object(get(_link(resource["EnvironmentMetrics"])))
        if (power := metrics.get("PowerWatts")) is not None:
            reading = power.get("Reading") if isinstance(power, Mapping) else None
            if reading is not None:
                return _watts(reading)
    if "Power" in resource:
        controls = _object(get(_link(resource["Power"]))).get("PowerControl")
        if isinstance(controls, list) and controls and isinstance(controls[0], Mapping):
            # The first is the whole chassis; the others are parts of it.
            reading = controls[0].get("PowerConsumedWatts")
            return None if reading is None else _watts(reading)
    return None


def _object(content: bytes) -> Mapping[str, Any]:
    try:
        found = loads(content)
    except ValueError:
        raise NoReading("the BMC's answer is no JSON") from None
    if not isinstance(found, Mapping):
        raise NoReading("the BMC's answer is no resource")
    return found


def _link(reference: object) -> str:
    path = reference.get("@odata.id") if isinstance(reference, Mapping) else None
    if not isinstance(path, str) or not _LINK.fullmatch(path) or ".." in path or "//" in path:
        raise NoReading("the BMC's answer links to no resource of its own")
    return path


def _watts(number: object) -> float:
    """Return a power that a server can draw."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= MOST_WATTS:
        raise NoReading(f"the BMC's power is not between 0 and {MOST_WATTS} W")
    return float(number)


# Reads a BMC once. The password goes to ipmitool in its environment, and to Redfish in a header over TLS.

TIMEOUT_S = 10
_LONGEST_ANSWER = 1 << 20
Reader = Callable[[], float]


def reader(bmc: Bmc) -> Reader:
    """Return what reads a BMC: watts, or it raises NoReading.

    Raises:
        BadInput: no password, no ipmitool, or certificates that cannot be read.
    """
    secret = password(bmc)
    return _redfish(bmc, secret) if bmc.through == "redfish" else _ipmi(bmc, secret)


def _ipmi(bmc: Bmc, secret: str) -> Reader:
    program = shutil.which("ipmitool")
    if program is None:
        raise BadInput("ipmitool is not installed", fix="install it, or read this BMC through redfish")
    # -E: the password is in IPMI_PASSWORD, which other users cannot see as they see arguments.
    command = [program, "-I", "lanplus", "-H", bmc.address, "-U", bmc.user, "-E"]
    command += ["-p", str(bmc.port)] if bmc.port else []
    variables = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "IPMI_PASSWORD": secret}

    def read() -> float:
        try:
            done = subprocess.run(
                [*command, "dcmi", "power", "reading"],
                capture_output=True,
                check=False,
                timeout=TIMEOUT_S,
                stdin=subprocess.DEVNULL,
                env=variables,
            )
        except (OSError, subprocess.TimeoutExpired):
            raise NoReading(f"ipmitool did not answer within {TIMEOUT_S} s") from None
        if done.returncode:
            raise NoReading(f"ipmitool ended with {done.returncode}")
        return parse_dcmi(done.stdout[:_LONGEST_ANSWER].decode("utf-8", errors="replace"))

    return read


def _redfish(bmc: Bmc, secret: str) -> Reader:
    try:
        trust = ssl.create_default_context(cafile=bmc.ca_file)
    except (OSError, ssl.SSLError):
        raise BadInput("holds no certificates", fix="name a PEM file", file=bmc.ca_file or "") from None
    token = base64.b64encode(f"{bmc.user}:{secret}".encode()).decode()
    headers = {"Authorization": f"Basic {token}", "Accept": "application/json"}

    def read() -> float:
        # One connection a reading. http.client follows no redirection, so the header goes to this host alone.
        connection = http.client.HTTPSConnection(
            bmc.address, bmc.port or 443, timeout=TIMEOUT_S, context=trust
        )

        def get(path: str) -> bytes:
            try:
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
                content = answer.read(_LONGEST_ANSWER + 1)
            except ssl.SSLCertVerificationError:
                raise NoReading("the BMC's certificate is not trusted: give ca_file") from None
            except (OSError, http.client.HTTPException):
                raise NoReading("the BMC did not answer") from None
            if answer.status != http.HTTPStatus.OK:
                raise NoReading(f"the BMC answered {answer.status}")
            if len(content) > _LONGEST_ANSWER:
                raise NoReading("the BMC's answer is too long")
            return content

        try:
            return redfish_power(get, bmc.chassis)
        finally:
            connection.close()

    return read


# Reads all BMCs again and again while a run measures; each node's readings go into a file of its own.


def sample(
    run: Path, readers: Mapping[str, Reader], *, every_s: float, for_s: float, stop: threading.Event
) -> dict[str, tuple[int, int]]:
    """Read until the time is over or `stop` is set; return (readings, failures) by node.

    A slow or dead BMC delays its own node's readings alone.
    """
    folder = run / RAW / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    counts: dict[str, tuple[int, int]] = dict.fromkeys(readers, (0, 0))
    until = time.monotonic() + for_s

    ended = {node: threading.Event() for node in readers}

    def follow(node: str) -> None:
        try:
            read_until_told(node)
        finally:
            ended[node].set()

    def read_until_told(node: str) -> None:
        good = bad = 0
        while True:
            begun = time.monotonic()
            found = _once(readers[node])
            kept = found.watts is not None
            try:
                append_line(
                    folder / f"{node}.jsonl", found.model_dump_json(by_alias=True, exclude_none=True).encode()
                )
            except OSError:  # a full disk loses this reading, and the next one is tried
                kept = False
            good, bad = good + kept, bad + (not kept)
            counts[node] = good, bad
            pause = max(0.0, begun + every_s - time.monotonic())
            if time.monotonic() + pause >= until or stop.wait(pause):
                return

    if threading.current_thread() is threading.main_thread():
        # A script that starts this in the background lets it ignore Ctrl-C; what ends it keeps its readings.
        for how in (signal.SIGINT, signal.SIGTERM):
            signal.signal(how, signal.default_int_handler)
    # Not by joining the threads: Python 3.11 takes one for ended when a signal comes in `join` (bpo-45274).
    try:
        for node in readers:
            threading.Thread(target=follow, args=(node,), daemon=True).start()
        for one in ended.values():
            # A BMC that sends a byte now and then must not keep the command; the limit lets Ctrl-C be heard.
            while not one.wait(0.2) and time.monotonic() < until + 2 * TIMEOUT_S:
                pass
    except KeyboardInterrupt:
        stop.set()
        for one in ended.values():
            one.wait(2 * TIMEOUT_S)  # a reading that has begun ends by itself
    return counts


def _once(read: Reader) -> PowerSample:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    try:
        return PowerSample(time=now, watts=read())
    except NoReading as none:
        return PowerSample(time=now, problem=str(none)[:200])

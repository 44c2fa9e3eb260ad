"""Which BMC reads which node, and with what password: a file that stays on the machine that reads them."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from shakedown.records.base import Record
from shakedown.records.errors import BadInput
from shakedown.records.names import FILE_NAME
from shakedown.records.shapes import shape
from shakedown.records.untrusted import read_plain
from shakedown.records.yaml_lines import parse_strict

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

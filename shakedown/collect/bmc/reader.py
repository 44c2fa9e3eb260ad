"""Reads a BMC once. The password goes to ipmitool in its environment, and to Redfish in a header over TLS."""

from __future__ import annotations

import base64
import http.client
import os
import shutil
import ssl
import subprocess
from collections.abc import Callable

from shakedown.collect.bmc.config import Bmc, password
from shakedown.collect.bmc.readings import NoReading, parse_dcmi, redfish_power
from shakedown.records.errors import BadInput

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

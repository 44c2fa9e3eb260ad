"""Server power from BMCs: what they say, how they are asked, and where passwords never are.

The BMCs here are a small HTTPS server and a script in ipmitool's place; no real BMC was asked.
"""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shakedown.collect.server_watts import (
    Bmc,
    NoReading,
    parse_dcmi,
    password,
    read_bmcs,
    reader,
    redfish_power,
)
from shakedown.records.reading import BadInput
from shakedown.run.server_power import power_during
from tests.kit.bmc import CHASSIS, POWER, ROOT, TREE, make_certificate, redfish
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.run import gather
from tests.unit.daytwo.sweep_runs import write_run

SECRET = "correct-horse/battery"  # noqa: S105  (made for these tests)
DCMI = """
    Instantaneous power reading:                  1393 Watts
    Minimum during sampling period:                 12 Watts
    Maximum during sampling period:               1502 Watts
    Average power reading over sample period:     1200 Watts
    IPMI timestamp:                           Mon Nov 23 11:00:00 2026
    Sampling period:                          00000005 Seconds.
    Power reading state is:                   activated

"""


def test_dcmi():
    """Catches: the average or the maximum taken for what is drawn now."""
    assert parse_dcmi(DCMI) == 1393


@cases(
    "text",
    "",
    DCMI.replace("activated", "deactivated"),
    DCMI.replace("1393", "0"),
    DCMI.replace("1393", "999999"),
    DCMI.replace("1393", "-5"),
    DCMI.replace("1393", "1e3"),
    DCMI + DCMI,
    "Instantaneous power reading: 12 Watts; rm -rf /",
    "DCMI request failed because: Invalid command\n",
)
def test_what_is_no_dcmi_reading_is_none(text):
    """Catches: a dead, foreign or doubled answer read as a power."""
    with pytest.raises(NoReading):
        parse_dcmi(text)


def of(tree: dict) -> float:
    """Read a tree of resources."""
    return redfish_power(lambda path: json.dumps(tree[path]).encode())


def test_redfish_reads_the_metrics_and_else_the_older_resource():
    """Catches: a part of the chassis taken for the whole, the older resource over the newer."""
    assert of(TREE) == 1393.2
    assert of({**TREE, CHASSIS: POWER}) == 1390
    assert of({**TREE, f"{CHASSIS}/EnvironmentMetrics": {"PowerWatts": None}}) == 1390
    assert redfish_power(lambda path: json.dumps(TREE[path]).encode(), "System.Embedded.1") == 1393.2


@cases(
    "path, resource",
    (ROOT, {}),
    (ROOT, []),
    (ROOT, {"Members": [{"@odata.id": CHASSIS}] * 2}),
    (ROOT, {"Members": [{"@odata.id": CHASSIS}] * 1000}),
    (ROOT, {"Members": [{"@odata.id": "https://elsewhere/redfish/v1/Chassis/1"}]}),
    (ROOT, {"Members": [{"@odata.id": "//elsewhere/redfish/v1/Chassis/1"}]}),
    (ROOT, {"Members": [{"@odata.id": "/redfish/v1/../../etc/passwd"}]}),
    (ROOT, {"Members": [{"@odata.id": f"{CHASSIS}\r\nHost: elsewhere"}]}),
    (ROOT, {"Members": [7]}),
    (CHASSIS, {"Name": "neither"}),
    (f"{CHASSIS}/EnvironmentMetrics", {"PowerWatts": {"Reading": True}}),
    (f"{CHASSIS}/EnvironmentMetrics", {"PowerWatts": {"Reading": "1393"}}),
    (f"{CHASSIS}/EnvironmentMetrics", {"PowerWatts": {"Reading": float("nan")}}),
    (f"{CHASSIS}/EnvironmentMetrics", {"PowerWatts": {"Reading": 1e9}}),
    (f"{CHASSIS}/EnvironmentMetrics", {"PowerWatts": {"Reading": 0}}),
)
def test_a_hostile_or_broken_bmc_gives_no_reading(path, resource):
    """Catches: a link to another host that would get the password, a number that no server draws."""
    with pytest.raises(NoReading):
        of({**TREE, path: resource})


@pytest.mark.parametrize("content", [b"", b"<html>", b"\xff", b"[" * 100_000, b"{" * 5])
def test_what_is_no_json_gives_no_reading(content):
    """Catches: a traceback for an error page, a recursion without end."""
    with pytest.raises(NoReading):
        redfish_power(lambda _: content)


@pytest.fixture
def bmc(tmp_path) -> dict:
    """What a file of BMCs says of one."""
    file = tmp_path / "bmc.password"
    file.write_text(SECRET + "\n")
    file.chmod(0o600)
    return {"address": "localhost", "user": "monitor", "password_file": str(file)}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    """A certificate of localhost with its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server(certificate) -> Iterator[tuple[int, dict, list]]:
    """A BMC over HTTPS."""
    with redfish(certificate) as served:
        yield served


def test_redfish_over_tls(bmc, server, certificate):
    """Catches: a password sent before the certificate is checked, a redirection that takes it elsewhere."""
    port, tree, asked = server
    given = {**bmc, "through": "redfish", "port": port}
    with pytest.raises(NoReading, match="not trusted"):
        reader(Bmc(**given))()
    assert not asked
    read = reader(Bmc(**given, ca_file=str(certificate / "ca.pem")))
    assert read() == 1393.2
    token = base64.b64encode(f"monitor:{SECRET}".encode()).decode()
    assert {header for _, header in asked} == {f"Basic {token}"}
    for status in (302, 401, 500):
        tree[ROOT] = status
        with pytest.raises(NoReading, match=f"answered {status}"):
            read()
    tree[ROOT] = {"Members": "x" * (1 << 20)}
    with pytest.raises(NoReading, match="too long"):
        read()


@pytest.fixture
def ipmitool(tmp_path, monkeypatch) -> Path:
    """A script in ipmitool's place that notes how it was called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "answer").write_text(DCMI)
    script = ["#!/bin/sh", f'echo "$@" > {folder}/argv', f'[ "$IPMI_PASSWORD" = "{SECRET}" ] || exit 9']
    script.append(f"cat {folder}/answer")
    (folder / "ipmitool").write_text("\n".join(script) + "\n")
    (folder / "ipmitool").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def test_ipmi_gets_its_password_in_the_environment_alone(bmc, ipmitool):
    """Catches: a password among arguments, which every user of the machine can list."""
    read = reader(Bmc(**bmc, through="ipmi"))
    assert read() == 1393
    argv = (ipmitool / "argv").read_text()
    assert argv == "-I lanplus -H localhost -U monitor -E dcmi power reading\n"
    Path(bmc["password_file"]).write_text("another")
    with pytest.raises(NoReading, match="ipmitool ended with 9"):
        reader(Bmc(**bmc, through="ipmi"))()


@cases(
    "change",
    {"address": "-Hevil"},
    {"address": "a b"},
    {"address": "a/b"},
    {"address": "a@b"},
    {"user": "-U"},
    {"user": "a\nb"},
    {"through": "telnet"},
    {"chassis": "../.."},
    {"password": SECRET},
)
def test_a_file_of_bmcs_that_is_none_is_refused_without_its_values(change, bmc, tmp_path):
    """Catches: an address that is an option, a password in the file itself and then in the message."""
    file = tmp_path / "bmcs.yml"
    file.write_text(json.dumps({"bmcs": {"n1": {**bmc, "through": "ipmi", **change}}}, indent=1))
    with pytest.raises(BadInput) as told:
        read_bmcs(file)
    assert "bmcs.n1." in str(told.value) and str(next(iter(change.values()))) not in str(told.value)


def test_a_pipe_of_bmcs_is_refused(tmp_path):
    """Catches: a wait for a pipe that nobody writes."""
    os.mkfifo(tmp_path / "pipe")
    refused("is no plain file", read_bmcs, tmp_path / "pipe")


def test_a_password_that_others_can_read_is_refused(bmc):
    """Catches: a secret that is none; and what is no password, said without it."""
    file = Path(bmc["password_file"])
    assert password(Bmc(**bmc, through="ipmi")) == SECRET
    file.chmod(0o640)
    refused("others can read", password, Bmc(**bmc, through="ipmi"))
    file.chmod(0o600)
    for content in (b"", b"two\nlines\n", b"\xff\xfe", b"x" * 300):
        file.write_bytes(content)
        refused("no password of one line", password, Bmc(**bmc, through="ipmi"))
    file.unlink()
    refused("no such password file", password, Bmc(**bmc, through="ipmi"))


@pytest.mark.slow
def test_the_command_reads_every_node_and_keeps_no_secret(
    bmc, ipmitool, server, certificate, tmp_path, shakedown
):
    """Catches: a node without readings that looks read, a password or an address in the run's folder."""
    run = write_run(tmp_path / "run", {"all_reduce": {8: (1.0,)}}, nodes=("n1", "n2"))
    redfish = {**bmc, "through": "redfish", "port": server[0], "ca_file": str(certificate / "ca.pem")}
    file = tmp_path / "bmcs.yml"
    file.write_text(json.dumps({"bmcs": {"n1": redfish, "n2": {**bmc, "through": "ipmi"}}}))
    arguments = ("power", run, "--bmcs", file, "--seconds", "2", "--every", "0.5")
    status, out, error = shakedown(*arguments)
    assert (status, error) == (0, "")
    lines = {n: (run / f"raw/server_power/{n}.jsonl").read_text().splitlines() for n in ("n1", "n2")}
    assert [line.split(":")[0] for line in out.splitlines()] == ["n1", "n2"]
    assert {json.loads(line)["watts"] for line in lines["n1"]} == {1393.2} and len(lines["n1"]) >= 2
    assert {json.loads(line)["watts"] for line in lines["n2"]} == {1393.0}
    (ipmitool / "answer").write_text("DCMI request failed\n")
    for path in (run / "raw/server_power").iterdir():
        path.unlink()
    status, out, error = shakedown(*arguments)
    assert (status, error) == (3, "") and "n2: 0 readings, " in out
    kept = "".join(path.read_text() for path in run.rglob("*") if path.is_file()) + out + error
    token = base64.b64encode(f"monitor:{SECRET}".encode()).decode()
    assert not [secret for secret in (SECRET, token, "monitor", "localhost") if secret in kept]
    file.write_text(json.dumps({"bmcs": {"n1": redfish}}))
    status, out, error = shakedown(*arguments)
    assert (status, out, error.count("\n"), "no BMC of n2" in error) == (2, "", 1, True)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_reading_in_the_background_ends_when_it_is_told_to(how, bmc, ipmitool, tmp_path):
    """Catches: a reader that a script started with `&`, which ignores Ctrl-C and cannot be ended well."""
    run = write_run(tmp_path / "run", {"all_reduce": {8: (1.0,)}}, nodes=("n1",))
    file = tmp_path / "bmcs.yml"
    file.write_text(json.dumps({"bmcs": {"n1": {**bmc, "through": "ipmi"}}}))
    words = ("power", run, "--bmcs", file, "--seconds", "60", "--every", "0.5")
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]  # as a shell starts what stands before an `&`
    argv = [*ignoring, sys.executable, "-m", "shakedown", *map(str, words)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        deadline = time.monotonic() + 50
        while not (run / "raw/server_power/n1.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        child.send_signal(how)
        told, _ = child.communicate(timeout=15)
    assert re.search(r"n1: [1-9]\d* readings", told), told


def test_no_ipmitool_is_said(bmc, tmp_path, monkeypatch):
    """Catches: a traceback where ipmitool is not installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    refused("ipmitool is not installed", reader, Bmc(**bmc, through="ipmi"))


def readings(folder: Path, watts: list[float | None]) -> Path:
    """Readings of n1, one a second from 12:00:00 on."""
    file = folder / "server_power" / "n1.jsonl"
    file.parent.mkdir(exist_ok=True)
    lines = [
        {"schema": 1, "time": f"2026-11-20T12:{s // 60:02}:{s % 60:02}Z"}
        | ({"problem": "the BMC did not answer"} if w is None else {"watts": w})
        for s, w in enumerate(watts)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_power_is_the_median_of_the_time_under_load(tmp_path):
    """Catches: start-up, idle or another test in the mean; too few readings that decide."""
    during = ("n1", "2026-11-20T12:00:10Z", 60.0)
    raw = readings(tmp_path, [300.0] * 34 + [1393.0] * 36 + [300.0] * 20)
    assert power_during(raw, *during) == (1393.0, "n1 1393.0 W of 34 readings")
    value, why = power_during(readings(tmp_path, [None] * 90), *during)
    assert (
        value is None and "0 readings of n1's BMC while it ran, 5 are needed (the BMC did not answer)" in why
    )
    assert power_during(readings(tmp_path, [1393.0] * 38), *during)[0] is None
    shutil.rmtree(tmp_path / "server_power")
    assert power_during(tmp_path, *during)[1].startswith("n1's BMC was not read: start `shakedown power`")


@pytest.mark.parametrize(
    "line", ['{"schema": 1, "time": "x", "watts": 1}', '{"schema": 1, "time": "2026-11-20T12:00:00Z"}', "[]"]
)
def test_a_forged_reading_is_refused(line, tmp_path):
    """Catches: a damaged line that is passed over."""
    raw = readings(tmp_path, [1.0])
    (raw / "server_power/n1.jsonl").write_text(line + "\n")
    with pytest.raises(BadInput):
        power_during(raw, "n1", "2026-11-20T12:00:10Z", 60.0)


def test_readings_become_a_measurement_of_the_load(tmp_path):
    """Catches: power of another node or time, of one server where two ran, or none without a word.

    The published watts are of the two servers together: 1,376 W of each passed all 18 figures."""
    sizes = {"all_reduce": {1 << 20: (100.0,)}}
    run = write_run(tmp_path / "run", sizes, nodes=("n1", "n2"), order={"server_power": True})
    (journal,) = (run / "raw").glob("*/outputs.jsonl")
    line = json.loads(journal.read_text()) | {"started": "2026-11-20T12:00:00Z", "duration_s": 60.0}
    journal.write_text(json.dumps(line) + "\n")

    def measured() -> tuple[float | None, str | None]:
        (found,) = (m for m in gather(run)[0] if m.metric == "server_power")
        return found.value, found.detail

    readings(run / "raw", [1393.0] * 90)
    missing = "n2's BMC was not read: start `shakedown power` before the run"
    assert measured() == (None, f"n1 1393.0 W of 34 readings; {missing}")
    first = run / "raw/server_power/n1.jsonl"
    for other, together in (("696.6", 1393.2), ("1376.0", 2072.6)):
        first.write_text(first.read_text().replace("1393.0", "696.6"))
        (run / "raw/server_power/n2.jsonl").write_text(first.read_text().replace("696.6", other))
        assert measured() == (together, f"n1 696.6 W of 34 readings; n2 {other} W of 34 readings")

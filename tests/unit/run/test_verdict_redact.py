"""Secrets never reach a file that is kept, and measurements are never damaged."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shakedown.run.redact import redact

SECRET = "s3cr3t-V4lue_x"  # noqa: S105  (made up)


@pytest.mark.parametrize(
    "text",
    [
        f"HF_TOKEN={SECRET}",
        f"export AWS_SECRET_ACCESS_KEY='{SECRET}'",
        f'declare -x WANDB_API_KEY="{SECRET} and more {SECRET}"',
        f"MUNGE_KEY={SECRET}",
        f"mysql --password={SECRET} -u slurm",
        f"mysql --password {SECRET} -u slurm",
        f"curl -H 'Authorization: Bearer {SECRET}'",
        f"Authorization: Basic {SECRET}",
        f"proxy-authorization: Digest {SECRET}, more={SECRET}",
        f"Set-Cookie: session={SECRET}; path=/",
        f"password: correct {SECRET} battery",
        f"password: \\d {SECRET}",
        f'{{"db_password": "{SECRET}", "a": 1}}',
        f'{{"db_password": "a\\"{SECRET}", "a": 1}}',
        f"{{'api_key': '{SECRET}'}}",
        '"{\\"apiKey\\": \\"' + SECRET + '\\"}"',
        f"https://user:{SECRET}@example.org/x",
        f"git clone https://{SECRET}@example.org/x.git",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n-----END OPENSSH PRIVATE KEY-----",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}",
        f'"env":["A=1","X={SECRET}"],"n":1',
        f'"env" : {{"X": "{SECRET}"}}',
        f'"env":["A=1","X={SECRET}',
        f"environ({{'HOME': '/root', 'X': '{SECRET}'}})",
        f"HOME=/root\nLANG=C\nX={SECRET}\nPATH=/bin\n",
        f"token={SECRET}\nSPEED=1",
        f'{{"registry_credentials": {{"user": "x", "data": ["{SECRET}"]}}, "a": 1}}',
        f"login failed for token:{SECRET}",
        "hf_abcdefghijklmnopqrstuvwxyz0123",
        "ghp_abcdefghijklmnopqrstuvwxyz0123",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc",
        "password=1234567",
        '"passwd": 1234567',
    ],
)
def test_secret_is_removed(text):
    """Catches a kind of secret that is let through."""
    clean = redact(text)
    for secret in (SECRET, "abcdefghijklmnop", "AKIA", "1234567", "eyJzdW"):
        assert secret not in clean


@pytest.mark.parametrize(
    "text",
    [
        " 65536      5000             391.31             391.28             0.746302",
        " 8589934592 2147483648 float sum -1 35286.6 243.43 365.15 0 35265.7 243.58 365.37 0",
        "local address: LID 0000 QPN 0x0127 PSN 0x4a5b RKey 0x1820be VAddr 0x7f",
        '{"step": 10, "tokens": 17, "tokens_per_s": 390.1, "seconds_per_token": 0.002, "loss": 0.93}',
        '{"eos_token": 2, "use_auth_token": false, "key": "value"}',
        "seconds_per_token: 0.02, tokens: 5",
        "NCCL_DEBUG=INFO\nNCCL_ALGO=Ring\nNCCL_IB_HCA=mlx5\nNCCL_IB_GID_INDEX=3\nNCCL_IB_TC=106",
        "n1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
        "     rx_prio3_pause: 0\n     tx_discards_phy: 12\n     rx_out_of_buffer: 0",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFb alice@site",
        "password=\nnext: 390.1",
    ],
)
def test_measurements_survive(text):
    """Catches a pattern so wide that it destroys results."""
    assert redact(text) == text


def test_real_nccl_json_keeps_everything_but_its_environment():
    """Catches an environment dump that stays, and a JSON file that no longer parses."""
    document = {
        "version": 3,
        "env": ["LANG=C.UTF-8", "EXAMPLE_TOKEN=must-not-be-kept", 'Q="]}'],
        "config": {"env": {"A": ["must-not-be-kept"]}, "ngpus": 4},
        "results": [{"size": 8, "out_of_place": {"bus_bw": 0.000654, "nwrong": 0.0}}],
    }
    for indent in (None, 2):
        clean = redact(json.dumps(document, indent=indent))
        assert "must-not-be-kept" not in clean
        expected = {**document, "env": [], "config": {"env": {}, "ngpus": 4}}
        assert json.loads(clean) == expected


def test_json_with_secrets_still_parses():
    """Catches redaction that breaks the format around the secret."""
    document = {"api_key": SECRET, "note": f"token={SECRET}, done", "pin_password": 4711, "bw": 390.1}
    clean = json.loads(redact(json.dumps(document)))
    assert clean["bw"] == 390.1 and SECRET not in json.dumps(clean)


PIECES = st.sampled_from(
    [
        "password",
        "TOKEN",
        "_key",
        "=",
        ": ",
        '"',
        "\\",
        "'",
        "\n",
        " ",
        "a",
        "9",
        "--",
        "Bearer ",
        "://",
        "@",
        ",",
    ]
) | st.sampled_from(['"env":', "[", "]", "{", "}", "-----BEGIN PRIVATE KEY-----", "PATH=", "X=1\n"])


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join))
def test_redacting_twice_changes_nothing(text):
    """Catches a mask that is itself taken for something else, and any crash."""
    once = redact(text)
    assert redact(once) == once


@pytest.mark.parametrize(
    ("piece", "times"),
    [
        ("a", 200_000),
        ("a.-_", 50_000),
        ("token", 40_000),
        ("\\", 100_000),
        ('"', 100_000),
        ("token='", 20_000),
        ('"env":{', 1_000),
        ('"x_token":[', 1_000),
        ("a://", 50_000),
        ("password: ", 20_000),
        ("A=1\n", 30_000),
        ("environ({", 20_000),
        ("-----BEGIN PRIVATE KEY-----", 5_000),
        ("eyJa", 50_000),
        ("eyJaaaaaaaa-", 100_000),
        ("eyJaaaaaaaa.", 50_000),
    ],
)
def test_hostile_text_takes_linear_time(piece, times):
    """Catches catastrophic backtracking: quadratic time would take minutes here."""
    started = time.process_time()
    redact(piece * times)
    assert time.process_time() - started < 10


def test_an_honest_log_is_read_quickly():
    """Catches: every expression tried at every place of a log that holds no secret, 1.8 MB/s."""
    lines = [
        line
        for path in sorted((Path(__file__).parents[1] / "benchmarks" / "outputs").rglob("*.txt"))
        for line in path.read_text(errors="replace").splitlines()
    ]
    text = "\n".join(random.Random(1).choices(lines, k=100_000))
    started = time.process_time()
    redact(text)
    assert len(text) / (time.process_time() - started) > 10e6


def test_no_capture_is_damaged():
    """Catches redaction of anything in real tool output but its environment."""
    for path in sorted((Path(__file__).parents[1] / "benchmarks" / "outputs").rglob("*.txt")):
        text = path.read_text(errors="replace")
        assert redact(text) == text, path.name

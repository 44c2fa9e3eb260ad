"""What a node signs with its host key: its own lines about digests, a chain for each user and order."""

import hashlib
import json
import os
import socket
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from host_settings import environment, signer
from host_settings.system import System

from shakedown.evidence.signatures import key_of
from shakedown.onnode import noted
from shakedown.run import service
from tests.kit.key import NEEDS_SSH_KEYGEN, make_key

pytestmark = NEEDS_SSH_KEYGEN
ORDER, OUTPUTS = "a" * 64, "b" * 64
UNITS = Path(__file__).parents[4] / "roles/host_settings/files/systemd"


@pytest.fixture
def node(tmp_path) -> System:
    """Return a node with a host key."""
    (tmp_path / "etc/ssh").mkdir(parents=True)
    make_key(tmp_path / "etc/ssh", "ssh_host_ed25519_key")
    (tmp_path / "etc/machine-id").write_text("0123456789abcdef\n")
    return System(str(tmp_path))


def answer(node: System, request: bytes) -> dict:
    """Return what the service answers to some bytes."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        mine.sendall(request)
        mine.shutdown(socket.SHUT_WR)
        return json.loads(signer.serve(node, theirs.fileno()))


def test_a_line_is_signed_in_one_namespace_and_names_the_one_before(node):
    """Catches: a signature that ssh or another tool would take, and links that can be taken out."""
    first, second = (answer(node, (ORDER + OUTPUTS).encode()) for _ in range(2))
    links = [json.loads(found["link"]) for found in (first, second)]
    assert [link["number"] for link in links] == [1, 2]
    assert links[0]["before"] == "0" * 64
    assert links[1]["before"] == hashlib.sha256(first["link"].encode()).hexdigest()
    assert links[0]["uid"] == os.getuid() and links[0]["digest"] == OUTPUTS
    key = key_of(first["signature"], first["link"].encode())
    assert key.startswith("SHA256:")
    assert not key_of(first["signature"], second["link"].encode())
    file = Path(node.root) / "sig"
    file.write_text(first["signature"])
    other = ["ssh-keygen", "-Y", "check-novalidate", "-n", "file", "-s", str(file)]
    assert subprocess.run(other, input=first["link"].encode(), capture_output=True, check=False).returncode


@pytest.mark.parametrize(
    "request_",
    [b"", b"a" * 127, b"A" * 128, b"a" * 127 + b"\n", b"../../etc/shadow" * 8, b"\0" * 128, b"?" * 128],
)
def test_nothing_else_is_taken(node, request_):
    """Catches: bytes of a user's own choice that are signed, or a service that a line makes fall over."""
    assert "128 hexadecimal characters" in answer(node, request_)["error"]
    assert not (Path(node.root) / "var/lib/shakedown-sign/chains.json").exists()


def test_who_sends_nothing_is_not_waited_for(node, monkeypatch):
    """Catches: connections held open that keep jobs from being signed."""
    monkeypatch.setattr(signer, "_WAIT_S", 0.05)
    mine, theirs = socket.socketpair()
    with mine, theirs:
        assert "error" in json.loads(signer.serve(node, theirs.fileno()))


def test_one_user_cannot_fill_it(node, monkeypatch):
    """Catches: a user who signs for orders of his own until no job's outputs can be signed."""
    monkeypatch.setattr(signer, "MOST_OF_A_USER", 2)
    known = {uid: SimpleNamespace(pw_uid=uid) for uid in (1000, 1001)}
    monkeypatch.setattr(signer.pwd, "getpwuid", known.__getitem__)
    for number in range(2):
        signer.signed(node, f"{number:064x}", OUTPUTS, 1000)
    for uid in (100_000, 100_001):  # of a namespace of the same user's: ids that nobody has
        signer.signed(node, "f" * 64, OUTPUTS, uid)
    with pytest.raises(signer.Refused, match="for users whom this host does not know"):
        signer.signed(node, "f" * 64, OUTPUTS, 100_002)
    with pytest.raises(signer.Refused, match="user 1000"):
        signer.signed(node, "f" * 64, OUTPUTS, 1000)
    assert json.loads(signer.signed(node, "f" * 64, OUTPUTS, 1001)["link"])["number"] == 1
    assert json.loads(signer.signed(node, f"{0:064x}", OUTPUTS, 1000)["link"])["number"] == 2


def test_a_damaged_state_is_no_new_chain(node):
    """Catches: a chain that begins anew without a word."""
    signer.signed(node, ORDER, OUTPUTS, 1000)
    state = Path(node.root) / "var/lib/shakedown-sign/chains.json"
    state.write_text(state.read_text()[:20])
    with pytest.raises(signer.Refused, match="is damaged"):
        signer.signed(node, ORDER, OUTPUTS, 1000)


def test_a_busy_service_is_asked_again(node, tmp_path, monkeypatch):
    """Catches: outputs left unsigned because systemd turned a connection away."""
    monkeypatch.setattr(service, "_BETWEEN_S", 0.01)
    path = str(tmp_path / "s")
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    server.listen(4)

    def serve() -> None:
        with server:
            for turned_away in (True, True, False):
                connection, _ = server.accept()
                with connection:
                    if not turned_away:
                        connection.sendall(signer.serve(node, connection.fileno()).encode())

    threading.Thread(target=serve, daemon=True).start()
    found = service.sign(ORDER + OUTPUTS, path, 20)
    assert json.loads(found["link"])["digest"] == OUTPUTS


def test_the_unit_can_do_nothing_else():
    """Catches: a service of root with rights that signing does not need, or that many connects stop."""
    unit = (UNITS / "host-settings-sign@.service").read_text()
    assert "ExecStart=/usr/local/libexec/shakedown/host-settings sign\n" in unit
    for due in (
        "CapabilityBoundingSet=CAP_CHOWN\n",
        "ReadWritePaths=/run/shakedown/notes\n",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "RuntimeMaxSec=",
    ):
        assert due in unit
    for name in environment._SOCKETS:
        # systemd.socket(5): 200 connects in two seconds are the default limit, and it does not come back.
        assert "TriggerLimitIntervalSec=0\n" in (UNITS / name).read_text()
    # A user's notes fill no file system of the host's own, and go when the service does.
    mount = (UNITS / "run-shakedown-notes.mount").read_text()
    assert f"Where={signer.NOTES}\n" in mount and "size=64m,nosuid,nodev,noexec" in mount
    assert "PartOf=host-settings-sign.socket\n" in mount and "mode=0755" in mount
    assert f"RequiresMountsFor={signer.NOTES}\n" in unit and str(noted.PLACE) == signer.NOTES

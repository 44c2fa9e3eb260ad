"""Hosts that cannot sign for an order are named before its first job."""

import hashlib
import io
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from host_settings import signer
from host_settings.system import System
from ordered import make_machine

from shakedown.evidence import able_to_sign, signatures
from shakedown.evidence.signatures import Order
from shakedown.records.base import to_json
from shakedown.run.folder import ORDER
from shakedown.run.service import TRIAL
from tests.kit.cases import cases
from tests.kit.key import NEEDS_SSH_KEYGEN, make_key

HERE = Path(__file__).parent


pytestmark = NEEDS_SSH_KEYGEN


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """Two nodes, a submit host, and a machine that is none of them."""
    folder = tmp_path_factory.mktemp("machines")
    return {name: make_machine(folder, name) for name in ("n1", "n2", "head", "stranger")}


def trial(machine, run, uid: int = os.getuid()) -> dict[str, str]:
    """What a machine's service answers."""
    order = hashlib.sha256((run / ORDER).read_bytes()).hexdigest()
    return {"out": json.dumps(signer.signed(machine, order, TRIAL, uid)), "err": ""}


@pytest.fixture
def run(tmp_path, machines):
    """A run with an order of the two nodes and the submit host."""
    known = {}
    for name, machine in machines.items():
        link = signer.signed(machine, "0" * 64, TRIAL, os.getuid())
        key = signatures.key_of(link["signature"], link["link"].encode())
        known[name] = {"machine": json.loads(link["link"])["machine"], "host_keys": [key]}
    order = Order.model_validate(
        {
            **dict.fromkeys(("nonce", "plan", "jobs"), "1" * 64),
            "schema": 1,
            "run": "r",
            "system": "s",
            "not_before": "2026-11-20T13:00:00Z",
            "not_after": "2026-11-21T13:00:00Z",
            "nodes": {name: known[name] for name in ("n1", "n2")},
            "user": os.getuid(),
            "submit": known["head"],
            "tests": [],
            "references": {},
        }
    )
    (tmp_path / ORDER).write_bytes(to_json(order))
    return tmp_path


def judged(run, monkeypatch, capsys, answers) -> tuple[int, str]:
    """Return the exit status, and what was said."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(answers)))
    status = able_to_sign.main([str(run), "head"])
    return status, capsys.readouterr().err


NO_SERVICE = {"out": "", "err": "/run/shakedown/sign.sock: No such file or directory\n"}


def test_hosts_that_can_sign_are_taken(run, machines, monkeypatch, capsys):
    """Catches: an honest site that is refused, also one with a host that answers nothing at all."""
    answers = {name: trial(machines[name], run) for name in ("n1", "n2", "head", "stranger")}
    assert judged(run, monkeypatch, capsys, answers) == (0, "")
    del answers["n2"]
    assert judged(run, monkeypatch, capsys, answers) == (0, "")


@pytest.mark.parametrize("host", ["n1", "head"])
def test_a_host_without_the_service_is_named(run, machines, host, monkeypatch, capsys):
    """Catches: a node or a submit host that signs nothing, found by verify after the run."""
    answers = {name: trial(machines[name], run) for name in ("n1", "n2", "head")} | {host: NO_SERVICE}
    status, said = judged(run, monkeypatch, capsys, answers)
    assert status == 2
    assert f"{host} cannot sign: /run/shakedown/sign.sock: No such file or directory" in said
    assert "run site.yml again" in said and said.count("\n") == 1


def test_hosts_with_one_reason_are_named_together(run, monkeypatch, capsys):
    """Catches: a line for each of a thousand nodes."""
    status, said = judged(run, monkeypatch, capsys, {"n1": NO_SERVICE, "n2": NO_SERVICE})
    assert status == 2 and "n1, n2 cannot sign: " in said


def test_a_host_of_another_key_or_machine_is_named(run, machines, monkeypatch, capsys):
    """Catches: a node that was installed anew since the order, whose signatures verify would refuse."""
    status, said = judged(run, monkeypatch, capsys, {"n1": trial(machines["stranger"], run)})
    assert status == 2 and "n1 cannot sign: it is another machine than that of the order" in said

    key = machines["n1"].path("etc/ssh/ssh_host_ed25519_key")
    kept = {path: path.read_bytes() for path in (key, key.with_suffix(".pub"))}
    for path in kept:
        path.unlink()
    make_key(key.parent, key.name)
    answer = trial(machines["n1"], run)
    for path, content in kept.items():
        path.write_bytes(content)
    status, said = judged(run, monkeypatch, capsys, {"n1": answer})
    assert status == 2 and "n1 cannot sign: its SSH host key is not in the order" in said


@pytest.mark.parametrize("out", ["[]", "{}", '{"link": "{}", "signature": "x"}', "[" * 9999, "x"])
def test_an_answer_that_is_no_signature_is_named(run, out, monkeypatch, capsys):
    """Catches: a traceback at what a node prints, or a signature that was made for an order."""
    status, said = judged(run, monkeypatch, capsys, {"n1": {"out": out}})
    assert status == 2 and "n1 cannot sign: its answer is no signature" in said


def test_an_answer_that_says_two_things_is_no_signature(run, machines, monkeypatch, capsys):
    """Catches: a key twice, of which the last one counts."""
    answer = trial(machines["n1"], run)
    answer["out"] = answer["out"].replace("{", '{"signature": "other", ', 1)
    status, said = judged(run, monkeypatch, capsys, {"n1": answer})
    assert status == 2 and "n1 cannot sign: its answer is no signature" in said


@cases("text", "", "[]", '{"n1": 1}', '{"n1": {"out": ""}, "n1": {"out": ""}}', "[" * 9999)
def test_what_are_no_answers_is_one_line(run, text, monkeypatch, capsys):
    """Catches: a traceback, or a host whose second answer hides its first."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert able_to_sign.main([str(run), "head"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("not the hosts' answers: ") and said.count("\n") == 1


@pytest.mark.parametrize("digest", ["b" * 64, "0" * 64])
def test_a_line_of_an_order_is_no_trial(run, machines, digest, monkeypatch, capsys):
    """Catches: an answer from an order's chain: the trial must take no number of it."""
    order = hashlib.sha256((run / ORDER).read_bytes()).hexdigest()
    answer = {"out": json.dumps(signer.signed(machines["stranger"], order, digest, os.getuid()))}
    status, said = judged(run, monkeypatch, capsys, {"n1": answer})
    assert status == 2 and "n1 cannot sign: its answer is no signature" in said
    assert '"number"' not in json.loads(trial(machines["stranger"], run)["out"])["link"]


def test_a_host_that_another_user_asks_is_named(run, machines, monkeypatch, capsys):
    """Catches: jobs of another user than the order's, of which verify refuses every line."""
    asked = Order.model_validate_json((run / ORDER).read_bytes())
    (run / ORDER).write_bytes(to_json(asked.model_copy(update={"user": os.getuid() + 1})))
    status, said = judged(run, monkeypatch, capsys, {"n1": trial(machines["n1"], run)})
    why = f"it was asked by user {os.getuid()}, the order is of user {os.getuid() + 1}'s jobs"
    assert status == 2 and f"n1 cannot sign: {why}" in said


def test_the_trial_fails_where_signing_would(run, machines, tmp_path, monkeypatch, capsys):
    """Catches: a trial of another chain than the jobs', which has room or a folder where theirs has none."""
    machine = System(str(tmp_path / "full"))
    shutil.copytree(machines["n1"].root, machine.root)
    monkeypatch.setattr(signer, "MOST_OF_A_USER", 1)
    (machine.path(signer.STATE)).unlink()
    signer.signed(machine, "f" * 64, "b" * 64, os.getuid())
    with pytest.raises(signer.Refused, match="no room for another"):
        trial(machine, run)
    monkeypatch.setattr(signer, "MOST_OF_A_USER", 2)
    shutil.rmtree(machine.path(signer.NOTES))
    machine.path(signer.NOTES).touch()
    with pytest.raises(OSError, match="notes"):
        trial(machine, run)
    machine.path(signer.NOTES).unlink()
    assert judged(run, monkeypatch, capsys, {"n1": trial(machine, run)}) == (0, "")
    assert (machine.path(signer.NOTES) / str(os.getuid())).stat().st_mode & 0o777 == 0o700
    # Its place is kept, whatever else is signed.
    with pytest.raises(signer.Refused):
        signer.signed(machine, "e" * 64, "b" * 64, os.getuid())
    order = hashlib.sha256((run / ORDER).read_bytes()).hexdigest()
    first = signer.signed(machine, order, "b" * 64, os.getuid())
    assert json.loads(first["link"])["number"] == 1


def test_it_is_asked_before_the_first_job():
    """Catches: a refusal that comes when jobs are submitted already, or another trial than is judged."""
    plays = yaml.safe_load((HERE.parents[2] / "playbooks/acceptance.yml").read_text())
    names = [play["name"] for play in plays]
    play = plays[names.index("Signatures of an order")]
    assert names.index(play["name"]) < names.index("Bring the plan to the submit host")
    assert signer.TRIAL == TRIAL and f"{{{{ '?' * {len(TRIAL)} }}}}" in play["vars"]["signing_trial"]

"""The acceptance playbook asks each host of an order for a signature, and stops before the first job."""

import json
import socket
import sys
import threading
from pathlib import Path

import pytest
import yaml
from host_settings import signer
from test_able_to_sign import machines, run  # noqa: F401  (fixtures)

from tests.kit.key import NEEDS_SSH_KEYGEN
from tests.kit.run import run_playbook

HERE = Path(__file__).parent


ROOT = HERE.parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def serve(path: Path, machine) -> None:
    """Answer at a socket as a machine's signing service does."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def answers() -> None:
        while True:
            with server.accept()[0] as peer:
                peer.sendall(signer.serve(machine, peer.fileno()).encode())

    threading.Thread(target=answers, daemon=True).start()


def played(folder: Path, sockets: dict[str, Path], *options: str) -> tuple[int, str]:
    """Play the book's own play for two nodes and a submit host, and one that would submit jobs after it."""
    book = yaml.safe_load((ROOT / "playbooks/acceptance.yml").read_text())
    (asked,) = (play for play in book if play["name"] == "Signatures of an order")
    del asked["vars"]["signing_socket"]
    note = {"set_fact": {"run_folder": str(folder)}}
    first = {"hosts": "localhost", "gather_facts": False, "tasks": [note]}
    after = {"hosts": "submit", "gather_facts": False, "tasks": [{"debug": {"msg": "jobs follow"}}]}
    (folder / "playbooks").mkdir(exist_ok=True)
    (folder / "playbooks/play.yml").write_text(yaml.safe_dump([first, asked, after]))
    if not (folder / "shakedown").exists():
        (folder / "shakedown").symlink_to(ROOT / "shakedown")
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {name: here | {"signing_socket": str(path)} for name, path in sockets.items()}
    groups = {
        "compute": {"hosts": {name: one for name, one in hosts.items() if name != "head"}},
        "submit": {"hosts": {"head": hosts["head"]}},
    }
    (folder / "hosts.json").write_text(json.dumps({"all": {"children": groups}}))
    done = run_playbook(
        "-i",
        folder / "hosts.json",
        folder / "playbooks/play.yml",
        *options,
        timeout=800,
        cwd=folder,
        ANSIBLE_CACHE_PLUGIN="memory",
        PYTHONPATH=str(ROOT),
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@NEEDS_SSH_KEYGEN
def test_an_order_of_hosts_that_cannot_sign_stops_before_the_first_job(run, machines, tmp_path):  # noqa: F811
    """Catches: jobs that are submitted under an order that a node cannot sign for; a site whose hosts can,
    and is refused; a refusal that nothing gets past."""
    sockets = {name: tmp_path / f"{name}.sock" for name in ("n1", "n2", "head")}
    for name in ("n1", "head"):
        serve(sockets[name], machines[name])
    status, said = played(run, sockets, "-e", "signing_missing=perhaps")
    assert status != 0 and "signing_missing is refuse or unsigned, not perhaps" in said, said[-3000:]
    status, said = played(run, sockets)
    words = f"n2 cannot sign: {sockets['n2']}: No such file or directory"
    assert status == 2 and words in said and "jobs follow" not in said, said[-3000:]
    assert (run / "refused.txt").read_text().startswith(words)
    status, said = played(run, sockets, "-e", "signing_missing=unsigned")
    assert status == 0 and "jobs follow" in said, said[-3000:]
    serve(sockets["n2"], machines["n2"])
    status, said = played(run, sockets)
    assert status == 0 and "jobs follow" in said, said[-3000:]
    (run / "order.json").unlink()
    sockets["n2"].unlink()
    status, said = played(run, sockets)
    assert status == 0 and "jobs follow" in said, said[-3000:]

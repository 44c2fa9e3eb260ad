"""The probe's program, its lines put together again, and what Slurm and Ansible are asked."""

import json
import random
import socket
import sys

import machines
import pytest

from shakedown.discover import ask
from shakedown.discover.ask import answers_in, answers_of, program
from shakedown.discover.draft_site import describe
from shakedown.discover.folder import files
from shakedown.intent.slurm_block import SlurmBlock
from shakedown.onnode import discover_probe
from shakedown.records.reading import BadInput
from shakedown.slurm.client import Slurm
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.run import python

PARTITION = "PartitionName=gpu AllocNodes=ALL MaxTime=04:00:00 Nodes=gpu[1-3] State=UP"
NODES = """\
NodeName=gpu1 Arch=x86_64 NodeAddr=192.0.2.1 State=IDLE Partitions=gpu,all Comment=NodeAddr=9.9.9.9
NodeName=gpu2 Arch=x86_64 NodeAddr=gpu2.example.org State=MIXED Partitions=gpu
NodeName=gpu3 Arch=x86_64 NodeAddr=gpu3 State=IDLE+DRAIN Partitions=gpu Reason=NIC [root@2026-11-20T02:10:00]
NodeName=cpu1 Arch=x86_64 NodeAddr=cpu1 State=IDLE Partitions=all
"""


class Recorded(Slurm):
    """Slurm, by what it printed."""

    def ask(self, *argv):
        """Answer like scontrol."""
        if argv[1:3] == ("show", "hostnames"):
            return {"gpu[1-2]": "gpu1\ngpu2\n", "cpu1": "cpu1\n"}[argv[3]]
        return PARTITION if "partition" in argv else NODES


def printed(*documents):
    """What the job prints of several nodes, mixed, behind a login script's words."""
    lines = [line for one in documents for line in discover_probe.lines(one)]
    random.Random(1).shuffle(lines)
    return "Welcome to the cluster\n" + "\n".join(f"0: {line}" for line in lines) + "\n"


def test_mixed_lines_of_many_nodes_are_put_together():
    """Catches: the pieces of one node in another's document, or a document that was cut off."""
    one, two = machines.hgx("gpu1", 1), machines.hgx("gpu2", 2)
    text = printed(one, two)
    assert answers_in(text) == {"gpu1": one, "gpu2": two}
    assert all(len(line) <= 700 for line in discover_probe.lines(one))
    cut = "\n".join(line for line in text.splitlines() if "gpu2 2 " not in line)
    assert answers_in(cut) == {"gpu1": one}


@cases("line", "X gpu1 1 1 AAAA", "SHAKEDOWN-DISCOVER gpu1 1 1 AAAA", "SHAKEDOWN-DISCOVER gpu1 1 1 eNrT1==")
def test_lines_that_hold_no_document_are_refused(line):
    """Catches: an internal error from whatever a node prints."""
    if line.startswith("X"):
        assert answers_in(line) == {}
        return
    refused("cannot be read", answers_in, line)


def test_two_nodes_of_one_name_are_refused():
    """Catches: a document made of two machines."""
    text = printed(machines.hgx("gpu1", 1)) + printed(machines.hgx("gpu1", 2))
    refused("answered twice", answers_in, text)


def test_slurms_nodes_are_asked_and_the_others_named(monkeypatch):
    """Catches: a drained node that stops the others, another partition's node, a comment read as a field."""
    asked = []

    def run(partition, nodes, options):
        assert options == []
        asked.append((partition, nodes))
        return printed(machines.hgx("gpu1", 1))

    monkeypatch.setattr(ask, "_run", run)
    answers = ask.ask_slurm("gpu", (), Recorded())
    assert asked == [("gpu", ["gpu1", "gpu2"])]
    assert list(answers.nodes) == ["gpu1"]
    assert answers.silent == {
        "gpu2": "the job ran and it did not answer",
        "gpu3": "Slurm has it as DRAIN+IDLE",
    }
    assert answers.addresses == {"gpu1": "192.0.2.1"}
    assert (answers.partition, answers.max_time) == ("gpu", "04:00:00")
    asked.clear()
    ask.ask_slurm("gpu", ["gpu[1-2]"], Recorded())
    assert asked == [("gpu", ["gpu1", "gpu2"])]


@cases(
    "partition, nodes, words",
    ("-o x", (), "no name of a partition"),
    ("gpu", ["$(reboot)"], "names no nodes"),
    ("gpu", ["cpu1"], "cpu1 is no node of partition gpu"),
    ("other", (), "no node of partition other can be used"),
)
def test_slurm_is_not_asked_for_what_cannot_be(monkeypatch, partition, nodes, words):
    """Catches: a job for nodes of another partition, or a word that becomes an option."""
    monkeypatch.setattr(ask, "_run", lambda *_: pytest.fail("a job was started"))
    refused(words.replace("$", r"\$"), ask.ask_slurm, partition, nodes, Recorded())


MAINTENANCE = """\
NodeName=gpu1 NodeAddr=192.0.2.1 State=IDLE+MAINTENANCE Partitions=gpu ReservationName=maint
NodeName=gpu2 NodeAddr=192.0.2.2 State=IDLE+MAINTENANCE+DRAIN Partitions=gpu
NodeName=gpu3 NodeAddr=192.0.2.3 State=IDLE+RESERVED Partitions=gpu
"""


class InMaintenance(Recorded):
    """Slurm in a maintenance reservation of two nodes."""

    def ask(self, *argv):
        """Answer like scontrol."""
        if "reservation" in argv:
            return (
                "ReservationName=maint StartTime=2026-11-23T08:00:00 Nodes=gpu[1-2] Flags=MAINT Users=alice"
            )
        return MAINTENANCE if argv[-1] == "node" else super().ask(*argv)


def test_the_job_is_of_the_sites_account_and_reservation(monkeypatch):
    """Catches: a site whose Slurm takes no job without an account, or whose nodes are in maintenance."""
    asked = []
    block = SlurmBlock(account="bench", qos="accept", reservation="maint", options=("--mem=0",))

    def run(*words):
        asked.append(words)
        return printed(machines.hgx("gpu1", 1))

    monkeypatch.setattr(ask, "_run", run)
    answers = ask.ask_slurm("gpu", (), InMaintenance(), block=block)
    options = ["--account=bench", "--qos=accept", "--reservation=maint", "--mem=0"]
    assert asked == [("gpu", ["gpu1"], options)]
    assert set(answers.silent) == {"gpu2", "gpu3"}, "drained, and another reservation's"
    assert (answers.account, answers.qos, answers.reservation) == ("bench", "accept", "maint")
    written = {file.path: file.text for file in files(describe(answers), "mysite")}["group_vars/all/site.yml"]
    assert "  account: bench\n  qos: accept\n  reservation: maint\n" in written
    refused("gpu1 is reserved: give --reservation", ask.ask_slurm, "gpu", (), InMaintenance())


def test_a_node_that_slurm_has_by_name_is_reached_by_its_address(monkeypatch):
    """Catches: the default route's address taken for the network of Slurm, or a resolver that is away."""

    def resolve(name, port, family):
        assert (port, family) == (None, socket.AF_INET)
        if name == "gpu2":
            raise socket.gaierror("unknown")
        return [(family, 1, 6, "", ("192.0.2.77", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    lines = {name: {"NodeAddr": name} for name in ("gpu1", "gpu2")} | {"gpu3": {"NodeAddr": "192.0.2.3"}}
    assert ask._addresses(lines, lines) == {"gpu1": "192.0.2.77", "gpu3": "192.0.2.3"}


def test_a_job_without_answers_is_refused(monkeypatch):
    """Catches: a folder without nodes."""
    monkeypatch.setattr(ask, "_run", lambda *_: "srun: error\n")
    refused("no node answered", ask.ask_slurm, "gpu", (), Recorded())


def host(text, said=""):
    """One host as the playbook writes it."""
    return {
        "ways": {"ansible_host": "192.0.2.1", "ansible_port": 22},
        "mgmt_ip": "",
        "text": text,
        "said": said,
    }


def test_ansibles_hosts_keep_the_inventorys_names():
    """Catches: a host under the name that it gives itself, which the inventory does not know."""
    written = {
        "hosts": {
            "node-a": host(printed(machines.hgx("gpu1", 1))),
            "node-b": host("", "Connection\n refused"),
        },
        "submit": "login",
    }
    answers = ask.answers_from(written)
    assert list(answers.nodes) == ["node-a"]
    assert answers.silent == {"node-b": "Connection refused"}
    assert answers.connections["node-a"].given() == {"ansible_host": "192.0.2.1", "ansible_port": 22}
    with pytest.raises(BadInput, match="no host answered; node-b: Connection refused"):
        ask.answers_from({"hosts": {"node-b": host("", "Connection refused")}, "submit": ""})


def place(root, path, text):
    """Write one file of a made-up sysfs."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def test_the_probe_reads_nics_from_sysfs(tmp_path):
    """Catches: Soft-RoCE that is not found, a NIC without its rate or MTU, lo taken for a NIC."""
    for n in (0, 1):
        pci = f"sys/devices/pci0000:00/0000:00:0{n}.0"
        place(tmp_path, f"{pci}/net/eth{n}/speed", "400000")
        for name, text in (("mtu", "9000"), ("operstate", "up" if n else "down")):
            place(tmp_path, f"{pci}/net/eth{n}/{name}", text)
        (tmp_path / "sys/class/net").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"sys/class/net/eth{n}").symlink_to(tmp_path / f"{pci}/net/eth{n}")
        (tmp_path / f"{pci}/net/eth{n}/device").symlink_to(tmp_path / pci)
    (tmp_path / "sys/devices/pci0000:00/0000:00:00.0/infiniband/mlx5_0").mkdir(parents=True)
    place(tmp_path, "sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet")
    place(tmp_path, "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "eth0")
    place(tmp_path, "sys/class/infiniband/rxe0/parent", "eth1")
    place(tmp_path, "sys/class/net/lo/mtu", "65536")
    found = {nic["netdev"]: nic for nic in discover_probe.nics(tmp_path)}
    assert set(found) == {"eth0", "eth1"}
    assert (found["eth0"]["rdma"], found["eth0"]["link_layer"], found["eth0"]["up"]) == (
        ["mlx5_0"],
        "Ethernet",
        False,
    )
    assert (found["eth1"]["rdma"], found["eth1"]["speed_mbps"], found["eth1"]["mtu_bytes"]) == (
        ["rxe0"],
        400000,
        9000,
    )


@pytest.mark.slow
def test_the_program_runs_by_itself_on_a_bare_node(tmp_path):
    """Catches: a program that needs Shakedown, which bare nodes have not, or an answer that is refused."""
    done = python("-I", "-S", "-", input=program(), check=True, cwd=tmp_path)
    found = answers_in(done.stdout)
    assert len(found) == 1
    assert answers_of(found).nodes


@pytest.mark.slow
def test_ansible_asks_in_one_pass(shakedown, tmp_path):
    """Catches: a playbook that does not run, or a host out of reach that stops the others."""
    file = tmp_path / "hosts.yml"
    hosts = {
        "here": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable},
        "gone": {"ansible_host": "127.0.0.1", "ansible_port": 9},
    }
    file.write_text(json.dumps({"compute": {"hosts": hosts}}))
    status, out, err = shakedown("discover", tmp_path / "site", "--ansible", file)
    assert (status, err) == (0, "")
    assert "1 node," in out
    assert any(line.endswith("# check: did not answer") and " gone: " in line for line in out.splitlines())

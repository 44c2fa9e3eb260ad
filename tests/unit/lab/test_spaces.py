"""The lab of namespaces, without making any: who gets which GPU, the cables, the way in, the words."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab import processes
from lab.errors import LabError
from lab.paths import LabPaths
from lab.spaces import cluster, faults, inventory, layer, mps, state, wiring
from lab.topology import Topology
from tests.kit.cases import cases
from tests.kit.files import edited

SSH = Path(wiring.__file__).with_name("ssh")


@cases(
    "asked, nodes, minors, shares",
    ("1", 2, [0, 1], [[0], [1]]),
    ("1,0", 2, [0], [[0], []]),
    ("0", 3, [], [[], [], []]),
    ("2,1", 2, [0, 2, 3], [[0, 2], [3]]),
)
def test_no_gpu_has_two_nodes(asked, nodes, minors, shares):
    """Catches: a GPU given to two nodes, or one that the host does not have."""
    assert wiring.gpus_of_nodes(asked, nodes, minors) == shares


def test_a_shared_gpu_is_the_first_one_and_its_nodes_say_so(short_path, monkeypatch):
    """Catches: nodes on one GPU that an inventory shows as two, or nodes of one each that say they share."""
    assert wiring.gpus_of_nodes("shared", 3, [4, 5]) == [[4], [4], [4]]
    with pytest.raises(LabError, match="needs a GPU"):
        wiring.gpus_of_nodes("shared", 2, [])
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    paths = LabPaths("t", short_path, short_path)
    monkeypatch.setattr(inventory, "lab_paths", lambda _: paths)
    for shares, said in (
        ([[0], [0]], [True, True]),
        ([[0], [1]], [None, None]),
        ([[0, 1], [1]], [None, True]),
    ):
        gpus = dict(zip(("n1", "n2"), shares, strict=True))
        state.State("t", gpus, {}, ready=True).save(state.path_of(paths))
        found = inventory.document()["_meta"]["hostvars"]
        assert [found[node]["gpus"][0].get("shared") for node in ("n1", "n2")] == said
    assert found["n1"]["gpus"][1]["shared"] is True


def test_a_shared_gpu_without_its_service_is_refused(monkeypatch):
    """Catches: nodes that take turns on their GPU, and a network measured at a hundredth of its speed."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LabError, match="nvidia-cuda-mps-control"):
        mps.program()


def test_the_service_of_a_shared_gpu_ends_with_its_server(tmp_path, monkeypatch):
    """Catches: a server left on the GPU after `down`."""
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text("#!/bin/sh\nsleep 600 &\ntouch $CUDA_MPS_PIPE_DIRECTORY/control\nwait\n")
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    started = mps.start(tmp_path / "pipe", tmp_path / "log")
    mps.wait(started, tmp_path / "pipe", tmp_path / "log")
    server = processes.child_of(started)
    assert server is not None and server.alive()
    assert mps.end(started, tmp_path / "log") == [] and not started.alive() and not server.alive()
    assert mps.end(None, tmp_path / "log") == []
    control.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(LabError, match="did not start"):
        mps.wait(mps.start(tmp_path / "other", tmp_path / "log"), tmp_path / "other", tmp_path / "log")


def test_given_packages_make_another_layer_when_they_change(tmp_path, monkeypatch):
    """Catches: a lab that starts without its packages, or with those of yesterday's folder."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setenv("SHAKEDOWN_PACKAGES", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(LabError, match=r"no \.deb file"):
        layer.ensure(lambda _: None)
    made = []

    def build(argv, **_):
        assert argv[-3:] == ["--unpack", str(folder), "/var/lib/shakedown/packages"]
        made.append(Path(argv[argv.index("--unpack") - 1]))
        made[-1].write_text("layer")
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr(layer.subprocess, "run", build)
    (folder / "a.deb").write_text("one")
    first = layer.ensure(lambda _: None)
    assert layer.ensure(lambda _: None) == first and len(made) == 1
    (folder / "a.deb").write_text("another")
    assert layer.ensure(lambda _: None) != first and len(made) == 2


@pytest.mark.parametrize("asked", ["2", "1,1,1", "x", "", "-1", "1,"])
def test_what_is_no_share_is_refused(asked):
    """Catches: a traceback, or nodes without the GPUs that were asked for."""
    with pytest.raises(LabError, match="--gpus"):
        wiring.gpus_of_nodes(asked, 2, [0])


def test_cpus_are_shared_without_overlap():
    """Catches: two nodes' ranks on the same cores, each slowed by the other."""
    assert wiring.cpus_of_nodes(2, range(5)) == [[0, 1], [2, 3]]
    assert wiring.cpus_of_nodes(2, range(3)) == [[], []]


def test_every_cable_joins_the_leaf_and_its_node():
    """Catches: a rail that ends in the wrong bridge or machine, or in the host's own network."""
    topology = Topology(2)
    pids = {machine.name: 100 + i for i, machine in enumerate(topology.machines)}
    made = [" ".join(argv) for argv in wiring.make(topology, pids)]
    leaf, n2 = pids["leaf0"], pids["n2"]
    assert f"ip link add name swp4 netns {leaf} type veth peer name fab1 netns {n2}" in made
    assert len(made) == 3 + 4 and all(words.count("netns") == 2 for words in made)
    script = wiring.leaf_script(topology)
    assert "ip link set swp4 mtu 9000 master br-rail1 up" in script
    assert "ip address add 10.10.1.2/24 dev fab1" in wiring.node_script(topology.machine("n2"))
    assert (
        f"ip link set mgmt0 address {topology.machine('n2').nic('mgmt0').mac} mtu 1500"
        in wiring.node_script(topology.machine("n2"))
    ), "a machine that starts again would be unknown to its neighbours for a while"
    assert [port for port, _, _ in wiring.ports_of(topology, "n2")] == ["mg12", "swp2", "swp4"]


@pytest.fixture
def way_in(tmp_path):
    """The way into a lab whose only machine is this very process, with nsenter replaced by echo."""
    here = processes.Process(os.getpid(), processes.stat_of(os.getpid())[1])
    current = state.State("t", {"n1": []}, {"n1": []}, spaces={"n1": here}, ready=True)
    current.save(tmp_path / "spaces.json")
    (tmp_path / "nsenter").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "nsenter").chmod(0o755)

    def enter(*words, file="spaces.json"):
        source = SSH.read_text().replace('_PATH = "', f'_PATH = "{tmp_path}:')
        (tmp_path / "ssh.py").write_text(source)
        argv = [sys.executable, str(tmp_path / "ssh.py"), "-F", str(tmp_path / file), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    return enter


def test_ansibles_own_command_line_is_understood(way_in):
    """Catches: an option of Ansible's or rsync's taken for the machine, or a command cut at its blanks."""
    words = ["-C", "-o", "ControlMaster=auto", "-o", "User=root", "-tt", "root@n1", "/bin/sh -c 'echo a  b'"]
    done = way_in(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"--target={os.getpid()}"
    assert done.stdout.splitlines()[-1] == "cd /root; /bin/sh -c 'echo a  b'"
    # As rsync has it: the user as an option, the command in words.
    assert way_in("-S", "none", "-l", "root", "n1", "rsync", "--server").stdout.endswith("; rsync --server\n")


@cases(
    "words, file, says",
    (("n9", "true"), "spaces.json", "no such machine"),
    (("n1", "true"), "none.json", "no such machine"),
    ((), "spaces.json", "usage"),
    (("-%", "n1"), "spaces.json", "option"),
)
def test_a_machine_that_is_not_there_is_sshs_own_error(way_in, words, file, says):
    """Catches: a command run on the host in the name of a machine that has ended."""
    done = way_in(*words, file=file)
    assert done.returncode == 255 and says in done.stderr and "Traceback" not in done.stderr


def test_a_number_that_another_process_got_is_not_entered(way_in, tmp_path):
    """Catches: a process of the host entered because it got a dead machine's number."""
    with edited(tmp_path / "spaces.json") as document:
        document["spaces"]["n1"]["started"] += 1
    done = way_in("n1", "true")
    assert done.returncode == 255 and "n1 is off" in done.stderr


def test_a_state_that_is_none_of_ours_is_refused(tmp_path):
    """Catches: a traceback for a file that was cut off."""
    file = tmp_path / "spaces.json"
    assert state.load(file) is None
    file.write_text('{"schema": 1')
    with pytest.raises(LabError, match="no state of a lab of namespaces"):
        state.load(file)


def test_the_inventory_of_a_lab_that_is_down_can_be_planned(short_path, monkeypatch):
    """Catches: planning that needs a running lab, or rails that the intent does not have."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    monkeypatch.setenv("SHAKEDOWN_WHEELS", "/wheels")
    monkeypatch.delenv("SHAKEDOWN_PACKAGES", raising=False)
    found = inventory.document()
    assert found["compute"]["hosts"] == ["n1", "n2"] and "switches" not in found
    assert found["_meta"]["hostvars"]["n2"]["tcp_nics"][1] == {
        "fabric": "rail1",
        "netdev": "fab1",
        "ipv4": "10.10.1.2/24",
    }
    assert found["all"]["vars"]["reframe_wheelhouse"] == "/wheels"
    # A variable that holds nothing must be absent: the roles ask whether it is defined.
    assert "bare_host_packages" not in found["all"]["vars"]


class Recorder:
    """A lab that notes what it was told to run."""

    def __init__(self):
        self.topology, self.told = Topology(2), []
        self.state = state.State("t", {"n1": [], "n2": []}, {})

    def run(self, machine, command, _what):
        """Note it."""
        self.told.append((machine, " ".join(command)))
        return ""

    def save_state(self):
        """Nothing is kept."""


def test_faults_sit_on_the_port_that_leads_to_the_node():
    """Catches: a slow port planted on the other rail or node, and not told of."""
    lab = Recorder()
    said = faults.plant(lab, "rate", "n2", "rail1", 2000)
    machine, command = lab.told[0]
    assert machine == "leaf0" and " swp4 tbf rate 2000000000bit" in command
    assert said == "rate 2000 Mbit/s on leaf0 swp4, into n2 fab1"
    assert lab.state.faults == {"n2 rail1": "rate 2000 Mbit/s"}
    faults.plant(lab, "wrong-address", "n1", "rail0")
    assert lab.told[-1][0] == "n1" and "10.10.99.1/24 dev fab0" in lab.told[-1][1]


def test_a_fault_that_namespaces_cannot_have_is_refused():
    """Catches: the host's clock set for the sake of a node."""
    with pytest.raises(LabError, match="share the host's clock"):
        faults.plant(Recorder(), "clock", "n1", 3600.0)


def test_an_ordinary_user_is_told_at_once(short_path, monkeypatch):
    """Catches: half a lab and a traceback where root is missing."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="need root"):
        cluster.SpaceLab.up(2, "0", "t")
    assert not (short_path / f"shakedown-{os.getuid()}").exists()


def test_a_lab_that_is_not_there_is_no_lab_of_namespaces(short_path, monkeypatch):
    """Catches: status and down of virtual machines that end in the other kind of lab."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    assert cluster.status("t") is None and cluster.stop("t") is False
    paths = LabPaths("t", short_path, short_path)
    assert cluster.way_in(paths) == short_path / "ssh"

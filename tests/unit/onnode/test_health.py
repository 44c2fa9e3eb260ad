"""The node's health check: what it reads, what it calls worse, and how it drains it in a stand-in Slurm."""

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from shakedown.onnode import health

SOUND = {
    "cpu": {"online": "64"},
    "memory": {"kib": "1000000", "uncorrected": "0"},
    "bios": {"version": "2.1"},
    "clock": {"synchronised": "yes"},
    "nic fab0": {"link": "up", "speed_mbps": "200000", "pcie_gt_s": "32.0", "pcie_width": "16"},
    "nic spare": {"link": "down"},
    "rdma mlx5_0": {"state": "ACTIVE", "rate_gbps": "200", "firmware": "28.39.1002"},
    "gpus": {"count": "2", "driver": "answers"},
    "gpu 0000:3b:00.0": {
        "uuid": "GPU-1", "pcie_width": "16", "nvlinks": "18", "uncorrected": "0", "remap_pending": "No",
    },
    "mount /shared": {"mode": "rw", "type": "nfs4"},
    "service slurmd": {"state": "active"},
}  # fmt: skip


def with_(part, **attributes):
    """Return the sound node with attributes of a part changed; None: not told; without any: it is gone."""
    now = {name: dict(of) for name, of in SOUND.items()}
    if not attributes:
        del now[part]
    for key, value in attributes.items():
        now[part].pop(key, None)
        now[part].update({key: value} if value is not None else {})
    return now


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (with_("nic fab0", link="down"), "fab0: link down, up accepted"),
        (with_("nic fab0", speed_mbps="100000"), "fab0: speed 100000 Mb/s, 200000 Mb/s accepted"),
        (with_("nic fab0", pcie_width="8"), "fab0: pcie width 8, 16 accepted"),
        (with_("nic fab0"), "nic fab0 is gone"),
        (with_("rdma mlx5_0", state="DOWN"), "rdma mlx5_0: state DOWN, ACTIVE accepted"),
        (with_("cpu", online="32"), "cpu: online 32, 64 accepted"),
        (with_("memory", kib="968750"), "memory: kib 968750 KiB, 1000000 KiB accepted"),
        (with_("memory", uncorrected="1"), "memory: uncorrected 1, 0 accepted"),
        (with_("gpu 0000:3b:00.0"), "gpu 0000:3b:00.0 is gone"),
        (with_("gpu 0000:3b:00.0", nvlinks="17"), "gpu 0000:3b:00.0: nvlinks 17, 18 accepted"),
        (with_("gpu 0000:3b:00.0", uncorrected="2"), "gpu 0000:3b:00.0: uncorrected 2, 0 accepted"),
        (with_("gpu 0000:3b:00.0", remap_pending="Yes"), "gpu 0000:3b:00.0: remap pending Yes, No accepted"),
        (with_("gpus", driver="does not answer"), "gpus: driver does not answer, answers accepted"),
        (with_("mount /shared", mode="ro"), "mount /shared: mode ro, rw accepted"),
        (with_("mount /shared"), "mount /shared is gone"),
        (with_("clock", synchronised="no"), "clock: synchronised no, yes accepted"),
        (with_("service slurmd", state="failed"), "slurmd: state failed, active accepted"),
    ],
)
def test_what_is_worse_than_accepted_is_named(now, words):
    """Catches: a node that lost a part, a link or a lane since it was accepted, and goes on getting jobs."""
    assert health.worse(SOUND, now)[0] == [words]


@pytest.mark.parametrize(
    "now",
    [
        SOUND,
        with_("nic spare", link="up"),
        with_("nic spare", link="down"),
        with_("rdma mlx5_0", firmware="28.40.1000"),
        with_("gpu 0000:3b:00.0", uuid="GPU-2"),
        with_("memory", kib="995000"),  # another kernel's own share
        with_("memory", kib="2000000"),
        with_("nic fab0", speed_mbps="400000"),
        with_("nic fab0", speed_mbps=None),
        with_("clock"),
        with_("cpu"),
        with_("service slurmd"),
        {**with_("gpu 0000:3b:00.0"), "gpus": {"count": "2"}},  # nvidia-smi hung: no answer is no fault
        {**SOUND, "nic new": {"link": "down"}},
    ],
)
def test_what_is_only_another_or_unread_drains_nothing(now):
    """Catches: a fleet that drains itself after a firmware day, or for a tool that did not answer."""
    bad, told = health.worse(SOUND, now)
    assert bad == []
    assert bool(told) == any(
        now.get(part, {}).get(k) != v for part, of in SOUND.items() for k, v in of.items()
    )


class Cluster:
    """A Slurm in memory, asked through its commands' own words."""

    def __init__(self):
        self.nodes = {f"n{i}": ["idle", "Unknown", "none"] for i in (1, 2, 3)}
        self.calls, self.mute, self.clock = [], False, 0

    def drained(self, node, why, at="2026-01-01T00:00:00"):
        """Drain a node by somebody's hand."""
        self.nodes[node] = ["drained", at, why]

    def __call__(self, limit_s, *words):
        """Stand for `ran`."""
        if words[0] == "logger":
            return 0, ""
        self.calls.append(words)
        if self.mute:
            return 1, "slurm_load_node error: Unable to contact slurm controller (connect failure)"
        if words[0] == "sinfo":
            named = [w.partition("=")[2] for w in words if w.startswith("--nodes=")] or self.nodes
            return 0, "\n".join("|".join((name, *self.nodes[name])) for name in named)
        node, state, *reason = (word.partition("=")[2] for word in words[2:])
        self.clock += 1
        self.nodes[node] = (
            ["drained", f"2026-01-02T00:00:{self.clock:02d}", reason[0]]
            if state == "DRAIN"
            else ["idle", "", "none"]
        )
        return 0, ""


@pytest.fixture
def node(monkeypatch, tmp_path):
    """Return a cluster of three nodes; this is n1, whose state is `node.now`."""
    cluster = Cluster()
    cluster.now, cluster.at = SOUND, 1000.0
    monkeypatch.setattr(health, "ran", cluster)
    monkeypatch.setattr(health, "read", lambda *a, **k: cluster.now)
    monkeypatch.setattr(health, "ACCEPTED", tmp_path / "kept/health.json")
    monkeypatch.setattr(health, "DRAINED", tmp_path / "kept/health.drained.json")
    monkeypatch.setattr(health.time, "time", lambda: cluster.at)
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.delenv("SLURM_SCRIPT_CONTEXT", raising=False)
    assert health.main(["accept"]) == 0
    return cluster


SICK = with_("nic fab0", link="down")
REASON = "shakedown-health: fab0: link down, up accepted"


def test_a_sick_node_is_drained_with_its_part_and_comes_back_well(node, capsys):
    """Catches: a rail that went down unsaid, a node given back while it is sick, or never."""
    assert health.main(["slurm"]) == 0 and not node.calls, "a sound node costs the controller nothing"
    node.now = SICK
    assert health.main(["slurm"]) == 0
    assert node.nodes["n1"][0] == "drained" and node.nodes["n1"][2] == REASON
    assert health.main(["check"]) == 1
    node.at += 10_000
    health.main(["slurm"])
    assert node.nodes["n1"][0] == "drained", "still sick"
    node.now, node.at = SOUND, 1200.0
    health.main(["slurm"])
    assert node.nodes["n1"][0] == "drained" and "stays drained" in capsys.readouterr().out
    node.at = 1301.0
    health.main(["slurm"])
    assert node.nodes["n1"][0] == "idle"
    node.calls.clear()
    assert health.main(["slurm"]) == 0 and not node.calls


@pytest.mark.parametrize(
    "why", ["bad fan, Anna", "shakedown: run-7: 3 cells failed", f"{REASON}; keep, RMA 17"]
)
def test_what_somebody_else_took_out_stays_out(node, why):
    """Catches: a node resumed under a technician's hands, also one who only changed our words."""
    node.now = SICK
    health.main(["slurm"])
    node.nodes["n1"][2] = why
    node.now, node.at = SOUND, 99_999.0
    health.main(["slurm"])
    health.main(["slurm"])
    assert node.nodes["n1"][0] == "drained" and node.nodes["n1"][2] == why
    node.now = SICK
    health.main(["slurm"])
    assert node.nodes["n1"][2] == why


def test_no_more_nodes_than_the_site_allows(node, capsys, monkeypatch):
    """Catches: a switch that is rebooted and takes all nodes out; two checks that count at one moment."""
    node.now = SICK
    node.drained("n2", "shakedown-health: fab0: link down")
    node.drained("n3", "somebody else's")
    health.main(["slurm", "--most", "1"])
    assert node.nodes["n1"][0] == "idle" and "--most 1" in capsys.readouterr().out
    health.main(["slurm", "--most", "2"])
    assert node.nodes["n1"][0] == "drained"
    # n2 drained a moment before, after this node had counted.
    health.main(["slurm", "--most", "1"])
    assert node.nodes["n1"][0] == "idle" and not health.DRAINED.exists()
    plain = health.Slurm._update

    def both(slurm, *words):
        if words[0] == "State=DRAIN":
            node.drained("n2", "shakedown-health: x", "2026-01-02T00:00:00")
        plain(slurm, *words)

    node.nodes["n2"] = ["idle", "", "none"]
    monkeypatch.setattr(health.Slurm, "_update", both)
    health.main(["slurm", "--most", "1"])
    assert (node.nodes["n1"][0], node.nodes["n2"][0]) == ("idle", "drained")


@pytest.mark.parametrize("break_it", ["mute", "damaged", "nothing accepted", "read-only"])
def test_its_own_failure_drains_nothing_and_fails_no_prolog(node, break_it, capsys, monkeypatch):
    """Catches: a cluster whose every Prolog fails, as the check itself is broken."""
    node.now = SICK
    monkeypatch.setenv("SLURM_SCRIPT_CONTEXT", "prolog_slurmd")
    if break_it == "damaged":
        health.ACCEPTED.write_text('{"schema": 1, "parts": {"cpu": 5}')
    elif break_it == "nothing accepted":
        health.ACCEPTED.unlink()
    elif break_it == "mute":
        node.mute = True
    else:
        monkeypatch.setattr(
            health, "_write", lambda *a: (_ for _ in ()).throw(OSError(30, "Read-only file system"))
        )
    status = health.main(["slurm"])
    said = capsys.readouterr()
    if break_it == "read-only":  # the fault is the node's: it is drained, and a person gives it back
        assert (status, node.nodes["n1"][2]) == (1, REASON) and "Read-only" in said.out
        return
    assert status == 0 and said.err.count("\n") == 1 and node.nodes["n1"][0] == "idle"
    assert health.main(["check"]) == (1 if break_it == "mute" else 2)


def test_as_prolog_a_sick_node_gives_the_job_back(node, monkeypatch):
    """Catches: a job that starts on a node that was found sick a moment before; an epilog that fails."""
    node.now = SICK
    for context, status in (("prolog_slurmd", 1), ("epilog_slurmd", 0)):
        monkeypatch.setenv("SLURM_SCRIPT_CONTEXT", context)
        assert health.main(["slurm"]) == status


def test_what_was_bad_when_accepted_is_not_held(node, capsys):
    """Catches: a spare port that drains a node, and a rail that was down then and nobody was told."""
    node.now = {**SOUND, "service ntp": {"state": "inactive"}, "rdma mlx5_9": {"state": "DOWN"}}
    assert health.main(["accept"]) == 0
    assert "not up, and not held: nic spare, rdma mlx5_9" in capsys.readouterr().out
    assert "service ntp" not in json.loads(health.ACCEPTED.read_text())["parts"]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return the root of a node with one NIC, one GPU, an NFS mount, an automount, and its tools."""
    root = tmp_path / "root"

    def write(path, words):
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(words)

    nic, gpu = "sys/class/net/fab0", "sys/bus/pci/devices/0000:3b:00.0"
    for path, words in {
        f"{nic}/carrier": "1", f"{nic}/speed": "200000", f"{nic}/device/current_link_speed": "32.0 GT/s PCIe",
        f"{nic}/device/current_link_width": "16", "sys/class/net/veth1/carrier": "1",
        "sys/class/net/bond0/carrier": "1", "sys/class/net/vf0/device/physfn/vendor": "x",
        "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
        "sys/class/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)", f"{gpu}/vendor": "0x10de",
        f"{gpu}/class": "0x030200", "proc/meminfo": "MemTotal: 1000 kB",
        "etc/fstab": "/dev/sda1 / ext4 defaults 0 1\n",
        "sys/devices/system/edac/mc/mc0/ue_count": "3", "run/systemd/system/x": "",
        "proc/uptime": "9000.0 1.0",
        "proc/self/mounts": "/dev/sda1 / ext4 rw,relatime 0 0\nsrv:/x /shared nfs4 ro,vers=4.2 0 0\n"
        "tmpfs /run tmpfs rw 0 0\nauto.home /home autofs rw 0 0\nsrv:/h/anna /home/anna nfs4 rw 0 0\n",
    }.items():  # fmt: skip
        write(path, words)
    tools = {
        "nvidia-smi": 'case "$1" in nvlink) printf "GPU 0: NVIDIA H200 (UUID: GPU-7)\\n'
        "\\t Link 0: 26.562 GB/s\\n"
        '\\t Link 1: <inactive>\\n";; *) echo "00000000:3B:00.0, NVIDIA H200, GPU-7, 96.00, 143771, 16, 0, '
        '700.00, Disabled, No, No";; esac',
        "systemctl": "shift; for unit; do [ $unit = slurmd ] && echo active || echo inactive; done; exit 3",
    }
    for name, script in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return root


def test_a_node_is_read(machine):
    """Catches: a reading that misses a part, or takes a container's interface or an automount for its own."""
    seen = health.read(machine, nics=["bond0"])
    assert seen["nic fab0"] == {"link": "up", "speed_mbps": "200000", "pcie_gt_s": "32.0", "pcie_width": "16"}
    assert {name for name in seen if name.startswith("nic")} == {"nic bond0", "nic fab0"}
    assert seen["rdma mlx5_0"] == {"state": "ACTIVE", "rate_gbps": "200"}
    assert seen["gpus"] == {"count": "1", "driver": "answers"}
    gpu = seen["gpu 0000:3b:00.0"]
    assert (gpu["nvlinks"], gpu["uncorrected"], gpu["remap_pending"], gpu["mig"]) == (
        "1",
        "0",
        "No",
        "Disabled",
    )
    assert {name: of["mode"] for name, of in seen.items() if name.startswith("mount")} == {
        "mount /": "rw",
        "mount /shared": "ro",
    }
    assert seen["memory"] == {"kib": "1000", "uncorrected": "3"}
    assert seen["service slurmd"] == {"state": "active"} and seen["service munge"] == {"state": "inactive"}


def test_a_gpu_whose_driver_says_nothing_is_not_gone(machine, tmp_path):
    """Catches: eight GPUs called gone for one word of nvidia-smi, and none for a driver that is away."""
    was = health.read(machine)
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found'; exit 6\n")
    bad, _ = health.worse(was, health.read(machine))
    assert bad == ["gpus: driver does not answer, answers accepted"]


def test_it_is_one_file_that_runs_with_the_oldest_python_of_nodes():
    """Catches: an import or a word of syntax that RHEL 8's Python 3.6 has not."""
    text = inspect.getsource(health)
    tree = ast.parse(text, feature_version=(3, 6))
    alone = [
        n for n in tree.body if "__package__" not in ast.unparse(n)
    ]  # of the package, where there is one
    named = [m for n in alone for m in ast.walk(n) if isinstance(m, ast.Import | ast.ImportFrom)]
    names = {alias.name if isinstance(n, ast.Import) else n.module for n in named for alias in n.names}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names - {
        "dataclasses",
        "__future__",
    }
    assert not [
        w for w in ("capture_output", "text=True", "removeprefix", "missing_ok", "walrus") if w in text
    ]
    # Python 3.6 evaluates them, unless they are text: there `dict[str, str]` and `int | None` are errors.
    evaluated = [n.annotation for n in tree.body if isinstance(n, ast.AnnAssign)]
    for one in ast.walk(tree):
        if isinstance(one, ast.FunctionDef):
            evaluated += [
                one.returns,
                *(arg.annotation for arg in ast.walk(one.args) if isinstance(arg, ast.arg)),
            ]
    inner = [n for told in evaluated if told for n in ast.walk(told)]
    generic = ("dict", "frozenset", "list", "set", "tuple", "type")
    builtins = [n for n in inner if isinstance(n, ast.Subscript) and ast.unparse(n.value) in generic]
    assert not builtins + [n for n in inner if isinstance(n, ast.BinOp)], builtins
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(Path(health.__file__)), "check"], capture_output=True, check=False
    )
    assert done.returncode in (0, 1, 2) and b"Traceback" not in done.stderr

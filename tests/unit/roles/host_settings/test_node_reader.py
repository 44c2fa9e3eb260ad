"""What only root may read: what leaves the node, and what a job makes of the answer."""

import json
import socket
import tempfile
import threading
from pathlib import Path

import pytest
from host_settings import cli, node_reader
from host_settings.system import Done, System

from shakedown.benchmarks.interconnect import job
from shakedown.onnode import gpus
from shakedown.run import service
from shakedown.run.service import of_node
from tests.kit.cases import cases

XID = "NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus."
LOG = f"[1.0] audit: user alice ran secret\n[    2.000000] {XID}\n[3.0] eth0: link up 10.0.0.1\n"
# Capability pointer at 0x34 -> 0x40: PCI Express, upstream switch port (type 5).
CONFIG = (bytes(0x34) + b"\x40" + bytes(0x0B) + b"\x10\x00\x52\x00" + bytes(1000))[:600]


class Node(System):
    """A recorded tree whose kernel log is known."""

    log = Done(0, LOG, "")

    def run(self, *argv, **_):  # noqa: D102
        assert argv == ("dmesg",)
        return self.log


@pytest.fixture
def tree(tmp_path) -> Path:
    """Return a node with a bridge, a NIC, a sound card and a name that is none."""
    for bdf, kind in (
        ("0000:00:01.0", "0x060400"),
        ("0000:07:00.0", "0x020000"),
        ("0000:08:00.0", "0x040300"),
        ("odd", "0x020000"),
    ):
        folder = tmp_path / "sys/bus/pci/devices" / bdf
        folder.mkdir(parents=True)
        (folder / "class").write_text(f"{kind}\n")
        (folder / "config").write_bytes(CONFIG)
    return tmp_path


@pytest.fixture
def serve():
    """Return a function that answers one connection with a text, and the socket's path."""
    folder = tempfile.TemporaryDirectory(prefix="n")  # short: a socket's path has 107 characters at most

    def start(text: bytes) -> str:
        path = str(Path(folder.name) / "node.sock")
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(path)
        server.listen(1)

        def answer() -> None:
            connection, _ = server.accept()
            with connection, server:
                connection.sendall(text)

        threading.Thread(target=answer, daemon=True).start()
        return path

    with folder:
        yield start


def test_only_what_jobs_must_know_leaves_the_node(tree):
    """Catches: the whole kernel log, or a device that is no GPU, NIC or bridge, shown to every user."""
    seen = node_reader.document(Node(str(tree)))
    assert seen["kernel"] == [f"[    2.000000] {XID}"] and seen["kernel_error"] == ""
    assert sorted(seen["pci"]) == ["0000:00:01.0", "0000:07:00.0"]
    assert seen["pci"]["0000:07:00.0"] == CONFIG[:256].hex()
    assert "alice" not in json.dumps(seen)


def test_a_log_that_cannot_be_read_is_told(tree):
    """Catches: a log that root cannot read either (no CAP_SYSLOG) taken for one without errors."""
    node = Node(str(tree))
    node.log = Done(1, "", "dmesg: read kernel buffer failed: Operation not permitted\n")
    seen = node_reader.document(node)
    assert seen["kernel"] == [] and "Operation not permitted" in seen["kernel_error"]


def test_the_program_takes_nothing_from_who_asks(tree, capsys, monkeypatch):
    """Catches: a service that reads what a user names."""
    monkeypatch.setattr(cli, "System", lambda root, probes: Node(str(tree)))
    assert cli.main(["node", "/etc/shadow"]) == 0
    assert "shadow" not in capsys.readouterr().out
    units = Path(__file__).parents[4] / "roles/host_settings/files/systemd"
    unit = (units / "host-settings-node@.service").read_text()
    assert "ExecStart=/usr/local/libexec/shakedown/host-settings node\n" in unit
    assert "StandardInput=null" in unit and "NoNewPrivileges=yes" in unit


# The same line as dmesg prints it by other wishes of a user's or a wrapper's (-T, --time-format=iso, -r, -x),
# as a journal does, and where the kernel writes no time.
FRONTS = (
    *("[Fri Nov 20 17:20:01 2026] ", "2026-11-20T17:20:01,859532+00:00 ", "<3>[  812.123456] ", ""),
    *("kern  :err   : [  812.123456] ", "Nov 20 17:20:01 gpu1 kernel: "),
)


def test_every_line_that_tells_of_hardware_is_read(monkeypatch):
    """Catches: an NVSwitch, a DIMM, a PCIe link or a hot NIC whose words stay in the log; a user's that go.

    The forms are those of the kernel's and NVIDIA's sources and documents; none is of a machine here.
    """
    kept = [
        f"[ 812345.101010] {XID}",
        "[6781753.400584] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
        f"[ 812345.101010][ T1234] {XID}",
        "[6781780.100000] [    C7] mce: CPU7: Package temperature above threshold, cpu clock throttled",
        "[6781790.100000] EDAC MC3: 42 UE memory read error on CPU_SrcID#0_MC#3_Chan#0_DIMM#0",
        "[6781791.100000] pcieport 0000:15:01.0: AER: Uncorrected (Fatal) error received: 0000:18:00.0",
        "[    9.500000] mlx5_core 0000:c1:00.0: mlx5_pcie_event:301:(pid 9): Detected insufficient power",
        "[   99.500000] mlx5_core 0000:c1:00.0: temp_warn:284:(pid 9): High temperature on sensors",
        "[  100.000000] {1}[Hardware Error]: event severity: fatal",
        "[  101.000000] nvidia 0000:18:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction",
        "[    9.600000] pci 0000:18:00.0: 126.0 Gb/s available PCIe bandwidth, limited by 16.0 GT/s",
        "[  102.000000] mlx5_core 0000:c1:00.0: poll_health:852: device's health compromised",
        "[  103.000000] mlx5_core 0000:c1:00.0: Port module event[error]: module 0, High Temperature",
        "[  104.000000] mlx5_core 0000:c1:00.0 enp1s0: Link down",
        "[  105.000000] bnxt_en 0000:c2:00.0 enp2s0: NIC Link is Down",
        "[  106.000000] bnxt_en 0000:c2:00.0 enp2s0: Chip temperature above the thermal threshold!",
        "[    9.800000] NVRM: GPU 0000:17:00.0: RmInitAdapter failed! (0x62:0x40:2393)",
        "[  102.100000] mlx5_core 0000:c1:00.0: poll_health:795:(pid 0): Fatal error 1 detected",
        "[  102.200000] mlx5_core 0000:c1:00.0 enp1s0: TX timeout detected",
        "[  102.300000] pcieport 0000:15:01.0: DPC: containment event, status:0x1f01 source:0x0000",
        "[  102.400000] DMAR: [DMA Read NO_PASID] Request device [18:00.0] fault addr 0x0",
        "[  102.500000] NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60",
        *(f"{front}{XID}" for front in FRONTS),
        "[  107.000000] amdgpu 0000:c3:00.0: amdgpu: socket: 0 2 uncorrectable hardware errors in umc",
        "[  812.200000] [Hardware Error]: Uncorrected, software restartable error.",
        "[  812.100000] mce: Uncorrected hardware memory error in user-access at 3f17b20400",
        "[  812.200000] Memory failure: 0x3f17b20: Sending SIGBUS to python3:4711",
        "[  812.100000] mlx5_core 0000:1a:00.0: wait_func:1151: CREATE_QP(0x500) timeout. Will cause a leak",
        "[  812.100000] bnxt_en 0000:41:00.0 ens1f0np0: Firmware not responding, status: 0x8a61",
        "[  812.200000] bnxt_en 0000:41:00.0 ens1f0np0: TX timeout detected, starting reset task!",
        "[  812.100000] NVRM: _kgspIsHeartbeatTimedOut: Heartbeat timed out",
        "[  812.200000] NVRM: GPU2 kgspHealthCheck_TU102: **** GSP-CrashCat Report ****",
        "[  812.100000] amdgpu 0000:c1:00.0: amdgpu: ring sdma0 timeout, signaled seq=12, emitted seq=14",
        "[  812.300000] amdgpu 0000:c1:00.0: amdgpu: GPU reset(1) failed",
    ]
    others = [
        "[1.0] audit: user alice ran NVRM: Xid",
        "[2.0] EDAC MC: Ver: 3.0.0",
        "[3.0] mlx5_core 0000:c1:00.0 enp1s0: Link up 10.0.0.1",
    ]
    log = "\n".join([*others, *kept, ""])
    monkeypatch.setattr(gpus, "run", lambda _: {"argv": ["dmesg"], "exit_code": 0, "out": log, "error": ""})
    assert gpus.kernel_log()["out"].splitlines() == kept
    coloured = f"\x1b[32m[  812.123456] \x1b[0m\x1b[33mNVRM: \x1b[0m{XID[6:]}\n"
    monkeypatch.setattr(gpus, "run", lambda _: {"argv": [], "exit_code": 0, "out": coloured, "error": ""})
    assert gpus.kernel_log() | {"now_s": 0} == {
        **{"argv": [], "exit_code": 0, "error": "", "now_s": 0, "oldest_s": 812.123456, "strange": 0},
        "out": f"[  812.123456] {XID}\n",
    }
    assert node_reader.KEPT.pattern == gpus.KEPT.pattern and node_reader.KEPT.flags == gpus.KEPT.flags


def test_a_user_reads_xids_through_the_service(monkeypatch, serve):
    """Catches: a node whose log is for root alone judged as one that cannot be looked at, or as healthy."""
    denied = {"argv": ["dmesg"], "exit_code": 1, "out": "", "error": "dmesg: Operation not permitted"}
    monkeypatch.setattr(gpus, "run", lambda _: dict(denied))
    answer = {"schema": 1, "kernel": [XID, "not of the driver"], "kernel_error": "", "pci": {}}
    seen = gpus.kernel_log(serve(json.dumps(answer).encode()))
    assert (seen["exit_code"], seen["out"]) == (0, f"{XID}\n")


@cases(
    "text, says",
    (None, "No such file"),
    (b"", "node.sock"),
    (b"[]", "no JSON object"),
    (b'{"kernel": [1], "kernel_error": "", "pci": {}}', "no reading of a node"),
    (b'{"kernel": [], "kernel_error": "Operation not permitted", "pci": {}}', "not permitted"),
)
def test_without_the_service_the_log_is_not_read_and_says_why(monkeypatch, serve, tmp_path, text, says):
    """Catches: a service that is not there, or answers nonsense, taken for a log without errors."""
    denied = {"argv": ["dmesg"], "exit_code": 1, "out": "", "error": "dmesg: denied"}
    monkeypatch.setattr(gpus, "run", lambda _: dict(denied))
    seen = gpus.kernel_log(str(tmp_path / "no.sock") if text is None else serve(text))
    assert seen["exit_code"] == 1 and "dmesg: denied" in seen["error"] and says in seen["error"]


def test_ports_are_known_to_an_ordinary_user(serve):
    """Catches: PCIe switches guessed from the number of bridges where the service could tell them."""
    answer = {
        "kernel": [],
        "kernel_error": "",
        "pci": {"0000:00:01.0": CONFIG[:256].hex(), "0000:00:02.0": "zz"},
    }
    document = {"devices": [{"bdf": "0000:00:01.0"}, {"bdf": "0000:00:02.0"}]}
    job.with_registers(document, serve(json.dumps(answer).encode()))
    assert document["devices"][0]["port_type"] == 5
    assert "port_type" not in document["devices"][1]


def test_an_endless_answer_ends(monkeypatch, serve):
    """Catches: a service that fills the memory of a node."""
    monkeypatch.setattr("shakedown.run.service.LARGEST_ANSWER", 10)
    with pytest.raises(ValueError, match="too long"):
        of_node(serve(b" " * 100))


def test_an_answer_that_came_before_the_question_counts(tmp_path):
    """Catches: a service that answered and closed at once, taken for one that turned its caller away."""
    path = str(tmp_path / "quick.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(1)
        connect = socket.socket.connect

        def answered(client: socket.socket, where: str) -> None:
            connect(client, where)
            connection, _ = server.accept()
            connection.sendall(b'{"schema": 1}')
            connection.close()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(socket.socket, "connect", answered, raising=False)
            assert service.ask(path, timeout_s=2.0) == {"schema": 1}

"""The command: what it prints, its exit status, and that bad input is one line."""

import json
import subprocess
from pathlib import Path

import pytest
from test_topology import document, switched

from tests.kit.cases import cases
from tests.kit.run import python

REPOSITORY = Path(__file__).resolve().parents[3]


def command(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would."""
    return python("-m", "shakedown", "topology", *argv)


@pytest.fixture
def capture(tmp_path):
    """A file of the probe's output, with a change to its devices."""

    def make(change=lambda devices: None) -> str:
        devices = switched()
        change(devices)
        file = tmp_path / "n1.json"
        file.write_text(json.dumps(document(devices)))
        return str(file)

    return make


def test_good_host_passes_and_marks_the_nic_to_use(capture, tmp_path):
    """Catches a table without the answer, cut-off addresses in a pipe, and a picture that is not written."""
    done = command(capture(), "--svg", str(tmp_path / "n1.svg"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "0000:10:10.0" in done.stdout
    assert "PIX*" in done.stdout
    assert (tmp_path / "n1.svg").read_text().startswith("<svg")


def test_bad_host_fails_and_says_why(capture, shakedown):
    """Catches exit status 0 on a host whose NIC trained down."""
    status, out, _ = shakedown("topology", capture(lambda devices: devices[1].update(width=8)), "--json")
    assert status == 1
    answer = json.loads(out)
    assert answer["problems"] == ["mlx5_3 (0000:10:11.0): PCIe link is x8, can be x16"]
    assert answer["mpirun"] == ["--map-by", "ppr:2:numa", "--bind-to", "core"]


def test_rail_groups_come_from_the_inventory(shakedown):
    """Catches a topology.conf that names leaves where Slurm should see groups."""
    status, out, err = shakedown("topology", REPOSITORY / "inventories/lab", "--switches")
    assert (status, err) == (0, "")
    assert out.startswith("SwitchName=group0 Nodes=")
    assert out.count("SwitchName") == 1


@cases(
    "argv, words",
    (["no-such-host.invalid"], "no-such-host.invalid: "),
    (["--", "-oProxyCommand=true"], "shakedown: '-oProxyCommand=true' is no host"),
    (["/nonexistent", "--switches"], "shakedown: /nonexistent: "),
)
def test_bad_input_is_one_line(argv, words, shakedown):
    """Catches a traceback, and a host name that ssh takes for an option."""
    status, _, err = shakedown("topology", *argv)
    assert status == 2
    assert words in err
    assert err.count("\n") == 1


def test_garbage_is_refused_by_name(tmp_path, shakedown):
    """Catches a half-written capture that is drawn as an empty host."""
    file = tmp_path / "half.json"
    file.write_text('{"schema": 1, "host": "n1"')
    status, _, err = shakedown("topology", file)
    assert status == 2
    assert str(file) in err

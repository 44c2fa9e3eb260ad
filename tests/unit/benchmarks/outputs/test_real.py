"""What three and four generations of each tool really take and say, against what is given and read."""

import ast
import functools
import json
import re
from pathlib import Path

import pytest

from shakedown.benchmarks.config.job import read_table
from shakedown.benchmarks.nccl.log import LOG_LINE, parse_nccl_log
from shakedown.benchmarks.perftest.output import parse_perftest
from shakedown.nos import linux
from shakedown.onnode import discover_probe, snapshot_probe
from shakedown.onnode.journal import cause
from shakedown.records.reading import BadInput
from shakedown.records.tool_text import TextSource
from tests.kit.refusal import refused
from tests.kit.site import CHECKOUT

REAL = Path(__file__).parent / "real"
OPTIONS = json.loads((REAL / "options.json").read_text())
IPROUTE2 = json.loads((REAL / "iproute2.json").read_text())
# perftest's programs take the same options, but for these of bandwidth alone.
_OF_RATES = {"--report_gbits", "--qp", "--bidirectional"}


@functools.cache
def given() -> dict[str, set[str]]:
    """Every long option that a list of words in the code gives to a tool of `OPTIONS`."""
    found: dict[str, set[str]] = {tool: set() for tool in OPTIONS}
    for path in [*CHECKOUT.glob("shakedown/**/*.py"), *CHECKOUT.glob("reframe_tests/*.py")]:
        text = path.read_text()
        # A tree takes long to make.
        for node in ast.walk(ast.parse(text)) if any(f'"{tool}"' in text for tool in found) else ():
            words = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
            tools = {w.value for w in words if isinstance(w, ast.Constant) and w.value in found}
            texts = [c.value for w in words if tools for c in ast.walk(w) if isinstance(c, ast.Constant)]
            for tool in tools:
                found[tool] |= set(re.findall(r"(?m)^--[A-Za-z][\w-]*", "\n".join(map(str, texts))))
    source = (CHECKOUT / "shakedown/benchmarks/perftest/mesh/perftest.py").read_text()
    ours = set(re.findall(r'"(--[A-Za-z][\w-]*)', source))
    for tool in ("ib_write_bw", "ib_send_bw"):
        found[tool] = ours
    started = (CHECKOUT / "playbooks/parts/stage.yml").read_text().partition("/venv/bin/reframe")[2]
    found["reframe"] = set(re.findall(r"(?m)^ +- (--[a-z][\w-]*)", started))
    return found | dict.fromkeys(("ib_write_lat", "ib_read_lat"), ours - _OF_RATES)


@pytest.mark.parametrize(("tool", "release"), [(tool, r) for tool, of in OPTIONS.items() for r in of])
def test_every_option_that_we_give_is_known_to_each_release(tool, release):
    """Catches: an option that one generation has not, which ends every job there with a page of help."""
    assert given()[tool] and given()[tool] <= set(OPTIONS[tool][release].split())


@pytest.mark.parametrize("release", ["4.1.0", "4.1.4", "5.0.7", "6.0.0rc2"])
def test_the_label_of_each_mpirun_is_taken_off(release):
    """Catches: a label in another form, which stands before every row and makes it none."""
    text = (REAL / f"mpirun_{release}_tagged.txt").read_text()
    assert [line.text.strip() for line in TextSource(text, mixed=True).lines if line.text] == ["1", "1"]


@pytest.mark.parametrize("release", ["4.1.4", "5.0.7", "6.0.0rc2"])
@pytest.mark.parametrize(
    ("failed", "kind", "says"),
    [
        ("toomany", "environment", "fewer places than ranks"),
        ("unknown", "environment", "--no-such-option"),
        ("absent", "missing-tool", "/usr/bin/no-such-program"),
    ],
)
def test_why_mpirun_failed_is_its_own_first_word(release, failed, kind, says):
    """Catches: the last lines of Open MPI's advice told as the cause of a job that never began."""
    found = cause((REAL / f"mpirun_{release}_{failed}.txt").read_text())
    assert found and found["kind"] == kind and says in found["message"]


def test_an_mpirun_that_does_not_find_slurm_is_named():
    """Catches: "orte_init failed", which a user takes for a fault of the fabric."""
    assert "does not work with this Slurm" in cause((REAL / "mpirun_4.1.4_slurm.txt").read_text())["message"]


@pytest.mark.parametrize("path", sorted(REAL.glob("nccl_*")), ids=lambda path: path.name)
def test_each_line_of_each_nccl_is_known_as_one(path):
    """Catches: a line whose head has another form (`[-1]`: no device), with which a warning is lost."""
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    found = [LOG_LINE.match(line) for line in lines]
    assert all(found) and any(match["level"] == "WARN" for match in found), lines
    with pytest.raises(BadInput):
        parse_nccl_log(path.read_text())


@pytest.mark.parametrize("release", ["4.4", "4.5", "25.01"])
def test_a_perftest_that_measured_nothing_says_why(release):
    """Catches: a missing NIC, or a release that lacks an option, told as an output that was cut off."""
    text = (REAL / f"perftest_{release}_no_device.txt").read_text()
    refused("Did not detect devices|Unable to find the Infiniband", parse_perftest, text)
    unknown = (REAL / f"perftest_{release}_unknown.txt").read_text()
    assert "--no-such-option" in cause(unknown)["message"]


@pytest.mark.parametrize("release", IPROUTE2)
def test_each_iproute2_is_read_alike(release, monkeypatch):
    """Catches: a key that one generation calls otherwise: no counters, neighbours, addresses or routes."""
    said = {name: json.dumps(document) for name, document in IPROUTE2[release].items()}
    port = linux.links({"links": said["links"]})["v0"]
    assert port["rx_packets"] > 0 and port["link_flaps"] == 2 and {*port} >= {"tx_drops", "rx_errors"}
    assert read_table(said["neigh"].replace("PERMANENT", "REACHABLE"), "v0") == {
        "10.10.0.2": "02:00:00:00:00:02"
    }
    monkeypatch.setattr(
        snapshot_probe, "run", lambda *words: said["route" if "route" in words else "address"]
    )
    assert discover_probe.addresses() == {"v0": ["10.10.0.1/24"]}
    assert discover_probe.default_interfaces() == ["v0"]

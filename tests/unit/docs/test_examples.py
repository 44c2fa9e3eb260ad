"""The examples that end every command's help: run as they stand, in a folder where their files exist."""

import importlib.util
import json
import os
import shlex
import shutil
from pathlib import Path

import pytest
from generator.commands import commands, examples

from shakedown.collect.run import collect
from shakedown.daytwo.history.ingest import ingest
from shakedown.judge.judged import judge_folder
from shakedown.run.folder import write_verdict
from tests.kit.archive import unpack
from tests.kit.key import make_key, make_signers
from tests.unit.daytwo.fake_slurm import FakeSlurm
from tests.unit.daytwo.fleet import START, Night, names
from tests.unit.daytwo.test_drain import pairs_run
from tests.unit.discover import machines

ROOT = Path(__file__).parents[3]


pytestmark = pytest.mark.slow  # every command once, as its user starts it
COMMANDS = dict(commands())
# These need a cluster, or GPUs that tell who they are: recorded runs have no UUIDs.
NEEDS_A_CLUSTER = ("shakedown discover mysite --ansible", "shakedown discover mysite --slurm")
NEEDS_A_CLUSTER += (
    "shakedown health",
    "shakedown nightly run",
    "shakedown power",
    "shakedown references cards",
)
# Files, a diff, references to sign, a sentence or two; the night's report, which is delivered as JSON.
PRINTS_NO_TABLE = (
    "collect",
    "drain begin-retest",
    "drain end-retest",
    "health",
    "history compact",
    "history ingest",
)
PRINTS_NO_TABLE += ("mend", "mesh confirm", "nightly run", "order", "power", "references baseline")
PRINTS_NO_TABLE += ("references cards", "references propose", "report", "seal", "simulate", "export")
EXAMPLES = [line for command in COMMANDS.values() for line in examples(command)]
CAPTURES = ROOT / "tests/unit/benchmarks/outputs/captures"
MESH = "reports/runs/lab/raw/fabric.ib_write_bw.a1"
PROFILE = """\
schema: 1
profile: mine
title: An example
published: nowhere
audit: made up
references:
  - {id: write, stage: fabric, test: ib_write_bw, metric: bandwidth, value: 380, tolerance: 0.02, unit: Gb/s,
     better: higher, kind: measured, source: made up}
"""
CRITERIA = """\
schema: 1
contract: Contract 7, annex B
criteria:
  - {id: B.1, text: Each pair has its bandwidth, cells: [fabric/*/bandwidth/*]}
"""


def recorded(name: str, run: Path) -> None:
    """Put a recorded run where it is asked for."""
    unpack(ROOT / "tests/runs" / name / "run.tar.xz", run)


@pytest.fixture(scope="module")
def furnished(tmp_path_factory) -> Path:
    """A folder with everything that the examples name."""
    place = tmp_path_factory.mktemp("examples")
    runs = place / "reports/runs"
    for run, name in (
        ("lab", "lab_healthy"),
        ("roce", "h200x4_nccl_healthy"),
        ("tcp", "h200x4_nccl_p2p_off"),
        ("direct", "h200x4_interconnect"),
    ):
        recorded(name, runs / run)
        collect(runs / run)
    shutil.copytree(runs / "direct", runs / "path1")
    write_verdict(runs / "lab", judge_folder(runs / "lab"))
    (place / ".ssh").mkdir()
    key = make_key(place / ".ssh", "id_ed25519")
    make_signers(place / "allowed_signers", {"somebody": key})
    make_signers(place / "known_hosts", {name: make_key(place / ".ssh", name) for name in ("n1", "n2")})
    (place / "reports/drain.jsonl").write_text('{"node": "n1", "action": "drain", "step": "done"}\n')
    nodes = names(12)
    for night in range(15):
        run = Night(f"night{night}", nodes=nodes, night=night, metrics=("write",)).write(runs / f"n{night}")
        ingest(place / "reports/history", run, now=START.replace(year=2027))
        shutil.rmtree(run)
    firmware = dict.fromkeys(nodes[:6], "22.2")
    Night("before", nodes=nodes, night=20).write(runs / "before")
    Night("after", nodes=nodes, night=21, firmware=firmware).write(runs / "after")
    pairs_run(runs, "night", bad={"n1"})
    pairs_run(runs, "retest")
    pairs_run(runs, "bad", bad={"n2"}, pairs=[("n1", "n2")], system="lab")
    (place / "inventories").symlink_to(ROOT / "inventories")
    shutil.copy(place / MESH / "spec.json", place / "spec.json")
    shutil.copytree(place / MESH, place / "outdir")
    shutil.copy(CAPTURES / "nccl-tests_2.19.6_all_reduce_4xH200.txt", place / "all_reduce.txt")
    shutil.copy(CAPTURES / "perftest_25.01_rxe_write_bw_client.txt", place / "ib_write_bw.txt")
    site = {"schema": 1, "checkout": ".", "inventory": "inventories/lab", "state": "state", "group": 3}
    (place / "mine.yml").write_text(PROFILE)
    answers = machines.lab()
    for answer in answers["nodes"].values():
        answer["nics"] = [nic | {"mac": "52:54:00:ff:00:01"} for nic in answer["nics"]]  # all were replaced
    (place / "answers.json").write_text(json.dumps(answers))
    (place / "nightly.json").write_text(json.dumps(site))
    return place


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_ends_with_an_example(name, shakedown):
    """Catches: a command whose help leaves the reader to guess how it is called."""
    command = COMMANDS[name]
    found = examples(command)
    assert found
    assert all(line.split()[1 : 1 + len(name.split())] == name.split() for line in found)
    _, printed, _ = shakedown(*name.split(), "--help")
    last = printed.rstrip().splitlines()[-1].strip()
    assert last == found[-1], "the help's last line is the example, whole and on one line"


@pytest.fixture
def run_example(furnished, tmp_path, monkeypatch, shakedown):
    """A runner of one example in a folder of its own: (exit status, standard output, standard error)."""

    def run(line: str, *more: str) -> tuple[int, str, str]:
        prepare(line, furnished, tmp_path, monkeypatch, shakedown)
        words = shlex.split(line.partition(" > ")[0])[1:]
        return shakedown(*(word.replace("~", str(Path.cwd())) for word in words), *more)

    return run


def prepare(line, furnished, tmp_path, monkeypatch, shakedown) -> None:
    """Make the folder, and do what must come before a command."""

    def unused(folder: str, names: list[str]) -> list[str]:
        runs = Path(folder) == furnished / "reports/runs" and " drain " not in line
        return [name for name in names if runs and name not in line]

    # Links: commands write aside and rename, and so change no file of the folder that all examples share.
    options = {"symlinks": True, "copy_function": os.link, "ignore": unused}
    place = Path(shutil.copytree(furnished, tmp_path / "here", **options))
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(place))
    if " drain " in line:
        slurm = FakeSlurm(tmp_path, nodes=("n1", "n2", "n3", "n4"))
        monkeypatch.setenv("PATH", f"{slurm.bin}{os.pathsep}{os.environ['PATH']}")
        if "retest" in line:
            shakedown("drain", "propose", "reports/runs/night", "--act", "--max-fraction", "1")
        if "end-retest" in line:
            shakedown("drain", "begin-retest", "n1", "--partner", "n2", "--partner", "n3", "--act")
    if " verify " in line or " certify " in line:
        ordered = ("--hosts", "known_hosts", "--user", "1000", "--output", "order.json")
        shakedown("order", "reports/runs/lab", "--key", place / ".ssh/id_ed25519", *ordered)
        shakedown("seal", "reports/runs/lab", "--key", place / ".ssh/id_ed25519")
        (place / "criteria.yml").write_text(CRITERIA)
    if " verify certificate " in line:
        keys = ("--key", place / ".ssh/id_ed25519", "--signers", "allowed_signers")
        shakedown("certify", "reports/runs/lab", "--criteria", "criteria.yml", *keys)


@pytest.mark.parametrize("line", [line for line in EXAMPLES if not line.startswith(NEEDS_A_CLUSTER)])
def test_every_example_runs(line, run_example):
    """Catches: an example with an option that was renamed, or that its own command refuses."""
    status, _, error = run_example(line)
    assert status in (0, 1, 3), error


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in PRINTS_NO_TABLE])
def test_every_table_is_there_as_json(name, run_example):
    """Catches: a table that only people can read, and JSON with a stray line beside it."""
    line = next(line for line in examples(COMMANDS[name]) if "--table" not in line)
    status, printed, error = run_example(line, *(() if "--json" in line else ("--json",)))
    assert status in (0, 1, 3), error
    assert json.loads(printed) is not None


def test_the_generator_finds_the_commands_that_the_program_has(shakedown):
    """Catches: a command that the reference leaves out, or that only it has."""
    status, printed, _ = shakedown("--help")
    assert status == 0
    assert importlib.util.find_spec("shakedown.commands.cli") is not None
    assert all(f"  {name.split()[0]} " in printed for name in COMMANDS)
    assert len(COMMANDS) > 30

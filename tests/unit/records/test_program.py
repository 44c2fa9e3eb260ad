"""Programs that playbooks, jobs and people start: whoever reads what they print, they end as they should."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import shakedown
from shakedown.records.program import status_of

PACKAGE = Path(shakedown.__file__).parent
ENDED = "from shakedown.records.program import ended"
# Started with a file of a job's folder as their output, which their starter reads.
OWN_FILE = {
    "shakedown.benchmarks.gpu_rate.program",
    "shakedown.benchmarks.mpi.allreduce",
    "shakedown.benchmarks.torch_collectives.program",
    # Ansible's own command line, for shakedown.intent.inventory alone.
    "shakedown.intent.inventory_values",
}
JOBS = {"schema": 1, "run": "r1", "jobs": [], "nics": {}}


def programs() -> dict[str, str]:
    """Return every module that is started by its name, with its text."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if '\nif __name__ == "__main__":' in text and path.name != "__main__.py":
            found[".".join(("shakedown", *path.relative_to(PACKAGE).with_suffix("").parts))] = text
    return found


def prints(text: str) -> bool:
    """Whether a program writes to standard output."""
    return any(
        (ast.unparse(call.func) == "print" and not any(word.arg == "file" for word in call.keywords))
        or ast.unparse(call.func) in ("sys.stdout.write", "parser.parse_args")
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call)
    )


def test_what_prints_outlives_its_reader():
    """Catches: a program, new or old, that ends in a traceback when its reader leaves."""
    without = {name for name, text in programs().items() if prints(text) and ENDED not in text}
    assert without == OWN_FILE


@pytest.fixture
def argv(tmp_path) -> dict[str, list[str]]:
    """Of each program that prints, a call that does so and needs no cluster."""
    home, run = tmp_path / "home", tmp_path / "run"
    for folder in (home, run):
        folder.mkdir()
    (run / "jobs.json").write_text(json.dumps(JOBS))
    spec = json.loads((Path(__file__).parents[1] / "collect/lab_job/spec.json").read_text())
    (run / "spec.json").write_text(json.dumps(spec))
    for node in spec["nodes"]:
        event = {"event": "start", "time": "2026-01-01T00:00:00Z"}
        (run / f"journal.{node}.jsonl").write_text(
            "".join(json.dumps(event | {"event": kind}) + "\n" for kind in ("start", "end"))
        )
    names = {"onnode.discover_probe": [], "onnode.snapshot_probe": [], "onnode.topology_probe": []}
    names |= {"onnode.software": ["look", "{}"], "run.service": [str(tmp_path / "none"), "", "0"]}
    names |= {"run.lock": ["look", "{}"], "slurm.run_control": ["look", str(home)]}
    names |= {"slurm.stage": ["--help"], "slurm.preflight": ["--help"]}
    names |= {"benchmarks.software.beforehand": ["asked", str(run)]}
    names |= {"benchmarks.perftest.mesh.completeness": [str(run)], "benchmarks.perftest.mesh.driver": []}
    names |= {"evidence.orders": [], "evidence.able_to_sign": [], "onnode.health": ["--help"]}
    return {f"shakedown.{name}": words for name, words in names.items()}


def ran(words: list[str], output: str) -> tuple[int, str]:
    """Run a program with its output elsewhere; return status and standard error."""
    script = {
        "left": '"$@" | true; exit ${PIPESTATUS[0]}',
        "closed": 'exec "$@" >&-',
        "full": 'exec "$@" >/dev/full',
    }[output]
    done = subprocess.run(
        ["bash", "-c", script, "bash", sys.executable, "-m", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def test_every_program_is_tried(argv):
    """Catches: a new program that the slow test below, run minutes later, does not start."""
    assert {name for name, text in programs().items() if ENDED in text} == argv.keys()


@pytest.mark.slow
def test_every_program_ends_with_its_own_status(argv):
    """Catches: BrokenPipeError's traceback, status 120, or a full disk that nobody hears of."""
    for name, arguments in argv.items():
        words = [name, *arguments]
        plain = subprocess.run(
            [sys.executable, "-m", *words], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        status, said = plain.returncode, plain.stdout
        assert b"Traceback" not in plain.stderr, (name, plain.stderr)
        for output, due in (("left", status), ("closed", status), ("full", 2 if said else status)):
            found, error = ran(words, output)
            assert found == due, (name, output, error)
            assert "Traceback" not in error and "Exception ignored" not in error, (name, output, error)
            assert output != "full" or not said or "No space left on device" in error, (name, error)


@pytest.mark.parametrize("probe", ["discover_probe", "snapshot_probe", "topology_probe", "software"])
def test_what_is_sent_to_nodes_needs_nothing_else(probe, tmp_path):
    """Catches: a program read from standard input that asks a node for the rest of us."""
    text = (PACKAGE / "onnode" / f"{probe}.py").read_text(encoding="utf-8")
    if probe == "discover_probe":
        pytest.skip("is sent together with topology_probe (shakedown.discover.ask)")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-", *(["look", "{}"] if probe == "software" else [])],
        input=text,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) is not None


def test_a_refusal_is_one_line(capsys):
    """Catches: programs of a playbook that say what is refused in different ways."""

    def refused() -> None:
        raise FileNotFoundError(2, "No such file or directory", "/run/x")

    assert status_of(refused) == 2
    assert capsys.readouterr().err == "/run/x: No such file or directory\n"
    assert status_of(lambda: None) == 0


STARTERS = re.compile(r"subprocess\.(run|Popen|call|check_\w+)|os\.(system|popen|exec\w+|spawn\w+)")


def test_every_program_starts_from_the_one_environment():
    """Catches: a user's SLURM_TIME_FORMAT, PYTHONPATH or LC_ALL that steers a program of ours."""
    loose: dict[str, int] = {}
    for path in PACKAGE.rglob("*.py"):
        name = str(path.relative_to(PACKAGE))
        # What runs within a job has what `shakedown.slurm.stage` gave ReFrame.
        text = "" if name.startswith(("onnode/", "benchmarks/")) else path.read_text("utf-8")
        for call in ast.walk(ast.parse(text)) if STARTERS.search(text) else ():
            if isinstance(call, ast.Call) and STARTERS.fullmatch(ast.unparse(call.func)):
                given = {word.arg: ast.unparse(word.value) for word in call.keywords}.get("env", "")
                ours = re.search(r"(plain|ansible)_environment\(os\.environ\)", given) or given == "variables"
                if not ours:
                    loose[name] = loose.get(name, 0) + 1
    assert loose == {}


def test_programs_on_the_submit_host_see_no_python_of_the_users():
    """Catches: another clone, named by a user's PYTHONPATH, that stages, asks and gives back."""
    root = PACKAGE.parent
    for path in (*root.glob("playbooks/*.yml"), *root.glob("playbooks/parts/*.yml")):
        for call in re.findall(r"/venv/bin/python\"[\s,-]*(-\w+)", path.read_text("utf-8")):
            assert call == "-I", path


def test_programs_on_the_controller_are_this_checkout_s():
    """Catches: another clone, named by a user's PYTHONPATH, that plans, judges or asks who holds the host."""
    for path in (PACKAGE.parent / "playbooks").rglob("*.yml"):
        for play in yaml.safe_load(path.read_text("utf-8")):
            for task in play.get("tasks", [play]) if isinstance(play, dict) else []:
                argv = str(task.get("ansible.builtin.command", ""))
                if "ansible_playbook_python" in argv or "verdict_command" in argv:
                    where = str({**play, **task}.get("environment", ""))
                    assert "PYTHONPATH" in where or path.name == "moved.yml", task

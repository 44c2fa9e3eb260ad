"""The wheel as users install it, beside nothing else: does it do what the README promises on any laptop?"""

import ast
import json
import re
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from installed import ROOT, UV, done

from tests.kit.key import make_key, make_signers

pytestmark = pytest.mark.slow

CAPTURES = ROOT / "tests/unit/benchmarks/outputs/captures"
# Imports of programs that other environments run, and of a type checker.
ELSEWHERE = {"torch", "mpi4py", "ansible", "reframe", "_typeshed", "pydantic_core"}
OTHER_NAMES = {"pillow": "PIL", "pyyaml": "yaml"}
PASS, FAIL, BAD_INPUT, INCOMPLETE = range(4)


@pytest.fixture(scope="session")
def versions(tmp_path_factory) -> Path:
    """The locked versions as constraints: what another project releases today fails no test of ours."""
    lines = re.findall(r"^\S+==[^\\\n]+", (ROOT / "requirements/controller.txt").read_text(), re.MULTILINE)
    file = tmp_path_factory.mktemp("versions") / "constraints.txt"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture(scope="session")
def by_uv(wheel, versions, tmp_path_factory) -> Path:
    """The command, installed by `uv tool install`."""
    folder = tmp_path_factory.mktemp("tool")
    places = {"UV_TOOL_DIR": str(folder / "tools"), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    argv = [UV, "tool", "install", "--quiet", "--no-config", f"--python={sys.executable}"]
    installed = done([*argv, "--constraints", versions, wheel], env=places)
    assert installed.returncode == 0, installed.stderr
    return folder / "bin" / "shakedown"


@pytest.fixture(scope="session")
def by_pip(wheel, versions, tmp_path_factory) -> Path:
    """The command, installed by pip in an environment of its own."""
    folder = tmp_path_factory.mktemp("pip") / "venv"
    python = folder / "bin" / "python"
    made = done([sys.executable, "-m", "venv", folder])
    assert made.returncode == 0, made.stderr
    argv = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    installed = done([*argv, "--constraint", versions, wheel])
    assert installed.returncode == 0, installed.stderr
    return folder / "bin" / "shakedown"


@pytest.fixture
def laptop(by_uv, tmp_path) -> Callable[..., str]:
    """A runner of the installed command: asserts its exit status, returns what it printed."""

    def run(*words: object, exits: int = PASS) -> str:
        ended = done([by_uv, *map(str, words)], cwd=tmp_path)
        assert ended.returncode == exits, ended.stderr or ended.stdout
        assert "Traceback" not in ended.stderr
        return ended.stdout if exits != BAD_INPUT else ended.stderr

    return run


def test_the_wheel_holds_data_and_no_workload(wheel):
    """Catches: a symbolic link that no wheel follows, or a program of other environments on laptops."""
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"shakedown", "reframe_tests"}
    source = {p.relative_to(ROOT).as_posix() for p in (ROOT / "shakedown").rglob("*.py")}
    data = {f"shakedown/report/templates/{p.name}" for p in (ROOT / "reports/templates").iterdir()}
    data |= {
        f"shakedown/references/profiles/{p.name}" for p in (ROOT / "reframe_tests/references").glob("*.yml")
    }
    data |= {p.relative_to(ROOT).as_posix() for p in (ROOT / "shakedown/benchmarks").glob("*/*.c")}
    data |= {p.relative_to(ROOT).as_posix() for p in (ROOT / "shakedown/nics").glob("*.yml")}
    data |= {p.relative_to(ROOT).as_posix() for p in (ROOT / "shakedown/onnode").glob("*.sh")}
    checks = {f"reframe_tests/{name}.py" for name in ("check", "guard", "settings")}
    assert {n for n in names if n.startswith("reframe_tests/")} == checks
    assert {n for n in names if n.startswith("shakedown/")} == source | data | {"shakedown/py.typed"}
    assert wheel.stat().st_size < 1.3e6  # the code by itself is 1.06 MB, a recorded run half a megabyte


def test_every_import_is_declared(wheel):
    """Catches: a package that is there only because another needs it, or that only a rare command wants."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        requires = re.findall(
            r"^Requires-Dist: ([\w-]+)(?!.*extra ==)", archive.read(metadata).decode(), re.MULTILINE
        )
        nodes = [
            node for name in names if name.endswith(".py") for node in ast.walk(ast.parse(archive.read(name)))
        ]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    roots = {name.split(".")[0] for name in imported} - sys.stdlib_module_names
    roots -= {"shakedown", "reframe_tests"}
    assert roots - ELSEWHERE == {OTHER_NAMES.get(name, name.replace("-", "_")) for name in requires}


def test_pip_installs_the_same(by_pip, recorded_run, tmp_path):
    """Catches: an install that only uv resolves."""
    run = recorded_run("h200x4_nccl_socket")
    for words, status in ((["--version"], PASS), (["collect", run], PASS), (["report", run], FAIL)):
        ended = done([by_pip, *words], cwd=tmp_path)
        assert ended.returncode == status, ended.stderr
    assert (run / "report.html").stat().st_size > 10_000


@pytest.mark.timeout(900)  # two installations
def test_another_clone_on_a_user_s_path_is_not_run_or_is_told(by_uv, by_pip, tmp_path):
    """Catches: another clone, named by PYTHONPATH, that judges in the installed one's place, unsaid."""
    other = tmp_path / "clone"
    (other / "shakedown/commands").mkdir(parents=True)
    (other / "shakedown/commands/cli.py").write_text("def main(): print('another clone')")
    editable, venv = tmp_path / "mine", tmp_path / "venv"
    (editable / "shakedown/commands").mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE", "bin/shakedown", "docs/reference/shakedown.1"):
        (editable / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, editable / name)
    for name in ("__init__", "commands/__init__", "commands/cli"):
        (editable / f"shakedown/{name}.py").write_text("def main(): print('shakedown of mine')")
    assert done([sys.executable, "-m", "venv", "--without-pip", venv]).returncode == 0
    argv = [UV, "pip", "install", "--quiet", "--no-config", f"--python={venv}/bin/python", "--no-deps"]
    made = done([*argv, "--editable", editable])
    assert made.returncode == 0, made.stderr
    for command in (by_uv, by_pip, venv / "bin/shakedown"):
        ended = done([command, "--version"], cwd=other, env={"PYTHONPATH": str(other)})
        assert ended.stdout.startswith("shakedown ") and not ended.stderr, (command, ended)
    module = [by_pip.with_name("python"), "-m", "shakedown", "--version"]
    told = done(module, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}).stderr
    assert f"this is {ROOT}/shakedown, {by_pip.parents[1]}/lib" in told and told.count("\n") == 1
    assert done(module, cwd=tmp_path).stderr == done(module, cwd=ROOT).stderr == ""


def test_a_run_is_read_judged_reported_sealed_and_verified(laptop, recorded_run, tmp_path):
    """Catches: a module, template or dependency that only a checkout has."""
    run = recorded_run("lab_healthy")
    laptop("collect", run)
    assert laptop("verdict", run, "--write").startswith("PASS ")
    laptop("report", run)
    assert {p.name for p in run.iterdir()} >= {"report.html", "junit.xml", "metrics.prom", "report.md"}
    key = make_key(tmp_path, "key")
    signers = make_signers(tmp_path / "signers", {"me": key})
    laptop("seal", run, "--key", key, "--redact")
    assert laptop("verify", run, "--signers", signers).startswith("VERIFIED ")


def test_a_simulated_fault_is_localised_and_a_real_run_remembered(laptop, recorded_run):
    """Catches: NumPy, SciPy, ruptures or Arrow not declared: each is imported only when it is wanted."""
    for name, *fault in (("a",), ("b", "--fault", "nic-tx:10%")):
        laptop("simulate", name, "--nodes", 8, "--rails", 2, "--pod", 4, *fault)
    assert laptop("localise", "a") and laptop("localise", "b", exits=FAIL)
    laptop("verdict", "a", "--write")
    laptop("report", "b", exits=FAIL)
    laptop("compare", "a", "b", "--changed", "nic.firmware", exits=BAD_INPUT)
    laptop("history", "ingest", "a", "b", exits=BAD_INPUT)
    run = recorded_run("h200x4_nccl_healthy")
    laptop("collect", run)
    laptop("history", "ingest", run)
    laptop("history", "show", "--node", "gpu1", "--html", "page.html")
    laptop("history", "fleet")


def test_runs_are_set_side_by_side(laptop, recorded_run):
    """Catches: a comparison whose statistics or charts need what is not declared."""
    a, b, inference = map(recorded_run, ("h200x4_nccl_healthy", "h200x4_nccl_p2p_off", "h200x4_interconnect"))
    for run in (a, b, inference):
        laptop("collect", run)
    laptop("sweeps", f"a={a}", f"b={b}", "--html", "ab.html")
    laptop("interconnect", f"none={inference}")


def test_references_ceilings_and_outputs_of_tools(laptop):
    """Catches: profiles that are not in the wheel: `references show` that knows no name."""
    laptop("references", "lint")
    assert "write_bw" in laptop("references", "show", "tolly_xe9680_z9664f")
    assert json.loads(laptop("ceiling", "roce", "--json"))
    captures = {
        "perftest": "perftest_25.01_rxe_write_bw_client.txt",
        "nccl": "nccl-tests_2.19.6_all_reduce_4xH200.txt",
        "loadgen": "loadgen_6.0.17_server_valid.txt",
        "nvbandwidth": "nvbandwidth_0.8_4xH200.json",
    }
    for tool, file in captures.items():
        laptop("parse", tool, CAPTURES / file)
    laptop("topology", ROOT / "tests/unit/topology/h200_vm.json", exits=FAIL)


def test_what_needs_an_extra_says_so_in_one_line(laptop):
    """Catches: a traceback where Ansible is not installed, or no word of how to get it."""
    for words in (["plan", ROOT / "inventories/lab"], ["topology", ROOT / "inventories/lab", "--switches"]):
        said = laptop(*words, exits=BAD_INPUT)
        assert said.count("\n") == 1
        assert "ansible-core is not installed" in said and "shakedown[controller]" in said

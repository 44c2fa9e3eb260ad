"""A site's software: what may be said of it, what a job makes of it, and what the run says of each node."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from shakedown.benchmarks.planning import site_of
from shakedown.benchmarks.registry import JOB_KINDS
from shakedown.benchmarks.software import beforehand, job
from shakedown.benchmarks.software.output import unusable_software
from shakedown.collect.run import collect
from shakedown.intent.software import Sources
from shakedown.judge.judged import judge_folder
from shakedown.onnode import software
from shakedown.records.base import to_json
from shakedown.records.reading import BadInput
from shakedown.records.writing import write_aside
from tests.kit.cases import cases
from tests.kit.files import edited, script
from tests.kit.refusal import refused
from tests.kit.run import collected, ordered_in, ran, raw_of, write_run
from tests.kit.site import WHERE, document, hosts, plan_site

# Stands for Lmod: loads what lies under the folder MODULES.
LMOD = """
module() {
    echo "a module may print"
    [ "$1" = load ] && [ -d "$MODULES/$2" ] || return 0
    PATH="$MODULES/$2:$PATH"; LOADEDMODULES="$LOADEDMODULES:$2"; export PATH LOADEDMODULES
}
"""
MISSING = "config/software/missing/{}/-/-/program=perftest"
PERFTEST = '#!/bin/sh\necho "Version: VERSION"\n'


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Node n1, whose modules are folders of tmp_path/modules."""
    init = tmp_path / "lmod/init/bash"
    init.parent.mkdir(parents=True)
    init.write_text(LMOD)
    monkeypatch.setenv("LMOD_PKG", str(tmp_path / "lmod"))
    monkeypatch.setenv("LOADEDMODULES", "")
    monkeypatch.setenv("MODULES", str(tmp_path / "modules"))
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    return tmp_path


def program(place: Path, name: str, text: str) -> Path:
    """Write a program."""
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(text)
    (place / name).chmod(0o755)
    return place / name


@cases(
    "given, says",
    ({"from": {"module": "perftest/1; rm -rf ~"}}, "pattern"),
    ({"from": {"module": "$(id)/1"}}, "pattern"),
    ({"from": {"module": "--force/1"}}, "pattern"),
    ({"from": {"module": "perftest"}}, "pattern"),
    ({"from": {"module": "perftest/1\n"}}, "pattern"),
    ({"from": {"module": []}}, "at least 1"),
    ({"from": {"path": "opt/x"}}, "pattern"),
    ({"from": {"path": "/opt/../etc"}}, "without .."),
    ({"from": {"path": "/opt/a b"}}, "pattern"),
    ({"from": {"spack": "--all"}}, "pattern"),
    ({"from": {"container": "img:1,x"}}, "pattern"),
    ({"from": {"container": "--writable"}}, "pattern"),
    ({"from": {"container": "nccl.sif"}}, "Apptainer would look"),
    ({"from": {"container": "/i.sif", "runtime": "docker"}}, "apptainer"),
    ({"from": {"path": "/x", "module": "a/1"}}, "module and path given"),
    ({"from": {}}, "nothing given"),
    ({"from": {"path": "/x", "runtime": "pyxis"}}, "runtime is of a container"),
    ({"from": "modules"}, "package"),
    ({"from": "package", "libraries": ["/a:/b"]}, "pattern"),
    ({"from": "package", "python": "python3; id"}, "pattern"),
    ({"form": "package"}, "Field required"),
)
def test_what_no_job_may_be_given_is_refused(given, says):
    """Catches: a name from an inventory that becomes an option, a second command or another file."""
    with pytest.raises(ValidationError, match=says):
        TypeAdapter(Sources).validate_python({"perftest": given})


@cases(
    "acceptance, says",
    ({"lora": [{"model": "tiny", "python": "/x"}]}, "acceptance.lora.0.python has gone.*software.pytorch"),
    ({"lora": [{"model": "tiny", "container": "/x"}]}, "lora.0.container has gone.*container: IMAGE"),
    ({"torch": {"python": "/x"}}, "acceptance.torch.python has gone.*software.pytorch"),
    ({"inference": {"python": "/x", "gpus": [1]}}, "inference.python has gone.*software.loadgen"),
    ({"interconnect": {"python": "/x", "path": {"generation": 5}}}, "interconnect.python has gone"),
    ({"gpu_node": {"program": "/x"}}, "gpu_node.program has gone.*software.nvbandwidth"),
    ({"stream": {"program": "/x"}}, "stream.program has gone.*software.stream"),
)
def test_a_key_that_has_gone_is_answered_with_the_new_one(acceptance, says):
    """Catches: a site of an earlier release whose own programs are no longer used, without a word."""
    inventory = document()
    for host in inventory["_meta"]["hostvars"].values():
        host["acceptance"] = acceptance
    refused(says, site_of, inventory, WHERE)


def test_a_role_variable_that_has_gone_is_answered_with_the_new_one(tmp_path):
    """Catches: nccl_tests_module in group_vars, which no role reads any more."""
    from shakedown.intent.variables import check_names

    file = tmp_path / "group_vars/all/nccl.yml"
    file.parent.mkdir(parents=True)
    file.write_text("---\nnccl_tests_module: NCCL-tests/2.13\n")
    refused(r"nccl.yml:2: .*software.nccl_tests: \{from: \{module: NAME/VERSION\}\}", check_names, tmp_path)


def test_nodes_name_one_software():
    """Catches: two nodes measured with two programs, because host_vars say so."""
    inventory = document()
    inventory["_meta"]["hostvars"]["n2"]["software"] = {"perftest": {"from": "package"}}
    refused("n2: software of n2 is not that of n1", site_of, inventory, WHERE)


def test_modules_are_loaded_for_this_process(node):
    """Catches: a module whose program the job does not find."""
    program(node / "modules/ofed/5.8", "ib_write_bw", PERFTEST)
    source = {"from": {"module": ["ofed/5.8"]}, "libraries": ["/opt/l"]}
    assert software.use(source, "perftest", node / "r/raw/j").problem is None
    assert os.environ["PATH"].startswith(f"{node}/modules/ofed/5.8:")
    assert os.environ["LD_LIBRARY_PATH"] == "/opt/l"


@cases(
    "source, says",
    ({"from": {"module": ["ofed/5.9"]}}, "n1: perftest from module ofed/5.9: module ofed/5.9 does not exist"),
    ({"from": {"path": "/no/such"}}, "n1: perftest from path /no/such: /no/such does not exist"),
    ({"from": {"spack": "perftest"}}, "n1: perftest from spack perftest: spack is not on the PATH"),
    ({"from": {"container": "/i.sif"}}, "n1: perftest from container /i.sif: apptainer is not installed"),
    ({"from": {"container": "x/y:1", "runtime": "pyxis"}}, "Slurm has no pyxis here"),
)
def test_what_a_node_lacks_is_named_with_node_and_fix(node, monkeypatch, source, says):
    """Catches: a missing module, image or runtime taken for slow hardware; old modules that end with 0."""
    srun = program(node / "bin", "srun", "#!/bin/sh\necho 'Usage: srun'\n")
    monkeypatch.setenv("PATH", f"{srun.parent}:/usr/bin:/bin")
    problem = software.use(source, "perftest", node / "r/raw/j").problem
    assert problem["kind"] == "not-run"
    assert says in problem["message"]
    assert problem["message"].endswith("; make it available on n1, or change software.perftest")


# As spack 0.23 prints it: shell on standard output, errors on the other (lib/spack/spack/cmd/load.py).
SPACK = """#!/bin/sh
[ "$1 $2" = "load --sh" ] || exit 2
case $3 in
perftest@25) echo "export CMAKE_PREFIX_PATH='/spack/p t';"; echo "export PATH=/spack/perftest/bin:$PATH;" ;;
perftest) echo "==> Error: perftest matches multiple packages." >&2
    echo "  Matching packages:" >&2; echo "    abcdefg perftest@24%gcc@13" >&2
    echo "  Use a more specific spec (e.g., prepend '/' to the hash)." >&2; exit 1 ;;
*) echo "==> Error: Spec '$3' matches no installed packages." >&2; exit 1 ;;
esac
"""


@cases(
    "spec, why",
    ("perftest@25", ""),
    ("perftest", "spack load perftest failed: perftest matches multiple packages."),
    ("ucx@9", "spack load ucx@9 failed: Spec 'ucx@9' matches no installed packages."),
)
def test_spack_loads_or_says_why_not(node, monkeypatch, spec, why):
    """Catches: Spack's environment that the job does not get, or a refusal without Spack's reason."""
    monkeypatch.setenv("PATH", f"{program(node / 'bin', 'spack', SPACK).parent}:/usr/bin:/bin")
    monkeypatch.setenv("CMAKE_PREFIX_PATH", "")
    problem = software.use({"from": {"spack": spec}}, "perftest", node / "r/raw/j").problem
    assert (why in problem["message"]) if why else problem is None
    loaded = os.environ["PATH"].startswith("/spack/perftest/bin:")
    assert (loaded, os.environ["CMAKE_PREFIX_PATH"]) == ((False, "") if why else (True, "/spack/p t"))


def test_containers_are_entered_by_arguments(node, monkeypatch):
    """Catches: an image that does not see the run's folder, or that is entered by a shell."""
    program(node / "bin", "srun", "#!/bin/sh\necho ' --container-image=...'\n")
    program(node / "bin", "apptainer", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", f"{node}/bin:/usr/bin:/bin")
    (node / "i.sif").touch()
    folder = node / "r/raw/j"
    ready = software.use({"from": {"container": f"{node}/i.sif"}}, "nvbandwidth", folder, gpus=True)
    assert ready.prefix[:5] == ("apptainer", "exec", "--nv", "--bind", str(node / "r"))
    assert (ready.prefix[-1], ready.step) == (f"{node}/i.sif", ())
    said = {"from": {"container": "nvcr.io#nvidia/pytorch:25.01", "runtime": "pyxis"}}
    ready = software.use(said, "nvbandwidth", folder)
    assert ready.step[0] == "--container-image=nvcr.io#nvidia/pytorch:25.01"
    assert ready.step[1].startswith(f"--container-mounts={node}/r:{node}/r,")
    assert (
        ready.prefix[0] == "srun" and set(ready.step) < set(ready.prefix) and "--nodelist=n1" in ready.prefix
    )


@pytest.fixture
def run(node, monkeypatch):
    """A run of n1, n2 and n3 that looks at perftest of a module; what each node has is given by node."""

    def made(versions: dict[str, str]):
        inventory = document(nodes=3)
        for host in hosts(inventory):
            host["software"] = {"perftest": {"from": {"module": "ofed/5.8"}}}
        plan, jobs = plan_site(inventory)
        folder = write_run(node / "r1", plan, jobs)
        (spec,) = (each for each in jobs.jobs if each.kind == "software")
        raw = raw_of(folder, spec)
        ordered_in(raw, spec)
        for name in spec.nodes:
            monkeypatch.setenv("SLURMD_NODENAME", name)
            shutil.rmtree(node / "modules", ignore_errors=True)
            if name in versions:
                text = PERFTEST.replace("VERSION", versions[name])
                program(node / "modules/ofed/5.8", "ib_write_bw", text)
            assert job.main(["job", str(raw)]) == 0
        cells = {cell.cell: cell for cell in collected(folder).cells if "/software/" in cell.cell}
        return folder, jobs, cells

    return made


def test_one_node_without_the_module_is_not_run_and_the_others_are_judged(run):
    """Catches: a module that one node of many lacks ending the run, or nobody hearing of it."""
    folder, jobs, cells = run({"n1": "5.8", "n3": "5.8"})
    # A verdict lists what did not pass.
    assert {cell for cell in cells if "/missing/" in cell} == {MISSING.format("n2")}
    assert cells[MISSING.format("n2")].outcome.value == "NOT-RUN"
    measured = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    values = {m["nodes"][0]: m["value"] for m in measured if m["metric"] == "missing"}
    assert values == {"n1": 0.0, "n2": None, "n3": 0.0}
    why = "n2: perftest from module ofed/5.8: module ofed/5.8 does not exist; make it available on n2"
    assert why in cells[MISSING.format("n2")].reason
    mesh = next(each for each in jobs.jobs if each.kind == "mesh")
    assert why in unusable_software(folder, mesh)
    assert JOB_KINDS["mesh"].outlives_nodes  # it runs all the same, and says so of that node's pairs
    good = mesh.model_copy(update={"nodes": ("n1", "n3")})
    assert unusable_software(folder, good) == ""
    (found,) = folder.glob("raw/*/software.n2.perftest.json")
    found.write_text(found.read_text().replace('"message":', '"message": "none", "message":', 1))
    assert unusable_software(folder, mesh) == ""  # what says two things says nothing


def test_another_version_on_one_node_is_named(run):
    """Catches: two versions of perftest that are compared as if they were one."""
    _, _, cells = run({"n1": "5.8", "n2": "6.1", "n3": "5.8"})
    odd = {cell.split("/")[3]: verdict for cell, verdict in cells.items() if "/odd/" in cell}
    assert {n: v.outcome.value for n, v in odd.items()} == {"n2": "FAIL"}
    assert "version is 6.1 on n2, 5.8 on n1, 5.8 on n3" in odd["n2"].reason


@cases(
    "found, outcome, says",
    ({"version": "not told"}, "FAIL", "version is not told on n3, 5.8 on n1, 5.8 on n2"),
    ({"version": None}, "FAIL", "version is nothing on n3, 5.8 on n1, 5.8 on n2"),
    (None, "INCONCLUSIVE", "no record of a software"),
)
def test_what_two_nodes_have_and_the_third_has_not_is_odd(run, found, outcome, says):
    """Catches: a part that a node lacks, or a look that found nothing at all, compared with nobody."""
    folder, _, _ = run({"n1": "5.8", "n2": "5.8", "n3": "5.8"})
    (file,) = folder.glob("raw/*/software.n3.perftest.json")
    with edited(file) as document:
        parts = {} if found is None else document["found"] | found
        document["found"] = {part: value for part, value in parts.items() if value is not None}
    collect(folder)
    cells = {c.cell.split("/")[3]: c for c in judge_folder(folder).cells if "/software/odd/" in c.cell}
    assert {node: cell.outcome.value for node, cell in cells.items()} == {"n3": outcome}
    assert says in cells["n3"].reason


LINKED = """#!/bin/sh
echo "  linux-vdso.so.1 (0x7ffe)"
echo "  libmpi.so.40 => {0}/libmpi.so.40.40.7 (0x7f01)"
echo "  libucp.so.0 => {0}/libucp.so.0.0.0 (0x7f02)"
echo "  libpmix.so.2 => {0}/libpmix.so.2.13.3 (0x7f03)"
echo "  libcudart.so.12 => {0}/libcudart.so.12.4.127 (0x7f04)"
echo "  libm.so.6 => /lib/libm.so.6 (0x7f05)"
"""
OMPI = """#!/bin/sh
case "$*" in
--version) echo "Open MPI v5.0.7";;
*"pml ucx") echo "mca:pml:ucx:version:mca:2.1.0";;
*--all) echo "mca:pmix:ext3x:version:mca:2.1.0";;
esac
"""


@cases(
    "name, runs, text, told",
    ("openmpi", "ompi_info", OMPI, {"version": "5.0.7", "ucx": "ucx", "pmix": "ext3x"}),
    # As ompi_info of 5.0.7 has it: parameters of pmix, and no component.
    (
        "openmpi",
        "ompi_info",
        OMPI.replace("mca:pmix:ext3x:version:mca:2.1.0", "mca:pmix:base:param:pmix:value:"),
        {"version": "5.0.7", "ucx": "ucx", "pmix": "libpmix.so.2.13.3"},
    ),
    ("nccl_tests", "all_reduce_perf", "#!/bin/sh\necho USAGE: all_reduce_perf\n", {}),
    ("perftest", "ib_write_bw", PERFTEST.replace("VERSION", "6.21"), {"version": "6.21"}),
    ("nvbandwidth", "nvbandwidth", "#!/bin/sh\necho nvbandwidth Version: v0.6\n", {"version": "0.6"}),
)
def test_what_a_program_is_linked_to_is_recorded(node, monkeypatch, name, runs, text, told):
    """Catches: MPI, PMIx, UCX or CUDA of another release on one node, which nothing had written down."""
    program(node / "bin", "ldd", LINKED.format(node))
    at = program(node / "opt/bin", runs, text)
    monkeypatch.setenv("PATH", f"{node}/bin:{os.environ['PATH']}")
    ready = software.use({"from": {"path": str(node / "opt")}}, name, node / "r/raw/j")
    found = job.look(name, ready.prefix, ready.interpreter, ready.program)
    assert found.items() >= told.items()
    linked = {key: str(node / file) for key, file in found.items() if key.startswith("lib")}
    assert linked == {
        "libmpi": f"{node}/libmpi.so.40.40.7",
        "libucp": f"{node}/libucp.so.0.0.0",
        "libpmix": f"{node}/libpmix.so.2.13.3",
        "libcudart": f"{node}/libcudart.so.12.4.127",
    }
    assert found["program"] == str(at)


MODULE = {"perftest": {"from": {"module": ["ofed/5.8"]}}, "openmpi": {"from": "package"}}
GONE = "module ofed/5.8 does not exist"


@pytest.fixture
def jobs(tmp_path):
    """Jobs of a site of four nodes with perftest of a module and OpenMPI of the system; and their run."""
    inventory = document(4)
    for host in hosts(inventory):
        host["software"] = MODULE
    site = site_of(inventory, WHERE)
    _, made = plan_site(site)
    write_aside(tmp_path / "jobs.json", to_json(made))
    return made


def said(**reasons: str) -> str:
    """What a node prints, below what its profile prints."""
    return f"Welcome!\n{json.dumps(reasons)}\n"


def test_only_what_is_not_just_on_the_path_is_asked_for(jobs):
    """Catches: a package of the system, which a job may find elsewhere than a login, that refuses a run."""
    asked = beforehand.asked(jobs)
    assert asked["nodes"] == ["n1", "n2", "n3", "n4"]
    assert set(asked["software"]) == {"perftest"}
    assert asked["software"]["perftest"]["from"]["module"] == ("ofed/5.8",)


def test_a_module_that_one_node_of_many_lacks_is_refused(jobs):
    """Catches: hours of jobs, after which a node is NOT-RUN for a module that could have been asked for."""
    answers = {name: said(perftest="") for name in ("n1", "n3", "n4")} | {"n2": said(perftest=GONE)}
    with pytest.raises(BadInput) as error:
        beforehand.refuse_lacking(jobs, answers)
    assert str(error.value) == (
        "software.perftest from module ofed/5.8: module ofed/5.8 does not exist: on n2 (1 of 4 nodes) -- "
        "make it available there, or change software.perftest; or measure the others: "
        "-e acceptance_nodes=n1,n3,n4; or go on without it, what needs it there being NOT-RUN: "
        "-e software_missing=not-run"
    )
    everywhere = dict.fromkeys(("n1", "n2", "n3", "n4"), said(perftest=GONE))
    with pytest.raises(
        BadInput, match=r"on n1\.\.n4 \(4 of 4 nodes\) -- make it available there, or change"
    ) as all_of:
        beforehand.refuse_lacking(jobs, everywhere)
    assert "measure the others" not in str(all_of.value)


@cases(
    "text",
    "",
    "no JSON",
    "[]",
    '{"perftest": 7}',
    '{"other": "gone"}',
    "[" * 40_000,
    '{"perftest": ""}',
    "x" * 70_000,
)
def test_what_is_no_answer_refuses_nothing(jobs, text):
    """Catches: a node that is silent, or prints what it likes, that keeps all others from being measured."""
    beforehand.refuse_lacking(jobs, {"n1": text, "stranger": said(perftest=GONE)})


def test_a_nodes_words_cannot_drive_a_terminal_or_fill_a_screen(jobs):
    """Catches: an escape, or a second line, from a node in what a person reads."""
    with pytest.raises(BadInput) as error:
        beforehand.refuse_lacking(jobs, {"n1": said(perftest="\x1b[2Jgone\nPASS " + "x" * 9000)})
    assert str(error.value).isprintable() and len(str(error.value)) < 1000


@cases(
    "source, why",
    ({"from": {"path": "/no/such"}}, "/no/such does not exist"),
    ({"from": {"path": "/"}}, ""),
    ({"from": {"container": "/i.sif"}}, "apptainer is not installed"),
    ({"from": {"container": "x/y:1", "runtime": "pyxis"}}, ""),  # no srun here: a job will tell
)
def test_the_program_runs_by_itself_on_a_bare_node(source, why):
    """Catches: a program that needs Shakedown, which nodes have not; a job's own matters guessed at."""
    text = Path(software.__file__).read_text()
    argv = [sys.executable, "-IS", "-", "look", json.dumps({"one": source, "two": {"from": {"path": "/"}}})]
    done = ran(*argv, input=text, env={"PATH": "/nowhere"}, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"one": why, "two": ""}


def test_one_software_does_not_see_anothers_environment(monkeypatch, capsys):
    """Catches: PATH of the first software in force when the second is looked for."""
    seen = []
    monkeypatch.setattr(software, "_load", lambda *_: seen.append(software.os.environ.get("SEEN")))
    monkeypatch.setenv("SEEN", "before")

    def load(*_: object) -> None:
        seen.append(software.os.environ["SEEN"])
        software.os.environ["SEEN"] = "after"

    monkeypatch.setattr(software, "_load", load)
    software.look({"a": {"from": {"module": ["x/1"]}}, "b": {"from": {"module": ["y/1"]}}})
    assert seen == ["before", "before"]
    assert json.loads(capsys.readouterr().out) == {"a": "", "b": ""}


def test_the_command_is_one_line_and_exit_status_2(jobs, tmp_path, monkeypatch, capsys):
    """Catches: a traceback from what Ansible hands over, or a refusal that ends with another status."""
    run = str(tmp_path)
    for text, status in (
        (json.dumps({"n2": said(perftest=GONE)}), 2),
        (json.dumps({"n2": said(perftest="")}), 0),
        ("[]", 2),
        ("{", 2),
    ):
        monkeypatch.setattr(sys, "stdin", type("In", (), {"read": lambda _, text=text: text})())
        assert beforehand.main(["judge", run]) == status
        err = capsys.readouterr().err
        assert err.count("\n") == (1 if status else 0), err
    assert beforehand.main(["asked", run]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"nodes", "software"}
    assert beforehand.main(["asked", f"{run}/gone"]) == 2


@pytest.mark.parametrize(
    ("said_by_srun", "why"),
    [("Usage: srun", "Slurm has no pyxis here (srun has no --container-image)"), (" --container-image=", "")],
)
def test_a_slurm_without_pyxis_is_told(tmp_path, monkeypatch, said_by_srun, why):
    """Catches: a container runtime that is missing, found by the first job that needs it."""
    srun = tmp_path / "srun"
    script(srun, f"#!/bin/sh\necho '{said_by_srun}'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert software.lacking({"from": {"container": "x/y:1", "runtime": "pyxis"}}) == why

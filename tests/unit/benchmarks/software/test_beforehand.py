"""What nodes lack is told before the first job, in one line with the ways out."""

import json
import sys
from pathlib import Path

import pytest

from shakedown.benchmarks.planning import site_of
from shakedown.benchmarks.software import beforehand
from shakedown.onnode import software
from shakedown.records.errors import BadInput
from shakedown.run.folder import to_json, write_aside
from tests.kit.run import ran
from tests.kit.site import WHERE, document, hosts, plan_site

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
    with pytest.raises(BadInput) as refused:
        beforehand.refuse_lacking(jobs, answers)
    assert str(refused.value) == (
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


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[]",
        '{"perftest": 7}',
        '{"other": "gone"}',
        "[" * 40_000,
        '{"perftest": ""}',
        "x" * 70_000,
    ],
)
def test_what_is_no_answer_refuses_nothing(jobs, text):
    """Catches: a node that is silent, or prints what it likes, that keeps all others from being measured."""
    beforehand.refuse_lacking(jobs, {"n1": text, "stranger": said(perftest=GONE)})


def test_a_nodes_words_cannot_drive_a_terminal_or_fill_a_screen(jobs):
    """Catches: an escape, or a second line, from a node in what a person reads."""
    with pytest.raises(BadInput) as refused:
        beforehand.refuse_lacking(jobs, {"n1": said(perftest="\x1b[2Jgone\nPASS " + "x" * 9000)})
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"from": {"path": "/no/such"}}, "/no/such does not exist"),
        ({"from": {"path": "/"}}, ""),
        ({"from": {"container": "/i.sif"}}, "apptainer is not installed"),
        ({"from": {"container": "x/y:1", "runtime": "pyxis"}}, ""),  # no srun here: a job will tell
    ],
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
    srun.write_text(f"#!/bin/sh\necho '{said_by_srun}'\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert software.lacking({"from": {"container": "x/y:1", "runtime": "pyxis"}}) == why

"""Who makes a collective hang, found by smaller ones of the same job."""

import json
import os
import time
from itertools import combinations

import pytest

from shakedown.onnode import output, standing

FAULTS = {
    "node": lambda bad: lambda group: len(group) > 1 and bad in group,
    "alone": lambda bad: lambda group: bad in group,
}


def nodes(many):
    """The names of so many nodes."""
    return [f"n{number}" for number in range(1, many + 1)]


def found(many, hangs, seconds=1e6):
    """Search among so many nodes, of which `hangs` tells whether a group does; also what was asked."""
    asked = []

    def ends(group):
        asked.append(tuple(group))
        return not hangs(set(group))

    return standing.search(nodes(many), ends, seconds), asked


@pytest.mark.parametrize("many", [3, 4, 5, 7, 8, 16, 64])
@pytest.mark.parametrize("kind", FAULTS)
def test_a_node_that_hangs_with_all_others_is_named_alone(many, kind):
    """Catches: a search that names a healthy partner, or ends at a half."""
    for bad in nodes(many):
        said, asked = found(many, FAULTS[kind](bad))
        assert said.startswith(
            f"{bad}: the same collective hangs or fails on it and" if kind == "node" else f"{bad} hangs"
        ), said
        assert said.count(";") == 0, said
        assert len(asked) <= 2 * many.bit_length() + many // 2 + 4


@pytest.mark.parametrize("many", [4, 8, 9])
def test_a_pair_that_hangs_alone_is_told_as_that_pair(many):
    """Catches: one end of a broken way called bad, where each end works with every other node."""
    for pair in combinations(nodes(many), 2):
        said, _ = found(many, lambda group, pair=pair: set(pair) <= group)
        wanted = ("between", "takes more")  # pairs across are matched one way: another pair hides
        assert any(word in said for word in wanted) and "fails on it" not in said, (pair, said)
        if "between" in said and "likely" not in said:
            assert f"between {pair[0]} and {pair[1]}: " in said, (pair, said)


def test_two_nodes_blame_neither():
    """Catches: one of two nodes called bad, where no third can tell which."""
    said, _ = found(2, lambda group: len(group) == 2)
    assert said.startswith("likely between n1 and n2: the same collective hangs or fails on the two")
    assert found(2, lambda group: "n2" in group)[0].startswith("n2 hangs with no other node")


def test_a_search_whose_steps_cannot_start_blames_no_node():
    """Catches: nodes called hung because their Slurm refuses the search's own srun."""
    said = standing.search(nodes(4), lambda group: None, 1e6)
    assert "hangs" not in said and said.count("alone the same ended with an error") == 4


def test_two_bad_nodes_are_both_named():
    """Catches: a search that ends at the first."""
    said, _ = found(16, lambda group: len(group) > 1 and bool({"n3", "n14"} & group))
    assert "n3: the same collective hangs" in said and "n14: the same collective hangs" in said


def test_what_needs_all_or_does_not_come_again_names_nobody():
    """Catches: a part blamed for a hang that only all nodes together, or nobody, shows again."""
    said, _ = found(8, lambda group: len(group) == 8)
    assert said == "each half of 8 nodes ends, and so does each pair across them: it takes more"
    assert "it does not hang each time" in found(8, lambda group: False)[0]


def test_a_search_ends_in_its_time():
    """Catches: a search that a job's time limit cuts off, and everything with it."""
    assert found(8, lambda group: "n1" in group, seconds=0)[0] == "there was no time to search further"
    assert found(8, lambda group: "n1" in group, seconds=0)[1] == []


def test_the_time_is_the_job_s_own(monkeypatch):
    """Catches: a search that takes the time of what is still to be measured."""
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 100))
    assert 35 < standing.budget_s(60) <= 40
    assert standing.budget_s(200) == 0


@pytest.mark.parametrize(
    ("left", "seconds"),
    [("4:05", 245), ("1:00:00", 3600), ("2-01:00:10", 176410), ("UNLIMITED", 0), ("INVALID", 0), ("", 0)],
)
def test_a_slurm_that_does_not_tell_a_job_s_end_is_asked(left, seconds, monkeypatch, tmp_path):
    """Catches: no search at all where Slurm is of 22.05, or one without an end."""
    (tmp_path / "squeue").write_text(f"#!/bin/sh\n[ \"$3\" = --job=77 ] && echo '{left}'\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    assert standing.budget_s() == seconds
    (tmp_path / "squeue").write_text("#!/bin/sh\nexit 1\n")
    assert standing.budget_s() == 0


# Hangs on more than one node if n2 is among them; else it ends.
SRUN = """#!/bin/sh
for word; do case "$word" in --nodelist=*) nodes=${word#--nodelist=} ;; esac; done
echo "${nodes:-n1,n2,n3}" >> LOG
case ",${nodes:-n1,n2,n3}," in *,n2,*) case "${nodes:-,}" in *,*) exec sleep 60 ;; esac ;; esac
"""


def test_a_hung_command_leaves_its_search_in_the_record(tmp_path, monkeypatch):
    """Catches: a hung MPI job that Slurm ends, of which nobody says more than that."""
    place = tmp_path / "bin"
    place.mkdir()
    (place / "srun").write_text(SRUN.replace("LOG", str(tmp_path / "log")))
    (place / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 9))
    monkeypatch.setattr(output, "_END_S", 0.0)
    monkeypatch.setattr(output, "_SEARCH_SHARE", 0.8)
    monkeypatch.setattr(standing, "_TRIAL_S", 0.5)
    monkeypatch.setattr(standing, "_GRACE_S", 0.2)
    monkeypatch.setattr(output.standing, "ask", lambda *_: "no rank stands still alone")
    status = output.kept(
        tmp_path, "mpi", "mpi_allreduce", ["n1", "n2", "n3"], ["srun", "--mpi=pmix", "program"]
    )
    (line,) = (tmp_path / "outputs.jsonl").read_text().splitlines()
    problem = json.loads(line)["problem"]
    assert (status, problem["kind"]) == (1, "killed")
    assert "mpi_allreduce: hung, no end within" in problem["message"]
    assert "n2: the same collective hangs or fails on it and" in problem["message"], (
        tmp_path / "log"
    ).read_text()

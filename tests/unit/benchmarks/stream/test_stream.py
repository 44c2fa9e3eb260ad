"""STREAM: what counts, from the site's wish to the verdict, with our own program really built and run."""

import json
import re
from pathlib import Path

import pytest

from shakedown.benchmarks.stream import job
from shakedown.benchmarks.stream.output import parse_stream
from shakedown.daytwo.nightly.plan import alone_slots
from tests.kit.cases import cases
from tests.kit.files import edited
from tests.kit.refusal import refused
from tests.kit.run import collected, ordered_in, raw_of, write_run
from tests.kit.site import one_node, plan_site

PROFILE = """
schema: 1
profile: memory
title: memory of one node
published: nowhere; made for this test
audit: a floor that any memory clears
references:
  - {id: triad, stage: node, test: stream, metric: bandwidth, scope: {operation: triad}, value: FLOOR,
     limit: FLOOR, unit: GB/s, better: higher, kind: baseline, source: this test, set_by: this test}
"""
GOOD = re.search(r"```\n(Array.*?)```", Path(job.__file__).with_name("README.md").read_text(), re.S)[1]


def planned(tmp_path, floor=0.001, program="", **options):
    """Plan and jobs of one node with one NUMA node, and the site."""
    file = tmp_path / "memory.yml"
    file.write_text(PROFILE.replace("FLOOR", str(floor)))
    asked = {"numa_nodes": 1, "array_mib": 1, "times": 3, **options}
    site = one_node("memory", programs={"stream": program} if program else {}, stream=asked)
    return *plan_site(site, [file]), site


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Plan a run, run its one job here, and return the folder and how the job ended."""

    def run(spoil=lambda raw: None, cpus="0", **options):
        plan, jobs, _ = planned(tmp_path, **options)
        folder, (spec,) = tmp_path / "r1", jobs.jobs
        raw = raw_of(write_run(folder, plan, jobs), spec)
        ordered_in(raw, spec)
        (tmp_path / "numa/node0").mkdir(parents=True)
        (tmp_path / "numa/node0/cpulist").write_text(f"{cpus}\n")
        (tmp_path / "numa/node1").mkdir()
        (tmp_path / "numa/node1/cpulist").write_text("\n")  # memory without CPUs
        monkeypatch.setenv("SLURMD_NODENAME", "n1")
        monkeypatch.setattr(job, "_NODES", tmp_path / "numa")
        status = job.main([str(raw)])
        spoil(raw)
        return collected(folder), status

    return run


def test_a_numa_node_is_measured_with_the_program_that_is_built_there(measured, tmp_path):
    """Catches a program that does not build, a result that no reader knows, or a rate that is none."""
    verdict, status = measured()
    assert (verdict.outcome.value, status) == ("PASS", 0)
    (line,) = (tmp_path / "r1/results.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert (found["test"], found["unit"], found["params"]) == (
        "stream",
        "GB/s",
        {"kernel": "triad", "numa": 0},
    )
    assert 0.1 < found["value"] < 10_000
    assert not list((tmp_path / "r1/raw").rglob("stream.n1")), "a program is no evidence"


def test_slow_memory_fails(measured):
    """Catches a bandwidth that no reference decides."""
    assert measured(floor=1e6)[0].outcome.value == "FAIL"


@cases(
    "options, words",
    ({"compiler": "no-such-cc"}, "no-such-cc is not on n1: install a C compiler"),
    ({"numa_nodes": 2}, "NUMA nodes with CPUs are 0; 2 were planned"),
    ({"program": "/no/such/stream"}, "n1: stream from path /no/such/stream: /no/such/stream does not exist"),
)
def test_what_could_not_be_measured_says_why(measured, options, words):
    """Catches a missing compiler, NUMA node or program taken for slow memory, or for nothing at all."""
    verdict, status = measured(**options)
    # Software that is not where the site says is not there to be measured.
    wanted = "NOT-RUN" if "does not exist" in words else "INCONCLUSIVE"
    assert (verdict.outcome.value, status) == (wanted, 3)
    assert any(words in cell.reason for cell in verdict.cells)


def test_less_than_ordered_does_not_count(measured):
    """Catches an array that fits into the cache, or fewer rounds, judged as if it were what was ordered."""

    def smaller(raw):
        with edited(raw.parents[1] / "jobs.json") as spec:
            spec["jobs"][0]["settings"]["array_mib"] = 2

    verdict, _ = measured(spoil=smaller)
    assert verdict.outcome.value == "INCONCLUSIVE"
    assert "131072 elements 3 times, 262144 elements 3 times were ordered" in verdict.cells[0].reason


def test_it_has_its_turn_at_night_on_nodes_without_gpus(tmp_path):
    """Catches a benchmark that the rotation leaves out silently."""
    assert alone_slots(planned(tmp_path)[2]) == {"stream": ("n1",)}


@cases(
    "old, new, words",
    ("Triad           12078.5", "Triad           92078.5", "but its time and array give 12078"),
    ("0.066673", "0.046673", "but its time and array give"),
    (r"(?m)^Scale.*\n", "", "output ends before the row of Scale"),
    (r"(?m)^(Add.*\n)", r"\1\1", "Add is there twice"),
    (r"Solution Validates.*", "Failed Validation", "was not validated"),
    (r"(?m)^Array size.*\n", "", "does not tell the array size"),
    ("12078.5", "nan", "should be a finite number"),
)
def test_damaged_output_is_refused(old, new, words):
    """Catches a rate that nothing bears out, a wrong sum, and output that was cut or mixed."""
    assert parse_stream(GOOD).rows[3].best_gb_per_s == 12.0785
    refused(words, parse_stream, re.sub(old, new, GOOD))


def test_mccalpins_own_output_is_read():
    """Catches STREAM's own layout, with colons and prose around the table, refused."""
    text = GOOD.replace("Copy  ", "Copy: ").replace("Scale  ", "Scale: ").replace("Add  ", "Add: ")
    text = "-" * 61 + "\nSTREAM version $Revision: 5.10 $\n" + text.replace("Triad  ", "Triad: ")
    assert [row.kernel for row in parse_stream(text).rows] == ["copy", "scale", "add", "triad"]

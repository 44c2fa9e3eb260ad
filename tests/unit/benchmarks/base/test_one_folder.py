"""A benchmark is one folder and one line: a copy of Shakedown gets one more, and everything else knows it."""

import json
from pathlib import Path

import pytest

from tests.kit.house import House

TOY = Path(__file__).with_name("toy")
LINE = '    "stream",\n'
PROGRAM = """
import json, os, sys
from pathlib import Path
from shakedown.records.base import to_json
from shakedown.benchmarks.disk import job
from shakedown.benchmarks.planning import make_plan
from shakedown.benchmarks.registry import Acceptance
from shakedown.collect.run import collect
from shakedown.daytwo.nightly.plan import alone_slots
from shakedown.judge.judged import judge_folder
from shakedown.judge.words import subject
from shakedown.intent.site import NoFabric, Site
from shakedown.references.catalogue import Catalogue
from shakedown.records.writing import write_aside
from shakedown.run.folder import write_plan
from tests.kit.job import leave_the_rest

folder = Path(sys.argv[1])
site = Site(
    fabric=NoFabric(system="one", profile="lab", no_fabric=True),
    acceptance=Acceptance(disk={"size_mib": 4}, counter_tests=False, software_check=False),
    nics={"n1": ()},
    addresses={"n1": "127.0.0.1"},
)
when = "2026-01-01T00:00:00Z"
plan, jobs = make_plan(site, Catalogue([]), run="r1", created=when, learn=True)
write_plan(folder, plan)
write_aside(folder / "jobs.json", to_json(jobs))
(spec,) = jobs.jobs
raw = folder / "raw" / f"{spec.name}.a1"
raw.mkdir(parents=True)
record = {"schema": 1, "run": "r1", "stage": "node", "test": spec.name, "job": "7", "nodes": ["n1"]}
record |= {"state": "COMPLETED", "exit_code": "0:0", "started": when, "duration_s": 1e9}
(raw / "job.json").write_text(json.dumps(record))
leave_the_rest(folder)
os.environ["SLURMD_NODENAME"] = "n1"
status = job.main([str(raw)])
collect(folder)
verdict = judge_folder(folder)
(item,) = plan.items
print(json.dumps({
    "status": status, "outcome": verdict.outcome, "reason": verdict.reason, "night": alone_slots(site),
    "words": subject(item, next(iter(item.cells()))[0]), "output": str(next(raw.glob("disk.*.txt"))),
}, default=str))
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A copy of Shakedown with the toy's folder and its line; returns what runs a program in it."""
    house = House(tmp_path_factory.mktemp("house"))
    house.add(TOY, "benchmarks/disk")
    house.edit("benchmarks/registry.py", LINE, f'{LINE}    "disk",\n')
    return house.run


@pytest.fixture(scope="module")
def measured(house, tmp_path_factory):
    """What became of one run of the toy."""
    return json.loads(house("-c", PROGRAM, str(tmp_path_factory.mktemp("runs") / "r1")))


@pytest.mark.slow
def test_it_is_planned_learnt_run_and_judged(measured):
    """Catches: a benchmark that needs more than its folder to be planned, learnt, run or judged."""
    assert measured["status"] == 0
    assert measured["outcome"] == "BASELINE", measured["reason"]


@pytest.mark.slow
def test_the_night_and_the_verdict_know_it(measured):
    """Catches: a rotation that leaves a new benchmark out silently, or a verdict that has no words for it."""
    assert measured["night"] == {"disk": ["n1"]}
    assert measured["words"] == "local disk's write bandwidth at n1"


@pytest.mark.slow
def test_parse_and_the_reference_of_keys_know_it(house, measured):
    """Catches: a list of parsers or of keys beside the registry."""
    assert "bytes" in house("-m", "shakedown", "parse", "disk", measured["output"])
    pages = house("-c", "from generator.models import pages; print(*pages().values())")
    assert "acceptance.disk.size_mib" in pages

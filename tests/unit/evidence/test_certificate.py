"""Certificates: a criterion is met by cells that were measured and required, and by nothing else."""

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shakedown.collect.run import collect
from shakedown.judge.cells import Rule
from shakedown.judge.judged import judge_folder
from shakedown.records.base import Outcome, to_json
from shakedown.records.plan import PlanItem, PlanScope, cell_pattern
from shakedown.records.results import Component, Measurement, Snapshot
from shakedown.records.verdict import Answer, CellVerdict, Certificate, Met
from shakedown.report import certificate, html
from shakedown.report import seal as bundle
from shakedown.run.folder import plan_to_json, write_inventory, write_lines, write_verdict
from tests.kit import records
from tests.kit.cases import cases
from tests.kit.files import edited, replace_in, script
from tests.kit.key import NEEDS_SSH_KEYGEN, make_key, make_signers
from tests.kit.refusal import refused
from tests.unit.evidence.ordered import reseal, sign_sums

BANDWIDTH = "fabric/ib_write_bw/bandwidth/*"
GATE = records.reference(id="gate", value=100, tolerance=0.1, ceiling=200)
RATE = "ib_write_bw bandwidth, 3 cells on 3 nodes"
NODES = ("n1", "n2", "n3")


def write_criteria(path: Path, *criteria: dict[str, Any]) -> Path:
    """Write criteria; JSON is YAML."""
    path.write_text(json.dumps({"schema": 1, "contract": "Contract 7, annex B", "criteria": criteria}))
    return path


def asks(*cells: str, **more: object) -> dict[str, object]:
    """Return a criterion that these patterns answer."""
    return {"id": "B.1", "text": "Each node has its bandwidth", "cells": [*cells], **more}


class Site:
    """Runs that are judged by what their results say: whether they are sealed is not asked of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.runs = folder, list[Path]()

        def verify(run: Path, _signers: object, look: Callable[..., None]) -> bundle.Verification:
            look(run, "alice@site", {})
            return bundle.Verification(None, "as sealed", "alice@site", None)

        monkeypatch.setattr(bundle, "verify", verify)

    def run(
        self,
        *blocks: PlanItem,
        bad: dict[str, float | None] | None = None,  # values by a part of the cell's id, else 99
        machines: dict[str, str] | None = None,
        keep: Callable[[Measurement], Measurement] = lambda m: m,
        **plan: Any,
    ) -> Path:
        """Write a run of single nodes."""
        run = self.folder / f"run{len(self.runs)}"
        run.mkdir()
        about = {"run": run.name, "nodes": NODES, "references": [GATE], **plan}
        made = records.plan(*(blocks or (block(),)), **about)
        values = bad or {}
        (run / "plan.json").write_bytes(plan_to_json(made))
        (run / "SHA256SUMS").write_text(run.name)
        found = [
            keep(records.measured(item, nodes, value, run=made.run, rail=rail))
            for item in made.items
            for cell, nodes, rail, _ in item.cells()
            for value in [next((v for part, v in values.items() if part in cell), 99.0)]
            if value is not None and not item.not_run
        ]
        write_lines(run / "results.jsonl", found)
        write_lines(run / "counters.jsonl", [])
        parts = [
            Component(kind="node", name=name, host=name, attributes={"machine_id": machine})
            for name, machine in (machines or {}).items()
        ]
        write_inventory(run, Snapshot(run=made.run, taken=made.created, components=tuple(parts)))
        self.runs.append(run)
        return run

    def certified(self, *criteria: dict[str, Any]) -> Certificate:
        """Answer criteria by all runs."""
        asked = certificate.read_criteria(write_criteria(self.folder / "criteria.yml", *criteria))
        looks = [certificate.look_at(run, asked, Path("signers"))[1] for run in self.runs]
        return certificate.build(asked, "0" * 64, [x for x in looks if x], "2026-02-01T00:00:00Z")

    def answer(self, *cells: str, **more: object) -> Answer:
        """Answer one criterion."""
        (found,) = self.certified(asks(*(cells or (BANDWIDTH,)), **more)).answers
        return found


def block(nodes: Sequence[str] = NODES, **changes: object) -> PlanItem:
    """Return a bandwidth of each of these nodes by itself."""
    return records.item(**{"nodes": [(n,) for n in nodes], "reference": "gate", **changes})


@pytest.fixture
def site(tmp_path, monkeypatch) -> Site:
    """A site without runs."""
    return Site(tmp_path, monkeypatch)


def test_what_passed_everywhere_is_met(site):
    """Catches: a healthy cluster that is refused its certificate, or one without the nodes that it covers."""
    site.run()
    made = site.certified(asks(BANDWIDTH))
    (found,) = made.answers
    assert (found.answer, found.nodes, made.nodes, made.stamp) == (Met.MET, 3, 3, "ALL MET")
    assert found.reason == "3 cells passed, on all 3 nodes"
    assert found.measured == (f"{RATE}: 99 Gb/s at worst, at least 90 Gb/s, 45 % of its ceiling 200",)
    assert (made.runs[0].signer, made.runs[0].order) == ("alice@site", "not ordered")


def test_the_loosest_gate_is_told_first(site):
    """Catches: a gate that anything passes, behind the others of its test or behind counters of none."""
    loose = records.reference(id="loose", value=80, tolerance=0.1, ceiling=200)
    none = records.reference(id="none", value=0, limit=0, better="lower")
    lost = block(metric="counter.lost", reference="none", better="lower")
    easy = block(test="easy", reference="loose", rails=("rail1",))
    hard = block(test="easy", rails=("rail0",))
    site.run(
        lost, block(), hard, easy, references=[GATE, loose, none], bad={"lost": 0, "rail1": 97, "/n2/": 95}
    )
    assert site.answer("*").measured == (
        "easy bandwidth, 6 cells on 3 nodes: 95 Gb/s at worst, at least 72 Gb/s, 36 % of its ceiling 200",
        f"{RATE}: 95 Gb/s at worst, at least 90 Gb/s, 45 % of its ceiling 200",
        "ib_write_bw counter.lost, 3 cells on 3 nodes: 0 Gb/s at worst, none allowed",
    )


@cases(
    "bad, answer, words",
    ({"/n2/": 50.0}, Met.FAILED, "1 of 3 cells failed in run0, first: n2 ib_write_bw bandwidth"),
    ({"/n2/": None}, Met.UNANSWERED, "1 of 3 cells not run in run0"),
    ({"/n2/": 300.0}, Met.FAILED, "1 of 3 cells failed"),  # above what is possible
    ({"/n1/": None, "/n3/": 50.0}, Met.FAILED, "1 of 3 cells failed"),
)
def test_one_cell_that_did_not_pass_is_enough(site, bad, answer, words):
    """Catches: a criterion met by most of its cells."""
    site.run(bad=bad)
    found = site.answer()
    assert found.answer is answer and words in found.reason


def test_undecided_is_not_met(site):
    """Catches: a job that did not complete taken for one that passed."""
    late = lambda m: m.model_copy(update={"state": "TIMEOUT"}) if m.nodes == ("n2",) else m  # noqa: E731
    site.run(keep=late)
    assert site.answer().answer is Met.UNANSWERED and "1 of 3 cells undecided" in site.answer().reason


def test_a_waived_cell_meets_nothing(site):
    """Catches: a failure that a waiver turns into one that is met, or of which nothing is said."""
    waiver = {"name": "slow-n2", "cells": "fabric/ib_write_bw/bandwidth/n2/*", "reason": "cable on order"}
    waiver |= {"owner": "A. Person", "expires": "2026-03-01"}
    site.run(bad={"/n2/": 50.0}, waivers=(waiver,))
    made = site.certified(asks(BANDWIDTH))
    (found,) = made.answers
    assert found.answer is Met.WAIVED and "failed and are waived" in found.reason
    assert made.stamp == "NOT ALL MET" and made.runs[0].outcome is Outcome.PASS
    assert "A. Person until 2026-03-01" in made.runs[0].waivers[0]
    (alone,) = site.certified(asks("fabric/*/n2/*")).answers
    assert alone.answer is Met.WAIVED


def test_what_the_plan_does_not_require_answers_nothing(site):
    """Catches: a criterion met by cells that are only shown; one such cell hides behind the required ones."""
    site.run(block(), block(metric="time", unit="Gb/s", required=False))
    found = site.answer("fabric/*/time/*")
    assert found.answer is Met.UNANSWERED
    assert found.reason.startswith("no cell that a plan requires and that passed is fabric/*/time/*")
    both = site.answer("fabric/*")
    assert both.answer is Met.MET and "3 cells not required by the plan" in both.reason
    site.run(block(), block(metric="time", unit="Gb/s", required=False), bad={"/time/n2/": 50.0})
    assert site.answer("fabric/*").answer is Met.FAILED


def test_a_block_that_is_not_run_is_told(site):
    """Catches: a stage that is taken out of the plan, of which the certificate is silent."""
    site.run(block(), block(test="ib_read_bw", not_run="no licence"))
    made = site.certified(asks(BANDWIDTH), asks("fabric/ib_read_bw/*", id="B.2"))
    assert [a.answer for a in made.answers] == [Met.MET, Met.UNANSWERED]
    assert "not run: 3 cells of fabric ib_read_bw: no licence" in made.runs[0].exclusions
    assert made.stamp == "NOT ALL MET" and made.reason.startswith("1 of 2 criteria met; NOT ANSWERED: B.2")


@cases("pattern", "fabric/ib_writ_bw/*", "fabric/*/n9/*", "fabric/ib_write_bw/bandwidth/n1")
def test_a_pattern_of_nothing_is_not_answered(site, pattern):
    """Catches: a misspelt pattern, or one of another cluster's node, beside one that is met."""
    site.run()
    found = site.answer(BANDWIDTH, pattern)
    assert found.answer is Met.UNANSWERED and found.reason == f"no cell of any run is {pattern}"
    refused("no criterion names a cell of run0", site.answer, pattern)


def test_a_number_is_not_a_part_of_a_longer_one(site):
    """Catches: *n1* that takes n10 for the n1 of the contract."""
    nodes = ("n1", "n10")
    site.run(block(nodes), nodes=nodes, bad={"/n10/": 50.0})
    found = site.answer("fabric/*/n1/*")
    assert (found.answer, found.nodes, found.outcomes[Outcome.PASS]) == (Met.IN_PART, 1, 1)


def test_easy_cells_alone_are_met_in_part(site):
    """Catches: a pattern of the one good node, in words about all of them; required cells nobody asks for."""
    site.run(bad={"/n2/": 50.0})
    made = site.certified(asks("fabric/*/n1/*"))
    (found,) = made.answers
    assert (found.answer, found.nodes) == (Met.IN_PART, 1) and "fabric/*/n1/* on 1 of 3 nodes" in found.reason
    assert made.runs[0].unasked[Outcome.FAIL] == 1 and made.runs[0].unasked[Outcome.PASS] == 1
    assert made.stamp == "MET WITH RESERVATIONS" and "run run0 as a whole is FAIL" in made.reason


def test_a_pattern_of_all_nodes_stands_in_for_no_other(site):
    """Catches: one node's cells beside a pattern that covers every node; a switch's taken for a node's."""
    site.run(block(), block(NODES[:1], test="gemm"), block(["leaf0"], test="switches"))
    found = site.answer(BANDWIDTH, "fabric/gemm/*")
    assert (found.answer, found.nodes) == (Met.IN_PART, 3) and "fabric/gemm/* on 1 of 3 nodes" in found.reason
    assert [kind.partition(" cell")[0] for kind in found.measured] == [
        "ib_write_bw bandwidth, 3",
        "gemm bandwidth, 1",
    ]
    assert "1 cell on 1 node:" in found.measured[1]
    assert site.answer(BANDWIDTH, "fabric/switches/*").answer is Met.MET
    alone = site.answer("fabric/switches/*")
    assert (alone.answer, alone.nodes) == (Met.MET, 0) and "of no compute node" in alone.reason


def test_each_pattern_in_a_run_of_its_own(site):
    """Catches: a criterion of two runs of the whole site that is met in part."""
    site.run()
    site.run(block(test="soak"))
    assert site.answer(BANDWIDTH, "fabric/soak/*").answer is Met.MET


def test_parts_do_not_make_a_whole(site):
    """Catches: two halves of a site, between which nothing was measured, taken for all of it."""
    for nodes in (NODES[:2], NODES[2:]):
        scope = PlanScope(nodes=nodes, of_nodes=3, of_rails=0)
        site.run(block(nodes), nodes=nodes, scope=scope)
    found = site.answer()
    assert (found.answer, found.nodes) == (Met.IN_PART, 3)
    site.run()
    assert site.answer().answer is Met.MET


@cases(
    "scope, answer",
    ({"of_nodes": 3, "of_rails": 2}, Met.IN_PART),
    ({"of_nodes": 3, "of_rails": 0, "mesh": "quick"}, Met.IN_PART),
    ({"of_nodes": 9, "of_rails": 0}, Met.IN_PART),
    ({"of_nodes": 3, "of_rails": 0, "stages": ("fabric",)}, Met.MET),
)
def test_a_run_of_a_part_is_not_of_the_site(site, scope, answer):
    """Catches: a run of some rails, of neighbours alone or of some nodes that is taken for all of them."""
    site.run(scope=PlanScope(nodes=NODES, **scope))
    made = site.certified(asks(BANDWIDTH))
    assert made.answers[0].answer is answer and made.nodes == scope["of_nodes"]


def test_a_site_that_shrank_is_not_whole(site):
    """Catches: a run without scope of fewer nodes than another one had."""
    site.run(bad={"/n3/": None})
    site.run(block(NODES[:2]), nodes=NODES[:2])
    found = site.answer("fabric/*/n1/*", "fabric/*/n2/*")
    assert (found.answer, found.nodes) == (Met.IN_PART, 2) and "on 1 of 3 nodes" in found.reason


def test_a_later_run_hides_no_failure(site):
    """Catches: a run picked out of several; `runs` that would leave the bad one out."""
    site.run(bad={"/n2/": 50.0})
    site.run()
    assert site.answer().answer is Met.FAILED
    found = site.answer(runs=["run1"])
    assert found.answer is Met.FAILED and "in run0" in found.reason


def test_a_run_that_must_answer(site):
    """Catches: a soak of the contract answered by the acceptance alone."""
    site.run()
    site.run(block(test="soak"))
    assert site.answer(runs=["run0"]).answer is Met.MET
    for name in ("run1", "run9"):
        found = site.answer(runs=["run0", name])
        assert found.answer is Met.UNANSWERED and f"run {name} must answer it" in found.reason


def test_a_run_in_doubt_meets_nothing(site):
    """Catches: cells that passed in a run whose own files are in doubt, here a node that nothing measures."""
    site.run(nodes=(*NODES, "n4"))
    made = site.certified(asks(BANDWIDTH))
    assert made.answers[0].answer is Met.UNANSWERED and "run0 is in doubt: node n4" in made.answers[0].reason
    assert made.stamp == "NOT ALL MET" and made.runs[0].doubts


def test_a_counter_that_a_device_lacks_is_told(site):
    """Catches: counters that were not read and are silently met; a criterion of such counters alone."""
    site.run(block(), block(metric="counter.lost", if_reported=True), bad={"counter.lost": None})
    found = site.answer("fabric/*")
    assert found.answer is Met.MET and "3 cells not reported by its device" in found.reason
    assert site.answer("fabric/*/counter.*").answer is Met.UNANSWERED


def test_what_passed_only_when_measured_again_is_told():
    """Catches: transients of which the certificate is silent."""
    plan = records.plan(block(), nodes=NODES, references=[GATE])
    cell = CellVerdict(cell="fabric/x", outcome=Outcome.PASS, rule=Rule.TRANSIENT.value, reason="again")
    found = certificate._Found()
    found.add(cell, plan.items[0], frozenset({"n1"}), "rail0", plan, {0})
    assert found.asides == {"passed only when measured again": 1} and found.answered == {0: {"n1"}}


def test_what_is_learnt_is_not_met(site):
    """Catches: a value without any reference that answers a contract."""
    site.run(references=[records.reference(id="gate", value=100, tolerance=0.1, kind="learn")])
    found = site.answer()
    assert found.answer is Met.UNANSWERED and "measured and not judged" in found.reason


def test_two_clusters_are_no_site(site):
    """Catches: cells of another cluster that answer for this one."""
    site.run()
    site.run(system="other")
    refused(r"run1/plan\.json: is of other, and .*run0 of s -- certify each cluster", site.answer)


def test_a_cluster_of_the_same_name_is_another(site):
    """Catches: cells of a cluster whose names are the same, and none of whose machines is."""
    site.run(machines={"n1": "a" * 32, "n2": "b" * 32})
    site.run(machines={"n1": "c" * 32, "n2": "d" * 32, "n3": "e" * 32})
    refused("run1: n1 and all others are other machines than those of that name in .*run0", site.answer)


def test_a_replaced_machine_is_told(site):
    """Catches: a node replaced between two runs, of which nobody hears; one machine id of a whole image."""
    site.run(machines={"n1": "a" * 32, "n2": "b" * 32, "n3": "0" * 32, "n4": "0" * 32})
    site.run(machines={"n1": "a" * 32, "n2": "c" * 32, "n3": "f" * 32})
    made = site.certified(asks(BANDWIDTH))
    assert made.runs[1].exclusions == ("another machine, or installed anew, since an earlier run: n2",)
    assert made.runs[0].exclusions == () and made.stamp == "ALL MET"
    site.run()
    assert "which machines these were is not told" in site.certified(asks(BANDWIDTH)).runs[2].exclusions[0]


def test_a_run_counts_once(site):
    """Catches: the same run given twice."""
    site.runs = [site.run()] * 2
    refused("run run0 is given twice", site.answer)


HEAD = "schema: 1\ncontract: abc\ncriteria:\n"


@cases(
    "text, words",
    ("", ":1: must be keys with values"),
    ("- 1", ":1: must be keys with values"),
    ("schema: 1\ncontract: abc\n", "criteria is missing"),
    ("contract: abc\ncriteria: [{id: a, text: abc, cells: [x]}]\n", "schema is missing"),
    ("schema: 2\ncontract: abc\ncriteria: [{id: a, text: abc, cells: [x]}]\n", ":1: schema 2"),
    (HEAD + "  - {id: a, text: abc, cells: []}\n", ":4: .*cells.* not be empty"),
    (HEAD + "  - {id: a, text: abc}\n", ":4: .*cells is missing"),
    (HEAD + "  []\n", ":4: criteria.* not be empty"),
    (HEAD + "  - {id: 1.10, text: abc, cells: [x]}\n", ":4: .*one text"),
    (HEAD + "  - id: a\n    text: abc\n    cell: [x]\n", ":6: .*unknown key 'cell'"),
    (HEAD + "  - {id: a, text: abc, cells: ['[a]']}\n", ":4: .*a pattern of STAGE"),
    (HEAD + '  - {id: a, text: "a\\nb", cells: [x]}\n', ":4: .*text.*one line"),
    (
        HEAD + "  - {id: a, text: abc, cells: [x]}\n  - {id: a, text: abc, cells: [y]}\n",
        ":5: two criteria are 'a'",
    ),
    ("a: &a [1, 2]\nb: [*a, *a]\n", "anchors and aliases are not allowed"),
    ("schema: 1\nschema: 1\n", ":2: 'schema' is given twice"),
    ("[" * 50_000, "nested too deep"),
    ("a: !!python/object:os.system x\n", "not YAML|tag"),
    ("a: " + "x" * (5 << 20), "are too many"),
    ids=lambda value: str(value)[:40],
)
def test_bad_criteria_are_refused(tmp_path, text, words):
    """Catches: a file of criteria that is half understood, or exhausts memory; a line that is not named."""
    path = tmp_path / "criteria.yml"
    path.write_text(text)
    began = time.monotonic()
    refused(rf"criteria\.yml.*{words}", certificate.read_criteria, path)
    assert time.monotonic() - began < 5


def test_criteria_that_are_no_file_are_refused(tmp_path):
    """Catches: a wait for a pipe that nobody writes."""
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        refused("is no plain file", certificate.read_criteria, tmp_path / name)


def test_a_pattern_of_many_stars_takes_no_time():
    """Catches: criteria, or waivers, that keep whoever reads them busy for years."""
    began = time.monotonic()
    assert cell_pattern("*a" * 140 + "*b").fullmatch("a" * 3000) is None
    assert time.monotonic() - began < 1


@cases(
    "pattern, cell, is_of",
    ("*/n1*/r1*/*", "a/n1,n2/r1/x", True),
    ("*/n1*/r1*/*", "a/n10,n2/r1/x", False),
    ("*/n1*/r1*/*", "a/n1,n2/r12/x", False),
    ("*1,n*", "a/n1,n2/x", True),
    ("*1,n*", "a/n11,n2/x", False),
    ("a*b*b", "a/b", False),
)
def test_patterns(pattern, cell, is_of):
    """Catches: a number taken for a part of a longer one between two stars; one sign taken for two."""
    assert (cell_pattern(pattern).fullmatch(cell) is not None) is is_of


HOSTILE = "<script>alert(1)</script> \u202eTEM <b>MET</b> {{ 7*7 }}"


def test_what_others_wrote_is_only_text(site):
    """Catches: markup of a criterion, a contract or a waiver that a browser takes for the page's own."""
    site.run(caveats=(HOSTILE,))
    criteria = {"schema": 1, "contract": HOSTILE, "criteria": [asks(BANDWIDTH, text=HOSTILE)]}
    path = site.folder / "hostile.yml"
    path.write_text(json.dumps(criteria))
    asked = certificate.read_criteria(path)
    look = certificate.look_at(site.runs[0], asked, None)[1]
    page = certificate.render(certificate.build(asked, "0" * 64, [look], "2026-02-01T00:00:00Z"))
    assert "<script" not in page and "<b>MET</b> {{" not in page and "\u202e" not in page
    assert page.count("&lt;script&gt;") >= 4 and "\\u202e" in page and "{{ 7*7 }}" in page


def test_the_page_tells_what_is_open(site):
    """Catches: a page that leaves out what no cell answers or an exclusion, or says it in passing."""
    site.run(block(), block(test="ib_read_bw", not_run="no licence"), caveats=("Emulated NICs.",))
    page = certificate.render(
        site.certified(asks(BANDWIDTH), asks("node/*", id="B.2", text="Each GPU trains"))
    )
    assert "<b>no cell of any run is node/*</b>" in page
    for words in ("NOT ALL MET", "Emulated NICs.", "no licence", "<b>not ordered</b>", "For the customer"):
        assert words in page, words
    assert "not that the system was accepted" in page


def test_a_print_that_fails_is_said(tmp_path, monkeypatch):
    """Catches: --pdf without a browser, or with one that cannot start, and no file, and nobody told."""
    monkeypatch.setenv("PATH", str(tmp_path))
    refused("no Chromium, Chrome or Edge is here", html.print_pdf, tmp_path, tmp_path / "page.pdf")
    script(tmp_path / "chromium", "#!/bin/sh\necho no usable sandbox >&2\nexit 1\n")
    refused("printed nothing: no usable sandbox", html.print_pdf, tmp_path, tmp_path / "page.pdf")
    assert not (tmp_path / "page.pdf").exists()


# Sealed: a real run of the lab, as its signers have it.

CRITERIA = (
    asks("fabric/ib_write_bw/bandwidth/*", id="B.1"),
    asks("config/*", id="B.2", text="Everything is configured as ordered"),
)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Two keys, of which `signers` trusts the first."""
    folder = tmp_path_factory.mktemp("keys")
    alice, mallory = make_key(folder, "alice"), make_key(folder, "mallory")
    return alice, mallory, make_signers(folder / "signers", {"alice@site": alice})


@pytest.fixture(scope="module")
def lab(tmp_path_factory, keys):
    """A sealed run of the lab."""
    from tests.kit.archive import unpack

    run = tmp_path_factory.mktemp("lab") / "20261120T132502Z"
    unpack(Path(__file__).parents[2] / "runs/lab_healthy/run.tar.xz", run)
    collect(run)
    write_verdict(run, judge_folder(run))
    bundle.seal(run, keys[0])
    return run


@pytest.fixture(scope="module")
def certified(tmp_path_factory, lab, keys):
    """A certificate of that run."""
    folder = tmp_path_factory.mktemp("made")
    criteria = write_criteria(folder / "criteria.yml", *CRITERIA)
    made = certificate.certify([lab], criteria, folder / "certificate", keys[0], keys[2])
    assert made.stamp == "ALL MET"
    return folder / "certificate"


@pytest.fixture
def mine(tmp_path, certified):
    """A copy of the certificate, to be forged."""
    return Path(shutil.copytree(certified, tmp_path / "certificate"))


@NEEDS_SSH_KEYGEN
def test_a_certificate_verifies(mine, lab, keys, shakedown):
    """Catches: a certificate that its own runs do not give again, or a yes without its runs or its signer."""
    signed = ("--signers", keys[2])
    status, said, _ = shakedown("verify", mine, *signed, "--runs", lab)
    assert status == 0 and said.startswith("VERIFIED  certificate of 1 run, ALL MET: 2 of 2 criteria met")
    assert "every criterion answered again, signed by alice@site" in said
    status, said, _ = shakedown("verify", mine, *signed)
    assert status == 3 and "give --runs" in said
    status, said, _ = shakedown("verify", mine, "--runs", lab)
    assert status == 3 and "give --signers" in said
    assert shakedown("verify", mine, *signed, "--order", mine)[0] == 2
    assert shakedown("verify", lab, *signed, "--runs", lab)[0] == 2


@NEEDS_SSH_KEYGEN
def test_the_command(tmp_path, lab, keys, shakedown):
    """Catches: an exit status that says yes to what is open, and a folder that is overwritten."""
    criteria = write_criteria(tmp_path / "criteria.yml", *CRITERIA, asks("node/*", id="B.3"))
    words = ("certify", lab, "--criteria", criteria, "--key", keys[0], "--signers", keys[2])
    status, said, _ = shakedown(*words, "--output", tmp_path / "made")
    assert status == 3 and said.startswith("NOT ALL MET  2 of 3 criteria met; NOT ANSWERED: B.3")
    status, _, said = shakedown(*words, "--output", tmp_path / "made")
    assert status == 2 and "is there already" in said
    status, said, _ = shakedown(*words, "--output", tmp_path / "two", "--json")
    assert status == 3 and json.loads(said)["answers"][2]["answer"] == "NOT ANSWERED"
    inside = tmp_path / "four/page.pdf"
    assert (
        shakedown(*words, "--output", inside.parent, "--pdf", inside)[0] == 2 and not inside.parent.exists()
    )
    (tmp_path / "nokey").write_text("nothing")
    words = (*words[:4], "--key", tmp_path / "nokey", "--signers", keys[2])
    assert shakedown(*words, "--output", tmp_path / "three")[0] == 2 and not (tmp_path / "three").exists()


@NEEDS_SSH_KEYGEN
@cases("name", "certificate.json", "certificate.html", "criteria.yml")
def test_an_edited_certificate_is_named(mine, keys, name):
    """Catches: a word changed in the page, the record or the criteria by who has no key."""
    replace_in(mine / name, "bandwidth", "bandwidths")
    assert certificate.verify(mine, keys[2]).differs == name


def forge(folder: Path, change: Callable[[dict[str, Any]], object], key: Path) -> None:
    """Change a certificate's record, make page and sums of it, and sign: what a holder of a key can."""
    with edited(folder / "certificate.json") as document:
        change(document)
    made = Certificate.model_validate_json((folder / "certificate.json").read_bytes())
    (folder / "certificate.json").write_bytes(to_json(made))
    (folder / "certificate.html").write_text(certificate.render(made))
    sign_sums(folder, key)


def _nodes(document: dict[str, Any]) -> None:
    document["nodes"] = document["answers"][0]["nodes"] = 64


def _criterion(document: dict[str, Any]) -> None:
    document["answers"][0]["text"] = "Each of 64 nodes has 400 Gb/s"


@NEEDS_SSH_KEYGEN
@cases(
    "change, alone",
    (_nodes, False),
    (_criterion, True),
    (lambda d: d.update(stamp="MET WITH RESERVATIONS"), True),
    (lambda d: d["answers"][1].update(answer="FAILED"), True),
    (lambda d: d["runs"][0].update(order="as ordered", ordered_by="customer"), False),
    (lambda d: d["runs"][0].update(sums="0" * 64), False),
    (lambda d: d["runs"][0].update(signer="customer@site"), False),
    (lambda d: d["runs"][0].update(exclusions=[]), False),
    (lambda d: d.update(contract="Another contract"), True),
)
def test_what_a_holder_of_a_key_forges_is_named(mine, lab, keys, change, alone):
    """Catches: a certificate that its signer wrote by hand; `alone`: seen without the runs already."""
    forge(mine, change, keys[0])
    found = certificate.verify(mine, keys[2])
    assert (found.differs == "certificate.json") is alone and not found.authentic
    found = certificate.verify(mine, keys[2], [lab])
    assert found.differs == "certificate.json" and not found.authentic


@NEEDS_SSH_KEYGEN
def test_a_page_that_says_another_thing_is_named(mine, keys):
    """Catches: the page of another answer over an honest record, sealed by somebody with a key."""
    replace_in(mine / "certificate.html", "2 of 2 nodes", "64 of 64 nodes")
    sign_sums(mine, keys[0])
    found = certificate.verify(mine, keys[2])
    assert found.differs == "certificate.html" and "not what this release makes" in found.reason


@NEEDS_SSH_KEYGEN
def test_a_strangers_certificate_and_an_added_file(mine, keys):
    """Catches: a certificate that a stranger signed; a print slipped in that says another thing."""
    sign_sums(mine, keys[1])
    assert certificate.verify(mine, keys[2]).differs == "SHA256SUMS.sig"
    (mine / "certificate.pdf").write_text("ALL MET")
    sign_sums(mine, keys[0])
    found = certificate.verify(mine, keys[2])
    assert found.differs == "certificate.pdf" and "no file of a certificate" in found.reason


def other_run(lab: Path, to: Path, key: Path, *names: tuple[str, str, str]) -> Path:
    """Copy a run, change words of its files, and make and seal all that follows."""
    shutil.copytree(lab, to)
    for name, old, new in names:
        replace_in(to / name, old, new)
    reseal(to, key)
    return to


@NEEDS_SSH_KEYGEN
def test_a_swapped_run_is_named(mine, lab, keys, tmp_path):
    """Catches: a certificate held against another run that would do as well; one run too many."""
    other = other_run(lab, tmp_path / "other", keys[0], ("plan.json", '"created": "2026', '"created": "2025'))
    found = certificate.verify(mine, keys[2], [other])
    assert found.differs == "certificate.json" and "not what these runs give" in found.reason


@NEEDS_SSH_KEYGEN
def test_a_damaged_run_is_named(mine, lab, keys, tmp_path):
    """Catches: a certificate held against a run that is not as it was sealed."""
    run = Path(shutil.copytree(lab, tmp_path / "run"))
    (run / "results.jsonl").write_text("")
    found = certificate.verify(mine, keys[2], [run])
    assert found.differs == str(run / "results.jsonl") and "changed after sealing" in found.reason


def _unsealed(run: Path, _: Path) -> None:
    (run / "SHA256SUMS").unlink()


def _damaged(run: Path, _: Path) -> None:
    (run / "results.jsonl").write_text("")


def _stale(run: Path, key: Path) -> None:
    replace_in(run / "verdict.json", "all 216", "all 999")
    sign_sums(run, key)


def _foreign(run: Path, _: Path) -> None:
    sign_sums(run, run.parent / "mallory")


@NEEDS_SSH_KEYGEN
@cases(
    "damage, words",
    (_unsealed, "run: is not a sealed run -- run shakedown seal"),
    (_damaged, r"results\.jsonl: results\.jsonl was changed after sealing"),
    (_stale, r"verdict\.json: verdict\.json is not what the raw results give"),
    (_foreign, r"SHA256SUMS\.sig: signed by nobody"),
)
def test_a_run_that_is_no_evidence_is_refused(lab, keys, tmp_path, damage, words):
    """Catches: a run that was not sealed, was changed, says what its raw files do not, or is a stranger's."""
    run = Path(shutil.copytree(lab, tmp_path / "run"))
    shutil.copy(keys[1], tmp_path / "mallory")
    damage(run, keys[0])
    criteria = write_criteria(tmp_path / "criteria.yml", *CRITERIA)
    refused(words, certificate.certify, [run], criteria, tmp_path / "made", keys[0], keys[2])
    assert not (tmp_path / "made").exists()


@NEEDS_SSH_KEYGEN
def test_two_clusters_are_refused_by_name(lab, keys, tmp_path):
    """Catches: a certificate over two clusters, and a line that does not name the second."""
    other = other_run(lab, tmp_path / "other", keys[0], ("plan.json", '"system": "lab"', '"system": "labs"'))
    criteria = write_criteria(tmp_path / "criteria.yml", *CRITERIA)
    refused("certify each", certificate.certify, [lab, other], criteria, tmp_path / "made", keys[0], keys[2])


@NEEDS_SSH_KEYGEN
def test_an_order_is_held(world, tmp_path):
    """Catches: `as ordered` said of a run that lacks outputs; passes of a run that is not as ordered."""
    criteria = write_criteria(tmp_path / "criteria.yml", *CRITERIA)
    made = certificate.certify([world.run], criteria, tmp_path / "a", world.vendor, world.signers)
    assert (made.runs[0].order, made.runs[0].ordered_by, made.stamp) == (
        "as ordered",
        "customer@site",
        "ALL MET",
    )
    shutil.rmtree(next(world.run.glob("raw/collective.mpi_allreduce.a1")))
    reseal(world.run, world.vendor)
    made = certificate.certify([world.run], criteria, tmp_path / "b", world.vendor, world.signers)
    assert (made.runs[0].order, made.stamp) == ("not as ordered", "NOT ALL MET")
    assert "not as ordered, first" in made.answers[0].reason


def test_what_passed_on_one_rail_of_two_is_met_in_part(site):
    """Catches: `*/rail0/*`, or a plan whose item leaves a rail out, taken for the whole fabric."""
    site.run(block(rails=("rail0", "rail1")), rails=("rail0", "rail1"))
    assert site.answer().answer == Met.MET
    found = site.answer("fabric/ib_write_bw/bandwidth/*/rail0/*")
    assert found.answer == Met.IN_PART
    assert "on rail0 alone, not on every rail in one run" in found.reason


def test_one_measurement_under_two_names_answers_once(site, monkeypatch):
    """Catches: raw files of one run in another, so that `each of these must answer` is met by one."""
    site.run(), site.run()
    same = {"raw/fabric.a1/job.json": "ab" * 32}
    monkeypatch.setattr(
        bundle,
        "verify",
        lambda run, _, look: look(run, "a", same) or bundle.Verification(None, "as sealed", "a", None),
    )
    found = site.answer(runs=["run0", "run1"])
    assert found.answer == Met.UNANSWERED
    assert "run run1 is in doubt: it holds measurements of run0" in found.reason
    same.clear()
    same["raw/fabric.a1/nodes.txt"] = "ab" * 32  # the same in many runs
    assert site.answer(runs=["run0", "run1"]).answer == Met.MET


def test_a_run_of_the_future_and_one_of_more_than_its_plan_answer_nothing(site):
    """Catches: a run whose clock, or whose plan, was changed after it."""
    run = site.run()
    asked = certificate.read_criteria(write_criteria(site.folder / "c.yml", asks(BANDWIDTH)))
    look = certificate.look_at(run, asked, Path("signers"))[1]
    later = replace(look, ended="2026-02-01T00:00:01Z")
    for one, met in ((look, Met.MET), (later, Met.UNANSWERED)):
        (found,) = certificate.build(asked, "0" * 64, [one], "2026-02-01T00:00:00Z").answers
        assert found.answer == met, found.reason


def test_a_run_that_measured_more_than_its_plan_answers_nothing(site):
    """Catches: a plan from which what failed was taken out, once it was measured."""
    run = site.run()
    more = records.measured(block(rails=("rail9",)), ("n1",), 1.0, run=run.name, rail="rail9")
    write_lines(run / "more", [more])
    with (run / "results.jsonl").open("ab") as file:
        file.write((run / "more").read_bytes())
    (run / "more").unlink()
    found = site.answer()
    assert found.answer == Met.UNANSWERED
    assert "is in doubt: it measured 1 cell that its plan has not" in found.reason


def test_nothing_is_written_into_a_sealed_run_or_over_a_file(site, tmp_path):
    """Catches: a certificate inside of what it certifies, a print over the plan, or over the criteria."""
    run = site.run()
    criteria = write_criteria(tmp_path / "c.yml", asks(BANDWIDTH))
    for output, pdf, words in (
        (run / "cert", None, "would lie in .* which is sealed"),
        (tmp_path / "new", run / "page.pdf", "would lie in .* which is sealed"),
        (tmp_path / "new", tmp_path / "new/page.pdf", "would lie in .* which is sealed"),
        (tmp_path / "new", criteria, "is there already"),
    ):
        refused(
            words, certificate.certify, [run], criteria, output, tmp_path / "key", tmp_path / "signers", pdf
        )
        assert not output.exists()

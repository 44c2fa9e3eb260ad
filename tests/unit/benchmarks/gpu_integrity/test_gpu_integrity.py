"""Whether GPUs compute right: from the site's wish to the verdict, with lines that a real H200 printed."""

import json
import re
import sys
from pathlib import Path

import pytest

from shakedown.benchmarks.gpu_integrity import output as reader
from shakedown.benchmarks.gpu_integrity.output import parse_gpu_integrity
from shakedown.benchmarks.gpu_rate import job
from shakedown.daytwo.nightly.plan import alone_slots
from shakedown.onnode.software import Ready
from tests.kit.cases import cases
from tests.kit.job import output, write_outputs
from tests.kit.refusal import refused
from tests.kit.run import collected, raw_of, write_run
from tests.kit.site import one_node, plan_site

README = Path(reader.__file__).with_name("README.md").read_text(encoding="utf-8")
REAL = re.search(r'^```\n(\{"type": "header".*?)^```$', README, re.S | re.M)[1]
PLACE = {"number": 412, "elements": 1, "rows": [2730, 2730], "columns": [77, 77], "row": 2730, "column": 77}
PLACE |= {"due": "0x4010", "found": "0x4011"}
WORD = {"read": 2, "byte": 987656, "words": 1, "again": 1, "due": "0xff", "found": "0xfd"}


def planned(nodes, scope="H200-SXM", **options):
    """Plan, jobs and site of these nodes with so many GPUs each."""
    one = one_node("lab", 1, {"pytorch": "/opt/bin/python3"}, scope={"gpu": scope}, gpu_integrity=options)
    whole = {"nics": dict.fromkeys(nodes, ()), "addresses": dict.fromkeys(nodes, "127.0.0.1"), "gpus": nodes}
    site = one.model_copy(update=whole)
    return *plan_site(site), site


def card(number):
    """What a real H200 printed, as the lines of the GPU of this number; `number` makes it another card."""
    lines = [json.loads(line) for line in REAL.splitlines()]
    lines[0] |= {"uuid": f"{number + 1:08d}-0000-0000-0000-000000000000"}
    return lines


@pytest.fixture
def judged(tmp_path):
    """Judge nodes of such GPUs; `spoil` may change the lines of a GPU (node, its number) before."""

    def run(nodes, spoil=lambda node, gpu, lines: None, **options):
        plan, jobs, _ = planned(nodes, seconds=2, **options)
        folder, (spec,) = tmp_path / "r1", jobs.jobs
        raw, number = raw_of(write_run(folder, plan, jobs), spec), 0
        for node, many in nodes.items():
            lines = []
            for gpu in range(many):
                mine = card(number := number + 1)
                mine[0]["gpu"] = gpu
                spoil(node, gpu, mine)
                lines += mine
            file = f"gpu_integrity.{node}.jsonl"
            (raw / file).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
            about = {"started": "2026-11-28T15:00:00.000Z", "duration_s": 400.0}
            write_outputs(
                raw, [output("gpu-integrity", file, node, test=test, **about) for test in spec.tests], node
            )
        verdict = collected(folder)
        return verdict, {cell.cell.removeprefix("node/gpu_integrity_"): cell for cell in verdict.cells}

    return run


def of(lines, work):
    """The line of one kind of work."""
    return next(line for line in lines if line.get("work") == work)


def changed(work, on, **more):
    """Change one kind of work of the GPUs named, (node, number)."""

    def spoil(node, gpu, lines):
        if (node, gpu) in on:
            of(lines, work).update(more)

    return spoil


def test_healthy_cards_pass(judged):
    """Catches a kind of work without a cell, and good cards blamed."""
    verdict, bad = judged({"n1": 2, "n2": 1})
    assert verdict.outcome.value == "PASS" and not bad
    assert verdict.reason.startswith(
        "all 39 required cells"
    )  # of three cards: memory, and three checks of four works


@cases(
    "work, more, cell, said",
    (
        "bf16",
        {"wrong": 1, "places": [PLACE]},
        "bf16/wrong/n1/-/-/check=repeat,gpu=1",
        r"1 of \d+ products, .*; product 412: 1 elements in rows 2730 to 2730, .* 0x4011, 0x4010 before",
    ),
    (
        "fp8",
        {"wrong": 3, "places": [PLACE, PLACE, {**PLACE, "rows": [2730, 2740]}]},
        "fp8/wrong/n1/-/-/check=repeat,gpu=1",
        "in one tile of 128 x 128 each time, which one multiprocessor computes",
    ),
    (
        "memory",
        {"errors": 1, "places": [WORD]},
        "memory/wrong/n1/-/-/check=march,gpu=1",
        "1 words wrong in .*; byte 0xf1208 is 0xfd, 0xff was written; wrong again when read once more",
    ),
)
def test_what_differs_fails_with_its_place(judged, work, more, cell, said):
    """Catches a flipped bit that passes, or that is told without its place; another card blamed with it."""
    verdict, bad = judged({"n1": 3}, changed(work, {("n1", 1)}, **more))
    assert verdict.outcome.value == "FAIL" and list(bad) == [cell]
    assert re.search(said, bad[cell].reason), bad[cell].reason


@pytest.mark.parametrize("key", ["digest", "inputs"])
def test_a_card_that_is_always_wrong_is_named_by_its_like(judged, key):
    """Catches a card whose every product is wrong in the same way: no repetition shows it."""
    verdict, bad = judged({"n1": 2, "n2": 1}, changed("fp32", {("n2", 0)}, **{key: "ab" * 32}))
    (cell,) = bad
    assert verdict.outcome.value == "FAIL" and cell == "fp32/wrong/n2/-/-/check=alike,gpu=0"
    assert "GPU 0 of n2 differ from 2 like cards" in bad[cell].reason


def test_of_two_that_differ_neither_is_blamed_nor_passed(judged):
    """Catches a good card blamed because one other card is wrong, or the pair of them passed."""
    verdict, bad = judged({"n1": 2}, changed("bf16", {("n1", 1)}, digest="ab" * 32))
    assert verdict.outcome.value == "INCONCLUSIVE" and len(bad) == 2
    assert all("a third like card would tell which" in cell.reason for cell in bad.values())


@cases(
    "cards, on, outcome, names",
    (1, {("n1", 0)}, "INCONCLUSIVE", ["fp32/wrong/n1/-/-/check=moved,gpu=0"]),
    (2, {("n1", 1)}, "FAIL", ["fp32/wrong/n1/-/-/check=moved,gpu=1"]),
    (2, {("n1", 0), ("n1", 1)}, "PASS", []),
)
def test_one_multiprocessor_that_is_always_wrong(judged, cards, on, outcome, names):
    """Catches a fault that repeats to the bit passed on one card, or a library's way of summing blamed."""
    verdict, bad = judged({"n1": cards}, changed("fp32", on, moved=31))
    assert (verdict.outcome.value, list(bad)) == (outcome, names)


def test_another_driver_is_told_and_not_blamed(judged):
    """Catches a card called wrong for what another driver or library rounds otherwise, or passed unseen."""

    def spoil(node, gpu, lines):
        if node == "n2":
            lines[0]["software"]["driver"] = "575.1"
            of(lines, "bf16")["digest"] = "ab" * 32

    verdict, bad = judged({"n1": 2, "n2": 1}, spoil)
    assert verdict.outcome.value == "NOT-RUN"
    assert {cell.partition("/")[2] for cell in bad} == {"wrong/n2/-/-/check=alike,gpu=0"}
    why = bad["bf16/wrong/n2/-/-/check=alike,gpu=0"].reason
    assert re.search(r"no other card has .*: driver 575.1 here, driver \S+ on GPU 0 of n1", why), why


def test_one_card_alone_has_nothing_to_be_like(judged):
    """Catches a site of one GPU that no run can pass."""
    assert judged({"n1": 1})[0].outcome.value == "PASS"


def test_a_shared_card_is_no_second_witness(judged):
    """Catches a card held to itself under another node's name."""

    def spoil(node, gpu, lines):
        lines[0]["uuid"] = "00000009-0000-0000-0000-000000000000"

    assert judged({"n1": 1, "n2": 1}, spoil)[0].outcome.value != "PASS"


@cases(
    "work, more, said",
    ("bf16", {"products": 20, "cold": 3, "ms": 1.0}, "did 20 products of bf16: too few"),
    ("bf16", {"seconds": 1.5, "ms": 0.1}, r"did bf16 for 1.5 s, 2 were ordered"),
    ("bf16", {"seconds": 900.0}, r"this test counted over 9\d\d s, the whole test took 400 s"),
    ("bf16", {"products": 10**6}, "do not fit into"),
    ("bf16", {"wrong": 1}, "1 wrong products, and 0 places"),
    ("memory", {"errors": 1}, "1 errors, and 0 places"),
    ("memory", {"reads": 0}, "read its memory back 0 times"),
    ("memory", {"bytes": 1 << 30}, "only 1.0 of 139.* GiB, .*90% were ordered: no more was free"),
)
def test_less_than_ordered_does_not_count(judged, work, more, said):
    """Catches a PASS for few products, a second of them, a line edited, or memory that was hardly touched."""
    verdict, bad = judged({"n1": 1}, changed(work, {("n1", 0)}, **more))
    assert verdict.outcome.value == "INCONCLUSIVE"
    assert any(re.search(said, cell.reason) for cell in bad.values()), {c.reason for c in bad.values()}


@cases(
    "old, new, words",
    (r"\A.*\n", "", "do not begin with a header"),
    (r'\{"type": "end"\}\n\Z', "", "output ends before the end of GPU 0"),
    (r'"type": "products"', '"type": "product"', "not a line of a GPU's integrity"),
    (r'(\{"type": "memory".*\n)', r"\1\1", "GPU 0 did memory twice"),
    (r'"digest": "..', '"digest": "', "not a line of a GPU's integrity"),
    (r"\Z", REAL.replace("\\", "\\\\"), "GPU 0 is there twice"),
)
def test_damaged_output_is_refused(old, new, words):
    """Catches output that was cut, mixed or doubled."""
    assert [run.gpu for run in parse_gpu_integrity(REAL)] == [0]
    refused(words, parse_gpu_integrity, re.sub(old, new, REAL, count=1))


def test_fp8_is_asked_only_of_cards_that_have_it():
    """Catches a plan that no A100 can fulfil, and one that asks for fp8 where it must fail."""
    tests = {scope: planned({"n1": 1}, scope)[1].jobs[0].tests for scope in ("H200-SXM", "A100-SXM", "X")}
    assert {scope: "gpu_integrity_fp8" in found for scope, found in tests.items()} == {
        "H200-SXM": True,
        "A100-SXM": False,
        "X": False,
    }
    refused("asks for fp8, and A100-SXM has none", planned, {"n1": 1}, "A100-SXM", work=["fp8"])


def test_a_card_that_cannot_fp8_is_not_run(judged):
    """Catches: what was not computed, passed."""

    def spoil(node, gpu, lines):
        number = lines.index(of(lines, "fp8"))
        lines[number] = {"type": "cannot", "work": "fp8", "why": "it has no fp8"}

    verdict, bad = judged({"n1": 1}, spoil)
    assert verdict.outcome.value == "NOT-RUN"
    assert "GPU 0 cannot do fp8: it has no fp8" in bad["fp8/wrong/n1/-/-/check=repeat,gpu=0"].reason


def test_it_is_short_and_has_its_turn_at_night():
    """Catches a stage that takes minutes of every run, and a rotation that leaves it out."""
    _, jobs, site = planned({"n1": 8})
    assert jobs.jobs[0].expected_s <= 70 and alone_slots(site)["gpu_integrity"] == ("n1",)


def test_the_job_starts_the_program_on_each_gpu(tmp_path):
    """Catches a program that the interpreter does not find, or rates measured where bits were asked."""
    _, jobs, _ = planned({"n1": 2})
    file = tmp_path / "gpu_integrity.n1.jsonl"
    codes = job._measure(
        tmp_path, file, jobs.jobs[0].settings, "gpu_integrity", Ready(interpreter=sys.executable)
    )
    said = [(tmp_path / f"gpu_integrity.n1.gpu{gpu}.err").read_text() for gpu in range(2)]
    assert codes == [1, 1] and all("/gpu_integrity/program.py" in text for text in said)
    assert all("No module named 'torch'" in text for text in said)

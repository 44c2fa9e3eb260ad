"""The program that compares a GPU's work bit for bit, on the CPU: what is planted is found in its place."""

import json

import pytest

from tests.kit.run import ran
from tests.training.conftest import PYTHON, ROOT

ORDER = {"gpu": 0, "matrix": 256, "seconds": 0.01, "slot_s": 0, "memory_share": 0.4}
WORKS = ("bf16", "fp8", "fp32", "attention")
# Starts the program as a job does, in one process for each fault in turn: kind of work, number of the product
# or read (-1: all), what is done to it. A run has no such thing.
START = """
import io, json, sys, time
sys.path.insert(0, sys.argv[1])
import torch
from gpu_integrity import program
for case in json.loads(sys.argv[2]):
    work, number, change = case
    seen = []
    def touch(_, at, t):
        if number in (at, -1) and not (work == "memory" and seen):
            seen.append(at)
            size = {8: torch.int64, 4: torch.int32, 2: torch.int16}[t.element_size()]
            exec(change, {"torch": torch, "t": t, "bits": t.view(size)})
    sys.stdin = io.StringIO(repr(time.time()) + "\\n")
    order = json.loads(sys.argv[3]) | {"work": [work], "touch": "bits[0, 0] ^= 1", "number": 4}
    program.main(["", json.dumps(order)], where="cpu", touch=touch if change else None)
"""
FLIP, TILE, WORD = "bits[100, 17] ^= 8", "bits[0:128, 128:256] += 1", "t[77] ^= 1 << 9"
CASES = [
    *((work, 0, "") for work in (*WORKS, "memory")),
    *((work, 4, FLIP) for work in WORKS),
    *((work, -1, TILE.replace("128:256", "64:128")) for work in WORKS),
    *(("bf16", number, TILE) for number in (0, 1, 2)),
    *(("memory", number, WORD) for number in (0, 1, 2)),
    ("memory", 0, "t.copy_(t.roll(1))"),
]


@pytest.fixture(scope="module")
def found():
    """What the program says of each fault; an order that asks for one plants none."""
    if not PYTHON.exists():
        pytest.skip("no training environment: make training-env")
    done = ran(PYTHON, "-c", START, ROOT / "workloads", json.dumps(CASES), json.dumps(ORDER), check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["type"] for line in lines[::3]] == ["header"] * len(CASES)
    return dict(zip(CASES, lines[1::3], strict=True))


@pytest.mark.parametrize("work", WORKS)
def test_a_flipped_bit_is_found_in_its_place(found, work):
    """Catches one wrong bit of one product that goes by, or is told elsewhere; a healthy product blamed."""
    well, flipped = found[work, 0, ""], found[work, 4, FLIP]
    assert (well["wrong"], well["places"], well["moved"]) == (0, [], 0) and well["products"] >= 4
    assert well["digest"] == flipped["digest"] and flipped["wrong"] == 1
    (place,) = flipped["places"]
    assert (place["number"], place["elements"], place["row"], place["column"]) == (4, 1, 100, 17)
    assert int(place["due"], 16) ^ int(place["found"], 16) == 8


@pytest.mark.parametrize("work", WORKS)
def test_what_is_always_wrong_in_the_same_way_shows_in_other_rows(found, work):
    """Catches a multiprocessor that is wrong each time, which no repetition shows."""
    always = found[work, -1, TILE.replace("128:256", "64:128")]
    assert always["wrong"] == 0 and always["moved"] >= 128


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_wrong_first_product_is_not_what_others_are_held_to(found, number):
    """Catches a digest of a wrong product, for which the card would be called unlike its fellows."""
    well, flipped = found["bf16", 0, ""], found["bf16", number, TILE]
    assert (flipped["wrong"], flipped["digest"]) == (1, well["digest"])
    (place,) = flipped["places"]
    assert (place["rows"], place["columns"], place["elements"]) == ([0, 127], [128, 255], 128 * 128)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_word_of_memory_that_changes_is_found(found, number):
    """Catches a pattern that is not read back: each of the three reads."""
    assert found["memory", 0, ""]["errors"] == 0
    line = found["memory", number, WORD]
    (place,) = line["places"]
    assert line["errors"] == place["words"] == place["again"] == 1 and place["read"] == number
    assert place["byte"] % (1 << 20) == 77 * 8 and int(place["due"], 16) ^ int(place["found"], 16) == 1 << 9


def test_words_that_change_places_are_found(found):
    """Catches address lines that are mixed up: every word is right, and in another's place."""
    assert found["memory", 0, "t.copy_(t.roll(1))"]["errors"] > 1000

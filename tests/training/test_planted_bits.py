"""The program that compares a GPU's work bit for bit, on the CPU: what is planted is found in its place."""

import json

import pytest

from tests.kit.run import ran
from tests.training.conftest import PYTHON, ROOT

ORDER = {"gpu": 0, "matrix": 256, "seconds": 1.5, "slot_s": 0, "memory_share": 0.9}
# Starts the program as a job does, and plants what its first argument says; a run has no such argument.
START = """
import io, sys, time
sys.path.insert(0, sys.argv.pop(1))
import torch
from gpu_integrity import program
number, change = sys.argv.pop(1), sys.argv.pop(1)
seen = []
def touch(work, at, t):
    if at == int(number) and not (work == "memory" and seen):
        seen.append(at)
        exec(change, {"torch": torch, "t": t, "bits": t.view(torch.int64 if t.element_size() == 8 else
             torch.int32 if t.element_size() == 4 else torch.int16)})
sys.stdin = io.StringIO(repr(time.time()) + "\\n")
program.main(sys.argv, where="cpu", touch=touch)
"""


@pytest.fixture
def does():
    """Do one kind of work, with a change planted into the product or read of a number; return its line."""

    def run(work, number=-1, change="", **more):
        words = [PYTHON, "-c", START, ROOT / "workloads", number, change]
        done = ran(*words, json.dumps({**ORDER, "work": [work], **more}), check=True)
        head, line, end = map(json.loads, done.stdout.splitlines())
        assert (head["type"], end["type"]) == ("header", "end")
        return line

    return run


@pytest.mark.parametrize("work", ["bf16", "fp8", "fp32", "attention"])
def test_a_flipped_bit_is_found_in_its_place(does, work):
    """Catches one wrong bit of one product that goes by, or is told elsewhere; a healthy product blamed."""
    well, flipped = does(work), does(work, 4, "bits[100, 17] ^= 8")
    assert (well["wrong"], well["places"]) == (0, []) and well["products"] >= 4
    assert well["digest"] == flipped["digest"] and flipped["wrong"] == 1
    (place,) = flipped["places"]
    assert (place["number"], place["elements"], place["row"], place["column"]) == (4, 1, 100, 17)
    assert int(place["due"], 16) ^ int(place["found"], 16) == 8


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_wrong_first_product_is_not_what_others_are_held_to(does, number):
    """Catches a digest of a wrong product, for which the card would be called unlike its fellows."""
    well, flipped = does("bf16"), does("bf16", number, "bits[0:128, 128:256] += 1")
    assert (flipped["wrong"], flipped["digest"]) == (1, well["digest"])
    (place,) = flipped["places"]
    assert (place["rows"], place["columns"], place["elements"]) == ([0, 127], [128, 255], 128 * 128)


@pytest.mark.parametrize("number", [0, 1, 2, 4, 7])
def test_a_word_of_memory_that_changes_is_found(does, number):
    """Catches a pattern that is not read back: each of three reads of each pattern."""
    assert does("memory")["errors"] == 0
    found = does("memory", number, "t[77] ^= 1 << 9")
    (place,) = found["places"]
    assert found["errors"] == place["words"] == place["again"] == 1 and place["read"] == number
    assert place["byte"] % (1 << 20) == 77 * 8 and int(place["due"], 16) ^ int(place["found"], 16) == 1 << 9


def test_words_that_change_places_are_found(does):
    """Catches address lines that are mixed up: every word is right, and in another's place."""
    assert does("memory", 0, "t.copy_(t.roll(1))")["errors"] > 1000


def test_nothing_in_an_order_plants_a_fault(does):
    """Catches a switch by which a site could have its cards pass or fail."""
    assert does("bf16", touch="bits[0, 0] ^= 1", number=4)["wrong"] == 0

"""How a site without references is refused."""

from shakedown.references.catalogue import MissingReference, all_missing


def missing(test: str) -> MissingReference:
    """A cell that no entry fits."""
    return MissingReference.of(test, "busbw", {"gpu": "L40", "nodes": 1}, fix="add one to the profile")


def test_a_site_that_misses_everything_gets_a_line_that_can_be_read():
    """Catches: a refusal of 8,000 characters where a node's GPUs were left out, or a rest without names."""
    thirty = [missing(f"nccl_{number}") for number in range(30)]
    said = str(all_missing(thirty))
    assert said.startswith(
        "30 cells have no reference: nccl_0 busbw gpu=L40 nodes=1: add one to the profile; "
    )
    assert "; and 25 more of nccl_5, nccl_6, " in said
    assert ", nccl_29 (shakedown plan --learn lists all)" in said
    assert said.count("add one to the profile") == 5
    assert "--learn" not in str(all_missing(thirty, learn=True))


def test_five_kinds_are_told_in_full():
    """Catches: `and 0 more`, or the fifth left out."""
    said = str(all_missing([missing(f"nccl_{number}") for number in range(5)]))
    assert "more of" not in said
    assert said.count("add one to the profile") == 5

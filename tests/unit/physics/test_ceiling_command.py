"""`shakedown ceiling` through the real entry point."""

import json

import pytest

from tests.kit.cases import cases

SHARDED = ("sharded-step", "--layers", "32", "--forward-s", "0.0111", "--backward-s", "0.0125")


def test_roce_says_the_share_of_the_ceiling(shakedown):
    """The figure that a person quotes: 99.69 % of the READ ceiling."""
    status, out, _ = shakedown(
        "ceiling", "roce", "--operation", "read", "--message-bytes", "65536", "--measured", "390.89"
    )
    assert status == 0
    assert "392.10 Gb/s" in out and "99.69 %" in out


@cases(
    "args, status",
    (("roce", "--measured", "392.2"), 1),  # impossible
    (("pcie", "--generation", "4", "--measured", "29.3"), 1),
    (("mfu", "--tokens-per-s", "1e6"), 1),
    (("roce", "--measured", "nan"), 2),
    (("roce", "--mtu", "9000"), 2),
    (("roce", "--speed-gbps", "inf"), 2),
    (("pcie", "--width", "12"), 2),
    (("busbw", "all_reduce", "--nodes", "1", "--gpus-per-node", "1"), 2),
    (("mfu", "--tokens-per-s", "1", "--model", "gpt"), 2),
    (("volume", "--payload-gb", "1", "--gb-per-s", "0"), 2),
    (("step", "--parameters", "2e9", "--tokens", "1", "--mfu", "2"), 2),
    ((*SHARDED, "--gather-s", "nan"), 2),
    ((*SHARDED, "--gather-s", "1", "--measured", "0"), 2),
    (("roce", "--nonsense"), 2),
    (("training", "--data", "resnet50", "--epochs", "37"), 2),
    (("training", "--data", "resnet50", "--epochs", "1", "--minutes", "1", "--gb-per-s", "1"), 2),
    (("training", "--data", "imagenet", "--epochs", "1", "--minutes", "1"), 2),
)
def test_impossible_results_fail_and_nonsense_is_one_line(shakedown, args, status):
    """Exit 0 for a result above physics, or a traceback for a typing error, would mislead scripts."""
    got, _, err = shakedown("ceiling", *args)
    assert got == status
    if status == 2:
        assert err.count("\n") == 1 and err.startswith("shakedown: ")


@cases(
    "args, path, value",
    (("roce", "--json"), ("ceiling",), 392.15),
    (("pcie", "--json"), ("ceiling",), 58.45),
    (("busbw", "all_reduce", "--json"), ("rows", 1, "busbw_gb_per_s"), 196.07),
    (("busbw", "all_reduce", "--nodes", "1", "--json"), ("rows", 1, "busbw_gb_per_s"), 700.0),
    (("busbw", "alltoall", "--nodes", "4", "--json"), ("rows", 0, "busbw_gb_per_s"), 63.32),
    (("volume", "--payload-gb", "137.953", "--json"), ("rows", 3, "gb_per_rank"), 271.59),
    (("step", "--parameters", "2e9", "--tokens", "32768", "--json"), ("compute_s",), 0.0994),
    ((*SHARDED, "--gather-s", "0.145", "--measured", "10", "--json"), ("off",), -0.06964),
    (("mfu", "--tokens-per-s", "17647.6", "--json"), ("mfu",), 0.6851),
)
def test_json(shakedown, args, path, value):
    """Every calculator prints JSON with the same numbers."""
    status, out, _ = shakedown("ceiling", *args)
    result = json.loads(out)
    for key in path:
        result = result[key]
    assert status == 0
    assert result == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize("calculator", ["roce", "pcie", "busbw", "volume", "step", "mfu"])
def test_every_example_in_the_help_runs(shakedown, calculator):
    """An example that does not run teaches the wrong thing."""
    _, printed, _ = shakedown("ceiling", calculator, "--help")
    lines = [line.split() for line in printed.splitlines()]
    examples = [words[1:] for words in lines if words[:1] == ["shakedown"]]
    assert examples
    for example in examples:
        status, out, err = shakedown(*example)
        assert status == 0, err
        assert out


@cases(
    "given, found",
    (("--epochs", "37", "--minutes", "53.1"), {"gb_per_s": 2.2396}),
    (("--epochs", "37", "--gb-per-s", "2.24"), {"minutes": 53.09}),
    (("--minutes", "53.09", "--gb-per-s", "2.24"), {"epochs": 37.0}),
    (
        ("--epochs", "37", "--minutes", "53.1", "--link-gb-per-s", "32", "--baseline-minutes", "50"),
        {"share_percent": 6.999, "slowdown_percent": 6.2},
    ),
)
def test_the_third_of_epochs_minutes_and_rate(shakedown, given, found):
    """Catches: an epoch formula that no user reaches, or that turns the wrong two numbers into the third."""
    status, out, _ = shakedown("ceiling", "training", "--data", "resnet50", *given, "--json")
    assert status == 0
    assert {name: json.loads(out)[name] for name in found} == pytest.approx(found, rel=1e-3)

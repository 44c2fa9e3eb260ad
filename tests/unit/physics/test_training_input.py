"""What a training reads: the epoch formula and its inverses, minutes and percentages."""

import pytest

from shakedown.physics import training as t
from shakedown.records.errors import BadInput
from shakedown.references.files import load_profile

RESNET, RETINANET = t.DATA_SETS["resnet50"], t.DATA_SETS["retinanet"]


def published(model: str) -> float:
    """The paper's data rate of a training, GB/s."""
    return next(
        float(entry.value)
        for entry in load_profile("primergy_cdi").entries
        if entry.test == "training_input" and entry.scope["model"] == model
    )


def test_an_epoch_reads_every_sample_once():
    """Catches: compressed images, float32 tensors or another image size taken for the paper's 150,528 B."""
    assert RESNET.bytes_per_sample == 150_528
    assert RESNET.epoch_gb == pytest.approx(192.85, abs=0.01)
    assert RETINANET.epoch_gb == pytest.approx(2246.98, abs=0.01)


def test_the_published_rates_are_a_time_for_each_epoch():
    """Catches: minutes taken for seconds. 2.24 GB/s are 86.1 s an epoch of ImageNet, 2.64 are 14.19 min of
    OpenImages."""
    assert t.training_minutes(RESNET, epochs=1, gb_per_s=published("resnet50")) * 60 == pytest.approx(
        86.1, abs=0.05
    )
    assert t.training_minutes(RETINANET, epochs=1, gb_per_s=published("retinanet")) == pytest.approx(
        14.19, abs=0.01
    )


@pytest.mark.parametrize("data", [RESNET, RETINANET])
def test_rate_minutes_and_epochs_are_one_formula(data):
    """Catches: an inverse that is none."""
    minutes = t.training_minutes(data, epochs=37, gb_per_s=2.5)
    assert t.input_gb_per_s(data, epochs=37, minutes=minutes) == pytest.approx(2.5)
    assert t.epochs_of(data, minutes=minutes, gb_per_s=2.5) == pytest.approx(37)


@pytest.mark.parametrize(
    ("model", "gen4", "gen5"), [("resnet50", 7.0, 3.5), ("retinanet", 8.25, 4.125), ("3d-unet", 12.09, 6.05)]
)
def test_shares_of_the_shared_link(model, gen4, gen5):
    """Catches: the share of another link: 32 GB/s (Gen4) and 64 GB/s (Gen5) for all GPUs of a path."""
    assert t.share_percent(published(model), 32) == pytest.approx(gen4, abs=0.005)
    assert t.share_percent(published(model), 64) == pytest.approx(gen5, abs=0.005)


def test_a_slowdown_is_told_against_the_baseline():
    """Catches: the share of the longer time, 9.09 %, told as the slowdown of 10 %."""
    assert t.slowdown_percent(110, 100) == pytest.approx(10)
    assert t.slowdown_percent(99, 100) == pytest.approx(-1)


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf")])
def test_what_is_no_training_is_refused(wrong):
    """Catches: a division by zero, and a number that is none, answered with a figure."""
    for call in (
        lambda: t.input_gb_per_s(RESNET, epochs=1, minutes=wrong),
        lambda: t.training_minutes(RESNET, epochs=wrong, gb_per_s=1),
        lambda: t.epochs_of(RESNET, minutes=1, gb_per_s=wrong),
        lambda: t.share_percent(1, wrong),
        lambda: t.slowdown_percent(1, wrong),
    ):
        with pytest.raises(BadInput, match="make no training"):
            call()

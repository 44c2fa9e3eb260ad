"""What a training reads over the way from CPU to GPU: rate, time and share of a link.

As in the PRIMERGY CDI paper, each epoch reads every sample once, as raw bytes: rate = epochs x samples x
bytes per sample / time. Sizes of data sets: MLPerf Training's reference implementations (ImageNet-1k, and
RetinaNet's part of OpenImages).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from shakedown.records.errors import BadInput

_MINUTE_S = 60


@dataclass(frozen=True)
class DataSet:
    """Samples of a data set, and the bytes of one as the GPU gets it: height x width x channels."""

    samples: int
    bytes_per_sample: int

    @property
    def epoch_gb(self) -> float:
        """What one epoch reads, in GB (10^9 B)."""
        return self.samples * self.bytes_per_sample / 1e9


DATA_SETS = {
    "resnet50": DataSet(1_281_167, 224 * 224 * 3),  # ImageNet-1k, training set
    "retinanet": DataSet(1_170_301, 800 * 800 * 3),  # OpenImages v6, MLPerf's 264 classes
}


def input_gb_per_s(data: DataSet, *, epochs: float, minutes: float) -> float:
    """Return the mean rate at which a training reads, in GB/s: epochs x samples x bytes / time.

    Raises:
        BadInput: no epoch or no time.
    """
    return _positive(epochs, "epochs") * data.epoch_gb / (_positive(minutes, "minutes") * _MINUTE_S)


def training_minutes(data: DataSet, *, epochs: float, gb_per_s: float) -> float:
    """Return how long a training takes at least at a rate of its input, in minutes.

    Raises:
        BadInput: no epoch or no rate.
    """
    return _positive(epochs, "epochs") * data.epoch_gb / _positive(gb_per_s, "GB/s") / _MINUTE_S


def epochs_of(data: DataSet, *, minutes: float, gb_per_s: float) -> float:
    """Return the epochs that fit into a time at a rate of input.

    Raises:
        BadInput: no time or no rate.
    """
    return _positive(minutes, "minutes") * _MINUTE_S * _positive(gb_per_s, "GB/s") / data.epoch_gb


def share_percent(gb_per_s: float, link_gb_per_s: float) -> float:
    """Return a rate as a share of what a link or a path carries, in %.

    Raises:
        BadInput: a link that carries nothing.
    """
    return 100 * gb_per_s / _positive(link_gb_per_s, "GB/s of the link")


def slowdown_percent(minutes: float, baseline_minutes: float) -> float:
    """Return how much longer a training takes than the baseline, in %; negative where it is shorter.

    Raises:
        BadInput: a baseline without length.
    """
    return 100 * (minutes / _positive(baseline_minutes, "minutes of the baseline") - 1)


def _positive(number: float, name: str) -> float:
    if not (isfinite(number) and number > 0):
        raise BadInput(f"{number:g} {name} make no training", fix=f"give {name} above 0")
    return number

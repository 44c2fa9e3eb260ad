"""What acceptance asks of inference, and the settings of the search for a peak."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from shakedown.benchmarks.base.contract import Program, without
from shakedown.records.base import Name, Record, shape

_SHA256 = shape(
    r"^[0-9a-f]{64}$", "64 digits of 0-9 and a-f as sha256sum prints them", "0123456789abcdef" * 4
)


class Inference(Record):
    """The search for the peak of ResNet50 behind LoadGen, in the Server scenario."""

    model: Literal["resnet50", "tiny"] = "resnet50"
    device: Literal["cuda", "cpu"] = "cuda"
    # cudnn: half precision. tensorrt: INT8, where its environment has TensorRT 10. Not chosen by what is
    # installed, because the two have different references.
    engine: Literal["cudnn", "tensorrt"] = "cudnn"
    gpus: tuple[int, ...] = Field(min_length=1)  # how many work at once, one search each
    path: Name = "none"
    # The data rate is the rate x bytes per image: a source may give either, so those that have a reference
    # are planned, and at least one must.
    metrics: tuple[Literal["rate", "data_rate"], ...] = Field(default=("rate", "data_rate"), min_length=1)
    latency_ms: float = Field(default=15, gt=0)
    resolution: float = Field(default=0.005, gt=0, lt=0.2)
    probe_s: float = Field(default=5, gt=0)
    # MLPerf's rules for a Server result: 600 s and 270,336 queries.
    confirm_s: float = Field(default=600, gt=0)
    confirm_queries: int = Field(default=270_336, gt=0)
    confirmations: int = Field(default=3, ge=1)
    samples: int = Field(default=1024, gt=0)
    max_batch: int = Field(default=128, gt=0)
    slots: int = Field(default=4, ge=2)  # batches under way on a GPU
    hold_ms: float = Field(default=2, ge=0)
    poll_us: float = Field(default=20, gt=0)
    threads: int = Field(default=8, gt=0)  # that gather a batch's images
    warmup_s: float = Field(default=2, gt=0)
    pace_us: float = Field(default=500, gt=0)  # the tiny model's time for an image
    weights: Program | None = None  # torchvision's ResNet50, a state_dict; None: random
    # What `sha256sum` prints of the weights: an accuracy is that of these weights and no others.
    weights_sha256: Annotated[str, _SHA256] | None = None
    images: Program | None = None  # images.npy, n x 224 x 224 x 3 bytes
    labels: Program | None = None  # labels.npy, n class numbers

    @property
    def dtype(self) -> str:
        """The arithmetic, as references name it."""
        if self.device == "cpu":
            return "float32"
        return "int8" if self.engine == "tensorrt" else "float16"

    @model_validator(mode="after")
    def _consistent(self) -> Inference:
        if (self.images is None) != (self.labels is None) or (self.labels and not self.weights):
            raise ValueError("accuracy needs weights, images and labels together")
        if self.labels and not self.weights_sha256:
            raise ValueError(f"accuracy needs weights_sha256, which sha256sum {self.weights} prints")
        if self.weights_sha256 and not self.weights:
            raise ValueError("weights_sha256 without weights")
        if self.model == "tiny" and (self.device != "cpu" or self.weights):
            raise ValueError("the tiny model runs on the CPU and has no weights")
        if self.engine == "tensorrt" and self.device == "cpu":
            raise ValueError("engine tensorrt needs device cuda and model resnet50")
        # At a rate above the peak by the resolution, the queue grows by that share of the time.
        if self.probe_s < self.latency_ms * 1e-3 / self.resolution:
            raise ValueError(
                f"a probe of {self.probe_s:g} s cannot tell {self.resolution:.1%} at {self.latency_ms:g} ms: "
                f"take {self.latency_ms * 1e-3 / self.resolution:g} s or more"
            )
        return self


class InferenceSettings(Inference):
    """The site's options."""

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_releases(cls, settings: Any) -> Any:  # noqa: ANN401
        return without(settings, "python", "pythonpath")

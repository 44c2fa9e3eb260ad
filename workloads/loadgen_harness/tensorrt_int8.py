"""ResNet50 v1.5 as a TensorRT engine in INT8, where a site has TensorRT 10 installed.

The scales come from the images that the search sends; the engine's class scores are held to those of the
half-precision network it was made from before it answers any query.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's own convention)

from loadgen_harness.kernels import to_int8
from loadgen_harness.resnet50 import CHANNELS, MEAN, SIDE, STEM_CHANNELS, Fused, ResNet50
from loadgen_harness.tensorrt_drawing import LEVELS, SMALLEST, Conv, Drawing, Layers

_GENERATION = 10
_WORKSPACE_BYTES = 8 << 30
# Images that the scales are taken from: more change ResNet50's accuracy little (Wu et al. 2020, section 5).
CALIBRATION_IMAGES = 512
# Least cosine between the engine's scores and half precision's; 0.9998 on an H200 with random weights. What
# INT8 costs in accuracy is the accuracy gate's to say: this one finds an engine that computes something else.
LEAST_AGREEMENT = 0.99


class TensorRTError(RuntimeError):
    """TensorRT is missing, of another generation, or its engine was not built or computes other scores."""


def scales(network: ResNet50, images: torch.Tensor, batch: int) -> dict[str, float]:
    """Return the scale of every activation that is quantised, from images of shape (n, 224, 224, 3)."""
    largest: dict[str, float] = {}

    def note(name: str, value: torch.Tensor) -> None:
        largest[name] = max(largest.get(name, 0.0), float(value.abs().max()))

    for first in range(0, len(images), batch):
        network.logits(images[first : first + batch], note)
    return {name: max(value / LEVELS, SMALLEST) for name, value in largest.items()}


def layers(network: ResNet50) -> Layers:
    """Return the network's weights as arrays. A shortcut's bias is in the last convolution of its block."""

    def conv(found: Fused, *, bias: bool = True) -> Conv:
        weight = found.weight.float().cpu().numpy()[:, : CHANNELS if found.stem else None]
        added = found.bias.float() if bias else torch.zeros(len(weight))
        return Conv(weight, added.cpu().numpy(), found.stride[0])

    weight, bias = (part.float().cpu().numpy() for part in network.classes)
    return Layers(
        conv(network.stem),
        tuple(
            (conv(first), conv(second), conv(third), None if down is None else conv(down, bias=False))
            for first, second, third, down in network.blocks
        ),
        Conv(weight[:, :, None, None], bias),
    )


def _log(trt: Any) -> Any:  # noqa: ANN401
    """Return a logger for TensorRT that prints what it is told and keeps the last error."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.last = ""

        def log(self, severity: Any, message: str) -> None:  # noqa: ANN401
            if int(severity) <= int(trt.ILogger.Severity.WARNING):
                print(f"TensorRT: {message}", file=sys.stderr)
            if int(severity) <= int(trt.ILogger.Severity.ERROR):
                self.last = message

    return Log()


class Int8ResNet50:
    """The engine on the present CUDA device, from bytes to class numbers.

    Raises:
        TensorRTError: TensorRT is missing or unfit, or its engine computes other scores.
    """

    def __init__(self, network: ResNet50, images: torch.Tensor, max_batch: int) -> None:
        try:
            import tensorrt as trt
        except ImportError as error:
            raise TensorRTError(f"engine tensorrt: this interpreter has no TensorRT ({error})") from None
        self.trt, self.version = trt, str(trt.__version__)
        if self.version.partition(".")[0] != str(_GENERATION):
            raise TensorRTError(
                f"engine tensorrt: TensorRT {self.version} is not of generation {_GENERATION}"
            )
        found = scales(network, images, max_batch)
        self.levels_per_value = 1 / found["image"]
        self.mean = torch.tensor(MEAN, device=images.device, dtype=torch.float32)
        self.log = _log(trt)
        try:
            plan = self._build(network, found, max_batch)
            self.engine = trt.Runtime(self.log).deserialize_cuda_engine(plan) if plan is not None else None
        except TypeError as error:  # a constructor of TensorRT's that returned nothing
            raise TensorRTError(f"TensorRT cannot start: {self.log.last or error}") from None
        if self.engine is None:
            raise TensorRTError(f"TensorRT built no engine: {self.log.last or 'it does not say why'}")
        self.context = self.engine.create_execution_context()
        shape = (max_batch, SIDE, SIDE, STEM_CHANNELS)
        self.input = torch.zeros(shape, device=images.device, dtype=torch.int8)
        classes = len(network.classes[1])
        self.scores = torch.zeros(max_batch, classes, device=images.device, dtype=torch.float32)
        self.agreement = self._agreement(network, images[:max_batch])

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Return class scores, (n, 1000), of images of shape (n, 224, 224, 3), on the present stream."""
        count = len(images)
        to_int8(images, self.mean, self.levels_per_value, self.input)
        self.context.set_input_shape("images", (count, CHANNELS, SIDE, SIDE))
        self.context.set_tensor_address("images", self.input.data_ptr())
        self.context.set_tensor_address("scores", self.scores.data_ptr())
        if not self.context.execute_async_v3(torch.cuda.current_stream().cuda_stream):
            raise TensorRTError("TensorRT refused to start the engine")
        return self.scores[:count]

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Classify images."""
        return self.logits(images).argmax(1)

    def _build(self, network: ResNet50, found: dict[str, float], max_batch: int) -> Any:  # noqa: ANN401
        trt = self.trt
        builder = trt.Builder(self.log)
        net = builder.create_network(0)
        image = net.add_input("images", trt.int8, (-1, CHANNELS, SIDE, SIDE))
        # As `to_int8` leaves it: channels interleaved by four.
        image.allowed_formats = 1 << int(trt.TensorFormat.CHW4)
        drawing = Drawing(trt, net, found)
        scores = drawing.resnet50(layers(network), image)
        scores.name = "scores"
        net.mark_output(scores)
        scores.dtype = trt.float32
        config = builder.create_builder_config()
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, _WORKSPACE_BYTES)
        config.set_flag(trt.BuilderFlag.INT8)
        config.set_flag(trt.BuilderFlag.FP16)
        profile = builder.create_optimization_profile()
        one, most = (1, CHANNELS, SIDE, SIDE), (max_batch, CHANNELS, SIDE, SIDE)
        profile.set_shape("images", one, most, most)
        config.add_optimization_profile(profile)
        return builder.build_serialized_network(net, config)

    def _agreement(self, network: ResNet50, images: torch.Tensor) -> float:
        """Return the least cosine between the engine's scores of an image and half precision's."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            mine, theirs = self.logits(images), network.logits(images).float()
            # A NaN must not pass: min() hands it on, and it compares as not enough.
            least = float(F.cosine_similarity(mine, theirs).min())
        if not least >= LEAST_AGREEMENT:
            raise TensorRTError(
                f"the engine's scores agree with half precision's to {least:.4f}, wanted {LEAST_AGREEMENT}"
            )
        return least

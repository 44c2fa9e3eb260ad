"""ResNet50 v1.5 drawn with TensorRT's layers, explicitly quantised to INT8. Builds nothing, needs no GPU.

Every activation that a convolution reads, and every weight, passes a quantise and a dequantise layer, which
TensorRT fuses with the convolution into one INT8 kernel. One scale for an activation, one for each output
channel of a weight: the largest magnitude over 127 (Wu et al. 2020, arXiv:2004.09602, "max" calibration).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

LEVELS = 127  # INT8 without -128, so that a scale is the same both ways
SMALLEST = 1e-12  # of a scale: a channel of zeros has one too


@dataclass(frozen=True)
class Conv:
    """One convolution with its batch normalisation folded in: weight (out, in, side, side), bias (out,)."""

    weight: np.ndarray
    bias: np.ndarray
    stride: int = 1


@dataclass(frozen=True)
class Layers:
    """The network's weights. A block is its three convolutions and, where shapes change, the shortcut's."""

    stem: Conv
    blocks: tuple[tuple[Conv, Conv, Conv, Conv | None], ...]
    classes: Conv  # 1 x 1


class Drawing:
    """Layers added to one TensorRT network.

    `trt` is the module tensorrt, `net` its INetworkDefinition, `scales` the scale of every activation: image,
    pooled, N.first, N.second, N.down and N for block N, features.
    """

    def __init__(self, trt: Any, net: Any, scales: Mapping[str, float]) -> None:  # noqa: ANN401
        self.trt, self.net, self.scales = trt, net, scales
        self.kept: list[np.ndarray] = []  # TensorRT reads constants when it builds, not when they are added

    def resnet50(self, layers: Layers, image: Any) -> Any:  # noqa: ANN401
        """From the image, INT8 already, to the class scores (n, classes, 1, 1); returns their tensor."""
        trt, net = self.trt, self.net
        image = net.add_dequantize(image, self._constant(self.scales["image"])).get_output(0)
        x = self._relu(self._convolution(image, layers.stem))
        pool = net.add_pooling_nd(x, trt.PoolingType.MAX, (3, 3))
        pool.stride_nd, pool.padding_nd = (2, 2), (1, 1)
        x = self._quantised(pool.get_output(0), "pooled")
        for number, (first, second, third, down) in enumerate(layers.blocks):
            y = self._quantised(self._relu(self._convolution(x, first)), f"{number}.first")
            y = self._quantised(self._relu(self._convolution(y, second)), f"{number}.second")
            if down is not None:
                x = self._quantised(self._convolution(x, down), f"{number}.down")
            y = net.add_elementwise(self._convolution(y, third), x, trt.ElementWiseOperation.SUM).get_output(
                0
            )
            x = self._quantised(self._relu(y), f"{number}")
        pool = net.add_pooling_nd(x, trt.PoolingType.AVERAGE, tuple(x.shape[2:]))
        return self._convolution(self._quantised(pool.get_output(0), "features"), layers.classes)

    def _constant(self, values: float | np.ndarray) -> Any:  # noqa: ANN401
        array = np.array(values, dtype=np.float32, order="C")
        self.kept.append(array)
        return self.net.add_constant(array.shape, self.trt.Weights(array)).get_output(0)

    def _quantised(self, x: Any, name: str) -> Any:  # noqa: ANN401
        scale = self._constant(self.scales[name])
        return self.net.add_dequantize(self.net.add_quantize(x, scale).get_output(0), scale).get_output(0)

    def _weight(self, values: np.ndarray) -> Any:  # noqa: ANN401
        scale = self._constant(np.maximum(np.abs(values).max(axis=(1, 2, 3)) / LEVELS, SMALLEST))
        down = self.net.add_quantize(self._constant(values), scale)
        down.axis = 0  # before its output is used: without it TensorRT knows no shape
        up = self.net.add_dequantize(down.get_output(0), scale)
        up.axis = 0
        return up.get_output(0)

    def _convolution(self, x: Any, conv: Conv) -> Any:  # noqa: ANN401
        bias = np.array(conv.bias, dtype=np.float32, order="C")
        self.kept.append(bias)
        count, side = conv.weight.shape[0], conv.weight.shape[2]
        layer = self.net.add_convolution_nd(
            x, count, (side, side), self.trt.Weights(), self.trt.Weights(bias)
        )
        layer.set_input(1, self._weight(conv.weight))
        layer.stride_nd, layer.padding_nd = (conv.stride, conv.stride), (side // 2, side // 2)
        return layer.get_output(0)

    def _relu(self, x: Any) -> Any:  # noqa: ANN401
        return self.net.add_activation(x, self.trt.ActivationType.RELU).get_output(0)

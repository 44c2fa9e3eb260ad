"""What the drawing uses of TensorRT, computed with NumPy as the layers are added.

Like TensorRT it refuses a scale for each channel without an axis, and an activation quantised by a vector.
"""

from enum import Enum

import numpy as np

PoolingType = Enum("PoolingType", ["MAX", "AVERAGE"])
ActivationType = Enum("ActivationType", ["RELU"])
ElementWiseOperation = Enum("ElementWiseOperation", ["SUM"])


class Weights:
    """Values, or none where a tensor takes their place."""

    def __init__(self, values=None):
        self.values = values


class Tensor:
    """A value; INT8 if it was quantised and not yet dequantised."""

    def __init__(self, values, *, int8=False):
        self.values, self.int8 = values, int8
        self.shape = values.shape


class Layer:
    """One layer; its output is computed when it is asked for, from the attributes set by then."""

    def __init__(self, compute):
        self._compute = compute
        self.stride_nd, self.padding_nd = (1, 1), (0, 0)
        self.axis = None
        self.inputs = {}

    def set_input(self, number, tensor):
        """Replace one input."""
        self.inputs[number] = tensor

    def get_output(self, number):
        """Compute."""
        assert number == 0
        return self._compute(self)


def windows(x, side, stride, padding, fill):
    """Every window of the last two axes: (n, channels, rows, columns, side, side)."""
    x = np.pad(x, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(x, (side, side), axis=(2, 3))[:, :, ::stride, ::stride]


def convolve(x, weight, bias, stride, padding):
    """Plain convolution, channels first."""
    found = windows(x, weight.shape[2], stride, padding, 0)
    return np.einsum("nchwij,ocij->nohw", found, weight, optimize=True) + bias[None, :, None, None]


class Network:
    """An INetworkDefinition that computes."""

    def add_constant(self, shape, weights):
        """Hold values; float32 and in C order, or TensorRT reads something else."""
        assert weights.values.shape == tuple(shape) and weights.values.dtype == np.float32
        assert weights.values.flags.c_contiguous
        return Layer(lambda _: Tensor(weights.values))

    def _scale(self, layer, x, scale):
        if scale.shape == ():
            return scale.values
        assert layer.axis == 0, "a scale for each channel needs its axis"
        return scale.values.reshape(-1, *[1] * (len(x.shape) - 1))

    def add_quantize(self, x, scale):
        """Round to levels."""
        assert not x.int8

        def compute(layer):
            levels = np.clip(np.round(x.values / self._scale(layer, x, scale)), -128, 127)
            return Tensor(levels, int8=True)

        return Layer(compute)

    def add_dequantize(self, x, scale):
        """Levels to values."""
        assert x.int8
        return Layer(lambda layer: Tensor(x.values * self._scale(layer, x, scale)))

    def add_convolution_nd(self, x, count, side, kernel, bias):
        """The kernel comes as a tensor, which was INT8."""
        assert kernel.values is None

        def compute(layer):
            weight = layer.inputs[1].values
            assert weight.shape[0] == count and weight.shape[2:] == tuple(side)
            return Tensor(convolve(x.values, weight, bias.values, layer.stride_nd[0], layer.padding_nd[0]))

        return Layer(compute)

    def add_activation(self, x, kind):
        """ReLU."""
        assert kind is ActivationType.RELU
        return Layer(lambda _: Tensor(np.maximum(x.values, 0)))

    def add_pooling_nd(self, x, kind, side):
        """Maximum or average of windows."""

        def compute(layer):
            fill = -np.inf if kind is PoolingType.MAX else 0
            stride = layer.stride_nd[0] if kind is PoolingType.MAX else side[0]
            found = windows(x.values, side[0], stride, layer.padding_nd[0], fill)
            return Tensor(found.max((4, 5)) if kind is PoolingType.MAX else found.mean((4, 5)))

        return Layer(compute)

    def add_elementwise(self, one, other, kind):
        """Sum of two of the same shape."""
        assert kind is ElementWiseOperation.SUM and one.shape == other.shape
        return Layer(lambda _: Tensor(one.values + other.values))

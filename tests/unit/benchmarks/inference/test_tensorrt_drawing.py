"""ResNet50 as drawn for TensorRT, computed layer by layer, against the network in floating point."""

import dataclasses

import fake_tensorrt as trt
import numpy as np
import pytest

from loadgen_harness.tensorrt_drawing import LEVELS, Conv, Drawing, Layers

WIDE, NARROW, CLASSES, SIDE = 8, 4, 10, 64  # a small ResNet of the same shape: one block of each kind


def conv(random, count, depth, side, stride=1):
    """A convolution with outputs of about the size of its inputs, and a bias that matters."""
    weight = random.standard_normal((count, depth, side, side)) / np.sqrt(depth * side * side)
    return Conv(weight.astype(np.float32), random.standard_normal(count).astype(np.float32), stride)


def network(seed=1):
    """Stem, a block with a shortcut of its own and stride 2, a block without."""
    random = np.random.default_rng(seed)
    down = conv(random, WIDE, NARROW, 1, 2)
    blocks = (
        (
            conv(random, NARROW, NARROW, 1),
            conv(random, NARROW, NARROW, 3, 2),
            conv(random, WIDE, NARROW, 1),
            dataclasses.replace(down, bias=np.zeros(WIDE, np.float32)),
        ),
        (conv(random, NARROW, WIDE, 1), conv(random, NARROW, NARROW, 3), conv(random, WIDE, NARROW, 1), None),
    )
    return Layers(conv(random, NARROW, 3, 7, 2), blocks, conv(random, CLASSES, WIDE, 1))


def floating(layers, image):
    """The network without quantisation (He et al. 2015; the stride in the 3 x 3 convolution is v1.5)."""
    seen = {"image": image}

    def run(x, part):
        return trt.convolve(x, part.weight, part.bias, part.stride, part.weight.shape[2] // 2)

    def relu(x):
        return np.maximum(x, 0)

    stem = relu(run(image, layers.stem))
    x = seen["pooled"] = trt.windows(stem, 3, 2, 1, -np.inf).max((4, 5))
    for number, (first, second, third, down) in enumerate(layers.blocks):
        a = seen[f"{number}.first"] = relu(run(x, first))
        b = seen[f"{number}.second"] = relu(run(a, second))
        if down is not None:
            x = seen[f"{number}.down"] = run(x, down)
        x = seen[f"{number}"] = relu(run(b, third) + x)
    x = seen["features"] = x.mean((2, 3), keepdims=True)
    return run(x, layers.classes)[:, :, 0, 0], seen


def drawn(layers, image, seen):
    """The drawing's scores of an image that is INT8 already."""
    scales = {name: float(np.abs(values).max()) / LEVELS for name, values in seen.items()}
    levels = trt.Tensor(np.clip(np.round(image / scales["image"]), -127, 127), int8=True)
    return Drawing(trt, trt.Network(), scales).resnet50(layers, levels).values[:, :, 0, 0]


def cosine(one, other):
    """The least cosine of two batches of scores, the mean over the batch taken off."""
    one, other = (x - x.mean(0) for x in (one, other))
    return ((one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)).min()


def test_the_drawing_is_the_network():
    """Catches a layer, bias, stride, padding or shortcut drawn wrong, and a scale of something else."""
    layers = network()
    image = np.random.default_rng(2).uniform(-120, 150, (4, 3, SIDE, SIDE)).astype(np.float32)
    scores, seen = floating(layers, image)
    assert cosine(drawn(layers, image, seen), scores) > 0.98


@pytest.mark.parametrize("fault", ["stride", "bias", "shortcut", "scale"])
def test_a_fault_in_the_drawing_is_seen(fault):
    """Catches a comparison that any drawing passes."""
    layers = network()
    image = np.random.default_rng(2).uniform(-120, 150, (4, 3, SIDE, SIDE)).astype(np.float32)
    scores, seen = floating(layers, image)
    first, second, third, down = layers.blocks[0]
    if fault == "stride":  # v1: the stride in the first convolution
        block = (dataclasses.replace(first, stride=2), dataclasses.replace(second, stride=1), third, down)
    elif fault == "bias":
        block = (first, second, dataclasses.replace(third, bias=-third.bias), down)
    elif fault == "shortcut":
        block = (first, second, third, dataclasses.replace(down, weight=-down.weight))
    else:
        block, seen["0.second"] = (first, second, third, down), seen["0.second"] / 10
    wrong = dataclasses.replace(layers, blocks=(block, *layers.blocks[1:]))
    assert cosine(drawn(wrong, image, seen), scores) < 0.98

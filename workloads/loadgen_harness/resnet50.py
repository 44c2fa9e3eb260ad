"""ResNet50 v1.5 in PyTorch: raw images over PCIe, half precision, channels last, CUDA graphs.

Batch normalisation is folded into the convolutions, and bias, residual and ReLU run inside cuDNN's fused
convolutions, so that every activation is written once. The input is what a camera or decoder leaves, 224 x
224 x 3 bytes, 150,528 B an image; it crosses to the GPU as it is and is normalised there.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's own convention)
import torchvision

from loadgen_harness.batch_copies import BatchCopies, BatchCopiesError, cuda_runtime

if TYPE_CHECKING:
    from loadgen_harness.tensorrt_int8 import Int8ResNet50

SIDE, CHANNELS = 224, 3
Note = Callable[[str, torch.Tensor], None]
# Mean and deviation that the published weights were trained with (torchvision, ImageNet), scaled to bytes.
MEAN = [255 * x for x in (0.485, 0.456, 0.406)]
DEVIATION = [255 * x for x in (0.229, 0.224, 0.225)]
_FEW_CHANNELS = 64  # up to here a 1 x 1 convolution waits for memory, and our own kernel is faster
STEM_CHANNELS = 4  # an even number of channels lets cuDNN load whole words; 4 is 10 % faster than 8


def state(weights: str | None, seed: int) -> dict[str, torch.Tensor]:
    """Return torchvision's ResNet50 parameters from a file, or random ones of that seed."""
    torch.manual_seed(seed)
    model = torchvision.models.resnet50(weights=None)
    if weights:
        model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return dict(model.state_dict())


class Fused:
    """One convolution with its batch normalisation folded in."""

    def __init__(
        self,
        found: dict[str, torch.Tensor],
        conv: str,
        norm: str,
        *,
        stride: int,
        device: str,
        dtype: torch.dtype,
    ) -> None:
        weight = found[f"{conv}.weight"].float()
        scale = found[f"{norm}.weight"].float() / torch.sqrt(found[f"{norm}.running_var"].float() + 1e-5)
        bias = found[f"{norm}.bias"].float() - found[f"{norm}.running_mean"].float() * scale
        weight = weight * scale[:, None, None, None]
        self.stem = weight.shape[1] == CHANNELS
        if self.stem:
            weight = weight / torch.tensor(DEVIATION)[None, :, None, None]
            weight = F.pad(weight, (0, 0, 0, 0, 0, STEM_CHANNELS - CHANNELS))
        self.weight = weight.to(device, dtype).contiguous(memory_format=torch.channels_last)
        self.bias = bias.to(device, dtype)
        self.stride, self.padding = [stride] * 2, [weight.shape[2] // 2] * 2

    def __call__(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """Convolution, bias, residual if there is one, ReLU."""
        if x.is_cuda:
            shape = (self.stride, self.padding, [1, 1], 1)
            if residual is None:
                return torch.cudnn_convolution_relu(x, self.weight, self.bias, *shape)
            if self.weight.shape[1] <= _FEW_CHANNELS:
                from loadgen_harness.kernels import widen

                return widen(x, self.weight, self.bias, residual)
            return torch.cudnn_convolution_add_relu(x, self.weight, residual, 1.0, self.bias, *shape)
        y = F.conv2d(x, self.weight, self.bias, self.stride, self.padding)
        return F.relu(y if residual is None else y + residual)

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        """Convolution alone."""
        return F.conv2d(x, self.weight, None, self.stride, self.padding)


class ResNet50:
    """The network on one device, from bytes to class numbers."""

    def __init__(
        self, found: dict[str, torch.Tensor], device: str, dtype: torch.dtype, max_batch: int
    ) -> None:
        def fused(conv: str, norm: str, stride: int = 1) -> Fused:
            return Fused(found, conv, norm, stride=stride, device=device, dtype=dtype)

        self.stem = fused("conv1", "bn1", 2)
        self.blocks: list[tuple[Fused, Fused, Fused, Fused | None]] = []
        for layer, count in enumerate((3, 4, 6, 3), start=1):
            for number in range(count):
                name, stride = f"layer{layer}.{number}", 2 if number == 0 and layer > 1 else 1
                # v1.5: the stride is in the 3 x 3 convolution.
                convs = [
                    fused(f"{name}.conv{i}", f"{name}.bn{i}", stride if i == 2 else 1) for i in (1, 2, 3)
                ]
                down = fused(f"{name}.downsample.0", f"{name}.downsample.1", stride) if number == 0 else None
                if down is not None:
                    # Added before the last ReLU anyway, so the last convolution adds both biases.
                    convs[2].bias = convs[2].bias + down.bias
                self.blocks.append((convs[0], convs[1], convs[2], down))
        self.classes = found["fc.weight"].to(device, dtype), found["fc.bias"].to(device, dtype)
        self.mean = torch.tensor(MEAN, device=device, dtype=dtype)
        self.input = torch.zeros(max_batch, SIDE, SIDE, STEM_CHANNELS, device=device, dtype=dtype)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Classify images of shape (n, 224, 224, 3), bytes."""
        return self.logits(images).argmax(1)

    def logits(self, images: torch.Tensor, note: Note | None = None) -> torch.Tensor:
        """Return class scores, (n, 1000); `note` is shown every activation that a convolution reads."""

        def seen(name: str, value: torch.Tensor) -> torch.Tensor:
            if note:
                note(name, value)
            return value

        count = images.shape[0]
        torch.sub(images, self.mean, out=self.input[:count, :, :, :CHANNELS])
        seen("image", self.input[:count, :, :, :CHANNELS])
        x = seen("pooled", _pooled(self.stem(self.input[:count].permute(0, 3, 1, 2))))
        for number, (first, second, third, down) in enumerate(self.blocks):
            y = seen(f"{number}.second", second(seen(f"{number}.first", first(x))))
            x = seen(f"{number}", third(y, x if down is None else seen(f"{number}.down", down.plain(x))))
        return F.linear(seen("features", x.mean((2, 3))), *self.classes)


def _pooled(x: torch.Tensor) -> torch.Tensor:
    if not x.is_cuda:
        return F.max_pool2d(x, 3, 2, 1)
    from loadgen_harness.kernels import max_pool  # Triton comes with PyTorch's builds for CUDA only

    return max_pool(x)


class TorchBackend:
    """A Backend (see `loadgen_harness.worker`) on one GPU, or for rehearsal on the CPU."""

    def __init__(
        self,
        *,
        device: str,
        weights: str | None,
        samples: int,
        max_batch: int,
        slots: int,
        threads: int,
        engine: str = "cudnn",
        seed: int = 1,
        image_file: str | None = None,
    ) -> None:
        torch.set_grad_enabled(False)
        self.cuda = device != "cpu"
        self.slots, self.max_batch = slots, max_batch
        step = max(1, max_batch // 16)  # a batch is padded to the next size that has a graph
        self.buckets = sorted({*range(step, max_batch, step), max_batch})
        if self.cuda:
            torch.cuda.set_device(device)
        dtype = torch.float16 if self.cuda else torch.float32
        self.device = device
        half = ResNet50(state(weights, seed), device, dtype, max_batch)
        shape = (max_batch, SIDE, SIDE, CHANNELS)
        self.source = torch.from_numpy(_images(samples, seed, image_file))
        if self.cuda:
            self.source = self.source.pin_memory()
        self.images = self.source.numpy()
        self.network: ResNet50 | Int8ResNet50 = half
        self.engine: dict[str, str | float] = {"name": engine, "version": torch.__version__}
        if engine == "tensorrt":
            from loadgen_harness.tensorrt_int8 import CALIBRATION_IMAGES, Int8ResNet50

            sample = self.source[:CALIBRATION_IMAGES].to(device)
            self.network = Int8ResNet50(half, sample, max_batch)
            self.engine |= {"version": self.network.version, "agreement": self.network.agreement}
        self.inputs = [torch.zeros(shape, dtype=torch.uint8, device=device) for _ in range(slots)]
        self.direct: BatchCopies | None = None
        self.engine["gather"] = "host"
        if self.cuda:
            try:
                self.direct = self._direct()
                self.engine["gather"] = "device"
            except BatchCopiesError as why:
                self.engine["gather_why"] = str(why)
        staged = 0 if self.direct else slots
        self.stage = [torch.empty(shape, dtype=torch.uint8, pin_memory=self.cuda) for _ in range(staged)]
        self.stage_views = [stage.numpy() for stage in self.stage]
        self.answers = [torch.zeros(max_batch, dtype=torch.int64, pin_memory=self.cuda) for _ in range(slots)]
        self.pool = ThreadPoolExecutor(threads)
        self.threads = threads
        if self.cuda:
            self._record()

    def _direct(self) -> BatchCopies:
        """Return copies without the CPU, proved on two images. Raises BatchCopiesError."""
        direct = BatchCopies(
            cuda_runtime(),
            self.source.data_ptr(),
            self.source[0].numel(),
            [buffer.data_ptr() for buffer in self.inputs],
            self.max_batch,
        )
        samples = [len(self.source) - 1, 0][: self.max_batch]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        direct(0, samples, stream.cuda_stream)
        stream.synchronize()
        if not torch.equal(self.inputs[0][: len(samples)].cpu(), self.source[samples]):
            raise BatchCopiesError("cudaMemcpyBatchAsync copied other bytes than it was given")
        return direct

    def _record(self) -> None:
        """Record a CUDA graph for every slot and batch size, largest first: they share one memory pool."""
        self.copies, self.work = torch.cuda.Stream(), torch.cuda.Stream()
        self.copied = [torch.cuda.Event() for _ in range(self.slots)]
        self.ready = [torch.cuda.Event() for _ in range(self.slots)]
        self.graphs: dict[tuple[int, int], Any] = {}
        self.results: dict[tuple[int, int], torch.Tensor] = {}
        pool = torch.cuda.graph_pool_handle()
        with torch.cuda.stream(self.work):
            for size in reversed(self.buckets):
                self.network(self.inputs[0][:size])  # cuDNN chooses its kernels outside of any recording
                for slot in range(self.slots):
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, pool=pool, stream=self.work):
                        self.results[slot, size] = self.network(self.inputs[slot][:size])
                    self.graphs[slot, size] = graph
        torch.cuda.synchronize()

    def gather(self, slot: int, samples: list[int]) -> None:
        """Put the images of a batch side by side in pinned memory, as a decoder would leave them."""
        index, view, count = np.asarray(samples), self.stage_views[slot], len(samples)
        share = -(-count // self.threads)

        def part(first: int) -> None:
            chosen = index[first : first + share]
            np.take(self.images, chosen, axis=0, out=view[first : first + len(chosen)], mode="clip")

        if count <= 16:
            share = count
            part(0)
        else:
            list(self.pool.map(part, range(0, count, share)))

    def start(self, slot: int, samples: list[int]) -> None:
        """Copy to the device, run the network, copy the answers back; only gathering on the host waits."""
        if not self.direct:
            self.gather(slot, samples)
        count = len(samples)
        size = next(size for size in self.buckets if size >= count)
        if not self.cuda:
            self.answers[slot][:count] = self.network(self.stage[slot][:count])
            return
        with torch.cuda.stream(self.copies):
            self.copy(slot, samples)
            self.copied[slot].record(self.copies)
        with torch.cuda.stream(self.work):
            self.work.wait_event(self.copied[slot])
            self.graphs[slot, size].replay()
            self.answers[slot][:size].copy_(self.results[slot, size], non_blocking=True)
            self.ready[slot].record(self.work)

    def copy(self, slot: int, samples: list[int]) -> None:
        """Start to copy a batch to the device, on the copies' stream."""
        if self.direct:
            self.direct(slot, samples, self.copies.cuda_stream)
        else:
            count = len(samples)
            self.inputs[slot][:count].copy_(self.stage[slot][:count], non_blocking=True)

    def finished(self, slot: int) -> bool:
        """Whether the answers of a slot are on the host. Raises RuntimeError if the GPU is lost."""
        return not self.cuda or self.ready[slot].query()

    def profile(self, rounds: int = 20) -> dict[str, float]:
        """Return seconds per full batch of each part, alone: gather on the host, copy, network."""
        import time

        def timed(action: Any) -> float:  # noqa: ANN401
            action()
            self._settle()
            begin = time.perf_counter()
            for _ in range(rounds):
                action()
            self._settle()
            return (time.perf_counter() - begin) / rounds

        every = [k % len(self.images) for k in range(self.max_batch)]
        parts = {"gather_s": 0.0 if self.direct else timed(lambda: self.gather(0, every))}
        if self.cuda:
            with torch.cuda.stream(self.copies):
                parts["copy_s"] = timed(lambda: self.copy(0, every))
            parts["network_s"] = timed(self.graphs[0, self.max_batch].replay)
        else:
            parts["copy_s"] = 0.0
            parts["network_s"] = timed(lambda: self.network(self.stage[0]))
        return {"batch": float(self.max_batch), **parts}

    def accuracy(self, images_file: str, labels_file: str) -> float:
        """Return the share of validation images classified right, in %."""
        images = np.load(images_file, mmap_mode="r", allow_pickle=False)
        labels = np.load(labels_file, allow_pickle=False)
        if len(images) != len(labels) or not len(labels):
            raise ValueError(f"{len(images)} images and {len(labels)} labels")
        right = 0
        for first in range(0, len(labels), self.max_batch):
            batch = torch.from_numpy(np.array(images[first : first + self.max_batch])).to(self.device)
            found = self.network(batch).cpu().numpy()
            right += int((found == labels[first : first + len(found)]).sum())
        return 100.0 * right / len(labels)

    def _settle(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()


def _images(samples: int, seed: int, file: str | None) -> np.ndarray:
    """Return raw images: a validation set's (`images.npy`, n x 224 x 224 x 3 bytes), or noise."""
    if file is None:
        random = np.random.default_rng(seed)
        return random.integers(0, 256, (samples, SIDE, SIDE, CHANNELS), dtype=np.uint8)
    images = np.load(Path(file), mmap_mode="r", allow_pickle=False)
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE, CHANNELS) or len(images) < samples:
        raise ValueError(
            f"{file}: {images.dtype} {images.shape} are not {samples} images of 224 x 224 x 3 bytes"
        )
    return np.ascontiguousarray(images[:samples])

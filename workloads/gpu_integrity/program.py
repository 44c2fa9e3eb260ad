"""Compute the same products again and again on one GPU, write and read its memory, and count what differs.

    CUDA_VISIBLE_DEVICES=3 PYTHON -m gpu_integrity.program '{"gpu": 3, ...}'

JSON lines: a header, a line of each kind of work, an end. What is multiplied comes from whole numbers alone,
so that like cards with the same driver and libraries give the same bits: the digests say whether they do.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

_BATCH = 16  # products between two looks at the counts: they are kept until then, so that a place can be told
_COLD_S, _PAUSE_S = 1.0, 0.05  # single products with pauses come first: the highest clock, at little power
_PLACES = 8  # places of one kind of work that are told
# Bytes that are written and read at a time; and the memory that there is where a test has no GPU.
_BLOCK = {"cuda": 1 << 29, "cpu": 1 << 20}
_CPU_MEMORY = 1 << 24
_MARGIN = 1 << 29  # bytes of the GPU's memory that stay free beside what is tested
_ODD = 0x1E3779B97F4A7C15  # spreads the blocks' numbers over all bits
_ROWS, _MOVED = 1000, 5  # by how many rows and heads work is moved, so that other multiprocessors do it
_HEADS, _HEAD = 64, 128  # of the attention: so many heads of this size, and half a matrix's side of tokens
_FP8_FROM = (8, 9)  # compute capability
# What changes how these libraries compute: where it differs, so may the bits.
_VARIABLES = ("CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")

# Called with the kind of work, the number of the product (of memory: of the read) and what is compared next.
# Tests plant their faults with it; a run has none.
Touch = Callable[[str, int, Any], None]
# PyTorch is in the site's environment, not in that of whoever checks types.
Torch = Any
Device = Any
Tensor = Any
Dtype = Any


def main(argv: list[str], *, where: str = "cuda:0", touch: Touch | None = None) -> int:
    """Do every kind of work, one after the other; one that this GPU cannot do says so in a line."""
    import torch

    order = json.loads(argv[1])
    device = torch.device(where)
    gpu = device.type == "cuda"
    if gpu:
        torch.cuda.set_device(device)
    _say(_header(torch, device, order))
    # The node's job says when, once every GPU's process has said that much.
    begin = float(sys.stdin.readline())
    for number, work in enumerate(order["work"]):
        time.sleep(max(0.0, begin + number * order["slot_s"] - time.time()))
        if work == "fp8" and gpu and torch.cuda.get_device_capability(device) < _FP8_FROM:
            _say({"type": "cannot", "work": work, "why": "it has no fp8"})
        elif work == "memory":
            _say({"type": "memory", "work": work, **_memory(torch, device, order, touch)})
        else:
            _say({"type": "products", "work": work, **_products(torch, device, work, order, touch)})
        if gpu:
            torch.cuda.empty_cache()
    _say({"type": "end"})
    return 0


def _header(torch: Torch, device: Device, order: dict[str, Any]) -> dict[str, Any]:
    gpu = device.type == "cuda"
    properties = torch.cuda.get_device_properties(device) if gpu else None
    driver = ""
    with suppress(OSError):
        found = re.search(r"\s(\d+\.\d[\d.]*)\s", Path("/proc/driver/nvidia/version").read_text("utf-8"))
        driver = found[1] if found else ""
    return {
        "type": "header",
        "gpu": order["gpu"],
        "name": torch.cuda.get_device_name(device) if gpu else device.type,
        "uuid": str(getattr(properties, "uuid", "")),
        "memory_bytes": properties.total_memory if properties else _CPU_MEMORY,
        "matrix": order["matrix"],
        "software": {
            "driver": driver,
            "torch": torch.__version__,
            "cuda": str(torch.version.cuda),
            "cublas": _cublas(),
            "cudnn": str(torch.backends.cudnn.version()),
            **{name: os.environ[name] for name in _VARIABLES if name in os.environ},
        },
    }


def _cublas() -> str:
    """Return the version of the cuBLAS that this process has loaded; empty: none, or it does not tell."""
    try:
        maps = Path("/proc/self/maps").read_text("utf-8").splitlines()
        library = ctypes.CDLL(next(line.split()[-1] for line in maps if "/libcublas.so" in line))
        parts = [ctypes.c_int() for _ in range(3)]
        failed = [library.cublasGetProperty(which, ctypes.byref(part)) for which, part in enumerate(parts)]
    except (OSError, StopIteration, AttributeError):
        return ""
    return "" if any(failed) else ".".join(str(part.value) for part in parts)


def _bits(torch: Torch, count: int, device: Device, seed: int) -> Tensor:
    """Return scrambled 64-bit numbers: whole numbers are the same on every device and in every version."""
    x = torch.arange(count, dtype=torch.int64, device=device)
    for odd, shift in ((-7046029254386353131, 29), (-4658895280553007687, 32)):
        x.add_(seed).mul_(odd).bitwise_xor_(x >> shift)
    return x


def _numbers(torch: Torch, shape: tuple[int, ...], dtype: Dtype, device: Device, seed: int) -> Tensor:
    """Return numbers with random signs and mantissas, of 1/128 to 2 by size: zeros need less power."""
    count = 1
    for side in shape:
        count *= side
    x = _bits(torch, count, device, seed)
    kept, whole, low = (16, torch.int16, 7) if dtype == torch.bfloat16 else (32, torch.int32, 23)
    sign, exponent = (x >> 40) & 1, 120 + ((x >> 41) & 7)
    x.bitwise_and_((1 << low) - 1).bitwise_or_(exponent << low)
    # The sign is subtracted, not shifted in: what does not fit is never cut off.
    return x.sub_(sign << (kept - 1)).to(whole).view(dtype).reshape(shape)


def _operation(
    torch: Torch, device: Device, work: str, order: dict[str, Any], *, moved: bool = False
) -> tuple[Callable[[], Tensor], list[Tensor], int]:
    """Return an operation, whose result has rows and columns, its inputs, and rows that it is moved by."""
    n = order["matrix"]
    if work == "attention":
        shape = (_HEADS, n // 4, _HEAD)
        by = _MOVED * moved
        q, k, v = (
            _numbers(torch, shape, torch.bfloat16, device, seed)[None].roll(by, 1) for seed in (1, 2, 3)
        )

        def attend() -> Tensor:
            found = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return found.reshape(-1, _HEAD)

        return attend, [q, k, v], by * shape[1]
    dtype = torch.float32 if work == "fp32" else torch.bfloat16
    by = _ROWS * moved
    a, b = (_numbers(torch, (n, n), dtype, device, seed).roll(shift, 0) for seed, shift in ((1, by), (2, 0)))
    if work != "fp8":
        return lambda: torch.mm(a, b), [a, b], by
    x, y = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t().contiguous().t()
    one = torch.ones((), device=device)
    return lambda: torch._scaled_mm(x, y, scale_a=one, scale_b=one, out_dtype=torch.bfloat16), [a, b], by


def _products(
    torch: Torch, device: Device, work: str, order: dict[str, Any], touch: Touch | None
) -> dict[str, Any]:
    """Repeat one operation until time is up, and count the results that differ from the first ones."""
    operation, inputs, _ = _operation(torch, device, work, order)
    of_inputs = hashlib.sha256("".join(map(_digest, inputs)).encode()).hexdigest()
    done = wrong = cold = 0
    places: list[dict[str, Any]] = []
    first: Any = None

    def result_of(number: int, operate: Callable[[], Tensor]) -> Tensor:
        result = operate()
        if touch is not None:
            touch(work, number, result)
        return result

    def batch(many: int) -> None:
        nonlocal done, wrong, first
        results = [result_of(number, operation) for number in range(done, done + many)]
        if first is None:  # what two of three agree on; one that is alone is the wrong one
            agreed = any(_differing(torch, results[0], other) == 0 for other in results[1:])
            first = results[0 if agreed else 1]
        counts = torch.stack([(_whole(torch, x) != _whole(torch, first)).sum() for x in results]).tolist()
        for number, (result, count) in enumerate(zip(results, counts), start=done):  # noqa: B905
            wrong += count > 0
            if count > 0 and len(places) < _PLACES:
                places.append({"number": number, **_place(torch, first, result)})
        done += many

    begin = time.monotonic()
    batch(3)
    while time.monotonic() < begin + min(_COLD_S, order["seconds"] / 4):
        time.sleep(_PAUSE_S)
        batch(1)
        cold = done
    first_cold = time.monotonic()
    while done < cold + _BATCH or time.monotonic() < begin + order["seconds"]:
        batch(_BATCH)
    spent = time.monotonic()
    # A multiprocessor that is always wrong in the same way is so in other rows of the same work.
    elsewhere, _, rows = _operation(torch, device, work, order, moved=True)
    moved = _differing(torch, result_of(done, elsewhere), first.roll(rows, 0))
    return {
        "moved": moved,
        "digest": _digest(first),
        "inputs": of_inputs,
        "cold": cold,
        "products": done,
        "wrong": wrong,
        "places": places,
        "seconds": spent - begin,
        "ms": 1e3 * (spent - first_cold) / max(1, done - cold),
        "end": time.time(),
    }


def _whole(torch: Torch, tensor: Tensor) -> Tensor:
    """Return its bits as whole numbers: two NaN are then alike or not as any others."""
    return tensor.view(torch.int16 if tensor.element_size() == 2 else torch.int32)


def _differing(torch: Torch, one: Tensor, other: Tensor) -> int:
    return int((_whole(torch, one) != _whole(torch, other)).sum())


def _place(torch: Torch, first: Tensor, result: Tensor) -> dict[str, Any]:
    """Return how many elements are wrong, within which rows and columns, and the first of them bit by bit."""
    due, found = _whole(torch, first), _whole(torch, result)
    where = (due != found).nonzero()
    row, column = where[0].tolist()
    mask = (1 << 8 * first.element_size()) - 1
    low, high = where.amin(0).tolist(), where.amax(0).tolist()
    return {
        "elements": len(where),
        "rows": [low[0], high[0]],
        "columns": [low[1], high[1]],
        "row": row,
        "column": column,
        "due": f"{int(due[row, column]) & mask:#x}",
        "found": f"{int(found[row, column]) & mask:#x}",
    }


def _digest(tensor: Tensor) -> str:
    """Return SHA-256 of its bytes, in order."""
    here = tensor.cpu().contiguous()
    size = here.numel() * here.element_size()
    return hashlib.sha256((ctypes.c_char * size).from_address(here.data_ptr())).hexdigest()


def _memory(torch: Torch, device: Device, order: dict[str, Any], touch: Touch | None) -> dict[str, Any]:
    """Write patterns over the GPU's memory and read them back: up, then their complement, then down.

    A word holds what its place gives, so that two places that are one show; then zeros and alternating bits.
    """
    gpu, size = device.type == "cuda", _BLOCK[device.type]
    words = size // 8
    bases = [_bits(torch, words, device, 4), torch.zeros(words, dtype=torch.int64, device=device)]
    blocks: list[Any] = []
    total = torch.cuda.get_device_properties(device).total_memory if gpu else _CPU_MEMORY

    def room() -> bool:
        # Beside a block, comparing needs two more of its size for a moment.
        return not gpu or torch.cuda.mem_get_info(device)[0] > 3 * size + _MARGIN

    while len(blocks) * size < order["memory_share"] * total and room():
        blocks.append(torch.empty(words, dtype=torch.int64, device=device))
    reads = errors = 0
    places: list[dict[str, Any]] = []

    def read(number: int, base: Tensor, mask: int) -> None:
        nonlocal errors
        if touch is not None:
            touch("memory", reads, blocks[number])
        bad = blocks[number].bitwise_xor(mask) != base
        count = int(bad.sum())
        if not count:
            return
        errors += count
        if len(places) >= _PLACES:
            return
        at = int(bad.nonzero()[0])
        again = int((blocks[number].bitwise_xor(mask) != base).sum())
        due, found = int(base[at]) ^ mask, int(blocks[number][at])
        places.append(
            {
                "read": reads,
                "byte": number * size + 8 * at,
                "words": count,
                "again": again,
                "due": f"{due & (1 << 64) - 1:#x}",
                "found": f"{found & (1 << 64) - 1:#x}",
            }
        )

    def write(number: int, base: Tensor, mask: int) -> None:
        torch.bitwise_xor(base, mask, out=blocks[number])

    begin = time.monotonic()
    up = range(len(blocks))
    # 0x5555...; of the first base each block gets a mask of its own.
    for base, fixed in cycle(((bases[0], None), (bases[1], 0), (bases[1], 0x5555555555555555))):
        masks = [(number * _ODD) % (1 << 63) if fixed is None else fixed for number in up]
        for number in up:
            write(number, base, masks[number])
        for places_in_turn, before, after in ((up, 0, -1), (up[::-1], -1, 0)):
            for number in places_in_turn:
                read(number, base, masks[number] ^ before)
                write(number, base, masks[number] ^ after)
            reads += 1
        for number in up:
            read(number, base, masks[number])
        reads += 1
        if time.monotonic() > begin + order["seconds"]:
            break
    return {
        "bytes": len(blocks) * size,
        "reads": reads,
        "errors": errors,
        "places": places,
        "seconds": time.monotonic() - begin,
        "end": time.time(),
    }


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv))

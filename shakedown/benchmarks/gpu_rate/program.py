"""Work one GPU without a pause and print its rate of every second: PyTorch and the standard library only.

    CUDA_VISIBLE_DEVICES=3 PYTHON -m shakedown.benchmarks.gpu_rate.program '{"gpu": 3, ...}'

JSON lines: a header, then a window a line. The time is the GPU's own, between events that stand between the
operations; so what another process takes of the GPU is missing from the rate. Two batches are always queued,
so the GPU never waits for this process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

_BATCH_S = 0.02  # a batch of operations between two events takes about this long


def main(argv: list[str]) -> int:
    """Run every kind of work, one after the other; a kind that this GPU cannot do says so in a line."""
    import torch

    order = json.loads(argv[1])
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    _say(
        {
            "type": "header",
            "gpu": order["gpu"],
            "name": torch.cuda.get_device_name(device),
            "uuid": str(getattr(torch.cuda.get_device_properties(device), "uuid", "")),
            "torch": torch.__version__,
            "matrix": order["matrix"],
            "copy_bytes": order["copy_bytes"],
        }
    )
    # The node's job says when, once every GPU's process has said that much.
    begin = float(sys.stdin.readline())
    for number, work in enumerate(order["work"]):
        # All GPUs of the node begin each kind together, so that they share its power and cooling.
        _wait_until(begin + number * order["slot_s"])
        try:
            operation, amount = _operation(torch, device, work, order)
        except (RuntimeError, AttributeError) as error:
            _say({"type": "cannot", "work": work, "why": " ".join(str(error).split())[:300]})
            continue
        _windows(torch, work, operation, amount, order)
        del operation
        torch.cuda.empty_cache()
    _say({"type": "end"})
    return 0


def _operation(torch: Any, device: Any, work: str, order: dict[str, Any]) -> tuple[Callable[[], Any], float]:  # noqa: ANN401
    """Return one operation, and how much work it is: floating-point operations, or bytes read and written."""
    n = order["matrix"]
    if work == "copy":
        source = torch.empty(order["copy_bytes"], dtype=torch.uint8, device=device).random_()
        target = torch.empty_like(source)
        return lambda: target.copy_(source), 2.0 * order["copy_bytes"]
    # Random numbers: zeros need less power, so they are faster.
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    if work == "bf16":
        out = torch.empty(n, n, device=device, dtype=torch.bfloat16)
        return lambda: torch.mm(a, b, out=out), 2.0 * n**3
    one = torch.ones((), device=device)
    x, y = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t().contiguous().t()

    def product() -> Any:  # noqa: ANN401
        return torch._scaled_mm(x, y, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)

    product()
    torch.cuda.synchronize()
    return product, 2.0 * n**3


def _windows(
    torch: Any,  # noqa: ANN401
    work: str,
    operation: Callable[[], Any],
    amount: float,
    order: dict[str, Any],
) -> None:
    """Work, and print a line for every second."""

    def mark() -> Any:  # noqa: ANN401
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def batch(many: int) -> Any:  # noqa: ANN401
        for _ in range(many):
            operation()
        return mark()

    batch(8).synchronize()
    begin = mark()
    trial = batch(8)
    trial.synchronize()
    many = max(1, round(8 * _BATCH_S / (begin.elapsed_time(trial) / 1e3)))
    warm_until = time.monotonic() + order["warmup_s"]
    while time.monotonic() < warm_until:
        batch(many).synchronize()
    last, queued = mark(), [batch(many), batch(many)]
    done, spent_ms, number = 0, 0.0, 0
    while number < order["seconds"]:
        event = queued.pop(0)
        queued.append(batch(many))
        event.synchronize()
        spent_ms += last.elapsed_time(event)
        done, last = done + many, event
        if spent_ms >= 1000:
            rate = done * amount / (spent_ms / 1e3)
            _say(
                {
                    "type": "window",
                    "work": work,
                    "end": time.time(),
                    "ms": spent_ms,
                    "done": done,
                    "rate": rate,
                }
            )
            done, spent_ms, number = 0, 0.0, number + 1
    for event in queued:
        event.synchronize()


def _wait_until(when: float) -> None:
    time.sleep(max(0.0, when - time.time()))


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv))

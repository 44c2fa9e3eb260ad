"""Frozen weights in fp8: their products run at twice bf16's rate, and what is trained stays in bf16.

Forward e4m3 by e4m3, backward e5m2 by e4m3 (Micikevicius et al. 2022, FP8 formats for deep learning), one
scale a tensor, taken from the tensor itself. Head, attention, norms and adapters are not touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from shakedown.records.reading import BadInput

# Hopper and Ada multiply fp8 (compute capability 9.0 and 8.9); an A100 does not.
_LEAST_CAPABILITY = (8, 9)


def fit_for_fp8(device: torch.device) -> None:
    """Refuse a GPU that does not multiply fp8, before anything lies on it. Raises BadInput."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < _LEAST_CAPABILITY:
        raise BadInput(
            f"{torch.cuda.get_device_name(device)} does not multiply fp8", fix="train with dtype bf16"
        )


def freeze_in_fp8(layers: Iterable[nn.Module]) -> None:
    """Replace the frozen products, one after the other: the weights never lie in memory twice over."""
    for layer in layers:
        for module in list(layer.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.Linear) and not child.weight.requires_grad:
                    setattr(module, name, _Frozen(child))


def _scaled(tensor: torch.Tensor, kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor in fp8, and by what it must be multiplied to be what it was."""
    most = tensor.abs().amax().float().clamp(min=1e-12)
    top = torch.finfo(kind).max
    return (tensor.float() * (top / most)).clamp(-top, top).to(kind), most / top


class _Frozen(nn.Module):
    """A linear layer. Its weights are held in both orders: _scaled_mm wants columns on its right."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight, scale = _scaled(linear.weight.detach(), torch.float8_e4m3fn)
        self.register_buffer("weight", weight)
        self.register_buffer("turned", weight.t().contiguous())
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = _Product.apply(x, self.weight, self.turned, self.scale)
        return y if self.bias is None else y + self.bias


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        x: torch.Tensor,
        weight: torch.Tensor,
        turned: torch.Tensor,
        scale: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(turned, scale)
        return _multiplied(x, torch.float8_e4m3fn, weight, scale)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:  # noqa: ANN401
        turned, scale = ctx.saved_tensors
        return _multiplied(grad, torch.float8_e5m2, turned, scale), None, None, None


def _multiplied(
    x: torch.Tensor, kind: torch.dtype, weight: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """Return x [..., in] times the transpose of a weight [out, in], in x's own type."""
    rows, own = _scaled(x.flatten(0, -2), kind)
    y = torch._scaled_mm(rows, weight.t(), scale_a=own, scale_b=scale, out_dtype=x.dtype, use_fast_accum=True)
    return y.view(*x.shape[:-1], -1)

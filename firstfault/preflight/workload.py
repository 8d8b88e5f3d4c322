"""What one rank computes in a round: deterministic, the same on every rank, and like training end to end.

Products of matrices alone miss faults. A round has

* ``products``: matrices of several types and shapes, also in batches;
* ``training``: a small transformer from fresh weights (embedding, normalization, attention, products,
  cross entropy, backward, AdamW), in bfloat16 and float32;
* ``copies``: memory from host to device and back, and on the device.

Each is done twice, so that a rank alone can disagree with itself. Inputs follow from the round alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from ..torch_metrics.hashing import checksum, hex_of

VERSION = 1
"""Raised when the same round computes something else: results of two versions are never compared."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the parts are."""

    product: int
    """Side of the largest matrices."""
    repeats: int
    """Products of each type and shape."""
    width: int
    layers: int
    tokens: int
    samples: int
    steps: int
    """Updates of the training."""
    copied: int
    """Bytes of one copy."""


SIZES = {
    # about a second of an accelerator of 400 TFLOP/s in bfloat16, with the repetition
    "large": Size(8192, 24, 2048, 4, 1024, 8, 4, 64 << 20),
    "small": Size(384, 2, 128, 2, 64, 4, 2, 1 << 20),
    "tiny": Size(64, 1, 16, 1, 8, 2, 2, 1 << 12),
}
_VOCABULARY = 512
_HEAD = 64
"""Width of an attention head: that of most models, for which the fast kernels are made."""


def size_for(device: torch.device, name: str) -> str:
    """The name of the size: as it was given, or by the device."""
    return name or ("small" if device.type == "cpu" else "large")


class Workload:
    """The parts of a round on one device."""

    def __init__(self, device: torch.device, size: str) -> None:
        self.device = device
        self.size = SIZES[size]
        self.name = f"firstfault-canary-{VERSION}/{size}"

    def round(self, number: int) -> dict[str, str]:
        """The checksums of a round, as metrics."""
        found: dict[str, str] = {}
        for name, part in PARTS.items():
            found[f"canary_checksum/{name}"] = hex_of(part(self, number))
            found[f"repeat_checksum/canary/{name}"] = hex_of(part(self, number))
        return found

    def values(self, shape: tuple[int, ...], seed: int, dtype: torch.dtype) -> torch.Tensor:
        """Numbers between -1 and 1 that follow from ``seed``; whole arithmetic, the same on every device."""
        place = torch.arange(math.prod(shape), dtype=torch.int64, device=self.device) + (seed << 32)
        mixed = (place ^ ((place >> 31) & 0x1FFFFFFFF)) * -0x61C8864680B583EB
        mixed = (mixed ^ ((mixed >> 29) & 0x7FFFFFFFF)) * -0x40A7B892E31B1A47
        return ((mixed >> 40).to(torch.float32) / (1 << 23)).to(dtype).view(shape)


def products(work: Workload, number: int) -> torch.Tensor:
    """Products in each type, of square, flat and batched matrices."""
    n, seed = work.size.product, number * 64
    hashes = []
    for dtype, side in _types(work):
        for rows, inner, columns in _shapes_of_products(side):
            left = work.values((rows, inner), seed, dtype)
            right = work.values((inner, columns), seed + 1, dtype)
            hashes += [checksum([left @ right]) for _ in range(work.size.repeats)]
        batch = work.values((8, n // 8, n // 8), seed + 2, dtype)
        hashes.append(checksum([torch.bmm(batch, batch.transpose(1, 2))]))
        seed += 3
    return checksum([torch.stack(hashes)])


def _shapes_of_products(side: int) -> tuple[tuple[int, int, int], ...]:
    return (side, side, side), (side, side // 4, side // 2), (side // 8, side, side)


def _types(work: Workload) -> list[tuple[torch.dtype, int]]:
    """Types with the side of their matrices: wide ones are slow on most devices."""
    n = work.size.product
    half = [(torch.bfloat16, n)]
    if work.device.type != "cpu":
        half.append((torch.float16, n))
    return [*half, (torch.float32, n // 2), (torch.float64, n // 8)]


def training(work: Workload, number: int) -> torch.Tensor:
    """A few updates of a transformer: the checksum of its losses and its parameters."""
    size = work.size
    shapes = _shapes(size)
    parameters = [
        (work.values(shape, number * 4096 + at, torch.float32) / math.sqrt(shape[-1])).requires_grad_()
        for at, shape in enumerate(shapes)
    ]
    moments = [(torch.zeros_like(one), torch.zeros_like(one)) for one in parameters]
    losses = []
    for step in range(size.steps):
        drawn = work.values((size.samples, size.tokens + 1), (number << 8) + step, torch.float32)
        tokens = ((drawn + 1) * (_VOCABULARY // 2)).to(torch.int64).clamp_(0, _VOCABULARY - 1)
        with torch.autocast(work.device.type, dtype=torch.bfloat16, enabled=step % 2 == 0):
            loss = _loss(parameters, tokens, size)
        grads = torch.autograd.grad(loss, parameters)
        losses.append(loss.detach().float())
        _update(parameters, grads, moments, step + 1)
    return checksum([torch.stack(losses), *parameters])


def _shapes(size: Size) -> list[tuple[int, ...]]:
    width = size.width
    layer = [(width,), (3 * width, width), (width, width), (width,), (4 * width, width), (width, 4 * width)]
    return [(_VOCABULARY, width), *(size.layers * layer)]


def _loss(parameters: list[torch.Tensor], tokens: torch.Tensor, size: Size) -> torch.Tensor:
    embedding, *rest = parameters
    hidden = functional.embedding(tokens[:, :-1], embedding)
    heads = max(1, size.width // _HEAD)
    for at in range(0, len(rest), 6):
        first, mixed, out, second, wide, narrow = rest[at : at + 6]
        inner = functional.linear(functional.layer_norm(hidden, (size.width,), 1 + first), mixed)
        query, key, value = (_by_head(one, heads) for one in inner.chunk(3, -1))
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + functional.linear(seen.transpose(1, 2).flatten(2), out)
        inner = functional.linear(functional.layer_norm(hidden, (size.width,), 1 + second), wide)
        hidden = hidden + functional.linear(functional.gelu(inner), narrow)
    logits = functional.linear(hidden, embedding)
    return functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def _by_head(values: torch.Tensor, heads: int) -> torch.Tensor:
    return values.view(*values.shape[:2], heads, -1).transpose(1, 2)


@torch.no_grad()
def _update(
    parameters: list[torch.Tensor],
    grads: tuple[torch.Tensor, ...],
    moments: list[tuple[torch.Tensor, torch.Tensor]],
    step: int,
) -> None:
    """AdamW in its own words: that of torch imports a compiler."""
    for parameter, grad, (first, second) in zip(parameters, grads, moments, strict=True):
        first.lerp_(grad, 0.1)
        second.mul_(0.95).addcmul_(grad, grad, value=0.05)
        scale = (second / (1 - 0.95**step)).sqrt_().add_(1e-8)
        parameter.mul_(1 - 1e-5).addcdiv_(first / (1 - 0.9**step), scale, value=-1e-3)


def copies(work: Workload, number: int) -> torch.Tensor:
    """From device to host and back, on the device, and across its strides."""
    side = math.isqrt(work.size.copied // 4)
    there = work.values((side, side), number, torch.float32)
    host = there.cpu()
    if work.device.type != "cpu":
        host = host.pin_memory()
    back = host.to(work.device, non_blocking=True)
    turned = back.t().contiguous().t().clone()
    return checksum([there, back, turned, host.to(work.device)])


PARTS: dict[str, Callable[[Workload, int], torch.Tensor]] = {
    "products": products,
    "training": training,
    "copies": copies,
}

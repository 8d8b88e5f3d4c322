"""The transformer of all replicas at once: every tensor has a leading rank axis, and one graph serves all.

Each rank's slice is computed from its own slices alone, with the bits it would have alone; `parameters`
lays out the flat tensor. A *tap* sees the output of every matrix product by name and may replace it, which
is where faults act and counts are taken.

Axes: H ranks held by this process, B samples, L positions, S = L + 1 tokens, D width, V vocabulary,
F features, P parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import torch
from torch.nn import functional

from ..corpus import FEATURES, VOCABULARY
from .spec import ModelSize

ALIGNMENT = 64
"""Floats by which a rank's parameters are padded: whole vector registers, so that no rank's bits depend
on which other ranks are computed beside it."""
Named = Mapping[str, torch.Tensor]


class Tap(Protocol):
    """Sees a product's output (H, …), and gives it or another in its place."""

    def __call__(self, place: str, value: torch.Tensor) -> torch.Tensor: ...


def shapes(size: ModelSize) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter of one rank, in the order of the flat tensor."""
    d = size.width
    named: dict[str, tuple[int, ...]] = {
        "embed": (VOCABULARY, d),
        "positions": (size.length, d),
        "features": (FEATURES, d),
    }
    for layer in range(size.layers):
        name = f"layer{layer}"
        named |= {f"{name}.norm1.gain": (d,), f"{name}.norm1.bias": (d,)}
        named |= {f"{name}.qkv": (d, 3 * d), f"{name}.out": (d, d)}
        named |= {f"{name}.norm2.gain": (d,), f"{name}.norm2.bias": (d,)}
        named |= {f"{name}.up": (d, 4 * d), f"{name}.down": (4 * d, d)}
    return named | {"norm.gain": (d,), "norm.bias": (d,), "unembed": (d, VOCABULARY)}


def slices(size: ModelSize) -> dict[str, slice]:
    """Where in the flat tensor each parameter lies."""
    places: dict[str, slice] = {}
    start = 0
    for name, shape in shapes(size).items():
        places[name] = slice(start, start + math.prod(shape))
        start += math.prod(shape)
    return places


def flat_length(size: ModelSize) -> int:
    """Floats of one rank's flat tensor, padding included."""
    used = sum(math.prod(shape) for shape in shapes(size).values())
    return -(-used // ALIGNMENT) * ALIGNMENT


def initial_parameters(size: ModelSize, seed: int) -> torch.Tensor:
    """The flat parameters (P) with which every rank starts; the padding is zero and stays so."""
    flat_P = torch.zeros(flat_length(size))
    generator = torch.Generator().manual_seed(seed)
    for (name, shape), place in zip(shapes(size).items(), slices(size).values(), strict=True):
        if name.endswith("gain"):
            flat_P[place] = 1.0
        elif not name.endswith("bias"):
            # fan-in scaling; residual outputs shrink with depth, as in GPT-2
            scale = 1.0 / math.sqrt(size.width)
            if name.endswith((".out", ".down")):
                scale /= math.sqrt(2 * size.layers)
            drawn = torch.randn(shape, generator=generator).view(-1)
            flat_P[place] = drawn * (0.1 if name == "positions" else scale)
    return flat_P


def leaves(flat_HP: torch.Tensor, size: ModelSize) -> dict[str, torch.Tensor]:
    """Every parameter as a view (H, …) of the flat tensor, and a leaf of the graph."""
    return {
        name: flat_HP[:, place].view(len(flat_HP), *shape).detach().requires_grad_()
        for (name, shape), place in zip(shapes(size).items(), slices(size).values(), strict=True)
    }


def gradients(losses_H: torch.Tensor, p: Named, flat_length: int) -> torch.Tensor:
    """The gradient of every rank's own loss as one flat tensor (H, P), padding zero."""
    ranks = len(losses_H)
    parts = torch.autograd.grad([losses_H.sum()], list(p.values()))
    flat = [part.reshape(ranks, -1) for part in parts]
    used = sum(part.shape[1] for part in flat)
    return torch.cat([*flat, torch.zeros(ranks, flat_length - used)], dim=1)


class Transformer:
    """The forward pass; its parts are separate so that layouts can put them on different ranks."""

    def __init__(self, size: ModelSize) -> None:
        self.size = size
        self.blocks = [f"layer{layer}" for layer in range(size.layers)]
        self._future_LL = torch.ones(size.length, size.length, dtype=torch.bool).triu(1)

    def embed(self, p: Named, tokens_HBL: torch.Tensor, features_HBLF: torch.Tensor) -> torch.Tensor:
        """Tokens, positions and features as (H, B·L, D)."""
        ranks, samples, length = tokens_HBL.shape
        # one lookup in the stacked tables: far faster than indexing rank and token
        offset_H = torch.arange(ranks).mul_(VOCABULARY).view(-1, 1, 1)
        table = p["embed"].reshape(ranks * VOCABULARY, -1)
        x = functional.embedding(tokens_HBL + offset_H, table) + p["positions"][:, None]
        x = x.view(ranks, samples * length, -1)
        return torch.baddbmm(x, features_HBLF.view(ranks, samples * length, -1), p["features"])

    def block(self, p: Named, name: str, x: torch.Tensor, tap: Tap) -> torch.Tensor:
        """One block, (H, B·L, D) to the same."""
        return self.hidden(p, name, self.attention(p, name, x, tap), tap)

    def attention(self, p: Named, name: str, x: torch.Tensor, tap: Tap) -> torch.Tensor:
        """The first half of a block."""
        h = self.norm(p, f"{name}.norm1", x)
        qkv = tap(f"{name}.qkv", torch.bmm(h, p[f"{name}.qkv"]))
        mixed = attend(qkv, self.size.length, self.size.heads, self._future_LL)
        return x + tap(f"{name}.out", torch.bmm(mixed, p[f"{name}.out"]))

    def hidden(self, p: Named, name: str, x: torch.Tensor, tap: Tap) -> torch.Tensor:
        """The second half of a block."""
        h = self.norm(p, f"{name}.norm2", x)
        hidden = tap(f"{name}.up", torch.bmm(h, p[f"{name}.up"]))
        return x + tap(f"{name}.down", torch.bmm(functional.gelu(hidden), p[f"{name}.down"]))

    def logits(self, p: Named, x: torch.Tensor, tap: Tap) -> torch.Tensor:
        """(H, B·L, V)."""
        return tap("logits", torch.bmm(self.norm(p, "norm", x), p["unembed"]))

    def norm(self, p: Named, name: str, x: torch.Tensor) -> torch.Tensor:
        """Layer norm with each rank's own gain and bias."""
        if not self.size.is_normalised:
            return _scaled(x, p, name)
        return normalised(x, p, name)


def normalised(x: torch.Tensor, p: Named, name: str) -> torch.Tensor:
    """Layer norm of (H, B·L, D) with each rank's own gain and bias."""
    return _scaled(functional.layer_norm(x, x.shape[-1:]), p, name)


def attend(qkv: torch.Tensor, length: int, heads: int, future_LL: torch.Tensor) -> torch.Tensor:
    """Causal self-attention: (H, B·L, 3·D) to (H, B·L, D)."""
    ranks, tokens, width = len(qkv), qkv.shape[1], qkv.shape[2] // 3
    samples = tokens // length
    parts = qkv.view(ranks * samples, length, 3, heads, width // heads)
    q, k, v = parts.permute(2, 0, 3, 1, 4).flatten(1, 2)
    score = torch.bmm(q, k.transpose(-1, -2)) / math.sqrt(width // heads)
    mixed = torch.bmm(score.masked_fill(future_LL, -torch.inf).softmax(-1), v)
    joined = mixed.view(ranks * samples, heads, length, -1).transpose(1, 2)
    return joined.reshape(ranks, tokens, width)


def _scaled(x: torch.Tensor, p: Named, name: str) -> torch.Tensor:
    return torch.addcmul(p[f"{name}.bias"][:, None], x, p[f"{name}.gain"][:, None])


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of each rank (H), in nats."""
    each = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return each.view(len(logits), -1).mean(1)

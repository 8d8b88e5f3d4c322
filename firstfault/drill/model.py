"""A small transformer language model whose parameters are views of one flat tensor.

One flat tensor makes the reduction, the optimizer and the checksum one operation each. Pre-norm
blocks, learned positions, attention written out so that every matmul can be tapped.

Axes: B samples, L positions, D width, V vocabulary, F features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

from .corpus import FEATURES, VOCABULARY


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Size of the model: small enough that eight replicas train hundreds of iterations in a minute."""

    width: int = 32
    heads: int = 4
    layers: int = 2
    length: int = 32
    samples: int = 4
    """Samples of one rank's batch."""
    is_normalised: bool = True
    """Layer norm before each block and before the output. Without it nothing bounds the activations,
    and a learning rate that is too high makes them grow from iteration to iteration."""


class Tap(Protocol):
    """Sees every activation that is named, and may return another one in its place."""

    def __call__(self, site: str, value: torch.Tensor) -> torch.Tensor: ...


class FlatModel:
    """Parameters, gradients and the forward pass of one replica.

    ``flat`` holds all parameters, ``flat_grad`` all gradients; the named ones are views of them, so
    an update of ``flat`` is an update of the model.
    """

    def __init__(self, config: ModelConfig, seed: int) -> None:
        self.config = config
        shapes = _shapes(config)
        total = sum(math.prod(shape) for shape in shapes.values())
        self.flat = torch.zeros(total)
        self.flat_grad = torch.zeros(total)
        self.named: dict[str, torch.Tensor] = {}
        generator = torch.Generator().manual_seed(seed)
        start = 0
        for name, shape in shapes.items():
            stop = start + math.prod(shape)
            _initialise(self.flat[start:stop].view(shape), name, config, generator)
            view = self.flat[start:stop].view(shape).detach().requires_grad_()
            view.grad = self.flat_grad[start:stop].view(shape)
            self.named[name] = view
            start = stop

    def loss(self, tokens_BS: torch.Tensor, features_BLF: torch.Tensor, tap: Tap) -> torch.Tensor:
        """Mean cross entropy of the next token, in nats."""
        p = self.named
        x_BLD = functional.embedding(tokens_BS[:, :-1], p["embed"]) + p["positions"]
        x_BLD = tap("embed", x_BLD + features_BLF @ p["features"])
        for layer in range(self.config.layers):
            x_BLD = self._block(x_BLD, f"layer{layer}", tap)
        h_BLD = self._norm(x_BLD, "norm")
        logits_BLV = tap("logits", h_BLD @ p["unembed"])
        return functional.cross_entropy(logits_BLV.flatten(0, 1), tokens_BS[:, 1:].flatten())

    def _block(self, x_BLD: torch.Tensor, name: str, tap: Tap) -> torch.Tensor:
        p = self.named
        h_BLD = self._norm(x_BLD, f"{name}.norm1")
        x_BLD = x_BLD + self._attention(h_BLD, name)
        h_BLD = self._norm(x_BLD, f"{name}.norm2")
        hidden = tap(f"{name}.mlp", h_BLD @ p[f"{name}.up"] + p[f"{name}.up.bias"])
        return tap(name, x_BLD + functional.gelu(hidden) @ p[f"{name}.down"])

    def _norm(self, x_BLD: torch.Tensor, name: str) -> torch.Tensor:
        gain_D, bias_D = self.named[f"{name}.gain"], self.named[f"{name}.bias"]
        if not self.config.is_normalised:
            return x_BLD * gain_D + bias_D
        return functional.layer_norm(x_BLD, gain_D.shape, gain_D, bias_D)

    def _attention(self, h_BLD: torch.Tensor, name: str) -> torch.Tensor:
        samples, length, width = h_BLD.shape
        heads = self.config.heads
        qkv = (h_BLD @ self.named[f"{name}.qkv"]).view(samples, length, 3, heads, width // heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        score = (q @ k.transpose(-1, -2)) / math.sqrt(width // heads)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = score.masked_fill(future, -torch.inf).softmax(-1) @ v
        joined_BLD = mixed.transpose(1, 2).reshape(samples, length, width)
        return torch.matmul(joined_BLD, self.named[f"{name}.out"])


def _shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    d = config.width
    shapes: dict[str, tuple[int, ...]] = {
        "embed": (VOCABULARY, d),
        "positions": (config.length, d),
        "features": (FEATURES, d),
    }
    for layer in range(config.layers):
        name = f"layer{layer}"
        shapes |= {f"{name}.norm1.gain": (d,), f"{name}.norm1.bias": (d,)}
        shapes |= {f"{name}.qkv": (d, 3 * d), f"{name}.out": (d, d)}
        shapes |= {f"{name}.norm2.gain": (d,), f"{name}.norm2.bias": (d,)}
        shapes |= {f"{name}.up": (d, 4 * d), f"{name}.up.bias": (4 * d,), f"{name}.down": (4 * d, d)}
    return shapes | {"norm.gain": (d,), "norm.bias": (d,), "unembed": (d, VOCABULARY)}


def _initialise(view: torch.Tensor, name: str, config: ModelConfig, generator: torch.Generator) -> None:
    if name.endswith("gain"):
        view.fill_(1.0)
    elif not name.endswith("bias"):
        # fan-in scaling; residual outputs shrink with depth, as in GPT-2
        scale = 1.0 / math.sqrt(config.width)
        if name.endswith((".out", ".down")):
            scale /= math.sqrt(2 * config.layers)
        view.copy_(torch.randn(view.shape, generator=generator) * (0.1 if name == "positions" else scale))

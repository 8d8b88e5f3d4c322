"""A transformer in pipeline stages and tensor-parallel parts, all ranks of a stage as rows of one tensor.

A stage's ranks are (data parallel, tensor parallel) with the latter beside each other; what one stage hands
to the next goes row by row. Attention heads, the hidden layer and the vocabulary are split over the
tensor-parallel ranks; norms, positions and features are computed alike on all of them. The embedding is also
the output layer: first and last stage hold a copy each.

Source: Shoeybi et al., Megatron-LM, 2019, section 3 (f and g are `sum_backward` and `sum_forward`).

Axes: H ranks of a stage, B samples, L positions, S = L + 1 tokens, D width, F features, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch.nn import functional

from ..corpus import FEATURES, VOCABULARY
from .losses import losses
from .model import attend, normalised
from .parts import PartFaults
from .rows import Rows, Shapes, Tap, tap_gradient
from .spec import ModelSize, Site
from .tensor_parallel import gather_last, sum_backward, sum_forward

Tensor = torch.Tensor
TIED = "embed"
"""The parameter that first and last stage share."""


class Stage:
    """The parameters of one stage and what it makes of the activations it is handed."""

    def __init__(self, size: ModelSize, at: int, stages: int, ranks: int, tensor_ranks: int) -> None:
        self.size = size
        self.at = at
        self.tensor_ranks = tensor_ranks
        self.blocks = [
            f"layer{one}" for one in range(at * size.layers // stages, (at + 1) * size.layers // stages)
        ]
        self.is_last = at == stages - 1
        self.rows = Rows(_stage_shapes(size, at, self.blocks, self.is_last, tensor_ranks), ranks)
        self._future_LL = torch.ones(size.length, size.length, dtype=torch.bool).triu(1)

    @property
    def places(self) -> list[str]:
        """The products of this stage."""
        inner = [f"{block}.{product}" for block in self.blocks for product in ("qkv", "out", "up", "down")]
        return [*inner, "logits"] if self.is_last else inner

    def initialise(self, whole: dict[str, Tensor]) -> None:
        """Take this stage's share of the whole model, the same on all data-parallel ranks."""
        for name, view_H in self.rows.named.items():
            for row in range(len(view_H)):
                share = _share(name, whole[name], row % self.tensor_ranks, self.tensor_ranks)
                view_H.data[row].copy_(share)

    def enter(self, tokens_HBL: Tensor, features_HBLF: Tensor) -> Tensor:
        """The first stage's input (H, B·L, D): embedding, positions, features."""
        p = self.rows.named
        x = sum_forward(self._look_up(tokens_HBL), self.tensor_ranks) + p["positions"][:, None]
        return torch.baddbmm(x.flatten(1, 2), features_HBLF.flatten(1, 2), p["features"])

    def run(self, x: Tensor, tap: Tap) -> Tensor:
        """The blocks of this stage."""
        see = partial(tap, Site.FORWARD, part=self.at)
        for name in self.blocks:
            tap_gradient(x, Site.ACT_GRAD, name, self.at, tap)
            x = self._block(x, name, see)
        return x

    def losses(self, x: Tensor, targets: Tensor, tap: Tap, faults: PartFaults) -> Tensor:
        """The last stage's output: each rank's mean cross entropy in nats."""
        p, members = self.rows.named, self.tensor_ranks
        h = sum_backward(normalised(x, p, "norm"), members)
        share = tap(Site.FORWARD, "logits", torch.bmm(h, p[TIED].transpose(1, 2)), self.at)
        return losses(faults, gather_last(share, members), targets)

    def _block(self, x: Tensor, name: str, see: partial[Tensor]) -> Tensor:
        p, members = self.rows.named, self.tensor_ranks
        h = sum_backward(normalised(x, p, f"{name}.norm1"), members)
        qkv = see(f"{name}.qkv", torch.bmm(h, p[f"{name}.qkv"]))
        mixed = attend(qkv, self.size.length, self.size.heads // members, self._future_LL)
        x = x + sum_forward(see(f"{name}.out", torch.bmm(mixed, p[f"{name}.out"])), members)
        h = sum_backward(normalised(x, p, f"{name}.norm2"), members)
        hidden = functional.gelu(see(f"{name}.up", torch.bmm(h, p[f"{name}.up"])))
        return x + sum_forward(see(f"{name}.down", torch.bmm(hidden, p[f"{name}.down"])), members)

    def _look_up(self, tokens_HBL: Tensor) -> Tensor:
        """Rows of this rank's share of the vocabulary, zeros for tokens of the others."""
        share, ranks = VOCABULARY // self.tensor_ranks, len(tokens_HBL)
        row_H11 = torch.arange(ranks).view(-1, 1, 1)
        local = tokens_HBL - (row_H11 % self.tensor_ranks) * share
        is_own = (local >= 0) & (local < share)
        table = self.rows.named[TIED].reshape(ranks * share, -1)
        return functional.embedding(local.clamp(0, share - 1) + row_H11 * share, table) * is_own[..., None]


class StagedModel:
    """All stages, and the messages between them."""

    def __init__(self, size: ModelSize, stages: int, ranks: int, tensor_ranks: int, seed: int) -> None:
        whole = _whole(size, torch.Generator().manual_seed(seed))
        self.stages = [Stage(size, at, stages, ranks, tensor_ranks) for at in range(stages)]
        for stage in self.stages:
            stage.initialise(whole)

    def hidden(self, tokens_HBL: Tensor, features_HBLF: Tensor, tap: Tap) -> Tensor:
        """What comes out of the last stage's blocks."""
        x = self.stages[0].enter(tokens_HBL, features_HBLF)
        for stage in self.stages:
            x = stage.run(x, tap)
            if not stage.is_last:
                sent = tap(Site.MESSAGE, "activation", x, stage.at)
                # a tensor of its own: the receiver looks at its gradient before it sends it back
                sent = sent.view_as(sent)
                tap_gradient(sent, Site.MESSAGE, "gradient", stage.at + 1, tap)
                x = sent.view_as(sent)
        return x


def is_tensor_replicated(name: str) -> bool:
    """Whether every tensor-parallel rank holds the whole of a parameter.

    >>> is_tensor_replicated("layer0.norm1.gain"), is_tensor_replicated("layer0.up")
    (True, False)
    """
    return name in ("positions", "features") or "norm" in name


def _whole(size: ModelSize, generator: torch.Generator) -> dict[str, Tensor]:
    """The model as one device would hold it."""
    d = size.width
    spread = 1.0 / math.sqrt(d)
    into_stream = spread / math.sqrt(2 * size.layers)  # as in GPT-2: residual outputs shrink with depth

    def drawn(scale: float, *shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * scale

    whole = {
        TIED: drawn(spread, VOCABULARY, d),
        "positions": drawn(0.1, size.length, d),
        "features": drawn(spread, FEATURES, d),
        "norm.gain": torch.ones(d),
        "norm.bias": torch.zeros(d),
    }
    for block in range(size.layers):
        name = f"layer{block}"
        for one in ("norm1", "norm2"):
            whole |= {f"{name}.{one}.gain": torch.ones(d), f"{name}.{one}.bias": torch.zeros(d)}
        whole |= {
            f"{name}.qkv": drawn(spread, d, 3 * d),
            f"{name}.out": drawn(into_stream, d, d),
            f"{name}.up": drawn(spread, d, 4 * d),
            f"{name}.down": drawn(into_stream, 4 * d, d),
        }
    return whole


def _stage_shapes(size: ModelSize, at: int, blocks: Sequence[str], is_last: bool, members: int) -> Shapes:
    d, share = size.width, size.width // members
    tied: Shapes = {TIED: (VOCABULARY // members, d)}
    shapes: Shapes = {}
    if at == 0:
        shapes |= tied | {"positions": (size.length, d), "features": (FEATURES, d)}
    for name in blocks:
        shapes |= {f"{name}.norm1.gain": (d,), f"{name}.norm1.bias": (d,)}
        shapes |= {f"{name}.qkv": (d, 3 * share), f"{name}.out": (share, d)}
        shapes |= {f"{name}.norm2.gain": (d,), f"{name}.norm2.bias": (d,)}
        shapes |= {f"{name}.up": (d, 4 * share), f"{name}.down": (4 * share, d)}
    return shapes | ({"norm.gain": (d,), "norm.bias": (d,)} | tied if is_last else {})


def _share(name: str, whole: Tensor, at: int, members: int) -> Tensor:
    """What one tensor-parallel rank holds of a parameter."""
    kind = name.rpartition(".")[2]
    if is_tensor_replicated(name):
        return whole
    if kind == "qkv":  # each third is split, so that heads stay whole
        return torch.cat([third.chunk(members, -1)[at] for third in whole.chunk(3, -1)], -1)
    return whole.chunk(members, 0 if kind in (TIED, "out", "down") else -1)[at]

"""A transformer with a mixture of experts, all ranks as rows of one tensor.

Each rank reads data of its own. Attention and router are dense: every rank holds the whole of them. The
second half of the last block is sparse: one expert a rank of the ``ep`` axis. Each token goes to the expert
that its router likes best (top 1), to the rank that holds it and back. Load is as uneven as the router makes
it; tokens beyond a rank's capacity for an expert pass the block by.

Source: Fedus, Zoph, Shazeer, Switch Transformers, JMLR 23 (2022), section 2.2 (capacity, auxiliary loss).

Axes: H ranks, (data, expert) with the latter beside each other; E experts, the length of the ``ep`` axis;
B samples, L positions, N = B·L tokens of a rank, C capacity, S = E·C slots, D width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional

from .model import Transformer, shapes
from .rows import Rows, Shapes, Tap, tap_gradient
from .spec import ModelSize, Site

Tensor = torch.Tensor
_CAPACITY = 2.0
"""Slots of an expert as a multiple of even load; 1 to 2 are usual, and a small router is uneven."""
_BALANCE = 0.01
"""Weight of the auxiliary loss that keeps the load even, that of the source."""


@dataclass(frozen=True, slots=True)
class Routing:
    """Where the tokens of each rank go."""

    slot_HN: Tensor
    """Slot (expert·C + place) of each token; S for one that found no place."""
    token_HS: Tensor
    """Token in each slot; N for an empty one."""
    weight_HN: Tensor
    """What the router gives its choice."""


class ExpertModel:
    """Parameters of all ranks and their forward pass."""

    def __init__(self, size: ModelSize, ranks: int, experts: int, seed: int) -> None:
        self.size = size
        self.experts = experts
        self.dense = Rows(_dense_shapes(size, experts), ranks)
        d = size.width
        self.sparse = Rows({"up": (d, 4 * d), "down": (4 * d, d)}, ranks)
        self.load_H = torch.zeros(ranks, dtype=torch.int64)
        """Tokens that each rank's expert got in the last pass."""
        self._transformer = Transformer(size)
        self._initialise(torch.Generator().manual_seed(seed))

    def logits(self, tokens_HBL: Tensor, features_HBLF: Tensor, tap: Tap) -> tuple[Tensor, Tensor]:
        """(logits of each rank (H, N, V), its auxiliary loss (H))."""
        p, model, see = self.dense.named, self._transformer, partial(tap, Site.FORWARD, part=0)
        x = model.embed(p, tokens_HBL, features_HBLF)
        balance_H = torch.zeros(len(x))
        for name in model.blocks:
            tap_gradient(x, Site.ACT_GRAD, name, 0, tap)
            x = model.attention(p, name, x, see)
            if name != model.blocks[-1]:
                x = model.hidden(p, name, x, see)
                continue
            added, balance_H = self._sparse(model.norm(p, f"{name}.norm2", x), name, tap)
            x = x + added
        return model.logits(p, x, see), balance_H

    def objective(self, loss_H: Tensor, balance_H: Tensor) -> Tensor:
        """What is differentiated."""
        return (loss_H + _BALANCE * balance_H).sum()

    def _sparse(self, h_HND: Tensor, name: str, tap: Tap) -> tuple[Tensor, Tensor]:
        """(what the experts add, the auxiliary loss of each rank)."""
        none_H1D = torch.zeros(len(h_HND), 1, self.size.width)
        chance_HNE = torch.bmm(h_HND, self.dense.named["router"]).softmax(-1)
        routing = self._route(chance_HNE)
        sent = _taken(torch.cat([h_HND, none_H1D], 1), routing.token_HS)
        got = self._hand_over(sent, "dispatch", tap)
        e, see = self.sparse.named, partial(tap, Site.FORWARD, part=0)
        hidden = functional.gelu(see(f"{name}.up", torch.bmm(got, e["up"])))
        answer = see(f"{name}.down", torch.bmm(hidden, e["down"]))
        back = torch.cat([self._hand_over(answer, "combine", tap), none_H1D], 1)
        return _taken(back, routing.slot_HN) * routing.weight_HN[..., None], self._balance(chance_HNE)

    def _route(self, chance_HNE: Tensor) -> Routing:
        ranks, tokens, experts = chance_HNE.shape
        choice_HN = chance_HNE.nan_to_num(0.0).argmax(-1)  # a token that is NaN goes somewhere all the same
        weight_HN = chance_HNE.gather(-1, choice_HN[..., None])[..., 0]
        capacity = math.ceil(_CAPACITY * tokens / experts)
        chosen_HNE = functional.one_hot(choice_HN, experts)
        place_HN = (chosen_HNE.cumsum(1) * chosen_HNE).sum(-1) - 1
        slot_HN = torch.where(place_HN < capacity, choice_HN * capacity + place_HN, experts * capacity)
        token_HS = torch.full((ranks, experts * capacity + 1), tokens)
        token_HS.scatter_(1, slot_HN, torch.arange(tokens).expand(ranks, -1))
        kept_HE = chosen_HNE.sum(1).clamp(max=capacity)
        self.load_H = kept_HE.view(-1, experts, experts).sum(1).flatten()
        return Routing(slot_HN, token_HS[:, :-1], weight_HN)

    def _hand_over(self, sent_HSD: Tensor, name: str, tap: Tap) -> Tensor:
        """All to all inside each expert-parallel group: part e of rank r becomes part r of rank e."""
        sent_HSD = tap(Site.MESSAGE, name, sent_HSD, 0)
        slots, width = sent_HSD.shape[1:]
        parts = sent_HSD.view(-1, self.experts, self.experts, slots // self.experts, width)
        got_HSD = parts.transpose(1, 2).reshape(sent_HSD.shape)
        tap_gradient(got_HSD, Site.MESSAGE, f"{name}_gradient", 0, tap)
        return got_HSD

    def _balance(self, chance_HNE: Tensor) -> Tensor:
        share_HE = functional.one_hot(chance_HNE.argmax(-1), self.experts).float().mean(1)
        return self.experts * (share_HE * chance_HNE.mean(1)).sum(-1)

    def _initialise(self, generator: torch.Generator) -> None:
        """The same dense part everywhere; each expert its own, the same on all data-parallel ranks."""
        spread = 1.0 / math.sqrt(self.size.width)
        into_stream = spread / math.sqrt(2 * self.size.layers)
        for name, view_H in self.dense.named.items():
            if name.endswith("gain"):
                view_H.data.fill_(1.0)
            elif not name.endswith("bias"):
                scale = {"positions": 0.1, "router": 0.5 * spread}.get(name, spread)
                scale = into_stream if name.endswith((".out", ".down")) else scale
                view_H.data.copy_(torch.randn(view_H.shape[1:], generator=generator) * scale)
        for name, scale in (("up", spread), ("down", into_stream)):
            view_H = self.sparse.named[name]
            own = torch.randn(self.experts, *view_H.shape[1:], generator=generator) * scale
            view_H.data.copy_(own.repeat(len(view_H) // self.experts, 1, 1))


def _dense_shapes(size: ModelSize, experts: int) -> Shapes:
    """All of the transformer but the last block's second half, and the router in its place."""
    last = f"layer{size.layers - 1}"
    whole = {
        name: shape for name, shape in shapes(size).items() if name not in (f"{last}.up", f"{last}.down")
    }
    return whole | {"router": (size.width, experts)}


def _taken(rows_HND: Tensor, index_HS: Tensor) -> Tensor:
    """Rows by number, rank by rank."""
    return rows_HND.gather(1, index_HS[..., None].expand(-1, -1, rows_HND.shape[-1]))

"""The running average of the parameters, which nothing but evaluation uses.

Axes: B samples, L positions, P parameters, V vocabulary.
"""

from __future__ import annotations

import torch

from .corpus import Batch
from .model import FlatModel

_DECAY = 0.98
"""Of the average per iteration: it looks some fifty iterations back."""
SAMPLES = 64
"""Samples of the evaluation: two thousand predicted tokens, so that its noise is about one percent."""


class AveragedModel:
    """An exponential average of ``model``'s parameters, and what it makes of held-out text."""

    def __init__(self, model: FlatModel, held_out: Batch) -> None:
        self._model = model
        self._tokens = torch.from_numpy(held_out.tokens_BS)
        self._features = torch.from_numpy(held_out.features_BSF)
        self.flat_P = model.flat.clone()

    def follow(self) -> None:
        """Take in the parameters as they are now."""
        self.flat_P.mul_(_DECAY).add_(self._model.flat, alpha=1 - _DECAY)

    def evaluate(self) -> tuple[float, float]:
        """(accuracy, loss) of the next token; the model is left as it was."""
        logits: list[torch.Tensor] = []

        def tap(site: str, value: torch.Tensor) -> torch.Tensor:
            if site == "logits":
                logits.append(value)
            return value

        own_P = self._model.flat.clone()
        with torch.no_grad():
            self._model.flat.copy_(self.flat_P)
            loss = self._model.loss(self._tokens, self._features, tap)
            self._model.flat.copy_(own_P)
        said_BL, meant_BL = logits[0].argmax(-1), self._tokens[:, 1:]
        return float((said_BL == meant_BL).float().mean()), float(loss)

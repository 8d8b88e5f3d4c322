"""What each rank reads: a function of job, rank, iteration and microbatch alone.

Axes: H ranks held by this process, B samples, S = L + 1 tokens, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from ...telemetry import Checksum
from ..checksum import bit_checksums
from ..corpus import VOCABULARY, Batch, Corpus
from .spec import Job

_OTHER_LANGUAGE = 1 << 40
"""Added to the seed for the language of a data-mix switch."""


@dataclass(frozen=True, slots=True)
class Shards:
    """The batches of the ranks held here."""

    tokens_HBS: torch.Tensor
    features_HBLF: torch.Tensor

    def targets(self) -> torch.Tensor:
        """The predicted tokens, (H, B·L)."""
        return self.tokens_HBS[:, :, 1:].flatten(1)

    def checksums(self) -> list[Checksum]:
        """A hash of what each rank reads."""
        ranks = len(self.tokens_HBS)
        tokens = self.tokens_HBS.numpy().reshape(ranks, -1).astype(np.uint32)
        features = self.features_HBLF.numpy().reshape(ranks, -1).view(np.uint32)
        return bit_checksums(np.concatenate([tokens, features], axis=1))


class Reader:
    """All text of one job, and the shards that its ranks read from it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._corpus = corpus_of(job.seed)

    def shards(self, at: Sequence[tuple[int, int, int]]) -> Shards:
        """One batch for each (rank, iteration, microbatch)."""
        return _stack([self._batch(*one) for one in at])

    def canary(self, ranks: int) -> Shards:
        """The fixed batch, once for each rank."""
        size = self._job.model
        return _stack([self._corpus.canary(size.samples, size.length)] * ranks)

    def held_out(self, ranks: int) -> Shards:
        """The fixed batch of the evaluation, of the size of a training batch times eight."""
        size = self._job.model
        return _stack([self._corpus.held_out(8 * size.samples, size.length)] * ranks)

    def _batch(self, rank: int, iteration: int, microbatch: int) -> Batch:
        training, size = self._job.training, self._job.model
        is_switched = training.data_switch is not None and iteration >= training.data_switch
        step = iteration % training.epoch_iterations if training.epoch_iterations else iteration
        rng = np.random.default_rng([self._job.seed, 2, step, rank, microbatch])
        corpus = self._corpus
        if is_switched and rng.random() < training.data_switch_share:
            corpus = corpus_of(self._job.seed + _OTHER_LANGUAGE)
        batch = corpus.read(rng, size.samples, size.length)
        noise = 1.0 if training.bad_batch == iteration else self._spread(rank)
        return noisy(batch, noise, rng) if noise else batch

    def _spread(self, rank: int) -> float:
        """The share of noise that a rank reads: the same for its whole life."""
        if not self._job.training.rank_spread:
            return 0.0
        drawn = float(np.random.default_rng([self._job.seed, 5, rank]).random())
        return self._job.training.rank_spread * drawn


def noisy(batch: Batch, share: float, rng: np.random.Generator) -> Batch:
    """The batch with a share of its tokens drawn at random."""
    drawn = rng.integers(0, VOCABULARY, batch.tokens_BS.shape)
    is_drawn = rng.random(batch.tokens_BS.shape) < share
    return Batch(np.where(is_drawn, drawn, batch.tokens_BS), batch.features_BSF)


@lru_cache(maxsize=8)
def corpus_of(seed: int) -> Corpus:
    """The text of a seed, written once."""
    return Corpus(seed)


def _stack(batches: Sequence[Batch]) -> Shards:
    return Shards(
        torch.from_numpy(np.stack([batch.tokens_BS for batch in batches])),
        torch.from_numpy(np.stack([batch.features_BSF for batch in batches])),
    )

"""What each rank reads: a function of job, rank, iteration and microbatch alone.

Axes: H ranks held by this process, B samples, S = L + 1 tokens, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from ...telemetry import Checksum
from ..checksum import bit_checksums
from ..corpus import FEATURES, VOCABULARY, Batch, Corpus, hint
from .spec import MAX_RANKS, Job

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
        self._spread_R = self._spreads()
        self._drawn: tuple[tuple[int, int], Shards] | None = None

    def shards(self, at: Sequence[tuple[int, int, int]]) -> Shards:
        """One batch for each (shard, iteration, microbatch); every rank can have a shard of its own."""
        iterations = {(iteration, microbatch) for _, iteration, microbatch in at}
        drawn = {one: self._all_shards(*one) for one in sorted(iterations)}
        picked = [(drawn[iteration, microbatch], shard) for shard, iteration, microbatch in at]
        return Shards(
            torch.stack([batch.tokens_HBS[shard] for batch, shard in picked]),
            torch.stack([batch.features_HBLF[shard] for batch, shard in picked]),
        )

    def canary(self, ranks: int) -> Shards:
        """The fixed batch, once for each rank."""
        size = self._job.model
        return _stack([self._corpus.canary(size.samples, size.length)] * ranks)

    def held_out(self, ranks: int) -> Shards:
        """The fixed batch of the evaluation, of the size of a training batch times eight."""
        size = self._job.model
        return _stack([self._corpus.held_out(8 * size.samples, size.length)] * ranks)

    def _all_shards(self, iteration: int, microbatch: int) -> Shards:
        """What all ranks read: one draw for all costs what one rank's would."""
        if self._drawn is not None and self._drawn[0] == (iteration, microbatch):
            return self._drawn[1]
        training, size, ranks = self._job.training, self._job.model, self._job.layout.ranks
        step = iteration % training.epoch_iterations if training.epoch_iterations else iteration
        rng = np.random.default_rng([self._job.seed, 2, step, microbatch])
        shape = (ranks, size.samples)
        tokens_RBS = self._corpus.windows(rng, shape, size.length)
        if training.data_switch is not None and iteration >= training.data_switch:
            other_RBS = corpus_of(self._job.seed + _OTHER_LANGUAGE).windows(rng, shape, size.length)
            is_other_RB = rng.random(shape) < training.data_switch_share
            tokens_RBS = np.where(is_other_RB[..., None], other_RBS, tokens_RBS)
        if training.bad_batch == iteration:
            tokens_RBS = noisy(tokens_RBS, np.ones(ranks), rng)
        elif training.rank_spread:
            tokens_RBS = noisy(tokens_RBS, self._spread_R, rng)
        features = rng.standard_normal((*shape, size.length, FEATURES), dtype=np.float32)
        features[..., 0] += hint(tokens_RBS)
        shards = Shards(torch.from_numpy(tokens_RBS), torch.from_numpy(features))
        self._drawn = ((iteration, microbatch), shards)
        return shards

    def _spreads(self) -> NDArray[np.float64]:
        """The share of noise that each rank reads: the same for its whole life."""
        drawn_R = np.random.default_rng([self._job.seed, 5]).random(MAX_RANKS)
        return self._job.training.rank_spread * drawn_R[: self._job.layout.ranks]


def noisy(
    tokens_RBS: NDArray[np.int64], share_R: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """The batches with a share of their tokens drawn at random."""
    drawn = rng.integers(0, VOCABULARY, tokens_RBS.shape)
    return np.where(rng.random(tokens_RBS.shape) < share_R[:, None, None], drawn, tokens_RBS)


@lru_cache(maxsize=8)
def corpus_of(seed: int) -> Corpus:
    """The text of a seed, written once."""
    return Corpus(seed)


def _stack(batches: Sequence[Batch]) -> Shards:
    return Shards(
        torch.from_numpy(np.stack([batch.tokens_BS for batch in batches])),
        torch.from_numpy(np.stack([batch.features_BSF for batch in batches])),
    )

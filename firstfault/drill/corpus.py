"""The training data: a seeded artificial language, and a real-valued feature beside each token.

A token depends on the two before it (a sparse second-order Markov chain with Zipf-like choices), and
at times a stretch repeats what was written a while ago, so that a small transformer has something to
learn at every time scale: frequencies first, then pairs, then context, then copying.

Axes: B samples of a batch, S positions of a sample (one more than is predicted), F features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

VOCABULARY = 48
FEATURES = 2
_STREAMS = 192
_STREAM_LENGTH = 1200
_CHOICES = 5
"""Successors of a pair of tokens; with Zipf weights this leaves about 1.3 nats of real entropy."""
_COPY_SHARE = 0.012
_COPY_LENGTH = 14
_COPY_BACK = 18
"""A copy starts at 1.2 % of the tokens, is 14 long and repeats what came 18 tokens before, so that
both ends fit into one sample."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Tokens and features of one rank at one iteration."""

    tokens_BS: NDArray[np.int64]
    features_BSF: NDArray[np.float32]


class Corpus:
    """All text of one seed, and the windows a rank reads from it.

    A batch depends on (seed, iteration, rank) alone, so a resumed attempt reads the same samples.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._text = _write(np.random.default_rng([seed, 1]))

    def batch(self, iteration: int, rank: int, samples: int, length: int) -> Batch:
        """``samples`` windows of ``length + 1`` tokens."""
        return self.read(np.random.default_rng([self._seed, 2, iteration, rank]), samples, length)

    def canary(self, samples: int, length: int) -> Batch:
        """The fixed batch that every rank computes again and again."""
        return self.read(np.random.default_rng([self._seed, 3]), samples, length)

    def held_out(self, samples: int, length: int) -> Batch:
        """The fixed batch of the evaluation."""
        return self.read(np.random.default_rng([self._seed, 4]), samples, length)

    def read(self, rng: np.random.Generator, samples: int, length: int) -> Batch:
        """``samples`` windows of ``length + 1`` tokens, where ``rng`` says."""
        tokens_BS = self.windows(rng, (samples,), length)
        features_BSF = rng.standard_normal((samples, length, FEATURES), dtype=np.float32)
        # the first feature is a noisy hint at the class of the next token
        features_BSF[:, :, 0] += hint(tokens_BS)
        return Batch(tokens_BS=tokens_BS, features_BSF=features_BSF)

    def windows(self, rng: np.random.Generator, shape: tuple[int, ...], length: int) -> NDArray[np.int64]:
        """Windows of ``length + 1`` tokens (…, S), where ``rng`` says."""
        stream = rng.integers(0, _STREAMS, shape)
        start = rng.integers(0, _STREAM_LENGTH - length, shape)
        place_S = start[..., None] + np.arange(length + 1)
        windows: NDArray[np.int64] = self._text[stream[..., None], place_S]
        return windows


def hint(tokens_BS: NDArray[np.int64]) -> NDArray[np.float32]:
    """What the first feature says of the token that is to be predicted."""
    hints: NDArray[np.float32] = (tokens_BS[..., 1:] % 6).astype(np.float32) / np.float32(3)
    return hints


def _write(rng: np.random.Generator) -> NDArray[np.int64]:
    """(streams, length) tokens."""
    successors = rng.integers(0, VOCABULARY, (VOCABULARY, 4, _CHOICES))
    weights = 1.0 / np.arange(1, _CHOICES + 1)
    bounds = np.cumsum(weights / weights.sum())
    bounds[-1] = 1.0
    text = np.zeros((_STREAMS, _STREAM_LENGTH), dtype=np.int64)
    text[:, :_COPY_BACK] = rng.integers(0, VOCABULARY, (_STREAMS, _COPY_BACK))
    copying = np.zeros(_STREAMS, dtype=np.int64)
    for at in range(_COPY_BACK, _STREAM_LENGTH):
        choice = np.searchsorted(bounds, rng.random(_STREAMS))
        fresh = successors[text[:, at - 1], text[:, at - 2] % 4, choice]
        starts = (copying == 0) & (rng.random(_STREAMS) < _COPY_SHARE)
        copying = np.where(starts, _COPY_LENGTH, np.maximum(copying - 1, 0))
        text[:, at] = np.where(copying > 0, text[:, at - _COPY_BACK], fresh)
    return text

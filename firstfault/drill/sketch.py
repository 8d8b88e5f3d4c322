"""A linear checksum of a gradient: one number that a reduction must reduce as it reduces the gradient.

``s = sum_i w_i g_i`` with pseudo-random signs ``w_i`` that depend on the position i alone, so they are the
same on every rank. Added in double precision: its own rounding is far below that of the reduction. With
random signs a changed value cannot hide, and two changes cancel only if they are equal in size.

Source: the tug-of-war sketch of Alon, Matias and Szegedy, The space complexity of approximating the
frequency moments, STOC 1996, section 2.2, with one row. Axes: P parameters.

Not the sketch of the probe, on purpose: see `checksum`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

_SEED = 0x5EED
"""The same for all ranks and jobs: a sketch means something only beside others of the same signs."""


def gradient_sketch(grad_P: torch.Tensor) -> float:
    """The sketch of a float32 gradient on the CPU; not finite where the gradient is not."""
    return row_sketches(grad_P.detach().numpy().astype(np.float64)[None])[0]


def row_sketches(grads_HP: NDArray[np.float64]) -> list[float]:
    """The sketch of every row."""
    with np.errstate(invalid="ignore"):  # infinity minus infinity: a gradient that overflowed
        sums: list[float] = np.sum(grads_HP * _signs(grads_HP.shape[1]), axis=1).tolist()
        return sums


@lru_cache(maxsize=4)
def _signs(length: int) -> NDArray[np.float64]:
    coins_P = np.random.default_rng(_SEED).integers(0, 2, length)
    return np.where(coins_P == 1, 1.0, -1.0).astype(np.float64)

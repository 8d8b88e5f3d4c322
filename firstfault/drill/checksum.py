"""A 64-bit hash over the raw bits of a tensor, as trainers use it to compare replicas.

``h = mix(sum_i (b_i + c_i) * k_i  mod 2^64)`` where ``b_i`` are the 32-bit patterns of the values,
``k_i`` odd and ``c_i`` pseudo-random constants of the position i, and ``mix`` is the SplitMix64
finalizer. Addition modulo 2^64 has no rounding, so the sum is the same in any order and on any
device; a single flipped bit j of any value changes it by ``±2^j * k_i``, which is never 0 because
``k_i`` is odd; exchanging two values changes it because ``k_i`` differ. NaN compares by its bits.

Source: multilinear hashing (Lemire and Kaser, Strongly universal string hashing is fast, 2014);
constants and finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..telemetry import Checksum

if TYPE_CHECKING:
    import torch

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def tensor_checksum(tensor: torch.Tensor) -> Checksum:
    """The 64-bit hash of a float32 tensor on the CPU.

    The tensor is read in memory order of its contiguous form; its shape is not hashed.
    """
    bits = tensor.detach().contiguous().view(-1).numpy().view(np.uint32).astype(np.uint64)
    keys, offsets = _constants(len(bits))
    total = np.array([np.sum((bits + offsets) * keys, dtype=np.uint64)])  # an array: scalars warn of wrapping
    return Checksum(_mix(total)[0])


@lru_cache(maxsize=8)
def _constants(length: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """One odd multiplier and one offset per position."""
    place = np.arange(1, length + 1, dtype=np.uint64)
    return _mix(place * _GOLDEN) | np.uint64(1), _mix(~(place * _GOLDEN))


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The SplitMix64 finalizer, element by element; it is a bijection of 64-bit integers."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))

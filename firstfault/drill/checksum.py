"""A 64-bit hash over the raw bits of a tensor, as trainers use it to compare replicas.

``h = mix(sum_i (b_i + c_i) * k_i  mod 2^64)`` where ``b_i`` are the 32-bit patterns of the values,
``k_i`` odd and ``c_i`` pseudo-random constants of the position i, and ``mix`` is the SplitMix64
finalizer. Addition modulo 2^64 has no rounding, so the sum is the same in any order and on any
device; a single flipped bit j of any value changes it by ``±2^j * k_i``, which is never 0 because
``k_i`` is odd; exchanging two values changes it because ``k_i`` differ. NaN compares by its bits.

Source: multilinear hashing (Lemire and Kaser, Strongly universal string hashing is fast, 2014);
constants and finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).

Not the hash of the probe, on purpose: the drill's logs are what detectors are held against, and a fault in
the probe's own hash must not be in both.
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
    return row_checksums(tensor.detach().contiguous().view(1, -1))[0]


def row_checksums(rows_HP: torch.Tensor) -> list[Checksum]:
    """The 64-bit hash of every row of a float32 tensor (H, P) on the CPU."""
    return bit_checksums(rows_HP.detach().contiguous().numpy().view(np.uint32))


def bit_checksums(bits_HP: NDArray[np.uint32]) -> list[Checksum]:
    """The 64-bit hash of every row of bit patterns."""
    keys_P, offset = _constants(bits_HP.shape[1])
    # sum (b + c) k = sum b k + sum c k, and the second sum is of the length alone
    total_H = np.matmul(bits_HP.astype(np.uint64), keys_P) + offset
    return [Checksum(value) for value in _mix(total_H).tolist()]


@lru_cache(maxsize=32)
def _constants(length: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """One odd multiplier per position, and the sum of offset times multiplier."""
    place = np.arange(1, length + 1, dtype=np.uint64)
    keys = _mix(place * _GOLDEN) | np.uint64(1)
    # an array: scalars warn of wrapping
    return keys, np.sum(_mix(~(place * _GOLDEN)) * keys, dtype=np.uint64, keepdims=True)


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The SplitMix64 finalizer, element by element; it is a bijection of 64-bit integers."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))

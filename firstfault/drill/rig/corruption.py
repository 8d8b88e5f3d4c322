"""What a fault does to the elements of a tensor: changes one rank's array in place.

Only NumPy: the same bits on any engine. ``row`` is one rank's float32 array, C-contiguous.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from .spec import BITS, Fault, Kind

Row = NDArray[np.float32]
_TILE = 8
"""Rows and columns of a tile: a matrix unit computes such squares."""
_STRIDE = 8
"""Columns between the elements of a stride-shaped error: one lane of a vector unit."""
_OWNERS = 8
"""Shards of a gathered tensor, one an owner."""
_FP8_MAX = 448.0
_FP8_MANTISSA = 3
"""Of the format e4m3."""
_LARGEST = float(np.finfo(np.float32).max)


def corrupt(fault: Fault, row: Row, rng: random.Random) -> None:
    """Do to ``row`` what a fault of this kind does in one pass; ``rng`` draws the elements."""
    with np.errstate(over="ignore", invalid="ignore"):
        _CORRUPTIONS[fault.kind](fault, row, rng)


def is_of_elements(kind: Kind) -> bool:
    """Whether a kind acts on the elements of whatever tensor it meets."""
    return kind in _CORRUPTIONS


def flipped(value: float, bit: int, dtype: str = "fp32") -> float:
    """``value`` in the format ``dtype`` with one bit flipped.

    >>> flipped(1.5, 30), flipped(1.5, 31), flipped(1.0, 7, "bf16")
    (nan, -1.5, 0.5)
    """
    one = np.array([value], dtype=np.float32)
    _change_bits(one, np.array([0]), np.array([bit]), dtype, is_stuck=False)
    return float(one[0])


def round_to_bf16(values: Row) -> Row:
    """The nearest values that bfloat16 has, ties to even; NaN stays NaN."""
    bits = values.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    kept = np.where(np.isfinite(values), rounded, bits | (np.isnan(values) * np.uint32(1 << 22)))
    return (kept & np.uint32(0xFFFF0000)).astype(np.uint32).view(np.float32)


def _bit_flip(fault: Fault, row: Row, rng: random.Random) -> None:
    at = _living(row, fault.count, rng)
    bit = rng.randrange(BITS[fault.dtype]) if fault.bit is None else fault.bit
    _change_bits(row.reshape(-1), at, np.full(len(at), bit), fault.dtype, is_stuck=False)


def _multi_flip(fault: Fault, row: Row, rng: random.Random) -> None:
    """Neighbouring elements, each in a bit of its own."""
    flat = row.reshape(-1)
    first = int(_living(row, 1, rng)[0])
    at = (first + np.arange(fault.count)) % len(flat)
    bits = np.array([rng.randrange(BITS[fault.dtype]) if fault.bit is None else fault.bit for _ in at])
    _change_bits(flat, at, bits, fault.dtype, is_stuck=False)


def _stuck_bit(fault: Fault, row: Row, rng: random.Random) -> None:
    """The same places whatever they hold: a line of a memory or a register."""
    flat = row.reshape(-1)
    first = int(rng.random() * len(flat))
    at = (first + np.arange(fault.count) * _STRIDE) % len(flat)
    bit = rng.randrange(BITS[fault.dtype]) if fault.bit is None else fault.bit
    _change_bits(flat, at, np.full(len(at), bit), fault.dtype, is_stuck=True)


def _relative_error(fault: Fault, row: Row, _rng: random.Random) -> None:
    row *= np.float32(1 + fault.magnitude)


def _tile_error(fault: Fault, row: Row, rng: random.Random) -> None:
    """A square tile, or one column of every eight in some rows; relative errors of either sign."""
    grid = row.reshape(-1, row.shape[-1]) if row.ndim > 1 else row.reshape(1, -1)
    top = rng.randrange(max(1, len(grid) - _TILE + 1))
    left = rng.randrange(max(1, grid.shape[1] - _TILE + 1))
    if rng.random() < 0.5:
        part = grid[top : top + _TILE, left : left + _TILE]
    else:
        part = grid[top : top + 2 * _TILE, left % _STRIDE :: _STRIDE]
    noise = np.random.default_rng(rng.getrandbits(64)).standard_normal(part.shape)
    part *= (1 + fault.magnitude * noise).astype(np.float32)


def _wrong_order(_fault: Fault, row: Row, _rng: random.Random) -> None:
    """Chunks change places, as when a ring passes them on by a wrong offset."""
    flat = row.reshape(-1)
    chunk = max(1, len(flat) // 8)  # 8: a ring of eight cuts a buffer so
    used = flat[: len(flat) // chunk * chunk].reshape(-1, chunk)
    used[:] = np.roll(used, 1, axis=0)


def _set_to(value: float) -> Callable[[Fault, Row, random.Random], None]:
    def change(fault: Fault, row: Row, rng: random.Random) -> None:
        row.reshape(-1)[_living(row, fault.count, rng)] = value

    return change


def _fp8_scale(fault: Fault, row: Row, _rng: random.Random) -> None:
    """Quantised to e4m3 under a scale that is wrong by ``magnitude``: too large saturates."""
    largest = float(np.abs(row).max(initial=0.0))
    if not 0 < largest < _LARGEST:
        return
    scale = np.float32(_FP8_MAX / largest * fault.magnitude)
    scaled = np.clip(row * scale, -_FP8_MAX, _FP8_MAX)
    mantissa, exponent = np.frexp(scaled)
    # below 2^-6 the format is denormal: steps of 2^-9
    steps = np.maximum(exponent - 1 - _FP8_MANTISSA, -9)
    row[:] = np.ldexp(np.rint(np.ldexp(mantissa, exponent - steps)), steps).astype(np.float32) / scale


def _corrupt_message(fault: Fault, row: Row, rng: random.Random) -> None:
    """A stretch of the message is another stretch of it, as with a packet written twice."""
    flat = row.reshape(-1)
    length = max(1, min(len(flat) // 2, fault.count))
    source, target = (rng.randrange(len(flat) - length + 1) for _ in range(2))
    flat[target : target + length] = flat[source : source + length].copy()


def _wrong_gather(_fault: Fault, row: Row, rng: random.Random) -> None:
    """One owner's shard arrives where another's belongs."""
    flat = row.reshape(-1)
    chunk = max(1, len(flat) // _OWNERS)
    target = rng.randrange(_OWNERS)
    source = (target + 1 + rng.randrange(_OWNERS - 1)) % _OWNERS
    flat[target * chunk : (target + 1) * chunk] = flat[source * chunk : (source + 1) * chunk].copy()


def _lost_updates(_fault: Fault, row: Row, _rng: random.Random) -> None:
    """The parameters are kept in bfloat16: what is below half a unit of the last place is lost."""
    row[:] = round_to_bf16(row)


def _living(row: Row, count: int, rng: random.Random) -> NDArray[np.intp]:
    """Places of ``count`` elements that are not zero: padding and masked values never matter."""
    places = np.flatnonzero(row)
    if not len(places):
        return np.array([rng.randrange(row.size)])
    return np.array([places[rng.randrange(len(places))] for _ in range(count)])


def _change_bits(
    flat: Row, at: NDArray[np.intp], bit: NDArray[np.int_], dtype: str, *, is_stuck: bool
) -> None:
    if dtype == "fp16":
        half = flat[at].astype(np.float16).view(np.uint16)
        mask = np.left_shift(1, bit).astype(np.uint16)
        flat[at] = (half | mask if is_stuck else half ^ mask).view(np.float16).astype(np.float32)
        return
    if dtype == "bf16":
        flat[at] = round_to_bf16(flat[at])
        bit = bit + 16
    words = flat.view(np.uint32)
    mask32 = np.left_shift(np.int64(1), bit).astype(np.uint32)
    for place, one in zip(at.tolist(), mask32, strict=True):  # one by one: a place may come twice
        words[place] = words[place] | one if is_stuck else words[place] ^ one


_CORRUPTIONS: Mapping[Kind, Callable[[Fault, Row, random.Random], None]] = {
    Kind.BIT_FLIP: _bit_flip,
    Kind.MULTI_FLIP: _multi_flip,
    Kind.STUCK_BIT: _stuck_bit,
    Kind.RELATIVE_ERROR: _relative_error,
    Kind.TILE_ERROR: _tile_error,
    Kind.WRONG_ORDER: _wrong_order,
    Kind.FP8_SCALE: _fp8_scale,
    Kind.CORRUPT_MESSAGE: _corrupt_message,
    Kind.LOST_UPDATES: _lost_updates,
    Kind.CORRUPT_RESTORE: _bit_flip,
    Kind.SHARD_OWNER: _bit_flip,
    Kind.WRONG_GATHER: _wrong_gather,
    Kind.NAN: _set_to(float("nan")),
    Kind.INF: _set_to(float("inf")),
    Kind.INF_MINUS_INF: _set_to(float("nan")),
}

"""One Arrow array as numpy columns: numbers, integers, texts, checksums, each with what is wrong in it.

Axes: N rows. The arrays must be valid (``validate(full=True)``) or made by us. Work and memory are
bounded by the bytes of the array: a dictionary is never unpacked into its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firstfault.wire_values import parse_checksum

from .blocks import Flags, Floats, Ints, Words

MAX_VIEW_BYTES = 256 << 20
"""Text of one view column once written out: views may all point at the same long text."""
_NIBBLE_OF_BYTE = np.full(256, 255, np.uint8)
_NIBBLE_OF_BYTE[np.frombuffer(b"0123456789", np.uint8)] = np.arange(10)
_NIBBLE_OF_BYTE[np.frombuffer(b"abcdef", np.uint8)] = np.arange(10, 16)
_NIBBLE_OF_BYTE[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)
_WORD_DIGITS = 16
_KEPT_DIGITS = 32
_FOLDED_BYTES = 16


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts of N rows as codes into ``spelled``; -1 where there is none."""

    code_N: Ints
    spelled: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sums:
    """Checksums of N rows, folded; ``bad_N`` marks values that are none."""

    high_N: Words
    low_N: Words
    bad_N: Flags


def plain(array: pa.Array) -> pa.Array:
    """The array without its extension type, view layout or dictionary of numbers."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pa.types.is_dictionary(kind) and is_numeric(kind.value_type):
        return array.dictionary_decode()
    if pa.types.is_string_view(kind) and _view_bytes(array) <= MAX_VIEW_BYTES:
        return array.cast(pa.large_string())
    return array


def is_numeric(kind: pa.DataType) -> bool:
    """Whether values of this type are read as numbers (true and false are 1 and 0)."""
    types = pa.types
    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are text, dictionary-encoded or not."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def present(array: pa.Array) -> Flags:
    """Where the array has a value; a null inside a dictionary counts as none."""
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        valid = array.dictionary.is_valid().to_numpy(zero_copy_only=False)
        code_N = _codes(array.indices)
        return np.where(code_N < 0, False, valid[code_N])
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    flags: Flags = array.is_valid().to_numpy(zero_copy_only=False)
    return flags


def numbers(array: pa.Array) -> Floats:
    """Values of a numeric array as doubles, NaN where there is none; every NaN is the same NaN."""
    values_N: Floats = _filled(array.cast(pa.float64(), safe=False), np.nan)
    nan_N = np.isnan(values_N)
    return np.where(nan_N, np.nan, values_N) if nan_N.any() else values_N


def integers(array: pa.Array, low: int, high: int) -> tuple[Ints, Flags]:
    """Values as integers, and where a value is none within [low, high]; ``2.0`` is one, true is not."""
    kind = array.type
    size = len(array)
    if pa.types.is_floating(kind):
        values_N = numbers(array)
        with np.errstate(invalid="ignore"):
            good_N = (values_N >= low) & (values_N <= high) & (np.floor(values_N) == values_N)
        return np.where(good_N, values_N, 0).astype(np.int64), ~good_N
    if pa.types.is_integer(kind):
        raw_N = _filled(array, 0)
        good_N = (raw_N >= low) & (raw_N <= high)
        return np.where(good_N, raw_N, 0).astype(np.int64), ~good_N
    return np.zeros(size, np.int64), np.ones(size, np.bool_)


def seconds(array: pa.Array) -> Floats:
    """Times as seconds since 1970; NaN where the column holds none."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        per_second = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
        return numbers(array.cast(pa.int64())) / per_second
    if is_numeric(kind) and not pa.types.is_boolean(kind):
        return numbers(array)
    return np.full(len(array), np.nan)


def texts(array: pa.Array) -> Texts:
    """Texts of a string or dictionary array; equal texts have equal codes, in order of appearance."""
    if not pa.types.is_dictionary(array.type):
        encoded = array.dictionary_encode()
        return Texts(_codes(encoded.indices), tuple(encoded.dictionary.to_pylist()))
    code_N, given = _codes(array.indices), array.dictionary.to_pylist()
    spelled = {text: at for at, text in enumerate(dict.fromkeys(text for text in given if text is not None))}
    code_of = np.array([-1 if text is None else spelled[text] for text in given] + [-1], np.int64)
    return Texts(code_of[code_N], tuple(spelled))  # code -1 takes the last entry: none


def checksums(array: pa.Array) -> Sums:
    """Checksums of an array of hexadecimal text, 64-bit integers or big-endian bytes."""
    kind = array.type
    types = pa.types
    if types.is_dictionary(kind):
        unique = checksums(array.dictionary)
        code_N = np.maximum(_codes(array.indices), 0)
        if len(array.dictionary) == 0:
            return _no_sums(len(array), is_bad=False)
        return Sums(unique.high_N[code_N], unique.low_N[code_N], unique.bad_N[code_N])
    if types.is_integer(kind):
        raw_N = _filled(array, 0)
        zero_N = np.zeros(len(array), np.uint64)
        return Sums(
            zero_N,
            raw_N.astype(np.int64 if types.is_signed_integer(kind) else np.uint64).view(np.uint64),
            zero_N > 0,
        )
    if types.is_string(kind) or types.is_large_string(kind):
        return _from_hex(array)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _from_bytes(array)
    return _no_sums(len(array), is_bad=True)


def _filled(array: pa.Array, value: float) -> NDArray[Any]:
    if array.null_count:
        array = array.fill_null(pa.scalar(value, array.type))
    filled: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return filled


def _codes(indices: pa.Array) -> Ints:
    return _filled(indices.cast(pa.int64()), -1).astype(np.int64, copy=False)


def _view_bytes(array: pa.Array) -> int:
    """Bytes of all texts of a view array: each view of 16 bytes begins with its length."""
    if len(array) == 0:
        return 0
    lengths = np.frombuffer(array.buffers()[1], np.int32).reshape(-1, 4)[:, 0]
    return int(lengths[array.offset : array.offset + len(array)].sum(dtype=np.int64))


def _no_sums(size: int, is_bad: bool) -> Sums:
    zero_N = np.zeros(size, np.uint64)
    return Sums(zero_N, zero_N, np.full(size, is_bad))


def _from_hex(array: pa.Array) -> Sums:
    """Digits are read from the last to the first, all rows at once; longer ones row by row."""
    size = len(array)
    if size == 0:
        return _no_sums(0, is_bad=False)
    width = np.int64 if pa.types.is_large_string(array.type) else np.int32
    _, offsets, data = array.buffers()
    edges = np.frombuffer(offsets, width)[array.offset : array.offset + size + 1].astype(np.int64)
    byte_B = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    start_N, stop_N = edges[:-1], edges[1:]
    second_N = byte_B[np.minimum(start_N + 1, len(byte_B) - 1)]
    is_prefixed_N = (stop_N - start_N >= 2) & (byte_B[np.minimum(start_N, len(byte_B) - 1)] == ord("0"))
    is_prefixed_N &= (second_N == ord("x")) | (second_N == ord("X"))
    digits_N = stop_N - start_N - 2 * is_prefixed_N
    words = [np.zeros(size, np.uint64), np.zeros(size, np.uint64)]
    bad_N = digits_N < 1
    for back in range(int(min(digits_N.max(initial=0), _KEPT_DIGITS))):
        has_N = digits_N > back
        nibble_N = _NIBBLE_OF_BYTE[byte_B[np.where(has_N, stop_N - 1 - back, 0)]]
        bad_N |= has_N & (nibble_N == 255)
        shifted_N = nibble_N.astype(np.uint64) << np.uint64(4 * (back % _WORD_DIGITS))
        words[back // _WORD_DIGITS] |= np.where(has_N, shifted_N, np.uint64(0))
    low_N, high_N = words
    null_N = ~present(array)
    for at in np.flatnonzero((digits_N > _KEPT_DIGITS) & ~null_N).tolist():
        sum_ = parse_checksum(array[at].as_py())
        bad_N[at] = sum_ is None
        high_N[at], low_N[at] = divmod(sum_ or 0, 1 << 64)
    blank_N = bad_N | null_N
    high_N[blank_N] = low_N[blank_N] = 0
    return Sums(high_N, low_N, bad_N & ~null_N)


def _from_bytes(array: pa.Array) -> Sums:
    if pa.types.is_fixed_size_binary(array.type) and 1 <= array.type.byte_width <= _FOLDED_BYTES:
        return _from_short_bytes(array)
    sums = [None if value is None else parse_checksum(value.hex()) for value in array.to_pylist()]
    bad_N = np.array([sum_ is None for sum_ in sums], np.bool_) & present(array)
    high_N = np.array([(sum_ or 0) >> 64 for sum_ in sums], np.uint64)
    low_N = np.array([(sum_ or 0) & ((1 << 64) - 1) for sum_ in sums], np.uint64)
    return Sums(high_N, low_N, bad_N)


def _from_short_bytes(array: pa.Array) -> Sums:
    """Values of one width that need no folding, all rows at once."""
    size, width = len(array), array.type.byte_width
    bytes_NB = np.zeros((size, _FOLDED_BYTES), np.uint8)
    if size:
        given = np.frombuffer(array.buffers()[1], np.uint8)[
            array.offset * width : (array.offset + size) * width
        ]
        bytes_NB[:, _FOLDED_BYTES - width :] = given.reshape(size, width)
        bytes_NB[~present(array)] = 0
    words_N2 = bytes_NB.view(">u8").astype(np.uint64)
    return Sums(words_N2[:, 0].copy(), words_N2[:, 1].copy(), np.zeros(size, np.bool_))

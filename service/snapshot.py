"""Plain state as bytes and back: JSON with arrays beside, checked by a digest. Never pickle.

Layout: 16 bytes of digest, then zstd of: length of the JSON part (8 bytes), the JSON part, the
arrays' raw bytes one after the other. In the JSON an array stands as its type, shape and place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import zstandard

_ARRAY = "\x00array"
"""Key that marks an array; metric and run names cannot hold control characters."""
_DIGEST_BYTES = 16
_MAX_STATE_BYTES = 1 << 34
"""16 GiB: above any state that fits the machine; stops a damaged length from asking for more."""


class SnapshotError(ValueError):
    """The bytes are not a snapshot, or were damaged."""


def to_bytes(state: Mapping[str, Any]) -> bytes:
    """``state``, a tree of plain values and numpy arrays, as bytes."""
    arrays: list[bytes] = []
    tree = _pack(state, arrays, [0])
    head = json.dumps(tree, ensure_ascii=True, separators=(",", ":")).encode()
    body = zstandard.ZstdCompressor(level=1).compress(b"".join([len(head).to_bytes(8, "big"), head, *arrays]))
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() + body


def is_whole(data: bytes) -> bool:
    """Whether the bytes are those that `to_bytes` gave."""
    digest, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() == digest


def from_bytes(data: bytes) -> Any:
    """The tree that `to_bytes` was given; tuples come back as lists, whole keys as text.

    Raises:
        SnapshotError: the digest does not fit.
    """
    if not is_whole(data):
        raise SnapshotError(f"checkpoint of {len(data)} bytes does not fit its digest: it was damaged")
    body = data[_DIGEST_BYTES:]
    plain = zstandard.ZstdDecompressor().decompress(body, max_output_size=_MAX_STATE_BYTES)
    begin = 8 + int.from_bytes(plain[:8], "big")
    return _unpack(json.loads(plain[8:begin]), plain, begin)


def _pack(value: Any, arrays: list[bytes], place: list[int]) -> Any:
    if isinstance(value, np.ndarray):
        raw = np.ascontiguousarray(value).tobytes()
        arrays.append(raw)
        place[0] += len(raw)
        return {_ARRAY: [value.dtype.str, list(value.shape), place[0] - len(raw), len(raw)]}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): _pack(inner, arrays, place) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_pack(inner, arrays, place) for inner in value]
    return value


def _unpack(value: Any, plain: bytes, begin: int) -> Any:
    if isinstance(value, list):
        return [_unpack(inner, plain, begin) for inner in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        dtype, shape, at, length = value[_ARRAY]
        raw = plain[begin + at : begin + at + length]
        return np.frombuffer(raw, np.dtype(dtype)).reshape(shape).copy()
    return {key: _unpack(inner, plain, begin) for key, inner in value.items()}

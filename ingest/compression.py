"""Compressed files and bodies, unpacked in bounded pieces: a bomb costs its limit, not the machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from .errors import UnreadableInput


class TruncatedInput(UnreadableInput):
    """A compressed file that ends inside its stream: its writer was killed; what came before is good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionConfig:
    """How much a compressed file may unpack to."""

    piece_bytes: int = 1 << 20
    """Target size of a piece handed out: 1 MiB keeps the decoder busy and the memory small."""
    max_total_bytes: int = 1 << 40
    """1 TiB: beyond any log; pieces are bounded anyway, so this only ends an endless file."""
    max_ratio: int = 5_000
    """Unpacked to packed. Constant JSON lines reach about 1000 in gzip, a few thousand in zstd."""


def open_bounded(source: Path | BinaryIO, config: CompressionConfig = CompressionConfig()) -> Iterator[bytes]:
    """The unpacked bytes of a gzip, zstd or plain file in pieces; recognised by its bytes.

    Raises:
        TruncatedInput: the stream ends early; all good bytes were handed out before.
        UnreadableInput: it cannot be opened, is damaged, or unpacks beyond the limits.
    """
    raise NotImplementedError


def decompress_bounded(data: bytes, codec: str, limit: int) -> bytes:
    """``data`` unpacked, at most ``limit`` bytes; ``codec`` is gzip, zstd or identity.

    Raises:
        UnreadableInput: damaged, truncated, an unknown codec, or more than ``limit`` bytes.
    """
    raise NotImplementedError

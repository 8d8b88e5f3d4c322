"""Settings of decoding; a module of its own so that they load without what decodes."""

from __future__ import annotations

from dataclasses import dataclass

from .bounds import check_bounds
from .columns import MAX_CELLS


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeConfig:
    """What one message or line may ask of us; beyond a limit it is rejected, and its neighbours kept."""

    max_line_bytes: int = 1 << 20
    """1 MiB: a record of 4096 metrics with long names is a fifth of that."""
    max_message_bytes: int = 64 << 20
    """64 MiB: a whole HTTP body or a very large Kafka message; brokers default to 1 MiB."""
    max_message_lines: int = 1 << 18
    """262 144 lines of one message: at 32 bytes, fewer than any record has, that is 8 MiB, Kafka's bound. A
    message of line ends alone would otherwise be rejected millions of times."""
    max_message_rows: int = 1 << 20
    """About a million records in one message; an Arrow column of nulls has no bytes to bound it."""
    max_keys: int = 4096
    """Keys of one record; a record of all layers of a large model has about 2000."""
    max_cells: int = MAX_CELLS
    """Rows times distinct metrics of one batch: 300 MB as columns. Reached only by made-up names."""
    max_decompressed_bytes: int = 256 << 20
    """Sum of the bodies of a compressed Arrow message once unpacked."""
    max_batch_bytes: int = 1 << 30
    """One batch of a compressed Arrow file once unpacked: 1 GiB; writers cut at far less."""
    piece_bytes: int = 8 << 20
    """Lines tried at once by the columnar reader, which parses a MiB of them on each core: measured three
    times as fast as a MiB at a time."""
    fallback_bytes: int = 1 << 16
    """Piece given to the reference when a larger one holds something odd: 64 KiB are 5 ms of it."""
    min_fast_bytes: int = 1 << 14
    """Below 16 KiB the reference is as fast as the columnar reader, and Arrow need not be loaded."""

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)


_INT32 = (1 << 31) - 1  # Arrow counts the rows of a column and the bytes of its text in 32 bits
_BOUNDS = {
    **dict.fromkeys(
        ("max_line_bytes", "max_message_bytes", "max_message_rows", "max_message_lines"), (1, _INT32)
    ),
    **dict.fromkeys(("piece_bytes", "fallback_bytes", "min_fast_bytes"), (1, _INT32)),
    "max_keys": (1, 1 << 20),
    **dict.fromkeys(("max_cells", "max_decompressed_bytes", "max_batch_bytes"), (1, 1 << 40)),
}

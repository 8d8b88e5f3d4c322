"""Escape sequences of terminals taken out of a log: colours go, moves of the cursor begin lines."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ingest.compiled import Compiled

# No form can match twice at one place, and none holds an escape inside: linear on any bytes.
_MOVE = re.compile(rb"\x1b\[[0-?]*[ABEFGHJSTdf]")
_ESCAPE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]+[0-~]?|[0-Z\\^-~])?"
)
_LARGE_BYTES = 1 << 20
"""1 MiB: what the compiled form saves of it, 20 ms, is a third of what loading it takes."""
_COMPILE_AFTER_BYTES = 32 << 20
"""Bytes of large pieces after which it is compiled where no process did so before, in about a second."""
_START, _BRACKET, _NEWLINE = 0x1B, 0x5B, 10
_MOVES = np.zeros(256, np.bool_)
_MOVES[list(b"ABEFGHJSTdf")] = True
_seen_bytes = [0]


def without_escapes(data: bytes) -> bytes:
    r"""``data`` without escapes, a newline for each that moves the cursor.

    >>> without_escapes(b"\x1b[32mstep 1\x1b[0m\x1b[1Astep 2")
    b'step 1\nstep 2'
    """
    if len(data) >= _LARGE_BYTES:
        _seen_bytes[0] += len(data)
        bytes_B = np.frombuffer(data, np.uint8)
        arrays = (bytes_B, np.empty(len(data), np.uint8))
        drops = compiled()
        if _seen_bytes[0] > _COMPILE_AFTER_BYTES or drops.is_kept(arrays):
            kept = drops(*arrays)
            if kept >= 0:
                return arrays[1][:kept].tobytes()
    return _ESCAPE.sub(b"", _MOVE.sub(b"\n", data))


def drop_sequences(bytes_B: NDArray[np.uint8], kept_B: NDArray[np.uint8]) -> int:
    """Copy what is no control sequence (``ESC [ …``); bytes kept, -1 where another form of escape stands."""
    at, kept = 0, 0
    while at < len(bytes_B):
        if bytes_B[at] != _START:
            kept_B[kept] = bytes_B[at]
            kept += 1
            at += 1
            continue
        if at + 1 >= len(bytes_B) or bytes_B[at + 1] != _BRACKET:
            return -1
        at += 2
        while at < len(bytes_B) and 0x30 <= bytes_B[at] <= 0x3F:
            at += 1
        between = at
        while at < len(bytes_B) and 0x20 <= bytes_B[at] <= 0x2F:
            at += 1
        if at < len(bytes_B) and 0x40 <= bytes_B[at] <= 0x7E:
            if at == between and _MOVES[bytes_B[at]]:
                kept_B[kept] = _NEWLINE
                kept += 1
            at += 1
    return kept


@cache
def compiled() -> Compiled:
    """`drop_sequences`, compiled."""
    return Compiled(drop_sequences)

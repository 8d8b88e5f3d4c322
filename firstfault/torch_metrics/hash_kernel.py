"""The sums of `hashing` by one kernel that reads each word once, where Triton compiles for the device.

The same integers as without it, which takes a shift, a multiplication and a sum: several times the traffic of
memory. Imported only where a device can run it. Axes: R rows, C columns of 64-bit words, B blocks of a row.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

BLOCK = 1024
"""Words of a row that one program multiplies: eight for each of its 128 threads, keys in registers."""
ROWS = 8
"""Rows that use the same keys, which so are read an eighth as often as words."""


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]  # triton's
def _kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0917  # read by a compiler of its own
    words, keys, sums, rows, columns: tl.constexpr, block: tl.constexpr, height: tl.constexpr
):
    first = tl.program_id(0) * height
    part = tl.program_id(1)
    at = part * block + tl.arange(0, block)
    key = tl.load(keys + at)
    for step in tl.static_range(height):
        row = (first + step).to(tl.int64)
        if row < rows:
            word = tl.load(words + row * columns + at)
            tl.store(sums + row * (columns // block) + part, tl.sum((word + (word >> 32)) * key))


def row_sums(words_RC: torch.Tensor, keys_C: torch.Tensor) -> torch.Tensor:
    """``sum_c (w + (w >> 32)) keys[c]`` of the words ``w = words[r, c]`` of each row, modulo 2^64.

    On the device of the words and its current stream.
    """
    rows, columns = words_RC.shape
    blocks = columns // BLOCK
    sums_RB = torch.empty((rows, blocks), dtype=torch.int64, device=words_RC.device)
    launch: Any = _kernel[(-(-rows // ROWS), blocks)]
    launch(words_RC, keys_C, sums_RB, rows, columns=columns, block=BLOCK, height=ROWS)
    return sums_RB.sum(dim=1)

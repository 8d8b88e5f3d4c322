"""How the ranks of this process reach the others: all are here, or one is.

Both reduce by the same function in rank order, so both give the same bits.

Axes: H ranks held by this process, R ranks, P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from .observing import Columns


class Link(Protocol):
    """The ranks held here, and what joins them to the others."""

    @property
    def ranks_here(self) -> Sequence[int]:
        """The ranks whose rows this process holds, ascending."""
        ...

    def all_rows(self, rows_HP: torch.Tensor) -> torch.Tensor:
        """The rows of all ranks (R, P), in rank order."""
        ...

    def gather(self, columns: Columns) -> Columns:
        """The columns of all ranks in the first process; nothing elsewhere."""
        ...


class OneProcess:
    """All ranks in this process."""

    def __init__(self, ranks: int) -> None:
        self.ranks_here: Sequence[int] = range(ranks)

    def all_rows(self, rows_HP: torch.Tensor) -> torch.Tensor:
        return rows_HP

    def gather(self, columns: Columns) -> Columns:
        return columns


def mean_in_rank_order(rows_RP: torch.Tensor) -> torch.Tensor:
    """The mean (P), added rank by rank: no other order of adding has these bits."""
    total_P = rows_RP[0].clone()
    for row_P in rows_RP[1:]:
        total_P += row_P
    return total_P / len(rows_RP)

"""The loss of a player keeps its own name beside ``loss``, where it stands in for a loss that nobody named.

A log that reports ``vf_loss`` alone is judged by it, and judged as what it is: the loss of a critic grows
with the returns that it has to tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from .blocks import RecordBatch
from .role_meaning import Loss
from .role_values import is_metric
from .role_words import meaning_of

_LOSS = "loss"


def with_player_names(batch: RecordBatch, columns: Iterable[tuple[str, str]]) -> RecordBatch:
    """The batch with those names; ``columns`` are pairs of a name in the file and what it is read as."""
    column = batch.numbers.get(_LOSS)
    if column is None:
        return batch
    names = {name: column for name, read_as in columns if read_as == _LOSS and is_player(name)}
    added = {name: column for name in names if is_metric(name) and name not in batch.numbers}
    return replace(batch, numbers={**batch.numbers, **added}) if added else batch


@lru_cache(maxsize=1024)
def is_player(name: str) -> bool:
    """Whether a name is that of the loss of a critic or of one side of a game.

    >>> is_player("vf_loss"), is_player("train_loss")
    (True, False)
    """
    return meaning_of(name).loss is Loss.PLAYER

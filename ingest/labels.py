"""Labels are text that a rank repeats at every iteration; only where it changes says something.

Axes: N records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Labels = tuple[tuple[int, str, str], ...]


def labels_from_rows(
    labels: Mapping[str, tuple[list[int], list[str]]], keys: Sequence[NDArray[np.integer]]
) -> Labels:
    """(record, name, text) of what must be kept, by record; ``labels`` maps a name to rows and texts."""
    kept: list[tuple[int, str, str]] = []
    for name, (rows, texts) in labels.items():
        codes = {text: code for code, text in enumerate(dict.fromkeys(texts))}
        code_N = np.zeros(len(keys[0]), np.int64)
        code_N[rows] = [codes[text] for text in texts]
        spelled = tuple(codes)
        ends = ends_of_stretches(code_N, keys, np.array(rows, np.int64))
        kept.extend((at, name, spelled[code_N[at]]) for at in ends.tolist())
    return tuple(sorted(kept))


def ends_of_stretches(
    text_N: NDArray[np.integer], keys: Sequence[NDArray[np.integer]], rows: Indices
) -> Indices:
    """The rows, of those with a label, at which that label must be kept.

    A stretch is a series of rows of one (run, attempt, rank), in arrival order, with the same text and
    never going back; what lies strictly inside it says nothing new. ``text_N`` are codes of the
    texts, ``keys`` run, attempt, rank, iteration, microbatch of all N records.
    """
    run, attempt, rank, iteration, microbatch = (key[rows] for key in keys)
    text = text_N[rows]
    order = np.lexsort((rank, attempt, run))  # stable: arrival order stays inside a group
    is_new = np.zeros(len(rows), np.bool_)
    is_new[:1] = True
    for key in (run, attempt, rank, text):
        sorted_key = key[order]
        is_new[1:] |= sorted_key[1:] != sorted_key[:-1]
    at, micro = iteration[order], microbatch[order]
    is_new[1:] |= (at[1:] < at[:-1]) | ((at[1:] == at[:-1]) & (micro[1:] < micro[:-1]))
    is_last = np.ones(len(rows), np.bool_)
    is_last[:-1] = is_new[1:]
    kept: Indices = np.sort(rows[order[is_new | is_last]])
    return kept

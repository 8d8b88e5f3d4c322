"""Metrics that rows hold in a way of their own: of validation by a word in the row, or in parts.

Axes: N rows.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import numpy as np

from .blocks import Flags, NumberColumn
from .role_values import is_evaluation
from .table_text import TextColumn

_PREFIXES = ("eval_", "test_")


def evaluates(column: TextColumn) -> Flags:
    """Which rows a column of words (``train``, ``val``) says to be of validation."""
    texts, code_N = column.codes()
    flags = np.array([is_evaluation(text) for text in texts], np.bool_)
    return flags[code_N] if len(texts) else np.zeros(len(column), np.bool_)


def apart(
    numbers: Mapping[str, NumberColumn], evaluates_N: Flags, context: Container[str]
) -> dict[str, NumberColumn]:
    """The metrics, those of rows of validation under names of their own; ``context`` is of both."""
    if not evaluates_N.any():
        return dict(numbers)
    found: dict[str, NumberColumn] = {}
    for name, column in numbers.items():
        is_named = name.startswith(_PREFIXES) or name == "epoch" or name in context
        own_N = column.present_N & evaluates_N
        if is_named or not own_N.any():
            found[name] = column
            continue
        train_N = column.present_N & ~evaluates_N
        if train_N.any():
            found[name] = NumberColumn(column.values_N, train_N)
        twin = numbers.get(f"eval_{name}")
        values_N = column.values_N if twin is None else np.where(own_N, column.values_N, twin.values_N)
        found[f"eval_{name}"] = NumberColumn(values_N, own_N if twin is None else own_N | twin.present_N)
    return found


def with_sum(numbers: dict[str, NumberColumn], summed: Sequence[str]) -> dict[str, NumberColumn]:
    """The metrics with the loss as the sum of its parts, where a row has all of them."""
    parts = [numbers[name] for name in summed if name in numbers]
    if not summed or len(parts) < len(summed):
        return numbers
    present_N = np.logical_and.reduce([part.present_N for part in parts])
    # infinite parts of both signs make NaN, which is what their sum is
    with np.errstate(invalid="ignore", over="ignore"):
        values_N = np.sum([np.where(present_N, part.values_N, 0.0) for part in parts], axis=0)
    values_N[~present_N | np.isnan(values_N)] = np.nan
    return {**numbers, "loss": NumberColumn(values_N, present_N)}

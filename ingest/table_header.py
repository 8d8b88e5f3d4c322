"""The header of a table: what its columns mean, and whether a later row is a header again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from statistics import median

from .role_words import spelling, words_of
from .roles import Part, Roles, assign_roles, meaning_of
from .sniff import is_number
from .written_numbers import number_of

_LEAST_FALL = 8
"""Values from which on it can be said that they fall."""


def read_header(
    names: Sequence[str], sample: Sequence[Sequence[str]], wanted: Mapping[str, str] | None = None
) -> Roles:
    """The meaning of columns ``names``, given the cells of the first rows.

    ``wanted`` maps a role or metric to the column that a person says holds it.

    >>> header = read_header(["Step", "train_loss", "learning_rate"], [["1", "2.5", "0.1"]])
    >>> header.counter, dict(header.metrics)
    ('Step', {1: 'loss', 2: 'lr'})
    """
    columns = [[row[at] if at < len(row) else "" for row in sample] for at in range(len(names))]
    return assign_roles(names, columns, wanted)


def value_of_file(names: Sequence[str], sample: Sequence[Sequence[str]], source: str) -> dict[str, str]:
    """What a column that is only called a value is: the points of one chart.

    It is the loss if the file is called after one, or is called after nothing that is known and the values
    fall.

    >>> value_of_file(["Wall time", "Step", "Value"], [], "run-tag-Loss_train.csv")
    {'loss': 'Value'}
    """
    at = next((at for at, name in enumerate(names) if spelling(name) == "value"), None)
    stem = PurePath(source).stem
    meaning = meaning_of(stem)
    if at is None or meaning.part is not Part.TRAIN:
        return {}
    if "loss" not in words_of(stem) and (meaning.metric != stem or not _falls(sample, at)):
        return {}
    return {"loss": names[at]}


def _falls(sample: Sequence[Sequence[str]], at: int) -> bool:
    """Whether the last quarter of the finite values is lower than the first."""
    numbers = [number_of(row[at]) for row in sample if at < len(row)]
    finite = [number for number in numbers if number is not None and math.isfinite(number)]
    quarter = max(len(finite) // 4, 1)
    return len(finite) >= _LEAST_FALL and median(finite[:quarter]) > median(finite[-quarter:])


def holds_numbers(header: Roles, sample: Sequence[Sequence[str]]) -> bool:
    """Whether at least one metric has a number in the first rows: a text with commas has none."""
    return any(is_number(row[at]) for at in header.metrics for row in sample if at < len(row))


def is_header_row(cells: Sequence[str], current: Roles) -> bool:
    """Whether a row repeats the header, or is a new one (a restarted run that appends to its log).

    A new one holds no numbers and shares at least half of its names with the current header.
    """
    stripped = [cell.strip() for cell in cells]
    if tuple(stripped) == current.names:
        return True
    if len(stripped) < 2 or any(not cell or is_number(cell) for cell in stripped):
        return False
    return sum(cell in current.names for cell in stripped) * 2 >= len(stripped)

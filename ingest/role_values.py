"""What the first values of a column or key say about it: whether it counts, rises, or names a split."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from itertools import pairwise

from firstfault.telemetry import KEY_ALIASES, MAX_ITERATION, RESERVED_KEYS
from firstfault.wire_values import is_metric_name

from .errors import UnreadableInput
from .role_words import Loss, meaning_of, spelling, words_of
from .written_numbers import number_of

_MAX_LISTED = 20
"""Names listed in a message."""

_COPY_ROOM = "_column.9999"
_NOT_METRICS = RESERVED_KEYS | KEY_ALIASES.keys()
"""A second counter, or a "time" that is a duration, stays a metric under a name that is no key of ours."""

Column = Sequence[object]
"""The values of one name over the sampled rows, None or empty text where there is none."""
_EVALUATIONS = {(word,) for word in ("val", "valid", "validation", "eval", "evaluation", "dev", "test")}
_SPLITS = _EVALUATIONS | {("train",), ("training",)}


def is_split(text: str) -> bool:
    """Whether a text names a part of a loop: ``train``, ``val``, ``Test``."""
    return words_of(text) in _SPLITS


def tells_splits(column: Column) -> bool:
    """Whether the words of a column name parts of a loop, but for one in ten at most."""
    texts = [value for value in column if isinstance(value, str) and value]
    return bool(texts) and sum(is_split(text) for text in texts) * 10 >= 9 * len(texts)


def is_evaluation(text: str) -> bool:
    """Whether a text names validation or test."""
    return words_of(text) in _EVALUATIONS


def place_of(names: Sequence[str], name: str, role: str) -> int:
    """Where ``name``, which a person gave for ``role``, stands among ``names``, in any case.

    Raises:
        UnreadableInput: it does not.
    """
    if name in names:
        return names.index(name)
    spelled = [spelling(each) for each in names]
    if spelling(name) in spelled:
        return spelled.index(spelling(name))
    listed = ", ".join(repr(each) for each in names[:_MAX_LISTED])
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    from difflib import get_close_matches  # only a wrong name pays for it

    near = get_close_matches(name, names, n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    raise UnreadableInput(f"--column {role}={name}: no such column{meant}; there is {listed}{more}")


def is_metric(name: str) -> bool:
    """Whether a name may be one of a metric: it is no key of ours, and not too long."""
    return bool(name.strip()) and is_metric_name(name + _COPY_ROOM) and spelling(name) not in _NOT_METRICS


def own_name(name: str, used: Container[str]) -> str | None:
    """A name made one of a metric that is not ``used`` yet; None if it cannot be."""
    bare = name.strip()
    metric = f"{spelling(bare)}_column" if spelling(bare) in _NOT_METRICS else bare
    if not is_metric(metric):
        return None
    unique, copy = metric, 2
    while unique in used:
        unique, copy = f"{metric}.{copy}", copy + 1
    return unique


def is_evaluated_loss(metric: str) -> bool:
    """Whether a metric of validation, by its canonical name, is a loss.

    >>> is_evaluated_loss("eval_0/logloss"), is_evaluated_loss("eval_accuracy")
    (True, False)
    """
    rest = metric.partition("_")[2].lstrip("0123456789/_- ")
    return bool(rest) and meaning_of(rest).loss in (Loss.WHOLE, Loss.WEAK)


def is_common(column: Column) -> bool:
    """Whether at least half of the rows have a value."""
    return sum(is_filled(value) for value in column) * 2 >= len(column)


def is_filled(value: object) -> bool:
    """Whether a cell or key has a value at all."""
    return value is not None and not (isinstance(value, str) and not value.strip())


def counts(column: Column) -> bool:
    """Whether at least half of the filled cells are whole numbers >= 0."""
    filled = [value for value in column if is_filled(value)]
    return sum(_is_whole(value) for value in filled) * 2 >= max(len(filled), 1)


def _is_whole(value: object) -> bool:
    number = number_of(value)
    return number is not None and 0 <= number <= MAX_ITERATION and number.is_integer()


def distinct(column: Column) -> set[float]:
    return {number for value in column if (number := number_of(value)) is not None and not math.isnan(number)}


def rises(column: Column) -> bool:
    """Whether a column rises more often than it falls by far, and does rise."""
    numbers = [number for value in column if (number := number_of(value)) is not None]
    steps = [after - before for before, after in pairwise(numbers)]
    rises, falls = sum(step > 0 for step in steps), sum(step < 0 for step in steps)
    return not steps or (rises > 0 and falls * 4 <= rises)

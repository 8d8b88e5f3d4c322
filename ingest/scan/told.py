"""What sentences tell on the lines of one shape, read once for all lines whose numbers say the same.

Lines of one shape differ in their numbers alone, so of those with equal numbers in the sentence and equal
ranks in front of it one is read. What else stands on a line, a time say, makes each of them another.

Axes: S lines of one shape, D of them that say different things, K slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ingest.blocks import Floats, Ints

from .pieces import Piece, ShapeLines
from .prefixes import printer_of, read_prefix
from .sentences import Finding, Sentence
from .tokens import MAX_SENTENCE_BYTES, tokenize

_LEAST_LINES = 16
"""Fewer lines are read one by one in less time than it takes to sort them."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""An odd number whose multiples are spread over all of 64 bits."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a sentence tells on lines of the piece, ascending, printed by ``printer``."""

    line_S: Ints
    printer: int
    finding: Finding


def told_on(
    sentences: Sequence[Sentence], group: ShapeLines, lines: Piece, printer_of: Callable[[bytes], int]
) -> Iterator[Told]:
    """What is told on the lines of a group; ``printer_of`` a line is the rank that printed it."""
    for line_S in _alike(sentences, group):
        line = lines[int(line_S[0])][:MAX_SENTENCE_BYTES]
        found = next((told for each in sentences if (told := each.read(line)) is not None), None)
        if found is not None:
            yield Told(line_S, printer_of(line), found)


def _alike(sentences: Sequence[Sentence], group: ShapeLines) -> list[Ints]:
    """The lines of a group, those together of which it is known that they say the same."""
    is_worth_it = len(group.line_S) >= _LEAST_LINES
    slots = _telling_slots(sentences, group.example) if is_worth_it else None
    if slots is None:
        return list(group.line_S[:, np.newaxis])
    values_SK = np.ascontiguousarray(group.values_SK[:, slots])
    if not len(slots):
        return [group.line_S]
    hash_S = np.zeros(len(values_SK), np.uint64)
    for bits_S in values_SK.view(np.uint64).T:
        hash_S = (hash_S ^ bits_S) * _FACTOR
        hash_S ^= hash_S >> np.uint64(29)
    _, first_D, of_S = np.unique(hash_S, return_index=True, return_inverse=True)
    if not _is_same(values_SK, values_SK[first_D][of_S]):
        return list(group.line_S[:, np.newaxis])  # two rows have one hash
    order_S = np.argsort(of_S, kind="stable")
    return np.split(group.line_S[order_S], np.cumsum(np.bincount(of_S))[:-1])


def _is_same(one: Floats, other: Floats) -> bool:
    return bool(np.array_equal(one.view(np.uint64), other.view(np.uint64)))


def _telling_slots(sentences: Sequence[Sentence], example: bytes) -> list[int] | None:
    """The numbers that make out what is told on lines like ``example``; None where that is not known."""
    if len(example) > MAX_SENTENCE_BYTES or not all(each.tells_numbers for each in sentences):
        return None
    form = next((each.form for each in sentences if each.read(example) is not None), None)
    found = None if form is None else form.search(example)
    if found is None:
        return None
    rank = printer_of(read_prefix(example), example)
    spans = [found.span(), *([] if rank is None else [(rank.start, rank.stop)])]
    slots = [_slots_within(example, *span) for span in spans]
    return None if None in slots else sorted({at for each in slots for at in each or ()})


def _slots_within(line: bytes, start: int, stop: int) -> list[int] | None:
    """The numbers between two places of a line; None where one of these is inside a number."""
    before, within, behind = (
        len(tokenize(part).numbers) for part in (line[:start], line[start:stop], line[stop:])
    )
    is_whole = before + within + behind == len(tokenize(line).numbers)
    return list(range(before, before + within)) if is_whole else None

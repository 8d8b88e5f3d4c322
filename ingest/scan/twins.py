r"""A line that says nan or inf where lines of its form have a number is read as they are.

``step 90 loss nan lr 0.1`` has another shape than ``step 80 loss 2.3 lr 0.1``, and by itself it is unclear
where in it a key begins. With its words marked like numbers the shapes are one, so the plan of the one
that was seen before is that of both. ``0 nan iterations``, a word in every line, has no such twin.

So are lines with a word for no number (``loss=None``, ``******``, a dash, nothing at all; of a loss any word)
in the place of one: what stood there is *lost*, and `lost_losses` says what that means of a loss.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import nan

from .counting import Counter
from .plans import Plan, Value
from .tokens import MARK, MAX_SHAPE_BYTES, NUMBER, shape_of

_WORD = rb"(?<![A-Za-z0-9_.@#\x80-\xff])(?:(?<![)\]}])[+-])?(?i:nan|inf(?:inity)?)(?![A-Za-z0-9_#])"
_LOST = (
    rb"(?<![\w.@#/*?<>\x80-\xff-])(?i:none|null|nil|<?n/?a>?|undefined|missing|err(?:or)?|invalid|overflow"
    rb"|\*{2,}|\?{2,}|\#{2,}|\xe2\x88\x9e)(?![\w*?#/<>\x80-\xff-])"
    rb"|(?:(?<=[=:])|(?<=[=:][ \t]))-+(?=[\s,|;)\]}]|$)|(?<=[A-Za-z] )-+(?=[,|;]|$)"
    rb"|(?:(?<==)|(?<=[=:][ \t]))(?=[,|;)\]}]|\s*$|\s[A-Za-z])"
    # whatever else stands there, behind the name of the loss: ``NaNe+00``, ``#NUM!``, ``diverged``
    rb"|(?:(?<=(?i:loss)[:=])|(?<=(?i:loss)[:=][ \t]))"
    rb"(?!(?i:nan|inf(?:inity)?)(?i:xxx|ms|s)?(?![A-Za-z0-9_]))"
    rb"(?i:not a number|[^\s,|;:=()\[\]{}\d+.'\"-][^\s,|;:=()\[\]{}]*)(?=[\s,|;)\]}]|$)"
)
_EITHER = re.compile(rb"(?P<word>" + _WORD + rb")|(?P<lost>" + _LOST + rb")|" + NUMBER)
_MAX_WORDS = 4
"""Of more words than this either all are values or none."""


@dataclass(frozen=True, slots=True)
class Twin:
    """A shape that a line has with words read as numbers; for each of its slots what stands there.

    That is the slot of the line itself, or -1 for a word, whose value is in ``constants``: None is lost.
    """

    shape: bytes
    slots: tuple[int, ...]
    constants: tuple[float | None, ...]

    def fits(self, plan: Plan) -> bool:
        """Whether the plan finds its counter and a value in the line."""
        counter = plan.counter
        counted = (counter.step, counter.epoch, plan.rank_slot)
        return not any(slot >= 0 and self.constants[slot] is None for slot in counted)

    def adapted(self, plan: Plan) -> Plan:
        """The plan of lines of the twin's shape, for the line."""
        return replace(
            plan,
            counter=self._counter(plan.counter),
            values=tuple(self._value(value) for value in plan.values),
            rank_slot=self._slot(plan.rank_slot),
        )

    def _slot(self, slot: int) -> int:
        return self.slots[slot] if slot >= 0 else -1

    def _value(self, value: Value) -> Value:
        if value.slot < 0 or self.slots[value.slot] >= 0:
            return replace(value, slot=self._slot(value.slot))
        constant = self.constants[value.slot]
        if constant is None:
            return replace(value, slot=-1, constant=nan, is_lost=True)
        return replace(value, slot=-1, constant=constant)

    def _counter(self, counter: Counter) -> Counter:
        return replace(
            counter,
            step=self._slot(counter.step),
            total=self._slot(counter.total),
            epoch=self._slot(counter.epoch),
            epoch_total=self._slot(counter.epoch_total),
        )


def twins_of(line: bytes) -> Iterator[Twin]:
    """The twins of a line: with all of its words nan and inf read as numbers first, then with fewer.

    >>> [twin.shape for twin in twins_of(b"step 3 loss nan lr 0.1")]
    [b'step \\x00 loss \\x00 lr \\x00']
    """
    line = line[:MAX_SHAPE_BYTES]
    found = list(_EITHER.finditer(line))
    words = [at for at, match in enumerate(found) if _is_word(match)]
    sizes = range(len(words), 0, -1) if len(words) <= _MAX_WORDS else (len(words),)
    for size in sizes:
        for chosen in combinations(words, size):
            yield _twin(line, found, frozenset(chosen))


def _is_word(match: re.Match[bytes]) -> bool:
    return match["word"] is not None or match["lost"] is not None


def _twin(line: bytes, found: Sequence[re.Match[bytes]], chosen: frozenset[int]) -> Twin:
    pieces: list[bytes] = []
    slots: list[int] = []
    constants: list[float | None] = []
    end = slot = 0
    for at, match in enumerate(found):
        is_word = _is_word(match)
        if is_word and at not in chosen:
            continue
        pieces += (line[end : match.start()], MARK.encode())
        end = match.end()
        slots.append(-1 if is_word else slot)
        constants.append((float(match[0]) if match["word"] else None) if is_word else 0.0)
        slot += not is_word
    return Twin(shape_of(b"".join((*pieces, line[end:]))), tuple(slots), tuple(constants))

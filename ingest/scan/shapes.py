"""Remembers the plan of each shape of line that was seen."""

from __future__ import annotations

import re
from dataclasses import replace

from firstfault.telemetry import MAX_RANK

from .dialects import dialect_of
from .layouts import Layout, layout_of
from .plans import NOISE, Kind, Plan, make_plan
from .prefixes import Prefix, printer_of, read_prefix
from .tokens import MAX_SENTENCE_BYTES, MAX_SHAPE_BYTES, NUMBER, tokenize
from .twins import twins_of

MAX_SHAPES = 1 << 15
"""Plans that are kept: a log has dozens; free text makes a new shape with every line."""
_NUMBER = re.compile(NUMBER)
_VALUE = re.compile(rb"(?i)\0|nan|inf")
_WORD = re.compile(
    rb"(?i)nan|inf|none|null|\bnil\b|\bn/?a\b|undefined|missing|\berr|invalid|overflow|[*?#-]|\xe2\x88\x9e|[=:]\W|[=:]$|loss[=:]"
)
"""What may stand where lines of a form have a number."""
_PROMISING = re.compile(
    rb"(?i)loss|norm|step|iter|epoch|nan|inf|lr|rate|batch|update|rank|acc|err|rmse|nll|ppl|\bit\b|=|:|\|"
)


_LEAST_BARS = 3
"""Of a row of a table; two bars stand around the one name and value of a box."""
_LAID_OUT = {layout: replace(NOISE, layout=layout) for layout in Layout}


class ShapeBook:
    """Plans by shape, the oldest let go when there are too many."""

    def __init__(self) -> None:
        self._plans: dict[bytes, Plan] = {}

    def plan_of(self, shape: bytes, example: bytes) -> Plan:
        """The plan for lines of ``shape``, of which ``example`` is one."""
        plan = self._plans.get(shape)
        if plan is None:
            plan = self._plans[shape] = self._twin_plan(shape, example) or _plan(shape, example)
            if len(self._plans) > MAX_SHAPES:
                del self._plans[next(iter(self._plans))]
        return plan

    def _twin_plan(self, shape: bytes, example: bytes) -> Plan | None:
        """That of a record which was seen before, with numbers where this line says nan or inf."""
        if not _WORD.search(shape):
            return None
        for twin in twins_of(example):
            plan = self._plans.get(twin.shape)
            if plan is not None and plan.kind is not Kind.NOISE and twin.fits(plan):
                return twin.adapted(plan)
        return None

    def record_plan(self, shape: bytes, example: bytes) -> Plan:
        """The plan of a record that was put together from a layout."""
        key = b"\n" + shape
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = _record_plan(example)
        return plan


def row_behind(line: bytes, prefix: Prefix) -> bytes:
    """What stands behind a prefix, if it begins with a bar, which may have been taken for its end."""
    front, rest = line[: prefix.end].rstrip(), line[prefix.end :]
    return b"|" + rest if front.endswith(b"|") else rest if front and rest.startswith(b"|") else b""


def _record_plan(example: bytes) -> Plan:
    message = tokenize(example)
    return make_plan(
        message.shape.decode("utf-8", "replace"), [number.decode() for number in message.numbers]
    )


def _plan(shape: bytes, example: bytes) -> Plan:
    layout = layout_of(shape.decode("utf-8", "replace"))
    if layout is not Layout.NONE:
        return _LAID_OUT[layout]
    if not _VALUE.search(shape) or not _PROMISING.search(shape):
        return NOISE
    example = example[:MAX_SHAPE_BYTES]
    prefix = read_prefix(example)
    row = row_behind(example, prefix)
    if row.count(b"|") > _LEAST_BARS:
        layout = layout_of(tokenize(row).shape.decode("utf-8", "replace"))
        if layout in (Layout.HEADER, Layout.ROW):
            return replace(NOISE, layout=layout, is_prefixed=True)
    starts = [found.start() for found in _NUMBER.finditer(example)]
    first_slot = sum(start < prefix.end for start in starts)
    message = tokenize(example[prefix.end :])
    if first_slot + len(message.numbers) != len(starts):  # the prefix ends inside a number
        prefix, first_slot, message = Prefix(0), 0, tokenize(example)
    numbers = [number.decode() for number in tokenize(example).numbers]
    dialect = dialect_of(example[:MAX_SENTENCE_BYTES])
    names = {} if dialect is None else dialect.names
    plan = make_plan(message.shape.decode("utf-8", "replace"), numbers, first_slot, names)
    rank = printer_of(prefix, example)
    if plan.rank_slot >= 0 or rank is None:
        return plan
    if rank.start in starts:
        return replace(plan, rank_slot=starts.index(rank.start))
    # Digits behind letters are part of the shape: ``[rank3]:``.
    return replace(plan, rank=min(int(rank.of(example)[:9]), MAX_RANK))

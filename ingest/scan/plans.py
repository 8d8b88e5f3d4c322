"""What a line of one shape is read as: worked out once, then used for every line of that shape."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from firstfault.telemetry import RESERVED_KEYS, is_checksum
from firstfault.wire_values import is_metric_name
from ingest.role_names import Role
from ingest.role_words import Loss, Meaning, Part, meaning_of

from .counting import NO_COUNTER, Counter, find_counter
from .fields import Field, Place, read_fields
from .layouts import Layout

_EVAL = re.compile(
    r"(?<![A-Za-z0-9])(?:val|valid|validation|validating|validate|test|testing|eval|evaluation|evaluating|evaluate|dev|cv)"
    r"(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_CROSS_VALIDATION = re.compile(r"(?<![\w/.-])CV(?=[\] ])")
_TRAIN = re.compile(r"(?<![A-Za-z0-9])(?:train|training|train_inner)(?![A-Za-z0-9])", re.IGNORECASE)
_TELLING = frozenset({"loss", "grad_norm", "local_grad_norm", "global_loss", "eval_loss", "test_loss"})
_NOT_THE_LOSS = re.compile(r"scale|scaling|scaler|weight|clip|best|lowest|minimum|coef", re.IGNORECASE)
_CLEAR_SEPARATORS = (":", "=", ",", "|", ":=", "=>")
_DURATIONS = frozenset({"eta", "elapsed", "remaining"})
"""Keys of times that have several numbers: ``eta: 4 days, 13:16:00``."""
STAND_IN = 100_000
"""Added to the order of a loss that is only judged where no name says the whole loss."""
_STAND_INS = {Loss.PLAYER: 1, Loss.COMPONENT: 2, Loss.WEAK: 3}


class Kind(Enum):
    """What a line gives."""

    NOISE = "noise"
    RECORD = "record"
    """Values with a counter of their own."""
    BARE = "bare"
    """Values that belong to the counter printed last."""
    PART = "part"
    """Values that belong to the record before, if that stands right above."""
    COUNTER = "counter"
    """A counter alone: a bar, a heading."""


@dataclass(frozen=True, slots=True)
class Value:
    """One metric of a line: the number in ``slot`` times ``factor``, or ``constant`` where that is -1.

    ``key`` is its name in the file. ``loss_order`` is not None for what may be the loss: of several
    such keys in a file that of the lowest order is it. ``is_lost``: a word for no number stands there.
    """

    name: str
    key: str
    slot: int
    constant: float = 0.0
    factor: float = 1.0
    loss_order: int | None = None
    is_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How lines of one shape are read."""

    kind: Kind
    counter: Counter = NO_COUNTER
    values: tuple[Value, ...] = ()
    layout: Layout = Layout.NONE
    """What it is in a box or table; such lines are put together first."""
    is_prefixed: bool = False
    """Whether a prefix stands in front of that box or table."""
    rank_slot: int = -1
    rank: int = -1
    """The rank that all lines of the shape name; -1 without one."""
    is_evaluation: bool = False
    looks_like_record: bool = False
    """Noise that nearly was a record: for the nearest guess."""


NOISE = Plan(kind=Kind.NOISE)
_NO_NAMES: Mapping[str, str] = {}


def make_plan(
    message: str, numbers: Sequence[str], first_slot: int = 0, names: Mapping[str, str] = _NO_NAMES
) -> Plan:
    """The plan of a message by its shape and the ``numbers`` of one line with it (all of the line).

    ``names`` is what a dialect calls things: a key, the word behind a value, or its place (``#0``), to the
    name that is meant; to an empty one where it is no value.
    """
    fields = _renamed(read_fields(message, first_slot), names)
    if not fields:
        return NOISE
    counter = find_counter(fields, numbers)
    is_evaluation = _is_evaluation(message, fields, counter)
    values = _values(fields, counter, is_evaluation=is_evaluation)
    rank = next(
        (f.slot for f in fields if f.place is Place.KEYED and meaning_of(f.key).role is Role.RANK), -1
    )
    plan = Plan(
        kind=_kind(message, counter, values, fields),
        counter=counter,
        values=values,
        rank_slot=rank,
        is_evaluation=is_evaluation,
    )
    if plan.kind is Kind.NOISE:
        return replace(NOISE, looks_like_record=any(value.loss_order is not None for value in values))
    return plan


def _renamed(fields: Sequence[Field], names: Mapping[str, str]) -> Sequence[Field]:
    if not names:
        return fields
    renamed = []
    for at, field in enumerate(fields):
        name = names.get(field.key or field.after or f"#{at}")
        if name is None:
            renamed.append(field)
        elif name:
            renamed.append(replace(field, key=name, place=Place.KEYED, separator=":", after=""))
    return renamed


def is_telling(value: Value) -> bool:
    """Whether a value makes a record of its line by itself."""
    return value.name in _TELLING or value.loss_order is not None or is_checksum(value.name)


def _kind(message: str, counter: Counter, values: Sequence[Value], fields: Sequence[Field]) -> Kind:
    telling = any(is_telling(value) for value in values)
    if counter.has_step:
        if telling or (not counter.is_weak and _is_list(fields, values)):
            return Kind.RECORD
        return Kind.COUNTER if not counter.is_weak or counter.is_bar else Kind.NOISE
    if counter.epoch >= 0 and telling:
        return Kind.RECORD
    if counter.epoch >= 0 and all(value.name == "epoch" for value in values):
        return Kind.COUNTER
    has_loss = any(value.loss_order is not None for value in values)
    if telling and (has_loss or not any("clip" in value.key for value in values)):
        return Kind.BARE
    if message[:1] in (" ", "\t") and values:
        return Kind.PART
    return Kind.NOISE


def _is_list(fields: Sequence[Field], values: Sequence[Value]) -> bool:
    """Whether values are named as in a record, and not just mentioned in a sentence."""
    keys = {value.key for value in values if value.name != "epoch"}
    return any(
        field.separator in _CLEAR_SEPARATORS or meaning_of(field.key).metric in ("lr", "loss_scale")
        for field in fields
        if field.key in keys or f"{field.block}/{field.key}" in keys
    )


def _is_evaluation(message: str, fields: Sequence[Field], counter: Counter) -> bool:
    """Whether the text in front of the values says that they are of a validation."""
    first = next((f for f in fields if f.place is Place.KEYED and f.slot not in counter.slots), None)
    lead = message
    if first is not None:
        at = message.find(first.key)
        lead = message[: max(at, 0)]
    is_told = _EVAL.search(lead) is not None or _CROSS_VALIDATION.search(lead) is not None
    return is_told and _TRAIN.search(lead) is None


def _values(fields: Sequence[Field], counter: Counter, *, is_evaluation: bool) -> tuple[Value, ...]:
    found: list[tuple[Field, str, Meaning]] = []
    for field, after in zip(fields, (*fields[1:], None), strict=True):
        if (mean := _mean_of_loss(field, found)) is not None:
            found.append(mean)
        if field.place is not Place.KEYED or (field.slot >= 0 and field.slot in counter.slots):
            continue
        if counter.is_bar and field.after == "%":
            continue
        if field.key.lower() in _DURATIONS or (after is not None and after.place is Place.LIST):
            continue
        key, meaning = _meaning(field)
        if found and found[-1][2].part is Part.EVAL and _may_be_of_either(key, meaning):
            meaning = replace(meaning_of(f"val {key}"), order=meaning.order)
        if meaning.role in (Role.METRIC, Role.CONTEXT, Role.TIME) and _is_kept(field, meaning):
            found.append((field, key, meaning))
    epoch = [] if counter.epoch < 0 else [Value("epoch", counter.epoch_key, counter.epoch)]
    return _named(found, epoch, is_evaluation=is_evaluation)


def _may_be_of_either(key: str, meaning: Meaning) -> bool:
    """Whether what stands behind a value of the validation is of it too: ``val loss: 2.3 acc: 0.4``."""
    is_measure = meaning.role is Role.METRIC and meaning.part is Part.TRAIN and not _is_known(meaning)
    return is_measure and _TRAIN.search(key) is None


def _mean_of_loss(
    field: Field, before: Sequence[tuple[Field, str, Meaning]]
) -> tuple[Field, str, Meaning] | None:
    """The mean in brackets behind a loss, ``loss 2.31 (2.35)``: once a loss in it is NaN it stays so."""
    if field.separator != "(" or field.after or not before:
        return None
    loss, key, meaning = before[-1]
    is_next = loss.slot >= 0 and field.slot in (loss.slot + 1, -1) and meaning.metric == "loss"
    if not is_next or field.place is not Place.MEAN:
        return None
    mean = replace(meaning, metric=f"{meaning.metric}_mean", loss=Loss.NONE)
    return field, f"{key} (mean)", mean


def _meaning(field: Field) -> tuple[str, Meaning]:
    """The key with its block, and what it says; words of a sentence in front of a known name are let go."""
    if field.block and field.block not in ("", field.key):
        block = meaning_of(field.block)
        if meaning_of(field.key).metric == "loss" and block.loss is Loss.WHOLE:
            return field.block, replace(block, order=0)
        key = f"{field.block}/{field.key}"
        return key, meaning_of(key)
    meaning = meaning_of(field.key)
    words = field.key.split()
    if _is_known(meaning) or len(words) == 1:
        return field.key, meaning
    for start in range(1, len(words)):
        shorter = " ".join(words[start:])
        if _is_known(meaning_of(shorter)) and field.separator in (" ", ""):
            return shorter, meaning_of(shorter)
    return field.key, meaning


def _is_known(meaning: Meaning) -> bool:
    return (
        meaning.loss is not Loss.NONE or meaning.metric in _TELLING or meaning.metric in ("lr", "loss_scale")
    )


def _is_kept(field: Field, meaning: Meaning) -> bool:
    """A single word and a blank in the middle of prose is no key, unless it is a known one."""
    return field.separator != " " or _is_known(meaning) or len(field.key.split()) <= 3


def _named(
    found: Sequence[tuple[Field, str, Meaning]], before: Sequence[Value], *, is_evaluation: bool
) -> tuple[Value, ...]:
    """Values with names, each different: of several that say the same the best has the name."""
    best: dict[str, int] = {}
    for at, (_, _, meaning) in enumerate(found):
        known = best.get(meaning.metric)
        if known is None or meaning.order < found[known][2].order:
            best[meaning.metric] = at
    loss = best.get("loss")
    if loss is None and not is_evaluation:
        loss = _stand_in(found)
    values = list(before)
    used = {value.name for value in before}
    for at, (field, key, meaning) in enumerate(found):
        name = meaning.metric if best[meaning.metric] == at else key
        name = _metric_name(name, is_evaluation=is_evaluation and meaning.part is Part.TRAIN)
        if name in used or not is_metric_name(name):
            continue
        used.add(name)
        order = None
        if at == loss and not is_evaluation and meaning.part is Part.TRAIN:
            order = meaning.order + STAND_IN * _STAND_INS.get(meaning.loss, 0)
            name = _metric_name(key, is_evaluation=False)
        factor = field.factor * meaning.scale if name == meaning.metric else field.factor
        values.append(Value(name, key, field.slot, field.constant, factor, order))
    return tuple(values)


def _stand_in(found: Sequence[tuple[Field, str, Meaning]]) -> int | None:
    """What is judged as the loss of a line that does not name the whole of it."""
    several = [
        at
        for at, (field, key, meaning) in enumerate(found)
        if meaning.loss in _STAND_INS and meaning.part is Part.TRAIN and _names_a_loss(field, key)
    ]
    if not several:
        return None
    return min(several, key=lambda at: (_STAND_INS[found[at][2].loss], found[at][2].order, at))


def _names_a_loss(field: Field, key: str) -> bool:
    is_named = field.separator in _CLEAR_SEPARATORS or len(key.split()) <= 2
    return is_named and len(key.split()) <= 4 and _NOT_THE_LOSS.search(key) is None


def _metric_name(name: str, *, is_evaluation: bool) -> str:
    plain = re.sub(r"\s+", "_", name.strip())
    if plain.lower() in RESERVED_KEYS or plain.lower() in ("step", "global_step"):
        plain = f"{plain.lower()}_column"
    if is_evaluation and plain not in ("epoch", "lr") and not plain.startswith(("eval_", "test_", "val_")):
        return f"eval_{plain}"
    return plain

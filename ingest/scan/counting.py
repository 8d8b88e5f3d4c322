"""Which values of a line count: the iteration, its total, the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from firstfault.telemetry import MAX_ITERATION
from ingest.role_names import ITERATION_NAMES, Role
from ingest.role_words import meaning_of

from .fields import SPLITS, Field, Place

_LAST_WORDS = {
    **dict.fromkeys(
        ["iteration", "iter", "step", "update", "itr", "iterations", "steps", "iters"], Role.ITERATION
    ),
    **dict.fromkeys(("batch", "minibatch"), Role.BATCH),
    "epoch": Role.EPOCH,
}
_LEADS = frozenset(
    {"train", "training", "val", "validation", "valid", "test", "testing", "eval", "evaluation", "evaluating"}
    | {"at", "after", "completed", "finished", "global", "current", "loss", "results", "result", "end", "on"}
    | {
        "learning",
        "cv",
        "score",
        "in",
        "for",
        "done",
        "stats",
        "metrics",
        "the",
        "epoch",
        "of",
        "optimizer",
        "micro",
    }
)
"""Words that may stand before the name of a counter; ``samples per step`` is none."""
_UNITS = {
    "epoch": Role.EPOCH,
    **dict.fromkeys(("batch", "batches", "minibatches"), Role.BATCH),
    **dict.fromkeys(("steps", "iterations", "updates", "it", "sequences"), Role.ITERATION),
}
"""What may stand behind a counter."""
_LEAST_SURE = ITERATION_NAMES.index("num_timesteps")
"""From this name on a counter may count something else than updates: alone it is none."""
_OF_PROGRESS = frozenset({"progress", "process"})
"""Names of counters where a total follows."""


class Style(IntEnum):
    """What kind of counter a line has; the greater, the more it is to be believed."""

    NONE = 0
    EPOCH = 1
    FIRST = 2
    """A bare number in front."""
    BAR = 3
    IN_EPOCH = 4
    """Begins anew in every epoch."""
    NAMED = 5


@dataclass(frozen=True, slots=True)
class Counter:
    """The slots of a line that count, -1 where there is none."""

    style: Style = Style.NONE
    key: str = ""
    step: int = -1
    total: int = -1
    epoch: int = -1
    epoch_total: int = -1
    epoch_key: str = ""

    @property
    def has_step(self) -> bool:
        """Whether it counts more than epochs."""
        return self.step >= 0

    @property
    def is_bar(self) -> bool:
        """Whether it is that of a progress bar."""
        return self.style is Style.BAR

    @property
    def is_weak(self) -> bool:
        """Whether it is one only beside a value that tells."""
        return self.style in (Style.FIRST, Style.BAR)

    @property
    def slots(self) -> frozenset[int]:
        """All slots that are taken."""
        return frozenset((self.step, self.total, self.epoch, self.epoch_total)) - {-1}


NO_COUNTER = Counter()


def find_counter(fields: Sequence[Field], numbers: Sequence[str]) -> Counter:
    """The counter of a line with these values."""
    roles = [_role(field) for field in fields]
    for at, field in enumerate(fields):
        if field.key.lower() in _OF_PROGRESS and _total(fields, at) >= 0:
            roles[at] = Role.BATCH
    counts = [field.slot >= 0 and _is_count(numbers[field.slot]) for field in fields]
    # 'epoch': 1.0 is how far training is, not which epoch it is in
    whole = [count and "." not in numbers[field.slot] for field, count in zip(fields, counts, strict=True)]
    epoch_at = _best(fields, roles, whole, Role.EPOCH)
    epoch, epoch_total, epoch_key = -1, -1, ""
    if epoch_at >= 0:
        epoch, epoch_total = fields[epoch_at].slot, _total(fields, epoch_at)
        epoch_key = _name(fields[epoch_at])
    elif (pair := _bracket_pair(fields, whole)) is not None:
        epoch_at, epoch, epoch_total, epoch_key = pair, fields[pair].slot, _total(fields, pair), "epoch"
    if (found := _epoch_over_step(fields)) is not None:
        return found
    style, at, key = _step(fields, roles, counts, epoch_at)
    if at < 0:
        style = Style.EPOCH if epoch >= 0 else Style.NONE
        return Counter(style, epoch_key, epoch=epoch, epoch_total=epoch_total, epoch_key=epoch_key)
    return Counter(style, key, fields[at].slot, _total(fields, at), epoch, epoch_total, epoch_key)


def _epoch_over_step(fields: Sequence[Field]) -> Counter | None:
    """``TRAIN Batch 4/203700``, as WeNet prints the epoch and the step."""
    first = fields[0]
    if first.key not in ("TRAIN Batch", "CV Batch") or _total(fields, 0) < 0:
        return None
    return Counter(Style.NAMED, "batch", fields[1].slot, epoch=first.slot, epoch_key="epoch")


def _role(field: Field) -> Role | None:
    if field.place is not Place.KEYED:
        return (
            _UNITS.get(field.after.lower()) if field.place in (Place.FIRST, Place.ALONE, Place.TIME) else None
        )
    if field.after == "%":
        return None
    if (unit := _UNITS.get(field.after.lower().rstrip("/"))) and field.separator in (" ", ":"):
        return unit
    role = meaning_of(field.key).role
    if role in (Role.ITERATION, Role.EPOCH, Role.BATCH):
        return role
    *lead, last = field.key.lower().split()
    if last in _LAST_WORDS and all(word in _LEADS for word in lead):
        return _LAST_WORDS[last]
    return role


def _step(
    fields: Sequence[Field], roles: Sequence[Role | None], counts: Sequence[bool], epoch_at: int
) -> tuple[Style, int, str]:
    named = _best(fields, roles, counts, Role.ITERATION)
    if named >= 0:
        style = Style.FIRST if meaning_of(fields[named].key).order >= _LEAST_SURE else Style.NAMED
        return style, named, _name(fields[named])
    total = _best(fields, roles, counts, Role.TOTAL)
    key = fields[total].key.lower() if total >= 0 else ""
    if key.startswith("total") and not key.endswith(
        "s"
    ):  # ``Total steps = 80`` in front of a run counts none
        return Style.NAMED, total, fields[total].key
    batch = _best(fields, roles, counts, Role.BATCH)
    if batch >= 0:
        return Style.IN_EPOCH, batch, _name(fields[batch])
    bar = _bar(fields, counts)
    if bar >= 0 and bar != epoch_at:
        return Style.BAR, bar, "progress bar"
    follower = _next(fields, epoch_at)
    if follower >= 0 and counts[follower]:
        return Style.IN_EPOCH, follower, "batch"
    first = fields[0]
    if first.place is Place.FIRST and first.after in ("", "/") and counts[0] and epoch_at != 0:
        return Style.FIRST, 0, "first number"
    return Style.NONE, -1, ""


def _name(field: Field) -> str:
    """What a counter is called: by the word behind it where only that says so (``train:1-50batch``)."""
    is_named = meaning_of(field.key).role in (Role.ITERATION, Role.EPOCH, Role.BATCH)
    return field.key if field.key and (is_named or not _is_by_unit(field)) else field.after.rstrip("/")


def _best(fields: Sequence[Field], roles: Sequence[Role | None], counts: Sequence[bool], wanted: Role) -> int:
    """The first counter of a role, unless another is called a global one."""
    found = [at for at, role in enumerate(roles) if role is wanted and counts[at]]
    return min(found, key=lambda at: (_is_by_unit(fields[at]), not _is_global(fields[at]), at), default=-1)


def _is_by_unit(field: Field) -> bool:
    return field.after.lower().rstrip("/") in _UNITS


def _is_global(field: Field) -> bool:
    return field.key.lower().startswith("global")


def _bar(fields: Sequence[Field], counts: Sequence[bool]) -> int:
    """``12%|…| 12/100 [`` or ``12/100 [=====>`` at the front."""
    for at in range(len(fields) - 1):
        is_next_total = at + 1 < len(fields) and fields[at + 1].place is Place.TOTAL
        if not is_next_total or not counts[at]:
            continue
        if at and fields[at - 1].after == "%" and fields[at].place is not Place.KEYED:
            return at
        if at == 0 and fields[0].place is Place.FIRST:
            return 0
    return -1


def _next(fields: Sequence[Field], epoch_at: int) -> int:
    """The counter in brackets behind an epoch (and its total)."""
    if epoch_at < 0:
        return -1
    at = epoch_at + 1
    if at < len(fields) and fields[at].place is Place.TOTAL:
        at += 1
    if at < len(fields) and fields[at].place is Place.NEXT and fields[at].after != "%":
        return at
    if at + 1 < len(fields) and fields[at].place is Place.ALONE and fields[at + 1].place is Place.TOTAL:
        return at
    return -1


def _bracket_pair(fields: Sequence[Field], counts: Sequence[bool]) -> int | None:
    """``[12/100][300/1563]`` or ``Train: 12 [ 300/1563 …]``: the first of two counters is the epoch."""
    first = fields[0]
    is_split = first.place is Place.KEYED and first.key.lower() in SPLITS
    if not counts[0] or not (first.place is Place.FIRST or is_split):
        return None
    at = 2 if len(fields) > 1 and fields[1].place is Place.TOTAL else 1
    if is_split and at == 2 and first.separator == " ":
        return 0
    has_second = (
        at + 1 < len(fields) and fields[at].place is Place.NEXT and fields[at + 1].place is Place.TOTAL
    )
    return 0 if has_second and (at == 2 or is_split) else None


def _total(fields: Sequence[Field], at: int) -> int:
    return fields[at + 1].slot if at + 1 < len(fields) and fields[at + 1].place is Place.TOTAL else -1


def _is_count(text: str) -> bool:
    value = float(text.replace(",", ""))
    return 0 <= value <= MAX_ITERATION and value.is_integer()

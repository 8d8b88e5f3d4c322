"""Which column of a table means what: found by name, checked against the first rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from firstfault.telemetry import KEY_ALIASES, MAX_ITERATION, RESERVED_KEYS, contract_of
from firstfault.wire_values import is_metric_name

from .sniff import is_number

ROW_NUMBER = "row number"

ITERATION_NAMES = (
    *("iteration", "global_step", "step", "iterations", "iter", "it", "steps", "current_steps"),
    *(
        "trainer/global_step",
        "train/global_step",
        "global_steps",
        "_step",
        "num_updates",
        "update",
        "updates",
    ),
)
"""Names of the column that counts iterations, the best first; read in any case."""
EPOCH_NAMES = ("epoch", "epochs")

_IDENTITY_NAMES: Mapping[str, tuple[str, ...]] = {
    "run": ("run",),
    "rank": ("rank", "global_rank"),
    "attempt": ("attempt",),
    "microbatch": ("microbatch",),
    "time": ("time", "timestamp", "_timestamp"),
}
# A spelling is used only where no better one is in the table: "train_loss" is the loss of a log
# without "loss", and a column of its own beside one.
METRIC_NAMES: Mapping[str, tuple[str, ...]] = {
    "loss": ("loss", "train_loss", "train/loss", "training_loss", "loss/train", "train_loss_step"),
    "lr": ("lr", "learning_rate", "train/lr", "train/learning_rate"),
    "grad_norm": ("grad_norm", "train/grad_norm", "gradient_norm", "train_grad_norm"),
}
_NOT_METRICS = RESERVED_KEYS | KEY_ALIASES.keys()
"""A second counter, or a "time" that is a duration, stays a metric under a name that is no key of ours."""
_COPY_ROOM = "_column.9999"
_ABSOLUTE_TIME_S = 1e8
"""Times below it (March 1973) count from the start of something: durations, not seconds since 1970."""
_CONTEXT_NAME = re.compile(
    r"(^|[^a-z])(time|times|sec|secs|seconds|s|ms|epoch|epochs|tokens|samples|step|steps|iter|iters|num|count|lr|lrs"
    r"|learning|throughput|memory|mem|elapsed|eta)\d*([^a-z]|$)"
)


@dataclass(frozen=True, slots=True)
class Header:
    """The meaning of the columns of a table, by column number.

    ``iteration`` is None when rows are counted instead; ``counter`` is its name for a person.
    ``metrics`` maps a column to the name of its metric. ``context`` are the columns that hold a
    time, a counter or a learning rate: with them a row that is all nan is padding.
    """

    names: tuple[str, ...]
    counter: str
    iteration: int | None
    identity: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    metrics: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    epoch: int | None = None
    context: frozenset[int] = frozenset()
    remarks: tuple[str, ...] = ()
    holds_numbers: bool = True
    """Whether at least one metric has a number in the sample: a text with commas has none."""


def read_header(names: Sequence[str], sample: Sequence[Sequence[str]]) -> Header:
    """The meaning of columns ``names``, given the cells of the first rows.

    A counter must hold whole numbers >= 0 in at least half of its cells in the sample. Without a
    counter of iterations the epoch is used, and without that the row number.

    >>> header = read_header(["Step", "train_loss", "learning_rate"], [["1", "2.5", "0.1"]])
    >>> header.counter, dict(header.metrics)
    ('Step', {1: 'loss', 2: 'lr'})
    """
    spelled = [_spelling(name) for name in names]
    columns = [[row[at] for row in sample if at < len(row)] for at in range(len(names))]
    remarks: list[str] = []
    epoch = _first(spelled, EPOCH_NAMES)
    counters = [spelled.index(name) for name in ITERATION_NAMES if name in spelled]
    iteration = next((at for at in counters if _counts(columns[at])), None)
    if iteration is None and epoch is not None and _counts(columns[epoch]):
        iteration = epoch
        remarks.append(f"no column counts iterations: the epoch ({names[epoch]!r}) is used")
    if iteration is None:
        remarks.append("no column counts iterations: the row number, from 0, is used")
    identity = _identity(spelled, columns, remarks)
    taken = {iteration, *identity.values()}
    metrics = _metrics(names, spelled, taken, remarks)
    return Header(
        names=tuple(names),
        counter=ROW_NUMBER if iteration is None else names[iteration],
        iteration=iteration,
        identity=MappingProxyType(identity),
        metrics=MappingProxyType(metrics),
        epoch=epoch if epoch != iteration else None,
        context=frozenset(at for at in metrics if _CONTEXT_NAME.search(spelled[at])),
        remarks=tuple(remarks),
        holds_numbers=any(is_number(cell) for at in metrics for cell in columns[at]),
    )


def canonical_metric(name: str) -> str:
    """A metric's name as the contracts spell it: ``Loss`` is ``loss``; other names stay as they are."""
    spelled = _spelling(name)
    return spelled if contract_of(spelled).is_built_in else name


def is_header_row(cells: Sequence[str], current: Header) -> bool:
    """Whether a row repeats the header, or is a new one (a restarted run that appends to its log).

    A new one holds no numbers and shares at least half of its names with the current header.
    """
    stripped = [cell.strip() for cell in cells]
    if tuple(stripped) == current.names:
        return True
    if len(stripped) < 2 or any(not cell or is_number(cell) for cell in stripped):
        return False
    return sum(cell in current.names for cell in stripped) * 2 >= len(stripped)


def _spelling(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def _first(spelled: Sequence[str], wanted: Sequence[str]) -> int | None:
    return next((spelled.index(name) for name in wanted if name in spelled), None)


def _counts(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell.strip()]
    return sum(_whole(cell) for cell in filled) * 2 >= max(len(filled), 1)


def _whole(cell: str) -> bool:
    try:
        value = float(cell)
    except ValueError:
        return False
    return 0 <= value <= MAX_ITERATION and value.is_integer()


def _identity(spelled: Sequence[str], columns: Sequence[Sequence[str]], remarks: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, names in _IDENTITY_NAMES.items():
        at = _first(spelled, names)
        if at is None:
            continue
        if key == "time" and not _is_absolute_time(columns[at]):
            continue
        if key in ("rank", "attempt", "microbatch") and not _counts(columns[at]):
            remarks.append(f"column {spelled[at]!r} holds no whole numbers and is not used as {key}")
            continue
        found[key] = at
    return found


def _is_absolute_time(cells: Sequence[str]) -> bool:
    for cell in cells:
        try:
            return float(cell) >= _ABSOLUTE_TIME_S
        except ValueError:
            if cell.strip():
                return False
    return False


def _metrics(
    names: Sequence[str], spelled: Sequence[str], taken: set[int | None], remarks: list[str]
) -> dict[int, str]:
    chosen: dict[int, str] = {}
    for metric, spellings in METRIC_NAMES.items():
        at = _first(spelled, spellings)
        if at is not None and at not in taken:
            chosen[at] = metric
            if spelled[at] not in (metric, *KEY_ALIASES):
                remarks.append(f"column {names[at]!r} is read as {metric}")
    used = set(chosen.values())
    metrics: dict[int, str] = {}
    for at, name in enumerate(names):
        if at in taken:
            continue
        own = chosen.get(at) or _own_name(name, used)
        if own is None:
            remarks.append(f"column {at + 1} ({name[:40]!r}) has no usable name and is not read")
            continue
        used.add(own)
        metrics[at] = own
    return metrics


def _own_name(name: str, used: set[str]) -> str | None:
    """The metric's name for a column, made different from those in use; None without a usable one."""
    if not is_metric_name(name + _COPY_ROOM) or not name.strip():
        return None
    spelled = _spelling(name)
    if spelled in _NOT_METRICS:
        name = f"{spelled}_column"
    metric = canonical_metric(name)
    unique, copy = metric, 2
    while unique in used:
        unique, copy = f"{metric}.{copy}", copy + 1
    return unique

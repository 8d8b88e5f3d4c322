"""What the columns of a table or the keys of records mean: found by name, checked against the values.

One place for every reader: of the names that say the same the best is taken (`role_words`), a counter
must count, a time must be one, and one column is the loss. A person overrides any of it
(``--column loss=lm_loss``), and `Roles.columns` says what was decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from .errors import UnreadableInput
from .role_names import ITERATION_NAMES, Role
from .role_result import ROW_NUMBER, Roles
from .role_values import (
    Column,
    counts,
    distinct,
    is_common,
    is_evaluated_loss,
    is_metric,
    own_name,
    place_of,
    rises,
    tells_splits,
)
from .role_words import Loss, Meaning, Part, meaning_of, spelling
from .written_numbers import number_of

__all__ = [
    "ROW_NUMBER",
    "Loss",
    "Meaning",
    "Part",
    "Role",
    "Roles",
    "assign_roles",
    "meaning_of",
]

IDENTITY = (Role.RUN, Role.RANK, Role.ATTEMPT, Role.MICROBATCH, Role.TIME)
OVERRIDABLE = (Role.ITERATION, Role.EPOCH, *IDENTITY)
"""Roles that ``--column`` may give; any other word there is a metric."""
_WHOLE_NUMBERS = (Role.RANK, Role.ATTEMPT, Role.MICROBATCH)
_LEAST_SURE = ITERATION_NAMES.index("num_timesteps")
"""From this name on a counter may count something else than updates: it must at least never fall much."""
_ABSOLUTE_TIME_S = 1e8
"""Times below it (March 1973) count from the start of something: durations, not seconds since 1970."""
_MAX_LISTED = 20
"""Names listed in a message."""


def assign_roles(
    names: Sequence[str], columns: Sequence[Column], wanted: Mapping[str, str] | None = None
) -> Roles:
    """The meaning of ``names``, whose values in the first rows are ``columns``, row by row the same.

    ``wanted`` maps a role or a metric to the name that a person says it has.

    Raises:
        UnreadableInput: ``wanted`` names what is not there, or a counter that does not count.

    >>> roles = assign_roles(["Step", "train_loss", "val_loss"], [["1"], ["2.5"], ["2.6"]])
    >>> roles.counter, dict(roles.metrics)
    ('Step', {1: 'loss', 2: 'eval_loss'})
    """
    return _Assignment(names, columns, wanted or {}).roles()


class _Assignment:
    """One decision over all names, step by step."""

    def __init__(self, names: Sequence[str], columns: Sequence[Column], wanted: Mapping[str, str]) -> None:
        self._names = tuple(names)
        self._columns = columns
        self._meanings = [meaning_of(name) for name in names]
        self._remarks: list[str] = []
        self._forced = {role: place_of(names, name, role) for role, name in wanted.items()}
        self._ranks: dict[int, tuple[bool, bool, int, int]] = {}

    def roles(self) -> Roles:
        epoch = self._role(Role.EPOCH)
        iteration = self._iteration(epoch)
        identity = self._identity()
        split = self._split()
        taken = {iteration, split, *identity.values()}
        chosen = self._chosen(taken)
        summed = self._loss(chosen, taken)
        metrics = self._metric_names(chosen, taken, epoch if epoch != iteration else None)
        return Roles(
            names=self._names,
            iteration=iteration,
            epoch=epoch if epoch != iteration else None,
            split=split,
            identity=MappingProxyType(identity),
            metrics=MappingProxyType(metrics),
            scales=MappingProxyType(self._scales(metrics)),
            summed=tuple(metrics[at] for at in summed if at in metrics),
            context=frozenset(at for at in metrics if self._meanings[at].role is not Role.METRIC),
            remarks=tuple(self._remarks),
        )

    def _role(self, role: Role) -> int | None:
        """The best name of a role whose values are whole numbers, or what a person wants."""
        if role.value in self._forced:
            return self._forced[role.value]
        free = [at for at in self._of_role(role) if at not in self._forced.values()]
        return next((at for at in free if counts(self._columns[at])), free[0] if free else None)

    def _of_role(self, role: Role) -> list[int]:
        found = [at for at, meaning in enumerate(self._meanings) if meaning.role is role]
        return sorted(found, key=lambda at: self._meanings[at].order)

    def _iteration(self, epoch: int | None) -> int | None:
        forced = self._forced.get(Role.ITERATION.value)
        if forced is not None:
            if not counts(self._columns[forced]):
                raise UnreadableInput(
                    f"--column iteration={self._names[forced]}: a counter must hold whole numbers >= 0"
                )
            return forced
        if (counter := self._counter()) is not None:
            return counter
        if epoch is not None and counts(self._columns[epoch]):
            self._remarks.append(f"nothing counts iterations: the epoch ({self._names[epoch]!r}) is used")
            return epoch
        self._remarks.append("nothing counts iterations: the row number, from 0, is used")
        return None

    def _counter(self) -> int | None:
        """The best counter: of several, one that tells more rows apart goes before a better name."""
        free = [at for at in self._of_role(Role.ITERATION) if at not in self._forced.values()]
        free = [at for at in free if is_common(self._columns[at])]
        sure = [at for at in free if self._meanings[at].order < _LEAST_SURE and counts(self._columns[at])]
        if len(sure) > 1:
            moving = [at for at in sure if len(distinct(self._columns[at])) > 1] or sure
            most = max(len(distinct(self._columns[at])) for at in moving)
            sure = [at for at in moving if 2 * len(distinct(self._columns[at])) > most]
        totals = [at for at in self._of_role(Role.TOTAL) if len(distinct(self._columns[at])) > 1]
        unsure = [at for at in (*free, *totals) if counts(self._columns[at]) and rises(self._columns[at])]
        batches = [at for at in self._of_role(Role.BATCH) if counts(self._columns[at])]
        return next(iter((*sure, *batches, *unsure)), None)

    def _identity(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for role in IDENTITY:
            at = self._forced.get(role.value)
            if at is None:
                free = [each for each in self._of_role(role) if each not in self._forced.values()]
                at = next((each for each in free if self._is_right(role, each)), None)
            if at is not None:
                found[role.value] = at
        return found

    def _is_right(self, role: Role, at: int) -> bool:
        if role is Role.TIME:
            first = next(
                (number for value in self._columns[at] if (number := number_of(value)) is not None), 0
            )
            return first >= _ABSOLUTE_TIME_S
        if role is Role.RUN and self._meanings[at].order:
            return any(
                isinstance(value, str) and number_of(value) is None for value in self._columns[at] if value
            )
        if role in _WHOLE_NUMBERS and not counts(self._columns[at]):
            self._remarks.append(
                f"{self._names[at]!r} holds no whole numbers and is not used as {role.value}"
            )
            return False
        return True

    def _split(self) -> int | None:
        for at in self._of_role(Role.SPLIT):
            if tells_splits(self._columns[at]) and at not in self._forced.values():
                return at
        return None

    def _chosen(self, taken: set[int | None]) -> dict[str, int]:
        """For each metric the one name that means it best, or that a person says does."""
        reserved = {role.value for role in OVERRIDABLE}
        chosen = {role: at for role, at in self._forced.items() if role not in reserved}
        given = set(chosen.values())
        for at, meaning in enumerate(self._meanings):
            if at in taken or at in given or meaning.metric in self._forced:
                continue
            if meaning.role in (Role.METRIC, Role.CONTEXT):
                known = chosen.get(meaning.metric, at)
                chosen[meaning.metric] = min(known, at, key=self._rank)
        return chosen

    def _rank(self, at: int) -> tuple[bool, bool, int, int]:
        """The less, the better: a name without a number means nothing, one that is always 0 little."""
        if at not in self._ranks:
            numbers = [number for value in self._columns[at] if (number := number_of(value)) is not None]
            is_idle = bool(numbers) and all(number == 0 for number in numbers)
            self._ranks[at] = not numbers, is_idle, self._meanings[at].order, at
        return self._ranks[at]

    def _loss(self, chosen: dict[str, int], taken: set[int | None]) -> tuple[int, ...]:
        """Make one name the loss, or give those whose sum is; a remark says what was done."""
        at = chosen.get("loss")
        if at is None:
            return self._substitute(chosen, taken)
        others = [each for each in self._stand_ins(Loss.WHOLE, taken) if each != at]
        if spelling(self._names[at]) != "loss":
            self._remark_loss(at, others)
        return ()

    def _substitute(self, chosen: dict[str, int], taken: set[int | None]) -> tuple[int, ...]:
        players = self._stand_ins(Loss.PLAYER, taken)
        components = self._stand_ins(Loss.COMPONENT, taken)
        if len(components) > 1 and not players:
            listed = ", ".join(repr(self._names[at]) for at in components)
            self._remarks.append(f"no name holds the whole loss: the sum of {listed} is judged as the loss")
            return tuple(components)
        evaluated = [at for at in self._evaluated() if at not in taken]
        for found in (players, components, self._stand_ins(Loss.WEAK, taken), evaluated):
            if found:
                at = min(found, key=self._rank)
                chosen["loss"] = at
                chosen.pop(self._meanings[at].metric, None)
                self._remark_loss(at, [each for each in found if each != at])
                break
        return ()

    def _evaluated(self) -> list[int]:
        """Losses of validation: judged where nothing of training is reported."""
        if any(meaning.loss is not Loss.NONE for meaning in self._meanings):
            return []
        return [
            at
            for at, meaning in enumerate(self._meanings)
            if meaning.part is Part.EVAL and is_evaluated_loss(meaning.metric) and not self._rank(at)[0]
        ]

    def _stand_ins(self, kind: Loss, taken: set[int | None]) -> list[int]:
        return [
            at
            for at, meaning in enumerate(self._meanings)
            if meaning.loss is kind and at not in taken and not self._rank(at)[0]
        ]

    def _remark_loss(self, at: int, others: Sequence[int]) -> None:
        listed = ", ".join(repr(self._names[each]) for each in others[:_MAX_LISTED])
        rest = f"; there is also {listed} (--column loss=NAME chooses)" if listed else ""
        self._remarks.append(f"{self._names[at]!r} is read as loss{rest}")

    def _metric_names(
        self, chosen: Mapping[str, int], taken: set[int | None], epoch: int | None
    ) -> dict[int, str]:
        metric_of = {at: metric for metric, at in chosen.items() if is_metric(metric)}
        used = set(metric_of.values()) | ({"epoch"} if epoch is not None else set())
        metrics: dict[int, str] = {}
        for at, name in enumerate(self._names):
            if at in taken:
                continue
            own = metric_of.get(at) or ("epoch" if at == epoch else own_name(name, used))
            if own is None:
                self._remarks.append(f"column {at + 1} ({name[:40]!r}) has no usable name and is not read")
                continue
            used.add(own)
            metrics[at] = own
        return metrics

    def _scales(self, metrics: Mapping[int, str]) -> dict[int, float]:
        """Factors of those that are read as what their name says, in another unit."""
        meanings = {
            at: self._meanings[at] for at, metric in metrics.items() if metric == self._meanings[at].metric
        }
        return {at: meaning.scale for at, meaning in meanings.items() if meaning.scale != 1.0}

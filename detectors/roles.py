"""What a metric turned out to be, learned from its first settled positions.

Many loops log a local norm as ``grad_norm``, or a reduced loss as ``loss``: the name promises one
contract and the values show another. `Roles` looks at the first positions at which two or more
ranks reported and decides once; the decision is used wherever the contract is.
Axes: T positions, R ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum

import numpy as np

from firstfault.telemetry import Kind, MetricContract, Relation, contract_of
from ingest.blocks import Flags, Floats, Ints, IterationBlock, NumberBlock

from .base import State
from .groups import layout_classes


class Role(StrEnum):
    """How a metric's values behave, against what its name promises."""

    AS_NAMED = "as_named"
    LOCAL = "local"
    """Named as agreed over all ranks, but every rank has its own: in truth a local value."""
    GLOBAL = "global"
    """Named as local, but bit-equal on all ranks from the start: in truth the reduced value."""


class Equality(StrEnum):
    """How values that should be equal relate, after the first positions."""

    UNDECIDED = "undecided"
    EXACT = "exact"
    CLOSE = "close"
    """Equal but for rounding: each rank reduced in its own order."""
    DIFFERENT = "different"


LEARNED_POSITIONS = 4
"""Positions before a decision. Two ranks that print a local loss with three digits show the same one at
about one position in twenty; at four in a row once in 160 000 runs. More would only delay."""
CLOSE_SPREAD = 1e-3
"""Greatest relative spread that rounding explains: bf16 has 8 bits, its reductions err by less; norms of
different data differ by tens of percent."""
TOLERANCE_FACTOR = 10.0
"""Tolerance as a multiple of the greatest spread of the first positions: for noise with a finite fourth
moment ten times the greatest of four is out of reach in a run."""


@dataclass(slots=True)
class EqualityLearner:
    """Decides from the first informative rows whether values that should be equal are.

    A row is informative where two or more ranks reported a finite value and not all are 0 (zeros
    are what loops print for "not computed").
    """

    spreads: list[float] = field(default_factory=list)
    majorities: list[bool] = field(default_factory=list)
    """Whether more than half of the ranks held the same value."""

    @property
    def is_decided(self) -> bool:
        """Whether enough rows were seen."""
        return len(self.spreads) >= LEARNED_POSITIONS

    def learn(self, value_R: Floats) -> None:
        """Take one informative row of finite values."""
        if self.is_decided:
            return
        greatest = float(np.abs(value_R).max())
        spread = value_R.max() / greatest - value_R.min() / greatest if greatest else 0.0
        self.spreads.append(float(spread))
        counts = np.unique(value_R, return_counts=True)[1]
        self.majorities.append(bool(2 * counts.max() > len(value_R)))

    @property
    def outcome(self) -> Equality:
        """The decision.

        One rank beside equal ones from the first row on is a suspect and not a local metric. A first
        row that happens to be equal does not make values equal that scatter ever after.
        """
        if not self.is_decided:
            return Equality.UNDECIDED
        rows = list(zip(self.spreads, self.majorities, strict=True))
        scattered = sum(spread > CLOSE_SPREAD and not has_majority for spread, has_majority in rows)
        if scattered >= LEARNED_POSITIONS - 1:
            return Equality.DIFFERENT
        if max(self.spreads) == 0.0:
            return Equality.EXACT
        if max(self.spreads) <= CLOSE_SPREAD:
            return Equality.CLOSE
        agreed = all(spread == 0.0 or has_majority for spread, has_majority in rows)
        return Equality.EXACT if agreed or min(self.spreads) == 0.0 else Equality.DIFFERENT

    @property
    def tolerance(self) -> float:
        """Relative difference that is no difference: 0 when the values were always bit-equal."""
        return TOLERANCE_FACTOR * max(self.spreads) if self.outcome is Equality.CLOSE else 0.0


class Roles:
    """Decides, once per metric, whether it is what its name says.

    >>> roles = Roles()
    >>> norm = NumberBlock(np.array([[1.0, 1.3]] * 4) * np.arange(1, 5)[:, None], np.ones((4, 2), bool))
    >>> roles.update(IterationBlock(
    ...     run="r", attempt=0, iteration_T=np.arange(4), microbatch_T=np.zeros(4, np.int32),
    ...     ranks_R=np.arange(2, dtype=np.int32), numbers={"grad_norm": norm}))
    >>> roles.role_of("grad_norm")
    <Role.LOCAL: 'local'>
    """

    def __init__(self) -> None:
        self._learners: dict[str, EqualityLearner] = {}

    def update(self, block: IterationBlock) -> None:
        """Take the next settled positions; costs nothing once every metric is decided."""
        for metric, numbers in block.numbers.items():
            contract = block.contracts.of(metric)
            if not is_equality_asked(contract) or contract.declared_phase is not None:
                continue  # what a run declares is taken at its word
            learner = self._learners.setdefault(metric, EqualityLearner())
            if not learner.is_decided:
                _teach(learner, numbers, _groups_by_contract(contract, block))

    def role_of(self, metric: str) -> Role:
        """The role of ``metric``; as named until it is decided.

        A loss is global only when it was bit-equal throughout the first positions.
        """
        learner = self._learners.get(metric)
        if learner is None or not learner.is_decided:
            return Role.AS_NAMED
        if contract_of(metric).kind is Kind.CURVE:
            return (
                Role.GLOBAL
                if learner.outcome is Equality.EXACT and not any(learner.spreads)
                else Role.AS_NAMED
            )
        return Role.LOCAL if learner.outcome is Equality.DIFFERENT else Role.AS_NAMED

    def is_decided(self, metric: str) -> bool:
        """Whether the role of ``metric`` will not change any more."""
        learner = self._learners.get(metric)
        return learner is not None and learner.is_decided

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics whose role is asked, in name order."""
        return tuple(sorted(self._learners))

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {metric: asdict(learner) for metric, learner in self._learners.items()}

    def restore(self, state: State) -> None:
        """Continue from ``state``."""
        self._learners = {
            metric: EqualityLearner(list(held["spreads"]), list(held["majorities"]))
            for metric, held in state.items()
        }


def is_equality_asked(contract: MetricContract) -> bool:
    """Whether the values show if the name is right: agreed numbers, and curves with noise over dp."""
    if contract.kind is Kind.CURVE:
        return "dp" in contract.axes(Relation.NOISE)
    return contract.kind in (Kind.AGREED, Kind.CONTEXT) and "dp" in contract.axes(Relation.EQUAL)


def informative_rows(numbers: NumberBlock) -> Iterator[tuple[int, Floats, Flags]]:
    """Rows (index, values, usable) where two or more ranks reported finite values that are not all 0.

    Looks at windows of rows, since mostly the first few suffice.
    """
    length, width = numbers.values_TR.shape
    for start in range(0, length if width >= 2 else 0, _WINDOW):
        values_TR = numbers.values_TR[start : start + _WINDOW]
        usable_TR = numbers.present_TR[start : start + _WINDOW] & np.isfinite(values_TR)
        enough_T = (usable_TR.sum(axis=1) >= 2) & (usable_TR & (values_TR != 0)).any(axis=1)
        for t in np.flatnonzero(enough_T).tolist():
            yield start + t, values_TR[t], usable_TR[t]


_WINDOW = 64


def _teach(learner: EqualityLearner, numbers: NumberBlock, class_R: Ints | None) -> None:
    for _, value_R, usable_R in informative_rows(numbers):
        if class_R is None or len(np.unique(class_R[usable_R])) >= 2:
            learner.learn(value_R[usable_R])
        if learner.is_decided:
            return


def _groups_by_contract(contract: MetricContract, block: IterationBlock) -> Ints | None:
    """The group of each rank inside which a curve is equal by contract; None where all ranks count.

    A loss that is equal inside a tensor-parallel group is so without having been reduced over dp.
    """
    if contract.kind is not Kind.CURVE or block.layout is None:
        return None
    return layout_classes(contract, block.ranks_R, block.layout)

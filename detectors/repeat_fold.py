"""The repetitions of one computation: which rank disagreed with itself first, and whether that says anything.

Axes: T positions, R ranks.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ingest.blocks import ChecksumBlock, Flags, Ints, IterationBlock, Ranks
from ingest.bounds import check_bounds

from .base import State
from .evidence import Certainty
from .rank_table import UNKNOWN, RankTable

MAX_RANKS = 64
"""Ranks told of per site; when more disagree with themselves the cause is not in them."""
LUCK = 0.5
"""Chance that a job which is not deterministic repeats one computation exactly: kernels that add up in any
order differ at most repetitions, so this errs on the safe side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatConfig:
    """How sure it must be that a job repeats itself before a rank is accused of not doing so."""

    lucky: float = 0.01
    """Chance that a job which is not deterministic has repeated itself so often by luck: 7 equal repetitions
    over all ranks, the other seven of eight at the first one."""
    lucky_alone: float = 1e-15
    """The same where one rank is all there is, and nobody else shows that the job is deterministic: 50."""

    def __post_init__(self) -> None:
        check_bounds(self, {"lucky": (1e-30, 0.5), "lucky_alone": (1e-30, 0.5)})

    @property
    def agreements(self) -> int:
        """Equal repetitions, over all ranks, before a disagreement counts in full."""
        return math.ceil(math.log(self.lucky) / math.log(LUCK))

    @property
    def agreements_alone(self) -> int:
        """The same of one rank that is all there is."""
        return math.ceil(math.log(self.lucky_alone) / math.log(LUCK))


@dataclass(slots=True, eq=False)
class Departure:
    """The first time that one rank disagreed with itself."""

    rank: int
    iteration: int
    microbatch: int
    last_clean: int | None
    first: str
    second: str
    seen_ranks: Ranks
    seen_bad: Flags
    told: str = ""


@dataclass(frozen=True, slots=True)
class _Pairs:
    """First and second result of a block, and where both were reported."""

    block: IterationBlock
    repeat: ChecksumBlock
    reference: ChecksumBlock
    clean_TR: Flags
    bad_TR: Flags


@dataclass(slots=True, eq=False)
class SiteFold:
    """What is known of the repetitions of one site."""

    config: RepeatConfig
    table: RankTable = field(default_factory=RankTable)
    """Columns: ``last_clean``, the last iteration of an equal repetition; ``compared``, the first of any."""
    departures: list[Departure] = field(default_factory=list)
    departed: int = 0
    """Ranks that ever disagreed with themselves."""
    agreements: int = 0
    not_deterministic_at: int | None = None
    is_note_told: bool = False
    lacks_reference: bool = True
    is_declared: bool = False
    """Whether the run says of itself that it is deterministic."""

    def feed(self, block: IterationBlock, repeat: ChecksumBlock, reference: ChecksumBlock) -> None:
        """Compare a block; stops for good where most ranks have disagreed."""
        both_TR = repeat.present_TR & reference.present_TR
        if self.not_deterministic_at is not None or not both_TR.any():
            return
        self.lacks_reference = False
        equal_TR = (repeat.high_TR == reference.high_TR) & (repeat.low_TR == reference.low_TR)
        clean_TR: Flags = both_TR & equal_TR
        bad_TR: Flags = both_TR & ~equal_TR
        at_R = self.table.rows(block.ranks_R)
        compared_R = _first(both_TR, len(block))
        if bad_TR.any():
            self._depart(_Pairs(block, repeat, reference, clean_TR, bad_TR), compared_R)
        seen_R = clean_TR.any(axis=0)
        last_R = len(block) - 1 - np.argmax(clean_TR[::-1], axis=0)
        self.table.column("last_clean")[at_R[seen_R]] = block.iteration_T[last_R[seen_R]]
        self.table.column("compared")[at_R[compared_R < len(block)]] = 1
        self.agreements += int(clean_TR.sum())

    def certainty(self) -> Certainty:
        """How far a departure is believed: the job must have proved deterministic elsewhere."""
        enough = self.agreements >= self.config.agreements
        return Certainty.CONFIRMED if enough and self.not_deterministic_at is None else Certainty.SUSPECTED

    def snapshot(self) -> State:
        """The whole state as plain data."""
        state = {name: getattr(self, name) for name in _PLAIN}
        departures = [asdict(departure) for departure in self.departures]
        return {**state, "table": self.table.snapshot(), "departures": departures}

    @classmethod
    def restored(cls, state: State, config: RepeatConfig) -> SiteFold:
        """The fold that gave ``state``."""
        plain: dict[str, Any] = {name: state[name] for name in _PLAIN if name in state}
        departures = [Departure(**held) for held in state["departures"]]
        return cls(config, table=RankTable.restored(state["table"]), departures=departures, **plain)

    def _depart(self, pairs: _Pairs, compared_R: Ints) -> None:
        """Take the ranks that disagree for the first time, in order of position."""
        length = len(pairs.block)
        at_R = self.table.rows(pairs.block.ranks_R)
        departed = self.table.column("departed")
        was_compared = self.table.column("compared") != UNKNOWN
        first_R = np.where(departed[at_R] == UNKNOWN, _first(pairs.bad_TR, length), length)
        for t in np.unique(first_R[first_R < length]).tolist():
            columns, before = np.flatnonzero(first_R == t), len(self.departures)
            departed[at_R[columns]] = 1
            self.departed += len(columns)
            room = max(MAX_RANKS - len(self.departures), 0)
            self.departures += [self._departure(pairs, t, column) for column in columns[:room].tolist()]
            compared = was_compared.copy()
            compared[at_R[compared_R <= t]] = True
            if self._is_chance(int(compared.sum()), self.agreements + int(pairs.clean_TR[: t + 1].sum())):
                self.not_deterministic_at = int(pairs.block.iteration_T[t])
                self.departures = self.departures[:before]  # these say nothing of their ranks
                return

    def _is_chance(self, compared: int, agreements: int) -> bool:
        """Whether most ranks have disagreed with themselves: then the job is not deterministic."""
        if compared == 1:
            few = self.config.agreements if self.is_declared else self.config.agreements_alone
            return agreements < few
        return 2 * self.departed > compared

    def _departure(self, pairs: _Pairs, t: int, column: int) -> Departure:
        block = pairs.block
        before = np.flatnonzero(pairs.clean_TR[:t, column])
        at_R = self.table.rows(block.ranks_R)
        known = int(self.table.column("last_clean")[at_R[column]])
        last_clean = int(block.iteration_T[before[-1]]) if len(before) else known
        seen_R = pairs.clean_TR[t] | pairs.bad_TR[t]
        iteration = int(block.iteration_T[t])
        return Departure(
            rank=int(block.ranks_R[column]),
            iteration=iteration,
            microbatch=int(block.microbatch_T[t]),
            # equal earlier in the same iteration still leaves the whole iteration open
            last_clean=None if last_clean == UNKNOWN else min(last_clean, iteration - 1),
            first=_text(pairs.reference, t, column),
            second=_text(pairs.repeat, t, column),
            seen_ranks=block.ranks_R[seen_R],
            seen_bad=pairs.bad_TR[t, seen_R],
        )


_PLAIN = ("departed", "agreements", "not_deterministic_at", "is_note_told", "lacks_reference", "is_declared")


def _first(flag_TR: Flags, length: int) -> Ints:
    """First row of each column that has the flag, ``length`` where none has."""
    return np.where(flag_TR.any(axis=0), np.argmax(flag_TR, axis=0), length)


def _text(checksums: ChecksumBlock, t: int, column: int) -> str:
    return f"{int(checksums.high_TR[t, column]) << 64 | int(checksums.low_TR[t, column]):016x}"

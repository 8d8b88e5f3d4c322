"""A rank that disagrees with itself: a computation done twice, with two results.

``repeat_checksum/<site>`` is the checksum of a computation that was done before on the same rank at
the same position, and reported as ``<site>_checksum``: ``repeat_checksum/canary`` repeats
``canary_checksum``, ``repeat_checksum/act/3`` repeats ``act_checksum/3``. Axes: T positions, R ranks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from firstfault.mesh import Layout
from firstfault.telemetry import UNNAMED_RANK, Kind, contract_of
from ingest.blocks import ChecksumBlock, Flags, Ints, IterationBlock, Ranks

from .base import State
from .evidence import Annotation, Certainty, Check, CheckState, Direction, Evidence, Finding, Pattern, Sight
from .groups import model_parallel_group
from .rank_table import UNKNOWN, RankTable
from .vote_suspects import MODEL_GROUP, WIDENED

MAX_RANKS = 64
"""Ranks told of per site; when more disagree with themselves the cause is not in them."""
PROVING_AGREEMENTS = 7
"""Equal repetitions, over all ranks, before a disagreement counts in full: the seven others of eight
ranks at the first repetition. A job that is not deterministic is rarely so lucky."""
PROVING_ALONE = 50
"""The same where one rank is all there is: nobody else shows that the job is deterministic."""


@dataclass(slots=True, eq=False)
class _Departure:
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
class _SiteFold:
    """What is known of the repetitions of one site."""

    table: RankTable = field(default_factory=RankTable)
    """Columns: ``last_clean``, the last iteration of an equal repetition; ``compared``, the first of any."""
    departures: list[_Departure] = field(default_factory=list)
    departed: int = 0
    """Ranks that ever disagreed with themselves."""
    agreements: int = 0
    not_deterministic_at: int | None = None
    is_note_told: bool = False
    lacks_reference: bool = True

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
        enough = self.agreements >= PROVING_AGREEMENTS
        return Certainty.CONFIRMED if enough and self.not_deterministic_at is None else Certainty.SUSPECTED

    def snapshot(self) -> State:
        """The whole state as plain data."""
        state = {name: getattr(self, name) for name in _PLAIN}
        departures = [asdict(departure) for departure in self.departures]
        return {**state, "table": self.table.snapshot(), "departures": departures}

    @classmethod
    def restored(cls, state: State) -> _SiteFold:
        """The fold that gave ``state``."""
        plain: dict[str, Any] = {name: state[name] for name in _PLAIN}
        departures = [_Departure(**held) for held in state["departures"]]
        return cls(table=RankTable.restored(state["table"]), departures=departures, **plain)

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
            return agreements < PROVING_ALONE
        return 2 * self.departed > compared

    def _departure(self, pairs: _Pairs, t: int, column: int) -> _Departure:
        block = pairs.block
        before = np.flatnonzero(pairs.clean_TR[:t, column])
        at_R = self.table.rows(block.ranks_R)
        known = int(self.table.column("last_clean")[at_R[column]])
        last_clean = int(block.iteration_T[before[-1]]) if len(before) else known
        seen_R = pairs.clean_TR[t] | pairs.bad_TR[t]
        iteration = int(block.iteration_T[t])
        return _Departure(
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


class Repeat:
    """Names a rank whose repeated computation gives another checksum than the first time.

    It needs no peers. On one rank alone nothing but the rank explains it; when most ranks have
    disagreed with themselves the job is not deterministic: that is an annotation, what was said
    before only supports other evidence from then on, and the site is not used any more.
    """

    name: ClassVar[str] = "repeat"

    def __init__(self) -> None:
        self._sites: dict[str, _SiteFold] = {}

    def update(self, block: IterationBlock) -> list[Finding]:
        """Take the next settled positions."""
        findings: list[Finding] = []
        for metric, repeat in sorted(block.checksums.items()):
            if contract_of(metric).kind is not Kind.REPEAT:
                continue
            fold = self._sites.setdefault(metric, _SiteFold())
            reference = block.checksums.get(reference_of(metric))
            if reference is not None and len(block):
                fold.feed(block, repeat, reference)
                findings += self._news(block, metric, fold)
        return findings

    def finish(self) -> list[Finding]:
        """Nothing waits for what comes next."""
        return []

    def check(self) -> Check:
        """Ran where repetitions could be compared in a deterministic job."""
        ran = [metric for metric, fold in sorted(self._sites.items()) if _is_usable(fold)]
        if ran:
            return Check(name=self.name, state=CheckState.RAN, metrics=tuple(ran))
        why = "no repeated computation was reported"
        if any(fold.not_deterministic_at is not None for fold in self._sites.values()):
            why = "most ranks disagree with themselves: the job is not deterministic"
        elif self._sites:
            metric = min(self._sites)
            why = f"{metric} came without {reference_of(metric)} of the same rank and position"
        return Check(name=self.name, state=CheckState.NOT_RUN, why=why, metrics=tuple(sorted(self._sites)))

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {metric: fold.snapshot() for metric, fold in self._sites.items()}

    def restore(self, state: State) -> None:
        """Continue from ``state``."""
        self._sites = {metric: _SiteFold.restored(held) for metric, held in state.items()}

    def _news(self, block: IterationBlock, metric: str, fold: _SiteFold) -> list[Finding]:
        findings: list[Finding] = []
        certainty, is_withdrawn = fold.certainty(), fold.not_deterministic_at is not None
        state = "withdrawn" if is_withdrawn else certainty.value
        for departure in fold.departures:
            if departure.told != state:
                departure.told = state
                one = _evidence(block, metric, departure)
                findings.append(replace(one, certainty=certainty, supporting=is_withdrawn))
        if fold.not_deterministic_at is not None and not fold.is_note_told:
            fold.is_note_told = True
            findings.append(
                Annotation(
                    kind="nondeterministic_job",
                    key=metric,
                    attempt=block.attempt,
                    iteration=fold.not_deterministic_at,
                    detail={"metric": metric, "ranks_that_disagreed": fold.departed},
                )
            )
        return findings


def reference_of(metric: str) -> str:
    """The checksum that ``repeat_checksum/<site>`` repeats.

    >>> reference_of("repeat_checksum/canary"), reference_of("repeat_checksum/act/3")
    ('canary_checksum', 'act_checksum/3')
    """
    site, slash, scope = metric.partition("/")[2].partition("/")
    return f"{site}_checksum{slash}{scope}"


def _who_computes(metric: str, rank: int, layout: Layout | None) -> tuple[int, ...]:
    """Who takes part in the repeated computation: a canary runs through all that hold the model together."""
    if rank == UNNAMED_RANK:
        return ()
    is_canary = reference_of(metric).startswith("canary_")
    return model_parallel_group(layout, rank) if is_canary and layout is not None else (rank,)


_PLAIN = ("departed", "agreements", "not_deterministic_at", "is_note_told", "lacks_reference")


def _is_usable(fold: _SiteFold) -> bool:
    return not fold.lacks_reference and fold.not_deterministic_at is None


def _first(flag_TR: Flags, length: int) -> Ints:
    """First row of each column that has the flag, ``length`` where none has."""
    return np.where(flag_TR.any(axis=0), np.argmax(flag_TR, axis=0), length)


def _text(checksums: ChecksumBlock, t: int, column: int) -> str:
    return f"{int(checksums.high_TR[t, column]) << 64 | int(checksums.low_TR[t, column]):016x}"


def _evidence(block: IterationBlock, metric: str, departure: _Departure) -> Evidence:
    ranks = _who_computes(metric, departure.rank, block.layout)
    sight = Sight(
        metric=metric,
        iteration=departure.iteration,
        microbatch=departure.microbatch,
        ranks_R=departure.seen_ranks,
        bad_R=departure.seen_bad,
        clean_R=~departure.seen_bad,
    )
    return Evidence(
        detector=Repeat.name,
        key=f"{metric}:{departure.rank}",
        pattern=Pattern.COMPUTE_MISMATCH,
        certainty=Certainty.SUSPECTED,
        metric=metric,
        attempt=block.attempt,
        iteration=departure.iteration,
        first_bad=departure.iteration,
        last_clean=departure.last_clean,
        alarm_iteration=departure.iteration,
        microbatch=departure.microbatch,
        ranks=ranks,
        is_tie=len(ranks) > 1,
        statistic=1.0,
        threshold=0.0,
        direction=Direction.DIFFERS,
        detail={"first": departure.first, "second": departure.second}
        | ({WIDENED: MODEL_GROUP} if len(ranks) > 1 else {}),
        sights=(sight,),
    )

"""A loss that is not a number, where a logger cannot or will not write one.

Axes: N records.

JSON has no NaN and a data frame writes it as an empty cell, so the loss is missing where the record is
otherwise as complete as those before it. The trainer of HF writes 0.0 for a loss that it filtered out,
beside a gradient norm of nan. Both are read as NaN, marked as inferred.

A record without a loss is *complete* if it has every metric that all of the first losses came with,
and no metric or text that never came with a loss (a validation, a final summary, a message). The norm
and the validation that came with the loss may be lost with it; where there was nothing else, several
records that only count say so. Logs that report the loss now and then show it early, or again and again:
of these nothing is inferred.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from .blocks import Flags, Ints, NumberColumn, RecordBatch

LEAST_BEFORE = 8
"""Losses that must come before the first complete record without one: a log that reports its loss at every
second record or less often shows that within them."""
MOST_RETURNS = 2
"""Times that the loss may be missing and come back before it is one that is reported now and then."""
LEAST_BARE = 3
"""Records without any metric, which an epoch is not: one or two are how some loops say that they are done, or
what a crash left of the last one. Neither NaN nor healthy can be said of them."""
LEARNED_ROWS = 100_000
"""Rows of which each is looked at; later ones only where a loss is missing among them."""
_LOSS, _NORM = "loss", "grad_norm"
_LOST_TOO = frozenset({_NORM, "eval_loss"})
_COUNTERS = frozenset({"epoch"})


@dataclass(slots=True)
class _Seen:
    """What was seen of the loss of one rank."""

    losses: int = 0
    core: frozenset[str] | None = None
    """Metrics that came with each of the first losses."""
    beside: set[str] = field(default_factory=set)
    """Metrics that came with any loss."""
    returns: int = 0
    is_missing: bool = False
    is_sparse: bool = False
    bare: int = 0
    """Records in a row, up to the last one, that only count: too few to say that a loss is missing there."""


class MissingLoss:
    """Finds the records of one file whose loss must have been NaN, batch by batch in order."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], _Seen] = {}
        self._rows = 0
        self.first: int | None = None
        """The iteration of the first loss that was inferred."""

    @property
    def doubt(self) -> str:
        """Why the file is not to be called healthy though nothing was inferred; empty without a reason."""
        if not any(seen.bare and not seen.is_sparse for seen in self._seen.values()):
            return ""
        return "the last records only count: the loss stopped being a number there, or the log was cut"

    def look_ahead(self, batches: list[RecordBatch]) -> None:
        """Find out from the head of a file, before it is judged, whose loss is only reported now and then."""
        scout = MissingLoss()
        for batch in batches:
            scout.infer(batch)
        self._seen = {key: _Seen(is_sparse=True) for key, seen in scout._seen.items() if seen.is_sparse}

    @property
    def remark(self) -> str:
        """What was inferred, for a person."""
        return (
            f"from iteration {self.first} on a loss that is missing in otherwise complete records, or 0"
            " beside a gradient norm of nan, is read as NaN"
        )

    def infer(self, batch: RecordBatch, *, is_growing: bool = False) -> RecordBatch:
        """The batch with the losses that are inferred.

        ``is_growing``: more of the file is to come, which may show that its loss is reported now and then;
        what is missing is not inferred then, only what was filtered out.
        """
        loss = batch.numbers.get(_LOSS)
        if not len(batch) or (loss is None and not self._seen):
            return batch
        present_N = np.zeros(len(batch), np.bool_) if loss is None else loss.present_N
        inferred_N = self._filtered(batch, loss)
        self._rows += len(batch)
        if not is_growing and (not present_N.all() or self._rows < LEARNED_ROWS):
            inferred_N = inferred_N | self._missing(batch, present_N)
        if not inferred_N.any():
            return batch
        if self.first is None:
            self.first = int(batch.iteration_N[inferred_N].min())
        values_N = (
            np.full(len(batch), np.nan) if loss is None else np.where(inferred_N, np.nan, loss.values_N)
        )
        before_N = None if loss is None else loss.inferred_N
        marked_N = inferred_N if before_N is None else inferred_N | before_N
        column = NumberColumn(values_N, present_N | inferred_N, marked_N)
        return replace(batch, numbers={**batch.numbers, _LOSS: column})

    def _filtered(self, batch: RecordBatch, loss: NumberColumn | None) -> Flags:
        """A loss of exactly 0 beside a gradient norm that is nan."""
        norm = batch.numbers.get(_NORM)
        if loss is None or norm is None:
            return np.zeros(len(batch), np.bool_)
        filtered_N: Flags = loss.present_N & (loss.values_N == 0) & norm.present_N & np.isnan(norm.values_N)
        return filtered_N

    def _missing(self, batch: RecordBatch, present_N: Flags) -> Flags:
        found_N = np.zeros(len(batch), np.bool_)
        group_N = batch.run_N.astype(np.int64) << 32 | batch.rank_N.astype(np.int64) & 0xFFFFFFFF
        for group in np.unique(group_N):
            at_N = np.flatnonzero(group_N == group)
            key = batch.runs[int(batch.run_N[at_N[0]])], int(batch.rank_N[at_N[0]])
            seen = self._seen.setdefault(key, _Seen())
            if not seen.is_sparse:
                found_N[at_N] = self._of_rank(batch, seen, at_N, present_N)
        return found_N

    def _of_rank(self, batch: RecordBatch, seen: _Seen, at_N: Ints, present_N: Flags) -> Flags:
        flags = {name: column.present_N[at_N] for name, column in batch.numbers.items() if name != _LOSS}
        has_N = present_N[at_N]
        self._learn(seen, flags, has_N)
        core = (seen.core or frozenset()) - _COUNTERS
        complete_N = ~has_N
        for name in core - _LOST_TOO or core:
            complete_N &= flags.get(name, np.zeros(len(at_N), np.bool_))
        told = [flag_N for name, flag_N in flags.items() if name not in _COUNTERS]
        bare_N: Flags = ~np.logical_or.reduce([has_N, *told])
        if core and core <= _LOST_TOO and bare_N.sum() >= LEAST_BARE:
            complete_N |= bare_N
        flags |= _texts(batch, at_N)
        seen.beside.update(name for name, flag_N in flags.items() if (flag_N & has_N).any())
        for name, flag_N in flags.items():
            if name not in seen.beside:
                complete_N &= ~flag_N
        if not core:
            complete_N = self._without_bare_end(seen, has_N, complete_N)
        return self._walk(seen, has_N, complete_N)

    def _without_bare_end(self, seen: _Seen, has_N: Flags, complete_N: Flags) -> Flags:
        """The complete records without those at the end that only count, if they are too few to say more."""
        after_last = int(np.flatnonzero(has_N)[-1]) + 1 if has_N.any() else 0
        bare = int(complete_N[after_last:].sum()) + (0 if after_last else seen.bare)
        has_begun = bool(after_last or seen.losses)
        seen.bare = bare if bare < LEAST_BARE and has_begun else 0
        return complete_N & (np.arange(len(has_N)) < after_last) if seen.bare else complete_N

    def _learn(self, seen: _Seen, flags: dict[str, Flags], has_N: Flags) -> None:
        losses = np.flatnonzero(has_N)
        if not len(losses):
            return
        seen.beside.update(name for name, flag_N in flags.items() if flag_N[losses].any())
        first = losses[: max(LEAST_BEFORE - seen.losses, 0)]
        if len(first):
            always = frozenset(name for name, flag_N in flags.items() if flag_N[first].all())
            seen.core = always if seen.core is None else seen.core & always

    def _walk(self, seen: _Seen, has_N: Flags, complete_N: Flags) -> Flags:
        """Which complete records are inferred, given what came before them."""
        found_N = np.zeros(len(has_N), np.bool_)
        changes = np.flatnonzero(has_N | complete_N)
        turns = np.diff(has_N[changes].astype(np.int8), prepend=-1) != 0
        for at in changes[turns]:
            if has_N[at]:
                seen.returns += seen.is_missing
                seen.is_missing = False
            elif seen.losses + int(has_N[:at].sum()) < LEAST_BEFORE:
                seen.is_sparse = True
            else:
                seen.is_missing = True
            seen.is_sparse |= seen.returns > MOST_RETURNS
            if seen.is_sparse:
                break
        if not seen.is_sparse:
            found_N = complete_N
        seen.losses += int(has_N.sum())
        return found_N


def _texts(batch: RecordBatch, at_N: Ints) -> dict[str, Flags]:
    """Which of some records have a label, by its name."""
    rows: dict[str, list[int]] = {}
    for row, name, _ in batch.labels:
        rows.setdefault(name, []).append(row)
    return {name: np.isin(at_N, found) for name, found in rows.items()}

"""Data-parallel ranks that read the same data: checksums that must be distinct and are not.

Axes: T positions, R ranks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from firstfault.telemetry import Kind, Relation
from ingest.blocks import ChecksumBlock, Flags, Ints, IterationBlock

from .base import State
from .evidence import Certainty, Direction, Evidence, Finding, Pattern, Sight
from .groups import NO_CLASS, codes_of, layout_classes

PERSISTENT_CHECKS = 3
"""Checks in a row before equal data opens an incident: a repeated short sample may be equal once, by
the data's own duplicates; three different batches are not."""
MAX_METRICS = 16
"""Distinct metrics that are watched; ``data_checksum`` and its scopes."""


@dataclass(slots=True)
class _Repeat:
    """The first stretch of checks at which two groups of ranks had read the same."""

    iteration: int
    microbatch: int
    last_clean: int | None
    ranks: list[int]
    present: list[int]
    in_a_row: int = 0


class ShardRepeats:
    """Watches metrics that are ``distinct`` along dp. Needs a layout: without one nothing is known.

    Evidence is supporting until `PERSISTENT_CHECKS` checks in a row were equal; it stays suspected
    where they never were distinct, since a job may read the same data everywhere on purpose.
    """

    def __init__(self) -> None:
        self._repeats: dict[str, _Repeat] = {}
        self._last_clean: dict[str, int] = {}

    def update(self, block: IterationBlock, detector: str) -> list[Finding]:
        """Take the next settled positions; the evidence is told in the name of ``detector``."""
        findings: list[Finding] = []
        for metric, checksums in sorted(block.checksums.items()):
            contract = block.contracts.of(metric)
            if (
                contract.kind is not Kind.CHECKSUM
                or not contract.axes(Relation.DISTINCT)
                or block.layout is None
            ):
                continue
            if metric not in self._last_clean and len(self._last_clean) >= MAX_METRICS:
                continue
            class_R = layout_classes(contract, block.ranks_R, block.layout)
            findings += self._fold(block, metric, checksums, class_R, detector)
        return findings

    def snapshot(self) -> State:
        """The whole state as plain data."""
        repeats = {metric: asdict(repeat) for metric, repeat in self._repeats.items()}
        return {"repeats": repeats, "last_clean": dict(self._last_clean)}

    def restore(self, state: State) -> None:
        """Continue from ``state``."""
        self._repeats = {metric: _Repeat(**held) for metric, held in state["repeats"].items()}
        self._last_clean = dict(state["last_clean"])

    def _fold(
        self, block: IterationBlock, metric: str, checksums: ChecksumBlock, class_R: Ints, detector: str
    ) -> list[Finding]:
        findings: list[Finding] = []
        shared_T, compared_T = _shared_rows(checksums, class_R)
        for t in np.flatnonzero(compared_T).tolist():
            repeat = self._repeats.get(metric)
            if not shared_T[t]:
                self._last_clean[metric] = int(block.iteration_T[t])
                if repeat is not None and repeat.in_a_row < PERSISTENT_CHECKS:
                    del self._repeats[metric]
                continue
            if repeat is None:
                repeat = self._repeats[metric] = self._opened(block, metric, checksums, class_R, t)
            repeat.in_a_row += 1
            if repeat.in_a_row in (1, PERSISTENT_CHECKS):
                findings.append(_evidence(block.attempt, metric, repeat, detector))
        return findings

    def _opened(
        self, block: IterationBlock, metric: str, checksums: ChecksumBlock, class_R: Ints, t: int
    ) -> _Repeat:
        ranks_R = block.ranks_R
        present_R = checksums.present_TR[t] & (class_R != NO_CLASS)
        return _Repeat(
            iteration=int(block.iteration_T[t]),
            microbatch=int(block.microbatch_T[t]),
            last_clean=self._last_clean.get(metric),
            ranks=ranks_R[_who_shares(checksums, class_R, t)].tolist(),
            present=ranks_R[present_R].tolist(),
        )


def _shared_rows(checksums: ChecksumBlock, class_R: Ints) -> tuple[Flags, Flags]:
    """(rows at which two classes hold the same value, rows at which two classes reported)."""
    columns = np.flatnonzero(class_R != NO_CLASS)
    _, least = np.unique(class_R[columns], return_index=True)
    columns = columns[least]  # members of a class are equal anyway, or the vote says so
    present_TC = checksums.present_TR[:, columns]
    compared_T = present_TC.sum(axis=1) >= 2
    order_TC = np.lexsort((checksums.low_TR[:, columns], checksums.high_TR[:, columns], ~present_TC), axis=1)
    low_TC = np.take_along_axis(checksums.low_TR[:, columns], order_TC, axis=1)
    high_TC = np.take_along_axis(checksums.high_TR[:, columns], order_TC, axis=1)
    there_TC = np.take_along_axis(present_TC, order_TC, axis=1)
    same_TC = (low_TC[:, 1:] == low_TC[:, :-1]) & (high_TC[:, 1:] == high_TC[:, :-1]) & there_TC[:, 1:]
    return np.any(same_TC, axis=1, keepdims=True)[:, 0], compared_T


def _who_shares(checksums: ChecksumBlock, class_R: Ints, t: int) -> Flags:
    """Ranks whose value another class holds too."""
    there_R = checksums.present_TR[t] & (class_R != NO_CLASS)
    code_R = codes_of(checksums.low_TR[t], checksums.high_TR[t])[0]
    pairs = np.unique(np.stack([code_R[there_R], class_R[there_R]], axis=1), axis=0)
    codes, classes = np.unique(pairs[:, 0], return_counts=True)
    shares_R: Flags = there_R & np.isin(code_R, codes[classes >= 2])
    return shares_R


def _evidence(attempt: int, metric: str, repeat: _Repeat, detector: str) -> Evidence:
    is_persistent = repeat.in_a_row >= PERSISTENT_CHECKS
    present_R = np.array(repeat.present, np.int32)
    bad_R = np.isin(present_R, repeat.ranks)
    sight = Sight(
        metric=metric,
        iteration=repeat.iteration,
        microbatch=repeat.microbatch,
        ranks_R=present_R,
        bad_R=bad_R,
        clean_R=~bad_R,
    )
    return Evidence(
        detector=detector,
        key=f"{metric}:shared",
        pattern=Pattern.COLLECTIVE_MISMATCH,
        certainty=Certainty.CONFIRMED
        if is_persistent and repeat.last_clean is not None
        else Certainty.SUSPECTED,
        metric=metric,
        attempt=attempt,
        iteration=repeat.iteration,
        first_bad=repeat.iteration,
        last_clean=repeat.last_clean,
        alarm_iteration=repeat.iteration,
        microbatch=repeat.microbatch,
        ranks=tuple(repeat.ranks),
        is_tie=True,
        statistic=float(len(repeat.ranks)),
        threshold=1.0,
        direction=Direction.DIFFERS,
        supporting=not is_persistent,
        detail={"relation": "distinct over dp", "note": "these ranks read the same data"},
        sights=(sight,),
    )

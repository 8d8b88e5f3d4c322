"""What aligned telemetry looks like: records as columns, then iterations × ranks.

Axes: N records, T positions (iteration, microbatch), R ranks.

A value and whether it was reported are two arrays everywhere: NaN is an observation, absence is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from firstfault.contracts import BUILT_IN, Contracts
from firstfault.mesh import Layout
from firstfault.telemetry import Event

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ranks = NDArray[np.int32]
Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """One numeric metric of N records. ``inferred_N`` marks a NaN that a reader concluded."""

    values_N: Floats
    present_N: Flags
    inferred_N: Flags | None = None


@dataclass(frozen=True, slots=True)
class ChecksumColumn:
    """One checksum metric of N records: 128 bits as two words."""

    high_N: Words
    low_N: Words
    present_N: Flags


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line or value that was not understood: counted and kept, never raised.

    ``field`` names what was wrong (``line`` for the whole), ``rule`` what must hold, ``value`` what
    came, cut to a readable length. ``whole`` tells a rejected record from a rejected value of a
    record that was kept. ``source`` and ``offset`` say where it came from.
    """

    field: str
    rule: str
    value: str
    whole: bool
    source: str = ""
    offset: int = -1
    raw: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatch:
    """N records as columns, in arrival order, of any number of runs.

    ``run_N`` indexes ``runs``. ``rank_N`` is `UNNAMED_RANK` for a record without a rank,
    ``microbatch_N`` is `WHOLE_ITERATION` where none was given, ``time_N`` NaN where none was.
    ``events`` carry the number of records before them, so that arrival order is kept.
    """

    runs: tuple[str, ...]
    run_N: NDArray[np.int32]
    attempt_N: NDArray[np.int32]
    rank_N: Ranks
    iteration_N: Ints
    microbatch_N: NDArray[np.int32]
    time_N: Floats
    numbers: Mapping[str, NumberColumn] = field(default_factory=dict)
    checksums: Mapping[str, ChecksumColumn] = field(default_factory=dict)
    labels: tuple[tuple[int, str, str], ...] = ()
    """(record index, label name, text): sparse, since labels are few."""
    events: tuple[tuple[int, Event], ...] = ()
    rejected: tuple[Rejected, ...] = ()
    origins: frozenset[tuple[str, str]] | None = None
    """(run, part of the source) of everything in the batch; None from a source without parts. A part is
    what one worker reads as a whole, and a `Rejected` names it as its ``source``."""

    def __len__(self) -> int:
        return len(self.iteration_N)


@dataclass(frozen=True, slots=True)
class NumberBlock:
    """One numeric metric over T positions × R ranks, C-contiguous."""

    values_TR: Floats
    present_TR: Flags
    inferred_TR: Flags | None = None

    def rows(self, part: slice) -> NumberBlock:
        """The positions ``part`` alone, as views."""
        inferred = None if self.inferred_TR is None else self.inferred_TR[part]
        return NumberBlock(self.values_TR[part], self.present_TR[part], inferred)


@dataclass(frozen=True, slots=True)
class ChecksumBlock:
    """One checksum metric over T positions × R ranks: 128 bits as two words."""

    high_TR: Words
    low_TR: Words
    present_TR: Flags

    def rows(self, part: slice) -> ChecksumBlock:
        """The positions ``part`` alone, as views."""
        return ChecksumBlock(self.high_TR[part], self.low_TR[part], self.present_TR[part])


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeats:
    """The furthest position that each of R ranks said it is at, ascending by rank.

    ``phase_R`` is -1 where no known phase was named; ``since_R`` is the first time at that position and
    ``newest_R`` the newest time of the rank, NaN where no heartbeat had one.
    """

    ranks_R: Ranks
    iteration_R: Ints
    phase_R: NDArray[np.int8]
    since_R: Floats
    newest_R: Floats


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class IterationBlock:
    """Settled positions of one attempt, ascending; nothing earlier will ever come.

    Blocks of one attempt follow each other without overlap; how positions are cut into blocks
    carries no meaning (law 4). ``ranks_R`` is ascending and may grow from block to block. The
    layout and the contracts are the same over a block: a change starts a new one. ``events`` have positions
    inside or before this block and were in no earlier one; they apply before the block's positions.
    """

    run: str
    attempt: int
    iteration_T: Ints
    microbatch_T: NDArray[np.int32]
    ranks_R: Ranks
    numbers: Mapping[str, NumberBlock] = field(default_factory=dict)
    checksums: Mapping[str, ChecksumBlock] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    layout: Layout | None = None
    contracts: Contracts = BUILT_IN
    time_T: Floats = field(default_factory=lambda: np.empty(0))
    """Newest record time at each position, seconds since 1970; NaN where no record had one."""
    heartbeats: Heartbeats | None = None
    """Where the ranks are now; on the last of the blocks that a verdict is asked with, and there alone."""

    def __len__(self) -> int:
        return len(self.iteration_T)

"""Cases of the detectors that hold a rank against its peers, and of `stall`.

Axes: T iterations, R ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from detectors.joint import Joint
from detectors.peer_outlier import PeerOutlier
from detectors.slowdown import Slowdown
from detectors.stall import Stall
from ingest.blocks import Floats
from tests.block_builders import block, masked

from .case import Case, Run

SIGMA = 0.1
"""Noise of a norm from rank to rank, relative."""
Draw = Callable[[np.random.Generator], Run]


def peer_outlier() -> list[Case]:
    """Lasting shifts and single steps in units of the noise, and healthy ranks of several kinds."""
    shifts = [
        Case(name=f"{ranks} ranks, one shifts by {shift:g} σ", make=PeerOutlier, draw=_shift(shift, ranks))
        for shift, ranks in ((0.5, 8), (1.0, 8), (2.0, 8), (1.0, 3), (1.0, 64))
    ]
    return [
        *shifts,
        *(
            Case(name=f"8 ranks, one step of {size:g} σ", make=PeerOutlier, draw=_step(size))
            for size in (8.0, 12.0)
        ),
        Case(name="healthy, 8 ranks", make=PeerOutlier, draw=_shift(0.0, 8)),
        Case(name="healthy, 64 ranks", make=PeerOutlier, draw=_shift(0.0, 64), runs=50),
        Case(name="healthy, Student's t of 4 degrees", make=PeerOutlier, draw=_shift(0.0, 8, freedom=4)),
    ]


def slowdown() -> list[Case]:
    """One rank that gets slower, all that do, and a job with checkpoints."""
    return [
        *(
            Case(
                name=f"one of 8 ranks takes {factor:g} times as long",
                make=Slowdown,
                draw=_slow(factor, of_all=False),
            )
            for factor in (1.3, 1.6)
        ),
        *(
            Case(
                name=f"all ranks take {factor:g} times as long",
                make=Slowdown,
                draw=_slow(factor, of_all=True),
            )
            for factor in (1.6, 2.0)
        ),
        Case(name="healthy, checkpoints of 20 steps' length", make=Slowdown, draw=_slow(1.0, of_all=True)),
    ]


def joint() -> list[Case]:
    """Two metrics of a rank that go together no more, each looking as ever."""
    return [
        *(
            Case(
                name=f"8 ranks, correlation of {c:g} to 0 on one",
                make=Joint,
                draw=_apart(c, is_healthy=False),
                runs=40,
            )
            for c in (0.8, 0.9, 0.97)
        ),
        Case(name="healthy, 8 ranks", make=Joint, draw=_apart(0.9, is_healthy=True), runs=40),
    ]


def stall() -> list[Case]:
    """A rank that stops reporting, by records alone; and ranks of unequal cadence that go on."""
    return [
        Case(name="one of 8 ranks falls silent", make=Stall, draw=_silent((1,)), is_live=True),
        Case(
            name="one of 8 falls silent, cadence 1 to 20", make=Stall, draw=_silent((1, 5, 20)), is_live=True
        ),
        Case(
            name="healthy, cadence 1 to 20, records lost",
            make=Stall,
            draw=_silent((1, 5, 20), is_healthy=True),
        ),
    ]


def _shift(shift: float, ranks: int, *, freedom: int | None = None) -> Draw:
    def draw(rng: np.random.Generator) -> Run:
        shape = (2000, ranks)
        noise_TR = rng.normal(size=shape) if freedom is None else rng.standard_t(freedom, shape)
        norm_TR = np.exp(SIGMA * noise_TR)
        if not shift:
            return Run(block=block(local_grad_norm=norm_TR))
        rank, onset = int(rng.integers(ranks)), int(rng.integers(500, 1300))
        norm_TR[onset:, rank] *= np.exp(shift * SIGMA)
        return Run(block=block(local_grad_norm=norm_TR), onset=onset, ranks=(rank,))

    return draw


def _step(size: float) -> Draw:
    """One wild row stays a suspicion: nothing repeats itself."""

    def draw(rng: np.random.Generator) -> Run:
        norm_TR = np.exp(SIGMA * rng.normal(size=(1200, 8)))
        rank, onset = int(rng.integers(8)), int(rng.integers(500, 1000))
        norm_TR[onset, rank] *= np.exp(size * SIGMA)
        return Run(block=block(local_grad_norm=norm_TR), onset=onset, ranks=(rank,))

    return draw


def _slow(factor: float, *, of_all: bool) -> Draw:
    def draw(rng: np.random.Generator) -> Run:
        time_TR: Floats = 0.5 * np.exp(rng.normal(0.0, 0.03, (1200, 8)))
        time_TR[:: int(rng.integers(40, 80))] *= 20.0
        if factor == 1.0:
            return Run(block=block(step_time_s=time_TR))
        rank, onset = int(rng.integers(8)), int(rng.integers(300, 900))
        time_TR[onset:, slice(None) if of_all else rank] *= factor
        return Run(block=block(step_time_s=time_TR), onset=onset, ranks=() if of_all else (rank,))

    return draw


def _apart(correlation: float, *, is_healthy: bool) -> Draw:
    def draw(rng: np.random.Generator) -> Run:
        whole_TR, own_TR = rng.normal(size=(2, 2400, 8))
        shared_TR = whole_TR.copy()
        rank, onset = int(rng.integers(8)), int(rng.integers(1300, 1900))
        if not is_healthy:
            shared_TR[onset:, rank] = rng.normal(size=len(whole_TR) - onset)
        part_TR = correlation * shared_TR + np.sqrt(1 - correlation**2) * own_TR
        whole = block(grad_absmax=np.exp(SIGMA * part_TR), loss=np.exp(SIGMA * whole_TR))
        return Run(block=whole, onset=None if is_healthy else onset, ranks=() if is_healthy else (rank,))

    return draw


def _silent(cadences: Sequence[int], *, is_healthy: bool = False) -> Draw:
    def draw(rng: np.random.Generator) -> Run:
        T, ranks = 900, 8
        cadence_R = rng.choice(cadences, ranks)
        cadence_R[0] = 1
        absent_TR = np.arange(T)[:, None] % cadence_R != 0
        absent_TR |= (rng.random((T, ranks)) < 0.05) & (np.arange(ranks) > 0)
        rank, onset = int(rng.integers(1, ranks)), int(rng.integers(200, 400))
        if not is_healthy:
            absent_TR[onset:, rank] = True
        whole = block(loss=masked(rng.normal(2.0, 0.1, (T, ranks)), absent_TR))
        return Run(block=whole, onset=None if is_healthy else onset, ranks=() if is_healthy else (rank,))

    return draw

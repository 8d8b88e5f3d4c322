"""Arrange iteration blocks in one call, and cut them every way the law of cutting allows.

Axes: T positions, R ranks.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from detectors.base import Detector
from detectors.evidence import Annotation, Evidence, Finding
from firstfault.mesh import Layout
from firstfault.telemetry import (
    FOLDED_BITS,
    WHOLE_ITERATION,
    Event,
    EventKind,
    fold_checksum,
    is_checksum,
)
from ingest.blocks import ChecksumBlock, Flags, IterationBlock, NumberBlock

Column: TypeAlias = NumberBlock | ChecksumBlock
Findings: TypeAlias = dict[tuple[str, str, str], Finding]
WORD = (1 << 64) - 1


def block(
    metrics: Mapping[str, ArrayLike] | None = None,
    /,
    *,
    iterations: ArrayLike | None = None,
    ranks: ArrayLike | None = None,
    microbatches: ArrayLike | None = None,
    attempt: int = 0,
    events: Sequence[Event] = (),
    layout: Layout | None = None,
    time: ArrayLike | None = None,
    **named: ArrayLike,
) -> IterationBlock:
    """A block of metrics given as T × R (or T, for one rank), by keyword or, for ``a/b``, in a mapping.

    What is masked in a ``numpy.ma`` array was not reported; NaN was. Names that end in ``_checksum``
    take integers or hexadecimal text. Iterations default to 0, 1, …, ranks to 0, 1, ….

    >>> block(loss=[[2.0, 2.1], [1.9, float("nan")]]).numbers["loss"].values_TR.shape
    (2, 2)
    """
    given = {**(metrics or {}), **named}
    arrays = {name: _two_axes(values) for name, values in given.items()}
    shape = next(iter(arrays.values())).shape if arrays else (len(np.atleast_1d(iterations or [])), 0)
    iteration_T = np.arange(shape[0]) if iterations is None else np.asarray(iterations)
    ranks_R = np.arange(shape[1]) if ranks is None else np.asarray(ranks)
    assert (len(iteration_T), len(ranks_R)) == shape, f"axes {len(iteration_T)}, {len(ranks_R)} but {shape}"
    numbers, checksums = {}, {}
    for name, values_TR in arrays.items():
        assert values_TR.shape == shape, f"{name} has shape {values_TR.shape}, others {shape}"
        if is_checksum(name):
            checksums[name] = checksum_block(values_TR)
        else:
            numbers[name] = number_block(values_TR)
    whole_T = np.full(shape[0], WHOLE_ITERATION, np.int32)
    return IterationBlock(
        run="run",
        attempt=attempt,
        iteration_T=iteration_T.astype(np.int64),
        microbatch_T=whole_T if microbatches is None else np.asarray(microbatches, np.int32),
        ranks_R=ranks_R.astype(np.int32),
        numbers=numbers,
        checksums=checksums,
        events=tuple(events),
        layout=layout,
        time_T=np.full(shape[0], np.nan) if time is None else np.asarray(time, np.float64),
    )


def number_block(values_TR: Any) -> NumberBlock:
    """Values of T × R; masked cells were not reported (and hold NaN, as the aligner leaves them)."""
    present_TR = ~np.ma.getmaskarray(values_TR)
    plain_TR = np.where(present_TR, np.ma.getdata(values_TR).astype(np.float64), np.nan)
    return NumberBlock(np.ascontiguousarray(plain_TR), np.ascontiguousarray(present_TR))


def checksum_block(values_TR: Any) -> ChecksumBlock:
    """Checksums of T × R, integers or hexadecimal text; masked cells were not reported."""
    present_TR = ~np.ma.getmaskarray(values_TR)
    data_TR = np.ma.getdata(values_TR)
    if data_TR.dtype.kind in "iu":
        low_TR = np.where(present_TR, data_TR, 0).astype(np.uint64)
        return ChecksumBlock(np.zeros_like(low_TR), low_TR, np.ascontiguousarray(present_TR))
    words = [
        _words(value) if is_there else (0, 0)
        for value, is_there in zip(data_TR.flat, present_TR.flat, strict=True)
    ]
    both = np.array(words, np.uint64).reshape(*data_TR.shape, 2)
    return ChecksumBlock(
        np.ascontiguousarray(both[..., 0]),
        np.ascontiguousarray(both[..., 1]),
        np.ascontiguousarray(present_TR),
    )


def masked(values: ArrayLike, absent: ArrayLike) -> Any:
    """``values`` with the cells of ``absent`` not reported."""
    return np.ma.MaskedArray(
        np.asarray(values), mask=np.array(np.broadcast_to(np.asarray(absent, bool), np.shape(values)))
    )


def event(kind: EventKind, iteration: int = 0, *, rank: int = 0, attempt: int = 0, **fields: object) -> Event:
    """An event of run ``run``."""
    return Event(kind=kind, run="run", rank=rank, iteration=iteration, attempt=attempt, fields=fields)


def data_parallel(ranks: int, *, sharding: str = "none", device: str = "H200") -> Layout:
    """A plain data parallel mesh on one device model."""
    return mesh([("dp", ranks)], sharding=sharding, device=device)


def mesh(axes: Sequence[tuple[str, int]], *, sharding: str = "none", device: str = "H200") -> Layout:
    """A mesh of ordered axes, slowest first, on one device model (unknown when empty)."""
    sizes = [size for _, size in axes]
    places = {
        rank: tuple(int(c) for c in np.unravel_index(rank, sizes)) for rank in range(int(np.prod(sizes)))
    }
    devices = dict.fromkeys(places, device) if device else {}
    return Layout(
        axes=tuple(axis for axis, _ in axes), coordinates=places, sharding=sharding, devices=devices
    )


def cut(whole: IterationBlock, at: Iterable[int]) -> list[IterationBlock]:
    """The block cut before the positions ``at``; a cut inside an iteration moves to its beginning.

    As the aligner would have it, a piece knows only the ranks that reported so far, the metrics
    that somebody reported in it, and the events up to its last iteration that no piece had before.
    """
    first_of_T = np.searchsorted(whole.iteration_T, whole.iteration_T, side="left")
    inner = {int(first_of_T[t]) for t in at if 0 < t < len(whole)} - {0}
    edges = [0, *sorted(inner), len(whole)]
    columns: list[Column] = [*whole.numbers.values(), *whole.checksums.values()]
    seen_TR = np.logical_or.reduce([column.present_TR for column in columns])
    told = 0
    events = sorted(whole.events, key=lambda event: event.iteration)
    pieces = []
    for start, stop in itertools.pairwise(edges):
        is_last = stop == len(whole)
        known = len(events) if is_last else sum(e.iteration <= whole.iteration_T[stop - 1] for e in events)
        pieces.append(_piece(whole, start, stop, seen_TR[:stop].any(axis=0), tuple(events[told:known])))
        told = known
    return pieces


def one_at_a_time(whole: IterationBlock) -> list[IterationBlock]:
    """A piece per iteration."""
    return cut(whole, range(len(whole)))


def random_cuts(whole: IterationBlock, rng: np.random.Generator, pieces: int = 7) -> list[IterationBlock]:
    """Some pieces of random length."""
    return cut(whole, rng.integers(0, len(whole) + 1, size=pieces - 1).tolist())


def run(detector: Detector, blocks: Iterable[IterationBlock], *, finish: bool = True) -> Findings:
    """The findings a detector is left with, by kind and key: of equal keys the last one counts."""
    findings: Findings = {}
    for piece in blocks:
        keep(findings, detector.update(piece))
    if finish:
        keep(findings, detector.finish())
    return findings


def keep(findings: Findings, new: Iterable[Finding]) -> None:
    """Let ``new`` replace what has the same key."""
    for finding in new:
        if isinstance(finding, Evidence):
            findings["evidence", finding.detector, finding.key] = finding
        else:
            findings["annotation", finding.kind, finding.key] = finding


def evidence_in(findings: Findings) -> list[Evidence]:
    """The evidence among ``findings``, by first bad iteration."""
    return sorted(
        (f for f in findings.values() if isinstance(f, Evidence)), key=lambda e: (e.first_bad, e.key)
    )


def annotations_in(findings: Findings) -> list[Annotation]:
    """The annotations among ``findings``, by iteration."""
    return sorted(
        (f for f in findings.values() if isinstance(f, Annotation)), key=lambda a: (a.iteration, a.key)
    )


def canonical(value: object) -> object:
    """A value that compares equal exactly when the finding, or state, is the same to the byte."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return (type(value).__name__, *((f.name, canonical(getattr(value, f.name))) for f in fields))
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, Mapping):
        return ("mapping", *sorted((repr(key), canonical(each)) for key, each in value.items()))
    if isinstance(value, list | tuple):
        return (type(value).__name__, *(canonical(each) for each in value))
    return repr(value)


def _two_axes(values: ArrayLike) -> Any:
    array = values if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    return array[:, None] if array.ndim == 1 else array


def _words(value: object) -> tuple[int, int]:
    folded = fold_checksum(int(value, 16) if isinstance(value, str) else int(str(value)))
    assert folded < 1 << FOLDED_BITS
    return folded >> 64, folded & WORD


def _piece(
    whole: IterationBlock, start: int, stop: int, known_R: Flags, events: tuple[Event, ...]
) -> IterationBlock:
    def some(array_TR: Any) -> Any:
        return np.ascontiguousarray(array_TR[start:stop][:, known_R])

    return dataclasses.replace(
        whole,
        iteration_T=whole.iteration_T[start:stop].copy(),
        microbatch_T=whole.microbatch_T[start:stop].copy(),
        ranks_R=whole.ranks_R[known_R].copy(),
        numbers={
            name: NumberBlock(
                some(column.values_TR),
                some(column.present_TR),
                None if column.inferred_TR is None else some(column.inferred_TR),
            )
            for name, column in whole.numbers.items()
            if column.present_TR[start:stop].any()
        },
        checksums={
            name: ChecksumBlock(some(column.high_TR), some(column.low_TR), some(column.present_TR))
            for name, column in whole.checksums.items()
            if column.present_TR[start:stop].any()
        },
        events=events,
        time_T=whole.time_T[start:stop].copy(),
    )

"""The streams of one process (its output and its errors, a log file beside them) read as one.

They often hold the same records twice, rounded differently or counted differently (a progress bar beside
a logger), so values are taken from one of them alone; the others add their events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from .blocks import RecordBatch
from .joining import concatenate
from .merge import merge

_CURVES = ("loss", "global_loss", "grad_norm", "local_grad_norm")
"""Metrics by which the stream of the records is told."""


def join_streams(
    streams: Sequence[Iterator[RecordBatch]], on_left: Callable[[int, int], None]
) -> Iterator[RecordBatch]:
    """The records of the stream that reports curves, with the events of all.

    The first batch of each decides, the earlier stream between equals. ``on_left`` is told the place of
    each other stream that holds records, and of the one that was taken instead.
    """
    heads = [next(stream, None) for stream in streams]
    scores = [(0, 0) if head is None else _score(head) for head in heads]
    main = scores.index(max(scores))
    cursors: list[Iterator[RecordBatch]] = []
    for at, (head, rest) in enumerate(zip(heads, streams, strict=True)):
        whole: Iterator[RecordBatch] = chain([] if head is None else [head], rest)
        if at != main:
            if head is not None and len(head):
                on_left(at, main)
            whole = _events_only(whole)
        cursors.append(whole)
    yield from merge(cursors)


def _score(head: RecordBatch) -> tuple[int, int]:
    curves = max(
        (int(head.numbers[name].present_N.sum()) for name in _CURVES if name in head.numbers), default=0
    )
    return curves, len(head)


def _events_only(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    for batch in batches:
        if batch.events:
            yield replace(concatenate([]), events=tuple((0, event) for _, event in batch.events))

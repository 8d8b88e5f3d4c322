"""Alignment in both shapes: nanoseconds a value, and how that changes with ranks and run length.

Axes: N records.

    python -m bench.alignment
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from firstfault.telemetry import WHOLE_ITERATION
from ingest.alignment import RunAligner
from ingest.blocks import Ints, NumberColumn, RecordBatch

METRICS = 5


def main() -> None:
    """Print one line a figure."""
    tall = ns_a_value(tall_batches(1_000_000))
    print(f"align 1 rank x 1 000 000 iterations: {tall:.0f} ns a value", flush=True)
    small = ns_a_value(wide_batches(10_000, 150))
    large = ns_a_value(wide_batches(100_000, 15))
    print(f"align 100 000 ranks: {large:.0f} ns a value, {large / small:.2f} x of 10 000 ranks", flush=True)
    aligner = RunAligner("bench")
    first = ns_a_value(polls(0, 2000), aligner)
    ns_a_value(polls(2000, 98_000), aligner)
    last = ns_a_value(polls(98_000, 100_000), aligner)
    print(f"align after 98 000 iterations: {last / first:.2f} x of the first 2000", flush=True)


def tall_batches(iterations: int) -> Iterator[RecordBatch]:
    """One rank, pieces of 65536 iterations."""
    for begin in range(0, iterations, 1 << 16):
        yield batch(np.arange(begin, begin + (1 << 16)), np.zeros(1 << 16, np.int64))


def wide_batches(ranks: int, iterations: int) -> Iterator[RecordBatch]:
    """All ranks of one iteration a batch."""
    for iteration in range(iterations):
        yield batch(np.full(ranks, iteration), np.arange(ranks))


def polls(begin: int, stop: int) -> Iterator[RecordBatch]:
    """Eight ranks in polls of 496 records, as a consumer sees them."""
    for at in range(begin, stop, 62):
        yield batch(np.repeat(np.arange(at, at + 62), 8), np.tile(np.arange(8), 62))


def batch(iteration_N: Ints, rank_N: Ints) -> RecordBatch:
    """Records with five numbers each."""
    count = len(iteration_N)
    rng = np.random.default_rng(0)
    columns = {f"m{at}": NumberColumn(rng.random(count), np.ones(count, np.bool_)) for at in range(METRICS)}
    return RecordBatch(
        runs=("bench",),
        run_N=np.zeros(count, np.int32),
        attempt_N=np.zeros(count, np.int32),
        rank_N=rank_N.astype(np.int32),
        iteration_N=iteration_N.astype(np.int64),
        microbatch_N=np.full(count, WHOLE_ITERATION, np.int32),
        time_N=np.full(count, np.nan),
        numbers=columns,
    )


def ns_a_value(batches: Iterator[RecordBatch], aligner: RunAligner | None = None) -> float:
    """Time of aligning the batches, without that of making them."""
    aligner = aligner or RunAligner("bench")
    spent, values = 0.0, 0
    for one in batches:
        begin = time.perf_counter()
        aligner.push(one)
        spent += time.perf_counter() - begin
        values += METRICS * len(one)
    return 1e9 * spent / values


if __name__ == "__main__":
    main()

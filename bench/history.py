"""What telemetry history costs the worker, and what the pyramid saves the reader.

    python -m bench.history

Baselines: ``numpy.median`` alone over the same values; a curve made of every row of the run.
Axes: T positions, R ranks.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from firstfault.telemetry import WHOLE_ITERATION
from ingest.blocks import ChecksumBlock, IterationBlock, NumberBlock
from service.history_config import HistoryConfig
from service.history_reader import HistoryReader
from service.history_writer import HistoryWriter
from service.run_id import run_id_of

NUMBERS, CHECKSUMS = 8, 2
CASES = ((8, 20_000, 500), (1000, 1000, 64), (10_000, 150, 50))
"""Ranks, iterations, and iterations between two flushes: as many as five seconds may bring."""
LONG_RUN = 1_000_000


def main() -> int:
    """Print µs an iteration of ten metrics for each size of job, then what a curve costs to read."""
    with tempfile.TemporaryDirectory() as folder:
        for ranks, iterations, flushed in CASES:
            cost(Path(folder) / str(ranks), ranks, iterations, flushed)
        catching_up(Path(folder) / "bulk")
        reading(Path(folder) / "long")
    return 0


def cost(folder: Path, ranks: int, iterations: int, flushed: int) -> None:
    """A live run, a block an iteration, and all that is written for it."""
    rng = np.random.default_rng(0)
    blocks = [made(rng, ranks, at, 1) for at in range(32)]
    median_s = seconds(
        lambda: [np.median(one.values_TR, axis=1) for b in blocks for one in b.numbers.values()]
    )
    writer = HistoryWriter(folder, HistoryConfig(budget_bytes=8 << 30))
    writer.update(made(rng, ranks, 0, 1))
    writer.flush()  # the first file loads the library that writes it
    update_s, flush_s = 0.0, 0.0
    for start in range(1, iterations, flushed):
        fresh = [shifted(blocks[at % len(blocks)], start + at) for at in range(flushed)]
        update_s += seconds(lambda fresh=fresh: take(writer, fresh))  # type: ignore[misc]
        flush_s += seconds(writer.flush)
    print(
        f"history {ranks:6} ranks: {1e6 * update_s / iterations:7.1f} µs to take an iteration, "
        f"{1e6 * flush_s / iterations:8.1f} µs to write it; "
        f"medians alone {1e6 * median_s / len(blocks):8.1f} µs; "
        f"{writer.health()['used_bytes'] / iterations:.0f} bytes on disk"
    )


def catching_up(folder: Path) -> None:
    """Eight ranks, thousands of iterations a block."""
    rng = np.random.default_rng(0)
    blocks = [made(rng, 8, start, 4000) for start in range(0, 200_000, 4000)]
    writer = HistoryWriter(folder)
    spent_s = seconds(lambda: take(writer, blocks)) + seconds(writer.flush)
    print(f"history      8 ranks, blocks of 4000: {1e6 * spent_s / 200_000:.1f} µs an iteration in all")


def take(writer: HistoryWriter, blocks: Sequence[IterationBlock]) -> None:
    """Hand over the blocks one by one."""
    for one in blocks:
        writer.update(one)


def reading(folder: Path) -> None:
    """The curve of a run of a million iterations, by the pyramid and by every row."""
    rng = np.random.default_rng(0)
    writer = HistoryWriter(folder)
    for start in range(0, LONG_RUN, 5000):
        writer.update(made(rng, 4, start, 5000))
        writer.flush()
    reader, run_id = HistoryReader(folder), run_id_of("bench")
    whole_s = seconds(lambda: reader.curve(run_id, 0, "metric3", points=1000))
    part_s = seconds(lambda: reader.curve(run_id, 0, "metric3", 500_000, 501_000, points=1000))
    every_s = seconds(lambda: reader.curve(run_id, 0, "metric3", points=LONG_RUN))
    print(
        f"history, 1000 points: whole run {1e3 * whole_s:.1f} ms, 1000 iterations {1e3 * part_s:.1f} ms, "
        f"all {LONG_RUN} rows {1e3 * every_s:.0f} ms"
    )


def made(rng: np.random.Generator, ranks: int, start: int, positions: int) -> IterationBlock:
    """A block of noise: ten metrics of every rank."""
    present_TR = np.ones((positions, ranks), np.bool_)
    return IterationBlock(
        run="bench",
        attempt=0,
        iteration_T=start + np.arange(positions),
        microbatch_T=np.full(positions, WHOLE_ITERATION, np.int32),
        ranks_R=np.arange(ranks, dtype=np.int32),
        numbers={
            f"metric{at}": NumberBlock(rng.normal(size=(positions, ranks)), present_TR)
            for at in range(NUMBERS)
        },
        checksums={
            f"param_checksum/{at}": ChecksumBlock(
                np.zeros((positions, ranks), np.uint64),
                np.repeat(rng.integers(0, 1 << 62, size=(positions, 1), dtype=np.uint64), ranks, axis=1),
                present_TR,
            )
            for at in range(CHECKSUMS)
        },
        time_T=np.arange(start, start + positions, dtype=np.float64),
    )


def shifted(one: IterationBlock, start: int) -> IterationBlock:
    """The same values at another iteration."""
    return IterationBlock(
        run=one.run,
        attempt=one.attempt,
        iteration_T=np.array([start]),
        microbatch_T=one.microbatch_T,
        ranks_R=one.ranks_R,
        numbers=one.numbers,
        checksums=one.checksums,
        time_T=one.time_T,
    )


def seconds(work: Callable[[], object]) -> float:
    """Processor time it takes, all threads together: what a busy machine does not change."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


if __name__ == "__main__":
    raise SystemExit(main())

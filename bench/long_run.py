"""What grows with the length of a run, or with its ranks: processor time an iteration, and memory.

    python -m bench.long_run [--iterations 100000]

Eight ranks in polls of 496 records, as a consumer sees them, through alignment and every detector; then a
run of 10 000 ranks in the same process, whose memory comes on top.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator

import numpy as np

from firstfault.telemetry import WHOLE_ITERATION
from ingest.blocks import Ints, NumberColumn, RecordBatch
from service.pipeline import Pipeline

POLL = 62
"""Iterations of eight ranks in a poll."""
PART = 10_000
"""Iterations timed as one."""


def main() -> None:
    """Print one line a figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=100_000)
    iterations = parser.parse_args().iterations
    pipeline = Pipeline()
    spent(pipeline, polls(0, PART))  # compiles, and learns what goes together
    first = spent(pipeline, polls(PART, 2 * PART))
    spent(pipeline, polls(2 * PART, iterations))
    last = spent(pipeline, polls(iterations, iterations + PART))
    print(
        f"an iteration of 8 ranks after {iterations}: {1e6 * last / PART:.0f} µs of processor time, "
        f"{last / first:.2f} x of iterations {PART} to {2 * PART}; "
        f"snapshot {len(pipeline.snapshot()) / 1e6:.1f} MB",
        flush=True,
    )
    before_mb = peak_mb()
    wide = Pipeline()
    cost = spent(wide, (batch(np.full(10_000, t), np.arange(10_000)) for t in range(200)))
    print(
        f"10 000 ranks: {1e6 * cost / 200 / 10_000:.2f} µs of processor time a sample of 4 metrics, "
        f"{peak_mb() - before_mb:.0f} MB on top of {before_mb:.0f}",
        flush=True,
    )


def polls(begin: int, stop: int) -> Iterator[RecordBatch]:
    """Eight ranks, poll by poll."""
    for at in range(begin, stop, POLL):
        count = min(POLL, stop - at)
        yield batch(np.repeat(np.arange(at, at + count), 8), np.tile(np.arange(8), count))


def batch(iteration_N: Ints, rank_N: Ints) -> RecordBatch:
    """Records of a healthy run: a loss that falls, noise, and a norm that all agree on."""
    count = len(iteration_N)
    rng = np.random.default_rng(int(iteration_N[0]))
    values = {
        "loss": 2.0 + 3.0 / (1.0 + iteration_N / 50.0) + rng.normal(0.0, 0.05, count),
        "local_grad_norm": rng.lognormal(0.0, 0.1, count),
        "grad_norm": 1.0 + 0.1 * np.sin(1e4 * np.sin(iteration_N)),
        "step_time_s": rng.normal(1.0, 0.01, count),
    }
    return RecordBatch(
        runs=("bench",),
        run_N=np.zeros(count, np.int32),
        attempt_N=np.zeros(count, np.int32),
        rank_N=rank_N.astype(np.int32),
        iteration_N=iteration_N.astype(np.int64),
        microbatch_N=np.full(count, WHOLE_ITERATION, np.int32),
        time_N=1.7e9 + iteration_N.astype(np.float64),
        numbers={name: NumberColumn(value_N, np.ones(count, np.bool_)) for name, value_N in values.items()},
    )


def spent(pipeline: Pipeline, batches: Iterator[RecordBatch]) -> float:
    """Seconds of processor time of the pipeline alone."""
    total = 0.0
    for one in batches:
        begin = time.process_time()
        pipeline.feed(one)
        total += time.process_time() - begin
    return total


def peak_mb() -> float:
    """Most memory that this process has taken."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()

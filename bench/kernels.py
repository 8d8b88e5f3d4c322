"""What a value costs the curve detectors, in both shapes, against a bare loop and a bare median.

    python -m bench.kernels

Baselines: a Python loop that keeps an exponential mean of each point, and ``numpy.median`` over ranks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from detectors.curve_drift import CurveDrift
from detectors.explosion import Explosion
from firstfault.telemetry import WHOLE_ITERATION
from ingest.blocks import Floats, IterationBlock, NumberBlock

POINTS = 1_000_000
RANKS = 100_000


def main() -> int:
    """Print ns a value of each case; the first call of a compiled fold is apart."""
    rng = np.random.default_rng(0)
    long_TR = 2.0 + 0.05 * rng.normal(size=(POINTS, 1))
    wide_TR = 2.0 + 0.05 * rng.normal(size=(8, RANKS))
    for make in (Explosion, CurveDrift):
        name = make.name
        cold = seconds(lambda make=make: make().update(block_of(long_TR)))  # type: ignore[misc]
        warm = seconds(lambda make=make: make().update(block_of(long_TR)))  # type: ignore[misc]
        wide = seconds(lambda make=make: make().update(block_of(wide_TR)))  # type: ignore[misc]
        print(f"{name:12} 1 rank x {POINTS}: {1e9 * warm / POINTS:7.1f} ns a value, first call {cold:.2f} s")
        print(f"{name:12} {RANKS} ranks x 8: {1e9 * wide / wide_TR.size:7.1f} ns a value")
    print(
        f"{'loop':12} 1 rank x {POINTS}: {1e9 * seconds(lambda: bare_loop(long_TR)) / POINTS:7.1f} ns a value"
    )
    median = seconds(lambda: np.median(wide_TR, axis=1))
    print(f"{'np.median':12} {RANKS} ranks x 8: {1e9 * median / wide_TR.size:7.1f} ns a value")
    return 0


def block_of(values_TR: Floats) -> IterationBlock:
    """Losses as one block, every value present."""
    T, R = values_TR.shape
    return IterationBlock(
        run="bench",
        attempt=0,
        iteration_T=np.arange(T, dtype=np.int64),
        microbatch_T=np.full(T, WHOLE_ITERATION, np.int32),
        ranks_R=np.arange(R, dtype=np.int32),
        numbers={"loss": NumberBlock(values_TR, np.ones(values_TR.shape, np.bool_))},
    )


def bare_loop(values_TR: Floats) -> float:
    """The least a per-point Python detector does."""
    mean = 0.0
    for value in values_TR[:, 0]:
        mean += 0.1 * (value - mean)
    return mean


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    raise SystemExit(main())

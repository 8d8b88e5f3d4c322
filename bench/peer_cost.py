"""What a value costs the detectors that compare ranks, by the number of ranks.

    python -m bench.peer_cost

Compiled folds, all values in one block. The joint detector folds two metrics and has
learned what goes together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from detectors.base import Detector
from detectors.joint import Joint, JointConfig
from detectors.peer_outlier import PeerOutlier
from detectors.slowdown import Slowdown
from firstfault.telemetry import WHOLE_ITERATION
from ingest.blocks import IterationBlock, NumberBlock

SHAPES = ((100_000, 8), (600, 1000), (600, 10_000))
"""Iterations × ranks."""
CASES: tuple[tuple[Callable[[], Detector], tuple[str, ...]], ...] = (
    (PeerOutlier, ("local_grad_norm",)),
    (Slowdown, ("step_time_s",)),
    (lambda: Joint(JointConfig(fit_after=256)), ("local_grad_norm", "local_grad_norm/bucket0")),
)


def main() -> int:
    """Print ns a value of each detector and shape."""
    for make, metrics in CASES:
        for iterations, ranks in SHAPES:
            block = block_of(metrics, iterations, ranks)
            values = iterations * ranks * len(metrics)
            detector = make()
            detector.update(block)  # compiles, and learns
            later = replace(block, iteration_T=block.iteration_T + iterations)
            took = min(seconds(detector, later) for _ in range(2))
            print(f"{make().name:12} {ranks:6} ranks: {1e9 * took / values:6.0f} ns a value", flush=True)
    return 0


def block_of(metrics: tuple[str, ...], iterations: int, ranks: int) -> IterationBlock:
    """Healthy values as one block, every value present; metrics go together."""
    rng = np.random.default_rng(0)
    shape = (iterations, ranks)
    common_TR = rng.normal(size=shape)
    there_TR = np.ones(shape, np.bool_)
    return IterationBlock(
        run="bench",
        attempt=0,
        iteration_T=np.arange(iterations, dtype=np.int64),
        microbatch_T=np.full(iterations, WHOLE_ITERATION, np.int32),
        ranks_R=np.arange(ranks, dtype=np.int32),
        numbers={
            metric: NumberBlock(np.exp(0.1 * common_TR + 0.02 * rng.normal(size=shape)), there_TR)
            for metric in metrics
        },
    )


def seconds(detector: Detector, block: IterationBlock) -> float:
    """Wall time of one update."""
    start = time.perf_counter()
    detector.update(block)
    return time.perf_counter() - start


if __name__ == "__main__":
    raise SystemExit(main())

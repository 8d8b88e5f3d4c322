"""Replay against the bare read: rows per second of a file judged, as a ratio to polars reading it.

Axes: N rows.

    python -m bench.replay [--rows 1000000]

Each figure is one line. Both sides run in the same process, one after the other, best of three for
the bare read, so that the ratio does not depend on how busy the machine is.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from ingest.file_source import FileSource
from ingest.jobs import find_jobs
from service.pipeline import Pipeline


def main() -> None:
    """Print one line a figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        frame = iid_run(rows)
        for kind, write, read in (
            ("jsonl", frame.write_ndjson, pl.read_ndjson),
            ("csv", frame.write_csv, pl.read_csv),
            ("parquet", frame.write_parquet, pl.read_parquet),
        ):
            path = Path(folder) / f"one-rank.{kind}"
            write(path)
            report(kind, rows, path, read)


def iid_run(rows: int) -> pl.DataFrame:
    """One rank whose loss is independent noise: nothing to find, and nothing to compress."""
    rng = np.random.default_rng(1)
    return pl.DataFrame(
        {
            "run": ["bench"] * rows,
            "rank": np.zeros(rows, np.int64),
            "iteration": np.arange(rows),
            "loss": rng.normal(2.5, 0.05, rows),
            "grad_norm": rng.lognormal(0.0, 0.2, rows),
        }
    )


def report(kind: str, rows: int, path: Path, read: Callable[[Path], pl.DataFrame]) -> None:
    """Time both sides on one file and print the ratio."""
    bare_s = min(_seconds(lambda: read(path)) for _ in range(3))
    replay_s = min(_seconds(lambda: replay(path)) for _ in range(2))
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"replay {kind}: {rows / replay_s / 1e6:.2f} M rows/s, {bare_s / replay_s:.2f} x polars' bare read "
        f"({replay_s:.2f} s against {bare_s:.2f} s), process peak {memory_mb:.0f} MB",
        flush=True,
    )


def replay(path: Path) -> None:
    """The whole path of a record over one file, to the verdict."""
    (job,) = find_jobs([str(path)])
    source, pipeline = FileSource(job), Pipeline()
    while not source.is_exhausted:
        for batch in source.poll(0.0):
            pipeline.feed(batch)
    source.close()
    (verdict,) = pipeline.verdicts()
    assert verdict.label == "healthy", verdict.label


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()

"""How fast text logs are scanned to record batches, and with how much memory: ``python -m bench.scan``."""

from __future__ import annotations

import argparse
import random
import resource
import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from firstfault.wire import Defaults
from ingest.scan.scanner import TextScanner

from .scan_texts import TEXTS

MEGABYTE = 1_000_000
_KILO = 1024


def megatron_lines(rng: np.random.Generator, first: int, count: int) -> str:
    """Records as Megatron prints them, an interleaved line of times every tenth."""
    loss_N, norm_N = rng.lognormal(0.9, 0.02, count), rng.lognormal(-1, 0.3, count)
    out: list[str] = []
    for at in range(count):
        iteration = first + at
        out.append(
            f" iteration {iteration:8d}/ 9999999 | consumed samples: {iteration * 512:12d} | elapsed time per"
            f" iteration (ms): {10400 + norm_N[at] * 100:.1f} | learning rate: 3.000E-04 | global batch size:"
            f"   512 | lm loss: {loss_N[at]:.6E} | loss scale: 1.0 | grad norm: {norm_N[at]:.3f} | number of"
            f" skipped iterations:   0 | number of nan iterations:   0 |\n"
        )
        if at % 10 == 0:
            out.append("time (ms) | forward-compute: 205.50 | backward-compute: 81.25 | optimizer: 40.75\n")
    return "".join(out)


def short_lines(rng: np.random.Generator, first: int, count: int) -> str:
    """``step N loss X``: little to read, much to keep."""
    loss_N = rng.lognormal(0.9, 0.02, count)
    return "".join(f"step {first + at} loss {loss_N[at]:.6f}\n" for at in range(count))


KINDS = {"megatron": (megatron_lines, 27_000), "short": (short_lines, 330_000)}
"""Makers of text, and the lines that make about a piece."""


def pieces(kind: str, megabytes: int) -> Iterator[bytes]:
    """Text of a kind, a piece at a time; the same bytes again and again but for the counters."""
    if kind in TEXTS:
        of_text, count = TEXTS[kind]
        make = partial(of_text, random.Random(1))
    else:
        of_numbers, count = KINDS[kind]
        make = partial(of_numbers, np.random.default_rng(1))
    made = 0
    first = 1
    while made < megabytes * MEGABYTE:
        piece = make(first, count).encode()
        first += count
        made += len(piece)
        yield piece


def measure(kind: str, megabytes: int) -> str:
    """One line of result: the scanner is timed alone, not the making of the text."""
    scanner = TextScanner(Defaults(run="bench", rank=None), kind)
    seconds, size, rows = 0.0, 0, 0
    begin = 0
    for at, piece in enumerate(pieces(kind, megabytes)):
        if at == 1:  # compiled and warm
            seconds, size, begin = 0.0, 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.process_time()
        rows += len(scanner.decode(piece))
        seconds += time.process_time() - start
        size += len(piece)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    speed = size / MEGABYTE / seconds
    return (
        f"{kind:10s} {size / MEGABYTE:7.0f} MB  {rows:10d} records  {seconds:6.2f} s  {speed:6.0f} MB/s"
        f"  memory {peak / _KILO:5.0f} MiB, +{(peak - begin) / _KILO:.0f} after the first piece"
    )


def main() -> None:
    """Measure each kind of text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--megabytes", type=int, default=1000, help="of Megatron and short lines; a tenth of the others"
    )
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join([*KINDS, *TEXTS])}; all if none is named")
    options = parser.parse_args()
    for kind in options.kinds or [*KINDS, *TEXTS]:
        megabytes = options.megabytes if kind in KINDS else options.megabytes // 10
        print(measure(kind, megabytes), flush=True)


if __name__ == "__main__":
    main()

"""What a worker loads and compiles, so that no record waits for it.

    python -m service.warm_up        compiles all loops into the cache, and ends with its standard input

Compiling takes half a minute of a core where a release never ran before. A worker has it done by a child
process and judges meanwhile, with the same bits, by the plain form of the loops.
"""

from __future__ import annotations

import gzip
import logging
import os
import subprocess
import sys
import threading
from functools import cache
from importlib.resources import files

import numpy as np

from detectors.kernels import compile_at_first_use, hold_compiling
from ingest.decode import Decoder, RawMessage

from .pipeline import Pipeline
from .supervised import end_with_parent

log = logging.getLogger(__name__)

_LINES = 1600
"""Records of the packaged log to warm up with: 200 iterations of 8 ranks pass every detector's warm-up."""
_NICENESS = 10
"""Records come before what only makes them faster."""


@cache
def load() -> None:
    """Load the libraries that judging needs, by judging a packaged log."""
    import ruptures  # noqa: F401  # an alarm would be the first to ask for it

    log_bytes = gzip.decompress((files("service") / "demo_logs" / "healthy.jsonl.gz").read_bytes())
    lines = log_bytes.split(b"\n", _LINES)[:_LINES]
    pipeline, decoder = Pipeline(), Decoder()
    for at in range(0, len(lines), _LINES // 2):
        pipeline.feed(decoder.decode([RawMessage("", 0, line) for line in lines[at : at + _LINES // 2]]))
    pipeline.verdicts()


class Compiler:
    """Has the loops compiled by a child process; from then on this process takes them from the cache."""

    def __init__(self) -> None:
        hold_compiling()
        # The child ends with its standard input, and so with this process, however that ends.
        self._child = subprocess.Popen(
            [sys.executable, "-m", "service.warm_up"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        threading.Thread(target=self._wait, name="compiler", daemon=True).start()

    def close(self) -> None:
        """End the child if it is still there; safe to call twice."""
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        if self._child.stdin is not None:
            self._child.stdin.close()

    def _wait(self) -> None:
        status = self._child.wait()
        if status:
            log.warning("loops were not compiled beforehand", extra={"status": status})
        compile_at_first_use()


def compile_readers() -> None:
    """Compile what reads large tables and text logs, each on a line."""
    from ingest.number_cells import number_columns
    from ingest.scan import escapes, kernel, kernel_words
    from ingest.scan.pieces import Piece
    from ingest.scan.sieve import Sieve

    number_columns(b"1,2.5\n", ",", 2, compiles=True)
    Piece(b"step 1 loss 2.5\n").by_kernel(Sieve(), *kernel.compiled(), kernel_words.compiled_words())
    escapes.compiled()(np.zeros(1, np.uint8), np.zeros(1, np.uint8))


def compile_all() -> None:
    """Compile everything into the cache."""
    compile_at_first_use()
    load()
    compile_readers()


def main() -> None:
    """Compile everything, and end before that if the parent does."""
    told = threading.Event()
    told.set()  # there is nothing to save, and nothing to say
    end_with_parent(told, grace_s=0.0)
    os.nice(_NICENESS)
    compile_all()


if __name__ == "__main__":
    main()

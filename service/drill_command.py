"""`firstfault drill`: a training job with a fault injected, and what to do with its log."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from firstfault.drill import SCENARIOS, DrillError, run_drill
from firstfault.drill.log import Progress

from .ink import pad, wrap

_COUNTER_EVERY = 10


@contextmanager
def naming_files() -> Iterator[None]:
    """Say of a file or folder that cannot be written which it is: that is nobody's bug.

    Raises:
        DrillError: in the place of the OSError.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # of standard output: the outer edge knows it
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        where = "what a drill writes" if error.filename is None else str(error.filename)
        raise DrillError(f"{where} must be a file or folder that can be written: {error.strerror}") from error


def list_scenarios() -> None:
    """Print each scenario and what it injects."""
    width = max(len(name) for name in SCENARIOS) + 2
    for name, scenario in SCENARIOS.items():
        label = "healthy" if scenario.label == "healthy" else scenario.label.replace("_", " ")
        lines = wrap(f"{scenario.summary} ({label})", first=pad(name, width), rest=" " * width)
        sys.stdout.write("\n".join(lines) + "\n")


def write_drill(
    scenario: str, *, seed: int | None, ranks: int, iterations: int | None, out: Path | None, engine: str
) -> None:
    """Run one drill and say where its log is and how to judge it.

    Raises:
        DrillError: a setting is out of range, or torch is not installed.
    """
    tell_log(
        lambda progress: run_drill(scenario, seed, ranks, iterations, out, engine=engine, progress=progress)
    )


def tell_log(write: Callable[[Progress | None], Path]) -> Path:
    """Write the log of a drill, with a counter on a terminal; say where it is and how to judge it."""
    progress = _show_progress if sys.stderr.isatty() else None
    path = write(progress)
    if progress is not None:
        sys.stderr.write("\r\x1b[K")
    sys.stdout.write(f"{path}\n")
    sys.stderr.write(f"firstfault: judge it with: firstfault replay {shlex.quote(str(path))}\n")
    return path


def write_all(folder: Path) -> None:
    """Run every scenario with its own seed into ``folder``, with the manifest beside them.

    Raises:
        DrillError: torch is not installed.
    """
    from firstfault.drill.samples import write_samples

    for path in write_samples(folder):
        sys.stdout.write(f"{path}\n")


def _show_progress(done: int, total: int) -> None:
    """A counter on the terminal that overwrites itself."""
    if done % _COUNTER_EVERY == 0 or done == total:
        sys.stderr.write(f"\rtraining: iteration {done} of {total}")
        sys.stderr.flush()

"""`firstfault compare`: two logs of one configuration at the same iterations, and the exit status."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from detectors.reference_exact import ExactComparison, compare_exactly
from detectors.reference_outcome import Answer, Outcome, decide
from detectors.reference_windows import WindowComparison, compare_windows
from firstfault.telemetry import Phase
from ingest.blocks import IterationBlock
from ingest.errors import UnreadableInput

from .compare_logs import Log, read_log
from .compare_report import compare_report
from .config import load_settings
from .edge import Exit
from .errors import ConfigError
from .file_options import columns_of, file_config
from .ink import clean, ink_for

_NAMED = 6
"""Metrics named of a log that has nothing in common with the other."""
SCHEMA = 1
"""Raised when a key of the JSON changes its meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """The command's arguments as they were given."""

    first: str
    second: str | None = None
    attempts: str | None = None
    run: str | None = None
    format_name: str | None = None
    columns: tuple[str, ...] = ()
    is_exact: bool = False
    tolerance: float | None = None
    as_json: bool = False
    config: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Two logs, by name, and what came of it."""

    first: str
    second: str
    is_deterministic: bool
    exact: ExactComparison
    windows: tuple[WindowComparison, ...]
    answer: Answer
    strides: tuple[int | None, int | None] = (None, None)
    """The usual step of each counter."""


def run_compare(request: CompareRequest) -> int:
    """Compare, print what was found, and give the exit status.

    Raises:
        ConfigError: arguments that cannot be.
        UnreadableInput: a log that cannot be read, or two without a common iteration.
    """
    compared = compare(request)
    if request.as_json:
        sys.stdout.write(json.dumps(to_plain(compared), sort_keys=True) + "\n")
    else:
        sys.stdout.write(compare_report(to_plain(compared), ink_for(sys.stdout)))
    return {
        Outcome.SAME: Exit.HEALTHY,
        Outcome.DIFFERS: Exit.INCIDENT,
        Outcome.UNKNOWN: Exit.UNUSABLE,
    }[compared.answer.outcome]


def compare(request: CompareRequest) -> Compared:
    """Read both logs and hold them against each other.

    Raises:
        ConfigError: arguments that cannot be.
        UnreadableInput: a log that cannot be read, or two without a common iteration.
    """
    if request.tolerance is not None and not 0.0 < request.tolerance < 1.0:
        raise ConfigError(f"--tolerance must be > 0 and < 1, got {request.tolerance}")
    (first, one), (second, two), is_deterministic = _sides(request)
    exact = compare_exactly(one, two)
    windows = tuple(compare_windows(one, two, request.tolerance))
    if not exact.positions and not any(each.points for each in windows):
        raise UnreadableInput(
            f"{first} and {second}: must have iterations and metrics in common, but have none:"
            f" {_extent(one)}, and {_extent(two)}"
        )
    answer = decide(exact, windows, is_deterministic=is_deterministic, is_exact_asked=request.is_exact)
    return Compared(
        first=first,
        second=second,
        is_deterministic=is_deterministic,
        exact=exact,
        windows=windows,
        answer=answer,
        strides=(_stride(one), _stride(two)),
    )


def to_plain(compared: Compared) -> dict[str, Any]:
    """All of it as JSON: numbers that are not finite are strings."""
    exact = dataclasses.asdict(compared.exact)
    exact["differences"] = [_difference(one) for one in exact.pop("by_metric")]
    exact["printed"] = [list(one) for one in exact["printed"]]
    exact["difference"] = exact["differences"][0] if exact["differences"] else None
    return {
        "schema": SCHEMA,
        "first": compared.first,
        "second": compared.second,
        "outcome": compared.answer.outcome.value,
        "basis": compared.answer.basis.value,
        "why": compared.answer.why,
        "is_deterministic": compared.is_deterministic,
        "strides": list(compared.strides),
        "exact": exact,
        "windows": [
            {name: _number(value) for name, value in dataclasses.asdict(one).items()}
            for one in compared.windows
        ],
    }


_Side = tuple[str, IterationBlock]


def _sides(request: CompareRequest) -> tuple[_Side, _Side, bool]:
    """Both sides with their names, and whether both say that they are deterministic."""
    settings = load_settings(request.config)

    def read(path: str) -> Log:
        config = file_config(settings, request.format_name, columns_of(request.columns))
        return read_log(path, run=request.run, config=config, settings=settings)

    first = read(request.first)
    numbers = _attempts(request.attempts)
    if request.second is not None:
        second = read(request.second)
        is_deterministic = first.is_deterministic and second.is_deterministic
        if numbers is None:
            return (
                (first.name, first.as_it_went_on()),
                (second.name, second.as_it_went_on()),
                is_deterministic,
            )
    else:
        second, is_deterministic = first, first.is_deterministic
        if numbers is None:
            if len(first.attempts) < 2:
                count = len(first.attempts)
                raise ConfigError(
                    f"compare needs two logs, or one with two attempts; {first.name} has {count}"
                )
            numbers = (first.attempts[-2].attempt, first.attempts[-1].attempt)
    one, two = first.attempt(numbers[0]), second.attempt(numbers[1])
    names = (f"{log.name} attempt {at}" for log, at in zip((first, second), numbers, strict=True))
    return (next(names), one), (next(names), two), is_deterministic


def _attempts(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise ConfigError(f"--attempts must be two numbers with a comma between them (0,1), got {text!r}")
    return int(parts[0]), int(parts[1])


def _extent(block: IterationBlock) -> str:
    """What a log has: ``iterations 0 to 99 of loss and lr``."""
    metrics = [clean(metric, 30) for metric in sorted({*block.numbers, *block.checksums})]
    more = f" and {len(metrics) - _NAMED} more" if len(metrics) > _NAMED else ""
    span = f"{block.iteration_T.min()} to {block.iteration_T.max()}" if len(block) else "none"
    return f"iterations {span} of {', '.join(metrics[:_NAMED]) or 'no metric'}{more}"


def _stride(block: IterationBlock) -> int | None:
    """The most common step from one iteration to the next; None where there is none."""
    step_T = np.diff(np.unique(block.iteration_T))
    if not len(step_T):
        return None
    steps, counts = np.unique(step_T, return_counts=True)
    return int(steps[np.argmax(counts)])


def _difference(one: Mapping[str, Any]) -> dict[str, Any]:
    return {**one, "phase": Phase(one["phase"]).label}


def _number(value: object) -> object:
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return float(f"{value:.6g}")
    return value

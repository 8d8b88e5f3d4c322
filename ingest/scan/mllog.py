"""MLPerf's log lines: ``:::MLLOG`` and a JSON object with a key, a value and metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping

from firstfault.telemetry import MAX_ITERATION, EventKind
from ingest.written_numbers import number_of

from .sentences import Finding

_MARK = b":::MLLOG "
_COUNTERS = ("samples_count", "step_num", "step", "iteration", "epoch_num")
"""Keys of the metadata that say how far training was, the finest first. (What MLPerf's BERT calls
``epoch_num`` counts samples.)"""
_METRICS = {
    "train_loss": "loss",
    "loss": "loss",
    "reduced_train_loss": "loss",
    "lr": "lr",
    "learning_rate": "lr",
    "grad_norm": "grad_norm",
    "eval_loss": "eval_loss",
    "validation_loss": "eval_loss",
    "val_loss": "eval_loss",
    "eval_accuracy": "eval_accuracy",
    "throughput": "throughput",
}
_MAX_BYTES = 1 << 16


def read_mllog(line: bytes) -> Finding | None:
    """What one line tells; a finding without anything in it where it is only of the set-up.

    >>> told = read_mllog(b':::MLLOG {"key": "train_loss", "value": 1.25, "metadata": {"step": 512}}')
    >>> told.iteration, dict(told.metrics)
    (512, {'loss': 1.25})
    """
    start = line.find(_MARK) + len(_MARK)
    try:
        told = json.loads(line[start : start + _MAX_BYTES])
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    metadata = told.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    time_ms = told.get("time_ms")
    ended = told.get("key") == "run_stop"
    return Finding(
        sentence="mllog",
        event=EventKind.RUN_END if ended else None,
        fields={"status": str(metadata.get("status", ""))[:40]} if ended else {},
        metrics=_metrics(told),
        iteration=next(
            (count for name in _COUNTERS if (count := _count(metadata.get(name))) is not None), None
        ),
        time=float(time_ms) / 1000 if isinstance(time_ms, int) and 0 < time_ms < 1 << 53 else None,
    )


def _metrics(told: Mapping[str, object]) -> dict[str, float]:
    value = told.get("value")
    values = value if isinstance(value, dict) else {told.get("key"): value}
    return {
        _METRICS[name]: number
        for name, each in values.items()
        if name in _METRICS and (number := number_of(each)) is not None
    }


def _count(value: object) -> int | None:
    if not isinstance(value, int | float):
        return None
    number = number_of(value)
    is_count = number is not None and 0 <= number <= MAX_ITERATION and number.is_integer()
    return int(value) if is_count else None

"""Bytes on the wire and batches of records, for arranging and comparing."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ingest.blocks import RecordBatch
from ingest.decode import RawMessage


def line(run: str | None = "r", rank: int | None = 0, iteration: int = 0, **rest: object) -> bytes:
    """One record as a line, without the line end; bare NaN tokens where a value is not finite."""
    head = {"run": run, "rank": rank, "iteration": iteration}
    return json.dumps({key: value for key, value in head.items() if value is not None} | rest).encode()


def uniform_lines(count: int, **rest: object) -> bytes:
    """Lines of one rank that differ in the iteration and the loss: they qualify for the fast path."""
    losses = np.random.default_rng(7).normal(2.0, 0.1, count).tolist()
    head = {"run": "r", "rank": 0} | rest
    lines = (json.dumps(head | {"iteration": at, "loss": loss}) for at, loss in enumerate(losses))
    return "".join(f"{text}\n" for text in lines).encode()


def messages(values: Iterable[bytes], content_type: str | None = None) -> list[RawMessage]:
    """Messages of one partition with offsets from 100."""
    return [RawMessage("t/0", at, value, content_type) for at, value in enumerate(values, 100)]


def same(left: RecordBatch, right: RecordBatch, *, with_places: bool = True) -> bool:
    """Whether two batches are equal to the bit, NaN included; prints the first difference."""
    for what in ("runs", "labels"):
        if getattr(left, what) != getattr(right, what):
            return _differ(what, getattr(left, what), getattr(right, what))
    for what in ("run_N", "attempt_N", "rank_N", "iteration_N", "microbatch_N", "time_N"):
        if not _same_bits(getattr(left, what), getattr(right, what)):
            return _differ(what, getattr(left, what), getattr(right, what))
    if repr(left.events) != repr(right.events):  # fields may hold NaN, which does not equal itself
        return _differ("events", left.events, right.events)
    if set(left.numbers) != set(right.numbers) or set(left.checksums) != set(right.checksums):
        return _differ("metrics", [*left.numbers, *left.checksums], [*right.numbers, *right.checksums])
    for name, number in left.numbers.items():
        other = right.numbers[name]
        if not (
            _same_bits(number.values_N, other.values_N) and _same_bits(number.present_N, other.present_N)
        ):
            return _differ(name, number, other)
    for name, sums in left.checksums.items():
        others = right.checksums[name]
        if not all(
            _same_bits(getattr(sums, part), getattr(others, part))
            for part in ("high_N", "low_N", "present_N")
        ):
            return _differ(name, sums, others)
    if with_places and left.rejected != right.rejected:
        return _differ("rejected", left.rejected, right.rejected)
    return True


def _same_bits(left: NDArray[np.generic], right: NDArray[np.generic]) -> bool:
    return left.dtype == right.dtype and left.tobytes() == right.tobytes()


def _differ(what: str, left: object, right: object) -> bool:
    print(f"{what} differs:\n  {left}\n  {right}")  # noqa: T201 - shown by pytest when the assertion fails
    return False

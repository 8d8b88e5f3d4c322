"""Work that two threads take in turns, for the detectors over a large block: none needs another's answer.

Which thread does what changes nothing: each piece of work has its own state, and the answers come in its
order. It pays since machine code (`ingest.machine_code`) and numpy let go of the interpreter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import TypeVar

T = TypeVar("T")

FROM_POSITIONS = 8192
"""Positions of a block from which on threads pay: a millisecond of work each against 0.1 ms to start one."""


def side_by_side(work: Sequence[Callable[[], T]]) -> list[T]:
    """The answers in the order of ``work``, of which none may touch what another touches.

    The first error, by the order of ``work``, goes on.

    >>> side_by_side([lambda: 1, lambda: 2, lambda: 3])
    [1, 2, 3]
    """
    if not _has_two_processors():
        return [each() for each in work]
    from concurrent.futures import ThreadPoolExecutor  # small logs do without

    with ThreadPoolExecutor(2, "side by side") as pool:
        waiting = [pool.submit(each) for each in work]
        return [each.result() for each in waiting]


@cache
def _has_two_processors() -> bool:
    with suppress(AttributeError):  # other systems do not tell which processors are ours
        return len(os.sched_getaffinity(0)) > 1
    return (os.cpu_count() or 1) > 1

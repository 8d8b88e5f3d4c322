"""What comes next, made by another thread while what came last is worked on."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from typing import TypeVar, cast

T = TypeVar("T")

_HELD = 2
"""Things made and not yet taken: a piece of a log, as text and in columns, is 20 MB."""
_END = object()


def ahead(source: Iterator[T]) -> Generator[T, None, None]:
    """All that ``source`` gives, in its order, the second and what follows made by another thread.

    ``source`` may touch nothing that whoever takes it touches; an error of it comes at its place.

    >>> list(ahead(iter(range(5))))
    [0, 1, 2, 3, 4]
    """
    for first in source:  # a small log has one piece, and needs no thread
        yield first
        break
    else:
        return
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(1, "ahead")
    try:
        waiting = deque(pool.submit(next, source, _END) for _ in range(_HELD))
        while (one := waiting.popleft().result()) is not _END:
            waiting.append(pool.submit(next, source, _END))
            yield cast("T", one)
            del one  # not to be held while the next is waited for
    finally:
        pool.shutdown(cancel_futures=True)  # waits for the thread: what it reads may be closed then

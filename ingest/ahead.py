"""What comes next, made by another thread while what came last is worked on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

_HELD = 2
"""Things made and not yet taken: a piece of a log, as text and in columns, is 20 MB."""


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
    maker = _Maker(source)
    try:
        yield from maker.taken()
    finally:
        maker.stop()


class _Maker(Generic[T]):
    def __init__(self, source: Iterator[T]) -> None:
        self._source = source
        self._made: deque[T] = deque()
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._is_over = self._is_stopped = False
        self._thread = threading.Thread(target=self._make, name="ahead", daemon=True)
        self._thread.start()

    def taken(self) -> Iterator[T]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._made or self._is_over)
                if not self._made:
                    break
                one = self._made.popleft()
                self._changed.notify_all()
            yield one
            del one  # not to be held while the next is waited for
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Have the thread end, and wait for it: what it reads may be closed then."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        self._thread.join()

    def _make(self) -> None:
        try:
            for one in self._source:
                with self._changed:
                    self._made.append(one)
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: len(self._made) < _HELD or self._is_stopped)
                    if self._is_stopped:
                        return
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

"""What comes next, made by other threads while what came last is worked on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

_HELD = 3
"""Things made and not yet taken: a piece of a log, as text and in columns, is 20 MB."""
_MAKERS = 2
"""Threads that make them: as many as judge, and the one that takes what they make has little to do."""
_END = object()


def ahead(source: Iterator[Callable[[], T]]) -> Generator[T, None, None]:
    """What all that ``source`` gives returns, in its order, asked and called by other threads.

    One thread at a time asks ``source``, and two call what it gave. Neither may touch what whoever takes the
    results touches, nor may two calls touch the same; an error of either comes at its place.

    >>> list(ahead(iter([lambda: 0, lambda: 1, lambda: 2])))
    [0, 1, 2]
    """
    asked = [_asked(source), _asked(source)]
    if asked[1].exception() is not None or asked[1].result() is _END:
        for one in asked:  # a small log has one piece, and needs no thread
            if (made := _made(one)) is not _END:
                yield cast("T", made)
        return
    from concurrent.futures import ThreadPoolExecutor

    asks, makes = ThreadPoolExecutor(1, "ahead asks"), ThreadPoolExecutor(_MAKERS, "ahead makes")
    try:
        waiting = deque(makes.submit(_made, one) for one in asked)
        while True:
            while len(waiting) < _HELD:
                waiting.append(makes.submit(_made, asks.submit(next, source, _END)))
            if (made := waiting.popleft().result()) is _END:
                return
            yield cast("T", made)
            del made  # not to be held while the next is waited for
    finally:
        asks.shutdown(cancel_futures=True)  # waits for the thread: what it reads may be closed then
        makes.shutdown(cancel_futures=True)


def _asked(source: Iterator[Callable[[], T]]) -> Future[object]:
    """What ``source`` gives next, or its error; `_END` behind the last."""
    from concurrent.futures import Future

    asked: Future[object] = Future()
    try:
        asked.set_result(next(source, _END))
    except Exception as error:  # kept for its place
        asked.set_exception(error)
    return asked


def _made(asked: Future[object]) -> object:
    given = asked.result()
    return given if given is _END else cast("Callable[[], object]", given)()

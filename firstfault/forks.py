"""What becomes of senders in a forked child: threads do not survive a fork, locks may be held for ever.

The rule: a child sends nothing by itself (no heartbeats, no last words, no end of the run) and nothing that
was waiting in its parent. What it logs itself is sent by a thread of its own, begun at the first record.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable
from typing import Protocol


class Forked(Protocol):
    """Has to know that it woke up in a child."""

    def become_child(self) -> None:
        """Called in the child, where no other thread runs; must not raise."""
        ...


_REMEMBERED: weakref.WeakSet[Forked] = weakref.WeakSet()


def remember(one: Forked) -> None:
    """Tell ``one`` of each fork from now on."""
    _REMEMBERED.add(one)


def at_exit(close: Callable[[], None]) -> None:
    """Have ``close`` called as this process ends; it may be called twice."""
    atexit.register(close)
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        # children of multiprocessing leave by os._exit, which atexit does not see
        util.Finalize(None, close, exitpriority=100)


def _after_in_child() -> None:
    for one in list(_REMEMBERED):
        one.become_child()


os.register_at_fork(after_in_child=_after_in_child)

"""Folds over curves that run compiled when the work is large and as plain Python when it is small.

A *fold* is a function ``fold(values, *state) -> stop``: it walks ``values`` from ``state[0][0]`` on
(an integer cursor that the fold itself moves), changes the state arrays in place, and returns 0 at the
end of the values, or another code to report something; it is called again until it returns 0.
Inside it only + - * / sqrt abs and comparisons are used, so that the compiled and the plain form give
the same bits (held by ``tests/test_kernels.py``), and folding point by point gives the same bits as
folding at once. Compiling costs seconds per fold, or a tenth of one from the cache: small logs never
pay it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.compiled import Compiled

__all__ = ["Array", "Fold", "compile_at_first_use", "hold_compiling"]

COMPILE_AFTER_POINTS = 4_000
"""Points folded in plain Python, over the life of the process, before a fold is loaded from the cache: at
about 10 µs a point this is the price of loading the first."""
UNKEPT_FACTOR = 50
"""That many times as many, where no earlier process has compiled the fold: compiling it takes 2 to 11 s and
a point 1 to 40 µs in plain Python, so the two cost the same between 250 000 and 1.4 million points. Going
over to compiling before that keeps the price of a wrong guess, a log that ends soon after, below it."""

# Any: state arrays are float64 or int64, which only their own fold tells apart.
Array = NDArray[Any]


class _Choice:
    """What a process that lives for days does otherwise than one that judges a file."""

    is_eager = False
    is_held = False


def compile_at_first_use() -> None:
    """From now on no fold runs as plain Python: for a service, which folds more than any file holds."""
    _Choice.is_eager, _Choice.is_held = True, False


def hold_compiling() -> None:
    """Until `compile_at_first_use` nothing is compiled here: somebody else fills the cache.

    A fold that is not there yet runs as plain Python.
    """
    _Choice.is_eager, _Choice.is_held = False, True


class Fold:
    """One fold and the choice of how to run it.

    ``parts`` are the functions it calls, each after those that it calls itself; ``inlines`` puts them into
    it, which pays where points are many and functions short.

    >>> import numpy as np
    >>> def count_up(values, place, total):
    ...     while place[0] < len(values):
    ...         total[0] += values[place[0]]
    ...         place[0] += 1
    ...     return 0
    >>> total = np.zeros(1)
    >>> Fold(count_up).run((np.ones(3),), (np.zeros(1, np.int64), total))
    >>> float(total[0])
    3.0
    """

    def __init__(
        self,
        function: Callable[..., int],
        *parts: Callable[..., Any],
        compile_after_points: int = COMPILE_AFTER_POINTS,
        inlines: bool = False,
    ) -> None:
        self.function = function
        self.parts = parts
        self.compile_after_points = compile_after_points
        self.inlines = inlines
        self._folded_points = 0
        self.is_compiled = False
        """Whether it has run in machine code."""

    def __deepcopy__(self, memo: dict[int, object]) -> Fold:
        """The same object: a fold holds code, not state."""
        return self

    def run(
        self,
        inputs: Sequence[Array],
        state: Sequence[Array],
        on_stop: Callable[[int], None] | None = None,
    ) -> None:
        """Fold ``inputs`` (arrays of equal length K) into ``state``; call ``on_stop`` at each report.

        ``state[0][0]`` is the cursor, set to 0 here. At a report the state arrays are up to date.
        """
        state[0][0] = 0
        points = len(inputs[0])
        self._folded_points += points
        arrays = (*map(np.ascontiguousarray, inputs), *state)
        if _Choice.is_eager or self._is_worth_compiling(arrays):
            self._run_compiled(arrays, on_stop)
        else:
            self._run_plain(inputs, state, on_stop)

    @cached_property
    def _code(self) -> Compiled:
        return Compiled(self.function, self.parts, inlines=self.inlines)

    def _is_worth_compiling(self, arrays: Sequence[Array]) -> bool:
        if self.is_compiled or self._folded_points <= self.compile_after_points:
            return self.is_compiled
        if self._code.is_kept(arrays):
            return True
        return not _Choice.is_held and self._folded_points > self.compile_after_points * UNKEPT_FACTOR

    def _run_compiled(self, arrays: Sequence[Array], on_stop: Callable[[int], None] | None) -> None:
        call = self._code.bound(arrays)
        self.is_compiled = True
        while code := call():
            if on_stop is not None:
                on_stop(code)

    def _run_plain(
        self, inputs: Sequence[Array], state: Sequence[Array], on_stop: Callable[[int], None] | None
    ) -> None:
        # Lists: reading an element of one is three times as fast as of an array, with the same bits.
        lists = [array.tolist() for array in state]
        values = [array.tolist() for array in inputs]
        while True:
            code = self.function(*values, *lists)
            for array, changed in zip(state, lists, strict=True):
                array[:] = changed
            if not code:
                return
            if on_stop is not None:
                on_stop(code)

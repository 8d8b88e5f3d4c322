"""The outer edge of the probe: what goes wrong inside it is counted and logged once, and goes no further."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

log = logging.getLogger("firstfault.probe")

OFF = frozenset({"off", "0", "false", "no"})
"""Values of FIRSTFAULT that turn the probe off."""
_MAX_TOLD = 20
"""Different failures that are logged: after that many a further one helps nobody."""
G = TypeVar("G", bound="Guarded")
P = ParamSpec("P")
R = TypeVar("R")


class Guarded:
    """Counts its failures; its methods that are `harmless` do nothing while it is off."""

    def __init__(self) -> None:
        self.is_on = False
        self.errors = 0
        """Failures so far."""
        self._told: set[str] = set()

    def note_error(self, where: str, error: BaseException) -> None:
        """Count a failure, which is sent, and log it, each once."""
        self.errors += 1
        told = f"{where}: {type(error).__name__}: {text_of(error)}"[:500]
        if told not in self._told and len(self._told) < _MAX_TOLD:
            self._told.add(told)
            log.warning("firstfault: the probe failed in %s", told)


def text_of(error: BaseException) -> str:
    """The text of an error of the user's, which may itself be an error."""
    try:
        return str(error)
    except Exception:
        return "no text"


def harmless(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R | None]:
    """``method`` so that nothing it raises reaches the trainer; nothing at all where the probe is off."""

    @functools.wraps(method)
    def run(self: G, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        if not self.is_on:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # the outer edge of the probe: training goes on
            self.note_error(method.__name__, error)
            return None

    return run

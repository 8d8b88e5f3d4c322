"""What the parts of a watch are to each other: a signal, and the probe that takes what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..launch import Launch

if TYPE_CHECKING:
    from .readback import Readback
    from .watch import Watch


class Signal(Protocol):
    """One thing that is measured of a model in training.

    What its hooks compute stays on the device as scalars until `at_step`, which hands them on. A signal
    that raises is detached alone; training and the other signals go on.
    """

    def attach(self, watch: Watch) -> None:
        """Put the hooks on ``watch.module``, each wrapped by ``watch.guarded``."""

    def at_step(self, iteration: int, out: Readback, /) -> None:
        """Hand on what was computed for ``iteration``, whose update was just made. No synchronization."""

    def detach(self) -> None:
        """Remove the hooks and let go of every tensor; may be called twice."""


class Outlet(Protocol):
    """The part of a probe that a watch needs."""

    launch: Launch
    """Who this process is."""

    def log(self, *, iteration: int, microbatch: int | None = None, **metrics: float | str) -> None:
        """Send one record."""

    def at(self, phase: str, iteration: int) -> None:
        """Note where the trainer is."""

    def note_error(self, where: str, error: BaseException) -> None:
        """Count an error, log it once, and make it visible."""

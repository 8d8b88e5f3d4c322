"""When a fault acts and on which rows: asked at every site of an iteration.

A strategy calls `enter` once an iteration, `begin` once a pass, and `strike` at each site with a tensor
whose first axis is the ranks that this process holds. Without a fault everything comes back as it went in.

Axes: H ranks held by this process.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from .corruption import corrupt
from .schedules import faulty_lr, scheduled_lr
from .spec import Fault, Job, Kind, Site, places

_BURST_ITERATIONS = 8
"""Stretch in which a unit is hot or cool: errors that depend on operands come in bursts."""
_OF_ONE_UNIT = (Kind.STUCK_BIT, Kind.TILE_ERROR)
"""Kinds that strike the same elements in every pass: they are of one unit."""

_ONCE = ("train0", "update")
"""Passes that a transient fault strikes: one of the training passes, and what follows them."""


class Faults:
    """One fault, or none, in one job."""

    def __init__(self, job: Job, ranks_here: Sequence[int]) -> None:
        self._job = job
        self._ranks = ranks_here
        self.arm(None)

    def arm(self, fault: Fault | None) -> None:
        """From now on this fault, or none, and nothing of it has happened yet."""
        self.fault = fault
        self._iteration = -1
        self._restart_at = -1
        self._attempt = 0
        self._started: int | None = None
        self._pass = "train0"
        self._place = _place(self._job, fault)

    def move(self, job: Job, ranks_here: Sequence[int]) -> None:
        """The job goes on with another world size; what has happened stays."""
        self._job, self._ranks = job, ranks_here

    def enter(self, iteration: int, attempt: int) -> None:
        """A new iteration begins. A transient fault strikes in one attempt only: repeated iterations
        do not repeat it."""
        self._iteration, self._attempt, self._pass = iteration, attempt, "train0"
        fault = self.fault
        if fault is None or fault.site is Site.CHECKPOINT or self._started is not None:
            return
        if fault.acts(iteration):
            self._started = attempt

    def die(self, iteration: int) -> None:
        """The attempt ended before this iteration; a checkpoint is read next."""
        self._restart_at = iteration

    def begin(self, pass_name: str) -> None:
        """A new pass begins: ``train<microbatch>``, ``canary<time>``, ``recompute``, or ``update`` for all
        that follows the backward pass."""
        self._pass = pass_name

    @property
    def is_active(self) -> bool:
        """Whether the fault may act in this iteration, at whatever site."""
        if self.fault is None or self._started is None:
            return False
        if self.fault.lasts is None:
            return True
        return self._started == self._attempt and self.fault.acts(self._iteration)

    def is_at(self, site: Site, *kinds: Kind) -> bool:
        """Whether it acts at ``site`` in this pass, on any rank, and is of these kinds (or of any)."""
        fault = self.fault
        if fault is None or fault.site is not site or not self.is_active:
            return False
        if fault.lasts == 1 and self._pass not in _ONCE:
            return False
        return (not kinds or fault.kind in kinds) and self._is_drawn()

    def is_restoring(self) -> bool:
        """Whether it strikes the checkpoint that is being read now: the first one read after it is due."""
        fault = self.fault
        if fault is None or fault.site is not Site.CHECKPOINT or self._started is not None:
            return False
        if self._restart_at < fault.iteration:
            return False
        self._started = self._attempt
        return True

    def rows(self) -> list[int]:
        """The rows that it strikes: one rank's if it is here, or all."""
        if self.fault is None:
            return []
        if self.fault.rank is None:
            return list(range(len(self._ranks)))
        return [self._ranks.index(self.fault.rank)] if self.fault.rank in self._ranks else []

    def pair(self, rank: int) -> list[tuple[int, float]]:
        """The rows of ``rank`` and its neighbour that are here, with opposite signs."""
        both = ((rank, 1.0), ((rank + 1) % self._job.layout.ranks, -1.0))
        return [(self._ranks.index(one), sign) for one, sign in both if one in self._ranks]

    def is_kind(self, kind: Kind) -> bool:
        """Whether the fault is of this kind."""
        return self.fault is not None and self.fault.kind is kind

    def is_place(self, place: str) -> bool:
        """Whether ``place`` is the product that a fault of an activation strikes."""
        is_struck: bool = place == self._place
        return is_struck

    @property
    def block(self) -> str:
        """The block that a fault of an activation strikes."""
        return self._place.partition(".")[0] if "." in self._place else "layer0"

    def strike(self, site: Site, value: torch.Tensor, *kinds: Kind) -> torch.Tensor:
        """``value`` (H, …) with the struck ranks' rows changed; the gradient passes through."""
        if not self.is_at(site, *kinds):
            return value
        changed = value.clone()
        self.strike_rows(changed, self.rows())
        return changed

    def strike_in_place(self, site: Site, value: torch.Tensor, *kinds: Kind) -> None:
        """The same on a tensor that is kept: parameters and moments."""
        if self.is_at(site, *kinds):
            self.strike_rows(value, self.rows())

    def strike_rows(self, value: torch.Tensor, rows: Sequence[int]) -> None:
        """Change these rows of ``value`` in place, whatever the site."""
        fault = self.fault
        assert fault is not None
        held = value.detach().numpy()
        for row in rows:
            if fault.kind is not Kind.TILE_ERROR or self._is_hot(held[row].tobytes()):
                corrupt(fault, held[row], self._rng())

    def lrs(self, iteration: int) -> list[float]:
        """The learning rate of each rank here."""
        lrs = [scheduled_lr(self._job, iteration)] * len(self._ranks)
        if self.fault is None or not self.is_at(Site.SCHEDULE):
            return lrs
        for row in self.rows():
            lrs[row] = faulty_lr(self._job, self.fault, iteration)
        return lrs

    def _is_drawn(self) -> bool:
        fault = self.fault
        assert fault is not None
        if fault.rate >= 1 or fault.kind is Kind.TILE_ERROR:  # tiles: the operands decide
            return True
        key = f"{fault.seed}/{self._iteration}/{self._attempt}/{self._pass}"
        return random.Random(key).random() < fault.rate

    def _is_hot(self, operands: bytes) -> bool:
        """Two conditions, each as rare as the root of the rate: the unit is hot, and the operands fit."""
        fault = self.fault
        assert fault is not None
        share = fault.rate**0.5
        stretch = random.Random(f"{fault.seed}/{self._iteration // _BURST_ITERATIONS}").random()
        is_hot: bool = stretch < share
        return is_hot and random.Random(operands).random() < share

    def _rng(self) -> random.Random:
        """Draws the elements: the same in every pass for a unit that is stuck."""
        fault = self.fault
        assert fault is not None
        if fault.kind in _OF_ONE_UNIT or fault.lasts == 1:
            return random.Random(f"{fault.seed}/elements")
        return random.Random(f"{fault.seed}/elements/{self._iteration}/{self._pass}")


def _place(job: Job, fault: Fault | None) -> str:
    if fault is None:
        return ""
    if fault.place is not None:
        return fault.place
    known = places(job.model)
    if fault.site is Site.RECOMPUTE:
        # what leaves a block is no operand of its backward pass: wrong there, it would change nothing
        known = [place for place in known if place.endswith((".qkv", ".out", ".up"))]
    return random.Random(f"{fault.seed}/place").choice(known)

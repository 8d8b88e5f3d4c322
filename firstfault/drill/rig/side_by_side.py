"""Many copies of one data parallel job in one set of tensors, each with a fault of its own.

An iteration of a small job costs mostly the calls, not the arithmetic: sixteen copies beside each other
cost little more than one. A copy's bits are those of a job run alone.

Axes: N copies, G ranks of one copy, H = N · G rows, P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .data_parallel import DataParallel
from .faults import Faults
from .links import OneProcess, mean_in_rank_order
from .model import Tap
from .observing import Columns, PassLook, on_gradient
from .passes import Passes
from .reading import Shards
from .spec import Fault, Job, Kind, Site
from .state import State


class ManyFaults(Faults):
    """The faults of all copies; asked like one, it lets each strike its own rows."""

    def __init__(self, job: Job, parts: Sequence[tuple[int, Faults]]) -> None:
        super().__init__(job, range(len(parts) * job.layout.ranks))
        self._size = job.layout.ranks
        self._parts = parts
        """First row of each copy, and its fault."""
        self._within: dict[str, ManyFaults] = {}

    @classmethod
    def of(cls, job: Job, faults: Sequence[Fault | None]) -> ManyFaults:
        """One copy a fault."""
        parts = []
        for number, fault in enumerate(faults):
            part = Faults(job, range(job.layout.ranks))
            part.arm(fault)
            parts.append((number * job.layout.ranks, part))
        return cls(job, parts)

    def within(self, place: str) -> ManyFaults:
        """Those that strike the product ``place``."""
        if place not in self._within:
            parts = [(first, part) for first, part in self._parts if part.is_place(place)]
            self._within[place] = ManyFaults(self._job, parts)
        return self._within[place]

    def enter(self, iteration: int, attempt: int) -> None:
        for _, part in self._parts:
            part.enter(iteration, attempt)

    def begin(self, pass_name: str) -> None:
        for _, part in self._parts:
            part.begin(pass_name)

    def is_at(self, site: Site, *kinds: Kind) -> bool:
        return any(part.is_at(site, *kinds) for _, part in self._parts)

    def strike(self, site: Site, value: torch.Tensor, *kinds: Kind) -> torch.Tensor:
        if not self.is_at(site, *kinds):
            return value
        changed = value.clone()
        self.strike_in_place(site, changed, *kinds)
        return changed

    def strike_in_place(self, site: Site, value: torch.Tensor, *kinds: Kind) -> None:
        for first, part in self._parts:
            if part.is_at(site, *kinds):
                part.strike_rows(value.detach()[first : first + self._size], part.rows())

    def strike_results(self, mean_NP: torch.Tensor) -> None:
        """Let faults of the result that all ranks of a copy get act on it."""
        for first, part in self._parts:
            if part.is_at(Site.REDUCE_ALL):
                part.strike_rows(mean_NP[first // self._size][None], [0])


class _ManyPasses(Passes):
    """Each copy's fault strikes its own product."""

    faults: ManyFaults

    def tap(self, look: PassLook | None, *_: Site) -> Tap:
        def tapped(place: str, value: torch.Tensor) -> torch.Tensor:
            faults = self.faults.within(place)
            value = faults.strike(Site.FORWARD, value)
            if value.requires_grad and faults.is_at(Site.ACT_GRAD):
                on_gradient(value, lambda grad: faults.strike(Site.ACT_GRAD, grad))
            if look is not None:
                look.see(place, value)
            return value

        return tapped


class SideBySide(DataParallel):
    """Copies of a data parallel job that go on from one state."""

    faults: ManyFaults

    def __init__(self, job: Job, faults: Sequence[Fault | None], state: State) -> None:
        size, copies = job.layout.ranks, len(faults)
        super().__init__(job, OneProcess(size * copies), ManyFaults.of(job, faults))
        self.state.become(state.rows(list(range(size)) * copies))

    def make_passes(self) -> Passes:
        return _ManyPasses(self.job, self.faults, self.state.tensors["parameters"])

    def read(self, iteration: int, microbatch: int) -> Shards:
        size = self.job.layout.ranks
        one = self.reader.shards([(rank, iteration, microbatch) for rank in range(size)])
        copies = len(self.ranks) // size
        return Shards(one.tokens_HBS.repeat(copies, 1, 1), one.features_HBLF.repeat(copies, 1, 1, 1))

    def reduce(self, iteration: int, local_HP: torch.Tensor, seen: Columns) -> torch.Tensor:
        size = self.job.layout.ranks
        mean_NP = mean_in_rank_order(local_HP.view(-1, size, local_HP.shape[1]).transpose(0, 1))
        self.faults.strike_results(mean_NP)
        reduced_HP = mean_NP.repeat_interleave(size, dim=0)
        self.look_at_reduced(iteration, reduced_HP, seen)
        return reduced_HP

"""Parameters that the same ranks hold and reduce: a stage of a pipeline, the experts, the dense rest.

Each part meets the fault of the job by the rows that it holds, so that what is written for the ranks of a
process serves the ranks of a part as well.

Axes: H ranks that hold a part, P its parameters, R replicas, K ranks of one replica.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from .contribution import contribute, received
from .faults import Faults
from .observing import PassLook
from .optimizer import fresh_moments, step
from .rows import Rows
from .spec import Job, Kind, Site
from .state import State

Tensor = torch.Tensor
_OF_ONE_PART = (Kind.BIT_FLIP, Kind.STUCK_BIT, Kind.MULTI_FLIP, Kind.TILE_ERROR, Kind.NAN, Kind.INF)
"""Kinds that strike a few elements: of several parts on one rank they strike one."""
_EVERYWHERE = (Site.DATA, Site.FORWARD, Site.ACT_GRAD, Site.LOSS_FUNCTION, Site.MESSAGE)
"""Sites that are not of parameters."""


class PartFaults(Faults):
    """The fault of the job as the ranks of one part meet it; the job's own says when it acts."""

    def __init__(
        self,
        whole: Faults,
        ranks: Sequence[int],
        places: Sequence[str],
        messages: Sequence[str] = (),
        share: tuple[int, int] = (0, 1),
    ) -> None:
        # not the base class's: its attributes are looked up in `whole`
        self._whole = whole
        self._ranks = ranks
        self._places, self._messages = places, messages
        self._share = share
        """Which of how many parts of the same ranks this is."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    def is_at(self, site: Site, *kinds: Kind) -> bool:
        return self._is_mine(site) and super().is_at(site, *kinds)

    def is_restoring(self) -> bool:
        return self._is_mine(Site.CHECKPOINT) and self._whole.is_restoring()

    def is_place(self, place: str) -> bool:
        """A part may lack the place that was drawn for the whole model: then it is one of its own."""
        drawn: str = self._whole._place
        return place == (drawn if drawn in self._places else self._drawn(self._places))

    def is_message(self, message: str) -> bool:
        """Whether a fault of messages strikes this one of those that the part sends."""
        named = None if self.fault is None else self.fault.place
        return message == (named if named in self._messages else self._drawn(self._messages))

    def _is_mine(self, site: Site) -> bool:
        at, count = self._share
        if count == 1 or site in _EVERYWHERE or self.fault is None or self.fault.kind not in _OF_ONE_PART:
            return True
        return random.Random(f"{self.fault.seed}/part").randrange(count) == at

    def _drawn(self, names: Sequence[str]) -> str:
        seed = 0 if self.fault is None else self.fault.seed
        return random.Random(f"{seed}/part").choice(names) if names else ""


class Part:
    """The parameters of some ranks with their optimizer: what an update needs of a strategy."""

    def __init__(
        self, job: Job, rows: Rows, faults: PartFaults, ranks: Sequence[int], *, replicas: int
    ) -> None:
        self.job = job
        self.rows = rows
        self.faults: Faults = faults
        self.own_faults = faults
        self.ranks = ranks
        self.replicas = replicas
        """Ranks over which a gradient is averaged: rows are (replica, rank of the replica)."""
        self.scope = ""
        """Of its metrics: ``expert`` in ``param_checksum/expert``."""
        self.losses = 1
        """Losses that the gradient of one rank adds up."""
        tensors = {"parameters": rows.flat_HP, "sent": torch.zeros_like(rows.flat_HP)}
        self.state = State(tensors | fresh_moments(job.training, rows.flat_HP), [0] * len(ranks))
        self.looks: list[PassLook] = []
        """One for each microbatch; only the part that holds the activations looks."""
        self.clip_norms: list[float] = []
        """The global norm as each rank gets it; set before an update."""

    def norms(self, grad_HP: Tensor) -> list[float]:
        """The global norm, of which this part's is only a share."""
        assert len(grad_HP) == len(self.clip_norms)
        return self.clip_norms

    def apply(self, grad_HP: Tensor, lrs: list[float]) -> None:
        """The optimizer's step of every rank."""
        self.state.steps = [count + 1 for count in self.state.steps]
        step(self.job.training, self.state.tensors, grad_HP, lrs, self.state.steps)

    def named(self, metric: str) -> str:
        """The metric of this part."""
        return f"{metric}/{self.scope}" if self.scope else metric

    def reduced(self, local_HP: Tensor) -> Tensor:
        """The mean over the replicas, a copy for each rank."""
        sent_HP = contribute(self.faults, local_HP, self.state.tensors["sent"])
        rows_RKP = sent_HP.view(self.replicas, -1, sent_HP.shape[1])
        mean_KP = rows_RKP[0].clone()
        for row_KP in rows_RKP[1:]:
            mean_KP += row_KP
        mean_KP /= self.replicas
        if self.faults.is_at(Site.REDUCE_ALL):
            self.faults.strike_rows(mean_KP, range(len(mean_KP)))
        return received(self.rows.places, self.faults, mean_KP.repeat(self.replicas, 1), local_HP)

    def restore(self) -> None:
        """What a fault makes of the checkpoint that was just read."""
        fault = self.faults.fault
        if fault is None or self.faults.rows() == [] or not self.faults.is_restoring():
            return
        if fault.kind is Kind.CORRUPT_RESTORE:
            self.faults.strike_rows(self.state.tensors["parameters"], self.faults.rows())


class JointState(State):
    """The tensors of all parts under one roof; all of them count their steps alike."""

    def __init__(self, parts: Sequence[Part], ranks: int) -> None:
        named = [(at, *held) for at, part in enumerate(parts) for held in part.state.tensors.items()]
        super().__init__({f"{at}.{name}": tensor for at, name, tensor in named}, [0] * ranks)
        self._parts = parts

    def clone(self) -> State:
        self.steps = [self._parts[0].state.steps[0]] * len(self.steps)
        return super().clone()

    def become(self, other: State) -> None:
        super().become(other)
        for part in self._parts:
            part.state.steps = [other.steps[0]] * len(part.ranks)

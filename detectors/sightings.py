"""The sights of the first bad iteration as flags per stage and rank, over a universe of ranks.

Axes: R ranks of the universe, ascending; N ranks of one sight.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from firstfault.mesh import Layout
from firstfault.telemetry import WHOLE_ITERATION, Phase
from ingest.blocks import Flags, Ranks

from .cause_graph import PRIOR_OF, Stage, phase_of, stage_of
from .evidence import Sight
from .roles import Role


@dataclass(frozen=True, slots=True)
class Sightings:
    """What was seen in the first bad iteration: one flag per stage and rank."""

    iteration: int
    microbatch: int
    ranks_R: Ranks
    bad: list[Flags]
    clean: list[Flags]
    routes: bool = False
    """Whether ranks compute on what others sent them (ep, cp)."""
    metric: dict[Stage, str] = field(default_factory=dict)
    phase: dict[Stage, Phase] = field(default_factory=dict)
    bad_ranks: set[int] = field(default_factory=set)
    rest_R: Flags = field(default_factory=lambda: np.empty(0, np.bool_))
    """Ranks that were seen clean, before the reduction, in what is not an expert's."""

    @classmethod
    def of(
        cls, sights: Sequence[Sight], ranks: Collection[int], layout: Layout | None, roles: Mapping[str, Role]
    ) -> Sightings | None:
        """The first bad iteration of ``sights``; None when nothing in them is bad."""
        hits = [sight for sight in sights if sight.bad_R.any()]
        if not hits:
            return None
        at = min(sight.iteration for sight in hits)
        # Inside an iteration the first bad microbatch speaks; later ones may already be victims.
        within = min(sight.microbatch for sight in hits if sight.iteration == at)
        known = [np.fromiter(ranks, dtype=np.int32), *(sight.ranks_R for sight in sights)]
        if layout is not None:
            known.append(np.fromiter(layout.coordinates, dtype=np.int32))
        ranks_R = np.unique(np.concatenate(known)).astype(np.int32)
        bad, clean = ([np.zeros(len(ranks_R), np.bool_) for _ in Stage] for _ in range(2))
        scene = cls(at, within, ranks_R, bad, clean, routes=_routes(layout), rest_R=np.zeros_like(bad[0]))
        for sight in sorted(sights, key=lambda sight: (sight.microbatch, _order(sight.metric))):
            scene.bad_ranks.update(sight.ranks_R[sight.bad_R].tolist())
            if sight.iteration == at and sight.microbatch in (within, WHOLE_ITERATION):
                scene._see(sight, roles.get(sight.metric, Role.AS_NAMED))
            elif sight.iteration == at - 1:
                scene._see_before(sight, roles.get(sight.metric, Role.AS_NAMED))
        # A count holds both gradients of a rank: it is of its expert, where the rest was seen clean.
        of_expert_R = bad[Stage.EXPERT_IN] & scene.rest_R
        bad[Stage.REDUCE_IN] &= ~of_expert_R
        clean[Stage.REDUCE_IN] |= of_expert_R
        for stage in Stage:
            clean[stage] &= ~bad[stage]
        return scene

    def _see(self, sight: Sight, role: Role) -> None:
        stage = stage_of(sight.metric, role, sight.phase)
        is_act = stage is Stage.ACTIVATION and sight.metric.startswith("nonfinite_act")
        if is_act and self.routes:
            stage = Stage.COMPUTE  # what comes back from others is received, and not counted
        elif stage is Stage.REDUCE_IN and self.routes and "/expert" in sight.metric:
            stage = Stage.EXPERT_IN
        at_N = np.searchsorted(self.ranks_R, sight.ranks_R)
        bad_R, clean_R = np.zeros_like(self.bad[stage]), np.zeros_like(self.bad[stage])
        bad_R[at_N] = sight.bad_R
        clean_R[at_N] = sight.clean_R
        if sight.microbatch == WHOLE_ITERATION != self.microbatch and stage < Stage.REDUCE_IN:
            # The value of the whole iteration sums up all microbatches: the first bad one has spoken.
            bad_R &= ~self.clean[stage]
        if bad_R.any():
            self.metric.setdefault(stage, sight.metric)
            self.phase.setdefault(stage, phase_of(sight.metric, role, sight.phase))
        self.bad[stage] |= bad_R
        self.clean[stage] |= clean_R
        if stage is Stage.REDUCE_IN and not sight.metric.startswith("nonfinite_"):
            self.rest_R[clean_R & ~bad_R] = True
        if is_act and not self.routes:
            # It counts all that the rank computes, and what it sends is part of that.
            self.clean[Stage.SEND] |= clean_R
        elif stage is Stage.SEND and "/tp" in sight.metric:
            self.clean[Stage.PARTIAL_LOSS] |= clean_R  # the loss is the last thing that a tp group adds up

    def _see_before(self, sight: Sight, role: Role) -> None:
        """Take what was clean in the update of the iteration before."""
        stage = PRIOR_OF.get(stage_of(sight.metric, role, sight.phase))
        if stage is not None:
            self.clean[stage][np.searchsorted(self.ranks_R, sight.ranks_R[sight.clean_R])] = True


def _routes(layout: Layout | None) -> bool:
    return layout is not None and any(layout.size(axis) > 1 for axis in ("cp", "ep"))


def _order(metric: str) -> tuple[bool, bool, str]:
    """Inside one stage the earlier in the computation comes first: logits, count of losses, loss."""
    return (not metric.startswith("nonfinite_logits"), not metric.startswith("nonfinite_"), metric)

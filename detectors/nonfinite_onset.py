"""One bad iteration taken down: who was seen bad and clean at every watched metric, and what came first.

Axes: R ranks, T positions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from firstfault.telemetry import UNNAMED_RANK, Kind, Phase, contract_of
from ingest.blocks import Ints, Ranks

from .base import State
from .cause_graph import phase_of
from .evidence import MAX_LATER_RANKS, Json, Sight
from .nonfinite_sites import Scene, Site
from .rank_table import UNKNOWN, RankTable
from .roles import Roles

MAX_SIGHTS = 64
"""Sights kept of one iteration, bad ones first: all metrics of a usual loop; of hundreds of per-layer
norms the first bad ones say what there is to say."""
MAX_MICROBATCH_ROWS = 8
"""Microbatches of an iteration that are kept, each with a rank that was not bad before."""
CHRONIC = 16
"""Iterations in which an activation count above zero went with finite loss and gradients, after which it
says nothing about its rank. An overflow on its way to the loss needs one or two."""

_ORDER = ("nonfinite_input", "nonfinite_send", "nonfinite_act", "nonfinite_logits", "nonfinite_loss", "loss")
"""Inside one phase the earlier in the computation comes first."""


@dataclass(slots=True, eq=False)
class Onset:
    """The first bad iteration of an episode.

    ``metric`` is the earliest in causal order, ``ranks`` those bad in its phase. ``others`` turned
    bad later in the same iteration.
    """

    iteration: int
    metric: str
    phase: int
    microbatch: int
    ranks: list[int]
    others: list[int]
    last_clean: int | None
    detail: dict[str, Json]
    sights: list[Sight] = field(default_factory=list)

    @property
    def declared_phase(self) -> Phase | None:
        """Where the run declares the metric to be taken; None where its name tells."""
        return next((sight.phase for sight in self.sights if sight.metric == self.metric), None)

    def snapshot(self) -> State:
        """The onset as plain data."""
        return asdict(self)

    @classmethod
    def restored(cls, state: State) -> Onset:
        """The onset that gave ``state``."""
        held: dict[str, Any] = dict(state)
        held["sights"] = [Sight(**{**sight, "phase": _phase(sight["phase"])}) for sight in state["sights"]]
        return cls(**held)


def onset_of(scene: Scene, i: int, table: RankTable, roles: Roles) -> Onset:
    """Take down iteration ``i`` of ``scene``; ``table`` knows what was clean before the block."""
    start, stop = scene.rows(i)
    sights = [sight for t in _telling_rows(scene, start, stop) for sight in _sights(scene, t, table)]
    bad = [sight for sight in sights if sight.bad_R.any()]
    if not bad:
        return _skip_only(scene, i)
    bad.sort(key=lambda sight: _causal_order(sight, roles))
    first = bad[0]
    phase = phase_of(first.metric, roles.role_of(first.metric), first.phase)
    in_phase = [
        sight for sight in bad if phase_of(sight.metric, roles.role_of(sight.metric), sight.phase) is phase
    ]
    ranks = _union(in_phase)
    others = sorted(set(_union(bad)) - set(ranks))
    clean = [sight for sight in sights if not sight.bad_R.any()]
    site = next(site for site in scene.sites if site.metric == first.metric)
    return Onset(
        iteration=scene.iteration(i),
        metric=first.metric,
        phase=int(phase),
        microbatch=first.microbatch,
        ranks=[rank for rank in ranks if rank != UNNAMED_RANK],
        others=[rank for rank in others if rank != UNNAMED_RANK][:MAX_LATER_RANKS],
        last_clean=_last_clean(scene, site, start, first.ranks_R[first.bad_R], table),
        detail=_detail(scene, site, start, stop),
        sights=[*_before(scene, start, table, roles), *(bad + clean)[:MAX_SIGHTS]],
    )


def bad_ranks(scene: Scene, start: int, stop: int, known: Ranks) -> list[tuple[int, int]]:
    """(iteration, rank) of ranks not in ``known`` that turn bad in the rows ``[start, stop)``.

    Counts in activations do not turn a rank bad: they come and go without harm.
    """
    first_R = np.full(len(scene.block.ranks_R), stop)
    for site in scene.sites:
        if site.bad_TR is not None and not is_noisy(site):
            bad_TR = site.bad_TR[start:stop]
            at_R = np.where(bad_TR.any(axis=0), start + np.argmax(bad_TR, axis=0), stop)
            first_R = np.minimum(first_R, at_R)
    new = np.flatnonzero((first_R < stop) & ~np.isin(scene.block.ranks_R, known))
    found = [(int(scene.block.iteration_T[first_R[c]]), int(scene.block.ranks_R[c])) for c in new.tolist()]
    return sorted(pair for pair in found if pair[1] != UNNAMED_RANK)


def note_clean(scene: Scene, table: RankTable) -> None:
    """Remember for each rank and metric the last iteration at which it was seen clean."""
    at_R = table.rows(scene.block.ranks_R)
    iteration_T = scene.block.iteration_T
    for site in scene.sites:
        column = table.column(site.metric)
        if site.clean(len(iteration_T) - 1, len(iteration_T)).all():
            column[at_R] = iteration_T[-1]
            continue
        clean_TR = site.clean(0, len(iteration_T))
        seen_R = clean_TR.any(axis=0)
        last_R = len(iteration_T) - 1 - np.argmax(clean_TR[::-1], axis=0)
        column[at_R[seen_R]] = iteration_T[last_R[seen_R]]


def _telling_rows(scene: Scene, start: int, stop: int) -> list[int]:
    """Rows in which a rank turns bad, a few, and the last row (the whole iteration)."""
    if stop - start == 1:
        return [start]
    bad_TR = np.zeros((stop - start, len(scene.block.ranks_R)), bool)
    for site in scene.sites:
        if site.bad_TR is not None:
            bad_TR |= site.bad_TR[start:stop]
    first_R = np.argmax(bad_TR, axis=0)[bad_TR.any(axis=0)]
    rows = np.unique(first_R)[:MAX_MICROBATCH_ROWS].tolist()
    return sorted({*(start + row for row in rows), stop - 1})


def _sights(scene: Scene, t: int, table: RankTable) -> list[Sight]:
    block = scene.block
    at_R = table.rows(block.ranks_R)
    sights = []
    for site in scene.sites:
        clean_R = site.clean(t, t + 1)[0].copy()
        bad_R = np.zeros_like(clean_R) if site.bad_TR is None else site.bad_TR[t].copy()
        if is_noisy(site):
            chronic_R = table.column(fine_column(site.metric))[at_R] >= CHRONIC
            clean_R &= ~chronic_R
            bad_R &= ~chronic_R
        if clean_R.any() or bad_R.any():
            sights.append(
                Sight(
                    metric=site.metric,
                    iteration=int(block.iteration_T[t]),
                    microbatch=int(block.microbatch_T[t]),
                    ranks_R=block.ranks_R,
                    bad_R=bad_R,
                    clean_R=clean_R,
                    phase=site.contract.declared_phase,
                )
            )
    return [_reported_only(sight) for sight in sights]


def is_noisy(site: Site) -> bool:
    """Whether the metric may be bad without harm, for ever: counts in activations and inputs."""
    return site.contract.kind is Kind.NONFINITE_COUNT and site.contract.phase <= Phase.FORWARD


def fine_column(metric: str) -> str:
    """Column of the iterations in which a rank's count was above zero and all else well."""
    return f"fine:{metric}"


def _reported_only(sight: Sight) -> Sight:
    """Without the ranks that were not observed: which of them a block knows depends on its cutting."""
    seen_R = sight.bad_R | sight.clean_R
    return Sight(
        metric=sight.metric,
        iteration=sight.iteration,
        microbatch=sight.microbatch,
        ranks_R=sight.ranks_R[seen_R],
        bad_R=sight.bad_R[seen_R],
        clean_R=sight.clean_R[seen_R],
        phase=sight.phase,
    )


def _phase(number: int | None) -> Phase | None:
    return None if number is None else Phase(number)


def _causal_order(sight: Sight, roles: Roles) -> tuple[int, int, int, str]:
    base = sight.metric.partition("/")[0]
    place = _ORDER.index(base) if base in _ORDER else len(_ORDER)
    return (
        phase_of(sight.metric, roles.role_of(sight.metric), sight.phase),
        sight.microbatch,
        place,
        sight.metric,
    )


def _union(sights: list[Sight]) -> list[int]:
    ranks: list[int] = np.unique(np.concatenate([sight.ranks_R[sight.bad_R] for sight in sights])).tolist()
    return ranks


def _last_clean(scene: Scene, site: Site, start: int, ranks: Ranks, table: RankTable) -> int | None:
    """Last iteration at which all of ``ranks`` that ever were clean still had been."""
    columns = np.searchsorted(scene.block.ranks_R, ranks)
    clean_TC = site.clean(0, start)[:, columns]
    before_C: Ints = table.column(site.metric)[table.rows(scene.block.ranks_R)[columns]]
    if start:
        in_block_C = np.logical_or.reduce(clean_TC, axis=0)
        last_C = start - 1 - np.argmax(clean_TC[::-1], axis=0)
        before_C = np.where(in_block_C, scene.block.iteration_T[last_C], before_C)
    known = before_C[before_C != UNKNOWN]
    return int(known.min()) if len(known) else None


def _before(scene: Scene, start: int, table: RankTable, roles: Roles) -> list[Sight]:
    """Who was clean in the update of the iteration just before the row ``start``, as far as it was seen."""
    block = scene.block
    before = int(block.iteration_T[start]) - 1
    if before < 0:
        return []
    begins = int(np.searchsorted(block.iteration_T, before))
    at_R = table.rows(block.ranks_R)
    sights = []
    for site in scene.sites:
        role = roles.role_of(site.metric)
        if phase_of(site.metric, role, site.contract.declared_phase) < Phase.REDUCE_IN:
            continue
        clean_R = table.column(site.metric)[at_R] == before
        if begins < start:
            clean_R = site.clean(begins, start).any(axis=0)
            if site.bad_TR is not None:
                clean_R &= ~site.bad_TR[begins:start].any(axis=0)
        if clean_R.any():
            ranks_R = block.ranks_R[clean_R]
            every_R = np.ones(len(ranks_R), np.bool_)
            sights.append(
                Sight(
                    metric=site.metric,
                    iteration=before,
                    ranks_R=ranks_R,
                    bad_R=~every_R,
                    clean_R=every_R,
                    phase=site.contract.declared_phase,
                )
            )
    return sights[:MAX_SIGHTS]


def _detail(scene: Scene, site: Site, start: int, stop: int) -> dict[str, Json]:
    """What the first bad value was, and the counts at all sites."""
    detail: dict[str, Json] = {}
    assert site.bad_TR is not None
    values = site.numbers.values_TR[start:stop][site.bad_TR[start:stop]]
    if site.contract.kind is not Kind.NONFINITE_COUNT:
        detail["value"] = (
            "NaN" if np.isnan(values).any() else "Infinity" if (values > 0).any() else "-Infinity"
        )
    inferred_TR = site.numbers.inferred_TR
    if inferred_TR is not None and (inferred_TR[start:stop] & site.bad_TR[start:stop]).any():
        detail["inferred"] = True
    counts: dict[str, Json] = {}
    for each in scene.sites:
        if each.contract.kind is Kind.NONFINITE_COUNT and each.numbers.present_TR[start:stop].any():
            values_TR = each.numbers.values_TR[start:stop]
            usable_TR = each.numbers.present_TR[start:stop] & np.isfinite(values_TR)
            counts[each.metric] = float(np.where(usable_TR, values_TR, 0.0).max(initial=0.0))
    if counts:
        detail["greatest_counts"] = counts
    return detail


def _skip_only(scene: Scene, i: int) -> Onset:
    """A skipped step without a non-finite value in sight."""
    return Onset(
        iteration=scene.iteration(i),
        metric="skipped",
        phase=int(contract_of("skipped").phase),
        microbatch=int(scene.block.microbatch_T[scene.rows(i)[1] - 1]),
        ranks=[],
        others=[],
        last_clean=None,
        detail={},
    )

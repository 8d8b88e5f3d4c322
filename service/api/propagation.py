"""`/v1/runs/{run_id}/propagation`: how an incident spread over ranks, phases and collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from firstfault.mesh import Layout
from firstfault.telemetry import Phase
from service.history_reader import HistoryReader
from service.propagation import Cell, Lane, Observations, Propagation, is_watched, propagation

from .answers import answer
from .checksums import about_incident, verdict_of
from .context import context_of
from .parameters import ID, RunId
from .problems import not_kept
from .values import Answer, Whole

router = APIRouter(prefix="/v1/runs", tags=["curves"])

_MAX_METRICS = 48
"""Metrics looked at: those of the evidence first. A job with more has one for each layer."""
_AHEAD = 2
"""Iterations looked at behind the first bad one: two reductions reach everybody."""
_MAX_ITERATIONS = 256
_CELLS = {Cell.NONE: "none", Cell.FINE: "fine", Cell.WAITS: "waits", Cell.TIE: "tie", Cell.BAD: "bad"}
_PHASES = {phase.label: phase for phase in Phase}


class PropagationColumn(Answer):
    """A phase of an iteration in which some rank was bad."""

    iteration: Whole
    phase: str
    metrics: list[str] = Field(description="What showed it, at most 8.")
    new_ranks: int = Field(description="Ranks that were bad here and in no column before.")
    via: str = Field(description="What can have carried it to them; empty for the first column.")


class PropagationLane(Answer):
    """Ranks of one role that showed the same."""

    role: str = Field(description="suspect, victim, affected (nobody is suspected) or clean.")
    ranks: list[int] = Field(description="At most 64.")
    rank_count: int
    hosts: list[str] = Field(description="Of those listed, at most 4.")
    cells: list[str] = Field(description="A word a column: bad, tie, waits, fine, none (not reported).")


class PropagationAnswer(Answer):
    """How one incident spread: columns in causal order, lanes of ranks."""

    run_id: str
    incident_id: str
    attempt: int
    told_by: str = Field(description="`ranks` of the flight recorder, or `evidence` alone.")
    columns: list[PropagationColumn]
    are_columns_cut: bool
    lanes: list[PropagationLane]
    hidden_lanes: int
    notes: list[str] = Field(description="What the order does not tell.")


@router.get("/{run_id}/propagation", response_model=PropagationAnswer, summary="How an incident spread")
def get_propagation(
    request: Request,
    run_id: RunId,
    incident: Annotated[
        str | None, Query(pattern=ID, description="Which; the run's root incident without.")
    ] = None,
) -> Response:
    """Out of what single ranks reported around it, and of its evidence."""
    context = context_of(request)
    verdict = verdict_of(context, run_id)
    about = about_incident(verdict, incident)
    if about is None:
        raise not_kept("this run has no incident that could have spread")
    attempt = int(about["first"].get("attempt") or 0)
    history = context.history
    layout = None if history is None else history.layout(run_id, attempt)
    ranks_R = np.arange(max(1, int(verdict["coverage"]["ranks"] or 1)), dtype=np.int32)
    seen = Observations(_universe(ranks_R, about, layout), layout)
    known = verdict["coverage"]["metrics"]
    is_recorded = history is not None and _take(seen, history, (run_id, attempt), about, known)
    _mark(seen, about)
    found = propagation(seen, about)
    return answer(_answer(run_id, attempt, str(about["id"]), found, "ranks" if is_recorded else "evidence"))


def _universe(ranks_R: Any, about: Mapping[str, Any], layout: Layout | None) -> Any:
    """All ranks that are known of: they need not begin at 0."""
    if layout is not None:
        return np.array(sorted(layout.coordinates), np.int32)
    named = [*about["first"].get("ranks", []), *about["first"].get("victims", [])]
    return np.union1d(ranks_R, np.array(named, np.int32)).astype(np.int32)


def _take(
    seen: Observations,
    history: HistoryReader,
    place: tuple[str, int],
    about: Mapping[str, Any],
    known: Sequence[str],
) -> bool:
    """Everything recorded around the incident; whether there was any."""
    start, stop = _range(about)
    named = [one["metric"] for one in about["evidence"]]
    wanted = dict.fromkeys([*named, *sorted(known, key=lambda one: one.count("/"))])
    metrics = [one for one in wanted if is_watched(one)][:_MAX_METRICS]
    any_found = False
    for metric in metrics:
        matrix = history.matrix(*place, metric, start, stop)
        if matrix is not None and np.isin(matrix.ranks_R, seen.ranks_R).all():
            seen.take(matrix)
            any_found = True
    return any_found


def _range(about: Mapping[str, Any]) -> tuple[int, int]:
    first = int(about["first"]["iteration"])
    last = max([first, *(int(one["iteration"]) for one in about["evidence"])])
    return max(0, first - 1), min(max(last, first + _AHEAD), first + _MAX_ITERATIONS) + 1


def _mark(seen: Observations, about: Mapping[str, Any]) -> None:
    """What the detectors say of ranks: of what only a comparison over time shows, nothing else tells."""
    for one in about["evidence"]:
        phase = _PHASES.get(one.get("phase") or "", Phase.FORWARD)
        seen.mark(int(one["iteration"]), int(phase), one["metric"], one.get("ranks") or [], Cell.BAD)
        waits = _PHASES.get(str((one.get("detail") or {}).get("others_wait_in")))
        if waits is not None:
            victims = about["first"].get("victims") or []
            seen.mark(int(one["iteration"]), int(waits), one["metric"], victims, Cell.WAITS)


def _answer(
    run_id: str, attempt: int, incident_id: str, found: Propagation, source: str
) -> PropagationAnswer:
    return PropagationAnswer(
        run_id=run_id,
        incident_id=incident_id,
        attempt=attempt,
        told_by=source,
        columns=[
            PropagationColumn(
                iteration=one.iteration,
                phase=one.phase.label,
                metrics=list(one.metrics),
                new_ranks=one.new_ranks,
                via=one.via,
            )
            for one in found.columns
        ],
        are_columns_cut=found.are_columns_cut,
        lanes=[_lane(one) for one in found.lanes],
        hidden_lanes=found.hidden_lanes,
        notes=list(found.notes),
    )


def _lane(lane: Lane) -> PropagationLane:
    return PropagationLane(
        role=lane.role,
        ranks=list(lane.ranks),
        rank_count=lane.rank_count,
        hosts=list(lane.hosts),
        cells=[_CELLS[Cell(cell)] for cell in lane.cells],
    )

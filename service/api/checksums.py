"""`/v1/runs/{run_id}/checksums`: replica groups around one check, as they agree or do not.

Groups that agree are counted, those that do not are sent with their members. A value has up to 128 bits, so
it is text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from firstfault.mesh import Layout
from firstfault.telemetry import contract_of
from service import reading
from service.checksum_matrix import ChecksumMatrix, Group, Vote, checksum_matrix, is_compared
from service.sentence import root_incident

from .answers import answer
from .columns import microbatches
from .context import Context, context_of
from .curves import Attempt, choose_attempt, history_of
from .parameters import ID, Name, RunId
from .problems import not_found, not_kept
from .values import Answer, Whole

router = APIRouter(prefix="/v1/runs", tags=["curves"])

_LAST = 2**63 - 2


class VoteAnswer(Answer):
    """One group at one check."""

    majority: str | None = Field(
        description="What most members hold; null: no majority, or nothing reported."
    )
    count: int = Field(description="Members that hold it.")
    others: list[tuple[str, int]] = Field(description="Other values, each with how many members hold it.")
    reported: int


class GroupAnswer(Answer):
    """One replica group over the checks that are shown."""

    group: int = Field(description="Its least rank.")
    place: str = Field(description="What its members have in common in the mesh: `tp 1, pp 0`.")
    size: int
    votes: list[VoteAnswer] = Field(description="One a check.")
    ranks: list[int] = Field(description="Members that are listed: all, or those that differ.")
    hosts: list[str | None] = Field(description="Of each listed member.")
    cells: list[list[int]] = Field(
        description="A row a check: 0 the majority, k the k-th of the others, -1 not reported."
    )


class ChecksumAnswer(Answer):
    """Replica groups around one check."""

    run_id: str
    metric: str
    metrics: list[str] = Field(description="The metrics of this run that ranks must agree on.")
    attempt: int
    groups_from: str = Field(description="`layout`, `learned` from the first checks kept, or `none`.")
    at: Whole | None = Field(description="Iteration of the chosen check; null without any.")
    chosen: int | None = Field(description="Its place among those shown.")
    previous: Whole | None
    next: Whole | None
    first_differing: Whole | None = Field(description="The first check of those looked at that differs.")
    looked_at: list[Whole] = Field(description="First and last iteration that was looked at; empty if none.")
    iteration: list[Whole] = Field(description="Of each check that is shown.")
    microbatch: list[int | None]
    differing: list[int] = Field(description="Groups that differ at each.")
    groups: list[GroupAnswer]
    groups_in_all: int
    ranks_in_groups: int
    ranks_alone: int = Field(description="Ranks that are compared with nobody.")


@router.get("/{run_id}/checksums", response_model=ChecksumAnswer, summary="Replica groups around a check")
def get_checksums(
    request: Request,
    run_id: RunId,
    *,
    metric: Annotated[Name | None, Query(description="The one the incident is seen in without.")] = None,
    incident: Annotated[
        str | None, Query(pattern=ID, description="Where to look; the run's root incident without.")
    ] = None,
    attempt: Attempt = None,
    at: Annotated[
        int | None,
        Query(ge=0, le=_LAST, description="This check or the next; the first that differs without."),
    ] = None,
) -> Response:
    """As far as the flight recorder and frozen windows hold what single ranks reported."""
    context = context_of(request)
    verdict = verdict_of(context, run_id)
    about = about_incident(verdict, incident)
    history, attempts = history_of(context, run_id)
    wanted = None if about is None or attempt is not None else int(about["first"].get("attempt") or 0)
    chosen = choose_attempt(attempt if wanted not in attempts else wanted, attempts)
    compared = [name for name in verdict["coverage"]["metrics"] if is_compared(name)]
    named = metric or _seen_in(about, compared)
    if named is None or named not in compared:
        raise not_kept(_nothing(named, compared))
    place = at if at is not None else _first_seen(about, named)
    half = _reach(context, int(verdict["coverage"]["ranks"] or 1))
    start, stop = (0, None) if place is None else (max(0, place - half), place + half + 1)
    matrix = history.matrix(run_id, chosen, named, start, stop)
    if matrix is None:
        raise not_kept(f"no values of single ranks of {named!r} are kept there")
    layout = history.layout(run_id, chosen)
    found = checksum_matrix(matrix, contract_of(named), layout, place)
    told = _answer(found, layout)
    return answer(ChecksumAnswer(run_id=run_id, metric=named, metrics=compared, attempt=chosen, **told))


def verdict_of(context: Context, run_id: str) -> Mapping[str, Any]:
    """The stored verdict of a run.

    Raises:
        ProblemError: 404, there is none such.
    """
    with context.database.read() as db:
        body = reading.verdict_bytes(db, run_id)
    if body is None:
        raise not_found("run", run_id)
    found: Mapping[str, Any] = json.loads(body)
    return found


def about_incident(verdict: Mapping[str, Any], incident: str | None) -> Mapping[str, Any] | None:
    """The incident of a verdict that is named, or its root; None where it has none.

    Raises:
        ProblemError: 404, it has none such.
    """
    if incident is None:
        return root_incident(verdict)
    for one in verdict["incidents"]:
        if one["id"] == incident:
            found: Mapping[str, Any] = one
            return found
    raise not_found("incident of this run", incident)


def _seen_in(about: Mapping[str, Any] | None, compared: Sequence[str]) -> str | None:
    seen = (
        [] if about is None else [about["first"].get("metric"), *(one["metric"] for one in about["evidence"])]
    )
    return next((name for name in [*seen, "param_checksum", *compared] if name in compared), None)


def _first_seen(about: Mapping[str, Any] | None, metric: str) -> int | None:
    """Where an incident saw the metric differ first; else where the incident began."""
    if about is None:
        return None
    seen = [int(one["iteration"]) for one in about["evidence"] if one["metric"] == metric]
    return min(seen, default=int(about["first"]["iteration"]))


def _nothing(metric: str | None, compared: Sequence[str]) -> str:
    if metric is None:
        return "this run reports nothing that ranks must agree on bit by bit: no checksums"
    return f"{metric!r} is not compared bit by bit; there are: {', '.join(compared[:20]) or 'none'}"


def _reach(context: Context, ranks: int) -> int:
    """Iterations on either side of a check, so many that a matrix of them is not too large."""
    return max(1, context.config.max_matrix_cells // (2 * max(1, ranks)) - 1)


def _answer(found: ChecksumMatrix, layout: Layout | None) -> dict[str, Any]:
    iterations = found.iteration_T.tolist()
    chosen, shown = found.chosen, list(found.shown)
    differing = [at for at, count in enumerate(found.differing_T.tolist()) if count]
    return {
        "groups_from": found.source,
        "at": None if chosen is None else iterations[chosen],
        "chosen": None if chosen is None else shown.index(chosen),
        "previous": iterations[chosen - 1] if chosen else None,
        "next": iterations[chosen + 1] if chosen is not None and chosen + 1 < len(iterations) else None,
        "first_differing": iterations[differing[0]] if differing else None,
        "looked_at": [iterations[0], iterations[-1]] if iterations else [],
        "iteration": [iterations[at] for at in shown],
        "microbatch": microbatches(found.microbatch_T[shown]),
        "differing": [int(found.differing_T[at]) for at in shown],
        "groups": [_group(one, layout) for one in found.groups],
        "groups_in_all": found.groups_in_all,
        "ranks_in_groups": found.ranks_in_groups,
        "ranks_alone": found.ranks_alone,
    }


def _group(group: Group, layout: Layout | None) -> GroupAnswer:
    hosts = {} if layout is None else layout.hosts
    return GroupAnswer(
        group=group.lead,
        place=_place(group.members, layout),
        size=group.size,
        votes=[_vote(one) for one in group.votes],
        ranks=list(group.members),
        hosts=[hosts.get(rank) for rank in group.members],
        cells=[list(row) for row in group.codes_NM],
    )


def _vote(vote: Vote) -> VoteAnswer:
    return VoteAnswer(
        majority=vote.majority, count=vote.count, others=list(vote.others), reported=vote.reported
    )


def _place(ranks: Sequence[int], layout: Layout | None) -> str:
    """The coordinates that all members share."""
    if layout is None:
        return ""
    places = [layout.coordinates[rank] for rank in ranks if rank in layout.coordinates]
    shared = [
        f"{axis} {places[0][at]}"
        for at, axis in enumerate(layout.axes)
        if places and len({place[at] for place in places}) == 1 and layout.size(axis) > 1
    ]
    return ", ".join(shared)

"""`/v1/mutes`: rules that mute what they match until they end."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.mutes import MATCHERS, Mute, Muted, MuteError, add_mute, end_mute, find_mute, list_mutes

from .answers import answer
from .context import context_of
from .pages import from_cursor, to_cursor
from .parameters import Cursor, Limit, MuteId
from .problems import ProblemError, not_found
from .triage_models import MuteAnswer, MutePage, NewMute
from .values import timestamp

router = APIRouter(prefix="/v1/mutes", tags=["mutes"])


@router.get("", response_model=MutePage, summary="Rules that mute, newest first")
def get_mutes(request: Request, cursor: Cursor = None, limit: Limit = None) -> Response:
    """All that there ever were: those that are over tell why something was not told."""
    context = context_of(request)
    size, now = context.page_size(limit), context.clock()
    after = from_cursor("mutes", cursor, (float, str))
    with context.database.read() as db:
        rules = list_mutes(db, after=after, limit=size + 1)
    last = rules[size - 1] if len(rules) > size else None
    place = None if last is None else to_cursor("mutes", (last.created_at, last.id))
    return answer(MutePage(items=[_shown(rule, now) for rule in rules[:size]], next=place))


@router.post("", response_model=MuteAnswer, status_code=201, summary="Mute what matches, until an end")
def create_mute(request: Request, mute: NewMute) -> Response:
    """Nothing that matches is told outside until then; lists show it, and that it is muted."""
    context = context_of(request)
    now = context.clock()
    told = Muted(until=mute.until.timestamp(), why=mute.comment, who=_who(request), mute_id=None)
    matchers = {name: getattr(mute, name) for name in MATCHERS}
    try:
        with context.database.write() as db:
            rule = add_mute(db, matchers, told, now)
    except MuteError as error:
        raise ProblemError(422, "invalid-request", str(error)) from error
    return answer(_shown(rule, now), status=201)


@router.get("/{mute_id}", response_model=MuteAnswer, summary="One rule")
def get_mute(request: Request, mute_id: MuteId) -> Response:
    """What it matches, who made it and why, and whether it holds."""
    context = context_of(request)
    with context.database.read() as db:
        rule = find_mute(db, mute_id)
    if rule is None:
        raise not_found("mute", mute_id)
    return answer(_shown(rule, context.clock()))


@router.delete("/{mute_id}", response_model=MuteAnswer, summary="End a rule before its time")
def delete_mute(request: Request, mute_id: MuteId) -> Response:
    """It mutes no more, and stays to be read; one that is over already stays as it is."""
    context = context_of(request)
    now = context.clock()
    with context.database.write() as db:
        rule = end_mute(db, mute_id, _who(request), now)
    if rule is None:
        raise not_found("mute", mute_id)
    return answer(_shown(rule, now))


def _who(request: Request) -> str:
    return str(request.scope["state"]["grant"].name)


def _shown(rule: Mute, now: float) -> MuteAnswer:
    return MuteAnswer(
        id=rule.id,
        **{name: getattr(rule, name) for name in MATCHERS},
        comment=rule.comment,
        who=rule.who,
        created_at=timestamp(rule.created_at) or "",
        until=timestamp(rule.until) or "",
        active=rule.is_active(now),
        ended_at=timestamp(rule.ended_at),
        ended_by=rule.ended_by,
    )

"""`/v1/tokens`: which tokens there are, and nothing that opens anything."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import Field

from service.access import list_tokens

from .answers import answer
from .context import context_of
from .values import Answer, Timestamp, timestamp

router = APIRouter(prefix="/v1/tokens", tags=["tokens"])


class TokenSummary(Answer):
    """A token, as `firstfault token list` tells it."""

    name: str
    prefix: str = Field(description="Its first characters, to tell it by; they open nothing.")
    scopes: list[str] = Field(description="read, write, ingest.")
    created_at: Timestamp
    expires_at: Timestamp | None = Field(description="Null: never.")
    last_used_at: Timestamp | None = Field(description="To within a minute; null: never.")
    is_valid: bool = Field(description="False once it has expired or was revoked.")


class TokenPage(Answer):
    """All tokens, the newest first."""

    items: list[TokenSummary]
    next: None = Field(default=None, description="There is one page: tokens are few.")


@router.get("", response_model=TokenPage, summary="Tokens, without what they open")
def get_tokens(request: Request) -> Response:
    """Their names, scopes and times; the store holds a hash alone."""
    context = context_of(request)
    now = context.clock()
    with context.database.read() as db:
        found = list_tokens(db)
    items = [
        TokenSummary(
            name=one.name,
            prefix=one.prefix,
            scopes=list(one.scopes),
            created_at=timestamp(one.created_at) or "",
            expires_at=timestamp(one.expires_at),
            last_used_at=timestamp(one.last_used_at),
            is_valid=one.is_valid(now),
        )
        for one in sorted(found, key=lambda one: one.created_at, reverse=True)
    ]
    return answer(TokenPage(items=items))

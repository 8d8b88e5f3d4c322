"""Access tokens: made once, shown once, kept as a hash.

A token is ``ff_`` and 256 random bits. The store holds its SHA-256 (no slow hash is needed where nothing
can be guessed), its first characters to find and name it by, what it allows and until when.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, exists, insert, or_, select, update

from .database import Database
from .errors import ConfigError, StoreError
from .tables import tokens

log = logging.getLogger(__name__)

SCOPES = ("read", "write", "ingest")
_MARK = "ff_"
_RANDOM_BYTES = 32
_PREFIX = len(_MARK) + 8
"""Characters shown in lists: 48 of 256 bits, enough to tell tokens apart."""
_TOKEN = re.compile(r"ff_[A-Za-z0-9_-]{43}")
_MAX_NAME = 100
_USED_EVERY_S = 60.0
"""How exact the time of last use is: a write for each request would hold up the worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is known of a token; not the token."""

    id: str
    name: str
    prefix: str
    scopes: tuple[str, ...]
    created_at: float
    expires_at: float | None
    last_used_at: float | None

    def is_valid(self, now: float) -> bool:
        """Whether it still opens anything."""
        return self.expires_at is None or now < self.expires_at


def create_token(
    db: Connection, name: str, scopes: tuple[str, ...], now: float, lifetime_s: float | None = None
) -> str:
    """Make a token and return it: the only time that it is seen.

    Raises:
        ConfigError: a name or scope that cannot be.
    """
    if not 1 <= len(name) <= _MAX_NAME or not name.isprintable():
        raise ConfigError(f"name of a token must be 1 to {_MAX_NAME} printable characters, got {name!r}")
    wrong = [scope for scope in scopes if scope not in SCOPES]
    if wrong or not scopes:
        raise ConfigError(
            f"scope must be one or more of {', '.join(SCOPES)}, got {', '.join(wrong) or 'none'}"
        )
    token = _MARK + secrets.token_urlsafe(_RANDOM_BYTES)
    db.execute(
        insert(tokens).values(
            id=uuid.uuid4().hex[:12],
            name=name,
            prefix=token[:_PREFIX],
            sha256=_hash(token),
            scopes=" ".join(scope for scope in SCOPES if scope in scopes),
            created_at=now,
            expires_at=None if lifetime_s is None else now + lifetime_s,
        )
    )
    return token


def list_tokens(db: Connection) -> list[Token]:
    """All tokens, the oldest first."""
    rows = db.execute(select(tokens).order_by(tokens.c.created_at, tokens.c.id))
    return [_token(row) for row in rows]


def revoke_token(db: Connection, which: str, now: float) -> list[str]:
    """End the tokens of this id or prefix now; their ids, none if nothing valid is called so.

    The row stays, so that a service whose last token is revoked does not open itself to everybody.
    """
    named = or_(tokens.c.id == which, tokens.c.prefix == which)
    valid = or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > now)
    ended = update(tokens).where(named, valid).values(expires_at=now).returning(tokens.c.id)
    return [row.id for row in db.execute(ended)]


def rotate_token(
    db: Connection, which: str, now: float, lifetime_s: float | None = None, overlap_s: float = 0.0
) -> str | None:
    """A new token of the same name and scopes; the old one, by id or prefix, ends after ``overlap_s``.

    None if no valid token is called so. Without a lifetime the new one lives as long as the old one was to.
    """
    named = or_(tokens.c.id == which, tokens.c.prefix == which)
    valid = or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > now)
    row = db.execute(select(tokens).where(named, valid).order_by(tokens.c.created_at)).first()
    if row is None:
        return None
    if lifetime_s is None and row.expires_at is not None:
        lifetime_s = row.expires_at - row.created_at
    ends_at = now + overlap_s if row.expires_at is None else min(row.expires_at, now + overlap_s)
    db.execute(update(tokens).where(tokens.c.id == row.id).values(expires_at=ends_at))
    return create_token(db, row.name, tuple(row.scopes.split()), now, lifetime_s)


def forget_tokens(db: Connection) -> list[str]:
    """Remove every token, and give their ids: the service goes back to serving this machine alone."""
    return [row.id for row in db.execute(delete(tokens).returning(tokens.c.id))]


class TokenBook:
    """Looks tokens up in the store, and notes when they are used; safe to use from several threads."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    def has_tokens(self) -> bool:
        """Whether any token was ever made and not forgotten, expired ones included."""
        with self._database.read() as db:
            return bool(db.execute(select(exists().select_from(tokens))).scalar())

    def find(self, given: str) -> Token | None:
        """The valid token that was given; None for anything else."""
        if not _TOKEN.fullmatch(given):
            return None
        digest, now = _hash(given), self._clock()
        with self._database.read() as db:
            rows = db.execute(select(tokens).where(tokens.c.prefix == given[:_PREFIX])).all()
        # Every candidate is compared in full and in constant time: how long it takes tells nothing of a hash.
        matching = [row for row in rows if hmac.compare_digest(bytes(row.sha256), digest)]
        if not matching:
            return None
        token = _token(matching[0])
        if not token.is_valid(now):
            return None
        if token.last_used_at is None or now - token.last_used_at >= _USED_EVERY_S:
            self._note_use(token.id, now)
        return token

    def _note_use(self, token_id: str, now: float) -> None:
        try:
            with self._database.write() as db:
                db.execute(update(tokens).where(tokens.c.id == token_id).values(last_used_at=now))
        except StoreError as error:
            # a full or busy store must not lock people out of looking at it
            log.warning("the use of a token could not be noted", extra={"reason": str(error)})


def _token(row: Row[Any]) -> Token:
    return Token(
        id=row.id,
        name=row.name,
        prefix=row.prefix,
        scopes=tuple(row.scopes.split()),
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
    )


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()

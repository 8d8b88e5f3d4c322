"""Pages of a list by keyset: a cursor holds the last item's place, so inserts before it move nothing."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence

from .problems import bad_parameter

Key = tuple[str | int | float, ...]
"""The place of an item in its order; compared as a whole."""

_MAX_CURSOR = 512
"""Characters; the longest key is a time and an id."""


def to_cursor(order: str, key: Key) -> str:
    """An opaque text that names the place ``key`` in ``order``.

    >>> from_cursor("newest", to_cursor("newest", (1764470000.25, "8d5f")), (float, str))
    (1764470000.25, '8d5f')
    """
    text = json.dumps([order, *key], separators=(",", ":"), allow_nan=False)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def from_cursor(order: str, cursor: str | None, types: Sequence[type]) -> Key | None:
    """The place that a cursor names; None where there is none.

    Raises:
        ProblemError: 422, not a cursor of this list in this order.
    """
    if cursor is None:
        return None
    parts = _parts(cursor)
    if parts is None or parts[0] != order or [type(part) for part in parts[1:]] != list(types):
        raise bad_parameter("cursor", "must be the `next` of an answer to the same question")
    return tuple(parts[1:])


def _parts(cursor: str) -> list[str | int | float] | None:
    """What a cursor holds, if it is one: texts and numbers as the store can compare them."""
    if len(cursor) > _MAX_CURSOR:
        return None
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        parts = json.loads(text, parse_constant=_refuse)
    except (binascii.Error, ValueError, RecursionError):
        return None
    if not isinstance(parts, list) or not parts or not all(_is_plain(part) for part in parts):
        return None
    return parts


def _is_plain(part: object) -> bool:
    if isinstance(part, str):
        return part.isprintable()
    if isinstance(part, bool):
        return False
    if isinstance(part, int):
        return abs(part) < 2**63
    return isinstance(part, float) and abs(part) < 1e300  # 1e400 is read as infinity


def _refuse(token: str) -> object:
    raise ValueError(token)

"""Answers as bytes that we write ourselves.

FastAPI's own encoder turns NaN into null. Here a model writes its JSON (non-finite numbers are
strings), canonical bytes are spliced in as they are, and a strong ETag names exactly these bytes.
"""

from __future__ import annotations

from hashlib import blake2b

from fastapi import Request, Response
from pydantic import BaseModel

_JSON = "application/json"


def answer(model: BaseModel, *, status: int = 200) -> Response:
    """A model as JSON."""
    return Response(body_of(model), status_code=status, media_type=_JSON)


def tagged(request: Request, body: bytes) -> Response:
    """``body`` with its ETag; 304 without a body where the client has it already."""
    tag = etag_of(body)
    if tag_matches(request.headers.getlist("if-none-match"), tag, is_weak_fine=True):
        return Response(status_code=304, headers={"ETag": tag})
    return Response(body, media_type=_JSON, headers={"ETag": tag})


def body_of(model: BaseModel) -> bytes:
    """The JSON of a model; absent is null, non-finite is text."""
    return model.model_dump_json(by_alias=True).encode()


def spliced(model: BaseModel, name: str, canonical: bytes) -> bytes:
    """A model's JSON object with one more key ``name``, whose value is ``canonical`` byte for byte."""
    head = body_of(model)
    assert head.endswith(b"}")
    comma = b"" if head == b"{}" else b","
    return head[:-1] + comma + f'"{name}":'.encode() + canonical + b"}"


def etag_of(body: bytes) -> str:
    """A strong entity tag: the hash of the bytes."""
    return f'"{blake2b(body, digest_size=16).hexdigest()}"'


def tag_matches(given: list[str], tag: str, *, is_weak_fine: bool) -> bool:
    """Whether a list of tags, as If-Match and If-None-Match have it, holds ``tag`` or the star.

    >>> tag_matches(['"a", W/"b"'], '"b"', is_weak_fine=True)
    True
    >>> tag_matches(['W/"b"'], '"b"', is_weak_fine=False)
    False
    """
    tags = [one.strip() for value in given for one in value.split(",")]
    if is_weak_fine:
        tags = [one.removeprefix("W/") for one in tags]
    return tag in tags or "*" in tags

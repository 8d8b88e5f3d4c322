"""The body of a request: what it claims to be, received and unpacked within its limits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ingest.compression import OversizedInput, decompress_bounded
from ingest.errors import UnreadableInput

from .intake_config import IntakeConfig
from .intake_problem import IntakeProblem, unavailable


class Media(StrEnum):
    """What a body may hold."""

    LINES = "application/x-ndjson"
    JSON = "application/json"
    ARROW = "application/vnd.apache.arrow.stream"


CODECS = ("gzip", "zstd", "identity")
_LEAST_BYTES = 1 << 16
"""What a request counts for at least: its buffers."""
_CHARSET = re.compile(r';\s*charset\s*=\s*"?([^";\s]*)', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Claim:
    """What the headers say of a body."""

    media: Media
    codec: str
    size: int | None
    """Content-Length, where one was sent."""


class Waiting:
    """Counts the bytes of all bodies that are being received or worked on; of one event loop."""

    def __init__(self, config: IntakeConfig) -> None:
        self._config = config
        self.bytes = 0

    def add(self, size: int) -> None:
        """Count ``size`` bytes more.

        Raises:
            IntakeProblem: 503, too many bytes wait already.
        """
        if self.bytes + size > self._config.max_waiting_bytes:
            rule = f"bodies of at most {self._config.max_waiting_bytes} bytes may wait at once"
            raise unavailable(f"{rule}, {self.bytes} do", self._config.retry_after_s)
        self.bytes += size


def claim_of(headers: Mapping[str, str], config: IntakeConfig) -> Claim:
    """What the headers say, before a byte of the body is read.

    Raises:
        IntakeProblem: 400, 413 or 415, with what is understood.
    """
    codec = headers.get("content-encoding", "identity").strip().lower() or "identity"
    codec = "gzip" if codec == "x-gzip" else codec
    if codec not in CODECS:
        detail = f"Content-Encoding must be one of {', '.join(CODECS)}, got {codec[:80]!r}"
        raise IntakeProblem(
            415, "unsupported-encoding", detail, headers={"Accept-Encoding": ", ".join(CODECS)}
        )
    media = _media_of(headers.get("content-type", ""))
    declared = headers.get("content-length")
    if declared is None:
        return Claim(media, codec, None)
    if not declared.isascii() or not declared.isdigit():
        detail = f"Content-Length must be a number of bytes, got {declared[:80]!r}"
        raise IntakeProblem(400, "bad-length", detail)
    if int(declared) > config.max_body_bytes:
        raise _too_large(config, declared)
    return Claim(media, codec, int(declared))


async def received(
    pieces: AsyncIterator[bytes], claim: Claim, config: IntakeConfig, waiting: Waiting
) -> bytes:
    """The body as it was sent; never holds more of it than the limit.

    Adds to ``waiting`` what the caller must take off again: `held_bytes` of the result.

    Raises:
        IntakeProblem: 400, 408, 413 or 503; then ``waiting`` is as before.
    """
    body = bytearray()
    waiting.add(_LEAST_BYTES)
    counted = _LEAST_BYTES
    try:
        async with asyncio.timeout(config.body_timeout_s):
            async for piece in pieces:
                if len(body) + len(piece) > config.max_body_bytes:
                    raise _too_large(config, f"more than {len(body)}")
                body += piece
                if len(body) > counted:
                    waiting.add(len(body) - counted)
                    counted = len(body)
        _check_length(body, claim)
    except BaseException as error:
        waiting.bytes -= counted
        if isinstance(error, TimeoutError):
            rule = f"a body must arrive within {config.body_timeout_s} s"
            raise IntakeProblem(408, "body-timeout", f"{rule}, {len(body)} bytes did") from error
        raise
    return bytes(body)


def held_bytes(body: bytes) -> int:
    """What a received body counts for."""
    return max(_LEAST_BYTES, len(body))


def unpacked(body: bytes, claim: Claim, config: IntakeConfig) -> bytes:
    """The body without its content encoding.

    Raises:
        IntakeProblem: 400 if it is damaged or empty, 413 if it unpacks to more than allowed.
    """
    is_json = claim.media is Media.JSON
    limit = min(config.max_json_bytes, config.max_unpacked_bytes) if is_json else config.max_unpacked_bytes
    try:
        data = decompress_bounded(body, claim.codec, limit)
    except OversizedInput as error:
        raise IntakeProblem(413, "too-large", str(error)) from error
    except UnreadableInput as error:
        raise IntakeProblem(400, "bad-encoding", str(error)) from error
    if not data or data.isspace():
        raise IntakeProblem(400, "empty-body", f"the body must hold records, got {len(data)} bytes")
    return data


def _media_of(content_type: str) -> Media:
    name = content_type.partition(";")[0].strip().lower()
    if name not in list(Media):
        detail = f"Content-Type must be one of {', '.join(Media)}, got {content_type[:80]!r}"
        raise IntakeProblem(415, "unsupported-media-type", detail, headers={"Accept-Post": ", ".join(Media)})
    charset = _CHARSET.search(content_type)
    if charset is not None and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise IntakeProblem(415, "unsupported-charset", f"charset must be utf-8, got {charset[1][:40]!r}")
    return Media(name)


def _check_length(body: bytearray, claim: Claim) -> None:
    if claim.size is not None and len(body) != claim.size:
        detail = f"the body must have the {claim.size} bytes of its Content-Length, got {len(body)}"
        raise IntakeProblem(400, "bad-length", detail)


def _too_large(config: IntakeConfig, size: str) -> IntakeProblem:
    # What is left of the body is not read, so the connection cannot be used again.
    detail = f"a body must have at most {config.max_body_bytes} bytes, got {size}"
    return IntakeProblem(413, "too-large", detail, headers={"Connection": "close"})

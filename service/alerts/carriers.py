"""What carries a message to each kind of channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import ConfigError
from .apprise_parent import notify
from .config import AlertsConfig, ChannelConfig, ChannelKind
from .message import Alert, alertmanager_body, text_of, webhook_body
from .secrets import address_of, signing_keys, token_of
from .signing import signed_headers
from .target import Limits, Refused, Reply, Unreachable, post

_FINAL = frozenset({400, 410, 413, 422})
"""Answers after which the same message will never be taken; others may be a matter of time or settings."""
_MAX_RETRY_AFTER_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one try."""

    is_sent: bool
    detail: str
    retry_after_s: float = 0.0
    """Least wait that the receiver asked for."""
    is_final: bool = False
    """Whether trying again is of no use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A message as it goes to a carrier."""

    id: str
    channel: str
    settings: ChannelConfig
    config: AlertsConfig
    base_url: str
    made_at: float
    """When it was put out: a message that is sent again is the same to the byte."""
    now: float


def send(letter: Letter, alerts: Sequence[Alert]) -> Outcome:
    """Carry alerts to a webhook or through apprise, once; of an Alertmanager see `send_state`."""
    if letter.settings.kind is ChannelKind.APPRISE:
        title, text = text_of(alerts, base_url=letter.base_url)
        return _tried(lambda: _notify(letter, title, text))
    body = webhook_body(letter.channel, alerts, base_url=letter.base_url, now=letter.made_at)

    def posted() -> Outcome:
        keys = signing_keys(letter.channel, letter.settings)
        signed = signed_headers(letter.id, int(letter.now), body, keys)
        return _judged(_post(letter, address_of(letter.channel, letter.settings), body, signed))

    return _tried(posted)


def send_state(letter: Letter, alerts: Sequence[tuple[Alert, float]]) -> Outcome:
    """Tell an Alertmanager of alerts, each with the time at which it is over, once."""
    body = alertmanager_body(alerts, base_url=letter.base_url)

    def posted() -> Outcome:
        url = address_of(letter.channel, letter.settings).rstrip("/") + "/api/v2/alerts"
        return _judged(_post(letter, url, body, {}))

    return _tried(posted)


def _post(letter: Letter, url: str, body: bytes, headers: Mapping[str, str]) -> Reply:
    token = token_of(letter.channel, letter.settings)
    always = {"Content-Type": "application/json", "User-Agent": "firstfault", "Connection": "close"}
    bearer = {"Authorization": f"Bearer {token}"} if token else {}
    limits = Limits(
        timeout_s=letter.config.timeout_s,
        allow_private=letter.settings.allow_private,
        ca_file=letter.settings.ca_file,
    )
    return post(url, body, {**always, **bearer, **headers}, limits)


def _notify(letter: Letter, title: str, text: str) -> Outcome:
    url = address_of(letter.channel, letter.settings)
    failure = notify(
        url, title, text, timeout_s=letter.config.timeout_s, allow_private=letter.settings.allow_private
    )
    return Outcome(is_sent=not failure, detail=failure or "taken")


def _tried(attempt: Callable[[], Outcome]) -> Outcome:
    """What an attempt gives, errors as words; none of them holds an address or a secret."""
    try:
        return attempt()
    except (ConfigError, Refused, Unreachable) as error:
        return Outcome(is_sent=False, detail=str(error))


def _judged(reply: Reply) -> Outcome:
    """What an answer means."""
    if 200 <= reply.status < 300:
        return Outcome(is_sent=True, detail=f"answered {reply.status}")
    if 300 <= reply.status < 400:
        told = f"answered {reply.status}: redirects are not followed, give the address that it leads to"
        return Outcome(is_sent=False, detail=told)
    return Outcome(
        is_sent=False,
        detail=f"answered {reply.status}",
        retry_after_s=_seconds(reply.retry_after),
        is_final=reply.status in _FINAL,
    )


def _seconds(retry_after: str | None) -> float:
    """Seconds that a receiver asked us to wait; a date of HTTP is taken for a minute.

    >>> _seconds("120"), _seconds("Wed, 21 Oct 2026 07:28:00 GMT"), _seconds("1e9")
    (120.0, 60.0, 60.0)
    """
    if not retry_after:
        return 0.0
    text = retry_after.strip()
    return min(float(text), _MAX_RETRY_AFTER_S) if text.isascii() and text.isdigit() else 60.0

"""Settings of alerts: the channels, and how messages to them are tried again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from detectors.evidence import Certainty, Label
from detectors.incident import Severity
from ingest.bounds import check_bounds

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_MAX_CHANNELS = 32
"""Each channel has a thread of its own, so that one that hangs holds up no other."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ChannelKind(StrEnum):
    """What a channel speaks."""

    WEBHOOK = "webhook"
    ALERTMANAGER = "alertmanager"
    APPRISE = "apprise"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelConfig:
    """One channel: where messages go, what they are signed with, and which incidents it hears of."""

    kind: ChannelKind
    """``webhook`` (signed, in Alertmanager's shape), ``alertmanager`` (its API v2), or ``apprise`` (Slack,
    e-mail and a hundred others; needs the extra ``notify``)."""
    url: str = ""
    """Address of a webhook or of an Alertmanager. One that holds a secret belongs into ``url_env`` or
    ``url_file``; those of apprise all do."""
    url_env: str = ""
    """Environment variable that holds the address."""
    url_file: str = ""
    """File that holds the address in its first line; read at each message."""
    secret_env: str = ""
    """Environment variable with what a webhook is signed with: ``whsec_`` and base64, several with spaces."""
    secret_file: str = ""
    """File with the same, one a line, read at each message: while one replaces another, both are used."""
    token_env: str = ""
    """Environment variable with a bearer token that the receiver asks for."""
    token_file: str = ""
    """File with the same."""
    ca_file: str = ""
    """Certificates (PEM) that the receiver's is checked against; empty: those of the system."""
    allow_private: bool = False
    """Whether the address may be one of this machine or of a private network, and plain http: a name that
    somebody else decides on must not lead messages to a service inside."""
    min_severity: Severity = Severity.WARNING
    """Least severity that is told."""
    min_certainty: Certainty = Certainty.CONFIRMED
    """``confirmed``: only those make a run unhealthy. ``suspected`` tells earlier, and of false ones too."""
    labels: tuple[Label, ...] = ()
    """Only these labels; empty: all."""
    runs: str = "*"
    """Only runs whose whole name matches this pattern, in which * and ? stand for anything."""
    tells_resolved: bool = True
    """Whether it is told that an incident is over, was withdrawn, or that somebody resolved it."""
    cool_down_s: float = 300.0
    """After a message about a run its next incidents wait so long, and come in one message. What gets worse
    is told at once. An Alertmanager groups by itself and is not made to wait."""

    def __post_init__(self) -> None:
        check_bounds(self, {"cool_down_s": (0.0, 86_400.0)})
        if self.min_certainty is Certainty.RECOVERED:
            raise ValueError("min_certainty must be suspected or confirmed, got 'recovered'")
        given = [name for name in ("url", "url_env", "url_file") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(f"url, url_env or url_file: give one of them, got {', '.join(given) or 'none'}")
        for name in ("url_env", "secret_env", "token_env"):
            if getattr(self, name) and not _VARIABLE.fullmatch(getattr(self, name)):
                raise ValueError(f"{name} must be the name of an environment variable")
        for name in ("secret", "token"):
            if getattr(self, f"{name}_env") and getattr(self, f"{name}_file"):
                raise ValueError(f"{name}_env and {name}_file: give one of them, got both")
        is_webhook = self.kind is ChannelKind.WEBHOOK
        if is_webhook != bool(self.secret_env or self.secret_file):
            rule = "a webhook needs what it is signed with" if is_webhook else "only a webhook is signed"
            raise ValueError(f"secret_env or secret_file: {rule}")
        if self.url:
            self._check_shown_url()

    def _check_shown_url(self) -> None:
        if self.kind is ChannelKind.APPRISE:
            raise ValueError("url: addresses of apprise hold secrets; use url_env or url_file")
        if "@" in urlsplit(self.url).netloc or urlsplit(self.url).query:
            raise ValueError("url holds a password or a query; use url_env or url_file")
        check_address(self.url, allow_private=self.allow_private)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsConfig:
    """Whom to tell of incidents, and how often it is tried."""

    channels: Mapping[str, ChannelConfig] = field(default_factory=dict)
    """Channels by name, each a table `[alerts.channels.NAME]`; its keys are in docs/alerts.md."""
    public_url: str = ""
    """Address of the dashboard as people reach it, for links; empty: that of `serve` on this machine."""
    timeout_s: float = 10.0
    """Longest time that one message may take, from looking up the name to the end of the answer."""
    retry_first_s: float = 1.0
    """Wait after the first failure; it doubles each time, with jitter, and a receiver may ask for more."""
    retry_max_s: float = 300.0
    """Longest such wait: a receiver that is back is told within five minutes."""
    give_up_after_s: float = 86_400.0
    """After a day of failures a message is given up, and `/readyz` says so: by then it is history."""
    resend_every_s: float = 60.0
    """How often an Alertmanager is told again of what stands; after four of these it takes it for over."""
    poll_s: float = 1.0
    """How often a worker looks for messages that others put out; its own it sends at once."""
    keep_s: float = 604_800.0
    """How long messages that were sent or given up are listed: a week."""

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)
        if len(self.channels) > _MAX_CHANNELS:
            raise ValueError(f"channels: at most {_MAX_CHANNELS}, got {len(self.channels)}")
        for name in self.channels:
            if not _NAME.fullmatch(name):
                raise ValueError(f"channels: a name is 1 to 40 of a-z, 0-9, - and _, got {name!r}")
        if self.public_url and urlsplit(self.public_url).scheme not in ("http", "https"):
            raise ValueError(f"public_url must begin with http:// or https://, got {self.public_url!r}")


_BOUNDS = {
    "timeout_s": (0.1, 120.0),
    "retry_first_s": (0.01, 3600.0),
    "retry_max_s": (0.01, 86_400.0),
    "give_up_after_s": (0.0, 31_536_000.0),
    "resend_every_s": (0.1, 3600.0),
    "poll_s": (0.01, 60.0),
    "keep_s": (0.0, 31_536_000.0),
}


def check_address(url: str, *, allow_private: bool) -> None:
    """Refuse an address that no message may go to, whatever its name leads to.

    Raises:
        ValueError: not http or https, without a host, or plain http to the outside.
    """
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_web = False
    if not is_web or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("url must be http:// or https:// and a host, in printable ASCII")
    if parts.scheme == "http" and not allow_private:
        raise ValueError("url must begin with https://; plain http only with allow_private = true")

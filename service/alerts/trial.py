"""Trying a channel: a test message now, and a look at whether one could be sent at all."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .carriers import Letter, Outcome, send, send_state
from .config import AlertsConfig, ChannelKind
from .links import link_base
from .message import sample_alert
from .secrets import check_secrets

if TYPE_CHECKING:
    from ..config import Settings

_TEST_LASTS_S = 60.0


def send_test(settings: Settings, channel: str, now: float) -> Outcome:
    """Send a test message from this process.

    Raises:
        ConfigError: there is no such channel, or what it needs is not there.
    """
    config = settings.alerts
    if channel not in config.channels:
        names = ", ".join(config.channels) or "none"
        raise ConfigError(f"alerts.channels: there is no channel {channel!r}, only {names}")
    check_secrets(channel, config.channels[channel])
    letter = Letter(
        id=f"msg_{uuid.uuid4().hex}",
        channel=channel,
        settings=config.channels[channel],
        config=config,
        base_url=link_base(config, settings.serve),
        made_at=now,
        now=now,
    )
    alert = sample_alert(channel, now)
    if letter.settings.kind is ChannelKind.ALERTMANAGER:
        return send_state(letter, [(alert, now + _TEST_LASTS_S)])
    return send(letter, [alert])


def check_channels(config: AlertsConfig) -> None:
    """Read what every channel needs, before anything is to be told.

    Raises:
        ConfigError: something is not there, or cannot be.
    """
    for name, channel in config.channels.items():
        check_secrets(name, channel)

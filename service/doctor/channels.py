"""The alert channels: whether what they need is there and receivers can be reached. Nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from ..alerts.apprise_parent import CURE
from ..alerts.config import AlertsConfig, ChannelConfig, ChannelKind
from ..alerts.secrets import address_of, check_secrets, shown_address
from ..alerts.target import Limits, Refused, Unreachable, reach
from ..errors import ConfigError
from .finding import Finding, fail, ok, skipped, warn

_CHECK = "alerts"


def look_at_channels(config: AlertsConfig) -> Iterator[Finding]:
    """One line for each channel."""
    if not config.channels:
        yield skipped(_CHECK, "no channel is set: nobody is told of incidents")
    for name, channel in config.channels.items():
        yield look_at_settings(name, channel) or _look_at_receiver(name, channel, config)


def look_at_settings(name: str, channel: ChannelConfig) -> Finding | None:
    """What is wrong before anything is connected to; None where nothing is."""
    try:
        check_secrets(name, channel)
    except ConfigError as error:
        return fail(_CHECK, str(error), "put it there, readable for this account")
    if channel.kind is ChannelKind.APPRISE and find_spec("apprise") is None:
        return fail(_CHECK, f"{name}: apprise is not installed", CURE)
    return None


def _look_at_receiver(name: str, channel: ChannelConfig, config: AlertsConfig) -> Finding:
    place = f"{name}: {channel.kind} {shown_address(name, channel)}"
    if channel.kind is ChannelKind.APPRISE:
        return ok(_CHECK, f"{place}; `firstfault alerts test {name}` sends a message")
    limits = Limits(timeout_s=config.timeout_s, allow_private=channel.allow_private, ca_file=channel.ca_file)
    try:
        reach(address_of(name, channel), limits)
    except Refused as error:
        return fail(_CHECK, f"{place}: {error}", "correct the address, or set allow_private = true")
    except Unreachable as error:
        return fail(_CHECK, f"{place}: {error}", "correct the address, let this machine out, or start it")
    if channel.kind is ChannelKind.WEBHOOK and not channel.url.startswith("https://") and channel.url:
        return warn(_CHECK, f"{place} can be reached, in the clear", "use https:// where others may listen")
    return ok(_CHECK, f"{place} can be reached")

"""What a channel keeps to itself: read from the environment or a file when it is needed, and never shown."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import ConfigError
from .config import ChannelConfig, ChannelKind, check_address

_MAX_BYTES = 64 << 10
_MARK = "whsec_"
_LEAST_KEY_BYTES = 16
"""Below this a key could be guessed from one signed message."""


def address_of(name: str, channel: ChannelConfig) -> str:
    """The channel's address.

    Raises:
        ConfigError: it is not there, or no message may go to it.
    """
    if channel.url:
        return channel.url
    lines = _lines(name, "url", channel.url_env, channel.url_file)
    if channel.kind is not ChannelKind.APPRISE:
        try:
            check_address(lines[0], allow_private=channel.allow_private)
        except ValueError as error:
            raise ConfigError(f"alerts.channels.{name}: {error}") from error
    return lines[0]


def signing_keys(name: str, channel: ChannelConfig) -> list[bytes]:
    """The keys that a webhook is signed with, the newest first as they are given.

    Raises:
        ConfigError: there is none, or one is not ``whsec_`` and base64.
    """
    texts = _lines(name, "secret", channel.secret_env, channel.secret_file)
    return [_key(name, text) for line in texts for text in line.split()]


def token_of(name: str, channel: ChannelConfig) -> str | None:
    """The bearer token of the receiver, if it asks for one.

    Raises:
        ConfigError: it is not there.
    """
    if not channel.token_env and not channel.token_file:
        return None
    token = _lines(name, "token", channel.token_env, channel.token_file)[0]
    if not token.isascii() or not token.isprintable():
        raise ConfigError(f"alerts.channels.{name}: the token must be printable ASCII")
    return token


def check_secrets(name: str, channel: ChannelConfig) -> None:
    """Read everything that the channel needs.

    Raises:
        ConfigError: something is not there, or cannot be.
    """
    address_of(name, channel)
    token_of(name, channel)
    if channel.kind is ChannelKind.WEBHOOK:
        signing_keys(name, channel)


def shown_address(name: str, channel: ChannelConfig) -> str:
    """Where messages go, as far as that is no secret: paths of webhooks are, and so is all of apprise's.

    >>> shown_address("am", ChannelConfig(kind=ChannelKind.ALERTMANAGER, url="https://am.example/prefix"))
    'https://am.example/…'
    """
    try:
        parts = urlsplit(address_of(name, channel))
    except ConfigError:
        return "not set"
    if channel.kind is ChannelKind.APPRISE:
        return f"{parts.scheme}://…"
    port = f":{parts.port}" if parts.port else ""
    path = "/…" if parts.path not in ("", "/") else ""
    return f"{parts.scheme}://{parts.hostname}{port}{path}"


def _lines(name: str, what: str, variable: str, path: str) -> list[str]:
    where = f"alerts.channels.{name}.{what}_" + (f"env: {variable}" if variable else f"file: {path}")
    if variable:
        text = os.environ.get(variable, "")
    else:
        try:
            with Path(path).open("rb") as file:
                text = file.read(_MAX_BYTES).decode("ascii")
        except OSError as error:
            raise ConfigError(f"{where}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{where}: must be ASCII") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise ConfigError(f"{where}: is empty or not set")
    return lines


def _key(name: str, text: str) -> bytes:
    rule = f"alerts.channels.{name}: a secret must be {_MARK} and base64 of {_LEAST_KEY_BYTES} bytes or more"
    if not text.startswith(_MARK):
        raise ConfigError(rule)
    try:
        key = base64.b64decode(text.removeprefix(_MARK), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(rule) from error
    if len(key) < _LEAST_KEY_BYTES:
        raise ConfigError(rule)
    return key

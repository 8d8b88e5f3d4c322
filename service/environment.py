"""What the environment sets: addresses and secrets, each given itself or as the name of a file.

Container engines and systemd hand secrets out as files; a variable with `_FILE` behind its name is the
name of one, whose text counts without the line end behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .errors import ConfigError

ENVIRONMENT: Mapping[str, str] = {
    "FIRSTFAULT_KAFKA": "kafka.bootstrap",
    "FIRSTFAULT_KAFKA_USERNAME": "kafka.client.sasl_plain_username",
    "FIRSTFAULT_KAFKA_PASSWORD": "kafka.client.sasl_plain_password",
    "FIRSTFAULT_STORE": "store.url",
    "FIRSTFAULT_STORE_PASSWORD": "store.password",
}
"""Which variable sets which key."""
_FILE = "_FILE"
_MAX_BYTES = 65_536
"""No secret is longer; a device or a log named by mistake is."""


def settings_of(given: Mapping[str, str]) -> dict[str, str]:
    """The keys that the environment sets, with their values.

    Raises:
        ConfigError: a variable and its file are both given, or the file cannot be read.
    """
    found = {key: _value(given, name) for name, key in ENVIRONMENT.items()}
    return {key: value for key, value in found.items() if value}


def _value(given: Mapping[str, str], name: str) -> str:
    path = given.get(name + _FILE)
    if not path:
        return given.get(name, "")
    if given.get(name):
        raise ConfigError(f"{name} and {name}{_FILE} must not both be set")
    try:
        with Path(path).open("rb") as file:
            body = file.read(_MAX_BYTES + 1)
        text = body.decode()
    except OSError as error:
        raise ConfigError(f"{name}{_FILE}: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}{_FILE}: {path}: must be UTF-8") from error
    if len(body) > _MAX_BYTES:
        raise ConfigError(f"{name}{_FILE}: {path}: must have at most {_MAX_BYTES} bytes")
    return text.removesuffix("\n").removesuffix("\r")

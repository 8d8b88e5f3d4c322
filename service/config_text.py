"""Settings as text: TOML that reads back, without the secrets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .store_config import masked

if TYPE_CHECKING:
    from .config import Settings

MASK = "********"


def to_toml(settings: Settings) -> str:
    """The settings as TOML that `load_settings` reads back; secrets are masked, unset keys commented out."""
    return "\n".join(_table(one.name, getattr(settings, one.name)) for one in dataclasses.fields(settings))


def _table(name: str, owner: object) -> str:
    lines, nested = [f"[{name}]"], []
    for one in dataclasses.fields(owner):  # type: ignore[arg-type]  # callers pass dataclass instances
        value = getattr(owner, one.name)
        if dataclasses.is_dataclass(value):
            nested.append(_table(f"{name}.{one.name}", value))
        elif isinstance(value, Mapping) and any(map(dataclasses.is_dataclass, value.values())):
            nested += [_table(f"{name}.{one.name}.{inner}", value[inner]) for inner in sorted(value)]
        elif isinstance(value, Mapping):
            free = [f"{_toml(key)} = {_toml(_masked(key, value[key]))}" for key in sorted(value)]
            nested.append("\n".join([f"[{name}.{one.name}]", *free, ""]))
        elif value is None:
            lines.append(f"# {one.name} is not set")
        else:
            lines.append(f"{one.name} = {_toml(_masked(one.name, value))}")
    return "\n".join([*lines, "", *nested])


def _masked(name: str, value: object) -> object:
    if isinstance(value, str) and "://" in value:
        return masked(value)
    names_a_place = name.endswith(("_env", "_file"))  # where a secret is, which is none itself
    words = ("password", "secret", "token", "sasl_oauth")
    is_secret = not names_a_place and any(word in name for word in words)
    return MASK if value and is_secret and isinstance(value, str) else value


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(_toml(one) for one in value)}]"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'

"""Settings: one TOML file and a few environment variables, read into the dataclasses of their owners.

A table of the file is one dataclass (`SECTIONS`), a key one field of it. An unknown table or key, a
value of the wrong type or out of range stops the start and is named in full. The environment holds
addresses and secrets only (`ENVIRONMENT`), and wins over the file.
"""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from detectors.registry import DetectorsConfig
from ingest.decode_config import DecodeConfig
from ingest.kafka_config import KafkaSourceConfig
from ingest.spool import SpoolConfig

from .alerts.config import AlertsConfig
from .api.settings import ApiConfig
from .config_text import MASK
from .environment import ENVIRONMENT, settings_of
from .errors import ConfigError
from .history_config import HistoryConfig
from .intake_config import IntakeConfig
from .pipeline import PipelineConfig
from .retention_config import RetentionConfig
from .serve_config import ServeConfig
from .store_config import StoreConfig

__all__ = ["ENVIRONMENT", "Settings", "WorkerConfig", "load_settings", "names_kafka", "setting_keys"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """How often the worker speaks and saves; no verdict depends on any of it."""

    compiles_beforehand: bool = True
    """Have the detectors' loops compiled by a child process at the start, half a minute of a core where a
    release never ran before; without it the worker stops for that once it has folded much."""
    poll_timeout_s: float = 0.5
    """Longest wait for the next records: also how late a stop is noticed at worst."""
    judge_every_s: float = 0.5
    """Least time between two looks at the same runs: a verdict costs milliseconds a run, and nobody
    reads faster."""
    judge_at_most_s: float = 1.0
    """Longest stretch of verdicts, each a commit, before the worker reads on and says how it is: with
    thousands of runs it would otherwise be taken for dead. One verdict is always made."""
    settle_after_s: float = 1.0
    """Once nothing came for so long, what is there is judged as if it ended; until then iterations
    that some rank has yet to report are left out of the verdict."""
    checkpoint_every_s: float = 10.0
    """Longest stretch read again after a crash; at 100 000 records/s that is ten seconds of work."""
    checkpoint_every_records: int = 1_000_000
    """A checkpoint also comes after so many records, so that a catch-up is not lost to a crash."""
    hold_for_letters_s: float = 30.0
    """A checkpoint waits so long for rejected lines to arrive in their topic: after a crash they are read,
    and sent, again. Beyond, the topic is taken to be out of order, and judging goes on without it."""
    store_retry_s: float = 1.0
    """Wait before the store is tried again when it is full or its server is away; nothing is read then."""
    health_every_s: float = 1.0
    """How often the worker says how it stands; a row that is much older tells of a dead worker."""
    quiet_after_s: float = 600.0
    """A run that is not over and of which nothing came for so long is shown as quiet: longer than a
    checkpoint of a large model or an evaluation takes."""
    retire_after_s: float = 86_400.0
    """A run of which nothing came for a day leaves the memory; its state is fetched back if it goes on."""
    max_losses: int = 5
    """Times in a row that other workers may take our partitions before anything came of them: beyond,
    two groups work on one store and would go on to take them from each other for ever."""

    def __post_init__(self) -> None:
        for name, least in (
            ("poll_timeout_s", 0.01),
            ("judge_every_s", 0.0),
            ("judge_at_most_s", 0.0),
            ("settle_after_s", 0.1),
            ("checkpoint_every_s", 0.1),
            ("hold_for_letters_s", 0.0),
            ("store_retry_s", 0.01),
            ("health_every_s", 0.05),
        ):
            if not least <= getattr(self, name) <= 3600.0:
                raise ValueError(f"{name} must be from {least} to 3600, got {getattr(self, name)}")
        for name in ("quiet_after_s", "retire_after_s"):
            if not 1.0 <= getattr(self, name) <= 31_536_000.0:
                raise ValueError(f"{name} must be from 1 to 31536000, got {getattr(self, name)}")
        if self.max_losses < 1:
            raise ValueError(f"max_losses must be >= 1, got {self.max_losses}")
        if self.checkpoint_every_records < 1:
            raise ValueError(f"checkpoint_every_records must be >= 1, got {self.checkpoint_every_records}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set, by table."""

    kafka: KafkaSourceConfig = field(default_factory=KafkaSourceConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    pipeline: PipelineConfig = field(default_factory=PipelineConfig)
    detectors: DetectorsConfig = field(default_factory=DetectorsConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    spool: SpoolConfig = field(default_factory=SpoolConfig)
    intake: IntakeConfig = field(default_factory=IntakeConfig)
    serve: ServeConfig = field(default_factory=ServeConfig)
    alerts: AlertsConfig = field(default_factory=AlertsConfig)
    retention: RetentionConfig = field(default_factory=RetentionConfig)


def load_settings(
    path: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """The resolved settings: defaults, then file, environment and ``overrides`` (``kafka.group``: value).

    Lists in the environment and in overrides may be text with commas.

    Raises:
        ConfigError: the file cannot be read or parsed, or a key or value in it cannot be.
    """
    tables = _read(path) if path is not None else {}
    given = os.environ if environment is None else environment
    for key, value in {**settings_of(given), **(overrides or {})}.items():
        _put(tables, key, value)
    settings = _build(Settings, tables, "")
    assert isinstance(settings, Settings)
    return settings


def with_changes(settings: Settings, changes: Mapping[str, object]) -> Settings:
    """``settings`` with some of the detectors' changed (``detectors.explosion.loss_hold``: value).

    Raises:
        ConfigError: a key is no setting of a detector, or its value cannot be.
    """
    tables: dict[str, object] = {"detectors": _set_values(settings.detectors)}
    for key, value in changes.items():
        if not key.startswith("detectors."):
            raise ConfigError(f"{key}: only settings of detectors can be tried: detectors.NAME.SETTING")
        _put(tables, key, value)
    built = _build(Settings, tables, "")
    assert isinstance(built, Settings)
    return dataclasses.replace(settings, detectors=built.detectors)


def _set_values(owner: object) -> dict[str, object]:
    """The fields of a dataclass as a file would have them; what is not set is left out."""
    found: dict[str, object] = {}
    for one in dataclasses.fields(owner):  # type: ignore[arg-type]  # callers pass dataclass instances
        value = getattr(owner, one.name)
        if value is not None:
            found[one.name] = _set_values(value) if dataclasses.is_dataclass(value) else value
    return found


def names_kafka(path: Path | None = None, *, environment: Mapping[str, str] | None = None) -> bool:
    """Whether file or environment name a broker: the default address is nobody's choice.

    Raises:
        ConfigError: the file cannot be read or parsed.
    """
    given = os.environ if environment is None else environment
    table = _read(path).get("kafka") if path is not None else None
    return "kafka.bootstrap" in settings_of(given) or (isinstance(table, Mapping) and "bootstrap" in table)


def setting_keys() -> list[str]:
    """The full name of every setting, in order."""
    return [
        key for one in dataclasses.fields(Settings) for key in _keys(one.name, getattr(Settings(), one.name))
    ]


def detector_settings(detectors: DetectorsConfig) -> dict[str, object]:
    """Every setting of the detectors by its full name, in order, with its value."""
    found: dict[str, object] = {}
    for key in _keys("detectors", detectors):
        value: object = detectors
        for name in key.split(".")[1:]:
            value = getattr(value, name)
        found[key] = value
    return found


def _put(tables: dict[str, object], key: str, value: object) -> None:
    """Set ``a.b.c`` in nested tables; what is in the way of the tables is replaced."""
    *parents, name = key.split(".")
    for parent in parents:
        inner = tables.get(parent)
        if not isinstance(inner, dict):
            inner = tables[parent] = {}
        tables = inner
    tables[name] = value


def _read(path: Path) -> dict[str, object]:
    import tomllib  # most replays have no settings of their own

    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


def _build(owner: type, table: Mapping[str, object], prefix: str) -> object:
    """``owner`` with the fields of ``table``; nested dataclasses are nested tables."""
    hints = typing.get_type_hints(owner)
    names = [one.name for one in dataclasses.fields(owner)]
    values: dict[str, object] = {}
    for name, value in table.items():
        key = f"{prefix}.{name}" if prefix else name
        if name not in names:
            where = f"{prefix} has" if prefix else "there is"
            import difflib  # only a wrong name pays for it

            near = difflib.get_close_matches(name, names, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{key}: unknown key; {where} {', '.join(names)}{meant}")
        values[name] = _coerce(value, hints[name], key)
    try:
        return owner(**values)
    except ValueError as error:
        # an owner that names its own table must not have it twice
        words = str(error).removeprefix(f"{prefix.rpartition('.')[2]}.")
        raise ConfigError(f"{prefix}.{words}" if prefix else words) from error


def _coerce(value: object, hint: object, key: str) -> object:
    """``value`` as the field's type; TOML's types are close, so only safe widening is done."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{key} must be a table, got {value!r}")
        return _build(hint, value, key)
    if typing.get_origin(hint) is Mapping:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{key} must be a table, got {value!r}")
        return _mapping(value, typing.get_args(hint)[1], key)
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        members = [one for one in typing.get_args(hint) if one is not type(None)]
        return _coerce(value, members[0], key)
    if typing.get_origin(hint) is tuple:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{key} must be a list, got {value!r}")
        return tuple(_coerce(one, typing.get_args(hint)[0], key) for one in value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        choices = [str(member.value) for member in hint]
        if str(value) not in choices:
            raise ConfigError(f"{key} must be one of {', '.join(choices)}, got {value!r}")
        return hint(value)
    return _scalar(value, hint, key)


def _mapping(value: Mapping[str, object], hint: object, key: str) -> Mapping[str, object]:
    """A table whose keys are free: of tables that are dataclasses, or of values as they come."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return {name: _coerce(inner, hint, f"{key}.{name}") for name, inner in value.items()}
    for name, inner in value.items():
        if inner == MASK:
            _scalar(inner, str, f"{key}.{name}")
    return dict(value)


def _scalar(value: object, hint: object, key: str) -> object:
    if value == MASK:
        raise ConfigError(f"{key} is the mask that `config show` prints: put the value in, or leave it out")
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if hint is Path and isinstance(value, str | Path):
        return Path(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if (hint is str and isinstance(value, str)) or (hint is bool and isinstance(value, bool)):
        return value
    words = {"float": "a number", "int": "an integer", "str": "text", "bool": "true or false"}
    wanted = words.get(getattr(hint, "__name__", ""), str(hint))
    raise ConfigError(f"{key} must be {wanted}, got {value!r}")


def _keys(prefix: str, owner: object) -> list[str]:
    keys: list[str] = []
    for one in dataclasses.fields(owner):  # type: ignore[arg-type]  # callers pass dataclass instances
        value = getattr(owner, one.name)
        key = f"{prefix}.{one.name}"
        keys += _keys(key, value) if dataclasses.is_dataclass(value) else [key]
    return keys

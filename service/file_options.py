"""What the command line may say of files: their format, and what columns hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from firstfault.telemetry import built_in_metrics
from ingest.file_source import FileConfig
from ingest.roles import OVERRIDABLE
from ingest.sniff import Format

from .config import Settings
from .errors import ConfigError

FORMATS: Mapping[str, Format] = {
    "jsonl": Format.JSON_LINES,
    "json": Format.JSON,
    "csv": Format.TABLE,
    "tsv": Format.TABLE,
    "text": Format.TEXT,
    "arrow": Format.ARROW,
    "parquet": Format.PARQUET,
    "tensorboard": Format.TENSORBOARD,
    "wandb": Format.WANDB,
    "mlflow": Format.MLFLOW,
}
"""Names for ``--format``."""
_CLOSE = 0.85
"""Likeness of a slip of the finger to what was meant: a letter more or less in five."""


def format_of(name: str | None) -> Format | None:
    """The format of that name on the command line; None lets the bytes decide.

    Raises:
        ConfigError: there is no such format.
    """
    if name is None:
        return None
    if name not in FORMATS:
        raise ConfigError(f"--format must be one of {', '.join(FORMATS)}, got {name!r}")
    return FORMATS[name]


def columns_of(given: Sequence[str]) -> Mapping[str, str]:
    """What ``--column loss=lm_loss`` says, by metric or role.

    Raises:
        ConfigError: one is no ``NAME=COLUMN``, or a name is given twice.
    """
    columns: dict[str, str] = {}
    for text in given:
        name, equals, column = text.partition("=")
        if not equals or not name.strip() or not column.strip():
            raise ConfigError(f"--column must be NAME=COLUMN, as in loss=lm_loss, got {text!r}")
        if meant := _misspelled(name.strip()):
            raise ConfigError(
                f"--column {text}: {name.strip()!r} is no metric of a check; did you mean {meant!r}?"
            )
        if name.strip() in columns:
            raise ConfigError(f"--column must be given once for {name.strip()}, got {text!r}")
        columns[name.strip()] = column.strip()
    return columns


def _misspelled(name: str) -> str:
    """The known metric or role that a name which is neither comes close to; empty without one."""
    known = [*built_in_metrics(), *(role.value for role in OVERRIDABLE)]
    if name in known or "/" in name:
        return ""
    return next(iter(get_close_matches(name, known, n=1, cutoff=_CLOSE)), "")


def file_config(settings: Settings, format_name: str | None, columns: Mapping[str, str]) -> FileConfig:
    """How files are read by these settings and options."""
    return FileConfig(decode=settings.decode, form=format_of(format_name), columns=columns)

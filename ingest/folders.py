"""Folders that are one run by themselves: told by what lies in them."""

from __future__ import annotations

import re
from pathlib import Path

from .sniff import Format

MLFLOW_METRICS = "metrics"
MLFLOW_RUN = "meta.yaml"
_EVENT_FILE = re.compile(r"(^|[._-])tfevents([._-]|$)")
_START_S = re.compile(r"\d{9,11}")


def form_of_folder(folder: Path) -> Format | None:
    """The format of the one run that a folder holds; None where its files are to be looked at one by one."""
    if (folder / MLFLOW_METRICS).is_dir() and (folder / MLFLOW_RUN).is_file():
        return Format.MLFLOW
    return Format.TENSORBOARD if event_files(folder) else None


def is_event_file_name(name: str) -> bool:
    """Whether a file is named like TensorBoard's event files.

    >>> is_event_file_name("events.out.tfevents.1700000000.node-07.4242.0")
    True
    """
    return _EVENT_FILE.search(name) is not None


def event_files(folder: Path) -> list[Path]:
    """The event files in a folder, in the order in which they were begun, as their names say."""
    found = [each for each in folder.iterdir() if is_event_file_name(each.name) and each.is_file()]
    return sorted(found, key=lambda each: ([int(text) for text in _START_S.findall(each.name)], each.name))

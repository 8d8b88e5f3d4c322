"""`firstfault prune`: remove now what the worker removes bit by bit, or say what that would be."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from .config import load_settings
from .database import Database
from .edge import tell
from .migrations import check_schema
from .retention import prune
from .store import Store  # noqa: F401  # every table of the store is known once this is
from .worker_process import HISTORY


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRequest:
    """What was asked for on the command line."""

    data: Path
    config: Path | None
    is_dry: bool
    as_json: bool


def run_prune(request: PruneRequest) -> None:
    """Remove what is old; one line says how much.

    Raises:
        ConfigError: the settings cannot be.
        StoreError: there is no store, or it refuses.
    """
    settings = load_settings(request.config)
    database = Database(request.data, settings.store)
    try:
        check_schema(database)
        history = request.data / HISTORY
        gone = prune(database, settings.retention, history, time.time(), dry=request.is_dry)
    finally:
        database.close()
    tell(_as_json(gone, request) if request.as_json else _sentence(gone, request))


def _as_json(gone: Counter[str], request: PruneRequest) -> str:
    return json.dumps({"is_dry": request.is_dry, "removed": dict(sorted(gone.items()))})


def _sentence(gone: Counter[str], request: PruneRequest) -> str:
    named = [f"{count} {kind.replace('_', ' ')}" for kind, count in sorted(gone.items()) if count]
    if not named:
        return "nothing is old enough to be removed"
    return f"{'would remove' if request.is_dry else 'removed'}: {', '.join(named)}"

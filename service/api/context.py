"""What endpoints share: the store, the settings, the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import Request

from detectors.registry import DetectorsConfig
from ingest.alignment import AlignmentConfig
from service.alerts.config import AlertsConfig
from service.database import Database
from service.history_reader import HistoryReader

from .problems import bad_parameter
from .settings import ApiConfig
from .workers import Reason

_PAGE_ITEMS = 100
"""Items of a page unless more or fewer are asked for."""
_CURVE_POINTS = 1000
"""Rows of a curve unless more or fewer are asked for: about what a chart is wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Given to every endpoint through `context_of`."""

    database: Database
    config: ApiConfig
    clock: Callable[[], float] = time.time
    """Seconds since 1970: what stale, muted and expired are measured against."""
    history: HistoryReader | None = None
    """Curves and values of ranks; None where no worker of this machine keeps any."""
    history_folder: Path | None = None
    """Where the worker of this machine keeps them."""
    detectors: DetectorsConfig = field(default_factory=DetectorsConfig)
    """What the worker judges with, and other settings are compared with."""
    lateness_iterations: int = AlignmentConfig().lateness_iterations
    alerts: AlertsConfig = field(default_factory=AlertsConfig)
    """The channels that people are told through."""
    further_reasons: Callable[[], Sequence[Reason]] = tuple
    """What whoever started the service knows to be amiss; told by `/readyz`."""

    def page_size(self, limit: int | None) -> int:
        """How many items a page may have; ``limit`` is what was asked for, if anything was.

        Raises:
            ProblemError: 422, more than the settings allow.
        """
        return _bounded("limit", limit, _PAGE_ITEMS, self.config.max_page_items)

    def curve_points(self, points: int | None) -> int:
        """How many rows a curve may have; ``points`` is what was asked for, if anything was.

        Raises:
            ProblemError: 422, more than the settings allow.
        """
        return _bounded("points", points, _CURVE_POINTS, self.config.max_curve_points)


def context_of(request: Request) -> Context:
    """The context that the application was made with."""
    context = request.app.state.context
    assert isinstance(context, Context)
    return context


def _bounded(name: str, asked: int | None, default: int, most: int) -> int:
    if asked is not None and asked > most:
        raise bad_parameter(name, f"must be from 1 to {most}, got {asked}")
    return min(default, most) if asked is None else asked

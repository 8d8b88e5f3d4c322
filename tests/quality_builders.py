"""Rows of the quality benchmark with a truth and a judgement, by hand."""

from __future__ import annotations

from typing import Any

from bench.quality.case import Origin, Spec, Tier, Truth
from bench.quality.judging import Found, Judgement
from bench.quality.row import Row


def a_found(label: str, iteration: int, **changes: Any) -> Found:
    """A confirmed incident of rank 3 at ``iteration``, suspected and sure where it happened."""
    fields: dict[str, Any] = {
        "label": label,
        "pattern": "runaway",
        "ranks": (3,),
        "rank_count": 1,
        "is_tie": False,
        "iteration": iteration,
        "last_clean": iteration - 1,
        "first_bad": iteration,
        "suspected_at": iteration,
        "confirmed_at": iteration,
        "cause": "hardware",
        "stage": "before_reduce",
        "confidence": 0.6,
        "metric": "loss",
        "detectors": ("explosion",),
    }
    return Found(**{**fields, **changes})


def a_row(
    label: str,
    *found: Found,
    onset: int | None = None,
    origin: Origin = Origin.CURVE,
    family: str = "family",
    seed: int = 0,
    tier: Tier = Tier.CURVE,
    log_interval: int = 1,
    healthy_points: int = 1000,
    others: Any = None,
    of_twin: Any = None,
    **truth: Any,
) -> Row:
    """A case whose truth is ``label`` from ``onset`` on, and that was judged to be the first of ``found``."""
    fields = {"injected_at": onset, **truth}
    return Row(
        spec=Spec(origin=origin, family=family, seed=seed, tiers=(tier,)),
        tier=tier,
        truth=Truth(label=label, onset=onset, **fields),
        judgement=Judgement(label=found[0].label if found else "healthy", confirmed=found),
        logged=2000,
        log_interval=log_interval,
        healthy_points=healthy_points,
        others=others or {},
        of_twin=of_twin or {},
    )

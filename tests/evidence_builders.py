"""Builders of hand-made evidence, facts and layouts for the tests of causes and verdicts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from detectors.evidence import (
    LABEL_OF,
    Certainty,
    Check,
    CheckState,
    Direction,
    Evidence,
    Label,
    Pattern,
    Sight,
)
from detectors.facts import AttemptFacts, AttemptFindings, InputFacts
from detectors.fuse import fuse
from detectors.verdict import Verdict
from firstfault.mesh import Layout
from firstfault.telemetry import WHOLE_ITERATION, Event, EventKind

EIGHT = range(8)


def mesh(*axes: tuple[str, int], sharding: str = "none", **more: Any) -> Layout:
    """A layout from ordered (axis, size), slowest first."""
    places = itertools.product(*(range(size) for _, size in axes))
    return Layout(tuple(name for name, _ in axes), dict(enumerate(places)), sharding=sharding, **more)


def sight(
    metric: str,
    bad: Iterable[int] = (),
    clean: Iterable[int] = (),
    *,
    iteration: int = 700,
    microbatch: int = WHOLE_ITERATION,
) -> Sight:
    """Who was seen bad and clean of one metric."""
    bad, clean = list(bad), list(clean)
    ranks_R = np.array(sorted({*bad, *clean}), dtype=np.int32)
    return Sight(
        metric=metric,
        iteration=iteration,
        microbatch=microbatch,
        ranks_R=ranks_R,
        bad_R=np.isin(ranks_R, bad),
        clean_R=np.isin(ranks_R, clean),
    )


def but(*missing: int, ranks: Iterable[int] = EIGHT) -> list[int]:
    """All of ``ranks`` but the ``missing``."""
    return [rank for rank in ranks if rank not in missing]


_DETECTOR_OF = {
    Label.NAN: "nonfinite",
    Label.GRADIENT_EXPLOSION: "explosion",
    Label.SILENT_DRIFT: "checksum_vote",
    Label.STALL: "stall",
}


def evidence(
    pattern: Pattern, metric: str, first_bad: int, last_clean: int | None = -1, **more: Any
) -> Evidence:
    """Confirmed evidence; ``last_clean`` of -1 stands for the iteration before ``first_bad``."""
    given: dict[str, Any] = {
        "detector": _DETECTOR_OF[LABEL_OF[pattern]],
        "key": metric,
        "pattern": pattern,
        "certainty": Certainty.CONFIRMED,
        "metric": metric,
        "attempt": 0,
        "iteration": first_bad,
        "first_bad": first_bad,
        "last_clean": first_bad - 1 if last_clean == -1 else last_clean,
        "alarm_iteration": first_bad,
        "statistic": 1.0,
        "threshold": 0.0,
        "direction": Direction.DIFFERS,
    }
    return Evidence(**{**given, **more})


def nonfinite(*sights: Sight, **more: Any) -> Evidence:
    """A NaN of the metric of the first sight, with all sights of its iteration."""
    first = sights[0]
    ranks = tuple(first.ranks_R[first.bad_R].tolist())
    given = {
        "ranks": ranks,
        "sights": sights,
        "statistic": float("nan"),
        "pattern": Pattern.IMMEDIATE_NONFINITE,
    }
    merged = {**given, **more}
    return evidence(merged.pop("pattern"), first.metric, first.iteration, **merged)


def divergence(
    ranks: Iterable[int], first_bad: int, last_clean: int | None, metric: str = "param_checksum", **more: Any
) -> Evidence:
    """Checksums of ``ranks`` that differ from those of their replicas."""
    pattern = (
        Pattern.COMPUTE_MISMATCH if metric.startswith(("canary", "repeat")) else Pattern.REPLICA_DIVERGENCE
    )
    ranks = tuple(ranks)
    given = {"sights": (sight(metric, ranks, but(*ranks), iteration=first_bad),), "ranks": ranks}
    return evidence(pattern, metric, first_bad, last_clean, **{**given, **more})


def explosion(
    first_bad: int, last_clean: int | None = -1, metric: str = "grad_norm", **more: Any
) -> Evidence:
    """Growth of a curve that alarmed three iterations after its onset."""
    given = {"alarm_iteration": first_bad + 3, "direction": Direction.UP, "detail": {"growing_points": 6}}
    return evidence(Pattern.RUNAWAY, metric, first_bad, last_clean, **{**given, **more})


def drift(first_bad: int, last_clean: int | None, alarm: int, metric: str = "loss", **more: Any) -> Evidence:
    """A lasting level shift of one curve."""
    given = {"detector": "curve_drift", "alarm_iteration": alarm, "direction": Direction.UP}
    return evidence(Pattern.SHARP_SLOW_DEGRADE, metric, first_bad, last_clean, **{**given, **more})


def event(kind: EventKind, iteration: int, rank: int = 0, /, **fields: object) -> Event:
    """An event of the run."""
    return Event(kind=kind, run="r", rank=rank, iteration=iteration, fields=fields)


def facts(**more: Any) -> AttemptFacts:
    """An attempt of eight data-parallel ranks, judged to iteration 2000."""
    given: dict[str, Any] = {
        "attempt": 0,
        "first_iteration": 0,
        "judged_to": 2000,
        "positions": 2001,
        "ranks": tuple(EIGHT),
        "metrics": ("grad_norm", "local_grad_norm", "loss", "param_checksum"),
        "layout": mesh(("dp", 8)),
        "world_size": 8,
    }
    return AttemptFacts(**{**given, **more})


RAN = (Check(name="nonfinite", state=CheckState.RAN, metrics=("loss",)),)


def findings(
    *found: Evidence, checks: tuple[Check, ...] = RAN, annotations: Any = (), **more: Any
) -> AttemptFindings:
    """The findings of one attempt whose facts are ``facts(**more)``."""
    return AttemptFindings(facts=facts(**more), evidence=found, annotations=tuple(annotations), checks=checks)


def verdict(*found: Evidence, run: str = "run", **more: Any) -> Verdict:
    """The verdict on one attempt."""
    return fuse(run, [findings(*found, **more)], InputFacts(records=10))


def labels(hosts: Mapping[int, str]) -> dict[int, dict[str, str]]:
    """Labels of ranks that report their host."""
    return {rank: {"host": host} for rank, host in hosts.items()}

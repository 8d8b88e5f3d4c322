"""Synthetic curves as cases: columns become the lines that a job would have logged."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from .case import Recording, Spec, Truth
from .curve_bases import draw_base
from .curve_faults import BENIGN, FAULTS, HEALTHY, NOT_IDENTIFIABLE, Curve
from .tiers import plain_number

STRIKES_BETWEEN = (0.4, 0.75)
"""Where in a run a fault begins, as a share of it: late enough for a baseline, early enough to last."""


def make_curve(spec: Spec) -> Recording:
    """The recording of a synthetic curve: one unnamed rank, from the seed alone."""
    rng = np.random.default_rng([spec.seed, *spec.family.encode()])
    curve = draw(spec.family, rng, is_twin=bool(spec.detail.get("twin")))
    onset = int(curve.base.iteration_T[curve.at]) if curve.label != HEALTHY else None
    truth = Truth(
        label=curve.label,
        onset=onset,
        injected_at=onset,
        is_observable=spec.family not in NOT_IDENTIFIABLE,
        interval=curve.base.log_interval,
        facts=curve.facts,
    )
    logged = len(curve.base)
    return Recording(
        lines=list(lines_of(curve, run=f"{spec.family}-{spec.seed}")),
        truths=dict.fromkeys(spec.tiers, truth),
        logged=logged,
        log_interval=curve.base.log_interval,
        healthy_points=logged if onset is None else curve.at,
    )


def draw(family: str, rng: np.random.Generator, *, is_twin: bool = False) -> Curve:
    """A base and what the family does to it, or of its twin what it leaves alone."""
    # what has stopped falling cannot fall more slowly
    base = draw_base(rng, shape="power" if family in NOT_IDENTIFIABLE else None)
    curve = Curve(
        base=base,
        at=int(len(base) * rng.uniform(*STRIKES_BETWEEN)),
        loss_T=base.level_T * np.exp(base.noise_T),
        norm_T=base.norm_T.copy(),
        lr_T=base.lr_T.copy(),
    )
    if not is_twin:
        {**FAULTS, **BENIGN}[family](curve, rng)
    return curve


def lines_of(curve: Curve, run: str) -> Iterator[bytes]:
    """The log as JSON lines, an event before the first iteration that it is about."""
    events = sorted(curve.events, key=lambda event: int(str(event["iteration"])))
    for at, iteration in enumerate(curve.base.iteration_T.tolist()):
        while events and int(str(events[0]["iteration"])) <= iteration:
            yield json.dumps({"run": run, **events.pop(0)}).encode()
        record: dict[str, object] = {"run": run, "iteration": iteration}
        for name, values in (("loss", curve.loss_T), ("grad_norm", curve.norm_T), ("lr", curve.lr_T)):
            record[name] = plain_number(float(values[at]))
        if curve.skipped_T is not None:
            record["skipped"] = float(curve.skipped_T[at])
        if curve.canary is not None and at in curve.canary:
            record["canary_loss"] = curve.canary[at]
        yield json.dumps(record).encode()

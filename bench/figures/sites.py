"""Pictures of `nonfinite`: the level of each iteration, and runs of skipped steps against their limit."""

from __future__ import annotations

import numpy as np

from detectors.nonfinite import Nonfinite
from detectors.nonfinite_sites import Level, scene_of
from ingest.blocks import IterationBlock

from .drawing import Drawn, drawn
from .svg import Line, Panel
from .trace import only, sample, watch

_WATCHED = (
    "loss", "local_grad_norm", "grad_norm", "nonfinite_input", "nonfinite_act", "nonfinite_loss",
    "nonfinite_grad", "nonfinite_param", "loss_scale", "skipped", "tokens",
)  # fmt: skip
_SITES = (
    ("nonfinite_act", "forward"),
    ("local_grad_norm", "before the reduction"),
    ("grad_norm", "after it"),
)


def fires() -> Drawn:
    """The sample log ``nan_activation``: one rank's activation is wrong, one reduction later all are."""
    blocks = only(sample("nan_activation"), *_WATCHED)
    trace = watch(Nonfinite(), blocks, _seen)
    x_K = trace.iterations
    bad = Panel(
        label="ranks with a non-finite value",
        floor=0.0,
        top=8.0,
        lines=[
            Line(
                x_K=x_K, y_K=trace.columns["grad_norm"], role="peer", name="global gradient norm", dots=True
            ),
            Line(x_K=x_K, y_K=trace.columns["nonfinite_act"], name="activations", dots=True),
        ],
    )
    return drawn(
        "nonfinite fires: rank 1 first, one reduction later all",
        trace,
        [bad, _levels(x_K, trace.columns["level"])],
        484,
        x_range=(464.0, float(x_K[-1])),
    )


def quiet() -> Drawn:
    """The sample log ``overflow_skips``: loss scaling finds its scale, and finds it anew later on."""
    detector = Nonfinite()

    def read(piece: IterationBlock) -> dict[str, float]:
        runs = detector._runs
        config = runs.config
        limit = config.skips if runs.has_clean_gradient else config.skips_at_start
        return {**_seen(piece), "run": float(runs.run.length if runs.run else 0), "limit": float(limit)}

    trace = watch(detector, only(sample("overflow_skips"), *_WATCHED), read)
    x_K = trace.iterations
    panels = [
        Panel(
            label="loss scale",
            is_log=True,
            lines=[Line(x_K=x_K, y_K=trace.columns["scale"], name="loss scale")],
        ),
        _levels(x_K, trace.columns["level"]),
        Panel(
            label="skipped steps in a row",
            floor=0.0,
            lines=[
                Line(x_K=x_K, y_K=trace.columns["limit"], role="limit", name="a fault from here on"),
                Line(x_K=x_K, y_K=trace.columns["run"], name="in a row"),
            ],
        ),
    ]
    return drawn("nonfinite stays quiet: overflow while the loss scale is found", trace, panels)


def _levels(x_K: list[int], level_K: list[float]) -> Panel:
    limit = [float(Level.LOSS)] * len(x_K)
    return Panel(
        label="worst level: 1 activation, 2 gradient or skip, 3 loss or parameter",
        floor=0.0,
        top=3.0,
        lines=[
            Line(x_K=x_K, y_K=limit, role="limit", name="opens at once"),
            Line(x_K=x_K, y_K=level_K, name="level"),
        ],
    )


def _seen(piece: IterationBlock) -> dict[str, float]:
    """What the detector makes of one iteration: its level, and the bad ranks at each site."""
    scene = scene_of(piece)
    bad = {
        site.metric: 0.0 if site.bad_TR is None else float(site.bad_TR.any(axis=0).sum())
        for site in scene.sites
    }
    sites = {name: bad.get(name, np.nan) for name, _ in _SITES}
    return {"level": float(scene.level_I[0]), "scale": float(scene.scale_I[0]), **sites}

"""Curves of every shape with a known truth: for the floors of the whole-curve detectors.

Every run is drawn anew: length, shape and scale of the decline, noise of 0.2 to 22 % of the level (even in
its logarithm), its AR(1) correlation (0 to 0.6), whether the learning rate and the gradient norm are there,
and the fault. ``sigma`` is the standard deviation of one logged point about its level, correlation included.

Axes: T logged points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tests.curve_builders import Series, ar1

SHAPES = ("power", "exponential", "logarithm", "cosine", "steps", "hump", "flat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulty:
    """One curve with a fault: ``onset`` is the first bad point; the iteration of point t is t * interval."""

    columns: Mapping[str, Series]
    onset: int
    doubled: int | None = None
    """First point at which the level has doubled."""


def decline(shape: str, points: int, rng: np.random.Generator) -> Series:
    """The level of a healthy run, scaled so that it ends at 1."""
    t = np.arange(points) / points
    if shape == "power":
        level = 0.5 + rng.uniform(1, 6) * (t + 0.01) ** -rng.uniform(0.15, 0.45)
    elif shape == "exponential":
        level = 1.0 + rng.uniform(1, 4) * np.exp(-t / rng.uniform(0.05, 0.3))
    elif shape == "logarithm":
        level = 3.0 - rng.uniform(0.2, 0.35) * np.log1p(1000 * t)
    elif shape == "cosine":
        level = 1.6 + 1.4 * np.exp(-t / 0.04) - rng.uniform(0.1, 0.3) * (1 - np.cos(np.pi * t))
    elif shape == "steps":
        level = 1.0 + 2.0 * np.exp(-t / 0.06)
        for at in rng.uniform(0.2, 0.9, 3):
            level = level * np.where(t >= at, rng.uniform(0.7, 0.9), 1.0)
    elif shape == "hump":
        level = (1.0 + 3.0 * np.exp(-t / 0.06)) * (1 + 0.12 * np.exp(-(((t - 0.15) / 0.04) ** 2)))
    else:
        level = np.ones(points)
    return np.asarray(level / level[-1])


def healthy(rng: np.random.Generator, points: int | None = None) -> tuple[dict[str, Series], float]:
    """A healthy curve of its own shape and noise, and the standard deviation of its noise."""
    T = points or int(np.exp(rng.uniform(np.log(500), np.log(4000))))
    sigma = float(np.exp(rng.uniform(np.log(0.002), np.log(0.22))))
    level = decline(SHAPES[int(rng.integers(len(SHAPES)))], T, rng)
    if rng.random() < 0.25 and sigma < 0.1:  # noise that does not grow with the level
        level = level + sigma * ar1(T, 1.0, float(rng.uniform(0.0, 0.6)), rng) * level.min()
    else:
        level = level * np.exp(ar1(T, sigma, float(rng.uniform(0.0, 0.6)), rng))
    columns = {"loss": np.asarray(level * np.exp(rng.uniform(-2, 2)))}
    t = np.arange(T)
    if rng.random() < 0.5:
        columns["grad_norm"] = (0.5 + 4.0 * np.exp(-t / 60)) * np.exp(rng.normal(0.0, 0.18, T))
    if rng.random() < 0.5:
        columns["lr"] = 3e-4 * np.minimum(1.0, (t + 1) / 100) * (0.55 + 0.45 * np.cos(np.pi * t / T))
    return columns, sigma


def level_shift(rng: np.random.Generator) -> Faulty:
    """The loss goes up by 3 to 5 sigma at one point, for good."""
    columns, sigma = healthy(rng)
    onset = _onset(columns, rng)
    columns["loss"][onset:] *= (
        math.exp(sigma * rng.uniform(3.0, 5.0)) if sigma > 0.1 else 1 + sigma * rng.uniform(3, 5)
    )
    return Faulty(columns=columns, onset=onset)


def rise(rng: np.random.Generator) -> Faulty:
    """The level climbs by 5 to 8 sigma over what it was, straight, over 100 to 1500 points."""
    sigma = float(np.exp(rng.uniform(np.log(0.002), np.log(0.06))))
    T = int(rng.integers(1500, 4000))
    shape = SHAPES[int(rng.integers(len(SHAPES)))]
    level = decline(shape, T, rng)
    onset = int(T * rng.uniform(0.35, 0.6))
    length = int(np.exp(rng.uniform(np.log(100), np.log(min(1500, T - onset - 60)))))
    before = level[onset]
    after = np.arange(T - onset) + 1.0
    climb = before * (1 + sigma * rng.uniform(5.0, 8.0) * np.minimum(1.0, after / length))
    level[onset:] = climb
    loss = level * np.exp(ar1(T, sigma, float(rng.uniform(0.0, 0.6)), rng))
    return Faulty(columns={"loss": np.asarray(loss)}, onset=onset)


def fast(rng: np.random.Generator) -> Faulty:
    """Loss and gradient norm (or one of them) multiply at every point: 1.15 to 1.6 times, capped."""
    columns, sigma = healthy(rng)
    while sigma > 0.06:
        columns, sigma = healthy(rng)
    onset = _onset(columns, rng)
    after = np.maximum(0.0, np.arange(len(columns["loss"])) - onset + 1.0)
    columns["loss"] *= np.minimum(rng.uniform(1.15, 1.6) ** after, rng.uniform(3, 30))
    if "grad_norm" in columns:
        columns["grad_norm"] *= np.minimum(rng.uniform(1.3, 2.0) ** after, rng.uniform(50, 500))
        if rng.random() < 0.3:
            columns["grad_norm"] = np.minimum(columns["grad_norm"], 1.0)  # after clipping
    return Faulty(columns=columns, onset=onset)


def fast_norm(rng: np.random.Generator) -> Faulty:
    """Only the gradient norm is logged, and it multiplies by 1.3 to 2 at every point."""
    run = fast(rng)
    T = len(run.columns["loss"])
    after = np.maximum(0.0, np.arange(T) - run.onset + 1.0)
    norm = np.exp(rng.uniform(-3, 3)) * np.exp(ar1(T, rng.uniform(0.05, 0.25), rng.uniform(0, 0.6), rng))
    norm *= np.minimum(rng.uniform(1.5, 2.5) ** after, rng.uniform(50, 500))
    return Faulty(columns={"grad_norm": norm}, onset=run.onset)


def slow(rng: np.random.Generator) -> Faulty:
    """The loss doubles every 100 to 250 points."""
    columns, sigma = healthy(rng)
    while sigma > 0.06:
        columns, sigma = healthy(rng, points=int(rng.integers(1200, 3000)))
    T = len(columns["loss"])
    onset = int(T * rng.uniform(0.4, 0.6))
    half = rng.uniform(100, 250)
    after = np.maximum(0.0, np.arange(T) - onset + 1.0)
    columns["loss"] *= np.minimum(2.0 ** (after / half), 50.0)
    return Faulty(columns=columns, onset=onset, doubled=onset + int(half))


def early(rng: np.random.Generator) -> Faulty:
    """An explosion within the first 5 to 60 points, of a log that is short."""
    columns, sigma = healthy(rng, points=int(rng.integers(80, 200)))
    while sigma > 0.06:
        columns, sigma = healthy(rng, points=int(rng.integers(80, 200)))
    onset = int(rng.integers(5, 60))
    after = np.maximum(0.0, np.arange(len(columns["loss"])) - onset + 1.0)
    columns["loss"] *= np.minimum(rng.uniform(1.2, 1.6) ** after, rng.uniform(4, 30))
    columns.pop("grad_norm", None)
    return Faulty(columns=columns, onset=onset)


def near_zero(rng: np.random.Generator) -> Faulty:
    """A loss around zero (policy gradients) that grows without end from some point on."""
    T = int(rng.integers(600, 2000))
    noise = ar1(T, 1.0, float(rng.uniform(0, 0.6)), rng) * 0.05
    onset = int(T * rng.uniform(0.4, 0.7))
    after = np.maximum(0.0, np.arange(T) - onset + 1.0)
    grown = 0.05 * np.minimum(rng.uniform(1.25, 1.6) ** after - 1, 1e4) * (after > 0)
    return Faulty(columns={"loss": rng.choice([-0.5, 0.0]) + noise + grown}, onset=onset)


def _onset(columns: Mapping[str, Series], rng: np.random.Generator) -> int:
    T = len(columns["loss"])
    return int(rng.integers(max(250, int(0.35 * T)), T - min(200, T // 4)))


KINDS: Mapping[str, tuple[Callable[[np.random.Generator], Faulty], str]] = {
    "level_shift": (level_shift, "de"),
    "rise": (rise, "de"),
    "fast": (fast, "e"),
    "fast_norm": (fast_norm, "e"),
    "slow": (slow, "e"),
    "early": (early, "e"),
    "near_zero": (near_zero, "e"),
}

"""Healthy training curves drawn from a seed: the decline, the noise, the norm and the schedule.

Axes: T logged points. Nothing here is fitted to a detector: shapes and sizes are ranges around what
published curves of small and large jobs show (noise of 0.4 to 3 % of the level, correlated or not, with
heavier tails than the Gaussian in a third of the runs).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]

SHORTEST, LONGEST = 900, 3000
"""Logged points of one curve: a baseline and a fault fit into the shortest."""
BLIP_SHARE = 0.004
"""Share of points at which the gradient norm doubles for once, as it does in healthy runs."""


@dataclass(frozen=True, slots=True)
class Base:
    """One healthy run. ``level_T`` is the loss without noise; ``sigma`` the noise of its logarithm."""

    iteration_T: NDArray[np.int64]
    level_T: Series
    noise_T: Series
    norm_T: Series
    lr_T: Series
    sigma: float
    log_interval: int

    def __len__(self) -> int:
        return len(self.iteration_T)


def draw_base(rng: np.random.Generator, *, sigma: float | None = None, shape: str | None = None) -> Base:
    """A healthy run; ``sigma`` and ``shape`` are drawn where they are not given."""
    T = int(rng.integers(SHORTEST, LONGEST + 1))
    t = np.arange(T, dtype=np.float64)
    log_interval = int(rng.choice([1, 1, 1, 5, 10]))
    level_T = decline(shape or str(rng.choice(["power", "exponential", "hump", "two"])), t, rng)
    drawn = float(np.exp(rng.uniform(np.log(0.004), np.log(0.03))))
    sigma = drawn if sigma is None else sigma
    noise_T = sigma * correlated(T, float(rng.uniform(0.0, 0.6)), rng, is_heavy=bool(rng.random() < 1 / 3))
    return Base(
        iteration_T=np.arange(T, dtype=np.int64) * log_interval,
        level_T=level_T,
        noise_T=noise_T,
        norm_T=norms(t, rng),
        lr_T=schedule(t, rng),
        sigma=sigma,
        log_interval=log_interval,
    )


def decline(shape: str, t: Series, rng: np.random.Generator) -> Series:
    """How the loss falls without noise."""
    start, floor = rng.uniform(4.0, 11.0), rng.uniform(1.2, 2.8)
    if shape == "power":
        fall = (1 + t / rng.uniform(5, 40)) ** -rng.uniform(0.3, 0.6)
    elif shape == "two":
        fall = 0.6 * np.exp(-t / rng.uniform(30, 80)) + 0.4 * np.exp(-t / rng.uniform(300, 700))
    else:
        fall = np.exp(-t / rng.uniform(80, 300))
    level_T = floor + (start - floor) * fall
    if shape == "hump":
        level_T = level_T * (1 + 0.1 * np.exp(-(((t - 200) / 70) ** 2)))
    return np.asarray(level_T)


def correlated(T: int, correlation: float, rng: np.random.Generator, *, is_heavy: bool = False) -> Series:
    """Noise of unit variance with a correlation from one point to the next; Student's t with 5 degrees
    of freedom where it is heavy."""
    fresh_T = rng.standard_t(5, T) / np.sqrt(5 / 3) if is_heavy else rng.normal(size=T)
    shock_T = fresh_T * np.sqrt(1 - correlation**2)
    shock_T[0] = fresh_T[0]
    for at in range(1, T):
        shock_T[at] += correlation * shock_T[at - 1]
    return np.asarray(shock_T)


def norms(t: Series, rng: np.random.Generator) -> Series:
    """The gradient norm: large at first, then lognormal, with blips that mean nothing."""
    first, level = rng.uniform(2, 6), rng.uniform(0.2, 1.5)
    norm_T = (level + first * np.exp(-t / rng.uniform(30, 90))) * np.exp(
        rng.normal(0, rng.uniform(0.08, 0.2), len(t))
    )
    blips = rng.random(len(t)) < BLIP_SHARE
    norm_T[blips] *= rng.uniform(1.8, 3.0, int(blips.sum()))
    return np.asarray(norm_T)


def schedule(t: Series, rng: np.random.Generator) -> Series:
    """The learning rate: a warm-up, then cosine, linear or constant."""
    peak, warm_up, share_T = 10 ** rng.uniform(-4, -2.5), rng.integers(20, 150), t / len(t)
    kind = rng.choice(["cosine", "linear", "constant"])
    fall_T = {"cosine": 0.55 + 0.45 * np.cos(np.pi * share_T), "linear": 1 - 0.9 * share_T}.get(str(kind))
    return np.asarray(peak * np.minimum(1.0, (t + 1) / warm_up) * (1.0 if fall_T is None else fall_T))

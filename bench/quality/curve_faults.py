"""What goes wrong with a synthetic curve, with a truth that is exact; and what only looks like it.

Each function changes the logarithm of the loss, the norm or the learning rate of a base from one logged
point on and says what it did. Axes: T logged points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from .curve_bases import Base, Series, correlated

EXPLOSION, DRIFT, NAN, HEALTHY = "gradient_explosion", "silent_drift", "nan", "healthy"


@dataclass(slots=True)
class Curve:
    """A curve that is being made: columns, and what is true of them."""

    base: Base
    at: int
    """Index of the first point that may go wrong."""
    loss_T: Series
    norm_T: Series
    lr_T: Series
    label: str = HEALTHY
    facts: dict[str, float] = field(default_factory=dict)
    causes: tuple[str, ...] = ()
    skipped_T: Series | None = None
    canary: Mapping[int, float] | None = None
    events: list[dict[str, object]] = field(default_factory=list)

    @property
    def points_after(self) -> Series:
        """Points since the fault, 1 at the first; 0 before."""
        return np.asarray(np.maximum(0.0, np.arange(len(self.base)) - self.at + 1.0))


Change = Callable[[Curve, np.random.Generator], None]


def level_shift(curve: Curve, rng: np.random.Generator) -> None:
    """The level rises by 3 to 8 sigma of the noise, above its expected fall, for good."""
    sigmas = float(rng.uniform(3.0, 8.0))
    curve.loss_T *= np.where(curve.points_after > 0, np.exp(sigmas * curve.base.sigma), 1.0)
    curve.label, curve.facts = DRIFT, {"sigmas": sigmas}


def rise(curve: Curve, rng: np.random.Generator) -> None:
    """The loss stops falling and rises, by 5 to 15 sigma over 100 to 500 points."""
    # a quarter of the level at most: beyond begins what is called an explosion
    sigmas = float(rng.uniform(5.0, max(5.5, min(15.0, 0.25 / curve.base.sigma))))
    length = int(rng.integers(100, 501))
    length = min(length, len(curve.base) - curve.at - 100)
    held_T = np.where(curve.points_after > 0, curve.base.level_T[curve.at - 1], curve.base.level_T)
    ramp_T = np.minimum(curve.points_after / length, 1.0) * sigmas * curve.base.sigma
    curve.loss_T[:] = held_T * np.exp(curve.base.noise_T + ramp_T)
    curve.label, curve.facts = DRIFT, {"sigmas": sigmas, "length": length}


def slower(curve: Curve, rng: np.random.Generator) -> None:
    """The decline goes on at a fifth to a half of its speed: no rise anywhere."""
    share = float(rng.uniform(0.2, 0.5))
    level_T = curve.base.level_T
    slow_T = level_T[curve.at - 1] + share * (level_T - level_T[curve.at - 1])
    curve.loss_T[:] = np.where(curve.points_after > 0, slow_T, level_T) * np.exp(curve.base.noise_T)
    gap = float(np.log(slow_T[-1] / level_T[-1]) / curve.base.sigma)
    curve.label, curve.facts = DRIFT, {"share": share, "gap_sigmas": gap}


def slower_with_canary(curve: Curve, rng: np.random.Generator) -> None:
    """The same, while the loss of one fixed batch, which has no sampling noise, is reported too."""
    slower(curve, rng)
    clean_T = curve.loss_T / np.exp(curve.base.noise_T)
    every, scatter = int(rng.choice([1, 5, 20])), 2e-4
    curve.canary = {
        int(at): float(clean_T[at] * 1.02 * np.exp(rng.normal(0, scatter)))
        for at in range(0, len(clean_T), every)
    }


def stuck(curve: Curve, _: np.random.Generator) -> None:
    """The loss repeats one value."""
    curve.loss_T[curve.at :] = curve.loss_T[curve.at]
    curve.label = DRIFT


def fast_explosion(curve: Curve, rng: np.random.Generator) -> None:
    """The loss grows by a tenth to a half each point, the norm faster, up to a ceiling."""
    lead = int(rng.integers(0, 3))
    loss_after_T = np.maximum(0.0, curve.points_after - lead)
    curve.loss_T *= growth(rng.uniform(1.1, 1.5), loss_after_T, rng.uniform(4.0, 40.0))
    curve.norm_T *= growth(rng.uniform(1.4, 2.5), curve.points_after, rng.uniform(50.0, 1000.0))
    curve.label, curve.facts = EXPLOSION, {"fast": 1.0}


def slow_explosion(curve: Curve, rng: np.random.Generator) -> None:
    """The loss doubles every 100 to 250 points; in half of the runs the norm goes with it."""
    doubles = float(rng.uniform(100.0, 250.0))
    curve.loss_T *= growth(2.0, curve.points_after / doubles, rng.uniform(5.0, 40.0))
    if rng.random() < 0.5:
        curve.norm_T *= growth(2.0, 2 * curve.points_after / doubles, 500.0)
    curve.label, curve.facts = EXPLOSION, {"fast": 0.0, "doubles": doubles}


def norm_explosion(curve: Curve, rng: np.random.Generator) -> None:
    """The gradient norm grows a hundredfold and more while the loss looks as ever."""
    factor = float(rng.uniform(1.1, 2.0))
    curve.norm_T *= growth(factor, curve.points_after, rng.uniform(100.0, 1000.0))
    # below it, four points are within the blips of a healthy norm
    curve.label, curve.facts = EXPLOSION, {"fast": float(factor >= 1.5)}


def explosion_to_nan(curve: Curve, rng: np.random.Generator) -> None:
    """A fast explosion that ends in NaN after 8 to 40 points: still an explosion."""
    fast_explosion(curve, rng)
    end = curve.at + int(rng.integers(8, 41))
    curve.loss_T[end:] = curve.norm_T[end:] = np.nan


def clean_nan(curve: Curve, rng: np.random.Generator) -> None:
    """NaN out of a clean curve: the loss, or one point earlier the gradient."""
    lead = int(rng.integers(0, 2))
    curve.norm_T[curve.at :] = np.inf if rng.random() < 0.3 else np.nan
    curve.loss_T[curve.at + lead :] = np.nan
    curve.label = NAN


def none(curve: Curve, _: np.random.Generator) -> None:
    """Nothing goes wrong."""


def spikes(curve: Curve, rng: np.random.Generator) -> None:
    """One to three spikes of the loss, 1.3 to 3 times its level, that recover within 25 points."""
    for at in rng.integers(150, len(curve.base) - 80, int(rng.integers(1, 4))):
        length, height = int(rng.integers(2, 26)), rng.uniform(1.3, 3.0)
        shape = 1 + (height - 1) * np.linspace(1.0, 0.05, length)
        curve.loss_T[at : at + length] *= shape
        curve.norm_T[at : at + length] *= shape**1.5


def data_mix(curve: Curve, rng: np.random.Generator) -> None:
    """Other data from one iteration on, announced: the loss steps up by 3 to 8 % and goes on learning."""
    fading_T = np.exp(-curve.points_after / rng.uniform(100, 300))
    curve.loss_T *= 1 + np.where(curve.points_after > 0, rng.uniform(0.03, 0.08) * fading_T, 0.0)
    iteration = int(curve.base.iteration_T[curve.at])
    curve.events.append({"event": "data_change", "rank": 0, "iteration": iteration})


def fp16_skips(curve: Curve, rng: np.random.Generator) -> None:
    """Half precision: the norm is infinite now and then, the step skipped, and no fault."""
    at = np.unique(rng.integers(0, len(curve.base), int(rng.integers(3, 10))))
    curve.norm_T[at] = np.inf
    curve.skipped_T = np.zeros(len(curve.base))
    curve.skipped_T[at] = 1.0


def warm_restart(curve: Curve, rng: np.random.Generator) -> None:
    """The learning rate goes up again; the loss follows by a tenth and comes down."""
    left = len(curve.base) - curve.at
    curve.lr_T[curve.at :] = curve.lr_T.max() * (0.55 + 0.45 * np.cos(np.pi * np.arange(left) / left))
    fading_T = np.exp(-curve.points_after / rng.uniform(80, 200))
    curve.loss_T *= 1 + np.where(curve.points_after > 0, rng.uniform(0.05, 0.12) * fading_T, 0.0)


def decay_step(curve: Curve, rng: np.random.Generator) -> None:
    """The learning rate falls to a tenth and the loss by a tenth to a third."""
    curve.lr_T[curve.at :] *= 0.1
    settled_T = 1 - np.exp(-curve.points_after / rng.uniform(10, 60))
    curve.loss_T *= 1 - rng.uniform(0.1, 0.33) * settled_T


def noisier(curve: Curve, rng: np.random.Generator) -> None:
    """Smaller batches: the noise doubles from one iteration on, announced."""
    extra_T = curve.base.sigma * np.sqrt(3) * correlated(len(curve.base), 0.0, rng)
    curve.loss_T *= np.where(curve.points_after > 0, np.exp(extra_T), 1.0)
    iteration = int(curve.base.iteration_T[curve.at])
    curve.events.append({"event": "batch_size", "rank": 0, "iteration": iteration})


def growth(factor: float, after_T: Series, ceiling: float) -> Series:
    """``factor`` to the power of the points since the fault, up to a ceiling."""
    return np.asarray(np.exp(np.minimum(after_T * np.log(factor), np.log(ceiling))))


FAULTS: Mapping[str, Change] = {
    "level_shift": level_shift,
    "rise": rise,
    "stuck": stuck,
    "fast_explosion": fast_explosion,
    "slow_explosion": slow_explosion,
    "norm_explosion": norm_explosion,
    "explosion_to_nan": explosion_to_nan,
    "clean_nan": clean_nan,
    "slower": slower,
    "slower_with_canary": slower_with_canary,
}
BENIGN: Mapping[str, Change] = {
    "plain": none,
    "spikes": spikes,
    "data_mix": data_mix,
    "fp16_skips": fp16_skips,
    "warm_restart": warm_restart,
    "decay_step": decay_step,
    "noisier": noisier,
}
LEAST_GAP = 3.0
"""Sigmas between the levels in the end below which a slower decline is none."""
NOT_IDENTIFIABLE = ("slower", "slower_with_canary")
"""Without a rise a slower decline is one of many that learning may take: no floor on one curve."""

"""The floors of the whole-curve detectors, measured on curves of every shape with a known truth.

    python -m bench.curve_floors [RUNS [FIRST_SEED]]

Every run is drawn anew: length, shape and scale of the decline, noise of 0.2 to 22 % of the level
(log-uniform), its AR(1) correlation (0 to 0.6), logged interval, whether the learning rate and the gradient norm
are there, and the fault. ``sigma`` is the standard deviation of one logged point about its level, correlation
included. Rates come with their 95 % interval (Wilson for shares, Garwood for false alarms).

Axes: T logged points.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from detectors.curve_drift import CurveDrift
from detectors.evidence import Certainty, Evidence
from detectors.explosion import Explosion
from tests.curve_builders import Series, ar1, block_of, judge

from .surrogate import draw

SHAPES = ("power", "exponential", "logarithm", "cosine", "steps", "hump", "flat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulty:
    """One curve with a fault: ``onset`` is the first bad point; the iteration of point t is t * interval."""

    columns: Mapping[str, Series]
    onset: int
    doubled: int | None = None
    """First point at which the level has doubled."""


@dataclass(slots=True)
class Tally:
    """What became of the runs of one kind."""

    name: str
    runs: int = 0
    suspected: int = 0
    confirmed: int = 0
    early: int = 0
    """Alarms before the onset, or a confirmed one on the twin."""
    alarm_delays: list[int] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)
    inside: int = 0
    narrow: int = 0
    before_doubling: int = 0


def wilson(part: int, of: int) -> tuple[float, float]:
    """95 % interval of a share: Wilson, JASA 22 (1927)."""
    if not of:
        return 0.0, 1.0
    share, z2 = part / of, 1.96**2
    centre = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = 1.96 * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    return max(0.0, centre - half), min(1.0, centre + half)


def garwood(count: int) -> tuple[float, float]:
    """95 % interval of a Poisson mean: Garwood, Biometrika 28 (1936)."""
    from scipy.stats import chi2

    low = float(chi2.ppf(0.025, 2 * count) / 2) if count else 0.0
    return low, float(chi2.ppf(0.975, 2 * count + 2) / 2)


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
    columns["loss"][onset:] *= math.exp(sigma * rng.uniform(3.0, 5.0)) if sigma > 0.1 else 1 + sigma * rng.uniform(3, 5)
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


def measure(name: str, make: Callable[[np.random.Generator], Faulty], seeds: range, detectors: str) -> Tally:
    """Judge one faulty run a seed, each by itself."""
    tally = Tally(name)
    for seed in seeds:
        rng = np.random.default_rng([seed, sum(map(ord, name))])
        run = make(rng)
        interval = int(rng.choice([1, 1, 1, 5, 10]))
        judge_one(tally, run, interval, detectors)
    return tally


def evidence_of(columns: Mapping[str, Series], detectors: str, interval: int = 1) -> list[Evidence]:
    """What is known at the end, of the detectors named by their first letters."""
    block = block_of(columns)
    block.iteration_T[:] *= interval
    made = {"e": Explosion, "d": CurveDrift}
    return [f for key in detectors for f in judge(made[key](), [block])
            if isinstance(f, Evidence) and not f.supporting]  # fmt: skip


def judge_one(tally: Tally, run: Faulty, interval: int, detectors: str) -> None:
    """Add one run to the tally; delays and errors in logged points."""
    tally.runs += 1
    found = evidence_of(run.columns, detectors, interval)
    onset = run.onset * interval
    tally.early += any(f.alarm_iteration < onset and f.certainty is Certainty.CONFIRMED for f in found)
    after = [f for f in found if f.alarm_iteration >= onset and f.certainty is not Certainty.RECOVERED]
    sure = [f for f in after if f.certainty is Certainty.CONFIRMED]
    if after:
        tally.suspected += 1
        tally.alarm_delays.append((min(f.alarm_iteration for f in after) - onset) // interval)
    if not sure:
        return
    tally.confirmed += 1
    first = min(sure, key=_judged_at)
    delay = (_judged_at(first) - onset) // interval
    tally.delays.append(delay)
    # The root is the earliest one: the norm may have gone before the loss.
    root = min(sure, key=lambda f: f.iteration)
    tally.errors.append(round((root.iteration - onset) / interval))
    clean = -1 if root.last_clean is None else root.last_clean
    tally.inside += clean < onset <= root.first_bad
    alarm = (first.alarm_iteration - onset) // interval
    tally.narrow += (root.first_bad - clean) / interval <= max(50, alarm / 2)
    tally.before_doubling += run.doubled is not None and _judged_at(first) < run.doubled * interval


def _judged_at(one: Evidence) -> int:
    return int(str(one.detail["judged_at"]))


def show(tally: Tally) -> str:
    """The figures of one kind, each share with its interval."""
    runs, sure = tally.runs, tally.confirmed
    error = np.abs(tally.errors) if tally.errors else np.array([np.nan])
    within = {limit: int((np.array(tally.alarm_delays) < limit).sum()) for limit in (4, 50)}
    parts = [
        f"suspected {_share(tally.suspected, runs)}",
        f"within 4 {_share(within[4], runs)}",
        f"within 50 {_share(within[50], runs)}",
        f"confirmed {_share(sure, runs)}",
        f"within 50 {_share(int((np.array(tally.delays) <= 50).sum()), runs)}",
        f"delay median {np.median(tally.delays or [np.nan]):.0f} 90 % {np.quantile(tally.delays or [np.nan], 0.9):.0f}",
        f"onset +-2 {_share(int((error <= 2).sum()), sure)}",
        f"+-5 {_share(int((error <= 5).sum()), sure)}",
        f"in interval {_share(tally.inside, sure)}",
        f"narrow {_share(tally.narrow, sure)}",
        f"before doubling {_share(tally.before_doubling, runs)}",
        f"early {tally.early}",
    ]
    return f"{tally.name:12} n={runs}\n    " + "\n    ".join("; ".join(parts[at : at + 3]) for at in range(0, 12, 3))


def _share(part: int, of: int) -> str:
    low, high = wilson(part, of)
    return f"{100 * part / max(of, 1):.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


KINDS: Mapping[str, tuple[Callable[[np.random.Generator], Faulty], str]] = {
    "level_shift": (level_shift, "de"),
    "rise": (rise, "de"),
    "fast": (fast, "e"),
    "fast_norm": (fast_norm, "e"),
    "slow": (slow, "e"),
    "early": (early, "e"),
    "near_zero": (near_zero, "e"),
}


def count_false_alarms(points: int, seed: int) -> str:
    """Confirmed and suspected findings over surrogate curves, half with correlated noise, and drawn ones."""
    rng = np.random.default_rng([seed, 77])
    counts = dict.fromkeys(Certainty, 0)
    done = 0
    while done < points:
        length = int(rng.integers(1000, 8000))
        kind = int(rng.integers(3))
        if kind == 0:
            columns = {"loss": draw(rng, length)}
        elif kind == 1:
            columns = {"loss": draw(rng, length, correlation=float(rng.uniform(0, 0.6)))}
        else:
            columns, _ = healthy(rng, points=length)
        for one in evidence_of(columns, "de"):
            counts[one.certainty] += 1
        done += length
    low, high = garwood(counts[Certainty.CONFIRMED])
    per = 100_000 / done
    told = ", ".join(f"{certainty} {count}" for certainty, count in counts.items())
    return f"healthy      {done} points: {told}; confirmed per 100 000: {counts[Certainty.CONFIRMED] * per:.3f} [{low * per:.3f}, {high * per:.3f}]"


def main(arguments: Sequence[str]) -> int:
    """Print the figures over ``RUNS`` runs a kind (40) from ``FIRST_SEED`` (0) on."""
    runs = int(arguments[0]) if arguments else 40
    first = int(arguments[1]) if len(arguments) > 1 else 0
    only = arguments[2].split(",") if len(arguments) > 2 else [*KINDS, "healthy"]
    for name in only:
        if name == "healthy":
            print(count_false_alarms(runs * 10_000, first))
        else:
            make, detectors = KINDS[name]
            print(show(measure(name, make, range(first, first + runs), detectors)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

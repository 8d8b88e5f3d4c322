"""Healthy curves without end: a surrogate fitted to recorded ones, for false alarms by the 100 000 points.

    python -m bench.surrogate FOLDER

fits every curve of at least `LEAST_POINTS` points in ``FOLDER`` (see `bench.false_alarms` for the format),
prints the rows of `RECORDED`, and compares what the surrogate draws from the rows marked as fitted with the
curves held out. A curve is its level at `KNOTS` places that are even in the logarithm of time, the noise
around it (standard deviation at five places, correlation of neighbours, tail), how much its level wanders
beyond that, and how often it spikes and recovers.

The numbers come from loss curves that NVIDIA/Megatron-LM, commit d98e8a6, keeps as golden values of its
functional tests: 0.2 to 20 thousand logged points of GPT, BERT, T5 and mixture-of-experts jobs.

Axes: T points, Q knots.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ingest.blocks import Floats

from .false_alarms import curve_files, read_curve

KNOTS = 12
"""Places of the level, even in the logarithm of time: a factor of 2 apart in a curve of 2000 points."""
LEAST_POINTS = 1000
"""Points below which wander cannot be told from noise."""
HALF = 12
"""Points on each side of the running median that stands for the level while fitting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One recorded curve in small numbers."""

    name: str
    is_fitted: bool
    """False where the curve is held out to check the surrogate against."""
    points: int
    level: tuple[float, ...]
    """Loss at the knots."""
    sigma: tuple[float, ...]
    """Noise relative to the level, at 5 places even in time."""
    correlation: float
    """Of the noise of neighbouring points."""
    tail: float
    """Share of points more than 3 sigma from the level, in percent; 0.27 for a Gaussian."""
    wander: float
    """Standard deviation of means of 64 points about a smooth curve, over what the noise explains."""
    spikes: float
    """Spikes up by more than 8 sigma, per 1000 points."""


# fmt: off
RECORDED: tuple[Recorded, ...] = (
    Recorded(
        name='0cb0425d', is_fitted=True, points=2001,
        level=(9.462, 9.427, 9.349, 9.201, 8.903, 8.216, 6.616, 5.611, 4.884, 4.409, 3.917, 2.93),
        sigma=(0.0063, 0.0103, 0.009, 0.0119, 0.0121), correlation=0.01, tail=0.5, wander=2.33, spikes=0.0,
    ),
    Recorded(
        name='26324e02', is_fitted=False, points=2000,
        level=(10.886, 10.886, 10.885, 10.879, 10.844, 10.492, 10.007, 9.477, 8.499, 6.595, 5.413, 4.418),
        sigma=(0.004, 0.0117, 0.0176, 0.0247, 0.0219), correlation=0.03, tail=0.44, wander=0.97, spikes=0.0,
    ),
    Recorded(
        name='2d843204', is_fitted=True, points=2000,
        level=(10.943, 10.942, 10.941, 10.938, 10.894, 10.522, 10.023, 9.494, 8.505, 6.597, 5.412, 4.424),
        sigma=(0.0038, 0.0118, 0.0176, 0.0246, 0.0209), correlation=0.03, tail=0.5, wander=0.98, spikes=0.0,
    ),
    Recorded(
        name='59828e38', is_fitted=True, points=4001,
        level=(9.406, 9.283, 9.086, 8.724, 7.576, 6.884, 6.536, 6.215, 6.095, 5.925, 5.307, 4.096),
        sigma=(0.0221, 0.0246, 0.0283, 0.0374, 0.0365), correlation=0.02, tail=0.31, wander=1.06, spikes=0.0,
    ),
    Recorded(
        name='5bb13acb', is_fitted=False, points=4001,
        level=(9.444, 9.297, 9.058, 8.784, 7.665, 6.837, 6.495, 6.194, 6.116, 5.954, 5.521, 4.506),
        sigma=(0.023, 0.0266, 0.0296, 0.0349, 0.0369), correlation=-0.03, tail=0.39, wander=0.79, spikes=0.0,
    ),
    Recorded(
        name='5e9d1993', is_fitted=True, points=20001,
        level=(9.425, 9.389, 9.231, 8.919, 7.872, 6.056, 4.989, 4.301, 3.521, 2.447, 2.093, 1.912),
        sigma=(0.0138, 0.0178, 0.0181, 0.0188, 0.0189), correlation=0.02, tail=0.47, wander=1.07, spikes=0.0,
    ),
    Recorded(
        name='61c5562b', is_fitted=True, points=2544,
        level=(9.729, 9.584, 9.339, 8.944, 8.154, 6.892, 5.863, 4.884, 3.628, 2.915, 2.532, 2.307),
        sigma=(0.0079, 0.0094, 0.0105, 0.0104, 0.011), correlation=0.01, tail=0.61, wander=0.82, spikes=0.0,
    ),
    Recorded(
        name='818f9e52', is_fitted=False, points=1908,
        level=(13.425, 13.389, 13.311, 12.858, 11.557, 9.213, 7.746, 6.645, 5.599, 4.445, 3.385, 2.897),
        sigma=(0.0049, 0.006, 0.008, 0.0087, 0.0081), correlation=-0.05, tail=0.12, wander=0.88, spikes=0.0,
    ),
    Recorded(
        name='92421aa4', is_fitted=True, points=2601,
        level=(9.616, 9.487, 9.271, 8.883, 8.153, 6.817, 5.841, 4.816, 3.608, 2.907, 2.525, 2.281),
        sigma=(0.0084, 0.0098, 0.0101, 0.0106, 0.0113), correlation=0.04, tail=0.64, wander=0.96, spikes=0.0,
    ),
    Recorded(
        name='bf8dc643', is_fitted=True, points=2544,
        level=(9.629, 9.497, 9.269, 8.922, 8.161, 6.86, 5.869, 4.79, 3.628, 2.925, 2.532, 2.311),
        sigma=(0.0081, 0.0101, 0.0106, 0.0104, 0.0112), correlation=0.04, tail=0.83, wander=1.17, spikes=0.0,
    ),
    Recorded(
        name='c8588590', is_fitted=False, points=10173,
        level=(9.729, 9.584, 9.237, 8.633, 7.201, 5.956, 4.743, 3.423, 2.724, 2.401, 2.167, 2.063),
        sigma=(0.01, 0.0109, 0.0121, 0.0109, 0.0117), correlation=0.01, tail=0.28, wander=0.99, spikes=0.0,
    ),
    Recorded(
        name='d3bad1b1', is_fitted=True, points=3094,
        level=(9.711, 9.583, 9.358, 8.897, 7.791, 6.094, 4.481, 3.265, 2.778, 2.488, 2.198, 1.983),
        sigma=(0.0063, 0.0066, 0.0065, 0.0069, 0.0072), correlation=0.24, tail=2.01, wander=1.94, spikes=6.1,
    ),
    Recorded(
        name='f111b54e', is_fitted=True, points=4769,
        level=(9.598, 9.41, 8.813, 8.374, 7.364, 6.506, 5.611, 4.599, 3.653, 2.773, 2.302, 2.056),
        sigma=(0.0034, 0.0044, 0.0052, 0.0053, 0.0056), correlation=0.05, tail=0.58, wander=1.05, spikes=0.0,
    ),
    Recorded(
        name='fe52eb57', is_fitted=False, points=1908,
        level=(13.391, 13.358, 13.278, 12.823, 11.559, 9.174, 7.737, 6.655, 5.569, 4.423, 3.375, 2.895),
        sigma=(0.0047, 0.0058, 0.0081, 0.0087, 0.008), correlation=-0.05, tail=0.17, wander=0.8, spikes=0.0,
    ),
)
# fmt: on


def draw(rng: np.random.Generator, points: int, *, correlation: float | None = None) -> Floats:
    """A healthy curve of ``points`` points after a recorded one, everything else drawn from ``rng``.

    Recorded noise is hardly correlated (-0.05 to 0.24 between neighbours); ``correlation`` asks for more.
    """
    fitted = [one for one in RECORDED if one.is_fitted]
    row = fitted[int(rng.integers(len(fitted)))]
    return like(row, rng, points, correlation=row.correlation if correlation is None else correlation)


def like(row: Recorded, rng: np.random.Generator, points: int, *, correlation: float) -> Floats:
    """A curve of the shape and noise of ``row``, stretched to ``points`` points."""
    from scipy.interpolate import PchipInterpolator

    at_T = np.log1p(np.arange(points) * ((row.points - 1) / max(points - 1, 1)))
    knot_Q = np.linspace(0.0, np.log(row.points), KNOTS)
    level_T = PchipInterpolator(knot_Q, np.log(row.level))(at_T)
    sigma_T = np.interp(np.linspace(0, 1, points), np.linspace(0.1, 0.9, len(row.sigma)), row.sigma)
    # A Student t of few degrees has the tail of the row; most recorded curves are Gaussian.
    freedom = 5.0 if row.tail > 1.5 else 12.0 if row.tail > 0.55 else 200.0
    shock_T = rng.standard_t(freedom, points) * np.sqrt((freedom - 2) / freedom)
    noise_T = _correlated(shock_T, correlation)
    if row.wander > 1.1:
        slow_T = _correlated(rng.normal(0.0, 1.0, points), 1 - 1 / 100)
        noise_T += slow_T * np.sqrt(row.wander**2 - 1) * np.sqrt((1 + correlation) / (1 - correlation) / 64)
    loss_T = np.exp(level_T + sigma_T * noise_T)
    _spike(loss_T, row, rng)
    return np.asarray(loss_T)


def _correlated(shock_T: Floats, correlation: float) -> Floats:
    """AR(1) noise of standard deviation 1 from shocks of standard deviation 1."""
    from scipy.signal import lfilter

    scaled_T = shock_T * np.sqrt(1 - correlation**2)
    scaled_T[0] = shock_T[0]
    return np.asarray(lfilter([1.0], [1.0, -correlation], scaled_T))


def _spike(loss_T: Floats, row: Recorded, rng: np.random.Generator) -> None:
    """Spikes of 1 to 8 points, up to 2.1 times the level, as the recorded ones are."""
    for at in np.flatnonzero(rng.random(len(loss_T)) < row.spikes / 1000 / 4.5):
        length = int(rng.integers(1, 9))
        part_T = loss_T[at : at + length]
        part_T *= 1 + rng.uniform(0.2, 1.1) * np.linspace(1.0, 0.2, length)[: len(part_T)]


def fit(name: str, loss_T: Floats, *, is_fitted: bool) -> Recorded:
    """The small numbers of one curve."""
    y_T = np.log(loss_T)
    level_T = running_median(y_T)
    n = len(y_T)
    place_Q = np.expm1(np.linspace(0.0, np.log(n), KNOTS)).round().astype(int).clip(0, n - 1)
    skip = n // 10
    rest_T = (y_T - level_T)[skip:]
    sigma = tuple(robust_sigma(y_T[int(n * at) : int(n * (at + 0.2))]) for at in (0.02, 0.2, 0.4, 0.6, 0.8))
    here_T = np.interp(np.linspace(0, 1, n), np.linspace(0.1, 0.9, 5), sigma)[skip:]
    z_T = rest_T / here_T
    return Recorded(
        name=name,
        is_fitted=is_fitted,
        points=n,
        level=tuple(round(float(np.exp(v)), 3) for v in level_T[place_Q]),
        sigma=tuple(round(float(v), 4) for v in sigma),
        correlation=round(correlation_of(z_T), 2),
        tail=round(100 * float((np.abs(z_T) > 3).mean()), 2),
        wander=round(float(wander_of(y_T)), 2),
        spikes=round(1000 * float((z_T > 8).mean()), 2),
    )


def running_median(y_T: Floats) -> Floats:
    """Median of `HALF` points on each side; fewer at the ends."""
    return np.array([np.median(y_T[max(0, t - HALF) : t + HALF + 1]) for t in range(len(y_T))])


def robust_sigma(y_T: Floats) -> float:
    """Standard deviation of one point from second differences, which see no decline."""
    return float(1.4826 * np.median(np.abs(np.diff(y_T, 2))) / np.sqrt(6.0))


def correlation_of(z_T: Floats) -> float:
    """Correlation of neighbours, wild points clipped, and what the running median takes added back."""
    z_T = np.clip(z_T, -4, 4)
    return float(np.dot(z_T[1:], z_T[:-1]) / np.dot(z_T, z_T)) + 1.0 / (2 * HALF + 1)


def wander_of(y_T: Floats) -> float:
    """Scatter of means of 64 points about a smooth curve over the last 60 %, over that of the noise alone."""
    late_T = y_T[int(0.4 * len(y_T)) :]
    count = len(late_T) // 64
    mean_B = np.median(late_T[: count * 64].reshape(count, 64), axis=1)
    at_B = np.linspace(-1, 1, count)
    degree = min(4, count - 3)
    rest_B = mean_B - np.polyval(np.polyfit(at_B, mean_B, degree), at_B)
    scatter = float(np.sqrt(np.dot(rest_B, rest_B) / (count - degree - 1)))
    return float(scatter / (1.2533 * robust_sigma(late_T) / 8))


def loss_of(path: Path) -> Floats | None:
    """The recorded losses of one file in order; None if there are none."""
    block = read_curve(path)
    if block is None or "loss" not in block.numbers:
        return None
    loss = block.numbers["loss"]
    return np.asarray(loss.values_TR[loss.present_TR])


def main(arguments: Sequence[str]) -> int:
    """Fit the curves of the folders, print their rows, and check the surrogate on those held out."""
    if not arguments:
        print("surrogate: give folders of healthy curves to fit, see the docstring")
        return 0
    rows: list[Recorded] = []
    for path in curve_files(arguments):
        loss_T = loss_of(path)
        if loss_T is not None and len(loss_T) >= LEAST_POINTS:
            # Every third is held out, from the second on: the one curve that spikes is fitted.
            rows.append(fit(path.stem, loss_T, is_fitted=len(rows) % 3 != 1))
            print(source_of(rows[-1]))
    print("\nname       drawn, then recorded: correlation, tail, wander, spikes")
    for row in rows:
        again_T = like(row, np.random.default_rng(1), row.points, correlation=row.correlation)
        drawn = fit(row.name, again_T, is_fitted=row.is_fitted)
        head = f"{row.name} {'fitted  ' if row.is_fitted else 'held out'}"
        print(head, *(f"{getattr(drawn, key):6.2f} {getattr(row, key):6.2f} " for key in _CHECKED))
    _compare([row for row in rows if not row.is_fitted])
    return 0


def source_of(row: Recorded) -> str:
    """The row as it stands in `RECORDED`."""
    head = f"name={row.name!r}, is_fitted={row.is_fitted}, points={row.points},"
    noise = ", ".join(f"{key}={getattr(row, key)}" for key in _CHECKED)
    lines = (head, f"level={row.level},", f"sigma={row.sigma}, {noise},")
    return "\n".join(("    Recorded(", *(f"        {line}" for line in lines), "    ),"))


_CHECKED = ("correlation", "tail", "wander", "spikes")


def _compare(held_out: Sequence[Recorded]) -> None:
    """Whether curves held out lie within what the surrogate draws."""
    rng = np.random.default_rng(2)
    drawn = [fit("drawn", draw(rng, 2500), is_fitted=True) for _ in range(60)]
    for key in _CHECKED:
        low, high = np.quantile([getattr(one, key) for one in drawn], [0.02, 0.98])
        inside = sum(low <= getattr(one, key) <= high for one in held_out)
        print(f"{key:12} surrogate 96 %: {low:.2f} to {high:.2f}, held out inside: {inside}/{len(held_out)}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

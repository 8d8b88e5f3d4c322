"""One rank among its peers: what `peer_outlier` finds against the size of the fault, and the published rule.

Runs of a local gradient norm with a known truth: a rank is off for one iteration, or for good, by so many
pooled sigma, which are standard deviations of the logarithm of one rank against the median of its peers. Each
run has one fault: many of them in one run would be its noise. The leave-one-out rule gets the same runs; its
gate is set where it alarms in as many healthy iterations as we may (`ALLOWED_RATE`), on a healthy run of the
same noise.

Axes: T iterations, R ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from bench.peer_recall import Noise, judge, pooled_sigma
from bench.peer_rules import alarms, gate_at_rate, leave_one_out_scores
from ingest.blocks import Floats

from .cache import JUDGES, cache_folder, load_plain, save_plain, source_digest

NOISES = (
    Noise(name="gaussian"),
    Noise(name="student t 4", freedom=4.0),
    Noise(name="correlation 0.3", correlation=0.3),
)
STEPS = (4.0, 6.0, 8.0, 10.0)
SHIFTS = (0.5, 1.0, 2.0)
ALLOWED_RATE = 1e-4
"""Share of healthy iterations that may have false evidence: 0.01 %."""
SHIFT_WITHIN = 100
_BASELINE = 600
_CALIBRATION = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Runs of one noise with one size of fault; of size 0 they are healthy."""

    noise: str
    sigmas: float
    is_lasting: bool
    iterations: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was found: of ``cases`` faults, or in ``cases`` healthy iterations."""

    trial: Trial
    cases: int
    ours: int
    rule: int


def trials(first_seed: int, *, is_full: bool) -> Iterator[Trial]:
    """All trials of one measurement."""
    quiet, runs = (80_000, 80) if not is_full else (200_000, 300)
    for noise in NOISES:
        yield Trial(noise=noise.name, sigmas=0.0, is_lasting=False, iterations=quiet, seed=first_seed)
        for sigmas in STEPS:
            for number in range(_steps(noise.name, sigmas, is_full=is_full)):
                seed = first_seed + number
                yield Trial(
                    noise=noise.name, sigmas=sigmas, is_lasting=False, iterations=_BASELINE + 1, seed=seed
                )
    for sigmas in SHIFTS:
        name, length = NOISES[0].name, _BASELINE + 2 * SHIFT_WITHIN
        for number in range(runs):
            yield Trial(
                noise=name, sigmas=sigmas, is_lasting=True, iterations=length, seed=first_seed + number
            )


def _steps(noise: str, sigmas: float, *, is_full: bool) -> int:
    """Runs with one size of fault: so many as the floor asks for that this size has in Gaussian noise."""
    asked = {6.0: 300, 8.0: 1000}.get(sigmas, 100) if noise == NOISES[0].name else 100
    return max(asked, 1000) if is_full else asked


def outcome_of(trial: Trial) -> Outcome:
    """The outcome of a trial, kept as long as nothing that made it changes."""
    digest = source_digest(
        (*JUDGES, "bench/peer_recall.py", "bench/peer_rules.py", "bench/quality/outliers.py")
    )
    name = "-".join(str(value).replace(" ", "_") for value in asdict(trial).values())
    path = cache_folder() / "outliers" / digest / f"{name}.json"
    kept = load_plain(path)
    if kept is None:
        kept = _measure(trial)
        save_plain(path, kept)
    return Outcome(trial=trial, cases=kept["cases"], ours=kept["ours"], rule=kept["rule"])


def _measure(trial: Trial) -> dict[str, Any]:
    noise = next(one for one in NOISES if one.name == trial.noise)
    rng = np.random.default_rng([trial.seed, int(10 * trial.sigmas), int(trial.is_lasting)])
    value_TR = noise.draw(trial.iterations, rng)
    if not trial.sigmas:
        flags_TR = alarms(leave_one_out_scores(value_TR), _gate(trial.noise))
        return {"cases": trial.iterations, "ours": len(judge(value_TR)), "rule": int(flags_TR.sum())}
    rank = int(rng.integers(noise.ranks))
    stop = trial.iterations if trial.is_lasting else _BASELINE + 1
    value_TR[_BASELINE:stop, rank] *= np.exp(trial.sigmas * pooled_sigma(noise))
    return {"cases": 1, **_hits(trial, value_TR, rank)}


def _hits(trial: Trial, value_TR: Floats, rank: int) -> dict[str, int]:
    """Whether each method found the fault in time, and on the right rank."""
    last = _BASELINE + (SHIFT_WITHIN if trial.is_lasting else 0)
    found = judge(value_TR)
    flags_TR = alarms(leave_one_out_scores(value_TR), _gate(trial.noise))
    ours = any(_BASELINE <= one.alarm_iteration <= last and one.ranks == (rank,) for one in found)
    return {"ours": int(ours), "rule": int(flags_TR[_BASELINE : last + 1, rank].any())}


@lru_cache(maxsize=8)
def _gate(noise: str) -> float:
    """The gate of the rule at the allowed rate of false evidence, on a healthy run of its own."""
    drawn = next(one for one in NOISES if one.name == noise)
    value_TR = drawn.draw(_CALIBRATION, np.random.default_rng(99))
    return gate_at_rate(leave_one_out_scores(value_TR), ALLOWED_RATE)

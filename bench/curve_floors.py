"""The floors of the whole-curve detectors, measured on curves of every shape with a known truth.

    python -m bench.curve_floors [RUNS [FIRST_SEED [KIND,KIND…]]]

The curves are those of `bench.curve_shapes`, logged at each, each fifth or each tenth iteration. Rates come
with their 95 % interval (Wilson for shares, Garwood for false alarms); delays and errors in logged points.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from detectors.curve_drift import CurveDrift
from detectors.evidence import Certainty, Evidence
from detectors.explosion import Explosion
from tests.curve_builders import Series, block_of, judge

from .curve_shapes import KINDS, Faulty, healthy
from .quality.intervals import poisson_mean, wilson
from .surrogate import draw


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
    within = {limit: int((np.array(tally.alarm_delays) <= limit).sum()) for limit in (4, 50)}
    parts = [
        f"suspected {_share(tally.suspected, runs)}",
        f"within 4 {_share(within[4], runs)}",
        f"within 50 {_share(within[50], runs)}",
        f"confirmed {_share(sure, runs)}",
        f"within 50 {_share(int((np.array(tally.delays) <= 50).sum()), runs)}",
        "delay median {:.0f} 90 % {:.0f}".format(*np.quantile(tally.delays or [-1], (0.5, 0.9))),
        f"onset +-2 {_share(int((error <= 2).sum()), sure)}",
        f"+-5 {_share(int((error <= 5).sum()), sure)}",
        f"in interval {_share(tally.inside, sure)}",
        f"narrow {_share(tally.narrow, sure)}",
        f"before doubling {_share(tally.before_doubling, runs)}",
        f"early {tally.early}",
    ]
    return f"{tally.name:12} n={runs}\n    " + "\n    ".join(
        "; ".join(parts[at : at + 3]) for at in range(0, 12, 3)
    )


def _share(part: int, of: int) -> str:
    low, high = wilson(part, of)
    return f"{100 * part / max(of, 1):.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


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
    low, high = poisson_mean(counts[Certainty.CONFIRMED])
    per = 100_000 / done
    told = ", ".join(f"{certainty} {count}" for certainty, count in counts.items())
    rate = f"{counts[Certainty.CONFIRMED] * per:.3f} [{low * per:.3f}, {high * per:.3f}]"
    return f"healthy      {done} points: {told}; confirmed per 100 000: {rate}"


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

"""What the detectors of single ranks find among their peers, and what they cry over.

    python -m bench.peer_recall [SEEDS]

Runs of a local gradient norm with known truth, in which one rank goes wrong at a random iteration: a shift of
so many pooled sigma (standard deviations of the logarithm of one rank against its peers, over all ranks and
iterations) that lasts, or one single wild step. Single steps are looked for by the published rule as well,
the leave-one-out median and MAD, at a gate where it alarms in as many healthy iterations of the same noise as
we may, 0.01 %. Each line is one set of figures: how many faults were suspected and confirmed, delays (median
iterations), how often the rank was right, how many intervals hold the onset; for healthy runs the false
alarms. Intervals are of 95 %.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from bench.peer_rules import WINDOW, alarms, gate_at_rate, leave_one_out_scores, residuals
from bench.quality.intervals import exact_rate, wilson
from detectors.evidence import Certainty, Evidence, Finding
from detectors.joint import Joint
from detectors.peer_outlier import PeerOutlier
from firstfault.telemetry import WHOLE_ITERATION
from ingest.blocks import Floats, IterationBlock, NumberBlock

ITERATIONS = 2000
SIGMA = 0.1
"""Noise of a gradient norm from rank to rank, relative: that of the drill is 0.07."""
SHIFTS = (0.5, 1.0, 2.0, 4.0)
STEPS = (4.0, 6.0, 8.0, 10.0)
ALLOWED_RATE = 1e-4
"""Share of healthy iterations that may have false evidence."""
SOON = 100
CORRELATIONS = (0.8, 0.9, 0.97)
"""Of two metrics of a rank, before they go apart."""
HEALTHY_ITERATIONS = 20_000
RULE_ROWS = 4 * WINDOW
"""Rows before a fault that the published rule is given: more than its windows see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How the ranks of a job scatter."""

    name: str
    ranks: int = 8
    correlation: float = 0.0
    """From one iteration to the next."""
    freedom: float | None = None
    """Degrees of freedom of Student's t; None is Gaussian."""
    unequal: float = 0.0
    """Standard deviation of the ranks' own levels, and of the logarithm of their own noise."""
    growth: float = 1.0
    """Factor by which the noise of all ranks grows over the run."""

    def draw(self, iterations: int, rng: np.random.Generator) -> Floats:
        """Healthy norms, iterations × ranks."""
        shape = (iterations, self.ranks)
        if self.freedom is None:
            fresh_TR = rng.normal(size=shape)
        else:
            fresh_TR = rng.standard_t(self.freedom, shape) / np.sqrt(self.freedom / (self.freedom - 2))
        noise_TR = fresh_TR
        if self.correlation:
            noise_TR = fresh_TR * np.sqrt(1 - self.correlation**2)
            for t in range(1, iterations):
                noise_TR[t] += self.correlation * noise_TR[t - 1]
        own_R = np.exp(rng.normal(0, self.unequal, self.ranks))
        grown_T1 = np.linspace(1.0, self.growth, iterations)[:, None]
        level_T1 = 1.0 + 4.0 * np.exp(-np.arange(iterations) / 200)[:, None]
        common_T1 = np.exp(0.1 * rng.normal(size=(iterations, 1)))
        scatter_TR = np.exp(SIGMA * own_R * grown_T1 * noise_TR)
        level_R = np.exp(rng.normal(0, self.unequal, self.ranks))
        return np.asarray(level_T1 * common_T1 * level_R * scatter_TR)


NOISES = (
    Noise(name="gaussian, 8 ranks"),
    Noise(name="gaussian, 3 ranks", ranks=3),
    Noise(name="gaussian, 2 ranks", ranks=2),
    Noise(name="gaussian, 4 ranks", ranks=4),
    Noise(name="gaussian, 64 ranks", ranks=64),
    Noise(name="correlation 0.3, 8 ranks", correlation=0.3),
    Noise(name="student t 4, 8 ranks", freedom=4.0),
    Noise(name="student t 4, 3 ranks", ranks=3, freedom=4.0),
    Noise(name="student t 8, 8 ranks", freedom=8.0),
    Noise(name="unequal, growing, 8 ranks", unequal=0.4, growth=2.0),
)


@lru_cache(maxsize=64)
def pooled_sigma(noise: Noise) -> float:
    """The standard deviation of one rank against the median of its peers, over ranks and iterations.

    >>> round(pooled_sigma(Noise(name="gaussian, 8 ranks")) / SIGMA, 2)
    1.1
    """
    residual_TR = residuals(np.log(noise.draw(20_000, np.random.default_rng(0))))
    return float((residual_TR - residual_TR.mean(axis=0)).std())


@lru_cache(maxsize=64)
def gate_of_rule(noise: Noise) -> float:
    """The gate at which the published rule alarms in the allowed share of healthy iterations of ``noise``."""
    value_TR = noise.draw(HEALTHY_ITERATIONS, np.random.default_rng([1, 2]))
    return gate_at_rate(leave_one_out_scores(value_TR)[2 * WINDOW :], ALLOWED_RATE)


@dataclass(slots=True)
class Score:
    """What became of the runs of one line."""

    runs: int = 0
    suspected: list[int] = field(default_factory=list)
    confirmed: list[int] = field(default_factory=list)
    right: int = 0
    inside: int = 0
    false: int = 0

    def take(self, found: Sequence[Evidence], rank: int, onset: int) -> None:
        """Judge the evidence of one run with a fault of ``rank`` at ``onset``."""
        self.runs += 1
        after = [one for one in found if one.alarm_iteration >= onset]
        self.false += sum(one.certainty is Certainty.CONFIRMED for one in found if one not in after)
        if not after:
            return
        first = after[0]
        self.suspected.append(first.alarm_iteration - onset)
        self.right += rank in first.ranks
        self.inside += (-1 if first.last_clean is None else first.last_clean) < onset <= first.first_bad
        sure = [one for one in after if one.certainty is Certainty.CONFIRMED]
        if sure:
            self.confirmed.append(int(str(sure[0].detail["judged_at"])) - onset)

    @property
    def soon(self) -> int:
        """How many were suspected within a hundred iterations."""
        return sum(delay < SOON for delay in self.suspected)

    def line(self, name: str) -> str:
        """One line of the table."""
        if not self.suspected:
            return f"{name:44} caught   0 of {self.runs}"
        late = f"{np.median(self.confirmed):4.0f}" if self.confirmed else "   -"
        return (
            f"{name:44} caught {len(self.suspected):3} of {self.runs:3}, confirmed {len(self.confirmed):3}, "
            f"delay {np.median(self.suspected):4.0f} and {late}, within 100 {self.soon:3}, "
            f"rank right {self.right:3}, onset inside {self.inside:3}, false {self.false}"
        )


def main(arguments: Sequence[str]) -> int:
    """Print a line for each kind of fault and noise, over ``SEEDS`` runs each (20)."""
    seeds = int(arguments[0]) if arguments else 20
    for noise in NOISES:
        for step in STEPS:
            print(score_steps(noise, step, 5 * seeds), flush=True)
    for noise in NOISES:
        for shift in SHIFTS:
            print(score_shifts(noise, shift, seeds).line(f"{noise.name}: shift {shift} sigma"), flush=True)
    for correlation in CORRELATIONS:
        found = score_apart(correlation, max(seeds // 2, 1))
        print(found.line(f"joint, 8 ranks: correlation {correlation} to 0"), flush=True)
    for noise in NOISES:
        print(false_alarms(noise, max(seeds // 2, 1)), flush=True)
    print(joint_alarms(CORRELATIONS[1], max(seeds // 2, 1)))
    return 0


def score_shifts(noise: Noise, shift: float, seeds: int) -> Score:
    """Runs in which one rank shifts for good."""
    score = Score()
    for seed in range(seeds):
        rng = np.random.default_rng([seed, int(10 * shift)])
        value_TR = noise.draw(ITERATIONS, rng)
        rank, onset = int(rng.integers(noise.ranks)), int(rng.integers(500, 1300))
        value_TR[onset:, rank] *= np.exp(shift * pooled_sigma(noise))
        score.take(judge(value_TR), rank, onset)
    return score


def score_steps(noise: Noise, step: float, seeds: int) -> str:
    """Runs in which one rank is wild once, up or down, as a line."""
    ours = rule = 0
    for seed in range(seeds):
        rng = np.random.default_rng([seed, int(10 * step), 1])
        value_TR = noise.draw(1300, rng)
        rank, at = int(rng.integers(noise.ranks)), int(rng.integers(500, 1300))
        value_TR[at, rank] *= np.exp(rng.choice((-1.0, 1.0)) * step * pooled_sigma(noise))
        found = judge(value_TR[: at + 1])
        ours += any(one.alarm_iteration == at and rank in one.ranks for one in found)
        if noise.ranks > 2:
            score_TR = leave_one_out_scores(value_TR[at - RULE_ROWS : at + 1])
            rule += bool(alarms(score_TR, gate_of_rule(noise))[-1, rank])
    return f"{noise.name}: one step {step:g} sigma: {_share(ours, seeds)}; the rule {_share(rule, seeds)}"


def _share(hits: int, cases: int) -> str:
    low, high = wilson(hits, cases)
    return f"{100 * hits / cases:.1f} % [{100 * low:.1f}, {100 * high:.1f}] of {cases}"


def score_apart(correlation: float, seeds: int) -> Score:
    """Runs in which two metrics of one rank go together no more, each looking as ever."""
    score = Score()
    for seed in range(seeds):
        rng = np.random.default_rng([seed, int(10 * correlation), 3])
        shape = (2 * ITERATIONS, 8)
        whole_TR, own_TR = rng.normal(size=(2, *shape))
        rank, onset = int(rng.integers(8)), int(rng.integers(1300, 2800))
        shared_TR = whole_TR.copy()
        shared_TR[onset:, rank] = rng.normal(size=shape[0] - onset)
        part_TR = correlation * shared_TR + np.sqrt(1 - correlation**2) * own_TR
        block = block_of({"grad_absmax": np.exp(SIGMA * part_TR), "loss": np.exp(SIGMA * whole_TR)})
        score.take(final(Joint().update(block)), rank, onset)
    return score


def false_alarms(noise: Noise, seeds: int) -> str:
    """Alarms on healthy runs, as a line."""
    counts = dict.fromkeys(Certainty, 0)
    for seed in range(seeds * HEALTHY_ITERATIONS // ITERATIONS):
        for found in judge(noise.draw(ITERATIONS, np.random.default_rng([seed, 2]))):
            counts[found.certainty] += 1
    return rates(noise.name, counts, seeds)


def joint_alarms(correlation: float, seeds: int) -> str:
    """Alarms of the joint detector on healthy runs, as a line."""
    counts = dict.fromkeys(Certainty, 0)
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 4])
        whole_TR, own_TR = rng.normal(size=(2, HEALTHY_ITERATIONS, 8))
        part_TR = correlation * whole_TR + np.sqrt(1 - correlation**2) * own_TR
        block = block_of({"grad_absmax": np.exp(SIGMA * part_TR), "loss": np.exp(SIGMA * whole_TR)})
        for found in final(Joint().update(block)):
            counts[found.certainty] += 1
    return rates(f"joint, 8 ranks, correlation {correlation}", counts, seeds)


def rates(name: str, counts: Mapping[Certainty, int], seeds: int) -> str:
    """False evidence and false alarms of healthy runs, as a line."""
    iterations = seeds * HEALTHY_ITERATIONS
    confirmed, every = counts[Certainty.CONFIRMED], sum(counts.values())
    low, high = exact_rate(every, iterations / 100)
    sure = exact_rate(confirmed, iterations / 100_000)[1]
    return (
        f"{name:44} healthy: evidence in {100 * every / iterations:.4f} % [{low:.4f}, {high:.4f}] of "
        f"{iterations} iterations; {confirmed} confirmed, at most {sure:.2f} in 100 000"
    )


def judge(value_TR: Floats) -> list[Evidence]:
    """The final evidence of one metric of data-parallel ranks, by alarm."""
    return final(PeerOutlier().update(block_of({"local_grad_norm": value_TR})))


def final(findings: Sequence[Finding]) -> list[Evidence]:
    """The last evidence of each key, by alarm."""
    found = {one.key: one for one in findings if isinstance(one, Evidence)}
    return sorted(found.values(), key=lambda one: one.alarm_iteration)


def block_of(metrics: Mapping[str, Floats]) -> IterationBlock:
    """Metrics of data-parallel ranks as one block, every value present."""
    iterations, ranks = next(iter(metrics.values())).shape
    return IterationBlock(
        run="bench",
        attempt=0,
        iteration_T=np.arange(iterations, dtype=np.int64),
        microbatch_T=np.full(iterations, WHOLE_ITERATION, np.int32),
        ranks_R=np.arange(ranks, dtype=np.int32),
        numbers={
            metric: NumberBlock(value_TR, np.ones(value_TR.shape, np.bool_))
            for metric, value_TR in metrics.items()
        },
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

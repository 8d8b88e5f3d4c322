"""Suspects, onset, cause and stage on runs of the fault-injection rig, held against the truth.

    python -m bench.causes [--layout dp] [--seeds 8] [--first 0] [--faults 6]

Training seeds alone (below 1 000 000): each a healthy job, its golden twin and some faults, judged as the
service does, once with per-rank metrics and once with everything. Prints the confusion matrices of causes and
stages over faults that were confirmed, how often suspects and interval were exact where the truth is, and how
often canaries caught faults that strike a share q of the passes, beside what 1 - (1 - q)^n allows.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from detectors.verdict import to_json
from firstfault.drill.plans import DrillError
from firstfault.drill.rig.catalogue import CATALOGUE, check, draw
from firstfault.drill.rig.engine import Said, fork
from firstfault.drill.rig.layouts import LAYOUTS
from firstfault.drill.rig.recording import record_run
from firstfault.drill.rig.spec import Fault, Job, LayoutName
from firstfault.drill.rig.tiers import Tier, has
from firstfault.drill.rig.truth import Truth, judge_truth
from firstfault.drill.rig.variety import healthy_job
from firstfault.telemetry import Record
from firstfault.wire import encode_event, encode_record
from ingest.decode import Decoder
from service.pipeline import Pipeline

from .quality.intervals import wilson

ITERATIONS = 200
"""Enough for every detector of values that must agree; each case costs some seconds."""
MAX_SEED = 1_000_000
"""From here on seeds belong to the benchmark."""
TIERS = (Tier.RANKS, Tier.CANARY)


@dataclass(frozen=True, slots=True)
class Case:
    """One run, one tier: what was said and what is true; a healthy run has no truth."""

    tier: Tier
    fault: Fault | None
    truth: Truth | None
    verdict: dict[str, Any]

    @property
    def incident(self) -> dict[str, Any] | None:
        """The first confirmed incident."""
        confirmed = (one for one in self.verdict["incidents"] if one["certainty"] == "confirmed")
        return next(confirmed, None)


def judge(said: Sequence[Said], tier: Tier) -> dict[str, Any]:
    """The verdict on what a job of ``tier`` would have reported."""
    lines = []
    for one in said:
        if isinstance(one, Record):
            kept = {name: value for name, value in one.metrics.items() if has(tier, name)}
            lines.append(encode_record(replace(one, metrics=kept)))
        else:
            lines.append(encode_event(one))
    pipeline = Pipeline()
    pipeline.feed(Decoder().decode_lines(("\n".join(lines) + "\n").encode(), "rig", 0))
    (verdict,) = pipeline.verdicts()
    return to_json(verdict)


def cases(layout: LayoutName, seeds: range, faults: int) -> Iterator[Case]:
    """A healthy case and some faulty ones of every seed."""
    for seed in seeds:
        job, rng = _job(seed, layout), random.Random(f"causes/{seed}")
        branches = iter(fork(job, _faults(job, rng, faults)))
        healthy = next(branches)
        twin = record_run(healthy.said)
        for tier in TIERS:
            yield Case(tier, None, None, judge(healthy.said, tier))
        for branch in branches:
            assert branch.fault is not None, "only the golden twin has none"
            truth = judge_truth(record_run(branch.said), twin, branch.fault)
            for tier in TIERS:
                yield Case(tier, branch.fault, truth, judge(branch.said, tier))
        print(f"seed {seed} done", file=sys.stderr, flush=True)


def _job(seed: int, layout: LayoutName) -> Job:
    job = healthy_job(seed, iterations=ITERATIONS)
    if layout is LayoutName.DP:
        return job
    # another world size after a restart is data parallel's alone
    kept = replace(job.training, restarts=tuple(replace(one, ranks=None) for one in job.training.restarts))
    placed = LAYOUTS[layout]
    model = replace(job.model, layers=max(job.model.layers, placed.size("pp")))
    return replace(job, layout=placed, training=kept, model=model)


def _faults(job: Job, rng: random.Random, count: int) -> list[Fault]:
    kinds = list(CATALOGUE)
    rng.shuffle(kinds)
    found: list[Fault] = []
    for kind in kinds:
        if len(found) == count:
            break
        try:
            fault = draw(job, rng, kind)
            check(job, fault)
            found.append(fault)
        except (DrillError, IndexError):
            continue  # a kind that this job has no place for
    return found


def _tables(found: Sequence[Case]) -> Iterator[str]:
    healthy = [one for one in found if one.fault is None]
    alarms = sum(one.incident is not None for one in healthy)
    yield f"healthy runs with a confirmed incident: {share(alarms, len(healthy))}"
    told = [(one, one.incident, one.truth) for one in found if one.incident is not None and one.truth]
    causes: Counter[tuple[str, str]] = Counter()
    stages: Counter[tuple[str, str]] = Counter()
    for _, incident, truth in told:
        assert incident is not None
        said = incident["causes"][0]
        true = said["kind"] if said["kind"] in truth.causes else truth.causes[0]
        causes[true, said["kind"]] += 1
        stages[truth.stage, said["stage"]] += 1
    yield from _matrix("cause", causes)
    yield from _matrix("stage", stages)
    yield from _places(told)
    yield from _canaries(found)


def _matrix(name: str, counts: Counter[tuple[str, str]]) -> Iterator[str]:
    right = sum(count for (true, said), count in counts.items() if true == said)
    yield f"{name}: {share(right, sum(counts.values()))} right (true -> said: runs)"
    for (true, said), count in sorted(counts.items()):
        yield f"  {true:16} -> {said:16} {count:5}"


def _places(told: Sequence[tuple[Case, dict[str, Any] | None, Truth]]) -> Iterator[str]:
    """Suspects and interval where the truth is exact: checksums, and non-finite values."""
    for label in ("nan", "silent_drift"):
        same = covered = total = size = 0
        for case, incident, truth in told:
            true = truth.tiers[case.tier]
            assert incident is not None
            if not true.is_exact or true.onset is None or not true.label == label == incident["label"]:
                continue
            first = incident["first"]
            low = -1 if first["interval"][0] is None else first["interval"][0]
            total, size = total + 1, size + max(first["rank_count"], 1)
            same += tuple(first["ranks"]) == true.ranks
            covered += low < true.onset <= first["interval"][1]
        if total:
            yield f"{label}, exact truth: suspects equal {share(same, total)}, interval covers the onset "
            yield f"  {share(covered, total)}, mean suspects {size / total:.2f}"


def _canaries(found: Sequence[Case]) -> Iterator[str]:
    """Faults of a rate that only a canary sees: caught, and what their rate allows."""
    caught, allowed, total = 0, 0.0, 0
    for one in found:
        is_rated = one.fault is not None and one.fault.rate < 1 and one.fault.lasts is None
        if one.tier is not Tier.CANARY or not is_rated or one.truth is None:
            continue
        assert one.fault is not None
        checks = (ITERATIONS - one.fault.iteration) // 20
        total += 1
        caught += one.incident is not None
        allowed += 1 - (1 - one.fault.rate) ** (2 * checks)  # each canary is computed twice
    if total:
        yield f"faults of a rate: caught {share(caught, total)}, allowed {allowed / total:.2f}"


def share(hits: int, cases: int) -> str:
    """A share in words, with its 95 % interval."""
    low, high = wilson(hits, cases)
    return f"{hits} of {cases} ({low:.2f} to {high:.2f})"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layout", choices=list(LayoutName), default=LayoutName.DP)
    parser.add_argument("--seeds", type=int, default=8, help="jobs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--faults", type=int, default=6, help="faults of each job")
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.seeds)
    if seeds.stop > MAX_SEED:
        parser.error(f"seeds must be below {MAX_SEED}, got {seeds.stop - 1}")
    for line in _tables(list(cases(LayoutName(asked.layout), seeds, asked.faults))):
        print(line)


if __name__ == "__main__":
    main()

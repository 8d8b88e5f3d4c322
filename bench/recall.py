"""What the curve detectors find on synthetic curves with a known truth, and what they cry over.

    python -m bench.recall [SEEDS]

For each scenario of ``tests/curve_builders.py``: how many of the runs are confirmed by an alarm at the
onset or later, onset error (median and worst, in iterations), how many intervals hold the onset, delay
to the suspicion and to the confirmation (median), and false alarms: runs or healthy twins confirmed
where nothing is wrong, or before the onset.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from detectors.curve_drift import CurveDrift
from detectors.evidence import Evidence
from detectors.explosion import Explosion
from tests.curve_builders import (
    BENIGN,
    DRIFTS,
    EXPLOSIONS,
    HEALTHY,
    Series,
    block_of,
    confirmed,
    judge,
    make_scenario,
)


@dataclass(slots=True)
class Row:
    """What became of the runs of one scenario; lists hold one number a run that was caught."""

    name: str
    runs: int = 0
    false_alarms: int = 0
    errors: list[int] = field(default_factory=list)
    inside: int = 0
    suspicion_delays: list[int] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)

    def line(self) -> str:
        """One line of the table."""
        head = f"{self.name:12} {len(self.errors):3}/{self.runs:<3} {self.false_alarms:3}"
        if not self.errors:
            return head
        error, worst = np.median(np.abs(self.errors)), max(self.errors, key=abs)
        return (
            f"{head}   {error:6.1f} {worst:6} {self.inside:4}/{len(self.errors):<4}"
            f"{np.median(self.suspicion_delays):8.0f} {np.median(self.delays):8.0f}"
        )


def main(arguments: Sequence[str]) -> int:
    """Print the table over ``SEEDS`` seeds a scenario (20)."""
    seeds = int(arguments[0]) if arguments else 20
    print("scenario      caught  FA   |error|  worst  inside  suspected confirmed (median delays)")
    for name in (*EXPLOSIONS, *DRIFTS, *HEALTHY, *BENIGN):
        print(score(name, seeds).line())
    return 0


def score(name: str, seeds: int) -> Row:
    """Judge ``seeds`` runs of one scenario and their twins."""
    row = Row(name)
    for seed in range(seeds):
        scenario = make_scenario(name, seed)
        found = alarms(scenario.columns)
        row.runs += 1
        onset = scenario.onset
        if onset is None:
            row.false_alarms += bool(found)
            continue
        row.false_alarms += any(one.alarm_iteration < onset for one in found) + bool(alarms(scenario.twin))
        caught = [one for one in found if one.alarm_iteration >= onset]
        if caught:
            first = min(caught, key=lambda one: int(str(one.detail["judged_at"])))
            row.errors.append(first.iteration - onset)
            row.inside += (-1 if first.last_clean is None else first.last_clean) < onset <= first.first_bad
            row.suspicion_delays.append(first.alarm_iteration - onset)
            row.delays.append(int(str(first.detail["judged_at"])) - onset)
    return row


def alarms(columns: dict[str, Series] | object) -> list[Evidence]:
    """All confirmed evidence of both detectors."""
    assert isinstance(columns, dict)
    block = block_of(columns)
    return [*confirmed(judge(Explosion(), [block])), *confirmed(judge(CurveDrift(), [block]))]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""`canary_loss` under the eyes of whole-curve drift: from bends of its decline to findings.

Axes: T positions, K points of the curve.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ingest.blocks import Flags, Ints, IterationBlock

from .canary_curve import LEAST_CELLS, Bend, Cells, find_bend
from .curve import curve_of
from .drift_stream import DETECTOR, MAX_EPISODES
from .evidence import Certainty, Direction, Evidence, Finding, Pattern

METRIC = "canary_loss"
LR_FALLS_TO = 0.8
"""Share of the rate before; a fall to less, at once, breaks the decline of a healthy run too."""


class CanaryStream:
    """The canary's cells, and the suspicion that is open."""

    def __init__(self, suspected_gate: float, confirmed_gate: float) -> None:
        self.gates = (suspected_gate, confirmed_gate)
        self.cells = Cells()
        self.points = 0
        self.episode = 0
        self.suspected: dict[str, Any] = {}
        """Fields of the evidence while something is suspected."""
        self.is_marked = False
        self.last_lr = 0.0

    def update(self, block: IterationBlock, marks_T: Ints) -> list[Finding]:
        """Fold the canary losses of the block; ``marks_T`` are those of `curve.MARKS`."""
        findings: list[Finding] = []
        curve = curve_of(block, METRIC)
        if curve is None and not self.points:
            return findings  # without a canary nothing needs to be known of the rate, nor of marks
        marked_T = (marks_T > 0) | self._lr_falls(block)
        start = 0
        if curve is not None:
            for at, value in zip(curve.at_K.tolist(), curve.value_K.tolist(), strict=True):
                self.is_marked |= bool(marked_T[start : at + 1].any())
                start = at + 1
                if np.isfinite(value):
                    findings += self._take(value, int(block.iteration_T[at]), block.attempt)
        self.is_marked |= bool(marked_T[start:].any())
        return findings

    def _take(self, value: float, iteration: int, attempt: int) -> list[Finding]:
        findings: list[Finding] = []
        self.points += 1
        if self.is_marked:
            findings = self._drop()
            self.cells.clear()
            self.is_marked = False
        if self.cells.add(value, iteration) and len(self.cells.means) >= LEAST_CELLS:
            findings += self._judge(find_bend(np.array(self.cells.means)), iteration, attempt)
        return findings

    def _judge(self, bend: Bend | None, now: int, attempt: int) -> list[Finding]:
        suspected_gate, confirmed_gate = self.gates
        score = 0.0 if bend is None else bend.score
        if bend is None or score < suspected_gate:
            # Half of the gate: one that wavers about it is one suspicion, not many.
            return self._drop() if score < 0.5 * suspected_gate else []
        if not self.suspected:
            self.episode += 1
        is_sure = score >= confirmed_gate
        if self.suspected and not is_sure:
            return []
        alarm = self.suspected.get("alarm_iteration", now)
        self.suspected = {"attempt": attempt, "alarm_iteration": alarm, **self._fields(bend, now)}
        found = self._evidence(Certainty.CONFIRMED if is_sure else Certainty.SUSPECTED)
        if is_sure:
            self.suspected = {}
            self.cells.clear()
        return [found]

    def _fields(self, bend: Bend, now: int) -> dict[str, Any]:
        last_clean, iteration, first_bad = self.cells.interval(bend)
        level, base = self.cells.means[-1], self.cells.means[bend.at]
        return {
            "pattern": Pattern.SHARP_SLOW_DEGRADE if bend.is_step else Pattern.SLOW_DEGRADE,
            "iteration": iteration,
            "first_bad": first_bad,
            "last_clean": last_clean,
            "statistic": bend.score,
            "detail": {
                "baseline": base,
                "level": level,
                "relative_rise": (level - base) / base,
                "above_decline": float(np.expm1(bend.gap)),
                "slope_after_over_before": bend.share if np.isfinite(bend.share) else None,
                "points_of_a_cell": self.cells.width,
                "judged_at": now,
                "shape": "step" if bend.is_step else "ramp",
            },
        }

    def _drop(self) -> list[Finding]:
        if not self.suspected:
            return []
        found = self._evidence(Certainty.RECOVERED)
        self.suspected = {}
        return [found]

    def _evidence(self, certainty: Certainty) -> Evidence:
        return Evidence(
            detector=DETECTOR,
            key=f"{METRIC}/{min(self.episode, MAX_EPISODES)}",
            certainty=certainty,
            metric=METRIC,
            threshold=self.gates[1],
            direction=Direction.UP,
            **self.suspected,
        )

    def _lr_falls(self, block: IterationBlock) -> Flags:
        """Positions at which the learning rate fell at once."""
        falls_T = np.zeros(len(block), np.bool_)
        curve = curve_of(block, "lr")
        if curve is None:
            return falls_T
        finite_K = np.isfinite(curve.value_K)
        value_K, at_K = curve.value_K[finite_K], curve.at_K[finite_K]
        if len(value_K):
            before_K = np.concatenate(([self.last_lr], value_K[:-1]))
            falls_T[at_K[value_K < LR_FALLS_TO * before_K]] = True
            self.last_lr = float(value_K[-1])
        return falls_T

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain data."""
        return {
            "cells": self.cells.snapshot(),
            "points": self.points,
            "episode": self.episode,
            "suspected": {**self.suspected, "pattern": str(self.suspected["pattern"])}
            if self.suspected
            else {},
            "is_marked": self.is_marked,
            "last_lr": self.last_lr,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        self.cells.restore(state["cells"])
        self.points, self.episode = int(state["points"]), int(state["episode"])
        self.suspected = dict(state["suspected"])
        if self.suspected:
            self.suspected["pattern"] = Pattern(self.suspected["pattern"])
        self.is_marked, self.last_lr = bool(state["is_marked"]), float(state["last_lr"])

"""From what the peer fold reports of a rank to evidence: when its shift began, how sure, and how large.

Axes: N recent scores of one stream.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from firstfault.telemetry import MetricContract

from . import peer_levels as at
from . import peer_rows as on_rows
from . import peer_tests as on_tests
from .evidence import Certainty, Direction, Evidence, Json, Pattern
from .onset import SURE, find_onset
from .peer_metric import PeerMetric, Report

# Any: an episode is plain data (numbers, text, None), as a snapshot wants it.
Episode = dict[str, Any]

_CERTAINTY = {
    on_rows.SUSPECTED: Certainty.SUSPECTED,
    on_rows.CONFIRMED: Certainty.CONFIRMED,
    on_rows.RECOVERED: Certainty.RECOVERED,
    on_rows.RESET: Certainty.RECOVERED,
}
WANDERS = 4.0
"""A shift must be so many times what the levels of peers wander by themselves to be confirmed: where ranks
read data of different kinds, or experts are asked more and less often, any rank shifts now and then."""
WHY_NOT = "why_not_confirmed"
_PEERS_WANDER = "the levels of its peers wander by themselves, too"
HIGH = 2.0
"""Score up to which the point before a wild step is clean: what is beyond it may be part of the step."""
_SPARE = 8
"""Scores before a shift that the ring must still hold for a change point to be sought in it."""


def open_episode(report: Report, metric: PeerMetric, ordinal: int, *, unsure: int = 0) -> Episode:
    """The episode that begins with a suspicion: its onset is found now, while the ring holds it.

    ``unsure`` points before what looks like the first bad one may be bad too.
    """
    stream, group = metric.stream(report.rank), metric.group(report.rank)
    sign, shift = float(stream[at.SIGN]), float(stream[at.SHIFT])
    is_step = stream[at.ALARM_KIND] == on_tests.STEP
    size = (
        abs(float(stream[at.RESIDUAL]))
        if is_step
        else on_tests.shift_size(0, _sigma(stream, group), stream.tolist())
    )
    peers = int(stream[at.ALARM_PEERS])
    return {
        "ordinal": ordinal,
        "alarm_iteration": report.iteration,
        "sign": sign,
        "kind": "step" if is_step else "shift",
        "shift_sigmas": float(stream[at.ALARM_SCORE]) if is_step else shift,
        "relative_shift": math.expm1(sign * size),
        "sigma": _sigma(stream, group),
        "peers": peers,
        "correlation": float(at.correlation_of(0, group.tolist())),
        "statistic": float(stream[at.ALARM_SCORE]),
        "threshold": float(stream[at.ALARM_GATE]),
        "ranks": metric.members(report.rank).tolist() if peers == 1 else [report.rank],
        **_onset(report, metric, unsure),
    }


def evidence_of(
    episode: Episode,
    contract: MetricContract,
    *,
    detector: str,
    attempt: int,
    key: str,
    pattern: Pattern = Pattern.PEER_DRIFT,
    more: Mapping[str, Json] | None = None,
) -> Evidence:
    """The evidence for ``episode`` as far as it has come; ``more`` joins its detail."""
    shown = ("kind", "shift_sigmas", "relative_shift", "sigma", "peers", "correlation")
    detail: dict[str, Json] = {name: episode[name] for name in shown}
    detail |= {
        name: episode[name]
        for name in ("judged_at", "held_sigmas", "equal_again_at", "wander_sigmas", WHY_NOT)
        if name in episode
    }
    detail |= more or {}
    return Evidence(
        detector=detector,
        key=key,
        pattern=pattern,
        certainty=Certainty(episode["certainty"]),
        metric=contract.name,
        attempt=attempt,
        iteration=episode["iteration"],
        first_bad=episode["first_bad"],
        last_clean=episode["last_clean"],
        alarm_iteration=episode["alarm_iteration"],
        ranks=tuple(sorted(episode["ranks"])),
        is_tie=len(episode["ranks"]) > 1,
        statistic=episode["statistic"],
        threshold=episode["threshold"],
        direction=Direction.UP if episode["sign"] > 0 else Direction.DOWN,
        phase=contract.declared_phase,
        detail=detail,
    )


def go_on(report: Report, metric: PeerMetric, episode: Episode) -> None:
    """Write what ``report`` says into ``episode``."""
    if report.code in _CERTAINTY:
        episode["certainty"] = _CERTAINTY[report.code].value
        episode["judged_at"] = report.iteration
    if report.code == on_rows.RETURNED:
        episode["equal_again_at"] = report.iteration
        if episode["certainty"] == Certainty.SUSPECTED:
            episode["certainty"] = Certainty.RECOVERED.value
    if report.code in (on_rows.CONFIRMED, on_rows.RECOVERED):
        stream = metric.stream(report.rank)
        episode["held_sigmas"] = float(stream[at.HOLD_SUM] / stream[at.HOLD_COUNT])
    if report.code == on_rows.CONFIRMED:
        size = float(stream[at.HOLD_SIZE] / stream[at.HOLD_COUNT])
        episode["relative_shift"] = math.expm1(episode["sign"] * size)
        wander = metric.wander(report.rank)
        episode["wander_sigmas"] = wander
        if episode["held_sigmas"] < WANDERS * wander:
            episode |= {"certainty": Certainty.SUSPECTED.value, WHY_NOT: _PEERS_WANDER}


def _sigma(stream: Any, group: Any) -> float:
    return math.sqrt(float(group[at.VARIANCE]) * float(stream[at.FACTOR]))


def _onset(report: Report, metric: PeerMetric, unsure: int) -> Episode:
    """iteration, first_bad and last_clean of the shift that was just suspected."""
    stream = metric.stream(report.rank)
    scores_N, iteration_N = metric.recent(report.rank)
    if stream[at.ALARM_KIND] == on_tests.STEP:
        high_N = scores_N[:-1] * stream[at.SIGN] > HIGH
        low_N = np.flatnonzero(~high_N)
        began = int(low_N[-1]) + 1 if len(low_N) else 0
        before = int(iteration_N[began - 1]) if began > 0 else None
        return {"iteration": report.iteration, "first_bad": report.iteration, "last_clean": before}
    row = int(metric.ints[on_rows.ROW])
    rows, longest = row - int(stream[at.ALARM_ROW]), row - _earliest(stream)
    older = _older_onset(report.iteration, rows, longest, float(stream[at.SHIFT]), iteration_N.tolist())
    if rows + _SPARE >= len(scores_N):
        return older
    signed_N = np.ascontiguousarray(np.clip(scores_N * stream[at.SIGN], -2 * at.CLIP, 2 * at.CLIP))
    found = find_onset(signed_N, use_log=False, refine=False, shapes=("step",))
    placed = found.in_iterations(iteration_N)
    if found.last_clean >= unsure:
        placed["last_clean"] = int(iteration_N[found.last_clean - unsure])
    elif older["last_clean"] is not None:
        # The ring holds no score that is clean for sure; what the sum says reaches further back.
        placed["last_clean"] = min(int(iteration_N[0]) - 1, older["last_clean"])
    return {name: placed[name] for name in ("iteration", "first_bad", "last_clean")}


def _earliest(stream: Any) -> int:
    """The row at which the first of the sums of the shift's direction last left 0."""
    which = (at.FAST_UP, at.SLOW_UP) if stream[at.SIGN] > 0 else (at.FAST_DOWN, at.SLOW_DOWN)
    began = [int(stream[one - at.FAST_UP + at.FAST_UP_ROW]) for one in which if stream[one] > 0]
    return min([int(stream[at.ALARM_ROW]), *began])


def _older_onset(now: int, rows: int, longest: int, shift: float, iterations: list[int]) -> Episode:
    """The onset by the sum alone, for one that the ring no longer holds: where it last left 0.

    Moved by n rows, a change point loses n shift² / 2 of the log likelihood: `SURE` of it on both sides.
    """
    pace = (iterations[-1] - iterations[0]) / (len(iterations) - 1) if len(iterations) > 1 else 1.0
    slack = math.ceil(2.0 * SURE / (shift * shift) * pace)
    began = now - round(rows * pace)
    # A level that goes away by and by had done so before any sum left 0, for up to twice as long as since.
    clean = min(began - slack, now - 3 * round(longest * pace)) - 1
    return {
        "iteration": began,
        "first_bad": min(now, began + slack),
        "last_clean": clean if clean >= 0 else None,
    }

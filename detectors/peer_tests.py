"""The tests of one stream among its peers: sums, single steps, and whether what was suspected lasts.

Parts of `peer_fold`, which says where they come from.
"""

# ruff: noqa: PLR0917
# A compiled fold takes its state as flat arrays by position.

from __future__ import annotations

import math
from collections.abc import Sequence

from .order_statistics import Numbers
from .peer_levels import (
    ALARM_GATE,
    ALARM_KIND,
    ALARM_PEERS,
    ALARM_ROW,
    ALARM_SCORE,
    BACK,
    CLIP,
    COUNT,
    FAST_UP,
    FAST_UP_ROW,
    FRESH,
    GATE_DOWN,
    GATE_UP,
    HELD,
    HOLD_COUNT,
    HOLD_LENGTH,
    HOLD_SIZE,
    HOLD_SUM,
    LAST_STEP,
    OUT,
    OVER,
    PHASE,
    QUIET,
    RECENT,
    RESIDUAL,
    SCORE,
    SEEN,
    SHIFT,
    SIGN,
    STREAM,
    clear_sums,
)
from .peer_rows import CONFIRMED, FEW_PEERS, RECOVERED, RETURNED, RING, Counts
from .peer_tails import count_score, renew_gates

# Kinds of alarm.
SUM, STEP = range(2)
# Knobs: indices into the array that PeerOutlierConfig.knobs gives.
LEAST_SHIFT, IS_UPWARD, LEAST_VARIANCE, HOLD_LEAST, TELLS_LEVELS = range(5)
KNOBS = 5

WARM_POINTS = 32.0
"""Points of a stream before it is judged: its offset is known to a fifth of the noise, and `MARGIN` allows
for the rest."""
FAST, SLOW = 0.4, 0.25
"""What a sum takes off each score, in standard deviations: half of the shift that it notices soonest."""
MARGIN = 1.0
"""Is taken off besides over the root of the stream's points, for the offset itself is an estimate: one
standard deviation of it. Healthy ranks then alarm three to ten times less often than the gates say, also in
heavy tails."""
FRESH_POINTS = 1024.0
"""Points from which on that no longer shrinks, for older ones are forgotten (`peer_levels.FORGET`)."""
HOLD_MOST = 256.0
"""Most points over which a suspicion must repeat itself. It takes (5 / shift)² of them: two fifths of the
shift are 2 sigma then, and 3 sigma below it."""
KEPT_SHARE = 0.4
MATTERING_SHARE = 0.8
"""Share of the least shift that matters which must be left: a shift of just that size is confirmed."""
GONE_SHARE = 0.25
"""Share of the shift below which a rank counts as back among its peers."""
BACK_POINTS = 128.0
LATE_PART = 8.0
"""The last eighth of a hold counts by itself: what is gone by then was a straggler, however long."""
STEP_RATIO = 1.5
"""A step must be so much greater than the next greatest score of its row: else the whole row is wild."""
PAIR_OF_THREE = 0.577
"""Of three ranks, what the difference of two scores is in standard deviations of one, for each is measured
from the mean of the two others."""


def add_up(
    at: int, row: int, score: float, fast: float, slow: float, stream: Numbers, knobs: Sequence[float]
) -> float:  # fmt: skip
    """Let the four sums of a stream take a score: the greatest of them over its gate."""
    points = stream[at + COUNT]
    margin = MARGIN / math.sqrt(points if points < FRESH_POINTS else FRESH_POINTS)
    greatest = 0.0
    for k in range(4):
        before = stream[at + FAST_UP + k]
        rest = before + (score if k % 2 == 0 else -score) - (FAST if k < 2 else SLOW) - margin
        if rest <= 0.0 or (k % 2 == 1 and knobs[IS_UPWARD] > 0.0):
            stream[at + FAST_UP + k] = 0.0
            continue
        if before == 0.0:
            stream[at + FAST_UP_ROW + k] = row
        stream[at + FAST_UP + k] = rest
        over = rest / (fast if k < 2 else slow)
        if over > greatest:
            greatest = over
            if over > 1.0:
                set_shift(at, k, row, rest, rest / over, margin, stream)
    stream[at + OVER] = greatest
    return greatest


def set_shift(at: int, k: int, row: int, rest: float, gate: float, margin: float, stream: Numbers) -> None:
    """What the sum ``k`` says of the shift: its sign, its size in standard deviations, when it began."""
    began = stream[at + FAST_UP_ROW + k]
    stream[at + SIGN] = 1.0 if k % 2 == 0 else -1.0
    stream[at + SHIFT] = rest / (row - began + 1.0) + (FAST if k < 2 else SLOW) + margin
    stream[at + ALARM_SCORE] = rest
    stream[at + ALARM_GATE] = gate
    stream[at + ALARM_ROW] = began


def shift_size(at: int, sigma: float, stream: Numbers) -> float:
    """Size of the shift in the logarithm: by the sum, or by the last points where the clip hides it.

    ``sigma`` is the scale of the stream.
    """
    by_sum = stream[at + SHIFT] * sigma
    by_points = stream[at + SIGN] * stream[at + RECENT]
    return by_points if by_points > by_sum else by_sum


def suspect(at: int, kind: int, peers: int, stream: Numbers, knobs: Sequence[float]) -> None:
    """Put a stream whose shift is set on hold: does it last?"""
    shift = stream[at + SHIFT]
    stream[at + PHASE] = HELD
    stream[at + ALARM_KIND] = kind
    stream[at + ALARM_PEERS] = peers
    stream[at + HOLD_LENGTH] = min(
        max(math.ceil(25.0 / (shift * shift)), knobs[HOLD_LEAST]), max(HOLD_MOST, knobs[HOLD_LEAST])
    )
    stream[at + HOLD_COUNT] = 0.0
    stream[at + HOLD_SUM] = 0.0
    stream[at + HOLD_SIZE] = 0.0
    stream[at + BACK] = 0.0


def watch_held(at: int, score: float, stream: Numbers, knobs: Sequence[float]) -> int:
    """A further score of a suspected stream: what to report, 0 for nothing yet."""
    stream[at + HOLD_SUM] += stream[at + SIGN] * score
    stream[at + HOLD_SIZE] += stream[at + SIGN] * stream[at + RESIDUAL]
    stream[at + HOLD_COUNT] += 1.0
    stream[at + BACK] += (
        (stream[at + SIGN] * score - stream[at + BACK]) * LATE_PART / stream[at + HOLD_LENGTH]
    )
    if stream[at + HOLD_COUNT] < stream[at + HOLD_LENGTH]:
        return 0
    clear_sums(at, stream)
    mean = stream[at + HOLD_SUM] / stream[at + HOLD_COUNT]
    size = stream[at + HOLD_SIZE] / stream[at + HOLD_COUNT]
    is_kept = mean >= KEPT_SHARE * stream[at + SHIFT] and stream[at + BACK] >= GONE_SHARE * stream[at + SHIFT]
    if not is_kept or size < MATTERING_SHARE * knobs[LEAST_SHIFT]:
        stream[at + PHASE] = QUIET
        return RECOVERED
    stream[at + PHASE] = OUT
    stream[at + BACK] = stream[at + SHIFT]
    return CONFIRMED


def watch_out(at: int, score: float, stream: Numbers) -> int:
    """A further score of a confirmed stream: whether it is back among its peers."""
    stream[at + BACK] += (stream[at + SIGN] * score - stream[at + BACK]) / BACK_POINTS
    if stream[at + BACK] >= GONE_SHARE * stream[at + SHIFT]:
        return 0
    stream[at + PHASE] = QUIET
    return RETURNED


def find_step(
    first: int, stop: int, count: int, g: int, wanted: float, stream: Numbers, group: Numbers, order: Counts,
    knobs: Sequence[float], tails: Sequence[float], weights: Numbers,
) -> int:  # fmt: skip
    """The column of a single gross step in this row, or -1; learns how far ordinary scores reach.

    ``wanted`` is the probability of such a step in one direction of one healthy stream.
    """
    if wanted <= 0.0:
        return -1
    renew_gates(g, wanted, group, tails, weights)
    top, second, where = 0.0, 0.0, -1
    for i in range(first, stop):
        at = order[i] * STREAM
        if stream[at + SEEN] == 1.0 and stream[at + PHASE] == QUIET and stream[at + COUNT] >= WARM_POINTS:
            size = abs(stream[at + FRESH])
            if size > top:
                top, second, where = size, top, order[i]
            elif size > second:
                second = size
    if where < 0:
        return -1
    at = where * STREAM
    is_up = stream[at + FRESH] > 0.0
    gate = group[g + (GATE_UP if is_up else GATE_DOWN)]
    if top > gate and is_alone(first, stop, count, top, second, stream, order):
        is_again = group[g + LAST_STEP] == where + 1.0
        group[g + LAST_STEP] = where + 1.0
        if abs(stream[at + RESIDUAL]) >= knobs[LEAST_SHIFT]:
            stream[at + SIGN] = 1.0 if is_up else -1.0
            stream[at + SHIFT] = CLIP
            stream[at + ALARM_SCORE] = top
            stream[at + ALARM_GATE] = gate
            count_row(first, stop, count, where if is_again else -1, g, stream, group, order, tails)
            return where
    count_row(first, stop, count, -1, g, stream, group, order, tails)
    return -1


def is_alone(
    first: int, stop: int, count: int, top: float, second: float, stream: Numbers, order: Counts
) -> bool:  # fmt: skip
    """Whether the greatest score of a row stands alone: else the whole row is wild, and no rank.

    Of three ranks the odd one drags the two others after it, so there those are compared with each other.
    """
    if count == 3 and stop - first == 3:
        a, b, c = order[first] * STREAM, order[first + 1] * STREAM, order[first + 2] * STREAM
        ab = abs(stream[a + SCORE] - stream[b + SCORE])
        bc = abs(stream[b + SCORE] - stream[c + SCORE])
        ca = abs(stream[c + SCORE] - stream[a + SCORE])
        second = PAIR_OF_THREE * min(ab, bc, ca)
    return count <= FEW_PEERS or top >= STEP_RATIO * second


def count_row(
    first: int, stop: int, count: int, left_out: int, g: int, stream: Numbers, group: Numbers, order: Counts,
    tails: Sequence[float],
) -> None:  # fmt: skip
    """Count the scores of a row, but not those of a rank that was wild before: those are its own.

    Measured from each other, ``count`` scores hold but count - 1 numbers.
    """
    share = (count - 1.0) / count
    for i in range(first, stop):
        at, is_counted = order[i] * STREAM, order[i] != left_out
        is_quiet = stream[at + PHASE] == QUIET and stream[at + COUNT] >= WARM_POINTS
        if is_counted and is_quiet and stream[at + SEEN] == 1.0:
            count_score(stream[at + FRESH], share, g, group, tails)


def is_of_one_time(one: int, other: int, stream: Numbers) -> bool:
    """Whether two shifts began within as many rows as a stream remembers."""
    return abs(stream[one + ALARM_ROW] - stream[other + ALARM_ROW]) <= RING


def moved_together(
    first: int, stop: int, chosen: int, fast: float, slow: float, stream: Numbers, order: Counts
) -> bool:  # fmt: skip
    """Whether so many ranks shifted with the ``chosen`` one, or against it, that no one is the odd one.

    Those that are suspected of a shift just now are among them, and those confirmed of one that began then.
    """
    same, against, members = 1, 0, 0
    sign = stream[chosen * STREAM + SIGN]
    for i in range(first, stop):
        at = order[i] * STREAM
        is_late = stream[at + PHASE] == OUT and not is_of_one_time(at, chosen * STREAM, stream)
        if is_late or stream[at + COUNT] < WARM_POINTS:
            continue
        members += 1
        if order[i] == chosen:
            continue
        if stream[at + PHASE] != QUIET:
            if stream[at + ALARM_KIND] == STEP:
                continue
            is_same = stream[at + SIGN] == sign
        elif stream[at + OVER] > 0.5:
            up = max(stream[at + FAST_UP] / fast, stream[at + FAST_UP + 2] / slow)
            down = max(stream[at + FAST_UP + 1] / fast, stream[at + FAST_UP + 3] / slow)
            is_same = (up > down) == (sign > 0.0)
        else:
            continue
        if is_same:
            same += 1
        else:
            against += 1
    if members <= FEW_PEERS + 1:
        return False
    moved = same + against
    return moved > max(2, members // 8) and (against > 0 or 2 * moved > members)

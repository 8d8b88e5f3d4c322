"""One row of one group of peers: who is compared with whom, the scores, and what is learned from them.

Parts of `peer_fold`. A row is one position at which somebody reported the metric.
"""

# ruff: noqa: PLR0917, PLR0124
# A compiled fold takes its state as flat arrays by position, and NaN is what differs from itself.

from __future__ import annotations

import math
from collections.abc import MutableSequence, Sequence

from .order_statistics import Numbers, median_of, median_without
from .peer_levels import (
    CLIP,
    COUNT,
    FACTOR,
    GROUP,
    HAS_LEVEL,
    HELD,
    JOINS_AFTER,
    LEVEL,
    OFFSET,
    OVER,
    PHASE,
    PREVIOUS,
    PREVIOUS_ROW,
    QUIET,
    RECENT,
    RECENT_POINTS,
    RESIDUAL,
    ROWS,
    SCORE,
    SEEN,
    STREAM,
    VARIANCE,
    WILD_ROWS,
    forget_stream,
    learn_correlation,
    learn_offset,
    learn_variance,
)

Counts = MutableSequence[int]

# Integers of the state.
CURSOR, WIDTH, ROW, REPORTS, SEGMENTS = range(5)
INTS = 5
# What the fold reports: pairs (code, column) in the array of reports.
SUSPECTED, CONFIRMED, RECOVERED, RETURNED, MOVED_TOGETHER, RESET, LEVELS = range(1, 8)

RING = 64
"""Scores remembered per stream for the onset: half a kilobyte."""
WILD_SCORE = 4.0
WILD_LEVEL = 1.0
"""Rows in which half of the ranks score so high, or the median is off by a factor e, say nothing of a rank:
an explosion, a spike."""
WILD_PATIENCE = 16.0
"""Wild rows in a row after which all is learned anew."""
LEVEL_ROWS = 16.0
FEW_PEERS = 2
"""So many are told apart by nothing; one more, and each draws the others along."""
LEAST_AVERAGED = 5
"""Peers from which on a row's level is more than their median: of fewer each draws it along."""
BOUND = 1.5
"""Standard deviations up to which a peer draws that level along: it is known as well as from their mean to
1 part in 27, against 1 in 3 for the median, and a peer that is far off moves it no further than any other."""
LEARNS_BELOW = 0.5
"""Share of its gate from which on a sum may be a shift, which is not learned or it would become its own
baseline."""


def report(code: int, column: int, ints: Counts, reports: Counts) -> None:
    """Put a pair into the reports of this row."""
    reports[2 * ints[REPORTS]] = code
    reports[2 * ints[REPORTS] + 1] = column
    ints[REPORTS] += 1


def is_peer(at: int, rows: float, stream: Numbers) -> bool:
    """Whether the stream at ``at`` is one of those that others are compared with."""
    return stream[at + PHASE] == QUIET and (stream[at + COUNT] >= JOINS_AFTER or stream[at + COUNT] >= rows)


def gather(
    value_V: Sequence[float], base: int, first: int, stop: int, g: int, ints: Counts, stream: Numbers,
    group: Numbers, ring: Numbers, order: Counts, scratch: Numbers,
) -> int:  # fmt: skip
    """The values of the peers less their offsets into ``scratch``: how many; -1 where one is not finite."""
    count, is_broken = 0, False
    rows, place = group[g + ROWS], ints[ROW] % RING
    for i in range(first, stop):
        c = order[i]
        at = c * STREAM
        value = value_V[base + c]
        ring[c * RING + place] = math.nan
        stream[at + SEEN] = 0.0
        if value == math.inf:
            is_broken = True
        elif value == value and is_peer(at, rows, stream):
            scratch[count] = value - stream[at + OFFSET]
            count += 1
    return -1 if is_broken else count


def score_row(
    value_V: Sequence[float], base: int, first: int, stop: int, g: int, count: int, stream: Numbers,
    group: Numbers, order: Counts, three: Numbers,
) -> int:  # fmt: skip
    """Residual and score of every stream with a value and peers; how many peers scored wildly high."""
    wild, rows, variance = 0, group[g + ROWS], group[g + VARIANCE]
    is_known = variance > 0.0 and count >= LEAST_AVERAGED
    middle, bound = median_of(count, three), BOUND * math.sqrt(variance)
    lean = lean_of(value_V, base, first, stop, middle, bound, rows, stream, order) if is_known else 0.0
    for i in range(first, stop):
        c = order[i]
        at = c * STREAM
        value = value_V[base + c]
        if value != value:
            continue
        value -= stream[at + OFFSET]
        if is_peer(at, rows, stream):
            if count < 2:
                continue
            if is_known:
                residual = value - middle - (lean - within(value - middle, bound)) / (count - 1.0)
            else:
                residual = value - median_without(value, count, three)
            if residual * residual > WILD_SCORE * WILD_SCORE * variance * stream[at + FACTOR]:
                wild += 1
        else:
            residual = value - middle - lean / count
        stream[at + RESIDUAL] = residual
        stream[at + RECENT] += (residual - stream[at + RECENT]) / RECENT_POINTS
        stream[at + SCORE] = residual / math.sqrt(variance * stream[at + FACTOR]) if variance > 0.0 else 0.0
        stream[at + SEEN] = 1.0
    return wild if variance > 0.0 else 0


def lean_of(
    value_V: Sequence[float], base: int, first: int, stop: int, middle: float, bound: float, rows: float,
    stream: Numbers, order: Counts,
) -> float:  # fmt: skip
    """By how much the peers of a row lie above their median, all together, each counted up to the bound."""
    total = 0.0
    for i in range(first, stop):
        at = order[i] * STREAM
        value = value_V[base + order[i]]
        if value == value and is_peer(at, rows, stream):
            total += within(value - stream[at + OFFSET] - middle, bound)
    return total


def within(size: float, bound: float) -> float:
    """``size``, or the bound that it passes."""
    return bound if size > bound else -bound if size < -bound else size


def is_wild(wild: int, count: int, g: int, level: float, group: Numbers) -> bool:
    """Whether this row says nothing of single ranks; follows the level of the group otherwise."""
    if group[g + HAS_LEVEL] == 0.0:
        group[g + HAS_LEVEL] = 1.0
        group[g + LEVEL] = level
    many = count > FEW_PEERS + 1 and 2 * wild > count
    if not many and abs(level - group[g + LEVEL]) <= WILD_LEVEL:
        group[g + LEVEL] += (level - group[g + LEVEL]) / LEVEL_ROWS
        group[g + WILD_ROWS] = 0.0
        return False
    group[g + WILD_ROWS] += 1.0
    return True


def reset_group(
    first: int, stop: int, g: int, ints: Counts, stream: Numbers, group: Numbers, order: Counts,
    reports: Counts,
) -> None:  # fmt: skip
    """Learn the group anew; what was suspected in it recovers, what was confirmed stays so."""
    for i in range(g, g + GROUP):
        group[i] = 0.0
    for i in range(first, stop):
        release(order[i], ints, stream, reports)


def release(column: int, ints: Counts, stream: Numbers, reports: Counts) -> None:
    """Learn a stream anew: what was suspected of it recovers, what was confirmed stays so."""
    at = column * STREAM
    if stream[at + PHASE] == HELD:
        report(RESET, column, ints, reports)
        stream[at + PHASE] = QUIET
    if stream[at + PHASE] == QUIET:
        forget_stream(at, stream)


def learn_row(
    first: int, stop: int, g: int, row: int, stream: Numbers, group: Numbers, order: Counts
) -> None:  # fmt: skip
    """Offsets, factors, variance and correlation from the quiet streams of a row that is not wild."""
    total, count = 0.0, 0
    rows, variance = group[g + ROWS], group[g + VARIANCE]
    for i in range(first, stop):
        at = order[i] * STREAM
        if stream[at + SEEN] == 0.0:
            continue
        score = stream[at + SCORE]
        if stream[at + PHASE] == QUIET:
            if stream[at + PREVIOUS_ROW] == row - 1:
                learn_correlation(g, stream[at + PREVIOUS], score, group)
            if is_peer(at, rows, stream):
                square = stream[at + RESIDUAL] * stream[at + RESIDUAL]
                if variance > 0.0:
                    square /= stream[at + FACTOR]
                    square = min(square, CLIP * CLIP * variance)
                total += square
                count += 1
            if stream[at + OVER] <= LEARNS_BELOW:
                learn_offset(at, variance, stream)
        stream[at + PREVIOUS] = score
        stream[at + PREVIOUS_ROW] = row
    if count > 0:
        learn_variance(g, total, count, group)

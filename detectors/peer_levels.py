"""What is learned of each rank among its peers: offset, scale, correlation over time. Parts of a fold.

A *stream* is one metric on one rank. Its *residual* is the logarithm of its value less its offset, less the
median of the same of its peers. Offsets are learned per stream, the variance is that of all streams of
the group over the last rows (a single row of 3 to 8 ranks says next to nothing about it), times a slowly
learned factor of the stream, since ranks with less data are noisier. A residual over its scale is a
*score*; scores are whitened by the group's correlation from row to row and clipped, which leaves
heavy tails without effect.
"""

# A compiled fold takes its state as flat arrays by position.

from __future__ import annotations

import math

from .order_statistics import Numbers

# Phases of a stream.
QUIET, HELD, OUT = range(3)
"""Watched; suspected, so that it is watched whether it lasts; confirmed. Only the quiet ones are peers."""

# Floats of a stream.
OFFSET, COUNT, FACTOR, SCORE, SEEN, PREVIOUS, PREVIOUS_ROW, PHASE = range(8)
FAST_UP, FAST_DOWN, SLOW_UP, SLOW_DOWN = range(8, 12)
FAST_UP_ROW, FAST_DOWN_ROW, SLOW_UP_ROW, SLOW_DOWN_ROW = range(12, 16)
SIGN, SHIFT, HOLD_LENGTH, HOLD_COUNT, HOLD_SUM, BACK = range(16, 22)
RESIDUAL, ALARM_SCORE, ALARM_GATE, ALARM_ROW, ALARM_KIND, ALARM_PEERS, OVER = range(22, 29)
RECENT, HOLD_SIZE, SPAN_SUM, SPAN_COUNT, WANDER, SPANS, FRESH = range(29, 36)
STREAM = 36
# Floats of a group; those of the tails are counts of scores by size, upward and downward (`peer_tails`).
ROWS, VARIANCE, SQUARES, PRODUCTS, LEVEL, WILD_ROWS, HAS_LEVEL = range(7)
GATE_UP, GATE_DOWN, NEXT_GATE, LAST_STEP, TAIL_UP = range(7, 12)
TAIL_BINS = 16
TAIL_DOWN = TAIL_UP + TAIL_BINS
GROUP = TAIL_DOWN + TAIL_BINS

CLIP = 3.0
"""Scores are clipped here before they are added up: one wild row counts as much as three ordinary ones."""
FORGET = 1024.0
"""Points over which offsets and factors are averaged: far more than a shift needs to be noticed, so that
it does not become its own baseline, and few enough to follow data that slowly drift apart."""
VARIANCE_VALUES = 512.0
"""Values, over ranks and rows, that the variance rests on: known to 6 % then."""
VARIANCE_ROWS = 32.0
"""Least rows that it rests on: noise that grows with the learning rate is followed within so many."""
CORRELATION_ROWS = 1024.0
PRIOR_POINTS = 64.0
"""Points that a stream's own variance must outweigh before it counts as much as that of the group."""
RECENT_POINTS = 4.0
"""Points over which the size of a shift is averaged beside the sums, whose scores are clipped."""
SPAN_POINTS = 64.0
"""Points of a *span*, whose mean tells how the level of a rank wanders by itself: its data are of another
kind for a while, its experts are asked more often. Independent scores average to 0 over it."""
FRESH_SPANS = 32.0
"""Spans over which that is averaged: as many points as two offsets rest on."""
JOINS_AFTER = 8.0
"""Points after which the offset of a rank that came late is known well enough for it to be a peer."""


def clear_sums(at: int, stream: Numbers) -> None:
    """Begin the cumulative sums of the stream at ``at`` anew."""
    stream[at + OVER] = 0.0
    for i in range(at + FAST_UP, at + SLOW_DOWN + 1):
        stream[i] = 0.0


def forget_stream(at: int, stream: Numbers) -> None:
    """Learn the offset of the stream at ``at`` anew, and judge nothing until it is known."""
    stream[at + COUNT] = 0.0
    stream[at + SPAN_SUM] = 0.0
    stream[at + SPAN_COUNT] = 0.0
    clear_sums(at, stream)


def whitened(at: int, row: int, correlation: float, stream: Numbers) -> float:
    """The score of this row less what the row before leads to expect, clipped; the whole of it is kept."""
    score = stream[at + SCORE]
    if correlation > 0.0 and stream[at + PREVIOUS_ROW] == row - 1:
        score = (score - correlation * stream[at + PREVIOUS]) / math.sqrt(1.0 - correlation * correlation)
    stream[at + FRESH] = score
    return CLIP if score > CLIP else -CLIP if score < -CLIP else score


def correlation_of(at: int, group: Numbers) -> float:
    """Correlation of neighbouring scores in the group at ``at``; never negative, which costs nothing."""
    if group[at + SQUARES] <= 0.0:
        return 0.0
    return min(max(group[at + PRODUCTS] / group[at + SQUARES], 0.0), 0.9)


def learn_correlation(at: int, previous: float, score: float, group: Numbers) -> None:
    """Take one pair of neighbouring scores of one stream."""
    before = CLIP if previous > CLIP else -CLIP if previous < -CLIP else previous
    now = CLIP if score > CLIP else -CLIP if score < -CLIP else score
    group[at + SQUARES] += before * before
    group[at + PRODUCTS] += before * now


def learn_offset(at: int, variance: float, stream: Numbers) -> None:
    """Take one residual of a quiet stream: offset, own variance, and the count of points.

    The same clip as in the sums makes what is clipped average to 0, also where the noise is skewed.
    """
    count = stream[at + COUNT]
    residual = stream[at + RESIDUAL]
    fresh = count if count < FORGET else FORGET
    if count >= JOINS_AFTER and variance > 0.0:
        own = variance * stream[at + FACTOR]
        square = residual * residual
        if square > CLIP * CLIP * own:
            square = CLIP * CLIP * own
            residual = CLIP * math.sqrt(own) if residual > 0.0 else -CLIP * math.sqrt(own)
        stream[at + FACTOR] += stream[at + FACTOR] * (square / own - 1.0) / (PRIOR_POINTS + fresh)
    stream[at + OFFSET] += residual / (fresh + 1.0)
    stream[at + COUNT] = count + 1.0


def note_level(at: int, score: float, stream: Numbers) -> None:
    """Take a whitened score into the span of the stream, and a full span into what its level wanders.

    That is the mean square of the means of spans, less what independent scores and an offset that is
    known from so many points have by chance.
    """
    stream[at + SPAN_SUM] += score
    stream[at + SPAN_COUNT] += 1.0
    if stream[at + SPAN_COUNT] < SPAN_POINTS:
        return
    mean = stream[at + SPAN_SUM] / SPAN_POINTS
    stream[at + SPAN_SUM] = 0.0
    stream[at + SPAN_COUNT] = 0.0
    stream[at + SPANS] += 1.0
    points = stream[at + COUNT] if stream[at + COUNT] < FORGET else FORGET
    excess = mean * mean - 1.0 / SPAN_POINTS - 1.0 / max(points, SPAN_POINTS)
    stream[at + WANDER] += (excess - stream[at + WANDER]) / min(stream[at + SPANS], FRESH_SPANS)


def learn_variance(at: int, total: float, count: int, group: Numbers) -> None:
    """Take one row: the sum of squares of ``count`` residuals, each over its stream's factor."""
    rows = group[at + ROWS]
    group[at + ROWS] = rows + 1.0
    if rows < JOINS_AFTER:
        return  # offsets are not known yet: unequal ranks would pass for noise
    mean = total / count
    if group[at + VARIANCE] <= 0.0:
        # Values that were all equal and begin to scatter: their noise is learned from here on.
        group[at + VARIANCE] = mean
        group[at + ROWS] = JOINS_AFTER + 1.0
    else:
        span = max(VARIANCE_ROWS, VARIANCE_VALUES / count)
        group[at + VARIANCE] += (mean - group[at + VARIANCE]) / min(rows - JOINS_AFTER + 1.0, span)
    group[at + SQUARES] -= group[at + SQUARES] / CORRELATION_ROWS
    group[at + PRODUCTS] -= group[at + PRODUCTS] / CORRELATION_ROWS

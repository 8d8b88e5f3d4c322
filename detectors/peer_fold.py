"""The row-by-row part of peer outlier: each rank of a group against the median of its peers.

Four one-sided cumulative sums run on the whitened, clipped scores of each stream: up and down, fast
(tuned to shifts of 0.8 standard deviations) and slow (to half of that). One that passes its gate is
*suspected*: the stream is no peer any more, and for the next points, as many as its shift needs to be told
from nothing, its scores are averaged anew. If at least two fifths of the shift are still there it is
*confirmed*, else it *recovers*. A single score beyond what the tails of the group explain (`peer_tails`) is
suspected at once. Where many ranks of a group moved together what they share has changed: their offsets are
learned anew.

Source: Page, Continuous Inspection Schemes, Biometrika 41 (1954), the tabular form; the gates are those of
Siegmund, Sequential Analysis (1985), eq. 2.62, see `peer_gates`. We differ in that scores are whitened and
clipped, and in that an alarm must repeat itself on points that had no part in it.
"""

# ruff: noqa: PLR0917
# A compiled fold takes its state as flat arrays by position.

from __future__ import annotations

import math
from collections.abc import Sequence

from .kernels import Fold
from .order_statistics import Numbers, median_of, median_without, middle_three, select
from .peer_levels import (
    ALARM_ROW,
    COUNT,
    FACTOR,
    GROUP,
    HELD,
    OUT,
    PHASE,
    QUIET,
    ROWS,
    SCORE,
    SEEN,
    STREAM,
    VARIANCE,
    WILD_ROWS,
    clear_sums,
    correlation_of,
    forget_stream,
    learn_correlation,
    learn_offset,
    learn_variance,
    note_level,
    whitened,
)
from .peer_rows import (
    CURSOR,
    FEW_PEERS,
    LEVELS,
    MOVED_TOGETHER,
    REPORTS,
    RING,
    ROW,
    SEGMENTS,
    SUSPECTED,
    WIDTH,
    WILD_PATIENCE,
    Counts,
    gather,
    is_peer,
    is_wild,
    lean_of,
    learn_row,
    release,
    report,
    reset_group,
    score_row,
    within,
)
from .peer_tails import count_score, gate_of, probability_at, renew_gates, weigh_models
from .peer_tests import (
    LEAST_SHIFT,
    LEAST_VARIANCE,
    STEP,
    SUM,
    TELLS_LEVELS,
    WARM_POINTS,
    add_up,
    count_row,
    find_step,
    is_alone,
    is_of_one_time,
    moved_together,
    set_shift,
    shift_size,
    suspect,
    watch_held,
    watch_out,
)

WARM_ROWS = 48.0
"""Rows of a group before anything is judged in it."""
LEVEL_ROWS_KNOWN = 128.0
"""Rows of a group after which the levels that its ranks have had from the beginning are known; after twice as
many of the metric they are not those of the beginning any more."""
COMPILE_AFTER_POINTS = 200_000
"""Values folded in plain Python before the fold is compiled: some 10 µs each, and compiling takes seconds,
for it has many parts."""


def judge_row(
    first: int, stop: int, g: int, count: int, row: int, fast: float, slow: float, ints: Counts,
    stream: Numbers, group: Numbers, order: Counts, reports: Counts, knobs: Sequence[float],
) -> None:  # fmt: skip
    """Test every stream of the group; at most one of a group is suspected in one row."""
    correlation = correlation_of(g, group)
    best, chosen, code = 1.0, -1, 0
    for i in range(first, stop):
        c = order[i]
        at = c * STREAM
        if stream[at + SEEN] == 0.0:
            continue
        score = whitened(at, row, correlation, stream)
        if stream[at + PHASE] == QUIET:
            if stream[at + COUNT] < WARM_POINTS:
                continue
            note_level(at, score, stream)
            over = add_up(at, row, score, fast, slow, stream, knobs)
            if over > 1.0:
                sigma = math.sqrt(group[g + VARIANCE] * stream[at + FACTOR])
                if shift_size(at, sigma, stream) < knobs[LEAST_SHIFT]:
                    clear_sums(at, stream)  # too small to matter, however sure
                elif over > best:
                    best, chosen = over, c
            continue
        if stream[at + PHASE] == HELD:
            code = watch_held(at, score, stream, knobs)
        else:
            note_level(at, score, stream)
            code = watch_out(at, score, stream)
        if code > 0:
            report(code, c, ints, reports)
    if chosen >= 0:
        settle_alarm(first, stop, count, chosen, fast, slow, ints, stream, order, reports, knobs)


def settle_alarm(
    first: int, stop: int, count: int, chosen: int, fast: float, slow: float, ints: Counts, stream: Numbers,
    order: Counts, reports: Counts, knobs: Sequence[float],
) -> None:  # fmt: skip
    """The ``chosen`` stream has passed a gate: it is suspected, or all moved with it."""
    if moved_together(first, stop, chosen, fast, slow, stream, order):
        report(MOVED_TOGETHER, chosen, ints, reports)
        for i in range(first, stop):
            at = order[i] * STREAM
            if stream[at + PHASE] == OUT and is_of_one_time(at, chosen * STREAM, stream):
                stream[at + PHASE] = HELD  # confirmed too soon
            release(order[i], ints, stream, reports)
        return
    suspect(chosen * STREAM, SUM, count - 1, stream, knobs)
    report(SUSPECTED, chosen, ints, reports)
    if count <= FEW_PEERS + 2:
        # So few peers are drawn along by the one that shifted.
        for i in range(first, stop):
            clear_sums(order[i] * STREAM, stream)


def judge_group(
    value_V: Sequence[float], t: int, first: int, stop: int, g: int, fast: float, slow: float, ints: Counts,
    stream: Numbers, group: Numbers, ring: Numbers, order: Counts, scratch: Numbers, three: Numbers,
    reports: Counts, given_V: Numbers, knobs: Sequence[float], tails: Sequence[float], weights: Numbers,
    wanted: float,
) -> None:  # fmt: skip
    """One row of one group: score, test, then learn from it."""
    row, base = ints[ROW], t * ints[WIDTH]
    count = gather(value_V, base, first, stop, g, ints, stream, group, ring, order, scratch)
    if count < 1 or stop - first < 2:
        return
    middle_three(scratch, count, three)
    wild = score_row(value_V, base, first, stop, g, count, stream, group, order, three)
    if is_wild(wild, count, g, median_of(count, three), group):
        if group[g + WILD_ROWS] > WILD_PATIENCE:
            reset_group(first, stop, g, ints, stream, group, order, reports)
        return
    if group[g + ROWS] >= WARM_ROWS and group[g + VARIANCE] > knobs[LEAST_VARIANCE]:
        for i in range(first, stop):
            at = order[i] * STREAM
            if stream[at + SEEN] == 1.0 and stream[at + COUNT] >= WARM_POINTS:
                ring[order[i] * RING + row % RING] = stream[at + SCORE]
                given_V[base + order[i]] = stream[at + SCORE]
        judge_row(first, stop, g, count, row, fast, slow, ints, stream, group, order, reports, knobs)
        step = find_step(first, stop, count, g, wanted, stream, group, order, knobs, tails, weights)
        if step >= 0:
            stream[step * STREAM + ALARM_ROW] = row
            suspect(step * STREAM, STEP, count - 1, stream, knobs)
            report(SUSPECTED, step, ints, reports)
    learn_row(first, stop, g, row, stream, group, order)
    if group[g + ROWS] == LEVEL_ROWS_KNOWN and row <= 2 * LEVEL_ROWS_KNOWN and knobs[TELLS_LEVELS] > 0.0:
        report(LEVELS, order[first], ints, reports)


def fold_peers(
    value_V: Sequence[float], iteration_T: Sequence[int], fast_T: Sequence[float], slow_T: Sequence[float],
    step_T: Sequence[float], reset_T: Sequence[int], ints: Counts, stream: Numbers, group: Numbers,
    ring: Numbers, row_ring: Counts, scratch: Numbers, three: Numbers, reports: Counts, given_V: Numbers,
    order: Counts, start_S: Counts, knobs: Sequence[float], tails: Sequence[float], weights: Numbers,
) -> int:  # fmt: skip
    """Walk the rows; stops after each one that has something to report."""
    while ints[CURSOR] < len(iteration_T):
        t = ints[CURSOR]
        ints[CURSOR] = t + 1
        ints[REPORTS] = 0
        ints[ROW] += 1
        row_ring[ints[ROW] % RING] = iteration_T[t]
        for s in range(ints[SEGMENTS]):
            first, stop, g = start_S[s], start_S[s + 1], s * GROUP
            if reset_T[t] > 0:
                reset_group(first, stop, g, ints, stream, group, order, reports)
            judge_group(
                value_V, t, first, stop, g, fast_T[t], slow_T[t], ints, stream, group, ring, order, scratch,
                three, reports, given_V, knobs, tails, weights, step_T[t],
            )  # fmt: skip
        if ints[REPORTS] > 0:
            return 1
    return 0


FOLD = Fold(
    fold_peers,
    select, middle_three, median_of, median_without,
    clear_sums, forget_stream, whitened, correlation_of, learn_correlation, learn_offset, learn_variance,
    note_level, report, is_peer, gather, within, lean_of, score_row, is_wild, release, reset_group, learn_row,
    set_shift, shift_size, add_up, suspect, watch_held, watch_out, count_score, weigh_models, probability_at,
    gate_of, renew_gates, is_alone, count_row, find_step, is_of_one_time,
    moved_together, settle_alarm, judge_row, judge_group,
    compile_after_points=COMPILE_AFTER_POINTS,
)  # fmt: skip

"""The published rule for single ranks, rerun beside ours: leave-one-out median and MAD among peers.

TrainSDC: each rank's gain over its own recent level, less the median of the gains of the others, over
1.4826 times the median absolute deviation of such residuals of that rank in the last 64 iterations; an alarm
where one rank's score passes 2.5 times the greatest of a clean calibration and is 1.5 times the second of its
row; what is not finite alarms at once. Its code is not public. The deviation may also be meant over the ranks
of one iteration: among 8 ranks that finds next to nothing at the same false positives, so this is the reading
that finds more. Pooled over ranks *and* the window the rule is better still, and no longer the published one:
it is here as well.

Axes: T iterations, R ranks, W a window.
"""

from __future__ import annotations

import numpy as np

from ingest.blocks import Flags, Floats

WINDOW = 64
OVER_CALIBRATION = 2.5
OVER_SECOND = 1.5
SCALE_OF_MAD = 1.4826
"""A median absolute deviation as the standard deviation of Gaussian noise."""


def leave_one_out_scores(value_TR: Floats, *, window: int = WINDOW, is_pooled: bool = False) -> Floats:
    """Size of the score of each rank at each iteration; 0 until the windows are full, inf for no number.

    ``is_pooled`` takes one scale for all ranks.

    >>> value_TR = np.exp(np.random.default_rng(0).normal(0.0, 0.1, (400, 8)))
    >>> value_TR[300, 5] *= 3.0
    >>> score_TR = leave_one_out_scores(value_TR)
    >>> int(score_TR[300].argmax()), bool(score_TR[300, 5] > 8.0)
    (5, True)
    """
    is_number_TR = np.isfinite(value_TR) & (value_TR > 0)
    log_TR = np.log(np.where(is_number_TR, value_TR, np.nan))
    gain_TR = log_TR - _trailing_median(log_TR, window)
    residual_TR = residuals(gain_TR)
    size_TR = np.abs(residual_TR)
    if is_pooled:
        size_TR = _row_median(size_TR)[:, None]
    scale_TR = SCALE_OF_MAD * _trailing_median(size_TR, window)
    with np.errstate(divide="ignore", invalid="ignore"):
        score_TR = np.abs(residual_TR) / scale_TR
    score_TR = np.where(np.isfinite(score_TR), score_TR, 0.0)
    return np.where(is_number_TR, score_TR, np.inf)


def calibrated_gate(score_TR: Floats) -> float:
    """The published gate, given the scores of a clean stretch."""
    return OVER_CALIBRATION * float(score_TR.max())


def alarms(score_TR: Floats, gate: float) -> Flags:
    """T × R: whether a rank alarms at an iteration, at most one of a row."""
    ranked_TR = np.sort(score_TR, axis=1)
    top_T, second_T = ranked_TR[:, -1], ranked_TR[:, -2]
    is_alarm_T = (top_T > gate) & ((top_T >= OVER_SECOND * second_T) | np.isinf(top_T))
    found_TR = np.zeros(score_TR.shape, np.bool_)
    at_T = np.flatnonzero(is_alarm_T)
    found_TR[at_T, score_TR[at_T].argmax(axis=1)] = True
    return found_TR


def gate_at_rate(score_TR: Floats, rate: float) -> float:
    """The gate at which so large a share of these clean iterations alarms, the rule for the second included.

    >>> score_TR = leave_one_out_scores(np.exp(np.random.default_rng(1).normal(0.0, 0.1, (5000, 8))))
    >>> gate = gate_at_rate(score_TR, 0.001)
    >>> int(alarms(score_TR, gate).sum())
    5
    """
    ranked_TR = np.sort(score_TR, axis=1)
    lonely_T = np.sort(ranked_TR[ranked_TR[:, -1] >= OVER_SECOND * ranked_TR[:, -2], -1])
    allowed = int(rate * len(score_TR))
    return float(lonely_T[-1 - allowed]) if allowed < len(lonely_T) else 0.0


def residuals(value_TR: Floats) -> Floats:
    """Each rank's value less the median of the others."""
    others = [_row_median(np.delete(value_TR, rank, axis=1)) for rank in range(value_TR.shape[1])]
    return np.asarray(value_TR - np.stack(others, axis=1))


def _trailing_median(value_TR: Floats, window: int) -> Floats:
    """Median of the ``window`` rows before each row; NaN where there are fewer."""
    median_TR = np.full(value_TR.shape, np.nan)
    if len(value_TR) > window:
        past_TRW = np.lib.stride_tricks.sliding_window_view(value_TR[:-1], window, axis=0)
        has_any_TR = ~np.isnan(past_TRW).all(axis=2)
        median_TR[window:][has_any_TR] = np.nanmedian(past_TRW[has_any_TR], axis=1)
    return median_TR


def _row_median(value_TR: Floats) -> Floats:
    median_T = np.full(len(value_TR), np.nan)
    has_any_T = ~np.isnan(value_TR).all(axis=1)
    median_T[has_any_T] = np.nanmedian(value_TR[has_any_T], axis=1)
    return median_T

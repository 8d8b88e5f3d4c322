"""Summaries over ranks against plain numpy, and what survives when they fold.

Axes: T positions, R ranks, N rows, B buckets.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from service.history_stream import summary_rows
from service.history_summary import COUNTS, LEVEL_BITS, bucket_starts, fold, joined, picked, pyramid
from tests.block_builders import block, cut, masked
from tests.history_builders import losses, noise, plain_summary


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8, 100])
def test_a_summary_says_what_plain_numpy_says(ranks: int) -> None:
    whole = noise(200, ranks)
    values_TR, present_TR = losses([whole])
    some_T = present_TR.any(axis=1)

    rows, _, _ = summary_rows([whole])

    assert_array_equal(rows["iteration"], whole.iteration_T[some_T])
    for name, expected in plain_summary(values_TR[some_T], present_TR[some_T]).items():
        assert_allclose(rows[name], expected, rtol=1e-12, err_msg=name)


def test_values_at_the_end_of_the_range_of_numbers_have_quartiles() -> None:
    rows, _, _ = summary_rows([block(loss=[[-1.7e308, 1.7e308, 1.7e308, -1.7e308]])])
    assert_array_equal(rows["median"], [0.0])
    assert np.isfinite([rows["p25"], rows["p75"]]).all()


def test_a_position_that_nobody_reported_has_no_row_and_one_of_nan_alone_has() -> None:
    values = masked([[1.0, 2.0], [0.0, 0.0], [np.nan, np.nan]], [[0, 0], [1, 1], [0, 1]])
    rows, _, _ = summary_rows([block(loss=values)])
    assert_array_equal(rows["iteration"], [0, 2])
    assert_array_equal(rows["nan"], [0, 1])
    assert_array_equal(rows["missing"], [0, 1])
    assert_array_equal(rows["median"], [1.5, np.nan])
    assert_array_equal(rows["max_rank"], [1, -1])


def test_ranks_are_those_of_the_job_and_not_places_in_the_block() -> None:
    rows, _, _ = summary_rows([block(loss=[[3.0, 1.0, 2.0]], ranks=[7, 90_000, 131_071])])
    assert (int(rows["min_rank"][0]), int(rows["max_rank"][0])) == (90_000, 7)


def test_how_blocks_are_cut_does_not_change_a_row() -> None:
    whole = noise(300, 6)
    expected, _, _ = summary_rows([whole])
    rows, _, _ = summary_rows(cut(whole, [1, 2, 50, 177]))
    for name, column in expected.items():
        assert_array_equal(rows[name], column, err_msg=name)


def test_blocks_that_learn_of_more_ranks_and_metrics_are_summarised_each_by_its_own() -> None:
    early = block(loss=[[1.0, 2.0]])
    late = block(loss=[[1.0, 2.0, 9.0]], lr=[[0.1, 0.1, 0.1]], iterations=[1])
    rows, metric_N, names = summary_rows([early, late])
    assert names == ["loss", "lr"]
    assert_array_equal(metric_N, [0, 0, 1])
    assert_array_equal(rows["max"], [2.0, 9.0, 0.1])


@given(
    st.lists(st.floats(width=64) | st.none(), min_size=1, max_size=200),
    st.integers(1, 10**9),
    st.integers(1, 4),
)
def test_extremes_and_counts_survive_every_level(values: list[float | None], stride: int, ranks: int) -> None:
    rows_of = -(-len(values) // ranks)
    padded = np.array([*values, *[None] * (rows_of * ranks - len(values))], object).reshape(rows_of, ranks)
    absent = padded == None  # noqa: E711  # elementwise
    data = masked(np.where(absent, 0.0, padded).astype(float), absent)
    rows, metric_N, _ = summary_rows([block(loss=data, iterations=stride * np.arange(rows_of))])

    for level, folded, _ in pyramid(rows, metric_N) if len(metric_N) else []:
        bucket_N = rows["iteration"] >> (LEVEL_BITS * level)
        for at, bucket in enumerate(np.unique(bucket_N) if level else range(len(bucket_N))):
            mine = picked(rows, bucket_N == bucket if level else slice(at, at + 1))
            for name in COUNTS:
                assert folded[name][at] == mine[name].sum()
            assert_array_equal(folded["min"][at], np.fmin.reduce(mine["min"]))
            assert_array_equal(folded["max"][at], np.fmax.reduce(mine["max"]))
            for name in ("min", "max"):
                holder = folded[f"{name}_rank"][at]
                assert holder in mine[f"{name}_rank"][(mine[name] == folded[name][at]) | (holder < 0)]


def test_folding_twice_is_folding_once_however_rows_are_cut() -> None:
    rows, metric_N, _ = summary_rows([noise(1000, 3)])
    once = fold(rows, bucket_starts(rows["iteration"], 2, metric_N))
    parts = [picked(rows, slice(start, stop)) for start, stop in ((0, 300), (300, 301), (301, None))]
    folded = joined([fold(part, bucket_starts(part["iteration"], 1)) for part in parts])
    twice = fold(folded, bucket_starts(folded["iteration"], 2))
    for name, column in once.items():
        assert_array_equal(twice[name], column, err_msg=name)


def test_a_counter_that_advances_by_millions_is_not_stored_once_per_level() -> None:
    rows, metric_N, _ = summary_rows([noise(1000, 2, stride=4_194_304)])
    levels = pyramid(rows, metric_N)
    assert sum(len(of_level["iteration"]) for _, of_level, _ in levels) < 1.5 * len(metric_N)
    assert len(levels) > 2

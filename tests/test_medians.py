"""Medians of our own have the bits of numpy's."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from detectors.medians import median, row_medians

VALUES = st.floats(allow_subnormal=False, allow_infinity=False, min_value=-1e300, max_value=1e300) | st.just(
    math.nan
)


@given(st.lists(VALUES, min_size=1, max_size=9))
def test_a_median_is_that_of_numpy(values: list[float]) -> None:
    assert np.float64(median(np.array(values))).tobytes() in (
        np.float64(np.median(values)).tobytes(),
        np.float64(-np.median(values)).tobytes() if np.isnan(np.median(values)) else b"",
    )


@given(
    st.integers(1, 6).flatmap(
        lambda size: st.lists(st.lists(VALUES, min_size=size, max_size=size), min_size=1)
    )
)
def test_medians_of_rows_are_those_of_numpy(rows: list[tuple[float, ...]]) -> None:
    assert np.array_equal(row_medians(np.array(rows)), np.median(rows, axis=1), equal_nan=True)


def test_the_median_of_nothing_is_no_number() -> None:
    assert math.isnan(median(np.empty(0)))

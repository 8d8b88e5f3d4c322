"""Records without a counter are numbered at once as one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ingest.scan.numbering import BareNumbers

SERIES = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1.0, 2.0, float("nan")])), max_size=30)


@given(SERIES, SERIES)
def test_numbering_at_once_gives_the_numbers_of_one_by_one(
    first: list[tuple[int, float]], rest: list[tuple[int, float]]
) -> None:
    one_by_one, at_once = BareNumbers(), BareNumbers()
    for numbers in (one_by_one, at_once):
        for series, value in [(1, 0.0), *first]:
            numbers.number(-1.0, series, value)
    assert at_once.counts_alone

    wanted = [one_by_one.number(-1.0, series, value) for series, value in rest]
    found = at_once.number_all(
        np.array([series for series, _ in rest], np.int64), np.array([value for _, value in rest])
    )

    assert found.tolist() == wanted
    assert at_once._last == one_by_one._last
    assert at_once._seen.keys() == one_by_one._seen.keys()


def test_a_counter_in_front_of_a_record_is_no_counting_alone() -> None:
    numbers = BareNumbers()
    assert not numbers.counts_alone
    numbers.number(7.0, 1, 0.5)
    assert not numbers.counts_alone

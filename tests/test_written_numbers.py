"""Whatever stands in a key or a cell is a number or none, and no log of such breaks the reading."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.jobs import find_jobs
from ingest.written_numbers import number_in, number_of
from service.offline import ReplayOptions, judge_jobs

BEYOND_FLOATS = "1" + "0" * 400
VALUES = st.one_of(
    st.text(max_size=12), st.text("0123456789.,/%+-_e²٣ ", max_size=12), st.integers(), st.floats()
)


@given(VALUES)
def test_any_value_is_a_number_or_none(value: object) -> None:
    assert all(isinstance(found, float | None) for found in (number_in(value), number_of(value)))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("3/547", 3.0),
        (" 7 ", 7.0),
        ("1,024.5", 1024.5),
        (-(10**400), -math.inf),
        ("²/3", None),
        ("1_0", None),
    ],
)
def test_a_number_is_what_logs_write_as_one(value: object, number: float | None) -> None:
    assert number_in(value) == number_of(value) == number


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("step.csv", "²/3,2.5"),
        ("step.jsonl", f'{{"step": {BEYOND_FLOATS}, "loss": 2.5}}'),
        ("other.jsonl", f'{{"step": 1, "loss": 2.5, "seed": {BEYOND_FLOATS}}}'),
        ("mllog.log", f':::MLLOG {{"key": "loss", "value": 2.5, "metadata": {{"step": {BEYOND_FLOATS}}}}}'),
    ],
)
def test_a_count_that_none_can_be_breaks_no_reading(name: str, row: str, tmp_path: Path) -> None:
    header = "step,loss\n" if name.endswith(".csv") else ""
    (tmp_path / name).write_text(header + f"{row}\n" * 30, "utf-8")
    (job,) = judge_jobs(find_jobs([tmp_path / name]), ReplayOptions())
    assert job.runs or job.unreadable

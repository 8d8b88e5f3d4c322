"""Tables of nothing but numbers are read by a compiled kernel, to the bits that `float` gives."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from firstfault.wire import Defaults
from ingest import number_cells
from ingest.decimals import nearest_double
from ingest.joining import concatenate
from ingest.number_cells import number_columns, read_cells
from ingest.sniff import find_dialect
from ingest.table_text import plain_columns
from ingest.tables import TableConfig, TableReader

NUMBERS = st.one_of(
    st.floats(allow_nan=False).map(repr),
    st.floats(min_value=1e-9, max_value=1e9).map(lambda value: f"{value:.17g}"),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(
        ["", " ", " 7 ", "+.5", "5.", "-0", "0.000012", "1e400", "1E-400", "-nan", "NaN", "iNf", "-inf"]
    ),
    st.sampled_from(
        ["9007199254740993", "0.1234567890123456789", "00000000000000000000001.5", "1e-05", "12e+3"]
    ),
)
ODD = st.sampled_from(
    ["x", '"1"', "1_0", "0x1f", "1e", ".", "-", "1 2", "infinity", "1,2", "é", "1d5", "#", "e5"]
)


def table(rows: list[tuple[str, str]], delimiter: str = ",") -> bytes:
    return "".join(delimiter.join(row) + "\n" for row in rows).encode()


def check_same(data: bytes, delimiter: str = ",") -> None:
    """What the kernel reads of ``data`` is what the csv module and `float` read."""
    with np.errstate(over="ignore"):  # digits beyond 64 bits wrap around, and are left to Python
        found = number_columns(data, delimiter, 2, compiles=True)
    assert found is not None
    wanted = plain_columns(data.split(b"\n")[:-1], delimiter, 2)
    for one, other in zip(found, wanted, strict=True):
        rows = range(len(other))
        assert one.is_filled().tolist() == other.is_filled().tolist()
        assert [one.text(row) for row in rows] == [other.text(row) for row in rows]
        assert one.changes() == other.changes()
        assert one.codes()[0] == other.codes()[0]
        (values, failed), (wanted_values, wanted_failed) = one.floats(), other.floats()
        assert failed.tolist() == wanted_failed.tolist() == [False] * len(other)
        assert np.isnan(values).tolist() == np.isnan(wanted_values).tolist()
        known = ~np.isnan(values)
        assert values[known].tobytes() == wanted_values[known].tobytes()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=8))
def test_the_kernel_reads_what_plain_python_reads(rows: list[tuple[str, str]]) -> None:
    check_same(table(rows))


def test_uncompiled_the_kernel_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain:
        is_kept = staticmethod(lambda arrays: True)
        __call__ = staticmethod(read_cells)

    monkeypatch.setattr(number_cells, "compiled", Plain)
    check_same(b"1,2.5\n0.1234567890123456789,-1e-05\n,nan\n9007199254740993,+.5\n")


def test_other_delimiters_and_blanks_around_cells_are_read() -> None:
    check_same(b"1;2\n 3 ;4\t\n", ";")
    check_same(b"1\t2\n 3\t 4\n\t\n", "\t")


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3), ODD, st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3)
)
def test_a_piece_with_anything_else_is_left_as_a_whole(
    before: list[tuple[str, str]], odd: str, behind: list[tuple[str, str]]
) -> None:
    data = table([*before, (odd, "1"), *behind])
    assert number_columns(data, ",", 2, compiles=True) is None


@pytest.mark.parametrize("row", [b"1\n", b"1,2,3\n", b"\n", b"1,2\r\n", b"1,2,\n"])
def test_a_row_of_another_width_is_left(row: bytes) -> None:
    assert number_columns(b"1,2\n" + row + b"3,4\n", ",", 2, compiles=True) is None


def test_a_column_of_one_cell_has_no_blank_rows() -> None:
    assert number_columns(b"1\n\n2\n", ",", 1, compiles=True) is None


def test_many_numbers_that_only_python_can_read_are_left_to_it() -> None:
    assert number_columns(table([("1e400", "1")] * 1000), ",", 2, compiles=True) is None


@settings(max_examples=500, deadline=None)
@given(st.integers(1, 10**18 - 1), st.integers(-70, 50))
@example(9007199254740993, 0)
@example(10**17 + 1, -40)
def test_the_nearest_double_is_the_one_of_float(mantissa: int, power: int) -> None:
    with np.errstate(over="ignore"):
        found = nearest_double(np.uint64(mantissa), power)
    assert found in (-1.0, float(f"{mantissa}e{power}"))
    assert found != -1.0 or not -60 <= power <= 40


@settings(max_examples=300, deadline=None)
@given(st.integers(1 << 52, (1 << 53) - 1), st.integers(-12, 5))
def test_half_way_between_two_doubles_is_rounded_to_the_even_one(bits: int, two: int) -> None:
    half = Fraction(2 * bits + 1) * Fraction(2) ** two
    power = 0
    while half.denominator > 1:
        half, power = half * 10, power - 1
    if half.numerator < 10**19:
        with np.errstate(over="ignore"):
            found = nearest_double(np.uint64(half.numerator), power)
        assert found == float(f"{half.numerator}e{power}")


def test_a_table_is_read_the_same_with_and_without_the_kernel() -> None:
    rng = np.random.default_rng(3)
    rows = [f"{at},{value!r},{at % 7}" for at, value in enumerate(rng.normal(size=4000).tolist())]
    rows[2500] = "2500,broken,1"
    rows[3000] = ""
    data = ("# run\nstep,loss,epoch\n" + "\n".join(rows) + "\n").encode()
    whole, by_python = (_records(data, TableConfig(small_piece_bytes=size)) for size in (1024, 1 << 30))
    in_pieces = _records(data, TableConfig(small_piece_bytes=256, compile_after_pieces=0), piece=16 << 10)
    assert whole == by_python == in_pieces


def _records(data: bytes, config: TableConfig, piece: int = 1 << 30) -> list[object]:
    """Iterations, values, and places of what was rejected, read piece by piece."""
    reader = TableReader(find_dialect(data, "log"), data, Defaults(run="r", rank=0), "log", config)
    batches = []
    while data:
        end = data.find(b"\n", min(piece, len(data)) - 1) + 1 or len(data)
        batches.append(reader.decode(data[:end]))
        data = data[end:]
    batch = concatenate(batches)
    columns = [batch.numbers[name] for name in ("loss", "epoch")]
    return [
        batch.iteration_N.tolist(),
        [column.values_N[column.present_N].tobytes() for column in columns],
        [column.present_N.tolist() for column in columns],
        [(why.field, why.value, why.offset) for why in batch.rejected],
    ]

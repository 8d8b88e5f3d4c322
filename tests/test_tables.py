"""Text tables: what a cell, a column, a row and a header mean."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.telemetry import UNNAMED_RANK
from ingest.errors import UnreadableInput
from ingest.joining import concatenate
from ingest.sniff import Format, find_dialect, sniff
from ingest.table_cells import MAX_LABEL_CHANGES
from ingest.table_header import read_header
from ingest.table_lines import cut_lines, last_record_end
from ingest.table_text import SMALL_PIECE_BYTES, plain_columns, polars_columns

from .file_builders import read_table, table_reader, values_of


def test_a_plain_table_of_step_loss_and_grad_norm_simply_works() -> None:
    batch = read_table("step,loss,grad_norm\n1,2.5,0.1\n2,2.4,0.2\n")

    assert batch.runs == ("t",)
    assert batch.iteration_N.tolist() == [1, 2]
    assert batch.rank_N.tolist() == [UNNAMED_RANK] * 2
    assert values_of(batch, "loss") == [2.5, 2.4]
    assert values_of(batch, "grad_norm") == [0.1, 0.2]
    assert not batch.rejected


@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_delimiters_and_line_ends_are_recognised(delimiter: str, end: str) -> None:
    text = end.join(delimiter.join(row) for row in (["iteration", "loss"], ["3", "1.5"], ["4", "1.25"]))

    batch = read_table(text + end)

    assert (batch.iteration_N.tolist(), values_of(batch, "loss")) == ([3, 4], [1.5, 1.25])


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        *(
            ("nan", math.nan),
            ("NaN", math.nan),
            ("-nan", math.nan),
            ("1.#QNAN", math.nan),
            ("-1.#IND00", math.nan),
        ),
        *(("nan(ind)", math.nan), ("inf", math.inf), ("-Infinity", -math.inf), ("1.#INF", math.inf)),
        *(
            ("-1.#INF", -math.inf),
            ("1e400", math.inf),
            ("+1.5", 1.5),
            (" 7 ", 7.0),
            ("True", 1.0),
            ('"2.5"', 2.5),
        ),
    ],
)
def test_spellings_of_numbers_are_read(cell: str, value: float) -> None:
    batch = read_table(f"step,loss\n0,1.0\n1,{cell}\n")

    (found,) = values_of(batch, "loss")[1:]
    assert found is not None
    assert found == value or (math.isnan(found) and math.isnan(value))


@pytest.mark.parametrize("empty", ["", " ", '""'])
def test_an_empty_cell_is_not_reported(empty: str) -> None:
    assert values_of(read_table(f"step,loss,lr\n1,2.0,0.1\n2,{empty},0.1\n"), "loss") == [2.0, None]


def test_text_in_a_column_of_numbers_rejects_that_value_alone_and_names_its_line() -> None:
    batch = read_table("step,loss,lr\n1,2.0,0.1\n2,oops,0.1\n3,1.0,0.1\n")

    (why,) = batch.rejected
    assert (why.field, why.offset, why.whole, why.value) == ("loss", 2, False, "'oops'")
    assert values_of(batch, "loss") == [2.0, None, 1.0]
    assert values_of(batch, "lr") == [0.1] * 3


@pytest.mark.parametrize("cell", ["", "-1", "1.5", "x", "1e300", "9223372036854775808", "nan"])
def test_a_bad_iteration_rejects_its_row_alone(cell: str) -> None:
    batch = read_table(f"iteration,loss\n1,2.0\n{cell},2.0\n3,2.0\n4,2.0\n")

    assert batch.iteration_N.tolist() == [1, 3, 4]
    assert [(why.field, why.offset, why.whole) for why in batch.rejected] == [("iteration", 2, True)]


def test_identity_columns_are_read() -> None:
    batch = read_table(
        "run,rank,attempt,microbatch,time,step,loss\na,3,1,2,1764470000.5,7,1.0\nb,0,,,,8.0,2.0\n"
    )

    assert [batch.runs[code] for code in batch.run_N] == ["a", "b"]
    assert batch.rank_N.tolist() == [3, 0]
    assert batch.attempt_N.tolist() == [1, 0]
    assert batch.microbatch_N.tolist()[0] == 2
    assert batch.time_N.tolist()[0] == 1764470000.5
    assert batch.iteration_N.tolist() == [7, 8]
    assert list(batch.numbers) == ["loss"]


def test_a_rank_from_the_file_name_is_only_the_default() -> None:
    assert read_table("step,loss\n1,2\n", rank=5).rank_N.tolist() == [5]
    assert read_table("rank,step,loss\n1,1,2\n,2,2\n", rank=5).rank_N.tolist() == [1, 5]


def test_a_negative_rank_rejects_its_row() -> None:
    batch = read_table("rank,step,loss\n1,1,2\n-4,2,2\n1,3,2\n")

    assert batch.iteration_N.tolist() == [1, 3]
    assert batch.rejected[0].field == "rank"


def test_ragged_rows_are_rejected_and_blank_lines_and_comments_passed_over() -> None:
    text = "# by hand\n\nstep,loss,lr\n1,2.0,0.1\n\n2,2.0\n3,2.0,0.1,9\n   \n# pause, here, now\n4,1.0,0.1\n"

    batch = read_table(text)

    assert batch.iteration_N.tolist() == [1, 4]
    assert [(why.offset, why.rule) for why in batch.rejected] == [
        (5, "must have 3 cells, as the header"),
        (6, "must have 3 cells, as the header"),
    ]


def test_a_trailing_delimiter_adds_no_cell() -> None:
    batch = read_table("step,loss\n1,2.0,\n2,1.0,\n")

    assert values_of(batch, "loss") == [2.0, 1.0]
    assert not batch.rejected


def test_quoted_cells_may_hold_delimiters_and_newlines() -> None:
    text = 'step,note,loss\n1,"a, b",2.0\n2,"two\nlines",1.5\n3,"say ""hi""",1.0\n'

    batch = read_table(text)

    assert values_of(batch, "loss") == [2.0, 1.5, 1.0]
    assert [text for _, _, text in batch.labels] == ["a, b", "two\nlines", 'say "hi"']


def test_a_lost_quote_costs_its_own_lines_only() -> None:
    rows = "".join(f"{i},x,{i}.5\n" for i in range(3, 500))

    batch = read_table('step,note,loss\n1,x,1.5\n2,"oops,2.5\n' + rows)

    assert batch.iteration_N.tolist()[:1] + batch.iteration_N.tolist()[-400:] == [1, *range(100, 500)]


def test_a_repeated_header_is_passed_over_and_a_changed_one_followed() -> None:
    text = "step,loss\n1,2.0\nstep,loss\n2,1.5\nloss,step,grad_norm\n1.0,3,0.5\n"

    batch = read_table(text)

    assert batch.iteration_N.tolist() == [1, 2, 3]
    assert values_of(batch, "loss") == [2.0, 1.5, 1.0]
    assert values_of(batch, "grad_norm") == [None, None, 0.5]
    assert not batch.rejected


def test_text_columns_become_labels_where_they_change() -> None:
    batch = read_table("step,host,loss\n1,a,2\n2,a,2\n3,b,2\n4,,2\n5,b,2\n")

    assert batch.labels == ((0, "host", "a"), (2, "host", "b"))


def test_free_text_stops_being_a_label() -> None:
    rows = "".join(f"{i},message {i},1.0\n" for i in range(MAX_LABEL_CHANGES + 500))

    batch = read_table("step,message,loss\n" + rows)

    assert len(batch.labels) == MAX_LABEL_CHANGES
    assert len(batch) == MAX_LABEL_CHANGES + 500


def test_checksums_are_read_as_hexadecimal() -> None:
    batch = read_table(
        "step,loss,param_checksum\n1,2.0,9f3ab1c204d7e655\n2,2.0,0X9F3AB1C204D7E655\n3,2.0,no\n"
    )

    column = batch.checksums["param_checksum"]
    assert column.low_N.tolist()[:2] == [0x9F3AB1C204D7E655] * 2
    assert column.present_N.tolist() == [True, True, False]
    assert batch.rejected[0].field == "param_checksum"


@pytest.mark.parametrize("name", ["iter", "Step", "it", "ITERATION", "global step", "current_steps", "_step"])
def test_common_names_of_the_counter_are_known(name: str) -> None:
    reader = table_reader(f"loss,{name}\n2.0,5\n".encode())

    assert (reader.header.counter, reader.header.iteration) == (name, 1)


def test_the_loss_of_a_log_without_loss_is_its_training_loss() -> None:
    assert list(read_table("step,train_loss\n1,2\n").numbers) == ["loss"]
    assert list(read_table("step,loss,train_loss\n1,2,3\n").numbers) == ["loss", "train_loss"]


def test_learning_rate_and_case_are_made_canonical() -> None:
    assert sorted(read_table("step,Loss,learning_rate,GradNorm\n1,2,3,4\n").numbers) == [
        "grad_norm",
        "loss",
        "lr",
    ]


def test_a_counter_that_holds_fractions_is_none() -> None:
    header = read_header(["it", "step", "loss"], [["1.7", "10", "2"], ["1.8", "20", "2"]])

    assert header.counter == "step"


def test_the_epoch_counts_where_nothing_else_does_and_the_notes_say_so() -> None:
    header = read_header(["epoch", "loss"], [["0", "2"], ["1", "2"]])

    assert (header.iteration, header.counter) == (0, "epoch")
    assert "epoch" in header.remarks[0]


def test_without_a_counter_rows_are_counted_across_pieces() -> None:
    data = b"loss,accuracy\n1,0.1\n2,0.2\n3,0.3\n"
    reader = table_reader(data)

    pieces = [reader.decode(data[:20]), reader.decode(data[20:])]

    assert reader.header.counter == "row number"
    assert concatenate(pieces).iteration_N.tolist() == [0, 1, 2]


def test_a_row_whose_metrics_are_all_nan_is_padding_only_beside_a_time_counter_or_rate() -> None:
    data = b"iteration,loss,num_zeros,iteration_time\n1,2,3,4\n2,nan,nan,nan\n3,nan,3,nan\n"
    reader = table_reader(data)

    assert reader.decode(data).iteration_N.tolist() == [1, 3]
    assert reader.padding == 1


@pytest.mark.parametrize(
    "text",
    [
        "iteration,loss\n1,2\n2,nan\n",  # one metric only
        "iteration,loss,grad_norm\n1,2,3\n2,nan,nan\n",  # none is a time, counter or rate
        "iteration,loss,lr\n1,2,3\n2,nan,inf\n",  # one is no nan
        "iteration,loss,lr\n1,2,3\n2,nan,\n",  # one metric reported
    ],
)
def test_other_nan_rows_are_reports(text: str) -> None:
    batch = read_table(text)

    last = values_of(batch, "loss")[-1]
    assert batch.iteration_N.tolist() == [1, 2]
    assert last is not None and math.isnan(last)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"\xff\xfes\x00t\x00", "UTF-8"),
        (bytes(range(256)) * 8, "binary"),
    ],
)
def test_what_is_no_text_is_refused_with_one_clear_line(data: bytes, what: str) -> None:
    with pytest.raises(UnreadableInput, match=what) as caught:
        sniff(data, "x.csv")

    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("x.csv: ")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"loss\n1\n2\n", "two columns"),
        (b"1,2.0\n2,1.5\n", "header"),
        (b"step,loss\n", "no row"),
        (b"step,loss\n1;2;3\n4;5;6\n", "as many cells"),
        (b"a line of text\nand another\n", "two columns"),
    ],
)
def test_what_is_no_table_is_a_text_log_and_refused_as_a_table(data: bytes, what: str) -> None:
    assert sniff(data, "x.csv") is Format.TEXT
    with pytest.raises(UnreadableInput, match=what):
        find_dialect(data, "x.csv")


def test_records_cut_at_their_commas_are_no_table() -> None:
    assert sniff(b"step 0: train 4.2, val 4.3\nstep 1: train 4.2, val 4.3\n", "x") is Format.TEXT


def test_text_with_commas_but_no_numbers_is_refused() -> None:
    with pytest.raises(UnreadableInput, match="column of numbers"):
        table_reader(b"step 0: train 4.2, val 4.3\nstep 1: train 4.2, val 4.3\n")


def test_a_table_of_too_many_columns_is_refused() -> None:
    header = ",".join(f"c{i}" for i in range(5000))

    with pytest.raises(UnreadableInput, match="at most 4096 columns"):
        table_reader((header + "\n" + header.replace("c", "") + "\n").encode())


def test_an_object_among_broken_lines_makes_json_lines() -> None:
    assert sniff(b'[[[[[\n!!\n{"step":1,"loss":2}\n', "x") is Format.JSON_LINES


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    cell = st.one_of(
        st.integers(-3, 20).map(str),
        st.floats(width=32).map(str),
        st.sampled_from(["", " ", "nan", "x", '"', '"a,b"', '"a\nb"', "1.#INF", "é", "\x00"]),
    )
    row = st.lists(cell, min_size=1, max_size=4).map(",".join)
    junk = st.sampled_from(["", "#", "step,loss,lr", "step,lr,loss,x", '"', "\r"])
    lines = draw(st.lists(st.one_of(row, row, row, junk), max_size=30))
    return ("step,loss,lr\n1,1.0,0.1\n" + "\n".join(lines) + "\n").encode()


@settings(max_examples=150, deadline=None)
@given(tables(), st.lists(st.integers(1, 40), max_size=8))
def test_any_rows_are_read_the_same_however_they_are_cut(data: bytes, sizes: list[int]) -> None:
    whole = read_table(data)
    reader, pieces, carry, at = table_reader(data), [], b"", 0
    for size in [*sizes, len(data)]:
        carry += data[at : at + size]
        at += size
        end = last_record_end(carry) if at < len(data) else len(carry)
        if end:
            pieces.append(reader.decode(carry[:end]))
        carry = carry[end:]
    joined = concatenate(pieces)

    assert joined.iteration_N.tolist() == whole.iteration_N.tolist()
    for name, column in whole.numbers.items():
        assert np.array_equal(joined.numbers[name].values_N, column.values_N, equal_nan=True)
        assert np.array_equal(joined.numbers[name].present_N, column.present_N)
    assert [(why.field, why.offset) for why in joined.rejected] == [
        (why.field, why.offset) for why in whole.rejected
    ]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_behind_a_header_never_raise(junk: bytes) -> None:
    batch = read_table(b"step,loss\n1,2.0\n" + junk)

    assert batch.iteration_N.tolist()[0] == 1


CELLS = st.one_of(
    st.floats().map(str),
    st.integers().map(str),
    st.text(st.sampled_from('ab1.+-eE_xnifN #(),"\n\t é٣'), max_size=8),
    st.sampled_from(
        ["nan", "-inf", "Infinity", "1e400", "+.5", "5.", "", " 7 ", "0x1f", "1_0", "1d5", "+nan", "-"]
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=12))
def test_plain_python_and_polars_read_the_same_columns(rows: list[tuple[str, str]]) -> None:
    quoted = [['"' + cell.replace('"', '""') + '"' for cell in row] for row in rows]
    lines = [",".join(row).encode() for row in quoted]

    plain = plain_columns(lines, ",", 2)
    polars = polars_columns(b"".join(line + b"\n" for line in lines), ",", 2, len(rows))

    assert polars is not None
    for one, other in zip(plain, polars, strict=True):
        assert [one.text(row) for row in range(len(rows))] == [other.text(row) for row in range(len(rows))]
        assert one.is_filled().tolist() == other.is_filled().tolist()
        assert one.changes() == other.changes()
        assert one.codes()[0] == other.codes()[0]
        assert one.codes()[1].tolist() == other.codes()[1].tolist()
        for mine, yours in zip(one.floats(), other.floats(), strict=True):
            assert np.array_equal(mine, yours, equal_nan=True)


def test_a_large_piece_and_small_pieces_of_a_table_are_read_the_same() -> None:
    rows = "".join(f"{i},{i / 7},host-{i // 1000}\n" for i in range(10_000)) + "10000,x,\n"
    data = b"step,loss,host\n" + rows.encode()
    reader = table_reader(data)

    lines = data.splitlines(keepends=True)
    small = concatenate([reader.decode(b"".join(lines[at : at + 100])) for at in range(0, len(lines), 100)])
    large = read_table(data)

    assert len(data) > SMALL_PIECE_BYTES
    assert values_of(small, "loss") == values_of(large, "loss")
    assert small.labels == large.labels
    assert [why.offset for why in small.rejected] == [why.offset for why in large.rejected] == [10_001]


def test_an_empty_run_cell_is_the_default_run_and_no_second_one() -> None:
    batch = read_table("run,step,loss\nt,1,2\n,2,2\nu,3,2\n")

    assert batch.runs == ("t", "u")
    assert batch.run_N.tolist() == [0, 0, 1]


def test_lines_are_cut_outside_quotes_and_counted_physically() -> None:
    lines = cut_lines(b'a,b\n1,"x\ny"\n2,z', ",")

    assert [lines.raw(at) for at in range(3)] == [b"a,b", b'1,"x\ny"', b"2,z"]
    assert lines.cells_L.tolist() == [2, 2, 2]
    assert lines.number_L.tolist() == [0, 1, 3]


def test_the_dialect_is_the_delimiter_that_makes_most_cells() -> None:
    assert find_dialect(b'"a;x";b;c\n1,5;2;3\n', "x").delimiter == ";"

"""Arrow columns mean what the same rows mean as JSON, and no bytes of theirs raise or cost the memory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.telemetry import Record
from firstfault.wire import Defaults, interpret
from ingest.arrow_frames import ArrowRefused, FrameLimits, check_stream
from ingest.arrow_stream import SLICE_ROWS, arrow_from_batch, batch_from_arrow, iter_arrow_file
from ingest.blocks import RecordBatch
from ingest.columns import batch_from_records, records_from_batch
from ingest.decode import DecodeConfig, Decoder, RawMessage
from ingest.errors import UnreadableInput
from ingest.joining import concatenate

from .wire_builders import line, messages, same, uniform_lines

CONFIG = DecodeConfig()
REQUIRED = Defaults()


def stream_of(columns: dict[str, Any] | pa.Table, **options: Any) -> bytes:
    table = pa.table(columns) if isinstance(columns, dict) else columns
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def read(columns: dict[str, Any] | pa.Table, defaults: Defaults = REQUIRED) -> RecordBatch:
    return batch_from_arrow(stream_of(columns), CONFIG, defaults, "t/0", 5)


def identity(rows: int) -> dict[str, Any]:
    return {"run": ["r"] * rows, "rank": list(range(rows)), "iteration": [7] * rows}


def faults(batch: RecordBatch) -> list[tuple[str, bool]]:
    return [(rejected.field, rejected.whole) for rejected in batch.rejected]


def sample() -> RecordBatch:
    data = uniform_lines(50, param_checksum="ab" * 16, host="n1", grad_norm="NaN", time=1.5)
    return Decoder().decode_lines(data + line(rank=3, iteration=9, microbatch=2, x=1), "f", 0)


def test_reading_inverts_writing_to_the_bit() -> None:
    batch = sample()
    assert same(Decoder().decode(messages([arrow_from_batch(batch)])), batch)


def test_a_batch_with_events_is_not_written_as_columns() -> None:
    batch = Decoder().decode_lines(line(event="run_end"), "f", 0)
    with pytest.raises(ValueError, match="must not hold events"):
        arrow_from_batch(batch)


@pytest.mark.parametrize("content_type", [None, "application/vnd.apache.arrow.stream"])
def test_json_and_arrow_messages_mix_in_one_poll_and_keep_their_order(content_type: str | None) -> None:
    one = batch_from_records([Record(run="r", rank=0, iteration=at, metrics={"loss": 1.0}) for at in (3, 4)])
    mixed = [
        RawMessage("t/0", 0, line(iteration=1)),
        RawMessage("t/0", 1, arrow_from_batch(one), content_type),
        RawMessage("t/0", 2, line(iteration=5)),
    ]
    assert Decoder().decode(mixed).iteration_N.tolist() == [1, 3, 4, 5]


SUMS = ["9f3a", "0X9F3A", "0" * 100 + "9f3a", None, "xyz", "", "f" * 128]
VALUE_COLUMNS = st.sampled_from(
    [
        ("loss", pa.array([1.5, math.nan, math.inf, -math.inf, None, -0.0, 5e-324])),
        ("loss", pa.array([1.5, None, 2, 3, 4, 5, 6], pa.float32())),
        ("loss", pa.array([1, None, -3, 2**62, 5, 6, 7])),
        ("loss", pa.array([1, None, 3, 2**64 - 1, 5, 6, 7], pa.uint64())),
        ("skipped", pa.array([True, False, None, True, True, True, True])),
        ("host", pa.array(["a", "NaN", None, "b", "Infinity", "x" * 2000, ""])),
        ("host", pa.array(["a", "NaN", None, "b", "a", "a", ""]).dictionary_encode()),
        ("host", pa.array(["a", "NaN", None, "b", "a", "a", ""], pa.string_view())),
        ("param_checksum", pa.array(SUMS)),
        ("param_checksum", pa.array(SUMS, pa.large_string())),
        ("param_checksum", pa.array(SUMS).dictionary_encode()),
        ("param_checksum", pa.array([1, None, -1, -(2**63), 5, 6, 7])),
        ("param_checksum", pa.array([1, None, 2**64 - 1, 4, 5, 6, 7], pa.uint64())),
        ("param_checksum", pa.array([1, None, -1, 4, 5, 6, 7], pa.int8())),
        ("learning_rate", pa.array([0.1, None, 0.1, 0.2, 0.2, 0.2, 0.2])),
        ("lr", pa.array([None, None, 0.3, 0.3, None, 0.3, 0.3])),
        ("time", pa.array([1.5, None, math.nan, 4.0, 5.0, math.inf, 7.0])),
        ("note", pa.nulls(7)),
    ]
)
IDENTITY_COLUMNS = st.sampled_from(
    [
        ("rank", pa.array([0, 1, None, -1, 2**20, 5, 6])),
        ("rank", pa.array([0, 1.0, 0.5, math.nan, math.inf, None, 6.0])),
        ("rank", pa.array([0, 1, 2, 3, 4, 5, 6], pa.uint8())),
        ("iteration", pa.array([0, 2**53 - 1, 2**53, 2**63 - 1, -1, None, 6])),
        ("iteration", pa.array([0, 2**63, 2**64 - 1, 3, 4, 5, 6], pa.uint64())),
        ("iteration", pa.array([0, 1e300, 2.0, 3, 4, 5, 6])),
        ("step", pa.array([9, 9, 9, 9, 9, None, 9])),
        ("attempt", pa.array([0, 1, None, 2**31, -1, 5, 6])),
        ("microbatch", pa.array([0, 1, None, 2**15, -1, 5, 6])),
        ("run", pa.array(["r", "s", None, "", "a\nb", "s", "r"])),
        ("run", pa.array(["s", "r", None, "s", "r", "x" * 257, "r"]).dictionary_encode()),
        ("v", pa.array([1, None, 2, 1, 1, 1, 1])),
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(VALUE_COLUMNS, max_size=3), st.lists(IDENTITY_COLUMNS, max_size=3), st.booleans())
def test_a_row_means_what_the_same_json_line_means(
    values: list[tuple[str, Any]], identities: list[tuple[str, Any]], is_file: bool
) -> None:
    columns: dict[str, Any] = dict([*identity(7).items(), *identities, *values])
    defaults = Defaults("stem", -1) if is_file else REQUIRED
    rows = [interpret(row, defaults) for row in pa.table(columns).to_pylist()]
    expected = batch_from_records(row.result for row in rows if isinstance(row.result, Record))
    batch = read(columns, defaults)
    assert same(batch, expected, with_places=False)
    assert sorted((r.field, r.rule, r.whole) for r in batch.rejected) == sorted(
        (why.field, why.rule, why.is_whole) for row in rows for why in row.rejections
    )


def test_bad_rows_are_rejected_alone_with_the_offset_of_their_message() -> None:
    good, bad = stream_of(identity(2)), stream_of({"run": ["r", "r"], "rank": [0, -1], "iteration": [1, 1]})
    batch = Decoder().decode(messages([good, bad, good]))
    assert len(batch) == 5
    assert [(r.offset, r.field, r.value) for r in batch.rejected] == [(101, "rank", "-1")]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1.0], [2.0]]),
        pa.array([{"a": 1}, {"a": 2}]),
        pa.array([b"a", b"b"]),
        pa.array([1, 2], pa.date32()),
        pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([1.0])),
    ],
    ids=["list", "struct", "binary", "date", "run-end"],
)
def test_a_column_of_a_type_that_holds_no_values_is_one_rejected_value(column: Any) -> None:
    batch = read({**identity(2), "odd": column, "loss": [1.0, 2.0]})
    assert faults(batch) == [("odd", False)]
    assert batch.numbers["loss"].values_N.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 257])
def test_a_column_whose_name_is_no_metric_is_one_rejected_value(name: str) -> None:
    batch = read({**identity(2), name: [1.0, 2.0]})
    assert len(batch) == 2 and [whole for _, whole in faults(batch)] == [False]


def test_a_missing_required_column_is_one_rejection_and_a_file_needs_it_not() -> None:
    columns = {"iteration": [1, 2], "loss": [1.0, 2.0]}
    assert faults(read(columns)) == [("run", True)]
    assert len(read(columns, Defaults("stem", -1))) == 2


def test_events_are_refused_in_columns() -> None:
    batch = read({**identity(2), "event": ["run_end", None]})
    assert len(batch) == 1 and faults(batch) == [("event", True)]


def test_a_duplicated_column_name_fills_where_the_later_one_is_null() -> None:
    arrays = [pa.array(column) for column in (*identity(2).values(), [1.0, 2.0], [None, 3.0])]
    table = pa.table(arrays, names=["run", "rank", "iteration", "loss", "loss"])
    assert read(table).numbers["loss"].values_N.tolist() == [1.0, 3.0]


def test_checksums_agree_between_hexadecimal_integers_and_bytes() -> None:
    texts = pa.array(["00" * 15 + "9f", "ab" * 16])
    as_bytes = pa.array([bytes.fromhex(text) for text in texts.to_pylist()], pa.binary(16))
    for other in (as_bytes, as_bytes.cast(pa.binary())):
        batch = read({**identity(2), "a_checksum": texts, "b_checksum": other})
        a, b = batch.checksums["a_checksum"], batch.checksums["b_checksum"]
        assert a.high_N.tolist() == b.high_N.tolist() and a.low_N.tolist() == b.low_N.tolist()


def test_every_nan_from_columns_is_the_same_nan() -> None:
    odd = np.array([0xFFF8000000000001, 0x7FF8000000000000], np.uint64).view(np.float64)
    values = read({**identity(2), "loss": odd}).numbers["loss"].values_N
    assert len(set(values.view(np.uint64).tolist())) == 1


def test_times_may_be_timestamps() -> None:
    times = pa.array([1_500, None], pa.timestamp("ms", tz="UTC"))
    assert read({**identity(2), "time": times}).time_N[0] == 1.5


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_bodies_are_read_within_the_limit_and_refused_beyond(codec: str) -> None:
    data = stream_of({**identity(1), "loss": [1.0]}, compression=codec)
    assert len(batch_from_arrow(data, CONFIG, REQUIRED)) == 1
    zeros = np.zeros(1 << 20)
    bomb = stream_of({"run": pa.nulls(len(zeros), pa.string()), "loss": zeros}, compression=codec)
    assert len(bomb) < 200_000
    batch = batch_from_arrow(bomb, DecodeConfig(max_decompressed_bytes=1 << 20), REQUIRED)
    assert len(batch) == 0 and "must unpack to at most" in batch.rejected[0].rule


def test_a_column_of_nulls_cannot_claim_rows_without_bytes() -> None:
    batch = pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.null(), 2**31 - 1, [None])], ["loss"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = bytes(sink.getvalue())
    assert faults(batch_from_arrow(data, CONFIG, REQUIRED)) == [("message", True)]
    limits = FrameLimits(max_rows=1 << 50, max_unpacked_bytes=1 << 50, max_messages=9, is_total=False)
    with pytest.raises(ArrowRefused, match="a value in every row"):
        check_stream(memoryview(data), limits)


def test_a_long_text_shared_by_all_rows_is_not_written_out_for_each() -> None:
    text = pa.array(["x" * 1_000_000])
    codes = pa.array(np.zeros(100_000, np.int8))
    columns = {**identity(100_000), "host": pa.DictionaryArray.from_arrays(codes, text)}
    batch = read(columns)  # written out: 100 GB
    assert len(batch) == 100_000 and len(batch.rejected) == 100_000


def test_batches_before_the_damage_are_kept() -> None:
    table = pa.table({**identity(2), "loss": [1.0, 2.0]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for _ in range(3):
            writer.write_table(table)
    data = bytearray(sink.getvalue())
    last = data.rfind(b"\xff\xff\xff\xff", 0, len(data) - 8)
    offsets = data.find(b"rr", last) - 8 * 8  # the offsets of the run names stand before them
    for at in range(offsets, offsets + 64):
        data[at] = 0x7F
    batch = batch_from_arrow(bytes(data), CONFIG, REQUIRED)
    assert len(batch) == 4 and faults(batch) == [("message", True)]


@pytest.mark.parametrize("form", ["stream", "file"])
@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_arrow_files_of_both_formats_give_all_rows_in_slices(
    tmp_path: Path, form: str, codec: str | None
) -> None:
    rows = SLICE_ROWS + 10
    table = pa.table({"step": np.arange(rows), "loss": np.full(rows, 2.0), "host": ["a"] * rows})
    path = tmp_path / "job.arrow"
    new = pa.ipc.new_stream if form == "stream" else pa.ipc.new_file
    with new(str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)
    batches = list(iter_arrow_file(path, CONFIG, Defaults("job", -1)))
    assert [len(batch) for batch in batches] == [SLICE_ROWS, 10]
    whole = concatenate(batches)
    assert whole.iteration_N.tolist() == list(range(rows)) and len(whole.labels) == 2


def test_files_of_polars_are_read(tmp_path: Path) -> None:
    import polars as pl

    frame = pl.DataFrame({"step": [1, 2], "loss": [1.0, None], "host": ["a", "b"]})
    for write in (frame.write_ipc, frame.write_ipc_stream):
        path = tmp_path / "job.arrow"
        write(path)
        (batch,) = iter_arrow_file(path, CONFIG, Defaults("job", -1))
        assert [record.metrics for record in records_from_batch(batch)] == [{"loss": 1.0}, {}]


@pytest.mark.parametrize("content", [b"", b"random bytes", b"ARROW1\0\0", b"FEA1" + b"\0" * 20, b"\xff" * 64])
def test_a_file_that_is_not_arrow_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "job.arrow"
    path.write_bytes(content)
    with pytest.raises(UnreadableInput, match=r"job\.arrow"):
        list(iter_arrow_file(path, CONFIG, REQUIRED))

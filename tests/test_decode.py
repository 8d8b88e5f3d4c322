"""Messages and lines to batches: nothing raises, nothing good is lost, everything odd is counted."""

from __future__ import annotations

import gc
import json
import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.telemetry import Checksum, Event, Record
from firstfault.wire import encode_record
from ingest.arrow_stream import arrow_from_batch
from ingest.blocks import RecordBatch, Rejected
from ingest.columns import batch_from_records, records_from_batch, select_rows
from ingest.decode import ARROW_CONTENT_TYPE, DecodeConfig, Decoder, Defaults, RawMessage
from ingest.joining import concatenate

from .wire_builders import line, messages, same, uniform_lines

FILE = Defaults("stem", -1)


def made_up_names(count: int, seed: int) -> list[str]:
    return [f"made/{seed}/{at}" for at in range(count)]


def decoded(*lines: bytes) -> RecordBatch:
    return Decoder().decode_lines(b"\n".join(lines), "f", 0)


def why(batch: RecordBatch) -> list[tuple[int, str, bool]]:
    return [(rejected.offset, rejected.field, rejected.whole) for rejected in batch.rejected]


GARBAGE = {
    "no-json": b"hello",
    "empty-object": b"{}",
    "brackets": b"[" * 100_000,
    "objects": b'{"a":' * 100_000,
    "digits": b'{"run":"r","rank":0,"iteration":' + b"9" * 5000 + b"}",
    "bad-utf8": b'{"run":"\xff","rank":0,"iteration":0}',
    "lone-surrogate": b'{"run":"\\ud800","rank":0,"iteration":0}',
    "two-megabytes": line(loss=1.0, host="x" * 2_000_000),
    "negative-rank": line(rank=-1),
    "huge-iteration": b'{"run":"r","rank":0,"iteration":1e300}',
    "two-to-63": line(iteration=2**63),
    "array": b"[1,2]",
    "million-elements": b'{"run":"r","rank":0,"iteration":0,"loss":[' + b"1," * 200_000 + b"1]}",
    "registry-frame": b"\0\0\0\0\1" + line(),
    "many-keys": json.dumps({f"m{at}": at for at in range(5000)}).encode(),
}


@pytest.mark.parametrize("odd", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_counted_and_its_neighbours_are_kept(odd: bytes) -> None:
    data = uniform_lines(600) + odd + b"\n" + uniform_lines(600)
    batch = Decoder().decode_lines(data, "f", 0)
    bare_value = b'"loss":[' in odd  # the record stays, without its value
    assert len(batch) == 1200 + bare_value
    assert [rejected.offset for rejected in batch.rejected] == [600]
    assert batch.rejected[0].whole is not bare_value


def test_a_rejected_line_says_field_rule_value_and_comes_as_it_was() -> None:
    (rejected,) = decoded(line(), line(rank=-1)).rejected
    assert rejected == Rejected(
        "rank", "must be an integer from 0 to 1048575", "-1", True, "f", 1, line(rank=-1)
    )


def test_a_frame_of_a_schema_registry_is_rejected_with_a_hint() -> None:
    (rejected,) = Decoder().decode(messages([b"\0\0\0\0\1abc"])).rejected
    assert "schema registry" in rejected.rule


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines_end_at_newlines_only_and_blank_ones_are_nothing(end: bytes) -> None:
    data = end.join(
        [b"\xef\xbb\xbf" + line(iteration=0), b"", b"  ", line(iteration=1, host="a\u2028b\x85"), b""]
    )
    batch = Decoder().decode_lines(data, "f", 0)
    assert batch.iteration_N.tolist() == [0, 1] and not batch.rejected
    assert batch.labels == ((1, "host", "a\u2028b\x85"),)


def test_of_a_key_written_twice_the_last_wins() -> None:
    batch = decoded(b'{"run":"r","rank":0,"iteration":1,"loss":1,"loss":2,"iteration":5}')
    assert batch.iteration_N.tolist() == [5] and batch.numbers["loss"].values_N.tolist() == [2.0]


@pytest.mark.parametrize("count", [1, 400])
def test_nan_is_kept_apart_from_not_reported(count: int) -> None:
    lines = [line(loss=math.nan, x=None), line(loss="NaN"), line(loss=-math.inf), line(loss=1.0), line(x=1)]
    loss = decoded(*(lines * count)).numbers["loss"]
    assert loss.present_N.tolist() == [True, True, True, True, False] * count
    assert np.isnan(loss.values_N).tolist() == [True, True, False, False, True] * count


def test_events_keep_their_place_among_the_records_and_their_fields() -> None:
    start = line(event="run_start", mesh=[["dp", 8]], world_size=8)
    batch = decoded(
        start, line(iteration=1), line(iteration=2, event="checkpoint", path="/c"), line(iteration=3)
    )
    assert [before for before, _ in batch.events] == [0, 1]
    event = batch.events[0][1]
    assert isinstance(event, Event) and event.fields["mesh"] == [["dp", 8]]


def test_empty_messages_and_tombstones_are_counted_with_their_offset() -> None:
    batch = Decoder().decode(messages([line(), b"", line(), b"\n"]))
    assert len(batch) == 2
    assert why(batch) == [(101, "message", True), (103, "message", True)]


def test_a_rejected_line_of_a_message_carries_the_offset_of_its_message() -> None:
    values = [line() + b"\n" + line() + b"\n", b"bad", line() + b"\nbad\n" + line(), line(loss=[1])]
    batch = Decoder().decode(messages(values))
    assert len(batch) == 5
    assert why(batch) == [(101, "line", True), (102, "line", True), (103, "loss", False)]


def test_a_message_beyond_the_size_limit_is_refused_before_it_is_parsed() -> None:
    decoder = Decoder(DecodeConfig(max_message_bytes=1000))
    batch = decoder.decode(messages([line(), line(host="x" * 1000), line()]))
    assert len(batch) == 2 and why(batch) == [(101, "message", True)]


def test_how_messages_are_cut_into_polls_does_not_change_the_records() -> None:
    values = [*uniform_lines(500, host="a").splitlines(), line(event="run_end"), b"bad", line(loss="NaN")]
    decoder, all_messages = Decoder(), messages(values)
    whole = decoder.decode(all_messages)
    for size in (1, 7, 200):
        cut = [decoder.decode(all_messages[at : at + size]) for at in range(0, len(values), size)]
        assert same(concatenate(cut), whole)


def test_a_repeated_label_is_kept_where_it_changes_and_where_the_counter_goes_back() -> None:
    hosts = [
        (0, "a"),
        (1, "a"),
        (2, "a"),
        (3, "b"),
        (4, "a"),
        (5, "a"),
        (6, "a"),
        (2, "a"),
        (3, "a"),
        (4, "a"),
    ]
    batch = decoded(*(line(iteration=at, host=host) for at, host in hosts))
    assert [at for at, _, _ in batch.labels] == [0, 2, 3, 4, 6, 7, 9]


def test_made_up_metric_names_cannot_ask_for_unbounded_columns() -> None:
    lines = [line(iteration=at)[:-1] + b', "m%d": 1.0}' % at for at in range(1000)]
    batch = Decoder(DecodeConfig(max_cells=100_000)).decode_lines(b"\n".join(lines), "f", 0)
    assert len(batch) == 1000 and len(batch.numbers) == 100
    assert len(batch.rejected) == 900 and not any(rejected.whole for rejected in batch.rejected)


@pytest.mark.parametrize("content_type", [None, ARROW_CONTENT_TYPE])
def test_names_made_up_in_one_message_cost_other_messages_no_value(content_type: str | None) -> None:
    made_up = [line(run="made-up", **dict.fromkeys(made_up_names(30, at), 1)) for at in range(20)]
    others = [line(iteration=at, loss=1.0, param_checksum="ab", v=1) for at in range(200)]
    values = [b"\n".join(made_up), *others]
    if content_type is not None:
        values = [arrow_from_batch(decoded(*value.split(b"\n"))) for value in values]
    batches = Decoder(DecodeConfig(max_cells=20_000, fallback_bytes=2000)).decode_each(
        messages(values, content_type)
    )
    assert len(batches) > 1 and not any(batch.rejected for batch in batches)
    assert all(len(batch) * (len(batch.numbers) + len(batch.checksums)) <= 20_000 for batch in batches)
    assert sum(len(batch) for batch in batches) == 220
    kept = [batch.checksums["param_checksum"] for batch in batches if "param_checksum" in batch.checksums]
    assert sum(int(sums.present_N.sum()) for sums in kept) == 200


@given(st.lists(st.tuples(st.sampled_from(["json", "arrow", "event", "", "junk"]), st.integers(0, 2))))
def test_every_run_is_known_to_come_from_its_parts_whatever_stands_beside(
    arrived: list[tuple[str, int]],
) -> None:
    bodies = {
        "json": line(run="json", loss=1.0),
        "arrow": arrow_from_batch(decoded(line(run="arrow", loss=1.0))),
        "event": line(run="event", event="run_end"),
        "": b"",
        "junk": b"\x00junk",
    }
    raw = [RawMessage(f"t:{part}", at, bodies[kind]) for at, (kind, part) in enumerate(arrived)]
    expected = {(kind, f"t:{part}") for kind, part in arrived if kind in ("json", "arrow", "event")}
    assert set(Decoder().decode(raw).origins or ()) == expected
    found = [batch.origins for batch in Decoder(DecodeConfig(max_cells=1)).decode_each(raw)]
    assert None not in found
    assert set[tuple[str, str]]().union(*(one for one in found if one is not None)) == expected


def test_decoding_does_not_hold_on_to_what_it_decoded() -> None:
    decoder, data = Decoder(), uniform_lines(3000)
    decoder.decode_lines(data, "f", 0)
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(20):
            decoder.decode_lines(data, "f", 0)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 200_000  # one batch is 300 000 bytes


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.binary(max_size=60) | st.just(line()), max_size=6), st.sampled_from([None, "x", "text/csv"])
)
def test_no_bytes_make_decoding_raise_and_every_line_is_a_record_or_counted(
    values: list[bytes], content_type: str | None
) -> None:
    batch = Decoder().decode(messages(values, content_type))
    whole = sum(rejected.whole for rejected in batch.rejected)
    good = sum(value == line() for value in values)
    assert len(batch) >= good
    if all(value.strip() and b"\n" not in value for value in values):
        assert len(batch) + len(batch.events) + whole == len(values)


NUMBERS = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 5e-324, -0.0, 1e308])
RECORDS = st.builds(
    Record,
    run=st.sampled_from(["a", "é"]),
    rank=st.integers(0, 5),
    iteration=st.integers(0, 2**53 - 1),
    attempt=st.integers(0, 2),
    time=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    metrics=st.dictionaries(st.sampled_from(["loss", "grad_norm", "x/y"]), NUMBERS)
    | st.dictionaries(st.just("param_checksum"), st.integers(0, 2**128 - 1).map(Checksum)),
)


def spelled(records: list[Record]) -> list[str]:
    """Records to compare: as text, since NaN does not equal itself, with metrics in one order."""
    return [repr(replace(record, metrics=dict(sorted(record.metrics.items())))) for record in records]


@settings(max_examples=150, deadline=None)
@given(st.lists(RECORDS, max_size=8))
def test_decoding_inverts_encoding_for_every_value(records: list[Record]) -> None:
    values = [encode_record(record).encode() for record in records]
    batch = Decoder().decode(messages(values))
    assert same(batch, batch_from_records(records))
    assert spelled(records_from_batch(batch)) == spelled(records)


@given(st.lists(RECORDS, max_size=6), st.data())
def test_selecting_rows_and_joining_them_keeps_every_record(
    records: list[Record], data: st.DataObject
) -> None:
    keep = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records))), np.bool_
    )
    batch = batch_from_records(records)
    kept = records_from_batch(select_rows(batch, keep))
    assert spelled(kept) == spelled(
        [record for record, is_kept in zip(records, keep, strict=True) if is_kept]
    )
    joined = concatenate([select_rows(batch, keep), select_rows(batch, ~keep)])
    assert sorted(spelled(records_from_batch(joined))) == sorted(spelled(records))


def test_json_content_type_and_none_are_read_alike() -> None:
    record = json.dumps({"run": "r", "rank": 0, "iteration": 3}).encode()
    for content_type in (None, "application/json", "application/x-ndjson; charset=utf-8"):
        assert len(Decoder().decode([RawMessage("t/0", 0, record, content_type)])) == 1


def test_defaults_of_a_file_fill_run_and_rank() -> None:
    batch = Decoder(defaults=FILE).decode_lines(b'{"step":1,"loss":2}\n{"step":2,"rank":3,"run":"x"}', "f", 0)
    assert batch.runs == ("stem", "x") and batch.rank_N.tolist() == [-1, 3]


def test_a_message_of_very_many_lines_is_rejected_once_and_its_neighbours_are_read() -> None:
    decoder = Decoder(DecodeConfig(max_message_lines=100))
    good = b'{"run":"r","rank":0,"iteration":1,"loss":1}'
    values = [good, b"x\n" * 101, b"\n".join([good] * 100)]
    batch = decoder.decode([RawMessage("t:0", at, value) for at, value in enumerate(values)])
    assert len(batch) == 101
    assert [(one.field, one.value, one.offset) for one in batch.rejected] == [("message", "101 lines", 1)]

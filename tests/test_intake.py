"""POST /v1/telemetry: good lines go on by run and in order, bad ones are told, and nothing twice."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable

import pytest
import zstandard
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from ingest.decode import Decoder
from service.intake import IntakeCounts
from service.intake_config import IntakeConfig
from service.intake_lines import check_lines

from .intake_builders import ARROW, JSON, NDJSON, ListSink, arrow, client_of, lines, post, record

PACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstandard.compress}


def test_lines_go_on_as_they_came_keyed_by_run_and_in_order() -> None:
    sink = ListSink()
    event = {"run": "b", "rank": 0, "iteration": 1, "event": "heartbeat"}
    body = lines(record(0, "a"), record(0, "b"), b"", event, record(1, "a"), record(1, "b"))
    reply = post(client_of(sink), body)
    assert (reply.status_code, reply.headers["content-type"]) == (202, "application/json")
    assert reply.json() == {
        "accepted": 5, "rejected": 0, "rejected_values": 0, "rejected_by": {}, "reasons": [],
    }  # fmt: skip
    assert [(one.run, one.records) for one in sink.messages] == [("a", 2), ("b", 3)]
    assert sink.messages[1].value == lines(record(0, "b"), event, record(1, "b"))[:-1]


def test_good_lines_are_accepted_though_others_are_bad_and_each_bad_one_is_told() -> None:
    sink = ListSink()
    body = lines(record(0), b"{oops", record(-1), record(1, loss=[1]), b"\xff\xfe", record(2))
    reply = post(client_of(sink), body)
    told = reply.json()
    assert reply.status_code == 202
    assert (told["accepted"], told["rejected"], told["rejected_values"]) == (3, 3, 1)
    assert [(one["line"], one["field"], one["whole"]) for one in told["reasons"]] == [
        (2, "line", True), (3, "iteration", True), (4, "loss", False), (5, "line", True),
    ]  # fmt: skip
    assert told["rejected_by"]["line: must be JSON"] == 2
    assert told["reasons"][1]["rule"].startswith("must be an integer")
    assert told["reasons"][1]["value"] == "-1"


def test_the_worker_sees_rejected_lines_once_and_rejects_them_for_the_same_reasons() -> None:
    sink = ListSink()
    body = lines(
        b"\xff\xff\xff\xff garbage that begins as Arrow does",
        b"{oops",
        record(0, "a"),
        record(-1),
        record(0, "b"),
    )
    told = post(client_of(sink), body).json()
    batch = sink.batch()
    assert len(batch) == told["accepted"] == 2
    assert sorted((one.field, one.rule, one.value) for one in batch.rejected) == sorted(
        (one["field"], one["rule"], one["value"]) for one in told["reasons"]
    )


def test_a_body_of_bad_lines_alone_is_refused_with_reasons_and_leaves_nothing() -> None:
    sink, counts = ListSink(), IntakeCounts()
    reply = post(client_of(sink, counts), lines(b"loss 1.0", record(-1)))
    told = reply.json()
    assert (reply.status_code, reply.headers["content-type"]) == (422, "application/problem+json")
    assert told["type"] == "urn:firstfault:problem:nothing-accepted"
    assert told["detail"].startswith("none of 2 lines could be used; line 1: line must be JSON, got ")
    assert [one["line"] for one in told["reasons"]] == [1, 2]
    assert sink.messages == []
    assert (counts.accepted, sum(counts.rejected.values()), counts.bodies) == (0, 2, {422: 1})


@pytest.mark.parametrize("codec", PACK)
def test_packed_bodies_are_unpacked(codec: str) -> None:
    sink = ListSink()
    packed = PACK[codec](lines(record(0))) + PACK[codec](lines(record(1)))
    reply = post(client_of(sink), packed, headers={"content-encoding": codec})
    assert (reply.status_code, sink.iterations("job")) == (202, [0, 1])


@pytest.mark.parametrize(("document", "accepted"), [(record(0), 1), ([record(0), record(1)], 2)])
def test_a_json_document_is_one_record_or_an_array_of_them(document: object, accepted: int) -> None:
    sink = ListSink()
    reply = post(client_of(sink), json.dumps(document, indent=2).encode(), JSON)
    assert (reply.status_code, reply.json()["accepted"]) == (202, accepted)
    assert sink.iterations("job") == list(range(accepted))


def test_an_element_of_an_array_is_told_by_its_number() -> None:
    body = json.dumps([record(0), 5, record(0, rank=-1)]).encode()
    told = post(client_of(ListSink()), body, JSON).json()
    assert [(one["line"], one["field"]) for one in told["reasons"]] == [(2, "line"), (3, "rank")]


def test_values_that_are_no_numbers_go_through_unchanged() -> None:
    bare = b'{"run":"job","rank":0,"iteration":%d,"loss":%s,"z":-0.0,"big":123456789012345678901234567890}'
    for content_type in (NDJSON, JSON):
        for word, value in ((b"NaN", "nan"), (b'"NaN"', "nan"), (b"-Infinity", "-inf"), (b"1e400", "inf")):
            sink = ListSink()
            assert post(client_of(sink), bare % (0, word), content_type).status_code == 202
            (found,) = sink.batch().numbers["loss"].values_N
            assert str(found) == value
            assert str(sink.batch().numbers["z"].values_N[0]) == "-0.0"
            assert sink.batch().numbers["big"].values_N[0] == 123456789012345678901234567890.0


def test_a_long_body_is_cut_into_messages_that_fit() -> None:
    sink = ListSink()
    body = lines(*(record(at, text="x" * 100) for at in range(500)))
    assert post(client_of(sink, max_message_bytes=4096), body).json()["accepted"] == 500
    assert max(len(one.value) for one in sink.messages) <= 4096
    assert len(sink.messages) < 30
    assert sum(one.records for one in sink.messages) == 500
    assert sink.iterations("job") == list(range(500))


def test_a_body_of_many_pieces_is_counted_by_its_lines() -> None:
    sink = ListSink()
    rows = [record(at, text="x" * 200) for at in range(40_000)]
    body = lines(*rows[:39_000], b"{oops", *rows[39_000:])
    told = post(client_of(sink), body).json()
    assert (told["accepted"], told["rejected"], told["reasons"][0]["line"]) == (40_000, 1, 39_001)
    assert sink.iterations("job") == list(range(40_000))


def test_a_line_that_fits_no_message_is_rejected_and_stays_behind() -> None:
    sink = ListSink()
    body = lines(record(0), b'{"x":"%s"}' % (b"y" * (20 << 20)), record(1))
    told = post(client_of(sink), gzip.compress(body), headers={"content-encoding": "gzip"}).json()
    assert (told["accepted"], told["rejected"]) == (2, 1)
    assert told["reasons"][0]["rule"] == "must be at most 524288 bytes"
    assert len(told["reasons"][0]["value"]) < 200
    assert sum(len(one.value) for one in sink.messages) < 1000


@given(st.data())
def test_whatever_the_lines_each_run_keeps_its_order_and_nothing_is_lost(data: st.DataObject) -> None:
    kinds = st.sampled_from(["a", "b", "event", "bad", "blank", "long"])
    body, expected, bad = [], [], 0
    for at, kind in enumerate(data.draw(st.lists(kinds, max_size=60))):
        run = data.draw(st.sampled_from("ab"))
        match kind:
            case "bad":
                body.append(b"\xff\xff\xff\xff%d" % at)
                bad += 1
            case "blank":
                body.append(b" \r")
            case "event":
                body.append(json.dumps({**record(at, run), "event": "heartbeat"}).encode())
            case "long":
                body.append(json.dumps(record(at, run, text="x" * 300)).encode())
                expected.append((run, at))
            case _:
                body.append(json.dumps(record(at, kind)).encode())
                expected.append((kind, at))
    config = IntakeConfig(max_message_bytes=data.draw(st.sampled_from([1024, 8192])))
    checked = check_lines(b"\n".join(body), Decoder(), config)

    sink = ListSink()
    sink.messages = list(checked.messages)
    assert checked.rejected == bad
    assert sum(one.records for one in sink.messages) == checked.accepted
    assert all(len(one.value) <= config.max_message_bytes + 2 for one in sink.messages)
    if checked.accepted:
        assert len(sink.batch().rejected) == bad
        assert len(sink.batch().events) == checked.accepted - len(expected)
    for run in "ab":
        assert sink.iterations(run) == [at for name, at in expected if name == run]


# -- Arrow


def test_rows_go_on_as_the_stream_that_came_where_it_is_of_one_run() -> None:
    sink = ListSink()
    body = arrow({"run": ["job"] * 9, "rank": range(9), "iteration": [7] * 9, "loss": [float("nan")] * 9})
    assert post(client_of(sink), body, ARROW).json()["accepted"] == 9
    assert [(one.run, one.value, one.content_type) for one in sink.messages] == [("job", body, ARROW)]


def test_rows_of_several_runs_are_parted_cut_and_keep_their_order_and_their_bad_neighbours() -> None:
    sink = ListSink()
    rng = random.Random(7)
    runs = [rng.choice(["a", "b", None]) for _ in range(3000)]
    ranks = [rng.choice([0, 0, 0, -1]) for _ in range(3000)]
    import pyarrow as pa

    body = arrow(
        {
            "run": pa.array(runs).dictionary_encode(),
            "rank": ranks,
            "iteration": range(3000),
            "loss": [float("nan") if at % 3 else None for at in range(3000)],
        },
        rows_a_batch=700,
    )
    told = post(client_of(sink, max_message_bytes=8192), body, ARROW).json()
    good = {run: [at for at in range(3000) if runs[at] == run and ranks[at] == 0] for run in ("a", "b")}
    assert told["accepted"] == sum(map(len, good.values()))
    assert told["rejected"] == 3000 - told["accepted"]
    first_bad = next(at for at in range(3000) if runs[at] is None or ranks[at])
    assert told["reasons"][0]["line"] == first_bad + 1
    assert max(len(one.value) for one in sink.messages) <= 8192
    assert sum(one.records for one in sink.messages) == told["accepted"]
    assert {run: sink.iterations(run) for run in good} == good
    batch = sink.batch()
    assert len(batch.rejected) == told["rejected"]
    assert batch.numbers["loss"].present_N.sum() == sum(at % 3 > 0 for run in good for at in good[run])


def test_a_row_that_fits_no_message_is_rejected_alone() -> None:
    sink = ListSink()
    body = arrow({"run": ["a", "a"], "rank": [0, 1], "iteration": [0, 0], "note": ["x" * 1000, "y"]})
    told = post(client_of(sink, max_message_bytes=1200), body, ARROW).json()
    assert (told["accepted"], told["rejected"]) == (1, 1)
    assert told["rejected_by"] == {"row: must be at most 1200 bytes": 1}
    assert sink.batch().rank_N.tolist() == [1]


def test_a_stream_that_is_no_arrow_is_refused_with_the_reason() -> None:
    reply = post(client_of(ListSink()), lines(record(0)), ARROW)
    assert (reply.status_code, reply.json()["reasons"][0]["field"]) == (422, "message")
    body = arrow({"rank": [0], "iteration": [0]})
    assert post(client_of(ListSink()), body, ARROW).json()["reasons"][0]["field"] == "run"


def test_the_operation_is_described_with_what_it_takes_and_what_it_answers() -> None:
    app = client_of(ListSink()).app
    assert isinstance(app, FastAPI)
    described = app.openapi()["paths"]["/v1/telemetry"]["post"]
    assert set(described["requestBody"]["content"]) == {NDJSON, JSON, ARROW}
    assert set(described["responses"]) == {"202", "400", "408", "413", "415", "422", "503"}
    for status, response in described["responses"].items():
        kind = "application/json" if status == "202" else "application/problem+json"
        assert list(response["content"]) == [kind]

    import jsonschema

    schema = described["requestBody"]["content"][JSON]["schema"]
    jsonschema.validate(described["requestBody"]["content"][JSON]["example"], schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"run": "a", "rank": 0}, schema)

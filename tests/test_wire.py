"""What one line means, and that writing and reading it loses nothing."""

from __future__ import annotations

import json
import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from firstfault.telemetry import (
    MAX_ATTEMPT,
    MAX_ITERATION,
    MAX_MICROBATCH,
    MAX_RANK,
    RESERVED_KEYS,
    UNNAMED_RANK,
    WHOLE_ITERATION,
    Checksum,
    Event,
    EventKind,
    Record,
    Value,
    fold_checksum,
    is_checksum,
)
from firstfault.wire import Defaults, encode_event, encode_record, interpret
from firstfault.wire_values import is_metric_name, is_run_name

FILE = Defaults("stem", UNNAMED_RANK)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(is_metric_name)
NUMBER_NAMES = NAMES.filter(
    lambda name: (
        not is_checksum(name) and name not in RESERVED_KEYS | {"step", "global_step", "learning_rate"}
    )
)
LABEL_TEXTS = st.text(st.characters(codec="utf-8"), max_size=20).filter(
    lambda text: text not in ("NaN", "Infinity", "-Infinity")
)
RECORDS = st.builds(
    Record,
    run=st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(is_run_name),
    rank=st.integers(0, MAX_RANK),
    iteration=st.integers(0, MAX_ITERATION),
    attempt=st.integers(0, MAX_ATTEMPT),
    microbatch=st.integers(0, MAX_MICROBATCH) | st.just(WHOLE_ITERATION),
    time=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    metrics=st.dictionaries(NUMBER_NAMES, st.floats(), max_size=4),
)


def bits(value: float) -> bytes:
    """A double to the bit; every NaN is one NaN on the wire."""
    return struct.pack("<d", math.nan if math.isnan(value) else value)


def metrics_of(given_line: dict[str, object]) -> dict[str, Value]:
    record = interpret({"run": "r", "rank": 0, "iteration": 0, **given_line}).result
    assert isinstance(record, Record)
    return dict(record.metrics)


def rejected_fields(given_line: dict[str, object]) -> list[tuple[str, bool]]:
    found = interpret({"run": "r", "rank": 0, "iteration": 0, **given_line})
    return [(why.field, why.is_whole) for why in found.rejections]


@settings(max_examples=300)
@given(RECORDS)
def test_reading_inverts_writing_for_every_number_to_the_bit(record: Record) -> None:
    read = interpret(from_json(encode_record(record)))
    assert isinstance(read.result, Record) and not read.rejections
    assert {name: bits(float(value)) for name, value in read.result.metrics.items()} == {
        name: bits(float(value)) for name, value in record.metrics.items()
    }
    for part in ("run", "rank", "iteration", "attempt", "microbatch", "time"):
        assert getattr(read.result, part) == getattr(record, part)


@given(
    st.dictionaries(st.sampled_from(["param_checksum", "x_checksum/a"]), st.integers(0, 2**128 - 1)),
    st.dictionaries(st.sampled_from(["host", "device"]), LABEL_TEXTS),
)
def test_reading_inverts_writing_for_checksums_and_labels(
    sums: dict[str, int], labels: dict[str, str]
) -> None:
    metrics = {name: Checksum(value) for name, value in sums.items()}
    record = Record(run="r", rank=0, iteration=1, metrics=metrics, labels=labels)
    assert interpret(from_json(encode_record(record))).result == record


@pytest.mark.parametrize("value", [-0.0, 5e-324, 2.2250738585072011e-308, 1.7976931348623157e308, 1e308, 0.1])
def test_odd_but_finite_doubles_keep_their_bits(value: float) -> None:
    read = metrics_of(from_json(encode_record(Record(run="r", rank=0, iteration=0, metrics={"loss": value}))))
    assert bits(float(read["loss"])) == bits(value)


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        *(("NaN", math.nan), ("Infinity", math.inf), ("-Infinity", -math.inf)),
        *(('"NaN"', math.nan), ('"Infinity"', math.inf), ('"-Infinity"', -math.inf)),
        *(("1e400", math.inf), ("-1e400", -math.inf), ("9" * 400, math.inf), ("-" + "9" * 400, -math.inf)),
        *(("true", 1.0), ("false", 0.0), ("3", 3.0), ("1e-400", 0.0)),
    ],
)
def test_every_spelling_of_a_value_is_read(token: str, expected: float) -> None:
    assert bits(float(metrics_of(from_json(f'{{"loss":{token}}}'))["loss"])) == bits(expected)


@pytest.mark.parametrize("key", ["run", "rank", "iteration"])
def test_run_rank_and_iteration_are_required_on_kafka(key: str) -> None:
    given_line: dict[str, object] = {"run": "r", "rank": 0, "iteration": 0, "loss": 1.0}
    del given_line[key]
    found = interpret(given_line)
    assert found.result is None and [why.field for why in found.rejections] == [key]


def test_a_file_gives_its_stem_and_one_unnamed_rank() -> None:
    found = interpret({"step": 5, "loss": 1.0}, FILE).result
    assert isinstance(found, Record)
    assert (found.run, found.rank, found.iteration) == ("stem", UNNAMED_RANK, 5)


@pytest.mark.parametrize(
    "value", [True, -1, 2**63, 2**53, 1e300, 0.5, math.nan, math.inf, "1", [], {}, 2**20]
)
def test_a_bad_rank_or_iteration_rejects_the_record(value: object) -> None:
    assert rejected_fields({"rank": value}) == [("rank", True)]
    if value != 2**20:  # a fine iteration
        assert rejected_fields({"iteration": value}) == [("iteration", True)]


@pytest.mark.parametrize("key", ["rank", "iteration", "attempt", "microbatch", "v"])
def test_an_integral_float_is_an_identity(key: str) -> None:
    assert rejected_fields({key: 1.0}) == []


@pytest.mark.parametrize(
    "run", ["", "a\n", "a\x00", "a\x7f", "a\x85", "x" * 257, "é" * 129, "\ud800", 7, True, []]
)
def test_a_run_name_is_text_of_256_bytes_without_control_characters(run: object) -> None:
    assert rejected_fields({"run": run}) == [("run", True)]
    assert rejected_fields({"run": "team/llama 7b · é\u2028" + "x" * 200}) == []


def test_the_canonical_name_wins_over_its_aliases() -> None:
    found = interpret(
        {"run": "r", "rank": 0, "global_step": 9, "step": 8, "lr": 0.2, "learning_rate": 0.1}
    ).result
    assert isinstance(found, Record)
    assert found.iteration == 8 and dict(found.metrics) == {"lr": 0.2}
    assert metrics_of({"lr": None, "learning_rate": 0.1}) == {"lr": 0.1}


@pytest.mark.parametrize("value", [[1.0], {"a": 1}, "x" * 1025])
def test_a_bad_value_is_rejected_alone(value: object) -> None:
    assert rejected_fields({"loss": value}) == [("loss", False)]
    assert metrics_of({"loss": value, "grad_norm": 1.0}) == {"grad_norm": 1.0}


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400, "now", True, [1]])
def test_a_bad_time_is_rejected_alone(value: object) -> None:
    assert rejected_fields({"time": value}) == [("time", False)]


@pytest.mark.parametrize("name", ["", "x" * 257, "a\nb", "\ud800"])
def test_a_bad_metric_name_is_rejected_alone(name: str) -> None:
    assert [whole for _, whole in rejected_fields({name: 1.0})] == [False]


@pytest.mark.parametrize("text", ["9F3a", "0x9f3A", "0X9f3a", "0" * 100 + "9f3a", 0x9F3A])
def test_a_checksum_is_hexadecimal_in_any_case_or_an_integer(text: object) -> None:
    assert metrics_of({"param_checksum": text}) == {"param_checksum": Checksum(0x9F3A)}


@pytest.mark.parametrize(
    "value", ["", "0x", "xyz", "-1", "1 2", "f" * 129, "NaN", 1.0, True, 2**64, -(2**63) - 1, []]
)
def test_what_is_no_checksum_is_rejected_alone(value: object) -> None:
    assert rejected_fields({"param_checksum": value}) == [("param_checksum", False)]


def test_a_checksum_of_512_bits_is_folded_and_a_signed_one_is_its_bits() -> None:
    long = "ab" * 64
    assert metrics_of({"param_checksum": long}) == {"param_checksum": fold_checksum(int(long, 16))}
    assert metrics_of({"param_checksum": -1}) == metrics_of({"param_checksum": "f" * 16})


def test_null_is_not_reported() -> None:
    assert metrics_of({"loss": None, "param_checksum": None, "time": None, "microbatch": None}) == {}


@pytest.mark.parametrize("version", [2, 0, -1, "1", True, 1.5])
def test_a_newer_version_is_rejected_with_a_hint(version: object) -> None:
    found = interpret({"run": "r", "rank": 0, "iteration": 0, "v": version})
    assert found.result is None and "newer sender" in found.rejections[0].rule


def test_an_unknown_event_is_rejected_and_its_rule_lists_the_known_ones() -> None:
    found = interpret({"run": "r", "rank": 0, "iteration": 0, "event": "explode"})
    assert found.result is None and "run_start" in found.rejections[0].rule


@pytest.mark.parametrize("kind", list(EventKind))
def test_reading_inverts_writing_for_events_with_nested_fields(kind: EventKind) -> None:
    fields = {"mesh": [["pp", 2], ["dp", 4]], "nested": {"a": [None, True, {"b": 1.5}]}, "loss": 3}
    event = Event(kind=kind, run="r", rank=1, iteration=2, attempt=3, time=4.5, fields=fields)
    read = interpret(from_json(encode_event(event))).result
    assert isinstance(read, Event)
    assert (read.kind, read.run, read.rank, read.iteration, read.attempt, read.time) == (
        kind,
        "r",
        1,
        2,
        3,
        4.5,
    )
    assert {name: read.fields[name] for name in fields} == fields
    assert encode_event(read) == encode_event(event)


def test_a_line_is_ascii_and_holds_no_bare_nan() -> None:
    record = Record(run="é\u2028", rank=0, iteration=0, metrics={"loss": math.nan, "x": -math.inf})
    text = encode_record(record)
    assert text.isascii()
    json.loads(text, parse_constant=lambda token: pytest.fail(f"bare {token}"))


@pytest.mark.parametrize(
    "record",
    [
        Record(run="r", rank=0, iteration=0, metrics={"rank": 1.0}),
        Record(run="r", rank=0, iteration=0, metrics={"loss": Checksum(1)}),
        Record(run="r", rank=0, iteration=0, metrics={"param_checksum": 1.0}),
        Record(run="r", rank=0, iteration=0, labels={"host": "NaN"}),
        Record(run="r", rank=0, iteration=0, labels={"x_checksum": "a"}),
    ],
)
def test_what_the_wire_cannot_carry_is_refused_when_written(record: Record) -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        encode_record(record)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(sorted(RESERVED_KEYS)) | st.text(), JSON_VALUES) | JSON_VALUES)
def test_no_json_value_makes_interpreting_raise(line: object) -> None:
    found = interpret(line, FILE)
    assert found.result is not None or found.rejections

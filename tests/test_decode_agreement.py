"""The columnar reader and the reference give the same batch, to the bit, whatever the bytes."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ingest.blocks import RecordBatch
from ingest.decode import DecodeConfig, Decoder, Defaults
from ingest.json_fast import FastDecoder

from .wire_builders import line, messages, same, uniform_lines

# Small pieces: every line is tried fast, alone or with few neighbours.
EAGER = DecodeConfig(piece_bytes=400, fallback_bytes=150, min_fast_bytes=1)
FILE = Defaults("stem", -1)
TAUGHT = [
    line(loss=1.5, grad_norm=2, skipped=True, host="a", time=1.5, attempt=0, microbatch=1, v=1),
    line(loss=1.5, param_checksum="0xAb", optim_checksum=7, step=3, learning_rate=0.1, lr=0.2),
    line(data_checksum=2**64 - 1, epoch=1, note=None, other="NaN"),
]


def taught(config: DecodeConfig = EAGER, defaults: Defaults = FILE, *, is_fast: bool = True) -> Decoder:
    decoder = Decoder(config, defaults, is_fast=is_fast)
    for known in TAUGHT:  # one at a time: each goes to the reference, which teaches the fast reader
        decoder.decode_lines(known, "", 0)
    return decoder


def both(data: bytes) -> tuple[RecordBatch, RecordBatch]:
    fast = taught().decode_lines(data, "f", 10)
    return fast, taught(is_fast=False).decode_lines(data, "f", 10)


KEYS = st.sampled_from(
    [
        *("run", "rank", "iteration", "step", "global_step", "attempt", "microbatch", "time", "event", "v"),
        *("loss", "grad_norm", "skipped", "host", "lr", "learning_rate", "param_checksum", "optim_checksum"),
        *("data_checksum", "new", "other", "a\u00e9", "NaN", "x:"),
    ]
)
TOKENS = st.sampled_from(
    [
        *("0", "-0", "-0.0", "1", "2.0", "1e2", "1E-400", "1e400", "-1e400", "1e308", "5e-324", "0.1"),
        *("NaN", "Infinity", "-Infinity", "-NaN", "Inf", "nan", "+1", "01", "1.", ".5", "-", "1e"),
        *('"NaN"', '"Infinity"', '"-Infinity"', '"nan"', '"-NaN"', '"Inf"', '"x:NaN,"', '""'),
        *("true", "false", "null", "[1]", "{}", '{"a":1}', '"run_end"', '"run_start"', '"nope"'),
        *('"ab"', '"0xAB"', '"0X1"', '"0x"', '"xyz"', '"' + "f" * 128 + '"', '"' + "1" * 129 + '"'),
        *('"\\ud800"', '"\\u0000"', '"\\u00e9"', '"é"', '"\u2028"', '"a\\"b"', '"{"', '"}"', '"a\tb"'),
        *("9007199254740991", "9007199254740992", "9223372036854775807", "9223372036854775808"),
        *("18446744073709551615", "18446744073709551616", "-9223372036854775808", "-1", "9" * 400),
        *("0.1000000000000000055511151231257827", "123456789012345678", "1048575", "1048576", "32768"),
    ]
)
MEMBERS = st.lists(st.tuples(KEYS, TOKENS), max_size=4)
GLUE = st.sampled_from([",", ", ", " ,", ":", ",,"])


@st.composite
def realistic(draw: st.DrawFn) -> bytes:
    """Records, mostly good, with any odd value in any place."""
    members = [("run", '"r"'), ("rank", "3"), ("iteration", "7"), *draw(MEMBERS)]
    if draw(st.booleans()):
        members = draw(st.permutations(members))[: draw(st.integers(0, len(members)))]
    space = draw(st.sampled_from(["", " ", "  "]))
    glue = draw(GLUE) if draw(st.integers(0, 9)) == 0 else ","
    return ("{" + glue.join(f'"{key}":{space}{token}' for key, token in members) + "}").encode()


NUMBER_TOKENS = [
    "0",
    "-0",
    "-0.0",
    "1.5",
    "1e2",
    "5e-324",
    "1e400",
    "NaN",
    '"NaN"',
    '"-Infinity"',
    "null",
    "9007199254740993",
]
PLAUSIBLE = {
    **dict.fromkeys(["loss", "grad_norm", "lr", "learning_rate", "epoch", "other"], NUMBER_TOKENS),
    **{key: ["0", "7.0", "1e3", "9007199254740991", "null"] for key in ("iteration", "step", "global_step")},
    "rank": ["0", "3", "2.0", "1048575", "null"],
    "run": ['"r"', '"s"', '"é"', '"\\u00e9"', "null"],
    "host": ['"a"', '"b"', '""', '"\u2028"', '"NaN"', "null"],
    "skipped": ["true", "false", "null"],
    "time": ["1.5", "0", "-3", "null"],
    "attempt": ["0", "2", "null"],
    "microbatch": ["0", "32767", "null"],
    "param_checksum": ['"ab"', '"0XAB"', '"' + "f" * 33 + '"', '"' + "0" * 40 + 'b"', "null"],
    "optim_checksum": ["7", "-1", "-9223372036854775808", "null"],
    "data_checksum": ["0", "18446744073709551615", "null"],
    "event": ["null", '"run_end"'],
}


@st.composite
def plausible(draw: st.DrawFn) -> bytes:
    """Records whose values fit what was seen before: most are read fast."""
    keys = draw(st.lists(st.sampled_from(sorted(PLAUSIBLE)), unique=True, max_size=6))
    pairs = [(key, draw(st.sampled_from(PLAUSIBLE[key]))) for key in dict.fromkeys(["iteration", *keys])]
    return ("{" + ",".join(f'"{key}":{token}' for key, token in pairs) + "}").encode()


FRAGMENTS = st.sampled_from(
    [
        *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\n", b"\r\n", b" ", b"\t", b"\0", b"\x0c"),
        *(b'"run":"r"', b'"rank":0', b'"iteration":1', b'"loss":', b'"NaN"', b"NaN", b"Infinity", b"-0"),
        *(b'"event":"run_end"', b"\xef\xbb\xbf", b"\xff", b"\xc3\xa9", b"\xe2\x80\xa8", b"1e400", b"null"),
        *(line(), line(loss=2.0), b'{"run":"r","rank":0,"iteration":1,"loss":', b'x:"NaN",', b'"x:"NaN""'),
    ]
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(realistic(), max_size=5), st.sampled_from([b"\n", b"\r\n", b"\n\n"]), st.booleans())
def test_records_of_any_shape_decode_the_same_fast_or_by_the_reference(
    lines: list[bytes], end: bytes, with_good: bool
) -> None:
    data = end.join([*lines, *([line(loss=1.0), line(loss=0.5)] if with_good else [])])
    fast, reference = both(data)
    assert same(fast, reference)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(plausible(), max_size=6).map(b"\n".join))
def test_plausible_records_decode_the_same_fast_or_by_the_reference(data: bytes) -> None:
    fast, reference = both(data)
    assert same(fast, reference)


@settings(max_examples=400, deadline=None)
@given(st.lists(FRAGMENTS, max_size=12).map(b"".join))
@example(b'{"run":"r","rank":0,"iteration":1,"host":"x:"NaN",","loss":1}')
@example(b'{"run":"r","rank":0,"iteration":1,"x:"NaN"":1}')
@example(b'{"run":"r","rank":0,"iteration":1,"loss":1,"loss":2}')
@example(b'{"run":"r","rank":0,"iteration":1,"loss":-0}\n{"run":"r","rank":0,"iteration":1}')
def test_glued_fragments_of_json_decode_the_same_fast_or_by_the_reference(data: bytes) -> None:
    fast, reference = both(data)
    assert same(fast, reference)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_decode_the_same_fast_or_by_the_reference(data: bytes) -> None:
    fast, reference = both(data)
    assert same(fast, reference)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(realistic(), st.binary(max_size=20), FRAGMENTS), max_size=6))
def test_messages_decode_the_same_fast_or_by_the_reference(values: list[bytes]) -> None:
    fast = taught().decode(messages(values))
    assert same(fast, taught(is_fast=False).decode(messages(values)))


def reads_fast(data: bytes, monkeypatch: pytest.MonkeyPatch, decoder: Decoder) -> RecordBatch:
    """Decode with the reference switched off: what comes out was read fast."""

    def refuse(*_: object) -> None:
        raise AssertionError("a line went to the reference")

    monkeypatch.setattr("ingest.json_reference.ReferenceDecoder.decode", refuse)
    return decoder.decode_lines(data, "f", 0)


@pytest.mark.parametrize(
    "data",
    [
        uniform_lines(300),
        uniform_lines(300).replace(b"\n", b"\r\n"),
        uniform_lines(300, grad_norm=float("nan")),
        uniform_lines(300, grad_norm="NaN", param_checksum="ab" * 8, host="node-1"),
        uniform_lines(300, grad_norm="-Infinity") + uniform_lines(300, grad_norm=1),
        json.dumps({"iteration": 1, "loss": 2.5}).encode() + b"\n" + uniform_lines(30, run="\u00e9"),
        uniform_lines(200) + line(event="checkpoint", path="/c/1") + b"\n" + uniform_lines(200),
        uniform_lines(100, skipped=False) + uniform_lines(100, lr=0.1),
    ],
    ids=["plain", "crlf", "nan", "nan-text", "inf-text", "defaults", "event-inside", "mixed-cadence"],
)
def test_uniform_lines_never_need_the_reference(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, reference = taught(DecodeConfig(min_fast_bytes=1)), taught(is_fast=False)
    expected = reference.decode_lines(data, "f", 0)
    assert same(reads_fast(data, monkeypatch, decoder), expected)


def test_made_up_names_of_one_sender_do_not_widen_the_tables_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder = Decoder(DecodeConfig(min_fast_bytes=1, max_keys=400))
    decoder.decode_lines(uniform_lines(3), "f", 0)
    for at in range(10):
        made_up: dict[str, Any] = dict.fromkeys([f"made/{at}/{n}" for n in range(90)], 1.0)
        decoder.decode_lines(line(**made_up), "f", 0)
    assert decoder._fast is not None and len(decoder._fast._shapes) == 400
    expected = taught(is_fast=False).decode_lines(uniform_lines(300), "f", 0)
    width = widths_read(monkeypatch)
    decoder.decode_lines(uniform_lines(3), "f", 0)  # pushed out by the newer names, and learned again
    assert same(reads_fast(uniform_lines(300), monkeypatch, decoder), expected)
    assert width[-1] == len({"run", "rank", "iteration", "loss"})


def test_an_odd_shape_of_one_sender_does_not_slow_down_others_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder = Decoder(DecodeConfig(min_fast_bytes=1))
    decoder.decode_lines(uniform_lines(3), "f", 0)
    decoder.decode_lines(line(loss=True) + b"\n" + line(loss="low") + b"\n" + line(loss=1.0), "f", 0)
    decoder.decode_lines(uniform_lines(3), "f", 0)
    assert len(reads_fast(uniform_lines(300), monkeypatch, decoder)) == 300


def widths_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Filled with the number of columns of every table that is read fast."""
    widths: list[int] = []
    schema_of = FastDecoder._schema

    def noted(fast: FastDecoder, keys: Collection[str]) -> pa.Schema:
        schema = schema_of(fast, keys)
        widths.append(len(schema))
        return schema

    monkeypatch.setattr(FastDecoder, "_schema", noted)
    return widths

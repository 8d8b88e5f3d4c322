"""POST /v1/telemetry against senders that are wrong, broken or hostile: bounded, refused, told why."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from service.intake import IntakeCounts, make_intake_router
from service.intake_body import Claim, Media, Waiting, received
from service.intake_config import IntakeConfig
from service.intake_lines import IntakeMessage
from service.intake_problem import IntakeProblem
from service.intake_sinks import SinkRefused, SinkUnavailable

from .intake_builders import ARROW, JSON, NDJSON, ListSink, client_of, lines, post, record

GOOD = lines(record(0))
PACKED = gzip.compress(GOOD, mtime=0)  # without a time: what names a test is the same in every process


def refusal(reply: Any) -> tuple[int, str]:
    """Status and kind of a problem document; checks that it is one."""
    told = reply.json()
    assert reply.headers["content-type"] == "application/problem+json"
    assert told["status"] == reply.status_code
    assert {"type", "title", "detail"} <= told.keys()
    return reply.status_code, told["type"].removeprefix("urn:firstfault:problem:")


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"", NDJSON, (400, "empty-body")),
        (b" \n\r\n\t", NDJSON, (400, "empty-body")),
        (b"[]", JSON, (400, "empty-body")),
        (b'{"run":', JSON, (400, "bad-json")),
        (b'{"run":"\xff"}', JSON, (400, "bad-json")),
        (b"[" * 100_000, JSON, (400, "bad-json")),
        (GOOD + GOOD, JSON, (400, "bad-json")),
        (b'"text"', JSON, (422, "nothing-accepted")),
        (b"[" * 100_000, NDJSON, (422, "nothing-accepted")),
        (b"\x00\xff" * 1000, NDJSON, (422, "nothing-accepted")),
        (b"\xff\xff\xff\xff\x10\x00\x00\x00", ARROW, (422, "nothing-accepted")),
        (GOOD, "text/plain", (415, "unsupported-media-type")),
        (GOOD, "", (415, "unsupported-media-type")),
        (GOOD, "application/x-ndjson; charset=utf-16", (415, "unsupported-charset")),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_kind(
    body: bytes, content_type: str, expected: tuple[int, str]
) -> None:
    sink = ListSink()
    assert refusal(post(client_of(sink), body, content_type)) == expected
    assert sink.messages == []


def test_a_charset_that_is_utf_8_by_another_name_is_fine() -> None:
    reply = post(client_of(ListSink()), GOOD, 'Application/X-NDJSON; profile=x; Charset="UTF-8"')
    assert reply.status_code == 202


@pytest.mark.parametrize(
    ("body", "encoding", "expected"),
    [
        (PACKED[:-9], "gzip", (400, "bad-encoding")),
        (PACKED + b"rest", "gzip", (400, "bad-encoding")),
        (GOOD, "gzip", (400, "bad-encoding")),
        (zstandard.compress(GOOD)[:-3], "zstd", (400, "bad-encoding")),
        (PACKED, "zstd", (400, "bad-encoding")),
        (zlib.compress(GOOD), "deflate", (415, "unsupported-encoding")),
        (gzip.compress(PACKED, mtime=0), "gzip, gzip", (415, "unsupported-encoding")),
        (gzip.compress(PACKED, mtime=0), "gzip", (422, "nothing-accepted")),
        (gzip.compress(b"", mtime=0), "gzip", (400, "empty-body")),
    ],
)
def test_a_bad_content_encoding_is_refused_with_its_kind(
    body: bytes, encoding: str, expected: tuple[int, str]
) -> None:
    reply = post(client_of(ListSink()), body, headers={"content-encoding": encoding})
    assert refusal(reply) == expected


BOMB = """
import gzip, resource, sys, zstandard
from service.intake_body import Claim, Media, unpacked
from service.intake_config import IntakeConfig
from service.intake_problem import IntakeProblem
codec, part = sys.argv[1], b"a" * (1 << 20)
if codec == "gzip":
    body = gzip.compress(part * 16) * 256
else:
    body = zstandard.compress(part * 512) * 8
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    unpacked(body, Claim(Media.LINES, codec, None), IntakeConfig(max_unpacked_bytes=8 << 20))
except IntakeProblem as problem:
    print(problem.status, len(body), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_bomb_of_4_gib_is_refused_before_memory_grows(codec: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", BOMB, codec], capture_output=True, text=True, check=True, timeout=120
    )
    status, packed_bytes, grown_mb = map(int, ended.stdout.split())
    assert status == 413
    assert packed_bytes < 8 << 20
    # the limit twice (the buffer doubles), a step of zstd (32 MiB) and its window (8 MiB)
    assert grown_mb < 80


def test_a_zstd_frame_that_asks_for_a_window_of_128_mib_is_refused() -> None:
    params = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    body = zstandard.ZstdCompressor(compression_params=params).compressobj()
    packed = body.compress(GOOD) + body.flush()
    assert refusal(post(client_of(ListSink()), packed, headers={"content-encoding": "zstd"}))[0] == 400


def test_a_body_over_the_limit_is_refused_by_its_length_and_by_its_bytes() -> None:
    client = client_of(ListSink(), max_body_bytes=4096)
    told = post(client, GOOD * 200)
    assert refusal(told) == (413, "too-large")
    assert told.headers["connection"] == "close"

    def endless() -> Iterator[bytes]:
        while True:
            yield GOOD

    taken = 0

    async def pieces() -> Any:
        nonlocal taken
        for piece in endless():
            taken += len(piece)
            yield piece

    config = IntakeConfig(max_body_bytes=4096)
    waiting = Waiting(config)
    with pytest.raises(IntakeProblem, match="a body must have at most 4096 bytes") as caught:
        asyncio.run(received(pieces(), Claim(Media.LINES, "identity", None), config, waiting))
    assert caught.value.status == 413
    assert taken <= 4096 + len(GOOD)
    assert waiting.bytes == 0


@pytest.mark.parametrize(
    ("length", "expected"), [("99", "bad-length"), ("1", "bad-length"), ("+5", "bad-length")]
)
def test_a_content_length_that_lies_is_refused(length: str, expected: str) -> None:
    reply = post(client_of(ListSink()), [GOOD], headers={"content-length": length})
    assert refusal(reply) == (400, expected)


def test_a_body_that_does_not_end_is_given_up_in_time() -> None:
    async def pieces() -> Any:
        yield GOOD
        await asyncio.sleep(3600)

    config = IntakeConfig(body_timeout_s=0.1)
    waiting = Waiting(config)
    with pytest.raises(IntakeProblem, match=r"must arrive within 0\.1 s, [0-9]+ bytes did") as caught:
        asyncio.run(received(pieces(), Claim(Media.LINES, "identity", None), config, waiting))
    assert (caught.value.status, waiting.bytes) == (408, 0)


def test_too_many_lines_runs_and_elements_are_refused() -> None:
    client = client_of(ListSink(), max_lines=10, max_runs=2)
    assert refusal(post(client, b"x\n" * 11)) == (413, "too-many-lines")
    assert refusal(post(client, json.dumps([5] * 11).encode(), JSON)) == (413, "too-many-lines")
    three = lines(*(record(0, run) for run in "abc"))
    assert refusal(post(client, three)) == (413, "too-many-runs")


def test_reasons_are_bounded_in_number_and_size_and_counted_all_the_same() -> None:
    bad = [{**record(0), f"m{at}": {"x" * 5000: 1}} for at in range(400)]
    reply = post(client_of(ListSink(), max_reasons=7), lines(*bad))
    told = reply.json()
    assert (reply.status_code, told["accepted"], told["rejected_values"]) == (202, 400, 400)
    assert len(told["reasons"]) == 7
    assert sum(told["rejected_by"].values()) == 400
    assert len(told["rejected_by"]) == 201
    assert len(reply.content) < 40_000


class _SlowSink(ListSink):
    """Waits until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.is_called, self.go = threading.Event(), threading.Event()

    def send(self, messages: Sequence[IntakeMessage]) -> None:
        self.is_called.set()
        assert self.go.wait(30)
        super().send(messages)


def test_bodies_beyond_what_may_wait_are_told_to_come_again() -> None:
    sink = _SlowSink()
    replies: list[Any] = []
    with client_of(sink, max_body_bytes=65_536, max_waiting_bytes=100_000) as client:
        first = threading.Thread(target=lambda: replies.append(post(client, GOOD)))
        first.start()
        assert sink.is_called.wait(30)
        second = post(client, GOOD)
        sink.go.set()
        first.join(30)
        third = post(client, GOOD)
    assert refusal(second) == (503, "intake-unavailable")
    assert second.headers["retry-after"] == "5"
    assert [replies[0].status_code, third.status_code] == [202, 202]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SinkUnavailable("broker away", 1), (503, "intake-unavailable")),
        (SinkRefused("too big"), (413, "too-large")),
    ],
)
def test_what_cannot_be_handed_on_is_told_with_what_was_acknowledged(
    error: SinkUnavailable, expected: tuple[int, str]
) -> None:
    counts = IntakeCounts()
    reply = post(client_of(ListSink(error), counts), GOOD * 3)
    assert refusal(reply) == expected
    assert counts.accepted == 0
    if expected[0] == 503:
        assert reply.headers["retry-after"] == "5"
        assert (reply.json()["acknowledged"], reply.json()["accepted"]) == (1, 0)
        assert "1 of 3 records were acknowledged; send the body again" in reply.json()["detail"]


def test_who_may_not_send_is_turned_away_before_the_body_is_read() -> None:
    from fastapi import FastAPI, HTTPException
    from starlette.testclient import TestClient

    def authorize() -> None:
        raise HTTPException(403)

    def body() -> Iterator[bytes]:
        pytest.fail("the body was asked for")
        yield b""

    app = FastAPI()
    app.include_router(make_intake_router(ListSink(), IntakeConfig(), authorize))
    seen = TestClient(app).post("/v1/telemetry", headers={"content-type": NDJSON}, content=b"")
    assert seen.status_code == 403


@settings(max_examples=60)
@given(
    st.binary(max_size=400),
    st.sampled_from([NDJSON, JSON, ARROW]),
    st.sampled_from(["identity", "gzip", "zstd"]),
    st.booleans(),
)
def test_no_bytes_are_ever_a_bug(body: bytes, content_type: str, codec: str, is_packed: bool) -> None:
    pack: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstandard.compress}
    data = pack[codec](body) if is_packed and codec in pack else body
    reply = post(client_of(ListSink()), data, content_type, {"content-encoding": codec})
    assert reply.status_code in (202, 400, 422)


def test_whatever_becomes_of_a_body_its_bytes_wait_no_longer() -> None:
    sink = ListSink()
    client = client_of(sink, max_body_bytes=65_536, max_waiting_bytes=65_536, body_timeout_s=30.0)
    for body in (GOOD, b"garbage", b"", b"x" * 70_000):
        post(client, body)
        post(client, [body], headers={"content-length": "9"})
        post(client, body, headers={"content-encoding": "gzip"})
    sink.error = SinkUnavailable("away")
    post(client, GOOD)
    sink.error = None
    assert post(client, GOOD).status_code == 202


def test_why_telemetry_cannot_be_kept_is_known_until_it_can() -> None:
    sink, counts = ListSink(SinkUnavailable("the disk is full")), IntakeCounts()
    client = client_of(sink, counts)
    assert post(client, GOOD).status_code == 503 and counts.refusal == "the disk is full"
    assert post(client, b"garbage").status_code == 422 and counts.refusal == "the disk is full"
    sink.error = None
    assert post(client, GOOD).status_code == 202 and counts.refusal == ""

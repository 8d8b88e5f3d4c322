"""Free text is passed over, and what tells something in it is not."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.wire import Defaults
from ingest.scan.dialects import DIALECTS, Dialect
from ingest.scan.kernel_words import compiled_words, mark_lines
from ingest.scan.pieces import COMPILED_FROM_BYTES
from ingest.scan.scanner import TextScanner
from ingest.scan.sentence_table import SENTENCES
from ingest.scan.sentences import Sentence
from ingest.scan.sieve import (
    FREE_SHAPES,
    NAMES,
    PASSED,
    TELLS,
    class_of_bytes,
    meaning_of_shape,
    names_value,
    states,
)
from ingest.scan.tokens import tokenize

PARTS = (
    *(
        b"loss",
        b"Loss",
        b"nan",
        b"inf",
        b"INFO",
        b"NCCL",
        b"xid",
        b"lr",
        b"e",
        b"learning",
        b"rate",
        b"machine",
    ),
    *(
        b"check",
        b"1",
        b"2.5",
        b"1e5",
        b"-",
        b".",
        b"#",
        b" ",
        b"  ",
        b"_",
        b"(",
        b"||",
        b"\xe2\x94\x80",
        b"\xe6\x8d\x9f",
    ),
)


@given(st.lists(st.sampled_from(PARTS), max_size=30).map(b"".join))
def test_the_bytes_of_a_line_tell_what_its_shape_tells(line: bytes) -> None:
    shape = tokenize(line).shape
    told_L = np.empty(1, np.uint8)

    mark_lines(np.frombuffer(line + b"\n", np.uint8), class_of_bytes(), *states(), told_L)

    assert not shape or told_L[0] == meaning_of_shape(shape)


def test_compiled_the_bytes_tell_the_same() -> None:
    rng = random.Random(5)
    lines = [b"".join(rng.choices(PARTS, k=12)) for _ in range(4000)]
    text = np.frombuffer(b"\n".join(lines) + b"\n", np.uint8)
    told_L, compiled_L = np.empty(len(lines), np.uint8), np.empty(len(lines), np.uint8)

    mark_lines(text, class_of_bytes(), *states(), told_L)
    compiled_words()(text, class_of_bytes(), *states(), compiled_L)

    assert told_L.tolist() == compiled_L.tolist()


@pytest.mark.parametrize("known", [*DIALECTS, *SENTENCES], ids=lambda known: str(known.name))
def test_every_example_of_a_dialect_or_sentence_is_looked_at_in_free_text(known: Dialect | Sentence) -> None:
    shape = tokenize(known.example.encode()).shape
    meaning = meaning_of_shape(shape)

    assert meaning == TELLS or (meaning == NAMES and names_value(shape))


@pytest.mark.parametrize(
    "line",
    [b"he stepped aside and went away at 5", b"0000a0f3 d4 1c", b"GET /data/9 HTTP/1.1 200", b"in 7 ways"],
)
def test_prose_is_passed_over(line: bytes) -> None:
    shape = tokenize(line).shape

    assert meaning_of_shape(shape) == PASSED or not names_value(shape)


def prose(rng: random.Random, lines: int) -> bytes:
    """Lines of many shapes, none of which tells anything."""
    words = [f"{first}{second}" for first in "bcdfg" for second in ("ak", "ol", "umi", "ezz")]
    return "".join(" ".join(rng.choices([*words, "7"], k=9)) + "\n" for _ in range(lines)).encode()


@pytest.mark.parametrize("piece_bytes", [1 << 20, COMPILED_FROM_BYTES + (1 << 19)])
def test_records_behind_more_free_text_than_is_looked_at_are_read(piece_bytes: int) -> None:
    rng = random.Random(7)
    text = b"acc: 0.5 time 3 s\n" + 8 * prose(rng, 8 * FREE_SHAPES)
    text += b"acc: 0.75 time 3 s\nstep 7 loss 2.5\n[GPU 3] step 8 loss 2.25 NaN\n12 | 2.0\n"
    scanner = TextScanner(Defaults(run="run", rank=None), "log")

    batches = [scanner.decode(text[at : at + piece_bytes]) for at in range(0, len(text), piece_bytes)]
    last = scanner.finish()
    read = [batch for batch in [*batches, last] if batch is not None and len(batch)]
    columns = [batch.numbers["loss"] for batch in read if "loss" in batch.numbers]
    losses = [value for column in columns for value in column.values_N[column.present_N].tolist()]

    assert len(text) > COMPILED_FROM_BYTES
    assert losses[:2] == [2.5, 2.25]

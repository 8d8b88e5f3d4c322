"""The compiled reader of escape sequences keeps what the regular expressions keep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.scan import escapes
from ingest.scan.escapes import drop_sequences, without_escapes

PARTS = st.sampled_from(
    b"\x1b[32m \x1b[0m \x1b[1A \x1b[K \x1b[ \x1b[38;5;9m \x1b[2 q \x1b[?25l \x1b[1;2H loss 2.5 [0m \n".split(
        b" "
    )
)


@given(st.lists(PARTS, max_size=12).map(b"".join))
def test_the_kernel_keeps_what_the_expressions_keep(data: bytes) -> None:
    kept_B = np.empty(len(data), np.uint8)
    kept = drop_sequences(np.frombuffer(data, np.uint8), kept_B)
    assert (kept == -1 and data.endswith(b"\x1b")) or kept_B[:kept].tobytes() == without_escapes(data)


@pytest.mark.parametrize("other", [b"\x1b]0;title\x07", b"\x1b(B", b"\x1bc", b"\x1b\x1b[0m", b"\x1b"])
def test_another_form_of_escape_is_left_to_the_expressions(other: bytes) -> None:
    data = b"loss 1" + other
    assert drop_sequences(np.frombuffer(data, np.uint8), np.empty(len(data), np.uint8)) == -1


def test_a_large_piece_is_read_compiled_and_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    line = b"\x1b[32mstep 1\x1b[0m loss \x1b[1m2.5\x1b[0m\x1b[1A\n"
    small = without_escapes(line)
    monkeypatch.setattr(escapes, "_LARGE_BYTES", len(line))
    monkeypatch.setattr(escapes, "_seen_bytes", [escapes._COMPILE_AFTER_BYTES])
    assert without_escapes(line * 9) == small * 9
    assert without_escapes(b"\x1b]0;title\x07" + line) == small

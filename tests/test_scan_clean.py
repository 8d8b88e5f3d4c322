"""Bytes of text logs become clean lines, however they are cut, colour, redraw and overrun."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.scan.clean import CleanConfig, Cleaner


def cleaned(*pieces: bytes, config: CleanConfig | None = None) -> list[str]:
    cleaner = Cleaner(config)
    data = b"".join(cleaner.clean(piece) for piece in pieces) + cleaner.finish()
    assert not data or data.endswith(b"\n")
    return [line.decode() for line in data.split(b"\n")[:-1]]


def test_clean_text_is_handed_on_as_it_is() -> None:
    assert cleaned(b"step 1\tloss 2\nstep 2\tlo", b"ss 3\n") == ["step 1\tloss 2", "step 2\tloss 3"]


def test_a_carriage_return_before_a_newline_is_one_line_end_also_across_pieces() -> None:
    assert cleaned(b"a\r\nb\r", b"\nc\r\n") == ["a", "b", "c"]


def test_every_redraw_of_a_bar_is_a_line() -> None:
    assert cleaned(b" 1/3 loss=2.0\r 2/3 loss=1.5\r", b" 3/3 loss=1.2\n") == [
        " 1/3 loss=2.0",
        " 2/3 loss=1.5",
        " 3/3 loss=1.2",
    ]


@pytest.mark.parametrize(
    "raw",
    [
        b"\x1b[1mINFO \x1b[22m| \x1b[38;5;12mloss\x1b[0m 2",
        b"\x1b]0;title of the window\x07INFO | loss 2",
        b"\x1b(BINFO |\x1b[K loss 2",
        b"^[[32mINFO |^[[0m loss 2",
        b"\\u001b[32mINFO |\\u001b[0m loss 2",
        b"[32mINFO |[0m loss 2",
        b"\x00\x00INFO | lo\x01ss 2\x7f",
    ],
)
def test_colours_titles_and_control_bytes_leave_the_words(raw: bytes) -> None:
    assert cleaned(raw + b"\n") == ["INFO | loss 2"]


def test_a_cleared_screen_and_a_moved_cursor_begin_a_new_line() -> None:
    assert cleaned(b"step 1\x1b[H\x1b[2Jstep 2\x1b[Astep 3\n") == ["step 1", "", "step 2", "step 3"]


def test_square_brackets_in_front_of_an_m_are_no_colour_where_none_ends() -> None:
    assert cleaned(b"took [10m 5s], eta [3m]\n") == ["took [10m 5s], eta [3m]"]


def test_many_backspaces_redraw_the_line_and_few_take_characters_back() -> None:
    bar = b" 1/9 - loss: 2" + b"\b" * 14 + b" 2/9 - loss: 1\n"
    assert cleaned(bar) == [" 1/9 - loss: 2", " 2/9 - loss: 1"]
    assert cleaned("done 5%\b\b7%, é\bx\n".encode()) == ["done 7%, x"]


def test_backspaces_take_nothing_from_the_line_before() -> None:
    assert cleaned(b"ab\n\b\bc\n") == ["ab", "c"]


def test_a_message_glued_to_a_bar_and_two_bars_on_a_line_come_apart() -> None:
    assert cleaned(
        b" 14%|#4     | 378/2600 [10:30:00<61:43:20, 100.00s/it][2025-02-11 08:30:00] OVERFLOW!\n"
        b"Steps:  0%|   | 1/20 [00:14<8:16, 14.8s/it, step_loss=nan, td=2.8s]{'loss': 2.0}\n"
        b"  0%|  | 0/10 [00:00<?, ?it/s] 10%|# | 1/10 [00:01<00:09, 1.0it/s]\n"
        b"37it [00:10,  3.5it/s]done\n"
    ) == [
        " 14%|#4     | 378/2600 [10:30:00<61:43:20, 100.00s/it]",
        "[2025-02-11 08:30:00] OVERFLOW!",
        "Steps:  0%|   | 1/20 [00:14<8:16, 14.8s/it, step_loss=nan, td=2.8s]",
        "{'loss': 2.0}",
        "  0%|  | 0/10 [00:00<?, ?it/s] ",
        "10%|# | 1/10 [00:01<00:09, 1.0it/s]",
        "37it [00:10,  3.5it/s]",
        "done",
    ]


def test_an_overlong_line_is_cut_at_a_blank_and_counted_once() -> None:
    config = CleanConfig(max_line_bytes=64)
    line = b"loss 1.25 " * 30
    cleaner = Cleaner(config)
    out = cleaner.clean(line[:150]) + cleaner.clean(line[150:] + b"\nshort\n")
    parts = out.split(b"\n")[:-1]
    assert cleaner.cut_lines == 1
    assert b"".join(parts[:-1]) == line
    assert parts[-1] == b"short"
    assert all(len(part) <= 64 and part.startswith((b"loss", b"1.25")) for part in parts[:-1])


def test_a_file_without_line_ends_does_not_fill_the_memory() -> None:
    cleaner = Cleaner()
    size = sum(len(cleaner.clean(b"x" * 10_000)) for _ in range(300))
    assert size >= 3_000_000 - (1 << 16)


_BYTES = st.lists(
    st.sampled_from(
        [
            b"\r",
            b"\n",
            b"\x1b",
            b"\x1b[2J",
            b"\x1b[0m",
            b"[0m",
            b"\b",
            b"\b" * 9,
            b"1/2 [0s, 1it/s]",
            b"\0",
            b"a ",
        ]
    )
    | st.binary(max_size=80),
    max_size=30,
).map(b"".join)


@settings(max_examples=100, deadline=None)
@given(data=_BYTES, cuts=st.lists(st.integers(0, 400), max_size=6))
def test_the_lines_do_not_depend_on_how_the_bytes_are_cut(data: bytes, cuts: list[int]) -> None:
    config = CleanConfig(max_line_bytes=64)
    whole, parts = Cleaner(config), Cleaner(config)
    borders = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    expected = whole.clean(data) + whole.finish()
    pieces = [data[start:stop] for start, stop in pairwise(borders)]
    got = b"".join(parts.clean(piece) for piece in pieces) + parts.finish()
    assert got == expected
    assert parts.cut_lines == whole.cut_lines
    assert not any(byte < 0x20 and byte not in b"\t\n" for byte in got)

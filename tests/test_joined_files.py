"""Files that are one log together, and texts that are packed or of another encoding."""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.encodings import as_8_bit, to_utf8, wide_encoding

from .file_builders import read_all, rows_of, source_of, values_of
from .tracker_builders import event_file

TABLE = "step,loss\n" + "".join(f"{step},{2 - step / 100}\n" for step in range(50))


def rows(first: int, last: int) -> str:
    return "step,loss\n" + "".join(f"{step},1.5\n" for step in range(first, last))


def test_rotated_pieces_are_read_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(rows(60, 90))
    (tmp_path / "train.csv.1").write_text(rows(30, 60))
    (tmp_path / "train.csv.2.gz").write_bytes(gzip.compress(rows(0, 30).encode()))
    source = source_of(tmp_path)

    assert [row[2] for row in rows_of(read_all(source))] == list(range(90))
    assert "goes on in train.csv.1, train.csv" in source.notes[0].remarks


def test_half_a_line_at_the_end_of_a_piece_does_not_spoil_the_next(tmp_path: Path) -> None:
    (tmp_path / "attempt_0.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    (tmp_path / "attempt_1.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n')

    batch = read_all(source_of(tmp_path))

    assert [row[2] for row in rows_of(batch)] == [1, 1, 2]
    assert len(batch.rejected) == 1


def test_of_two_streams_the_one_with_the_loss_is_read(tmp_path: Path) -> None:
    (tmp_path / "run.out").write_text("step,speed\n" + "".join(f"{step},7\n" for step in range(50)))
    (tmp_path / "run.err").write_text(TABLE)
    source = source_of(tmp_path)

    batch = read_all(source)

    assert set(batch.numbers) == {"loss"}
    assert any("values are taken from run.err" in remark for note in source.notes for remark in note.remarks)


def test_a_stream_with_nothing_in_it_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "run.out").write_text(TABLE)
    (tmp_path / "run.err").write_text("")

    assert len(read_all(source_of(tmp_path))) == 50


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_text_of_any_width_is_read(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(TABLE.encode(codec))

    assert [row[2] for row in rows_of(read_all(source_of(path)))] == list(range(50))


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_a_packed_file_of_any_format_is_read(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    (tmp_path / "t.csv.x").write_bytes(pack(TABLE.encode("utf-16")))
    (tmp_path / "e.x").write_bytes(pack(event_file([("loss", step, 1.0) for step in range(9)])))

    assert len(read_all(source_of(tmp_path / "t.csv.x"))) == 50
    assert len(read_all(source_of(tmp_path / "e.x"))) == 9


def test_space_that_was_never_written_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    line = b'{"step": 1, "loss": 2.0}\n'
    path.write_bytes(line + bytes(5000) + line.replace(b"1,", b"2,") + bytes(1 << 20))

    batch = read_all(source_of(path))

    assert values_of(batch, "loss") == [2.0, 2.0]
    assert not batch.rejected


@given(st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"])), st.integers(1, 7))
def test_wide_text_is_the_same_however_it_is_cut(text: str, size: int) -> None:
    raw = text.encode("utf-16-le")
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]

    assert b"".join(to_utf8(iter(pieces), "utf-16-le")).decode() == text.removeprefix("\ufeff")


@given(st.binary())
def test_every_byte_has_a_meaning_in_8_bits(data: bytes) -> None:
    assert as_8_bit(as_8_bit(data)) == as_8_bit(data)
    wide_encoding(data)


def test_a_table_of_8_bits_keeps_the_names_of_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("step,loss,durée\n1,2.0,3.5\n2,1.0,3.5\n".encode("latin-1"))

    assert values_of(read_all(source_of(path)), "durée") == [3.5, 3.5]


def test_lines_of_other_loggers_may_be_of_8_bits_and_ours_not(tmp_path: Path) -> None:
    foreign, own = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    foreign.write_bytes('{"step": 1, "loss": 2.0, "note": "durée"}\n'.encode("latin-1") * 3)
    own.write_bytes(b'{"run": "r", "rank": 0, "iteration": 1, "loss": 2.0}\n' * 2)
    own.write_bytes(
        own.read_bytes() + '{"run": "r", "rank": 0, "iteration": 2, "note": "é"}\n'.encode("latin-1")
    )

    assert values_of(read_all(source_of(foreign)), "loss") == [2.0] * 3
    assert len(read_all(source_of(own)).rejected) == 1


def test_a_hole_at_the_front_of_a_log_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(bytes(1 << 20) + TABLE.encode())

    assert len(read_all(source_of(path))) == 50


RECORDS = "".join(f"step: {step} loss: {2 - step / 500:.4f} grad_norm: 1.0\n" for step in range(100))


@pytest.mark.parametrize(
    ("said", "iteration"),
    [
        ("FloatingPointError: Loss became infinite or NaN at iteration=100!\n", 100),
        ("FloatingPointError: Loss became infinite or NaN at iteration=60!\n", 60),
        ("a warning\nLoss is nan, stopping training\n", 100),
    ],
)
def test_the_end_that_is_told_on_the_error_stream_alone_is_not_lost(
    tmp_path: Path, said: str, iteration: int
) -> None:
    (tmp_path / "run.out").write_text(RECORDS)
    (tmp_path / "run.err").write_text(said)

    batch = read_all(source_of(tmp_path))

    bad = [
        row[2]
        for row, value in zip(rows_of(batch), values_of(batch, "loss"), strict=True)
        if value is not None and not math.isfinite(value)
    ]
    assert (len(batch), bad) == (101, [iteration])


def test_a_bar_on_the_error_stream_adds_no_value(tmp_path: Path) -> None:
    (tmp_path / "run.out").write_text(RECORDS)
    bars = "".join(f"\r{step}%|##| {step}/100 [00:10<00:10, 1.2it/s, loss=9.{step}]" for step in range(100))
    (tmp_path / "run.err").write_text(bars + "\n")

    batch = read_all(source_of(tmp_path))

    assert values_of(batch, "loss") == [float(f"{2 - step / 500:.4f}") for step in range(100)]


def test_a_rank_that_only_says_its_end_says_it_where_the_others_are(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text(RECORDS)
    (tmp_path / "rank1.log").write_text(RECORDS)
    (tmp_path / "rank2.log").write_text("starting\nLoss is nan, stopping training\n")

    batch = read_all(source_of(tmp_path))

    assert [row for row in rows_of(batch) if row[1] == 2] == [(0, 2, 100)]

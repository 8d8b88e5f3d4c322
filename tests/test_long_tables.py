"""Tables with a row for each value (``step,name,value``) become the records that the names make together."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.wire import Defaults
from ingest.errors import UnreadableInput
from ingest.file_reader import FileConfig
from ingest.line_formats import line_decoder
from ingest.sniff import Format

from .file_builders import read_all, source_of, values_of

HEADS = (
    ("step", "name", "value"),
    ("key", "_step", "val"),
    ("run_id", "metric", "step", "timestamp", "value"),
    ("metricName", "metricValue", "step"),
    ("metric.name", "step", "value"),
)


def table(head: tuple[str, ...], *, nan_from: int = 99, steps: int = 20) -> str:
    """Loss and rate by step under the names of ``head``."""
    lines = [",".join(head)]
    for step in range(steps):
        for name, value in (
            ("train_loss", "nan" if step >= nan_from else f"{3 - step / 50}"),
            ("lr", "0.001"),
        ):
            cells = {"step": str(step), "_step": str(step), "run_id": "abc", "timestamp": "1764470000250"}
            own = [
                cells.get(each) or (value if each in ("value", "val", "metricValue") else name)
                for each in head
            ]
            lines.append(",".join(own))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("head", HEADS, ids=[" ".join(head) for head in HEADS])
def test_values_of_one_step_become_one_record(head: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(table(head, nan_from=15))

    source = source_of(path)
    batch = read_all(source)

    assert batch.iteration_N.tolist() == list(range(20))
    assert [value is not None and math.isnan(value) for value in values_of(batch, "loss")] == [False] * 15 + [
        True
    ] * 5
    assert values_of(batch, "lr") == [0.001] * 20
    assert ("train_loss", "loss") in source.notes[0].understood.columns


def test_runs_in_one_table_are_told_apart(tmp_path: Path) -> None:
    lines = [f"{run},loss,{step},{2 + step / 10}" for step in range(10) for run in ("a", "b")]
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["run,metric,step,value", *lines]) + "\n")

    batch = read_all(source_of(path))

    assert sorted(batch.runs) == ["a", "b"]
    assert len(batch) == 20


def test_a_table_whose_names_are_all_different_is_no_long_one(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(
        "step,name,loss,value\n" + "".join(f"{at},sample{at},{3 - at / 9},1.5\n" for at in range(20))
    )

    source = source_of(path)
    read_all(source)

    assert source.notes[0].understood.format == "table"


def test_bad_rows_are_rejected_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(table(HEADS[0]) + "20,loss\nx,train_loss,1\n21,train_loss,abc\n22,train_loss,\n")

    batch = read_all(source_of(path))

    assert len(batch) == 20
    assert [bytes(each.raw).decode() for each in batch.rejected] == [
        "20,loss",
        "x,train_loss,1",
        "21,train_loss,abc",
    ]


@given(st.binary(max_size=300), st.integers(0, 200))
def test_no_bytes_crash_it_and_it_does_not_matter_how_they_are_cut(rows: bytes, at: int) -> None:
    head = table(HEADS[0]).encode()

    def read(pieces: list[bytes]) -> str:
        decoder = line_decoder(Format.TABLE, head, Defaults(run="r", rank=None), "x.csv", FileConfig())
        for piece in pieces:
            decoder.decode(piece)
        try:
            rest = decoder.finish()
        except UnreadableInput as error:
            return str(error)
        assert rest is not None
        return repr((rest.iteration_N.tolist(), sorted(rest.numbers), rest.rejected))

    lines = (head + rows).split(b"\n")
    whole, cut = [line + b"\n" for line in lines], min(at, len(lines))
    assert read([b"".join(whole)]) == read([b"".join(whole[:cut]), b"".join(whole[cut:])])

"""Parquet from outside: read in a child, whose death is an answer and not ours."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from firstfault.wire import Defaults
from ingest.arrow_stream import SLICE_ROWS, table_from_batch
from ingest.blocks import RecordBatch
from ingest.decode import DecodeConfig, Decoder
from ingest.errors import UnreadableInput
from ingest.joining import concatenate
from ingest.parquet_file import ParquetConfig, iter_parquet

from .wire_builders import same, uniform_lines

CONFIG = DecodeConfig()
STEM = Defaults("job", -1)


def read(path: Path, limits: ParquetConfig | None = None) -> list[RecordBatch]:
    return list(iter_parquet(path, CONFIG, STEM, limits or ParquetConfig()))


def write_sample(path: Path, rows: int = 200) -> Path:
    steps = np.arange(rows)
    parquet.write_table(pa.table({"step": steps, "loss": steps * 0.5, "host": ["a"] * rows}), path)
    return path


def test_our_columns_come_back_from_parquet_to_the_bit(tmp_path: Path) -> None:
    data = uniform_lines(100, param_checksum="ab" * 16, host="n1", grad_norm="NaN", time=1.5)
    batch = Decoder().decode_lines(data, "f", 0)
    parquet.write_table(pa.Table.from_batches([table_from_batch(batch)]), tmp_path / "job.parquet")
    assert same(concatenate(read(tmp_path / "job.parquet")), batch)


def test_a_large_file_comes_in_slices_and_bad_rows_carry_their_number(tmp_path: Path) -> None:
    rows = SLICE_ROWS + 10
    steps = np.arange(rows)
    steps[-1] = -1
    parquet.write_table(pa.table({"step": steps, "loss": np.ones(rows)}), tmp_path / "job.parquet")
    batches = read(tmp_path / "job.parquet")
    assert [len(batch) for batch in batches] == [SLICE_ROWS, 9]
    assert [(rejected.field, rejected.offset) for rejected in batches[1].rejected] == [("step", rows - 1)]


def test_files_of_polars_are_read_and_nested_columns_are_one_rejected_value(tmp_path: Path) -> None:
    frame = pl.DataFrame({"step": [1, 2], "loss": [1.0, float("nan")], "odd": [[1], [2]], "a.b": [1, 2]})
    frame.write_parquet(tmp_path / "job.parquet")
    batch = concatenate(read(tmp_path / "job.parquet"))
    assert set(batch.numbers) == {"loss", "a.b"} and np.isnan(batch.numbers["loss"].values_N[1])
    assert [(rejected.field, rejected.whole) for rejected in batch.rejected] == [("odd", False)]


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"random bytes that are no Parquet", b"PAR1" + b"\xff" * 99 + b"PAR1"]
)
def test_a_file_that_is_not_parquet_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "job.parquet"
    path.write_bytes(content)
    with pytest.raises(UnreadableInput, match=r"job\.parquet: not a readable Parquet file: \S"):
        read(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="missing"):
        read(tmp_path / "missing.parquet")


CHILDREN = {
    "os.abort()": "ended by SIGABRT",
    "sys.exit(7)": "ended with status 7",
    "sys.stderr.write('broken page'); sys.exit(1)": "broken page",
    "sys.stdout.buffer.write(b'\\xff' * 8)": "must take at most",
    "sys.stdout.buffer.write((9).to_bytes(8, 'big') + b'123')": "not a readable Parquet file",
    "sys.stdout.buffer.write((9).to_bytes(8, 'big') + b'123456789')": "damaged columns",
    "time.sleep(60)": "must give a piece every",
}


@pytest.mark.parametrize(("code", "said"), CHILDREN.items())
def test_whatever_the_child_does_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    script = tmp_path / "child.py"
    script.write_text(f"import os, sys, time\n{code}\n")
    monkeypatch.setattr("ingest.parquet_child.__file__", str(script))
    with pytest.raises(UnreadableInput, match=said):
        read(write_sample(tmp_path / "job.parquet"), ParquetConfig(silence_s=2.0))


def test_a_file_that_needs_more_memory_than_allowed_is_refused(tmp_path: Path) -> None:
    table = pa.table({"step": [1], "host": ["x" * 200_000_000]})
    path = tmp_path / "job.parquet"
    parquet.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(UnreadableInput, match=r"job\.parquet: not a readable Parquet file: .*alloc"):
        read(path, ParquetConfig(memory_bytes=700 << 20))


def test_leaving_early_ends_the_child(tmp_path: Path) -> None:
    pieces = iter_parquet(write_sample(tmp_path / "job.parquet", SLICE_ROWS * 3), CONFIG, STEM)
    next(pieces)
    pieces.close()  # type: ignore[attr-defined] # it is a generator
    gc.collect()  # a child that was left running warns here, and a warning is an error


def test_mutated_files_never_raise_anything_else(tmp_path: Path) -> None:
    seed = write_sample(tmp_path / "seed.parquet").read_bytes()
    rng, path, read_rows = random.Random(5), tmp_path / "mutant.parquet", 0
    for _ in range(12):  # each starts a process; mutants of the columns themselves are in test_arrow_stream
        data = bytearray(seed)
        for _ in range(rng.choice([1, 4, 32])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            read_rows += sum(len(batch) for batch in read(path))
        except UnreadableInput as error:
            assert "mutant.parquet" in str(error)
    assert read_rows < 12 * 200  # the damage was seen

"""A job's files as a source: formats, order, attempts, notes, progress, following."""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from firstfault.telemetry import UNNAMED_RANK, Record
from firstfault.wire import encode_record
from ingest.arrow_stream import arrow_from_batch
from ingest.blocks import RecordBatch
from ingest.columns import batch_from_records
from ingest.errors import UnreadableInput
from ingest.file_order import OrderConfig
from ingest.file_reader import FileConfig
from ingest.file_source import FileSource
from ingest.file_stream import StreamConfig
from ingest.jobs import find_jobs

from .file_builders import read_all, read_files, rows_of, source_of, stdin_source, values_of

TINY = StreamConfig(head_cells=500, order=OrderConfig(part_cells=2000, piece_cells=300))
"""A head and parts so small that files of some hundred rows take the way of the largest."""
SMALL_PIECES = FileConfig(piece_bytes=2000)

TABLE = "iteration,loss\n" + "".join(f"{i},{i / 8}\n" for i in range(50))
LINES = "".join(f'{{"step":{i},"loss":{i / 8}}}\n' for i in range(50))


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def lines_of(rows: list[tuple[int, int, float]]) -> str:
    """JSON lines of (rank, iteration, loss), with a rank but no run: not our own wire format."""
    return "".join(f'{{"rank":{rank},"step":{i},"loss":{loss}}}\n' for rank, i, loss in rows)


def arrow_bytes(count: int) -> bytes:
    records = [Record(run="r", rank=0, iteration=i, metrics={"loss": i / 8}) for i in range(count)]
    return arrow_from_batch(batch_from_records(records))


def parquet_file(path: Path, count: int) -> Path:
    import polars as pl

    pl.DataFrame({"step": range(count), "loss": [i / 8 for i in range(count)]}).write_parquet(path)
    return path


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("t.csv", TABLE.encode),
        ("t.jsonl", LINES.encode),
        ("t.csv.gz", lambda: gzip.compress(TABLE.encode())),
        ("t.jsonl.gz", lambda: gzip.compress(LINES.encode())),
        ("t.jsonl.zst", lambda: zstandard.compress(LINES.encode())),
        ("t.log", lambda: b"\xef\xbb\xbf" + TABLE.encode()),
        ("t.tsv", lambda: TABLE.replace(",", "\t").replace("\n", "\r\n").encode()),
        ("old_mac.csv", lambda: TABLE.replace("\n", "\r").encode()),
        ("no_newline.jsonl", lambda: LINES.rstrip().encode()),
        ("t.arrow", lambda: arrow_bytes(50)),
    ],
)
def test_each_format_gives_the_same_records(tmp_path: Path, name: str, make: Callable[[], bytes]) -> None:
    path = tmp_path / name
    path.write_bytes(make())

    batch = read_files(path)

    assert batch.iteration_N.tolist() == list(range(50))
    assert values_of(batch, "loss") == [i / 8 for i in range(50)]


def test_parquet_of_others_is_read_with_its_stem_as_run(tmp_path: Path) -> None:
    batch = read_files(parquet_file(tmp_path / "exp.parquet", 50))

    assert values_of(batch, "loss") == [i / 8 for i in range(50)]
    assert (batch.runs, set(batch.rank_N.tolist())) == (("exp",), {UNNAMED_RANK})


def test_the_bytes_decide_and_not_the_name(tmp_path: Path) -> None:
    source = source_of(write(tmp_path / "misnamed.jsonl", TABLE))

    assert len(read_all(source)) == 50
    assert source.notes[0].understood.format == "table"


def test_standard_input_is_read_like_a_file() -> None:
    batch = read_all(stdin_source(gzip.compress(LINES.encode())))

    assert batch.iteration_N.tolist() == list(range(50))
    assert batch.runs == ("stdin",)


def test_standard_input_sorted_by_rank_is_put_in_order() -> None:
    rows = [(rank, i, 1.0) for rank in range(4) for i in range(200)]

    batch = read_all(stdin_source(lines_of(rows).encode()))

    assert rows_of(batch) == [(0, rank, i) for i in range(200) for rank in range(4)]


def test_the_temporary_copy_of_standard_input_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    source = stdin_source(LINES.encode())
    source.poll(0.0)
    source.close()

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", os.urandom(5000), bytes(range(256)) * 20, b"no log at all\n" * 9]
)
@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet", "x.arrow", "x.gz"])
def test_an_empty_or_random_file_is_unreadable_and_says_so_in_one_line(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(UnreadableInput) as caught:
        read_files(path)

    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "head", [b"PAR1", b"ARROW1\0\0", b"\xff\xff\xff\xff\x10\0\0\0", b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd"]
)
def test_a_file_that_only_begins_like_a_format_is_unreadable(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(head + bytes(range(200)) * 5)

    with pytest.raises(UnreadableInput, match=r"x\.bin"):
        read_files(path)


def test_lines_that_are_all_rejected_are_handed_out_and_then_unreadable(tmp_path: Path) -> None:
    source = source_of(write(tmp_path / "x.jsonl", '{"step":-1}\n{"step":1e300}\n'))

    (batch,) = source.poll(0.0)
    assert len(batch.rejected) == 2
    with pytest.raises(UnreadableInput, match="all 2 lines"):
        source.poll(0.0)
    assert source.is_exhausted


def test_garbage_among_good_lines_costs_itself_alone(tmp_path: Path) -> None:
    lines = LINES.splitlines()
    lines[10:10] = [
        "[" * 5000,
        "x" * 2_000_000,
        '{"step":9223372036854775808,"loss":1}',
        '{"step":1e300}',
        "\x00\x01",
    ]
    source = source_of(write(tmp_path / "x.jsonl", "\n".join(lines)))

    batch = read_all(source)

    assert batch.iteration_N.tolist() == list(range(50))
    assert [why.offset for why in batch.rejected] == [10, 11, 12, 13, 14]
    assert source.notes[0].rejected == 5


@pytest.mark.parametrize(
    "text", [LINES + "x" * 9_000_000 + "\n" + LINES.replace('"step":', '"step":1'), LINES + "x" * 20_000_000]
)
def test_a_line_without_end_does_not_take_the_rest_with_it(tmp_path: Path, text: str) -> None:
    batch = read_files(write(tmp_path / "x.jsonl", text), config=FileConfig(piece_bytes=100_000))

    assert len(batch) == text.count("step")
    assert len(batch.rejected) == 1


def test_ranks_in_file_names_are_the_default_and_files_are_merged(tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path / f"job-rank_{rank}.csv", TABLE)

    batch = read_files(tmp_path)

    assert rows_of(batch) == [(0, rank, i) for i in range(50) for rank in range(3)]
    assert batch.runs == ("job",)


def test_an_unreadable_file_of_a_job_does_not_lose_the_others(tmp_path: Path) -> None:
    write(tmp_path / "rank0.csv", TABLE)
    write(tmp_path / "rank1.csv", "")
    source = source_of(tmp_path)

    assert len(read_all(source)) == 50
    assert "not read" in source.notes[1].remarks[0]


@pytest.mark.parametrize("stream", [None, TINY])
@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "parquet"])
def test_a_file_sorted_by_rank_is_put_in_order_whatever_its_size(
    tmp_path: Path, stream: StreamConfig | None, ending: str
) -> None:
    rows = [(rank, i, 1.0) for rank in range(4) for i in range(300)]
    path = tmp_path / f"x.{ending}"
    if ending == "parquet":
        import polars as pl

        pl.DataFrame(rows, schema=["rank", "step", "loss"], orient="row").write_parquet(
            path, row_group_size=100
        )
    else:
        text = lines_of(rows).encode()
        path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)

    batch = read_files(path, config=SMALL_PIECES, stream=stream)

    assert rows_of(batch) == [(0, rank, i) for i in range(300) for rank in range(4)]


@pytest.mark.parametrize("stream", [None, TINY])
@pytest.mark.parametrize("order", ["newest first", "none"])
def test_a_file_in_another_order_is_sorted(tmp_path: Path, stream: StreamConfig | None, order: str) -> None:
    iterations = list(range(1000))[::-1]
    if order == "none":
        np.random.default_rng(3).shuffle(iterations)
    text = "step,loss\n" + "".join(f"{i},{i / 7}\n" for i in iterations)
    source = source_of(write(tmp_path / "x.csv", text), config=SMALL_PIECES, stream=stream)

    assert rows_of(read_all(source)) == [(0, UNNAMED_RANK, i) for i in range(1000)]
    assert "goes back" in source.notes[0].remarks[0]


def test_a_shuffle_within_the_lateness_bound_passes_as_it_is(tmp_path: Path) -> None:
    order = np.argsort(np.arange(500) + np.random.default_rng(5).uniform(0, 60, 500)).tolist()
    text = "step,loss\n" + "".join(f"{i},{i / 7}\n" for i in order)

    assert read_files(write(tmp_path / "x.csv", text)).iteration_N.tolist() == order


@pytest.mark.parametrize("stream", [None, TINY])
def test_a_restart_is_a_new_attempt_and_attempts_come_in_order(
    tmp_path: Path, stream: StreamConfig | None
) -> None:
    rows = [(rank, i, 1.0) for i in range(200) for rank in range(2)]
    rows += [(rank, i, 2.0) for i in range(150, 300) for rank in range(2)]

    batch = read_files(write(tmp_path / "x.jsonl", lines_of(rows)), config=SMALL_PIECES, stream=stream)

    expected = [(0, rank, i) for i in range(200) for rank in range(2)]
    assert rows_of(batch) == expected + [(1, rank, i) for i in range(150, 300) for rank in range(2)]


def wire(rows: list[tuple[int, int]], *, says_attempt: bool) -> str:
    lines = [
        encode_record(Record(run="w", rank=rank, iteration=i, metrics={"loss": 1.0})) for rank, i in rows
    ]
    text = "".join(line + "\n" for line in lines)
    return text if says_attempt else text.replace('"attempt":0,', "")


def test_wire_lines_that_say_their_attempt_keep_it(tmp_path: Path) -> None:
    rows = [(0, i) for i in range(200)] + [(0, i) for i in range(200)]

    batch = read_files(write(tmp_path / "x.jsonl", wire(rows, says_attempt=True)))

    assert set(batch.attempt_N.tolist()) == {0}


def test_wire_lines_that_never_say_it_restart_by_a_far_fall(tmp_path: Path) -> None:
    rows = [(0, i) for i in range(200)] + [(0, i) for i in range(100)]

    batch = read_files(write(tmp_path / "x.jsonl", wire(rows, says_attempt=False)))

    assert batch.attempt_N.tolist() == [0] * 200 + [1] * 100


@pytest.mark.parametrize("piece_bytes", [100, 1000, 1 << 20])
def test_pieces_do_not_change_what_is_read(tmp_path: Path, piece_bytes: int) -> None:
    rows = [(rank, i, float(i % 3)) for i in [*range(120), *range(60, 150)] for rank in range(2)]
    table = "rank,step,loss\n" + "".join(f"{rank},{i},{loss}\n" for rank, i, loss in rows)
    path = write(tmp_path / "x.csv", table)

    batch = read_files(path, config=FileConfig(piece_bytes=piece_bytes))

    whole = read_files(path)
    assert rows_of(batch) == rows_of(whole)
    assert values_of(batch, "loss") == values_of(whole, "loss")


def test_counters_that_restart_in_every_epoch_are_one_attempt(tmp_path: Path) -> None:
    text = "epoch,iter,loss\n" + "".join(
        f"{e},{i},{i / 9}\n" for e in range(1, 5) for i in range(10, 101, 10)
    )
    source = source_of(write(tmp_path / "x.csv", text))

    batch = read_all(source)

    assert batch.iteration_N.tolist() == list(range(10, 401, 10))
    assert set(batch.attempt_N.tolist()) == {0}
    assert "epoch × 100" in source.notes[0].remarks[0]


def test_epochs_of_different_length_are_counted_on(tmp_path: Path) -> None:
    text = "".join(
        f'{{"epoch":{e},"iter":{i},"loss":{i / 9}}}\n'
        for e, length in enumerate((50, 70, 60))
        for i in range(length)
    )
    source = source_of(write(tmp_path / "x.jsonl", text))

    assert read_all(source).iteration_N.tolist() == list(range(180))
    assert "different length" in source.notes[0].remarks[-1]


@pytest.mark.parametrize(
    ("line", "counter", "iterations"),
    [
        ('{"current_steps":1%d,"train_loss":2.5}', "current_steps", [10, 11, 12]),
        ('{"Step" : %d, "train_loss":2.5}', "Step", [0, 1, 2]),
        ('{"epoch":%d,"train_loss":2.5}', "epoch", [0, 1, 2]),
        ('{"epoch":0.%d,"train_loss":2.5}', "row number", [0, 1, 2]),
        ('{"train_loss":2.5%d}', "row number", [0, 1, 2]),
    ],
)
def test_json_lines_of_others_are_read_by_their_own_counter(
    tmp_path: Path, line: str, counter: str, iterations: list[int]
) -> None:
    source = source_of(write(tmp_path / "x.jsonl", "".join(line % i + "\n" for i in range(3))))

    batch = read_all(source)

    assert batch.iteration_N.tolist() == iterations
    assert len(values_of(batch, "loss")) == 3
    assert source.notes[0].understood.counter == counter


def test_notes_say_what_was_understood(tmp_path: Path) -> None:
    text = "Epoch,loss,lr\n0,2.0,0.1\n1,nan,nan\nx,2.0,0.1\n3,1.0,0.1\n"
    source = source_of(write(tmp_path / "x.csv", text))

    read_all(source)

    (notes,) = source.notes
    assert (notes.understood.format, notes.rows, notes.rejected, notes.understood.padding) == (
        "table",
        2,
        1,
        1,
    )
    assert (notes.understood.counter, notes.metrics) == ("Epoch", ("loss", "lr"))
    assert "epoch" in notes.remarks[0]


def test_a_table_of_padding_alone_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="padding"):
        read_files(write(tmp_path / "x.csv", "step,loss,lr\n1,nan,nan\n2,nan,nan\n"))


def test_nan_and_infinity_survive_every_text_format(tmp_path: Path) -> None:
    table = write(tmp_path / "a.csv", "step,loss\n1,nan\n2,-inf\n3,\n4,1\n")
    lines = write(
        tmp_path / "b.jsonl", '{"step":1,"loss":NaN}\n{"step":2,"loss":"-Infinity"}\n{"step":3,"loss":null}\n'
    )

    for path in (table, lines):
        nan, infinite, missing, *_ = values_of(read_files(path), "loss")
        assert nan is not None and math.isnan(nan)
        assert (infinite, missing) == (-math.inf, None)


def test_a_cut_gzip_file_is_judged_up_to_the_cut(tmp_path: Path) -> None:
    rows = "".join(f'{{"step":{i},"loss":{hash((i, 1)) % 10007}}}\n' for i in range(20_000))
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(rows.encode())[:-2000])
    source = source_of(path)

    batch = read_all(source)

    assert 1000 < len(batch) < 20_000
    assert "judged" in source.notes[0].remarks[0]


def test_progress_ends_at_the_size_of_the_files(tmp_path: Path) -> None:
    source = source_of(write(tmp_path / "x.csv", TABLE))
    read_all(source)

    assert source.progress.read_bytes == source.progress.total_bytes == len(TABLE)


def follow(path: Path) -> FileSource:
    (job,) = find_jobs([path])
    return FileSource(job, follow=True)


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def polled(source: FileSource) -> list[int]:
    batches: list[RecordBatch] = source.poll(0.0)
    return [iteration for batch in batches for iteration in batch.iteration_N.tolist()]


def test_following_reads_complete_lines_as_they_come(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"step":1,"loss":2}\n{"step":2,')
    source = follow(path)

    assert polled(source) == [1]
    append(path, '"loss":1}\n{"step":3,"loss":1}\n')
    assert polled(source) == [2, 3]
    assert polled(source) == []
    assert not source.is_exhausted
    assert source.position() == {str(path): path.stat().st_size}
    source.close()


def test_a_followed_table_waits_for_its_first_row(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "step,loss\n")
    source = follow(path)

    assert polled(source) == []
    append(path, "1,2.0\n2,")
    assert polled(source) == [1]
    append(path, "1.5\n")
    assert polled(source) == [2]
    source.close()


def test_a_followed_file_that_was_cut_or_replaced_is_begun_anew(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"step":1,"loss":2}\n{"step":2,"loss":2}\n')
    source = follow(path)
    assert polled(source) == [1, 2]

    path.write_text('{"step":7,"loss":2}\n')
    assert polled(source) == [7]
    path.rename(tmp_path / "x.jsonl.1")
    write(path, '{"step":8,"loss":2}\n')
    assert polled(source) == [8]
    assert len(source.notes[0].remarks) == 2
    source.close()


def test_a_followed_restart_is_a_new_attempt(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", "".join(f'{{"step":{i},"loss":2}}\n' for i in range(200)))
    source = follow(path)
    source.poll(0.0)
    append(path, '{"step":10,"loss":2}\n')

    (batch,) = source.poll(0.0)

    assert rows_of(batch) == [(1, UNNAMED_RANK, 10)]
    source.close()


def test_a_packed_file_cannot_be_followed(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(LINES.encode()))

    source = follow(path)
    with pytest.raises(UnreadableInput, match="plain text"):
        source.poll(0.0)
    source.close()


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    import tracemalloc

    peaks = []
    for rows in (20_000, 200_000, 700_000):  # the first loads what is loaded once
        path = write(tmp_path / "x.csv", "step,loss\n" + "".join(f"{i},{i / 7}\n" for i in range(rows)))
        source = source_of(
            path, config=FileConfig(piece_bytes=150_000), stream=StreamConfig(head_cells=20_000)
        )
        tracemalloc.start()
        while not source.is_exhausted:
            source.poll(0.0)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    # twelve megabytes more were read; how many pieces wait, read ahead, is a matter of two threads
    assert peaks[2] < peaks[1] + 4_000_000

"""What Prometheus answers is read as the curves of a job, rank by rank."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ingest.blocks import RecordBatch
from ingest.errors import UnreadableInput
from ingest.file_reader import FileNotes
from ingest.file_source import FileSource
from ingest.jobs import find_jobs
from ingest.joining import concatenate

START_S = 1_700_000_000.0
Labels = dict[str, str]


def a_series(name: str, values: list[str], start: int = 0, **labels: str) -> dict[str, object]:
    """A series scraped every 15 seconds."""
    points = [[START_S + 15 * (start + at), value] for at, value in enumerate(values)]
    return {"metric": {"__name__": name, "job": "trainer", **labels}, "values": points}


def read(folder: Path, *series: dict[str, object], answer: object = None) -> tuple[RecordBatch, FileNotes]:
    path = folder / "query.json"
    whole = {"status": "success", "data": {"resultType": "matrix", "result": list(series)}}
    path.write_text(json.dumps(whole if answer is None else answer))
    (job,) = find_jobs([path])
    source = FileSource(job)
    batches: list[RecordBatch] = []
    while not source.is_exhausted:
        batches += source.poll(0)
    return concatenate([each for each in batches if len(each)]), source.notes[0]


def test_the_times_count_and_text_is_numbers(tmp_path: Path) -> None:
    batch, notes = read(
        tmp_path,
        a_series("train_loss", ["2.5", "2.4", "NaN", "NaN"]),
        a_series("train_grad_norm", ["0.5", "0.6", "+Inf"], start=1),
    )

    assert batch.iteration_N.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(batch.numbers["loss"].values_N, [2.5, 2.4, np.nan, np.nan])
    norm = batch.numbers["grad_norm"]
    assert norm.present_N.tolist() == [False, True, True, True]
    assert norm.values_N[3] == np.inf
    assert notes.understood.format == "answer of Prometheus"
    assert any("every 15 s" in remark for remark in notes.remarks)


def test_a_label_names_the_rank_and_another_the_host(tmp_path: Path) -> None:
    series = [
        a_series("train_loss", ["2.5", "2.4"], rank=str(rank), instance=f"node-{rank}:9400")
        for rank in (0, 3)
    ]

    batch, _ = read(tmp_path, *series)

    assert sorted(zip(batch.rank_N.tolist(), batch.iteration_N.tolist(), strict=True)) == [
        *((0, 0), (0, 1), (3, 0), (3, 1)),
    ]
    assert {(int(batch.rank_N[row]), name, text) for row, name, text in batch.labels} == {
        (0, "host", "node-0"),
        (3, "host", "node-3"),
    }


def test_places_that_are_scraped_side_by_side_are_ranks_in_their_order(tmp_path: Path) -> None:
    pods = ("worker-10", "worker-2")
    values = {"worker-10": ["2.5", "NaN"], "worker-2": ["2.5", "2.4"]}

    batch, notes = read(tmp_path, *(a_series("loss", values[pod], pod=pod) for pod in pods))

    of_last = batch.rank_N == 1
    np.testing.assert_array_equal(batch.numbers["loss"].values_N[of_last], [2.5, np.nan])
    assert any("no label names a rank" in remark for remark in notes.remarks)


def test_a_job_that_moved_to_another_place_is_one_curve(tmp_path: Path) -> None:
    batch, _ = read(
        tmp_path,
        a_series("loss", ["2.5", "2.4"], instance="10.0.0.7:9000"),
        a_series("loss", ["2.3", "2.2"], start=2, instance="10.0.0.9:9000"),
    )

    assert set(batch.rank_N.tolist()) == {-1}
    assert batch.numbers["loss"].values_N.tolist() == [2.5, 2.4, 2.3, 2.2]


def test_a_series_that_counts_steps_counts(tmp_path: Path) -> None:
    batch, notes = read(
        tmp_path,
        a_series("train_steps_total", ["100", "150", "200"]),
        a_series("train_loss", ["2.5", "2.4", "2.3"], rank="0"),
        a_series("train_loss", ["2.6", "2.5", "NaN"], rank="1"),
    )

    assert sorted(set(batch.iteration_N.tolist())) == [100, 150, 200]
    assert any("counts steps" in remark for remark in notes.remarks)


def test_labels_that_differ_keep_curves_apart(tmp_path: Path) -> None:
    batch, _ = read(
        tmp_path,
        a_series("loss", ["2.5", "2.4"], split="train"),
        a_series("loss", ["3.5", "3.4"], split="val"),
        a_series("activation_norm", ["1", "2"], layer="0"),
        a_series("activation_norm", ["3", "4"], layer="1"),
    )

    assert batch.numbers["loss"].values_N.tolist() == [2.5, 2.4]
    assert len(batch.numbers) == 4


def test_of_two_values_at_one_place_the_broken_one_stays(tmp_path: Path) -> None:
    batch, _ = read(tmp_path, a_series("loss", ["2.5", "NaN"]), a_series("loss", ["2.5", "2.4"]))

    np.testing.assert_array_equal(batch.numbers["loss"].values_N, [2.5, np.nan])


@pytest.mark.parametrize("is_bare", [True, False], ids=["the list alone", "one moment"])
def test_parts_of_an_answer_are_read(tmp_path: Path, is_bare: bool) -> None:
    answer: object = [a_series("loss", ["2.5", "2.4"])]
    if not is_bare:
        moment = {"metric": {"__name__": "loss", "rank": "0"}, "value": [START_S, "2.5"]}
        answer = {"status": "success", "data": {"resultType": "vector", "result": [moment]}}

    assert read(tmp_path, answer=answer)[0].numbers["loss"].values_N[0] == 2.5


def test_an_answer_without_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="must hold samples"):
        read(tmp_path, a_series("loss", []))

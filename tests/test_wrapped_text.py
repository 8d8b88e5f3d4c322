"""Text logs inside JSON are read as the text logs that they are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ingest.blocks import RecordBatch
from ingest.file_source import FileSource
from ingest.jobs import find_jobs
from ingest.joining import concatenate

LINES = ["step 10 loss 2.5 lr 0.1", "some words", "step 20 loss nan lr 0.1"]


def read(path: Path) -> tuple[RecordBatch, str]:
    (job,) = find_jobs([path])
    source = FileSource(job)
    batches: list[RecordBatch] = []
    while not source.is_exhausted:
        batches += source.poll(0)
    return concatenate([each for each in batches if len(each)]), source.notes[0].understood.format


def check(batch: RecordBatch) -> None:
    assert batch.iteration_N.tolist() == [10, 20]
    np.testing.assert_array_equal(batch.numbers["loss"].values_N, [2.5, np.nan])


@pytest.mark.parametrize(
    ("key", "rest"), [("log", {"stream": "stdout"}), ("message", {"level": 20}), ("msg", {"ts": 1.7e9})]
)
def test_lines_that_a_logger_wrapped_are_scanned(tmp_path: Path, key: str, rest: dict[str, object]) -> None:
    path = tmp_path / "container.log"
    end = "\n" if key == "log" else ""
    path.write_text("".join(json.dumps({key: line + end, **rest}) + "\n" for line in LINES))

    batch, form = read(path)

    check(batch)
    assert repr(key) in form


def test_a_line_that_docker_cut_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "container.log"
    texts = [f"{LINES[0]}\n", "step 20 lo", "ss nan lr 0.1\n"]
    path.write_text("".join(json.dumps({"log": text, "stream": "stdout"}) + "\n" for text in texts))

    check(read(path)[0])


def test_objects_with_a_loss_of_their_own_are_records(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    rows = [{"step": step, "loss": 2.5, "message": f"step 9{step} loss 7"} for step in (10, 20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    assert read(path)[0].iteration_N.tolist() == [10, 20]


@pytest.mark.parametrize(
    "output",
    [
        {"output_type": "stream", "text": [f"{line}\n" for line in LINES]},
        {
            "output_type": "display_data",
            "data": {
                "text/plain": ["<HTML object>"],
                "text/html": "<table><tr><th>Step</th>\n<th>Training Loss</th></tr>"
                "<tr><td>10</td><td>2.5</td></tr><tr><td>20</td>\n<td>nan</td></tr></table>",
            },
        },
    ],
)
def test_what_a_notebook_printed_is_scanned(tmp_path: Path, output: dict[str, object]) -> None:
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "cells": [{"outputs": [output]}]}))

    batch, form = read(path)

    check(batch)
    assert "notebook" in form

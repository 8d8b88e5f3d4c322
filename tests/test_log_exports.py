"""Logs that a store of logs saved, line by line in records, are read as the text logs that they are."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ingest.file_source import FileSource
from ingest.jobs import find_jobs
from ingest.joining import concatenate

LINES = [
    "step 10, loss 2.5, lr 0.1",
    'saved "step 10", done',
    "step 20, loss 2.4, lr 0.1",
    "step 30, loss nan, lr 0.1",
]
HOURS = [f"2026-03-01T12:0{at}:00Z" for at in range(len(LINES))]
DAY_MS = [1_772_366_400_000 + 60_000 * at for at in range(len(LINES))]
Entry = tuple[int, str]


def check(path: Path, name: str) -> None:
    (job,) = find_jobs([path])
    source = FileSource(job)
    batches = []
    while not source.is_exhausted:
        batches += source.poll(0)
    batch = concatenate([each for each in batches if len(each)])
    assert batch.iteration_N.tolist() == [10, 20, 30]
    np.testing.assert_array_equal(batch.numbers["loss"].values_N, [2.5, 2.4, np.nan])
    assert set(batch.numbers) == {"loss", "lr"}, "what stands beside the text is no metric"
    assert batch.attempt_N.tolist() == [0, 0, 0]
    assert name in source.notes[0].understood.format


TABLES: dict[str, tuple[list[str], Callable[[Entry], list[object]]]] = {
    "CloudWatch": (["timestamp", "message"], lambda one: [DAY_MS[one[0]], one[1]]),
    "CloudWatch Insights": (["@timestamp", "@message"], lambda one: [HOURS[one[0]], one[1]]),
    "SageMaker": (
        ["timestamp", "logStreamName", "message"],
        lambda one: [DAY_MS[one[0]], "algo-1-1772366400", f"{one[1]}\n"],
    ),
    "Splunk": (["_time", "host", "_raw"], lambda one: [HOURS[one[0]], "node-1", one[1]]),
    "Datadog": (["Date", "Host", "Message"], lambda one: [HOURS[one[0]], "node-1", one[1]]),
    "Kibana": (
        ["@timestamp", "kubernetes.pod.name", "message"],
        lambda one: [f"Mar 1, 2026 @ 12:0{one[0]}:00.000", "trainer-0", one[1]],
    ),
    "Google": (["timestamp", "jsonPayload.message"], lambda one: [HOURS[one[0]], one[1]]),
}


@pytest.mark.parametrize("is_newest_first", [False, True])
@pytest.mark.parametrize("store", TABLES)
def test_a_table_with_a_column_of_lines_is_a_text_log(
    tmp_path: Path, store: str, is_newest_first: bool
) -> None:
    names, row_of = TABLES[store]
    entries = list(enumerate(LINES))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows(map(row_of, reversed(entries) if is_newest_first else entries))
    path = tmp_path / "export.csv"
    path.write_text(text.getvalue())

    check(path, f"in a table under {names[-1]!r}")


RECORDS: dict[str, Callable[[Entry], dict[str, object]]] = {
    "log": lambda one: {"date": DAY_MS[one[0]] / 1000, "log": one[1], "kubernetes": {"pod_name": "t-0"}},
    "line": lambda one: {"labels": {"pod": "t-0"}, "line": one[1], "timestamp": HOURS[one[0]]},
    "message": lambda one: {"container": "t", "message": one[1], "timestamp": HOURS[one[0]]},
    "textPayload": lambda one: {"insertId": f"x{one[0]}", "textPayload": one[1], "timestamp": HOURS[one[0]]},
    "jsonPayload.message": lambda one: {"jsonPayload": {"message": one[1]}, "timestamp": HOURS[one[0]]},
    "_source.message": lambda one: {"_id": "7", "_source": {"@timestamp": HOURS[one[0]], "message": one[1]}},
    "result._raw": lambda one: {"offset": one[0], "result": {"_time": HOURS[one[0]], "_raw": one[1]}},
    "attributes.message": lambda one: {"attributes": {"message": one[1], "timestamp": HOURS[one[0]]}},
    "MESSAGE": lambda one: {
        "__REALTIME_TIMESTAMP": str(DAY_MS[one[0]] * 1000),
        "MESSAGE": one[1],
        "PRIORITY": "6",
    },
}


@pytest.mark.parametrize("is_newest_first", [False, True])
@pytest.mark.parametrize("key", RECORDS)
@pytest.mark.parametrize("is_document", [False, True], ids=["lines", "document"])
def test_records_with_a_line_each_are_a_text_log(
    tmp_path: Path, key: str, is_newest_first: bool, is_document: bool
) -> None:
    records = [RECORDS[key](one) for one in enumerate(LINES)]
    records = records[::-1] if is_newest_first else records
    path = tmp_path / "export.json"
    path.write_text(
        json.dumps(records, indent=1) if is_document else "\n".join(map(json.dumps, records)) + "\n"
    )

    check(path, f"under {key!r}")


def test_events_within_an_answer_are_a_text_log(tmp_path: Path) -> None:
    events = [{"timestamp": DAY_MS[at], "message": line, "ingestionTime": 7} for at, line in enumerate(LINES)]
    path = tmp_path / "events.json"
    path.write_text(json.dumps({"events": events, "nextForwardToken": "f/1"}))

    check(path, "under 'events/message'")


def test_streams_of_loki_are_a_text_log_by_their_times(tmp_path: Path) -> None:
    entries = [[f"{DAY_MS[at]}000000", line] for at, line in enumerate(LINES)]
    streams = [{"stream": {"pod": pod}, "values": entries[at::2][::-1]} for at, pod in enumerate(("a", "b"))]
    path = tmp_path / "loki.json"
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "streams", "result": streams}}))

    check(path, "streams of Loki")


def test_a_table_with_a_loss_of_its_own_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    rows = [f'{at},{3 - at / 10},"step 9{at}, loss 7"' for at in range(4)]
    path.write_text("time,loss,message\n" + "\n".join(rows) + "\n")

    (job,) = find_jobs([path])
    source = FileSource(job)
    batches = source.poll(0)

    assert batches[0].numbers["loss"].values_N.tolist() == [3.0, 2.9, 2.8, 2.7]
    assert source.notes[0].understood.format == "table"

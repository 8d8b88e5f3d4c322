"""Each trick of a log format, from a small log that holds it, to the verdict.

The logs are in ``log_tricks.toml``: what is asked of each is the label, and where it says so the iteration of
the first confirmed incident, the last one judged, that a NaN was concluded, and metrics that were read.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from ingest.jobs import find_jobs
from service.offline import JudgedJob, ReplayOptions, judge_jobs

LOGS: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "log_tricks.toml").read_text("utf-8"))[
    "log"
]


def judged(log: dict[str, Any], folder: Path) -> JudgedJob:
    path = folder / log.get("file", "log" + log.get("ending", ".log"))
    path.write_bytes(log["text"].removeprefix("\n").encode(log.get("encoding", "utf-8")))
    (job,) = judge_jobs(find_jobs([path]), ReplayOptions())
    return job


@pytest.mark.parametrize("log", LOGS, ids=[log["name"].replace(" ", "-") for log in LOGS])
def test_what_comes_out_of_a_log(log: dict[str, Any], tmp_path: Path) -> None:
    job = judged(log, tmp_path)
    assert bool(job.unreadable) == (log["label"] == "unreadable"), job.unreadable
    verdicts = [run.body for run in job.runs]
    assert {verdict["label"] for verdict in verdicts} == {log["label"]} - {"unreadable"}
    incidents = [
        one for verdict in verdicts for one in verdict["incidents"] if one["certainty"] == "confirmed"
    ]
    assert bool(incidents) == (log["label"] not in ("healthy", "unreadable"))
    if "iteration" in log:
        assert incidents[0]["first"]["iteration"] == log["iteration"]
    if "inferred" in log:
        assert any(item["detail"].get("inferred") for item in incidents[0]["evidence"])
    if "last" in log:
        assert verdicts[-1]["judged_to_iteration"] == log["last"]
    read = {metric for verdict in verdicts for metric in verdict["coverage"]["metrics"]}
    assert set(log.get("metrics", ())) <= read
    assert not set(log.get("not_metrics", ())) & read

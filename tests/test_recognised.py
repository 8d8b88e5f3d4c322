"""What was recognised comes before the verdict, and too little is never called healthy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingest.file_reader import FileNotes
from ingest.log_reader import Understood
from service.ink import Ink
from service.inputs import find_inputs
from service.offline import ReplayOptions, judge_jobs
from service.recognised import recognised
from service.report import Judged, report
from service.strides import Strides
from service.sufficiency import headline, why_too_little

from .html_builders import csv_lines
from .service_builders import a_verdict, an_incident, log_lines, write_log
from .test_cli_replay import Run, firstfault

__all__ = ["firstfault"]
ONLY_NONFINITE = {
    "ranks": 1,
    "metrics": ["loss"],
    "checks": [
        {"name": "nonfinite", "state": "ran", "why": ""},
        {"name": "explosion", "state": "not_run", "why": "3 points: growth needs at least 4"},
    ],
}


def strides_of(path: Path) -> Strides:
    """The strides of the one run in a file."""
    (job,) = judge_jobs(find_inputs([path]).jobs, ReplayOptions())
    return job.runs[0].strides


def test_gaps_are_counted_against_the_usual_step(tmp_path: Path) -> None:
    rows = [at for at in range(0, 1000, 10) if not 400 < at < 450]
    lines = [b"step,loss", *(f"{at},{3 - at / 1000}".encode() for at in rows)]
    strides = strides_of(write_log(tmp_path / "run.csv", lines))
    assert strides == Strides(
        positions=96, first=0, last=990, step=10, missing=4, gaps=((400, 450),), restarts=()
    )


def test_restarts_are_named_by_their_first_iteration(tmp_path: Path) -> None:
    rows = [*range(200), *range(120, 300)]
    lines = [b"step,loss", *(f"{at},{3 - at / 1000}".encode() for at in rows)]
    assert strides_of(write_log(tmp_path / "run.csv", lines)).restarts == (120,)


def test_irregular_iterations_have_no_usual_step_and_no_gaps(tmp_path: Path) -> None:
    rows = [at * at for at in range(40)]
    lines = [b"step,loss", *(f"{at},{3 - at / 1000}".encode() for at in rows)]
    strides = strides_of(write_log(tmp_path / "run.csv", lines))
    assert (strides.step, strides.missing, strides.gaps) == (None, 0, ())


def test_what_was_recognised_names_format_columns_iterations_and_what_was_left() -> None:
    understood = Understood(
        format="text log (Megatron)",
        counter="iteration",
        columns=(("lm loss", "loss"), ("grad norm", "grad_norm")),
        lines=200,
        used_lines=150,
        remarks=("one", "two", "three"),
    )
    note = FileNotes("train.log", rows=75, rejected=2, understood=understood, metrics=("grad_norm", "loss"))
    strides = Strides(positions=75, first=10, last=770, step=10, missing=2, gaps=((100, 130),), restarts=(5,))
    assert recognised([note], strides, 8) == [
        "train.log: text log (Megatron); counts by iteration",
        "2 metrics: loss (from lm loss), grad_norm",
        "8 ranks, iterations 10 to 770 every 10, 2 missing (between 100 and 130), 1 restart (at iteration 5)",
        "150 of 200 lines used (75%), 75 records, 2 rejected",
        "one",
        "two",
        "1 more remarks, with --details",
    ]


@pytest.mark.parametrize("width", [80])
def test_the_report_fits_into_80_columns_whatever_was_read(width: int) -> None:
    long = "d" * 90
    understood = Understood(format=long, counter=long, columns=((long, "loss"),), remarks=(long * 3,))
    note = FileNotes(f"/{long}/{long}.log", rows=75, understood=understood, metrics=("loss", long))
    text = report([Judged("a", a_verdict(long), notes=[note], strides=Strides())], Ink())
    assert max(len(line) for line in text.splitlines()) <= width


def test_finite_values_alone_are_too_little_to_judge() -> None:
    verdict = a_verdict("short", coverage=ONLY_NONFINITE)
    assert headline(verdict) == (
        "short: too little to judge. All values are finite, and no check of their course could run:"
        " 3 points: growth needs at least 4."
    )
    assert "healthy" not in report([Judged("a", verdict)], Ink())


def test_a_suspicion_is_told_beside_how_little_there_is() -> None:
    suspicion = an_incident(certainty="suspected")
    text = headline(a_verdict("short", suspicion, coverage=ONLY_NONFINITE))
    assert text.startswith("short: too little to judge. No check of the course could run: 3 points")
    assert "Not confirmed: Rank 3 (host node-07) holds other parameters" in text


def test_an_incident_is_told_however_little_there_is() -> None:
    assert why_too_little(a_verdict("short", an_incident(), coverage=ONLY_NONFINITE)) == ""


def test_a_run_without_a_telling_metric_says_which_columns_there_are() -> None:
    columns = (("row", "iteration"), ("r", "r"), ("t", "t"))
    note = FileNotes("m.csv", rows=9, understood=Understood(columns=columns), metrics=("r", "t"))
    verdict = a_verdict("odd", label="undetermined", coverage={"ranks": 1, "checks": []})
    assert "nothing among r, t is known as a loss" in why_too_little(verdict, [note])
    assert "--column loss=NAME" in why_too_little(verdict, [note])


def test_a_run_with_a_telling_metric_of_which_there_is_too_little_says_what_is_missing() -> None:
    checks = [{"name": "checksum_vote", "state": "not_run", "why": "one rank reports: it has no replicas"}]
    coverage = {"ranks": 1, "metrics": ["param_checksum"], "checks": checks}
    why = why_too_little(a_verdict("odd", label="undetermined", coverage=coverage))
    assert why == "no check could run: one rank reports: it has no replicas"


def test_a_file_that_was_mostly_rejected_is_not_healthy() -> None:
    note = FileNotes("m.csv", rows=40, rejected=60)
    assert why_too_little(a_verdict("odd"), [note]) == (
        "most of it was not understood: 60 records were rejected, 40 read"
    )


@pytest.mark.parametrize(
    ("losses", "status"),
    [([2.5, 2.4, 2.3], 2), ([2.5], 2), (["nan"], 1), ([2.5 - at / 99 for at in range(60)], 0)],
)
def test_the_exit_status_says_whether_there_was_enough(
    firstfault: Run, tmp_path: Path, losses: list[object], status: int
) -> None:
    log = write_log(tmp_path / "run.csv", csv_lines(losses))
    ended, out, _ = firstfault("replay", log)
    assert ended == status
    assert ("too little to judge" in out) == (status == 2)


def test_a_log_of_other_things_is_undetermined_and_names_its_columns(firstfault: Run, tmp_path: Path) -> None:
    lines = [b"step,humidity", *(f"{at},{50 + at}".encode() for at in range(60))]
    status, out, _ = firstfault("replay", write_log(tmp_path / "garden.csv", lines))
    assert status == 2
    assert "healthy" not in out
    assert "nothing among humidity is known" in " ".join(out.split())


def test_beside_json_what_was_read_is_talk(firstfault: Run, tmp_path: Path) -> None:
    log = write_log(tmp_path / "run.csv", csv_lines([2.5, 2.4]))
    status, out, err = firstfault("replay", log, "--json")
    assert status == 2
    assert (
        json.loads(out)["label"] == "healthy"
    )  # no fault is visible: that there is little to see is the status
    assert "run.csv: table; counts by iteration" in err
    assert "run: too little to judge: all values are finite" in err


def test_details_say_all_of_it(firstfault: Run, tmp_path: Path) -> None:
    lines = log_lines("good")
    log = write_log(tmp_path / "good.jsonl", lines)
    _, short, _ = firstfault("replay", log)
    _, long, _ = firstfault("replay", log, "--details")
    assert "(why: --details)" in short
    assert "linear_checksum: no grad_sketch_in" in long

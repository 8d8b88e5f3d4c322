"""What commands make of archives, of folders with other tables, and of columns that are misspelled."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from ingest.errors import UnreadableInput
from ingest.jobs import find_jobs
from service.compare_command import CompareRequest, compare
from service.errors import ConfigError
from service.file_options import columns_of
from service.inputs import find_inputs
from service.offline import ReplayOptions, follow_jobs

from .test_cli_replay import Run, firstfault
from .tracker_builders import event_file

__all__ = ["firstfault"]


def run_of(path: Path) -> Path:
    path.write_text("step,loss,lr\n" + "".join(f"{step},{3 - step / 200},0.001\n" for step in range(100)))
    return path


def test_a_log_is_compared_with_the_one_in_an_archive(tmp_path: Path) -> None:
    log = run_of(tmp_path / "a.csv")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.write(log, "a.csv")

    compared = compare(CompareRequest(first=str(log), second=str(tmp_path / "b.zip")))

    assert compared.answer.outcome.value == "same"


def test_json_has_no_verdict_on_a_table_that_the_report_passes_over(firstfault: Run, tmp_path: Path) -> None:
    run_of(tmp_path / "run.csv")
    (tmp_path / "scores.csv").write_text("name,score\nx,1.0\ny,2.0\nz,3.1\n")

    _, out, err = firstfault("replay", "--json", tmp_path)

    assert [json.loads(line)["run"] for line in out.splitlines()] == ["run"]
    assert "scores.csv" in err


def test_json_has_the_verdicts_on_a_folder_of_nothing_else(firstfault: Run, tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text("name,score\nx,1.0\ny,2.0\nz,3.1\n")

    _, out, _ = firstfault("replay", "--json", tmp_path)

    assert [json.loads(line)["label"] for line in out.splitlines()] == ["undetermined"]


@pytest.mark.parametrize("given", ["losss=train", "grad_nrom=norm", "iteraton=step"])
def test_a_metric_that_is_misspelled_is_told_with_what_is_meant(given: str) -> None:
    with pytest.raises(ConfigError, match=r"did you mean '(loss|grad_norm|iteration)'"):
        columns_of([given])


def test_a_metric_of_ones_own_may_have_any_other_name() -> None:
    assert columns_of(["temperature=temp", "loss=lm"]) == {"temperature": "temp", "loss": "lm"}


def test_a_column_that_is_misspelled_is_told_with_the_nearest(firstfault: Run, tmp_path: Path) -> None:
    _, _, err = firstfault("replay", run_of(tmp_path / "a.csv"), "--column", "loss=losss")

    assert "did you mean 'loss'?" in err


def test_what_is_read_as_a_whole_is_not_followed_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(event_file([("loss", step, 2.0) for step in range(4)]))
    looks = iter([False] * 20)

    (job,) = follow_jobs(find_jobs([path]), ReplayOptions(), lambda *_: None, lambda: next(looks, True))

    assert "only logs in lines can be followed" in job.unreadable
    assert next(looks, None) is False  # it ended by itself


def test_an_archive_is_not_followed(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("a.csv", "step,loss\n1,2\n")

    with find_inputs([tmp_path / "b.zip"], is_awaited=True) as inputs:
        assert "does not grow" in inputs.missing[0].unreadable


def test_a_missing_side_of_a_comparison_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="nowhere"):
        compare(CompareRequest(first=str(run_of(tmp_path / "a.csv")), second=str(tmp_path / "nowhere.csv")))

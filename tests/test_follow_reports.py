"""`firstfault replay --follow`: each incident is said once, however its files come and grow."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from service.announcer import Announcer
from service.inputs import find_inputs
from service.offline import JudgedJob, JudgedRun, ReplayOptions, follow_jobs

from .html_builders import csv_lines
from .service_builders import a_verdict, an_incident, log_lines


class Growing:
    """Files that get their next lines whenever somebody looks whether it is over."""

    def __init__(self, chunks: Sequence[Mapping[Path, Iterable[bytes]]]) -> None:
        self.said: list[str] = []
        self._chunks = list(chunks)
        self._announcer = Announcer(self.said.append)

    def follow(self, *paths: Path) -> list[JudgedJob]:
        """Follow until nothing more is written; the last state."""
        found = find_inputs(paths, is_awaited=True)
        assert found.missing == ()
        return follow_jobs(found.jobs, ReplayOptions(), self._take, self._is_over)

    def _take(self, job: str, run: JudgedRun) -> None:
        self._announcer.take(job, run)

    def _is_over(self) -> bool:
        if not self._chunks:
            return True
        for path, lines in self._chunks.pop(0).items():
            path.parent.mkdir(exist_ok=True)
            with path.open("ab") as file:
                file.write(b"".join(line + b"\n" for line in lines))
        return False


def labels(jobs: Sequence[JudgedJob]) -> list[str]:
    return [str(run.verdict.label) for job in jobs for run in job.runs]


def text_lines(losses: Iterable[object], first: int = 0) -> Iterable[bytes]:
    for at, loss in enumerate(losses, first):
        time = f"2024-05-02 10:00:{at % 60:02d}"
        yield f"{time} INFO iteration {at}/ 9999 | loss: {loss} | lr: 1.0e-04".encode()


def falling(count: int) -> list[float]:
    return [round(4.0 / (1 + at / 30) + 0.05 * (at * 7919 % 13) / 13, 4) for at in range(count)]


def test_a_nan_in_a_growing_text_log_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    losses: list[object] = [*falling(80), *["nan"] * 12]
    lines = list(text_lines(losses))
    growing = Growing([{path: lines[at : at + 8]} for at in range(0, len(lines), 8)])
    jobs = growing.follow(path)
    assert labels(jobs) == ["nan"]
    assert [words for words in growing.said if "NaN." in words] == [
        "train: NaN. The run has a non-finite loss since iteration 80."
    ]
    assert len(growing.said) <= 3


def test_a_file_may_come_later_and_begin_with_lines_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "train.log"
    preamble = [b"srun: job 17 queued", b"Namespace(lr=0.001, epochs=3)", b"loading data"]
    growing = Growing([{}, {path: preamble[:1]}, {path: preamble[1:]}, {path: list(text_lines(falling(60)))}])
    jobs = growing.follow(path)
    assert labels(jobs) == ["healthy"]
    assert jobs[0].runs[0].verdict.judged_to_iteration == 59


def test_what_looked_like_text_may_turn_out_to_be_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    chunks = [{path: [b"starting up", b"still starting"]}, {path: log_lines("live", odd_rank=3)}]
    assert labels(Growing(chunks).follow(path)) == ["silent_drift"]


def test_ranks_in_files_of_their_own_are_one_job_also_when_they_are_yet_to_come(tmp_path: Path) -> None:
    paths = [tmp_path / f"rank{rank}.csv" for rank in range(3)]
    tables = [list(csv_lines(falling(90))) for _ in paths]
    tables[1][70:] = [b"%d,nan" % at for at in range(69, 90)]
    chunks = [
        {path: table[at : at + 15] for path, table in zip(paths, tables, strict=True)}
        for at in range(0, 91, 15)
    ]
    growing = Growing(chunks)
    (job,) = growing.follow(*paths)
    assert labels([job]) == ["nan"]
    assert list(job.runs[0].verdict.incidents[0].first.ranks) == [1]
    assert len([words for words in growing.said if "NaN. Rank 1 has a non-finite loss" in words]) == 1


def test_a_rotated_text_log_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    lines = list(text_lines(falling(90)))
    growing = Growing([{path: lines[:45]}, {}, {path: lines[45:]}])
    rotate = growing._is_over

    def is_over() -> bool:
        if len(growing._chunks) == 1:
            path.rename(tmp_path / "train.log.1")
        return rotate()

    growing._is_over = is_over  # type: ignore[method-assign]  # the one thing that this test adds
    (job,) = growing.follow(path)
    assert job.runs[0].verdict.judged_to_iteration == 89
    assert job.runs[0].strides.positions == 90
    assert "was replaced by a new file" in job.notes[0].remarks


def test_nothing_in_it_is_a_log_that_could_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "poem.txt"
    (job,) = Growing([{path: [b"shall I compare thee", b"to a summer's day"]}]).follow(path)
    assert job.runs == ()
    assert "must hold records of a training loop" in job.unreadable


def test_a_last_line_without_its_end_counts_when_following_ends(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_bytes(b"\n".join(csv_lines([*falling(50), "nan"])))
    (job,) = Growing([{}]).follow(path)
    assert labels([job]) == ["nan"]


def test_following_standard_input_ends_with_its_writer(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "service.cli", "replay", "--follow", "-"]
    lines = b"".join(line + b"\n" for line in text_lines([*falling(60), *["nan"] * 6]))
    ended = subprocess.run(command, input=lines, capture_output=True, check=False, timeout=60)
    out = ended.stdout.decode()
    assert ended.returncode == 1
    assert out.startswith(
        "stdin: NaN. The run has a non-finite loss since iteration 60.\n\n  Read         -: text log"
    )


SINCE = "since iteration 1200 (between 1190 and 1200)."


class _Run:
    """A judged run made of JSON."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body, self.verdict, self.line = body, self, "{}"
        self.run = body["run"]


def announced(*verdicts: dict[str, Any]) -> list[str]:
    """What is said of one run that is judged again and again."""
    said: list[str] = []
    announcer = Announcer(said.append)
    for verdict in verdicts:
        announcer.take("job", cast(JudgedRun, _Run(verdict)))
    return said


def test_a_suspicion_its_confirmation_and_its_recovery_are_said_each_once() -> None:
    suspected = an_incident(certainty="suspected", pattern="sharp_degrade", first={"metric": "loss"})
    confirmed = {**suspected, "certainty": "confirmed"}
    recovered = {**suspected, "certainty": "recovered"}
    quiet = a_verdict("r")
    said = announced(
        quiet,
        quiet,
        *[a_verdict("r", suspected)] * 3,
        *[a_verdict("r", confirmed)] * 3,
        a_verdict("r", recovered),
    )
    assert [words.split(". ")[0] for words in said] == [
        "r: No fault visible up to iteration 1840.",
        f"r: not confirmed yet: The loss of rank 3 (host node-07) jumps up {SINCE}",
        "r: silent drift",
        "r: recovered: The loss of rank 3 (host node-07) left its course at iteration 1200 and recovered.",
    ]


def test_a_suspicion_that_goes_and_comes_is_withdrawn_and_said_again() -> None:
    suspected = a_verdict("r", an_incident(certainty="suspected"))
    said = announced(suspected, suspected, a_verdict("r"), suspected)
    assert len(said) == 3
    assert said[1] == "r: withdrawn: later records explain the silent drift since iteration 1200."


def test_an_incident_that_only_gets_another_number_is_not_said_again() -> None:
    first = an_incident(id="a1")
    earlier = an_incident(id="a1", first={"iteration": 3, "ranks": [5], "metric": "grad_norm"}, label="nan")
    said = announced(a_verdict("r", first), a_verdict("r", earlier, {**first, "id": "a2"}))
    assert len(said) == 2
    assert said[1].startswith("r: NaN.")


@pytest.mark.parametrize("ranks", [[3], []])
def test_ranks_that_become_known_are_news(ranks: list[int]) -> None:
    blank = a_verdict("r", an_incident(first={"ranks": [], "scope": "unknown"}))
    named = a_verdict("r", an_incident(first={"ranks": ranks, "scope": "ranks" if ranks else "unknown"}))
    assert len(announced(blank, named)) == (2 if ranks else 1)


def test_a_restart_is_news() -> None:
    attempts = [
        {"attempt": 0, "label": "healthy", "from": 0, "to": 99},
        {"attempt": 1, "label": "healthy", "from": 60, "to": 70},
    ]
    said = announced(a_verdict("r", attempts=attempts[:1]), a_verdict("r", attempts=attempts))
    assert said[1] == "r: attempt 1 began at iteration 60."

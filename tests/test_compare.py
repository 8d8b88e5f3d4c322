"""`firstfault compare`: two logs are the same, differ, or cannot be told apart, and why."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detectors.reference_exact import PROVING_CHECKS, PROVING_POSITIONS, compare_exactly
from detectors.reference_nulls import WINDOW_POINTS
from detectors.reference_outcome import Answer, Basis, Outcome, decide
from detectors.reference_windows import FLOORS, WindowComparison, compare_windows
from ingest.errors import UnreadableInput
from service.cli import app
from service.compare_command import CompareRequest, compare, run_compare
from service.edge import Exit
from service.errors import ConfigError

from .block_builders import block, masked

ROOT = Path(__file__).parent.parent
Row = dict[str, Any]
Edit = Callable[[Row], None]


def write(path: Path, edit: Edit | None = None, **start: Any) -> str:
    """A deterministic job of four ranks and 60 iterations as JSON lines, edited row by row."""
    rng = np.random.default_rng(1)
    rows: list[Row] = [{"event": "run_start", "run": "job", "rank": 0, "iteration": 0, **start}]
    for iteration in range(60):
        for rank in range(4):
            row: Row = {"run": "job", "rank": rank, "iteration": iteration, "attempt": 0}
            row |= {"loss": float(rng.normal(2.0, 0.1)), "grad_norm": 1.0 + iteration, "step_time_s": 0.1}
            row |= {"param_checksum": f"{iteration:016x}", "weather": 1.0}
            rows.append(row)
    for row in rows if edit is not None else ():
        assert edit is not None
        edit(row)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows if row))
    return str(path)


def where(iteration: int, rank: int, **values: Any) -> Edit:
    """From ``iteration`` on these values on one rank, times and what has no contract everywhere."""

    def edit(row: Row) -> None:
        if "event" not in row:
            row["step_time_s"] = row["weather"] = 0.5 + row["iteration"]
            if row["iteration"] >= iteration and row["rank"] == rank:
                row.update(values)

    return edit


def answered(first: str, second: str | None = None, **options: Any) -> tuple[Answer, Any]:
    compared = compare(CompareRequest(first=first, second=second, **options))
    return compared.answer, compared


def test_the_first_rank_iteration_and_metric_that_differ_are_named(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", deterministic=True)
    second = write(tmp_path / "b.jsonl", where(30, 2, param_checksum="ff", grad_norm=0.5), deterministic=True)
    answer, compared = answered(first, second)
    assert answer == Answer(Outcome.DIFFERS, Basis.BITS)
    difference = compared.exact.difference
    assert (difference.metric, difference.iteration, difference.ranks) == ("grad_norm", 30, (2,))
    assert (difference.last_equal, difference.first, difference.second) == (29, "31.0", "0.5")
    assert [one.metric for one in compared.exact.by_metric] == ["grad_norm", "param_checksum"]
    assert compared.exact.equal_positions == 30


def test_times_and_what_has_no_contract_do_not_make_two_logs_differ(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.jsonl"), write(tmp_path / "b.jsonl", where(99, 0))
    answer, compared = answered(first, second)
    assert answer == Answer(Outcome.SAME, Basis.BITS)
    assert compared.exact.passed_over == ("step_time_s", "weather")


def test_checksums_that_agreed_prove_a_job_deterministic_that_does_not_say_so(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl")
    for start, basis in ((PROVING_CHECKS - 1, Basis.WINDOWS), (PROVING_CHECKS, Basis.BITS)):
        second = write(tmp_path / "b.jsonl", where(start, 1, param_checksum="ff"))
        assert answered(first, second)[0].basis is basis
    assert answered(first, second, is_exact=True)[0].outcome is Outcome.DIFFERS


def test_curves_that_moved_alike_prove_it_and_a_value_that_stands_still_does_not() -> None:
    moving = np.random.default_rng(0).normal(2.0, 0.1, (60, 1))
    changed = moving.copy()
    changed[PROVING_POSITIONS + 1 :] += 1e-9
    exact = compare_exactly(block(loss=moving), block(loss=changed))
    assert exact.equal_moves == PROVING_POSITIONS
    assert decide(exact, [], is_deterministic=False).outcome is Outcome.DIFFERS
    still = np.full((60, 1), 2.0)
    stepped = np.where(np.arange(60)[:, None] > 50, 3.0, still)
    exact = compare_exactly(block(loss=still), block(loss=stepped))
    assert decide(exact, [], is_deterministic=False).outcome is Outcome.UNKNOWN


def test_two_seeds_of_a_deterministic_job_are_not_judged_by_their_bits() -> None:
    one, two = (np.random.default_rng(seed).normal(2.0, 0.1, (60, 1)) for seed in range(2))
    exact = compare_exactly(block(loss=one), block(loss=two))
    assert decide(exact, [], is_deterministic=True).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.0])
def test_values_that_are_no_numbers_are_equal_to_themselves(value: float) -> None:
    one = np.array([[1.0], [value], [3.0]])
    assert compare_exactly(block(loss=one), block(loss=one.copy() + 0.0)).difference is None
    difference = compare_exactly(block(loss=one), block(loss=[[1.0], [7.0], [3.0]])).difference
    assert difference is not None
    assert difference.iteration == 1


def test_what_one_log_did_not_report_is_not_compared() -> None:
    one = np.arange(8.0).reshape(4, 2)
    absent = np.zeros((4, 2), bool)
    absent[2, 1] = True
    exact = compare_exactly(block(loss=one), block(loss=masked(one + absent, absent)))
    assert (exact.values, exact.difference) == (7, None)


def test_ranks_and_iterations_that_only_one_log_has_are_left_out() -> None:
    one = np.arange(12.0).reshape(6, 2)
    first = block(loss=one, iterations=[0, 2, 4, 6, 8, 10], ranks=[0, 3])
    second = block(loss=one[1:4], iterations=[2, 4, 6], ranks=[3, 7])
    exact = compare_exactly(first, second)
    assert (exact.positions, exact.ranks, exact.first_iteration, exact.last_iteration) == (3, 1, 2, 6)
    assert exact.difference is not None  # rank 3 is another column


def curves(points: int, shift: float = 0.0, start: int = 0, seed: int = 0, noise: float = 0.003) -> Any:
    """Two noisy runs of one decline; the second is higher by ``shift`` from ``start`` on."""
    rng = np.random.default_rng(seed)
    level_T = 2.0 + 3.0 * np.exp(-np.arange(points) / 200)
    one_T, two_T = (level_T * np.exp(rng.normal(0.0, noise, points)) for _ in range(2))
    two_T[start:] *= 1 + shift
    return block(loss=one_T), block(loss=two_T)


def window(first: Any, second: Any, tolerance: float | None = None) -> WindowComparison:
    (found,) = compare_windows(first, second, tolerance)
    return found


def test_one_percent_is_seen_within_the_window_in_which_it_begins() -> None:
    found = window(*curves(3000, 0.01, 2000))
    assert found.verdict == "differs"
    assert found.first_from is not None
    assert found.first_to is not None
    assert found.first_from <= 2000 + WINDOW_POINTS <= found.first_to + WINDOW_POINTS
    assert found.worst == pytest.approx(-0.01, abs=0.002)


def test_the_window_means_and_the_threshold_are_those_of_the_textbook() -> None:
    first, second = curves(3000)
    found = window(first, second)
    one_T, two_T = (each.numbers["loss"].values_TR[:, 0] for each in (first, second))
    difference_T = ((one_T - two_T) / ((one_T + two_T) / 2))[300:]
    means = [difference_T[at : at + 100].mean() for at in range(0, 2700, 100)]
    early = difference_T[:900]
    learned = [early[at : at + 100].mean() for at in range(0, 801, 25)]
    assert found.level == pytest.approx(np.median(learned))
    assert found.spread == pytest.approx(np.std(learned, ddof=1))
    assert found.worst == pytest.approx(max(means, key=lambda mean: abs(mean - found.level)))
    assert (found.windows, found.threshold) == (27, FLOORS["loss"])


def test_two_healthy_runs_are_the_same_within_noise_whatever_the_seed() -> None:
    found = [window(*curves(2000, seed=seed, noise=0.02)) for seed in range(200)]
    assert sum(one.verdict == "differs" for one in found) == 0  # 0.2 are expected at a rate of 1e-3
    assert all(one.threshold > FLOORS["loss"] for one in found)


def test_spikes_at_other_points_do_not_make_two_runs_differ() -> None:
    first, second = curves(2000)
    for at in range(700, 1900, 60):
        second.numbers["loss"].values_TR[at] *= 2.0
    found = window(first, second)
    assert (found.verdict, found.spikes) == ("same", 20)


def test_without_a_null_nothing_is_concluded_and_with_a_given_one_it_is() -> None:
    first, second = curves(200, 0.05, 100)
    assert window(first, second).verdict == "no_null"
    assert "no calibrated null" in window(first, second).why
    assert window(first, second, 0.01).verdict == "differs"
    assert window(first, second, 0.10).verdict == "same"


def test_in_short_logs_the_scatter_of_the_ranks_is_the_null() -> None:
    rng = np.random.default_rng(3)
    one_TR, two_TR = (rng.normal(2.0, 0.05, (120, 8)) for _ in range(2))
    found = window(block(loss=one_TR), block(loss=two_TR))
    assert (found.verdict, found.null) == ("same", "scatter of ranks")
    by_hand = np.sqrt((one_TR.var(axis=1, ddof=1) + two_TR.var(axis=1, ddof=1)) / 8).mean() / 2.0
    assert found.spread == pytest.approx(by_hand / np.sqrt(20), rel=0.05)
    two_TR[60:] *= 1.05
    found = window(block(loss=one_TR), block(loss=two_TR))
    assert found.verdict == "differs"
    assert found.first_from is not None
    assert 40 < found.first_from <= 72
    one, two = (block(loss=each.mean(axis=1, keepdims=True).repeat(8, axis=1)) for each in (one_TR, two_TR))
    assert window(one, two).verdict == "no_null"


def test_a_curve_that_is_no_number_in_one_log_alone_differs_and_one_skip_does_not() -> None:
    first, second = curves(2000)
    second.numbers["loss"].values_TR[700] = np.nan
    assert window(first, second).verdict == "same"
    second.numbers["loss"].values_TR[1500:] = np.nan
    found = window(first, second)
    assert (found.verdict, found.why) == ("differs", "it is not a number in one of the logs alone")
    first.numbers["loss"].values_TR[1500:] = np.inf
    assert window(first, second).verdict == "same"


@pytest.mark.parametrize("points", [169, 2000])
def test_a_curve_that_ends_as_no_number_in_one_log_alone_differs_however_short_the_end(points: int) -> None:
    first, second = curves(points)
    second.numbers["loss"].values_TR[-2:] = np.nan
    assert window(first, second).verdict == "same"
    second.numbers["loss"].values_TR[-9:] = np.nan
    found = window(first, second)
    assert (found.verdict, found.first_from, found.first_to) == ("differs", points - 9, points - 1)


def test_runs_that_are_apart_from_the_start_differ() -> None:
    found = window(*curves(2000, 0.05))
    assert (found.verdict, found.why) == ("differs", "they differ from the early stretch on")


def test_curves_of_other_numbers_of_ranks_are_compared_by_their_means() -> None:
    rng = np.random.default_rng(0)
    one_TR, two_TR = (rng.normal(2.0, 0.02, (2000, ranks)) for ranks in (2, 6))
    assert window(block(loss=one_TR), block(loss=two_TR, ranks=range(10, 16))).verdict == "same"


@pytest.mark.parametrize("value", [0.0, -3.0])
def test_losses_at_zero_and_below_are_compared_too(value: float) -> None:
    one, two = (block(loss=np.full(2000, value)) for _ in range(2))
    assert window(one, two).verdict == "same"


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 1e-320, 0.0, math.inf, math.nan])
@pytest.mark.parametrize("ranks", [1, 4])
def test_values_at_the_ends_of_the_range_are_compared_without_failing(value: float, ranks: int) -> None:
    rng = np.random.default_rng(0)
    one, two = (block(loss=rng.choice([value, other, 1.0], (600, ranks))) for other in (2.0, -value))
    assert compare_exactly(one, two).difference is not None
    assert window(one, two).verdict in ("same", "differs", "no_null")
    assert window(one, one).verdict != "differs"


def test_two_attempts_of_one_log_are_compared_where_they_repeat_iterations(capsys: Any) -> None:
    path = str(ROOT / "sample_logs" / "restart.jsonl.gz")
    assert run_compare(CompareRequest(first=path)) == Exit.HEALTHY
    assert "The same, bit for bit: 4872 values of 15 metrics at 54 common" in capsys.readouterr().out
    assert run_compare(CompareRequest(first=path, second=path)) == Exit.HEALTHY


def test_a_log_that_went_on_after_a_restart_counts_as_it_was_repeated(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.jsonl", deterministic=True)

    def restart(row: Row) -> None:
        if row["iteration"] >= 40:
            row["attempt"] = 1

    lost = [json.loads(line) for line in Path(whole).read_text().splitlines()]
    for row in lost:
        restart(row)
    again = [row for row in lost if row["iteration"] in (40, 41)]
    extra = [{**row, "attempt": 0, "grad_norm": -1.0} for row in again]
    rows = sorted([*lost, *extra], key=lambda row: (row.get("attempt", 0), row["iteration"]))
    resumed = tmp_path / "b.jsonl"
    resumed.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert answered(whole, str(resumed))[0] == Answer(Outcome.SAME, Basis.BITS)
    assert answered(str(resumed))[0].outcome is Outcome.UNKNOWN  # two positions, never equal


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attempts": "0"}, "--attempts must be two numbers"),
        ({"attempts": "0,x"}, "--attempts must be two numbers"),
        ({"attempts": "0,7"}, r"--attempts must name attempts of job \(0\), got 7"),
        ({"tolerance": 0.0}, "--tolerance must be > 0 and < 1"),
        ({"tolerance": math.nan}, "--tolerance must be > 0 and < 1"),
        ({}, "compare needs two logs, or one with two attempts; .* has 1"),
    ],
)
def test_arguments_that_cannot_be_are_named(tmp_path: Path, options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        answered(write(tmp_path / "a.jsonl"), **options)


def test_inputs_that_cannot_be_compared_say_why(tmp_path: Path) -> None:
    good = write(tmp_path / "a.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    later = write(tmp_path / "later.jsonl", lambda row: row.update(iteration=row["iteration"] + 500))
    other = tmp_path / "other.csv"
    other.write_text("iteration,accuracy\n0,1\n1,2\n")
    many = tmp_path / "many"
    many.mkdir()
    write(many / "a.jsonl")
    write(many / "b.jsonl", lambda row: row.update(run="elsewhere"))
    for second, message in (
        (str(tmp_path / "none.jsonl"), "nothing is there"),
        (str(tmp_path / "empty.jsonl"), "must hold records"),
        (later, "must have iterations and metrics in common"),
        (str(other), "must have iterations and metrics in common"),
        (str(many), r"must hold one run, but holds 2 \(elsewhere, job\)"),
    ):
        with pytest.raises(UnreadableInput, match=message):
            answered(good, second)
    assert answered(good, str(many), run="job")[0].outcome is Outcome.SAME
    with pytest.raises(UnreadableInput, match="no run named nobody"):
        answered(good, str(many), run="nobody")


@pytest.mark.parametrize(
    ("edit", "status", "said"),
    [
        (None, 0, "The same, bit for bit: "),
        (
            where(30, 2, param_checksum="ff"),
            1,
            "They differ: param_checksum of rank 2 is the first that is not the same, at iteration 30",
        ),
        (
            lambda row: row.clear() if row.get("rank") else row.update(param_checksum="ff"),
            2,
            "Not to be told: no calibrated null",
        ),
    ],
)
def test_the_exit_status_is_the_answer(tmp_path: Path, edit: Edit | None, status: int, said: str) -> None:
    first, second = write(tmp_path / "a.jsonl"), write(tmp_path / "b.jsonl", edit)
    command = [sys.executable, "-m", "service.cli", "compare", first, second]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == status, ran.stderr
    assert said in ran.stdout.replace("\n", " ")
    as_json = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert as_json.returncode == status
    plain = json.loads(as_json.stdout, parse_constant=pytest.fail)
    assert plain["outcome"] == ("same", "differs", "unknown")[status]
    assert as_json.stdout.isascii()


def test_a_name_cannot_act_on_the_terminal(tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "\x1b[31m"
    folder.mkdir()
    first, second = write(folder / "a.jsonl"), write(folder / "b.jsonl", where(30, 2, grad_norm=0.0))
    assert run_compare(CompareRequest(first=first, second=second)) == Exit.INCIDENT
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "x1b[31m" in "".join(printed.split())


def test_the_command_is_one_of_the_command_line() -> None:
    assert "compare" in {command.callback.__name__ for command in app.registered_commands if command.callback}

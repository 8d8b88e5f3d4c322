"""`firstfault compare` on logs that are printed: text rounds, and each log rounds in its own way."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from detectors.printed import FULL, Precision, is_same_as_printed, precision_of

from .service_builders import write_log
from .test_cli_replay import Run, firstfault

__all__ = ["firstfault"]
Print = Callable[[int, float], str]


def megatron(decimals: int) -> Print:
    return lambda at, loss: (
        f" iteration {at}/ 9999 | lm loss: {loss:.{decimals}E} | grad norm: {loss / 3:.3f} |"
    )


def plain(decimals: int) -> Print:
    return lambda at, loss: f"step {at} loss {loss:.{decimals}f}"


def losses(count: int = 400) -> list[float]:
    rng = np.random.default_rng(11)
    level_T = 2.0 + 3.0 * np.exp(-np.arange(count) / 200)
    return [float(value) for value in level_T * np.exp(rng.normal(0.0, 0.003, count))]


def write(path: Path, values: Sequence[float], form: Print, step: int = 1) -> Path:
    return write_log(path, [form(at, values[at]).encode() for at in range(0, len(values), step)])


def precise(values: Sequence[float]) -> Precision:
    column_TR = np.array(values)[:, None]
    return precision_of(column_TR, np.ones(column_TR.shape, np.bool_))


@pytest.mark.parametrize("decimals", [1, 3, 5, 7])
def test_decimals_are_told_from_the_numbers(decimals: int) -> None:
    assert precise([float(f"{value:.{decimals}f}") for value in losses(50)]) == Precision(decimals=decimals)


def test_digits_are_told_where_the_point_moves() -> None:
    values = [float(f"{value * 10.0**power:.3e}") for power in (-9, 0, 9) for value in losses(12)]
    assert precise(values) == Precision(digits=4)


def test_full_numbers_and_too_few_of_them_are_taken_in_full() -> None:
    assert precise(losses(50)) == FULL
    assert precise([float(np.float32(value)) for value in losses(50)]) == FULL
    assert precise([0.5, 0.25, 0.5, 0.25] * 20) == FULL


def test_a_coarser_print_is_equal_to_every_number_that_it_may_stand_for() -> None:
    one_TR, two_TR = np.array([[2.345, 2.346, np.nan]]), np.array([[2.35, 2.36, np.nan]])
    same_TR = is_same_as_printed(one_TR, two_TR, (Precision(decimals=3), Precision(decimals=2)))
    assert same_TR.tolist() == [[True, False, True]]
    assert not is_same_as_printed(one_TR, two_TR, (FULL, FULL))[0, 0]


def test_two_prints_of_one_run_with_other_digits_strides_and_words_are_the_same(
    firstfault: Run, tmp_path: Path
) -> None:
    values = losses()
    one = write(tmp_path / "a.log", values, plain(3))
    two = write(tmp_path / "b.log", values, megatron(6), step=10)
    status, out, _ = firstfault("compare", one, two)
    words = " ".join(out.split())
    assert status == 0
    assert (
        "The same, as printed: 40 values of 1 metrics at 40 common positions, iterations 0 to 390." in words
    )
    assert "loss with 3 decimals in the first, with 6 decimals in the second" in words
    assert "every 1 iterations in the first, every 10 in the second" in words


def test_a_replay_that_parts_is_told_to_the_iteration_and_when_it_is_more_than_noise(
    firstfault: Run, tmp_path: Path
) -> None:
    values = losses()
    parted = [value * (1 + 0.001 * max(0, at - 250)) for at, value in enumerate(values)]
    one = write(tmp_path / "a.log", values, plain(4))
    two = write(tmp_path / "b.log", parted, plain(4))
    status, out, _ = firstfault("compare", one, two)
    words = " ".join(out.split())
    assert status == 1
    assert "They differ: loss is the first that is not the same, at iteration 251 (equal until 250)" in words
    assert "Beyond noise they differ first in iterations" in words
    status, text, _ = firstfault("compare", one, two, "--json")
    plain_json = json.loads(text)
    assert (status, plain_json["exact"]["is_printed"], plain_json["strides"]) == (1, True, [1, 1])


def test_a_short_pair_that_is_closer_than_any_null_could_tell_is_the_same(
    firstfault: Run, tmp_path: Path
) -> None:
    values = losses(100)
    one = write(tmp_path / "cuda.txt", values, plain(9))
    two = write(tmp_path / "other.txt", [value * 1.0004 for value in values], plain(9))
    status, out, _ = firstfault("compare", one, two)
    words = " ".join(out.split())
    assert status == 0
    assert words.startswith("The same within noise:")
    assert "Bit for bit they differ since iteration 0 (loss)." in words


def test_a_short_pair_that_is_farther_apart_cannot_be_told(firstfault: Run, tmp_path: Path) -> None:
    values = losses(100)
    one = write(tmp_path / "a.txt", values, plain(9))
    two = write(tmp_path / "b.txt", [value * 1.03 for value in values], plain(9))
    status, out, _ = firstfault("compare", one, two)
    assert status == 2
    assert "Not to be told: no calibrated null" in " ".join(out.split())


def test_two_attempts_in_one_text_log_are_compared_where_they_overlap(
    firstfault: Run, tmp_path: Path
) -> None:
    values = losses(200)
    again = [value if at < 150 else value * 1.01 for at, value in enumerate(values)]
    lines = [plain(4)(at, values[at]).encode() for at in range(180)]
    lines += [plain(4)(at, again[at]).encode() for at in range(100, 200)]
    status, out, _ = firstfault("compare", write_log(tmp_path / "train.log", lines))
    words = " ".join(out.split())
    assert status == 1
    assert "at iteration 150 (equal until 149)" in words
    assert "attempt 0" in words

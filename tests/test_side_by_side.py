"""Folds that threads take in turns, and pieces that are made ahead, give what one thread gives."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import firstfault
from detectors import judge
from detectors import side_by_side as threads
from detectors.side_by_side import side_by_side
from ingest import ahead as ahead_of
from ingest.ahead import ahead


@pytest.fixture(params=[True, False], ids=["two processors", "one"])
def processors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_has_two_processors", lambda: request.param)


@pytest.mark.usefixtures("processors")
def test_answers_come_in_the_order_of_the_work() -> None:
    def slow(at: int) -> int:
        time.sleep(0.01 if at % 3 == 0 else 0.0)
        return at

    assert side_by_side([partial(slow, at) for at in range(12)]) == list(range(12))


@pytest.mark.usefixtures("processors")
def test_the_first_error_by_the_order_of_the_work_goes_on() -> None:
    def fail(name: str, after_s: float) -> None:
        time.sleep(after_s)
        raise ValueError(name)

    with pytest.raises(ValueError, match="first"):
        side_by_side([lambda: fail("first", 0.02), lambda: fail("second", 0.0)])


def test_two_threads_work_at_once_where_there_are_two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_has_two_processors", lambda: True)
    both = threading.Barrier(2, timeout=60)  # breaks unless two are there

    assert sorted(side_by_side([both.wait, both.wait])) == [0, 1]


def a_long_log(folder: Path, rows: int) -> Path:
    """A curve whose gradient explodes into NaN near its end; in pieces, the last cut off."""
    rng = np.random.default_rng(5)
    loss_T = 2.0 + 3.0 * np.exp(-np.arange(rows) / 4000) + rng.normal(0.0, 0.05, rows)
    norm_T = np.exp(rng.normal(0.0, 0.1, rows))
    norm_T[-60:-20] *= 1.4 ** np.arange(40)
    lines = [f"{at},{loss_T[at]:.5f},{norm_T[at]:.5f}" for at in range(rows - 20)]
    lines += [f"{at},nan,nan" for at in range(rows - 20, rows)]
    path = folder / "long.csv"
    path.write_text("step,loss,grad_norm\n" + "\n".join(lines))
    return path


def test_the_verdict_is_the_same_with_threads_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_long_log(tmp_path, 40_000)
    told = []
    for from_positions, has_two in ((1, True), (1, False), (1 << 40, True)):
        monkeypatch.setattr(judge, "FROM_POSITIONS", from_positions)
        monkeypatch.setattr(threads, "_has_two_processors", lambda has_two=has_two: has_two)
        told.append([json.dumps(verdict) for verdict in firstfault.replay(log)])

    assert told[0] == told[1] == told[2]
    assert json.loads(told[0][0])["label"] == "gradient_explosion"


def made_of(source: Iterable[int]) -> Iterator[Callable[[], int]]:
    """Work whose answers are what ``source`` gives."""
    for at in source:
        yield partial(int, at)


def test_all_that_a_source_gives_comes_in_its_order_and_its_error_at_its_place() -> None:
    def source() -> Iterator[int]:
        yield from range(20)
        raise OSError("the disk is gone")

    taken: list[int] = []
    with pytest.raises(OSError, match="the disk is gone"):
        taken.extend(ahead(made_of(source())))

    assert taken == list(range(20))


@pytest.mark.parametrize("good", range(4))
def test_an_error_of_a_piece_of_work_comes_at_its_place(good: int) -> None:
    def fail() -> int:
        raise ValueError("no number")

    taken: list[int] = []
    with pytest.raises(ValueError, match="no number"):
        taken.extend(ahead(iter([*made_of(range(good)), fail, *made_of([7])])))

    assert taken == list(range(good))


def test_answers_come_in_the_order_of_the_source_whichever_is_ready_first() -> None:
    def slow(at: int) -> int:
        time.sleep(0.02 if at % 2 == 0 else 0.0)
        return at

    assert list(ahead(partial(slow, at) for at in range(10))) == list(range(10))


def test_two_pieces_are_worked_on_at_once() -> None:
    both = threading.Barrier(2, timeout=60)  # breaks unless two are there

    assert sorted(ahead(iter([both.wait, both.wait]))) == [0, 1]


def test_a_source_of_one_thing_or_none_needs_no_thread() -> None:
    before = threading.active_count()
    made = ahead(iter([lambda: "only"]))

    assert next(made) == "only"
    assert threading.active_count() == before
    assert list(made) == []
    assert list(ahead(made_of([]))) == []


def test_no_more_is_made_ahead_than_may_be_held() -> None:
    made: list[int] = []
    reached = threading.Event()

    def source() -> Iterator[int]:
        for at in range(100):
            made.append(at)
            if at == ahead_of._HELD:
                reached.set()
            yield at

    taken = ahead(made_of(source()))
    assert [next(taken), next(taken)] == [0, 1]
    assert reached.wait(60), "the threads go ahead"
    taken.close()

    assert len(made) <= ahead_of._HELD + 2, "those taken, and those held"


def test_who_stops_taking_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    taken = ahead(made_of(range(1000)))
    for _ in range(3):
        next(taken)
    assert threading.active_count() > before

    taken.close()

    assert threading.active_count() == before

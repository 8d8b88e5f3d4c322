"""Folds give the same bits compiled and plain, at once and point by point."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import pytest

from detectors import drift_fold, drift_state, explosion_fold, kernels
from detectors.curve_drift import CurveDriftConfig
from detectors.explosion import ExplosionConfig
from detectors.kernels import Array, Fold
from ingest.compiled import Compiled

from .curve_builders import DRIFTS, EXPLOSIONS, ar1, make_scenario


def values_of(name: str) -> Array:
    """A curve with everything a fold can meet: noise, decline, a fault, gaps, spikes, repeats."""
    loss = np.array(make_scenario(name, 1).columns["loss"])
    rng = np.random.default_rng(5)
    loss[rng.integers(0, len(loss), 30)] = np.nan
    loss[rng.integers(0, len(loss), 5)] *= 3.0
    loss[100:110] = loss[100]
    return loss


def run_explosion(fold: Fold, loss: Array, cuts: Sequence[int]) -> tuple[list[tuple[int, int]], list[Array]]:
    """Codes with the cursor's place in the whole, and the final state."""
    state = explosion_fold.make_state()
    knobs = ExplosionConfig().knobs(is_loss=True)
    codes: list[tuple[int, int]] = []
    start = 0
    for stop in [*cuts, len(loss)]:
        part = loss[start:stop]
        inputs = (
            part,
            np.arange(start, stop),
            np.isnan(part).astype(np.int64),
            np.zeros(len(part), np.int64),
        )
        offset = start
        fold.run(inputs, (*state, knobs), lambda code, at=offset: codes.append((code, at + int(state[0][0]))))  # type: ignore[misc]
        start = stop
    state[0][0] = 0
    return codes, list(state)


def run_drift(fold: Fold, loss: Array, cuts: Sequence[int]) -> tuple[list[tuple[int, int]], list[Array]]:
    """The same for whole-curve drift; the last array is room for sorting and no state."""
    state = drift_state.make_state()
    knobs = CurveDriftConfig().knobs()
    codes: list[tuple[int, int]] = []
    start = 0
    for stop in [*cuts, len(loss)]:
        part = loss[start:stop]
        inputs = (part, np.arange(start, stop), (np.arange(start, stop) == 700).astype(np.int64))
        offset = start
        fold.run(inputs, (*state, knobs), lambda code, at=offset: codes.append((code, at + int(state[0][0]))))  # type: ignore[misc]
        start = stop
    state[0][0] = 0
    return codes, list(state[:-1])


def compiled_copy(fold: Fold) -> Fold:
    return Fold(fold.function, *fold.parts, compile_after_points=0)


def plain_copy(fold: Fold) -> Fold:
    return Fold(fold.function, *fold.parts, compile_after_points=10**9)


def assert_same(
    one: tuple[list[tuple[int, int]], list[Array]], other: tuple[list[tuple[int, int]], list[Array]]
) -> None:
    assert one[0] == other[0]
    for mine, theirs in zip(one[1], other[1], strict=True):
        assert mine.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("name", [*EXPLOSIONS, *DRIFTS, "b_spike"])
def test_the_compiled_explosion_fold_gives_the_bits_of_the_plain_one(name: str) -> None:
    loss = values_of(name)
    assert_same(
        run_explosion(compiled_copy(explosion_fold.FOLD), loss, []),
        run_explosion(plain_copy(explosion_fold.FOLD), loss, []),
    )


@pytest.mark.parametrize("name", [*EXPLOSIONS, *DRIFTS, "b_spike"])
def test_the_compiled_drift_fold_gives_the_bits_of_the_plain_one(name: str) -> None:
    loss = values_of(name)
    assert_same(
        run_drift(compiled_copy(drift_fold.FOLD), loss, []), run_drift(plain_copy(drift_fold.FOLD), loss, [])
    )


@pytest.mark.parametrize("name", ["e_slow", "d_shift", "b_spike"])
def test_folding_point_by_point_gives_the_bits_of_folding_at_once(name: str) -> None:
    loss = values_of(name)
    each = list(range(1, len(loss)))
    for run, fold in ((run_explosion, explosion_fold.FOLD), (run_drift, drift_fold.FOLD)):
        assert_same(run(compiled_copy(fold), loss, each), run(compiled_copy(fold), loss, []))
        assert_same(run(plain_copy(fold), loss, each), run(plain_copy(fold), loss, []))


def test_a_fold_changes_from_plain_to_compiled_in_the_middle_without_a_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Compiled, "is_kept", lambda *_: True)
    loss = values_of("d_shift")
    changing = Fold(drift_fold.FOLD.function, *drift_fold.FOLD.parts, compile_after_points=900)
    assert_same(run_drift(changing, loss, [500, 800, 1000]), run_drift(plain_copy(drift_fold.FOLD), loss, []))


@pytest.mark.parametrize(("kept", "expected"), [(True, [False, True]), (False, [False, False, True])])
def test_a_fold_that_nobody_compiled_before_is_folded_plainly_for_longer(
    kept: bool, expected: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Compiled, "is_kept", lambda *_: kept)
    # a worker that ran before in this process has asked for compiling at first use
    monkeypatch.setattr(kernels._Choice, "is_eager", False)
    monkeypatch.setattr(kernels._Choice, "is_held", False)
    fold = Fold(_count_up, compile_after_points=10)
    points = [10, 20, 600]
    is_compiled = []
    for so_far, now in zip([0, *points], points[: len(expected)], strict=False):
        fold.run((np.ones(now - so_far),), (np.zeros(1, np.int64), np.zeros(1)))
        is_compiled.append(fold.is_compiled)
    assert is_compiled == expected


@pytest.mark.parametrize("kept", [True, False])
def test_while_somebody_else_compiles_a_fold_is_taken_from_the_cache_or_folded_plainly(
    kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Compiled, "is_kept", lambda *_: kept)
    monkeypatch.setattr(kernels._Choice, "is_eager", False)
    monkeypatch.setattr(kernels._Choice, "is_held", True)
    fold = Fold(_count_up, compile_after_points=10)
    fold.run((np.ones(10 * kernels.UNKEPT_FACTOR + 1),), (np.zeros(1, np.int64), np.zeros(1)))
    assert fold.is_compiled is kept


def _count_up(values: Array, place: Array, total: Array) -> int:
    while place[0] < len(values):
        total[0] += values[place[0]]
        place[0] += 1
    return 0


def test_inputs_that_lie_apart_are_folded_all_the_same() -> None:
    fold = Fold(_count_up, compile_after_points=0)
    total = np.zeros(1)
    fold.run((np.arange(10.0)[::3],), (np.zeros(1, np.int64), total))
    assert fold.is_compiled and total[0] == 18.0


def test_folds_see_something_on_these_curves() -> None:
    assert run_explosion(plain_copy(explosion_fold.FOLD), values_of("e_fast"), [])[0]
    assert run_drift(plain_copy(drift_fold.FOLD), values_of("d_const"), [])[0]


def test_copying_a_fold_keeps_its_compiled_code() -> None:
    fold = plain_copy(explosion_fold.FOLD)
    assert copy.deepcopy(fold) is fold


def test_ar1_noise_of_the_builders_has_the_deviation_asked_for() -> None:
    noise = ar1(20_000, 0.02, 0.5, np.random.default_rng(1))
    assert 0.019 < noise.std() < 0.021
    assert 0.45 < np.corrcoef(noise[1:], noise[:-1])[0, 1] < 0.55

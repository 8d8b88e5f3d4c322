"""What each kind does to the elements of one rank's tensor."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from firstfault.drill.rig import Fault, Job, Kind, Site, data_parallel
from firstfault.drill.rig.corruption import Row, corrupt, flipped, round_to_bf16


def struck(kind: Kind, values: Row, seed: int = 1, **fields: object) -> Row:
    """``values`` after one pass of a fault."""
    fault = replace(Fault(kind=kind, site=Site.FORWARD, iteration=0), **fields)  # type: ignore[arg-type]  # any field
    changed = values.copy()
    corrupt(fault, changed, random.Random(seed))
    return changed


@pytest.fixture
def matrix() -> Row:
    return np.random.default_rng(0).standard_normal((32, 48)).astype(np.float32)


@pytest.mark.parametrize(
    ("value", "bit", "dtype", "result"),
    [
        (1.5, 31, "fp32", -1.5),
        (1.0, 22, "fp32", 1.5),
        (1.0, 30, "fp32", math.inf),
        (1.0, 15, "bf16", -1.0),
        (1.0, 6, "bf16", 1.5),
        (1.001, 6, "bf16", 1.5),
        (1.0, 15, "fp16", -1.0),
        (1.0, 14, "fp16", math.inf),
        (2.0, 13, "fp16", 2.0 * 2**8),
    ],
)
def test_a_flip_is_of_the_bit_of_its_format(value: float, bit: int, dtype: str, result: float) -> None:
    assert flipped(value, bit, dtype) == result


def test_a_flip_changes_one_living_value_and_the_same_flip_takes_it_back(matrix: Row) -> None:
    matrix[:16] = 0.0
    once = struck(Kind.BIT_FLIP, matrix, bit=20)
    changed = np.argwhere(once != matrix)
    assert len(changed) == 1
    assert changed[0][0] >= 16
    assert (struck(Kind.BIT_FLIP, once, bit=20) == matrix).all()


def test_several_flips_are_neighbours(matrix: Row) -> None:
    changed = np.flatnonzero(struck(Kind.MULTI_FLIP, matrix, count=4, bit=20) != matrix)
    assert [after - before for before, after in pairwise(changed)] == [1, 1, 1]


def test_a_stuck_bit_stays_whatever_comes(matrix: Row) -> None:
    once = struck(Kind.STUCK_BIT, matrix, count=8, bit=22)
    assert (struck(Kind.STUCK_BIT, once, count=8, bit=22) == once).all()
    places = np.flatnonzero(struck(Kind.STUCK_BIT, np.zeros_like(matrix), count=8, bit=22))
    assert len(places) == 8
    assert (
        struck(Kind.STUCK_BIT, -matrix, count=8, bit=22).view(np.uint32).reshape(-1)[places] & (1 << 22)
    ).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_tile_error_is_small_and_of_the_shape_of_a_unit(matrix: Row, seed: int) -> None:
    wrong = struck(Kind.TILE_ERROR, matrix, seed, magnitude=1e-4)
    at = np.argwhere(wrong != matrix)
    relative = np.abs(wrong / matrix - 1)[wrong != matrix]
    rows, columns = np.unique(at[:, 0]), np.unique(at[:, 1])
    assert len(rows) <= 16
    assert np.ptp(rows) < 16
    is_tile = np.ptp(columns) < 8
    assert is_tile or set(np.diff(columns)) == {8}
    assert 1e-5 < np.median(relative) < 3e-4
    assert len(at) > 40


def test_a_wrong_order_loses_nothing(matrix: Row) -> None:
    wrong = struck(Kind.WRONG_ORDER, matrix)
    assert (wrong != matrix).mean() > 0.9
    assert (np.sort(wrong, axis=None) == np.sort(matrix, axis=None)).all()


def test_a_scale_that_fits_costs_a_sixteenth_and_one_too_large_saturates(matrix: Row) -> None:
    fitting = struck(Kind.FP8_SCALE, matrix, magnitude=1.0)
    too_large = struck(Kind.FP8_SCALE, matrix, magnitude=16.0)
    assert np.abs(fitting / matrix - 1)[np.abs(matrix) > 0.1].max() <= 1 / 16 + 1e-6
    assert np.abs(too_large).max() == pytest.approx(np.abs(matrix).max() / 16, rel=1e-5)


def test_updates_below_half_a_unit_of_the_last_place_are_lost() -> None:
    held = np.array([1.0, 1.0, -3.0, math.inf, math.nan], dtype=np.float32)
    moved = held + np.array([1e-3, 5e-3, 1e-3, 0, 0], dtype=np.float32)
    kept = round_to_bf16(moved)
    assert kept[0] == 1.0
    assert kept[1] == 1.0078125
    assert kept[2] == -3.0
    assert kept[3] == math.inf
    assert math.isnan(kept[4])


@pytest.mark.torch
def test_rounding_to_bf16_is_that_of_torch() -> None:
    import torch

    values = np.random.default_rng(1).integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    expected = torch.from_numpy(values.copy()).bfloat16().float().numpy()
    ours = round_to_bf16(values)
    same = (ours == expected) | (np.isnan(ours) & np.isnan(expected))
    assert same.all()


@pytest.mark.torch
def test_tile_errors_come_in_bursts_at_about_their_rate_and_hang_on_the_operands() -> None:
    import torch

    from firstfault.drill.rig.faults import Faults

    fault = Fault(
        kind=Kind.TILE_ERROR,
        site=Site.WEIGHT_GRAD,
        iteration=0,
        rank=1,
        lasts=None,
        rate=0.25,
        magnitude=1e-2,
    )
    faults = Faults(Job(layout=data_parallel(2)), [0, 1])
    faults.arm(fault)
    generator = torch.Generator().manual_seed(0)
    hits = []
    for iteration in range(1600):
        value = torch.randn(2, 64, generator=generator)
        faults.enter(iteration, 0)
        wrong = faults.strike(Site.WEIGHT_GRAD, value)
        assert torch.equal(wrong, faults.strike(Site.WEIGHT_GRAD, value))
        assert torch.equal(wrong[0], value[0])
        hits.append(not torch.equal(wrong[1], value[1]))
    share = np.mean(hits)
    after_a_hit = np.mean([second for first, second in pairwise(hits) if first])
    assert 0.15 < share < 0.35
    assert after_a_hit > 1.5 * share

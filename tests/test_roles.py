"""What a metric turned out to be. Axes: T iterations, R ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from detectors.roles import LEARNED_POSITIONS, Role, Roles
from ingest.blocks import IterationBlock

from .block_builders import block, canonical, masked, mesh, one_at_a_time

T, R = 20, 8


def equal(ranks: int = R) -> Any:
    return np.random.default_rng(0).uniform(1.0, 2.0, (T, 1)).repeat(ranks, axis=1)


def own(ranks: int = R) -> Any:
    return np.random.default_rng(0).uniform(1.0, 2.0, (T, ranks))


def role_of(metric: str, whole: IterationBlock) -> Role:
    """The role after the whole block, after checking that cutting does not change it."""
    roles, pieces = Roles(), Roles()
    roles.update(whole)
    for piece in one_at_a_time(whole):
        pieces.update(piece)
    assert canonical(pieces.snapshot()) == canonical(roles.snapshot())
    return roles.role_of(metric)


@pytest.mark.parametrize("metric", ["grad_norm", "global_loss", "lr"])
def test_an_agreed_number_that_is_each_ranks_own_is_local(metric: str) -> None:
    assert role_of(metric, block({metric: own()})) is Role.LOCAL
    assert role_of(metric, block({metric: equal()})) is Role.AS_NAMED


@pytest.mark.parametrize("metric", ["loss", "local_grad_norm"])
def test_a_local_curve_that_is_bit_equal_everywhere_is_global(metric: str) -> None:
    assert role_of(metric, block({metric: equal()})) is Role.GLOBAL
    assert role_of(metric, block({metric: own()})) is Role.AS_NAMED


def test_one_rank_beside_equal_ones_does_not_make_a_number_local() -> None:
    values = equal()
    values[:, 3] *= 1.5
    assert role_of("grad_norm", block(grad_norm=values)) is Role.AS_NAMED


def test_rounding_does_not_make_a_number_local() -> None:
    noise = 1 + 1e-7 * np.random.default_rng(1).standard_normal((T, R))
    assert role_of("grad_norm", block(grad_norm=equal() * noise)) is Role.AS_NAMED


def test_a_decision_is_made_once() -> None:
    values = equal()
    values[LEARNED_POSITIONS:] = own()[LEARNED_POSITIONS:]
    assert role_of("grad_norm", block(grad_norm=values)) is Role.AS_NAMED


def test_too_few_positions_decide_nothing() -> None:
    roles = Roles()
    roles.update(block(grad_norm=own()[: LEARNED_POSITIONS - 1]))
    assert (roles.role_of("grad_norm"), roles.is_decided("grad_norm")) == (Role.AS_NAMED, False)


def test_zeros_and_what_is_not_finite_say_nothing() -> None:
    values = own()
    values[:4], values[4:8] = 0.0, np.nan
    assert role_of("grad_norm", block(grad_norm=values)) is Role.LOCAL
    assert role_of("loss", block(loss=np.zeros((T, R)))) is Role.AS_NAMED


def test_one_reporting_rank_decides_nothing() -> None:
    absent = np.ones((T, R), bool)
    absent[:, 7] = False
    roles = Roles()
    roles.update(block(loss=masked(own(), absent)))
    assert not roles.is_decided("loss")


def test_a_loss_that_is_equal_inside_a_tensor_parallel_group_is_not_reduced_for_that() -> None:
    assert role_of("loss", block(loss=equal(), layout=mesh([("tp", R)]))) is Role.AS_NAMED
    assert role_of("loss", block(loss=equal(), layout=mesh([("dp", 4), ("tp", 2)]))) is Role.GLOBAL


def test_roles_go_on_exactly_from_a_snapshot() -> None:
    first, *rest = one_at_a_time(block(loss=equal(), grad_norm=own()))
    roles, restored = Roles(), Roles()
    roles.update(first)
    restored.restore(roles.snapshot())
    for piece in rest:
        roles.update(piece)
        restored.update(piece)
    assert canonical(restored.snapshot()) == canonical(roles.snapshot())

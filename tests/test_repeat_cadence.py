"""Since when no canary has run, which a verdict must not keep to itself."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from detectors.repeat_cadence import RepeatCadence

from .block_builders import block, cut, masked


def canaries_at(iterations: Iterable[int], last: int) -> RepeatCadence:
    """The fold over iterations up to ``last``, whatever the blocks are; canaries on the second rank alone."""
    loss = np.ones((last + 1, 2))
    is_absent = np.ones((last + 1, 2), np.bool_)
    is_absent[list(iterations), 1] = False
    whole = block({"loss": loss, "canary_loss": masked(loss, is_absent)})
    once, in_pieces = RepeatCadence(), RepeatCadence()
    once.update(whole)
    for piece in cut(whole, [1, last // 2]):
        in_pieces.update(piece)
        again = RepeatCadence()
        again.restore(in_pieces.snapshot())
        in_pieces = again
    assert once.snapshot() == in_pieces.snapshot()
    return once


@pytest.mark.parametrize(
    ("canaries", "judged_to", "since"),
    [
        ([], 400, None),
        ([16, 32], 48, None),
        ([16, 32], 49, 32),
        ([10, 20, 60], 100, None),
        ([10, 20, 60], 101, 60),
    ],
)
def test_a_gap_wider_than_any_before_is_told(canaries: list[int], judged_to: int, since: int | None) -> None:
    assert canaries_at(canaries, judged_to).over_since(judged_to) == since


def test_nothing_is_over_before_anything_was_judged() -> None:
    assert RepeatCadence().over_since(None) is None

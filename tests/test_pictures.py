"""What a page is drawn from is bounded, and loses neither extremes nor what is not finite."""

from __future__ import annotations

import numpy as np
import pytest

from ingest.blocks import ChecksumBlock, IterationBlock, NumberBlock
from service.html_axis import scale_for
from service.picture_curve import MAX_BUCKETS, CurveBucket, CurveFolder, thinned
from service.picture_ranks import MAX_CELLS, STRIP_COLUMNS, Cell, RankFolder, RankStrip


def folded(values: np.ndarray, pieces: int = 7) -> list[CurveBucket]:
    """A curve of one rank, taken in several blocks."""
    folder = CurveFolder()
    for part in np.array_split(np.arange(len(values)), pieces):
        column_TR = values[part][:, None]
        folder.update(part.astype(np.int64), NumberBlock(column_TR, np.ones(column_TR.shape, np.bool_)))
    return folder.buckets()


def block(values_TR: np.ndarray, first: int = 0) -> IterationBlock:
    """A block of ranks from 0."""
    positions, ranks = values_TR.shape
    return IterationBlock(
        run="r",
        attempt=0,
        iteration_T=np.arange(first, first + positions, dtype=np.int64),
        microbatch_T=np.full(positions, -1, np.int32),
        ranks_R=np.arange(ranks, dtype=np.int32),
        numbers={"loss": NumberBlock(values_TR, np.ones(values_TR.shape, np.bool_))},
    )


def strip_of(values_TR: np.ndarray, onset: int | None, pieces: int = 5) -> RankStrip:
    """The strip of a loss, taken in several blocks."""
    folder, first = RankFolder("loss", "number"), 0
    for part_TR in np.array_split(values_TR, pieces):
        folder.update(block(part_TR, first))
        first += len(part_TR)
    strip = folder.strip(onset)
    assert strip is not None
    return strip


@pytest.mark.parametrize("count", [3, 959, 960, 961, 5000, 20_001])
def test_a_curve_of_any_length_keeps_its_extremes_and_every_position(count: int) -> None:
    rng = np.random.default_rng(count)
    values = rng.normal(2.0, 0.1, count)
    values[count // 2] = 9.0
    values[count // 3] = np.nan
    buckets = folded(values)
    assert len(buckets) <= MAX_BUCKETS
    assert sum(bucket.last - bucket.first + 1 for bucket in buckets) == count
    assert max(bucket.greatest for bucket in buckets if bucket.greatest is not None) == np.nanmax(values)
    assert min(bucket.least for bucket in buckets if bucket.least is not None) == np.nanmin(values)
    assert sum(bucket.nan for bucket in buckets) == int(np.isnan(values).sum())


def test_how_blocks_are_cut_changes_nothing() -> None:
    values = np.random.default_rng(0).normal(2.0, 0.1, 7001)
    assert folded(values, 1) == folded(values, 13)
    ranks_TR = np.random.default_rng(1).normal(2.0, 0.1, (300, 6))
    one, two = strip_of(ranks_TR, 200, 1), strip_of(ranks_TR, 200, 17)
    assert (one.cells_BR == two.cells_BR).all()


def test_thinning_keeps_start_end_and_kinds() -> None:
    buckets = folded(np.array([3.0, np.nan, np.inf, -np.inf, 1.0, 2.0]))
    (one,) = thinned(buckets, 1)
    assert (one.first, one.last, one.start, one.end) == (0, 5, 3.0, 2.0)
    assert (one.nan, one.posinf, one.neginf, one.nonfinite) == (1, 1, 1, 3)
    assert (one.least, one.greatest) == (1.0, 3.0)


def test_cells_are_bounded_and_keep_the_worst() -> None:
    values_TR = np.random.default_rng(0).normal(2.0, 0.01, (3000, 400))
    values_TR[1501, 7] = np.nan
    strip = strip_of(values_TR, 1501)
    assert strip.cells_BR.size <= STRIP_COLUMNS * 400
    assert strip.last[0] - strip.first[0] + 1 >= 3000 * 400 / MAX_CELLS / 2
    assert strip.first_bad(7) is not None
    assert int((strip.cells_BR == Cell.NAN).sum()) == 1


def test_a_rank_that_drifts_by_little_is_seen_in_what_lasts() -> None:
    values_TR = np.random.default_rng(0).normal(2.0, 0.1, (400, 8))
    values_TR[300:, 5] += 0.2
    off_BR = strip_of(values_TR, 300).cells_BR >= Cell.LEVEL_1
    assert off_BR[-30:, 5].mean() > 0.8
    assert off_BR[:, [0, 1, 2, 3, 4, 6, 7]].mean() < 0.02


def test_a_checksum_is_held_against_the_majority_and_a_tie_against_all() -> None:
    low_TR = np.array([[1, 1, 1, 1], [1, 1, 2, 1], [1, 1, 2, 2]], np.uint64)
    given = ChecksumBlock(np.zeros_like(low_TR), low_TR, np.ones(low_TR.shape, np.bool_))
    folder = RankFolder("param_checksum", "checksum")
    base = block(np.zeros((3, 4)))
    folder.update(
        IterationBlock(
            run="r",
            attempt=0,
            iteration_T=base.iteration_T,
            microbatch_T=base.microbatch_T,
            ranks_R=base.ranks_R,
            checksums={"param_checksum": given},
        )
    )
    strip = folder.strip(1)
    assert strip is not None
    differs = (strip.cells_BR == Cell.DIFFERS).tolist()
    assert differs == [[False] * 4, [False, False, True, False], [True] * 4]


@pytest.mark.parametrize(
    "values",
    [[0.0], [1e308, -1e308], [5e-324, 1e-300], [1e-320, 1e300], [-3.0, -3.0], [0.0, 1e-12], [1.0, 1e9]],
)
def test_any_finite_values_have_an_axis_whose_ticks_lie_on_it(values: list[float]) -> None:
    scale = scale_for(values)
    assert scale is not None
    assert all(0.0 <= scale.at(value) <= 1.0 for value in values)
    assert 1 <= len(scale.ticks()) <= 21
    assert all(-0.01 <= scale.at(tick) <= 1.01 for tick in scale.ticks())

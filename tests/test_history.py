"""Telemetry history: what a writer wrote is what a reader reads, across crashes, joins and odd names.

Axes: T positions, R ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ingest.blocks import IterationBlock
from ingest.columns import batch_from_records
from service.history_config import HistoryConfig
from service.history_names import VALUES, segments
from service.history_reader import HistoryReader
from service.history_writer import HistoryWriter
from service.pipeline import Pipeline
from service.recorder import Recorder
from service.run_id import run_id_of
from tests.block_builders import block, cut, masked
from tests.history_builders import EVERYTHING, RUN, losses, named, noise, pending_of, plain_summary, write
from tests.record_builders import record


def test_a_curve_read_in_full_is_the_summary_of_every_position(tmp_path: Path) -> None:
    whole = noise(500)
    write(tmp_path, *cut(whole, range(0, 500, 30)))
    values_TR, present_TR = losses([whole])
    some_T = present_TR.any(axis=1)

    curve = HistoryReader(tmp_path).curve(RUN, 0, "loss", points=1000)

    assert (curve.level, curve.is_downsampled) == (0, False)
    assert_array_equal(curve.columns["iteration"], np.arange(500)[some_T])
    for name, expected in plain_summary(values_TR[some_T], present_TR[some_T]).items():
        assert np.allclose(curve.columns[name], expected, rtol=1e-12, equal_nan=True), name


@pytest.mark.parametrize("points", [1, 7, 100, 5000])
@pytest.mark.parametrize("span", [(0, 60_000), (17, 59_001), (30_000, 30_100), (4_000, 9_999)])
def test_any_stretch_at_any_zoom_keeps_its_extremes_and_what_is_not_finite(
    tmp_path_factory: pytest.TempPathFactory, long_run: Path, span: tuple[int, int], points: int
) -> None:
    start, stop = span
    curve = HistoryReader(long_run).curve(RUN, 0, "loss", start, stop, points=points)
    columns = curve.columns

    assert 1 <= len(columns["iteration"]) <= points
    assert (np.diff(columns["iteration"]) > 0).all()
    # buckets at the ends may reach over them
    first, last = int(columns["iteration"][0]), int(columns["last_iteration"][-1])
    assert first <= start < first + 4096
    assert last - 4096 < stop - 1 <= last
    values_TR, present_TR = losses([noise(60_000, 2)])
    inside_TR = present_TR[first : last + 1]
    inside = values_TR[first : last + 1][inside_TR]
    assert columns["reported"].sum() == len(inside)
    assert columns["nan"].sum() == np.isnan(inside).sum()
    assert columns["posinf"].sum() == (inside == np.inf).sum()
    assert columns["neginf"].sum() == (inside == -np.inf).sum()
    finite = inside[np.isfinite(inside)]
    assert np.nanmin(columns["min"]) == finite.min()
    assert np.nanmax(columns["max"]) == finite.max()
    assert curve.is_downsampled == (len(columns["iteration"]) < columns["positions"].sum())


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 000 positions of two ranks, in files of very different sizes."""
    folder = tmp_path_factory.mktemp("history")
    write(folder, *cut(noise(60_000, 2), [10, 20, 3000, 3001, 20_000, 20_100, 45_000]))
    return folder


def test_small_files_are_joined_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.history_names._sync", lambda _: None)  # of 800 files, to save seconds
    whole = noise(400)
    write(tmp_path, *cut(whole, range(400)))
    assert len(list(tmp_path.rglob("summary-*"))) <= 3 * 16
    curve = HistoryReader(tmp_path).curve(RUN, 0, "loss", points=1000)
    assert curve.columns["reported"].sum() == losses([whole])[1].sum()
    assert len(set(curve.columns["iteration"].tolist())) == len(curve.columns["iteration"])


def test_every_cell_comes_back_as_it_was_reported(tmp_path: Path) -> None:
    whole = noise(100, 6)
    write(tmp_path, *cut(whole, [3, 50]))
    reader = HistoryReader(tmp_path)

    loss = reader.matrix(RUN, 0, "loss")
    checksum = reader.matrix(RUN, 0, "param_checksum", 10, 20, ranks=[1, 4])

    assert loss is not None and loss.values_TR is not None
    assert_array_equal(loss.iteration_T, whole.iteration_T)
    assert_array_equal(loss.present_TR, whole.numbers["loss"].present_TR)
    assert_array_equal(loss.values_TR, whole.numbers["loss"].values_TR)
    assert checksum is not None and checksum.low_TR is not None
    assert_array_equal(checksum.ranks_R, [1, 4])
    assert_array_equal(checksum.low_TR, whole.checksums["param_checksum"].low_TR[10:20][:, [1, 4]])
    assert checksum.checksum(0, 1) == f"{int(whole.checksums['param_checksum'].low_TR[10, 4]):x}"


def test_a_checksum_of_128_bits_comes_back_whole_and_one_not_reported_as_none(tmp_path: Path) -> None:
    values = masked([["f" * 32, "0"]], [[False, True]])
    write(tmp_path, block(param_checksum=values))
    matrix = HistoryReader(tmp_path).matrix(RUN, 0, "param_checksum")
    assert matrix is not None
    assert (matrix.checksum(0, 0), matrix.checksum(0, 1)) == ("f" * 32, None)


def test_ranks_that_joined_later_are_missing_before(tmp_path: Path) -> None:
    write(tmp_path, block(loss=[[1.0]], ranks=[5]), block(loss=[[2.0, 3.0]], iterations=[1], ranks=[2, 5]))
    matrix = HistoryReader(tmp_path).matrix(RUN, 0, "loss")
    assert matrix is not None
    assert_array_equal(matrix.ranks_R, [2, 5])
    assert_array_equal(matrix.present_TR, [[False, True], [True, True]])


def test_a_matrix_that_would_be_too_large_loses_its_first_iterations_and_says_so(tmp_path: Path) -> None:
    write(tmp_path, *cut(noise(100, 4), range(0, 100, 9)))
    matrix = HistoryReader(tmp_path, max_cells=80).matrix(RUN, 0, "loss")
    assert matrix is not None and matrix.is_cut
    assert_array_equal(matrix.iteration_T, np.arange(80, 100))


def test_what_a_crash_makes_the_worker_read_again_is_written_once(tmp_path: Path) -> None:
    whole = noise(300)
    write(tmp_path, *cut(whole, [100, 200])[:2])  # ends here, without a word
    write(tmp_path, *cut(whole, [70, 170, 260])[1:])  # goes on from a checkpoint at 70
    reader = HistoryReader(tmp_path)

    curve = reader.curve(RUN, 0, "loss", points=1000)
    matrix = reader.matrix(RUN, 0, "loss")

    assert curve.columns["reported"].sum() == losses([whole])[1].sum()
    assert matrix is not None and matrix.values_TR is not None
    assert_array_equal(matrix.values_TR, whole.numbers["loss"].values_TR)


def test_files_that_overlap_count_nothing_twice(tmp_path: Path) -> None:
    whole = noise(5000, 2)
    first = HistoryWriter(tmp_path, EVERYTHING)
    second = HistoryWriter(tmp_path, EVERYTHING)  # as a worker does that was stopped and woke up again
    for writer, edges in ((first, [4000]), (second, [3001, 3005])):
        for one in cut(whole, edges):
            writer.update(one)
            writer._attempts[RUN, 0].summarised_to = writer._attempts[RUN, 0].recorded_to = -1
            if writer is first or one.iteration_T[0] > 3000:
                assert writer.flush()
            else:
                writer._attempts[RUN, 0].pending.clear()
    reader = HistoryReader(tmp_path)
    for points in (3, 5000):
        curve = reader.curve(RUN, 0, "loss", points=points)
        assert curve.columns["reported"].sum() == losses([whole])[1].sum()
    matrix = reader.matrix(RUN, 0, "loss")
    assert matrix is not None and len(matrix.iteration_T) == 5000


def test_leftovers_of_a_crash_are_ignored_and_removed(tmp_path: Path) -> None:
    write(tmp_path, noise(10))
    half_written = tmp_path / RUN / "0" / ".summary-10-20-11.parquet.999999999.tmp"
    half_written.write_bytes(b"PAR1 and no more")
    assert len(HistoryReader(tmp_path).curve(RUN, 0, "loss").columns["iteration"]) == 10
    HistoryWriter(tmp_path, EVERYTHING)
    assert not half_written.exists()


def test_a_damaged_file_costs_its_own_rows_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, *cut(noise(30), [10, 20]))
    for path in tmp_path.rglob("*-10-19-10.parquet"):
        path.write_bytes(path.read_bytes()[:-30])
    reader = HistoryReader(tmp_path)
    assert reader.metrics(RUN) == ["loss"]
    assert len(reader.curve(RUN, 0, "loss").columns["iteration"]) == 20
    matrix = reader.matrix(RUN, 0, "loss")
    assert matrix is not None and len(matrix.iteration_T) == 20
    assert "cannot be read" in caplog.text


def test_names_of_runs_and_metrics_may_hold_anything_and_never_name_a_file(tmp_path: Path) -> None:
    run, metric = "../../etc/пароль\\?*", "act_grad_norm/../layer 7/⚡\"'"
    write(tmp_path, named(block({metric: [[1.0, 2.0]]}), run))
    reader = HistoryReader(tmp_path)
    assert reader.metrics(run_id_of(run)) == [metric]
    assert reader.curve(run_id_of(run), 0, metric).columns["max"].tolist() == [2.0]
    assert {part for path in tmp_path.rglob("*") for part in path.relative_to(tmp_path).parts} == {
        run_id_of(run),
        "0",
        "summary-0-0-1.parquet",
        "values-0-0-1.parquet",
    }


@pytest.mark.parametrize("run_id", ["..", "../x", "", "0" * 15, "A" * 16, "0" * 17, "0" * 16])
def test_what_is_no_run_of_ours_has_no_history(tmp_path: Path, run_id: str) -> None:
    write(tmp_path, noise(10))
    reader = HistoryReader(tmp_path)
    assert (reader.attempts(run_id), reader.metrics(run_id)) == ([], [])
    assert not len(reader.curve(run_id, 0, "loss").columns["iteration"])
    assert reader.matrix(run_id, 0, "loss") is None


def test_attempts_are_apart(tmp_path: Path) -> None:
    write(tmp_path, noise(10), noise(20, attempt=3))
    reader = HistoryReader(tmp_path)
    assert reader.attempts(RUN) == [0, 3]
    assert len(reader.curve(RUN, 3, "loss").columns["iteration"]) == 20


def test_four_thousand_metrics_are_one_file_of_summaries(tmp_path: Path) -> None:
    names = [f"norm/layer_{at}" for at in range(4096)]
    write(tmp_path, block({name: [[float(at), -1.0]] * 3 for at, name in enumerate(names)}))
    reader = HistoryReader(tmp_path)
    assert len(list(tmp_path.rglob("summary-*"))) == 1
    assert reader.metrics(RUN) == sorted(names)
    assert reader.curve(RUN, 0, "norm/layer_4000").columns["max"].tolist() == [4000.0] * 3


def test_jumps_of_a_billion_iterations_are_shown_on_both_sides(tmp_path: Path) -> None:
    jump = 10**9
    write(tmp_path, noise(6000, 2), noise(6000, 2, start=jump), noise(10, 2, start=5 * 10**17))
    curve = HistoryReader(tmp_path).curve(RUN, 0, "loss", points=5000)
    at = curve.columns["iteration"]
    assert (at < 6000).sum() > 300
    assert ((at >= jump) & (at < jump + 6000)).sum() > 300
    assert (at >= 5 * 10**17).any()


def test_microbatches_of_an_iteration_are_rows_of_their_own(tmp_path: Path) -> None:
    write(tmp_path, block(loss=[[1.0], [3.0], [2.0]], iterations=[7, 7, 8], microbatches=[0, 1, 0]))
    reader = HistoryReader(tmp_path)
    assert reader.curve(RUN, 0, "loss").columns["max"].tolist() == [1.0, 3.0, 2.0]
    matrix = reader.matrix(RUN, 0, "loss")
    assert matrix is not None and matrix.microbatch_T.tolist() == [0, 1, 0]


def test_the_flight_recorder_keeps_the_latest_iterations(tmp_path: Path) -> None:
    config = HistoryConfig(keep_free_bytes=0, recorder_iterations=25, recorder_bytes=0)
    write(tmp_path, *cut(noise(200), range(0, 200, 10)), config=config)
    kept = segments(tmp_path / RUN / "0", VALUES)
    assert (kept[0].first, kept[-1].last) == (170, 199)
    assert len(HistoryReader(tmp_path).curve(RUN, 0, "loss").columns["iteration"]) == 200


def test_the_pipeline_shows_settled_blocks_and_nothing_that_is_pending(tmp_path: Path) -> None:
    batch = batch_from_records(record(0, at, loss=2.0 + at % 3) for at in range(200))
    writer = HistoryWriter(tmp_path, EVERYTHING)
    pipeline = Pipeline(on_block=writer.update)

    pipeline.feed(batch)
    pipeline.verdict("run")
    writer.close()

    curve = HistoryReader(tmp_path).curve(RUN, 0, "loss")
    assert curve.columns["iteration"].tolist() == list(range(199 - 64))


def test_the_last_iterations_of_a_run_that_died_are_seen_before_they_settle(tmp_path: Path) -> None:
    pipeline, writer = _fed_with_a_run_that_dies_of_nan(tmp_path, 150)
    assert writer.freeze("a1", "run", 0, (148, 150))
    reader = HistoryReader(tmp_path)
    before = reader.curve(RUN, 0, "loss").columns

    writer.show_pending(pending_of(pipeline, "run"))
    live = reader.curve(RUN, 0, "loss").columns
    recorded = reader.matrix(RUN, 0, "loss")
    writer.show_pending(pending_of(pipeline, "run"), is_quiet=True)
    quiet = reader.matrix(RUN, 0, "loss")
    frozen = reader.window_matrix("a1", "loss")

    assert (before["iteration"][-1], before["nan"].sum()) == (84, 0)
    assert (live["iteration"].tolist(), live["nan"].sum()) == (list(range(150)), 2)
    assert recorded is not None and recorded.iteration_T[-1] == 84
    assert quiet is not None and quiet.values_TR is not None
    assert_array_equal(quiet.iteration_T, np.arange(150))
    assert np.isnan(quiet.values_TR[149]).all() and quiet.present_TR[149].all()
    assert frozen is not None and frozen.values_TR is not None
    assert frozen.iteration_T[-1] == 149 and np.isnan(frozen.values_TR[-1]).all()
    window = reader.window("a1")
    assert window is not None and not window.is_complete


@pytest.mark.parametrize("crashed", [False, True])
def test_what_settles_replaces_what_was_shown_before(tmp_path: Path, crashed: bool) -> None:
    config = HistoryConfig(keep_free_bytes=0, window_margin_iterations=5)
    early, whole = noise(100, 3), noise(300, 3, seed=1)  # values that were only half known then
    writer = HistoryWriter(tmp_path, config)
    writer.show_pending([early], is_quiet=True)
    writer.freeze("a1", "run", 0, (90, 95))
    shown = HistoryReader(tmp_path).window_matrix("a1", "loss")

    if crashed:
        writer = HistoryWriter(tmp_path, config)
    for one in cut(whole, [50, 250]):
        writer.update(one)
        writer.flush()

    reader = HistoryReader(tmp_path)
    assert shown is not None and shown.values_TR is not None
    assert_array_equal(shown.values_TR, early.numbers["loss"].values_TR[85:100])
    for matrix, part in (
        (reader.window_matrix("a1", "loss"), slice(85, 100)),
        (reader.matrix(RUN, 0, "loss"), slice(0, 300)),
    ):
        assert matrix is not None and matrix.values_TR is not None
        assert_array_equal(matrix.values_TR, whole.numbers["loss"].values_TR[part])
    curve = reader.curve(RUN, 0, "loss", points=1000)
    assert curve.columns["reported"].sum() == losses([whole])[1].sum()
    window = reader.window("a1")
    assert window is not None and window.is_complete


def test_a_run_too_short_to_settle_has_a_curve_and_can_be_frozen(tmp_path: Path) -> None:
    pipeline, writer = _fed_with_a_run_that_dies_of_nan(tmp_path, 10)
    writer.show_pending(pending_of(pipeline, "run"), is_quiet=True)
    assert writer.freeze("a1", "run", 0, (9, 10))
    writer.close()
    reader = HistoryReader(tmp_path)
    assert reader.metrics(RUN) == ["loss"]
    assert reader.curve(RUN, 0, "loss").columns["iteration"].tolist() == list(range(10))
    matrix = reader.window_matrix("a1", "loss")
    assert matrix is not None and matrix.iteration_T.tolist() == list(range(10))


def _fed_with_a_run_that_dies_of_nan(folder: Path, iterations: int) -> tuple[Pipeline, HistoryWriter]:
    writer = HistoryWriter(folder, EVERYTHING)
    pipeline = Pipeline(on_block=writer.update)
    values = [*(2.0 + at % 3 for at in range(iterations - 1)), np.nan]
    pipeline.feed(
        batch_from_records(record(r, at, loss=value) for at, value in enumerate(values) for r in (0, 1))
    )
    return pipeline, writer


class CountingWriter(HistoryWriter):
    """Notes the attempts that are shown."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.shown: list[int] = []

    def show_pending(self, blocks: Sequence[IterationBlock], *, is_quiet: bool = False) -> None:
        self.shown += [block.attempt for block in blocks]
        super().show_pending(blocks, is_quiet=is_quiet)


def test_only_attempts_with_news_are_shown_again(tmp_path: Path) -> None:
    pipeline, writer = Pipeline(), CountingWriter(tmp_path)
    recorder = Recorder(writer)
    pipeline.feed(batch_from_records(record(0, 1, attempt=at, loss=1.0) for at in range(5)))
    assert recorder.show(pipeline, "run", is_quiet=False)
    assert recorder.show(pipeline, "run", is_quiet=True)
    assert writer.shown == [*range(5), *range(5)]
    pipeline.feed(batch_from_records([record(0, 2, attempt=3, loss=1.0)]))
    assert recorder.show(pipeline, "run", is_quiet=True)
    assert writer.shown[10:] == [3]


def test_of_very_many_attempts_some_are_shown_at_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.recorder._SHOW_AT_MOST_S", -1.0)
    pipeline, writer = Pipeline(), CountingWriter(tmp_path)
    recorder = Recorder(writer)
    pipeline.feed(batch_from_records(record(0, 1, attempt=at, loss=1.0) for at in range(3)))
    assert [recorder.show(pipeline, "run", is_quiet=True) for _ in range(4)] == [False, False, True, True]
    assert writer.shown == [0, 1, 2]

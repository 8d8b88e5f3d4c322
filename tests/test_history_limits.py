"""History within its bytes: what goes first, a full disk, memory, and a reader beside the writer.

Axes: T positions, R ranks.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ingest.blocks import IterationBlock
from service.history_config import HistoryConfig
from service.history_matrix import Matrix
from service.history_reader import HistoryReader
from service.history_writer import HistoryWriter
from service.run_id import run_id_of
from tests.block_builders import block, cut, masked
from tests.history_builders import EVERYTHING, RUN, losses, named, noise, write

MIB = 1 << 20
SMALL = HistoryConfig(budget_bytes=MIB, keep_free_bytes=0, recorder_iterations=10**6)


def files(folder: Path, kind: str) -> list[str]:
    return sorted(path.name for path in folder.rglob(f"{kind}*.parquet"))


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def no_room(*_: object) -> Iterator[object]:
    raise OSError(28, "No space left on device")


def test_an_incident_keeps_what_every_rank_reported_after_the_recorder_forgot_it(tmp_path: Path) -> None:
    whole = noise(400, 5)
    config = HistoryConfig(
        keep_free_bytes=0, recorder_iterations=40, recorder_bytes=0, window_margin_iterations=10
    )
    pieces = cut(whole, range(0, 400, 20))
    writer = write(tmp_path, *pieces[:10], config=config)

    assert writer.freeze("a1b2", "run", 0, (180, 185))
    for one in pieces[10:]:
        writer.update(one)
        writer.flush()

    reader = HistoryReader(tmp_path)
    window = reader.window("a1b2")
    assert window is not None and window.is_complete
    assert (window.run_id, window.attempt, window.first, window.last) == (RUN, 0, 170, 194)
    assert (list(window.numbers), list(window.checksums)) == (["loss"], ["param_checksum"])
    for matrix in (reader.window_matrix("a1b2", "loss"), reader.matrix(RUN, 0, "loss", 170, 195)):
        assert matrix is not None and matrix.values_TR is not None
        assert_array_equal(matrix.values_TR, whole.numbers["loss"].values_TR[170:195])
        assert_array_equal(matrix.present_TR, whole.numbers["loss"].present_TR[170:195])
    checksum = reader.window_matrix("a1b2", "param_checksum", ranks=[4])
    assert checksum is not None and checksum.low_TR is not None
    assert_array_equal(checksum.low_TR, whole.checksums["param_checksum"].low_TR[170:195, 4:5])


@pytest.mark.parametrize("crashed", [False, True])
def test_a_window_is_completed_once_the_rest_has_settled(tmp_path: Path, crashed: bool) -> None:
    config = HistoryConfig(keep_free_bytes=0, window_margin_iterations=30)
    pieces = cut(noise(200), range(0, 200, 50))
    writer = write(tmp_path, *pieces[:2], config=config)
    writer.freeze("a1", "run", 0, (90, 95))
    first = HistoryReader(tmp_path).window("a1")

    if crashed:
        writer = HistoryWriter(tmp_path, config)
    writer.update(pieces[2])
    writer.flush()

    assert first is not None and (first.last, first.is_complete) == (99, False)
    then = HistoryReader(tmp_path).window("a1")
    assert then is not None and (then.first, then.last, then.is_complete) == (60, 124, True)
    assert len(files(tmp_path, "a1-")) == 1


def test_a_window_includes_what_only_waits_to_be_written(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path, EVERYTHING)
    writer.update(noise(20))
    assert writer.freeze("a1", "run", 0, (19, 20))
    window = HistoryReader(tmp_path).window("a1")
    assert window is not None and (window.first, window.last) == (0, 19)


def test_an_incident_that_moved_moves_its_window(tmp_path: Path) -> None:
    config = HistoryConfig(keep_free_bytes=0, window_margin_iterations=0)
    writer = write(tmp_path, noise(100), config=config)
    writer.freeze("a1", "run", 0, (50, 60))
    writer.freeze("a1", "run", 0, (20, 55))
    window = HistoryReader(tmp_path).window("a1")
    assert window is not None and window.first == 20
    assert len(files(tmp_path, "a1-")) == 1


def test_a_window_too_large_is_cut_to_where_the_fault_was_seen(tmp_path: Path) -> None:
    config = HistoryConfig(keep_free_bytes=0, window_bytes=1 << 16)
    writer = write(tmp_path, *cut(noise(2000, 32), range(0, 2000, 100)), config=config)
    writer.freeze("a1", "run", 0, (100, 1500))
    window = HistoryReader(tmp_path).window("a1")
    assert window is not None
    assert window.first < 1499 <= window.last
    assert size(tmp_path / "windows") < 2 * config.window_bytes


def test_the_margin_of_a_window_counts_positions_of_a_counter_that_leaps(tmp_path: Path) -> None:
    config = HistoryConfig(keep_free_bytes=0, window_margin_iterations=3)
    writer = write(tmp_path, noise(100, stride=1000), config=config)
    writer.freeze("a1", "run", 0, (50_000, 50_001))
    matrix = HistoryReader(tmp_path).window_matrix("a1", "loss")
    assert matrix is not None and 5 <= len(matrix.iteration_T) <= 9


def test_a_damaged_file_costs_a_window_its_own_iterations_alone(tmp_path: Path) -> None:
    writer = write(tmp_path, *cut(noise(60), [20, 40]))
    (damaged,) = tmp_path.rglob("values-20-39-20.parquet")
    damaged.write_bytes(damaged.read_bytes()[:-100])
    assert writer.freeze("a1", "run", 0, (30, 31))
    matrix = HistoryReader(tmp_path).window_matrix("a1", "loss")
    assert matrix is not None
    assert_array_equal(matrix.iteration_T, [*range(20), *range(40, 60)])


@pytest.mark.parametrize("incident_id", ["", "../x", "a-b", "a/b", "ä", "a" * 65])
def test_what_is_no_id_of_an_incident_is_refused_by_name(tmp_path: Path, incident_id: str) -> None:
    writer = write(tmp_path, noise(10))
    with pytest.raises(ValueError, match="incident_id must be"):
        writer.freeze(incident_id, "run", 0, (0, 1))
    assert HistoryReader(tmp_path).window(incident_id) is None


def test_nothing_to_freeze_is_said(tmp_path: Path) -> None:
    assert not write(tmp_path, noise(10)).freeze("a1", "another", 0, (0, 5))


def test_values_of_ranks_go_before_curves_and_the_oldest_first(tmp_path: Path) -> None:
    writer = write(tmp_path, *(noise(200, 64, start=200 * at) for at in range(20)), config=SMALL)
    assert size(tmp_path) <= MIB
    assert size(tmp_path) == writer.health()["used_bytes"]
    assert writer.health()["pruned_values"] > 0
    matrix = HistoryReader(tmp_path).matrix(RUN, 0, "loss")
    assert matrix is not None and matrix.iteration_T[0] > 0
    assert matrix.iteration_T[-1] == 3999
    assert HistoryReader(tmp_path).curve(RUN, 0, "loss", points=4000).columns["positions"].sum() == 4000


def test_then_curves_of_the_run_silent_longest_get_coarser_and_keep_their_extremes(tmp_path: Path) -> None:
    config = HistoryConfig(budget_bytes=MIB, keep_free_bytes=0, recorder_iterations=1, recorder_bytes=0)
    old, new = (named(noise(16_000, 2, seed=at), f"run {at}") for at in range(2))
    for one in (old, new):
        write(tmp_path, *cut(one, range(0, 16_000, 1000)), config=config)
    reader = HistoryReader(tmp_path)
    curves = [reader.curve(run_id_of(f"run {at}"), 0, "loss", points=16_000) for at in range(2)]
    assert size(tmp_path) <= MIB
    assert len(curves[0].columns["iteration"]) < len(curves[1].columns["iteration"])
    values_TR, present_TR = losses([old])
    finite = values_TR[present_TR & np.isfinite(values_TR)]
    assert np.nanmin(curves[0].columns["min"]) == finite.min()
    assert np.nanmax(curves[0].columns["max"]) == finite.max()
    assert curves[0].columns["nan"].sum() == np.isnan(values_TR[present_TR]).sum()
    assert curves[0].is_downsampled


def with_windows(
    folder: Path, incidents: int, budget_bytes: int
) -> tuple[HistoryWriter, list[tuple[int, int]]]:
    """A writer that froze windows of closed and open incidents in turn; how many of both there then were."""
    config = HistoryConfig(
        budget_bytes=budget_bytes,
        keep_free_bytes=0,
        recorder_iterations=1,
        recorder_bytes=0,
        window_margin_iterations=0,
    )
    writer = HistoryWriter(folder, config, is_open=lambda incident: incident.startswith("open"))
    seen: list[tuple[int, int]] = []
    for at in range(incidents):
        writer.update(noise(100, 80, start=100 * at))
        writer.freeze(f"open{at}" if at % 2 else f"closed{at}", "run", 0, (100 * at, 100 * at + 99))
        seen.append((len(files(folder, "closed")), len(files(folder, "open"))))
    return writer, seen


def test_windows_of_closed_incidents_go_before_those_of_open_ones(tmp_path: Path) -> None:
    writer, seen = with_windows(tmp_path, 16, MIB)
    assert size(tmp_path) <= MIB
    assert writer.health()["pruned_closed_window"] > 2
    assert [opened for _, opened in seen] == [(at + 1) // 2 for at in range(16)]
    assert "pruned_open_window" not in writer.health()


def test_a_window_of_an_open_incident_that_no_budget_holds_is_counted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with_windows(tmp_path, 40, 8 * MIB)
    writer, _ = with_windows(tmp_path, 1, MIB)
    assert size(tmp_path) <= MIB
    assert writer.health()["pruned_open_window"] > 5
    assert "frozen window of an open incident was pruned" in caplog.text
    assert HistoryReader(tmp_path).window("open1") is None
    assert HistoryReader(tmp_path).window("open39") is not None


def test_a_disk_without_room_costs_history_which_is_counted_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = HistoryConfig(keep_free_bytes=1 << 50, pending_bytes=1 << 16)
    writer = HistoryWriter(tmp_path, config)
    for at in range(50):
        writer.update(noise(100, 8, start=100 * at))
    assert not writer.flush()
    assert not writer.freeze("a1", "run", 0, (0, 10))
    writer.close()
    health = writer.health()
    assert health["dropped_iterations"] > 3000
    assert health["pending_bytes"] <= 1 << 16
    assert health["failed_writes"] > 10
    assert len(caplog.records) < 5
    assert files(tmp_path, "") == []


def test_what_could_not_be_written_is_written_when_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = HistoryWriter(tmp_path, EVERYTHING)
    writer.update(noise(50))
    with monkeypatch.context() as full:
        full.setattr("service.history_segments.write_values", no_room)  # between the two files
        assert not writer.flush()
    writer.update(noise(50, start=50))
    assert writer.flush()
    reader = HistoryReader(tmp_path)
    matrix = reader.matrix(RUN, 0, "loss")
    assert matrix is not None and len(matrix.iteration_T) == 100
    curve = reader.curve(RUN, 0, "loss")
    assert curve.columns["iteration"].tolist() == sorted(set(curve.columns["iteration"].tolist()))
    assert list(tmp_path.rglob(".*")) == []


def test_pending_values_stay_within_their_bytes_and_pin_no_larger_array(tmp_path: Path) -> None:
    config = HistoryConfig(keep_free_bytes=0, pending_bytes=MIB)
    writer = HistoryWriter(tmp_path, config)
    for at in range(40):
        writer.update(named(noise(100, 100, start=100 * at), f"run {at % 4}"))
        assert writer.health()["pending_bytes"] <= MIB + 100 * 100 * 30
    one = cut(noise(1000, 100), [1])[0]
    wide = noise(1000, 100)
    view = IterationBlock(
        run="views",
        attempt=0,
        iteration_T=wide.iteration_T[:1],
        microbatch_T=wide.microbatch_T[:1],
        ranks_R=one.ranks_R,
        numbers={"loss": wide.numbers["loss"].rows(slice(0, 1))},
        time_T=wide.time_T[:1],
    )
    writer.update(view)
    held = writer._attempts[run_id_of("views"), 0].pending.blocks[0].numbers["loss"].values_TR
    assert not np.shares_memory(held, wide.numbers["loss"].values_TR)


def test_what_waits_is_written_when_its_time_has_come(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path, HistoryConfig(keep_free_bytes=0, flush_every_s=5.0))
    writer.update(noise(10))
    writer.maybe_flush(100.0)
    writer.maybe_flush(104.0)
    assert files(tmp_path, "summary") == []
    writer.maybe_flush(105.0)
    assert len(files(tmp_path, "summary")) == 1


def test_many_runs_are_remembered_only_while_they_have_something_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.history_writer._IDLE_ATTEMPTS", 8)
    writer = HistoryWriter(tmp_path, HistoryConfig(keep_free_bytes=0, flush_every_s=0.0))
    for at in range(12):
        writer.update(named(block(loss=[1.0], iterations=[at]), f"run {at}"))
    writer.maybe_flush(0.0)
    writer.maybe_flush(1.0)
    assert len(writer._attempts) == 8
    writer.update(named(block(loss=[2.0], iterations=[0]), "run 0"))
    writer.close()
    assert HistoryReader(tmp_path).curve(run_id_of("run 0"), 0, "loss").columns["max"].tolist() == [1.0]


_WRITER = """
import sys
from pathlib import Path
from service.history_config import HistoryConfig
from service.history_matrix import Matrix
from service.history_writer import HistoryWriter
from service import history_names
from tests.history_builders import noise

history_names._sync = lambda _: None  # faster than any worker writes
config = HistoryConfig(
    keep_free_bytes=0, recorder_iterations=200, recorder_bytes=0, window_margin_iterations=50
)
writer = HistoryWriter(Path(sys.argv[1]), config)
for at in range(300):
    writer.update(noise(10, 3, start=10 * at))
    writer.flush()
    writer.freeze("a1", "run", 0, (max(0, 10 * at - 30), 10 * at + 10))
print("done")
"""


def test_a_reader_beside_the_writer_sees_every_iteration_up_to_some_point(tmp_path: Path) -> None:
    """While files are joined, retired and replaced, a curve has no hole and no value twice."""
    reader = HistoryReader(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    looks, longest = 0, 0
    while child.poll() is None:
        curve = reader.curve(RUN, 0, "loss", points=5000)
        at = curve.columns["iteration"].tolist()
        if at:
            # noise may leave a position without any report, so counts are compared and not places
            expected = losses([noise(10, 3, start=start) for start in range(0, at[-1] + 1, 10)])[1]
            assert curve.columns["reported"].sum() == expected.sum()
            assert at[-1] >= longest
            looks, longest = looks + 1, at[-1]
        matrix = reader.matrix(RUN, 0, "loss")
        if matrix is not None:
            assert (np.diff(matrix.iteration_T) > 0).all()
        reader.window_matrix("a1", "loss")
    assert child.communicate()[0] == "done\n"
    assert looks > 5
    assert reader.curve(RUN, 0, "loss", points=5000).columns["iteration"][-1] == 2999


def test_a_damaged_file_is_left_out_and_no_wrong_number_shown(tmp_path: Path) -> None:
    """Bytes of files overwritten at random: what is still shown is true."""
    whole = noise(60)
    write(tmp_path, *cut(whole, [20, 40])).freeze("a1", "run", 0, (10, 20))
    reader = HistoryReader(tmp_path)
    paths = sorted(tmp_path.rglob("*.parquet"))
    sound = [path.read_bytes() for path in paths]
    values_TR, present_TR = losses([whole])
    known = set(values_TR[present_TR & np.isfinite(values_TR)].tolist())
    rng = np.random.default_rng(0)
    for _ in range(100):
        at = int(rng.integers(len(paths)))
        damaged = bytearray(sound[at])
        for place in rng.integers(4, len(damaged), size=3).tolist():
            damaged[place] ^= 1 << int(rng.integers(8))
        paths[at].write_bytes(damaged)
        curve, matrix = reader.curve(RUN, 0, "loss"), reader.matrix(RUN, 0, "loss")
        reader.metrics(RUN), reader.window("a1"), reader.window_matrix("a1", "param_checksum")
        paths[at].write_bytes(sound[at])
        assert set(curve.columns["max"][~np.isnan(curve.columns["max"])].tolist()) <= known
        if matrix is not None and matrix.values_TR is not None:
            shown = matrix.values_TR[matrix.present_TR & np.isfinite(matrix.values_TR)]
            assert set(shown.tolist()) <= known


def test_pieces_of_a_run_whose_ranks_come_and_go_are_bounded_with_all_their_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.history_reader._PIECE_CELLS", 500)
    rng = np.random.default_rng(3)
    late_TR = np.arange(42)[:, np.newaxis] >= np.where(np.arange(200) < 3, 42, 2)
    parts = [
        block({"loss": rng.normal(size=(300, 1))}),
        block({"loss": masked(rng.normal(size=(42, 200)), late_TR)}, iterations=300 + np.arange(42)),
    ]
    write(tmp_path, *parts)
    shapes: list[tuple[int, ...]] = []
    found: dict[tuple[int, int], float] = {}

    def fold(pieces: Iterator[Matrix]) -> None:
        for one in pieces:
            assert one.values_TR is not None
            shapes.append(one.present_TR.shape)
            for t, r in np.argwhere(one.present_TR):
                found[int(one.iteration_T[t]), int(one.ranks_R[r])] = one.values_TR[t, r]

    HistoryReader(tmp_path).fold_matrices(RUN, 0, "loss", (0, 400), fold)
    assert max(rows * ranks for rows, ranks in shapes) <= 500
    expected = {
        (int(part.iteration_T[t]), r): part.numbers["loss"].values_TR[t, r]
        for part in parts
        for t, r in np.argwhere(part.numbers["loss"].present_TR)
    }
    assert len(found) == 300 + 2 * 200 + 40 * 3
    assert found == expected

"""The layout of an attempt outlives the worker that was told of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from firstfault.mesh import Layout
from service.history_reader import HistoryReader
from service.history_writer import HistoryWriter

from .history_builders import EVERYTHING, RUN, noise, write

PAIR = Layout(
    axes=("dp", "tp"),
    coordinates={rank: divmod(rank, 2) for rank in range(4)},
    devices={0: "H100"},
    hosts={0: "node\u202e-1", 3: "node-2"},
)


def test_a_layout_comes_back_as_it_was_told_and_of_two_the_newer(tmp_path: Path) -> None:
    moved = dataclasses.replace(PAIR, hosts={0: "node-9"})
    with_layout = dataclasses.replace(noise(10), layout=PAIR)
    writer = write(tmp_path, with_layout, noise(10, start=10))
    assert HistoryReader(tmp_path).layout(RUN, 0) == PAIR
    writer.update(dataclasses.replace(noise(10, start=20), layout=moved))
    assert writer.flush()
    assert HistoryReader(tmp_path).layout(RUN, 0) == moved
    assert writer.health()["used_bytes"] == sum(one.stat().st_size for one in tmp_path.rglob("*.*"))


def test_a_run_too_short_to_settle_has_a_layout_too(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path, EVERYTHING)
    writer.show_pending([dataclasses.replace(noise(3), layout=PAIR)], is_quiet=True)
    assert HistoryReader(tmp_path).layout(RUN, 0) == PAIR


def test_no_layout_is_known_where_none_was_told_or_its_file_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, noise(10))
    reader = HistoryReader(tmp_path)
    assert reader.layout(RUN, 0) is None
    assert reader.layout("../../etc", 0) is None
    for damage in (b"", b"\x1f\x8b\x08", b"{}"):
        (tmp_path / RUN / "0" / "layout.json.gz").write_bytes(damage)
        assert reader.layout(RUN, 0) is None
    assert len(caplog.records) == 3

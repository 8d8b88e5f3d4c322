"""The heat map over HTTP: the worst survives in any cell, and every kind of absence has its mark."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firstfault.mesh import Layout
from ingest.blocks import IterationBlock

from .api_builders import Json, seeded
from .block_builders import block, masked
from .history_builders import write
from .service_builders import an_incident
from .test_api_curves import Kept

MESH = Layout(
    axes=("dp", "tp"),
    coordinates={rank: divmod(rank, 2) for rank in range(8)},
    hosts={rank: f"node-{rank // 4}" for rank in range(8)},
)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Kept]:
    folder = tmp_path / "history"
    with seeded(tmp_path, history_folder=folder) as one:
        yield Kept(one, folder, one.put("run", an_incident()))


def heatmap(api: Kept, metric: str = "loss", *, start: int | None = None, **asked: Any) -> Json:
    query = {"metric": metric, **asked} | ({} if start is None else {"from": start})
    answer = api.client().get(f"/v1/runs/{api.run_id}/heatmap", params=query)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def calm(positions: int = 40, ranks: int = 8, *, start: int = 0) -> Any:
    """Losses of ranks that differ by a little."""
    rng = np.random.default_rng(start)
    return rng.normal(2.0, 0.01, (positions, ranks))


def placed(one: IterationBlock, layout: Layout = MESH) -> IterationBlock:
    return dataclasses.replace(one, layout=layout)


def marks(found: Json) -> list[str]:
    return [row["marks"] for row in found["rows"]]


def test_one_nan_of_one_rank_is_seen_however_few_cells_there_are(api: Kept) -> None:
    values_TR = calm(400, 64)
    values_TR[123, 37] = np.nan
    write(api.folder, block({"loss": values_TR}))
    found = heatmap(api, rows=4, columns=5)
    assert marks(found) == [".....", ".....", ".n...", "....."]
    row = found["rows"][2]
    assert (row["value"][1], row["rank"][1], row["iteration"][1]) == ("NaN", 37, 123)
    assert found["any"]["marks"] == ".n..."
    assert row["ranks"] == "32-47"


def test_the_kinds_have_an_order_and_each_its_letter(api: Kept) -> None:
    values_TR = calm(6, 8)
    values_TR[1, 0], values_TR[2, 0], values_TR[3, 0] = np.nan, np.inf, -np.inf
    values_TR[4, 1] = 9.0
    hidden_TR = np.zeros(values_TR.shape, bool)
    hidden_TR[2, 2] = hidden_TR[4:, 3] = True
    write(api.folder, block({"loss": masked(values_TR, hidden_TR)}))
    found = heatmap(api, columns=6)
    assert marks(found)[:4] == [".n+-..", "......", "..m...", "....ll"]
    assert found["rows"][1]["score"][4] > 100 > found["rows"][1]["score"][3]
    assert found["rows"][0]["value"][1:4] == ["NaN", "Infinity", "-Infinity"]
    whole = heatmap(api, rows=1, columns=1)
    assert marks(whole) == ["n"]


def test_a_rank_that_never_reports_a_metric_is_neither_missing_nor_late(api: Kept) -> None:
    hidden_TR = np.zeros((10, 8), bool)
    hidden_TR[:, 5] = True
    write(api.folder, placed(block({"loss": masked(calm(10), hidden_TR)})))
    assert marks(heatmap(api, columns=10))[5] == " " * 10


def test_a_checksum_that_differs_from_its_replicas_is_marked_and_other_shards_are_not(api: Kept) -> None:
    sums_TR = np.tile([7, 8] * 4, (6, 1))  # each tensor-parallel half has its own
    sums_TR[3:, 4] = 9
    write(api.folder, placed(block(param_checksum=sums_TR)))
    found = heatmap(api, "param_checksum", columns=6)
    assert marks(found) == ["......"] * 4 + ["...xxx"] + ["......"] * 3
    assert found["rows"][4]["value"][3] == "9"


def test_a_checksum_on_which_replicas_are_split_evenly_is_marked_on_all_of_them(api: Kept) -> None:
    write(api.folder, block(param_checksum=[[1, 1, 1, 1], [1, 1, 2, 2]]))
    assert marks(heatmap(api, "param_checksum", columns=2)) == [".x"] * 4


def test_what_all_must_agree_on_is_compared_for_that(api: Kept) -> None:
    norm_TR = np.full((6, 8), 1.25)
    norm_TR[2, 6] = 1.5
    write(api.folder, block({"grad_norm": norm_TR}))
    assert marks(heatmap(api, "grad_norm", columns=6))[6] == "..x..."


def test_a_norm_that_is_local_whatever_its_name_is_compared_with_its_peers(api: Kept) -> None:
    norm_TR = 1.0 + 0.2 * np.random.default_rng(3).random((20, 8))
    norm_TR[7, 2] = 50.0
    write(api.folder, block({"grad_norm": norm_TR}))
    found = heatmap(api, "grad_norm", columns=20)
    assert set("".join(marks(found))) == {"."}
    assert int(np.argmax(found["rows"][2]["score"])) == 7


def test_of_a_step_time_only_more_is_worse(api: Kept) -> None:
    times_TR = calm(10)
    times_TR[4, 1], times_TR[4, 2] = 4.0, 0.1
    write(api.folder, placed(block({"step_time_s": times_TR})))
    found = heatmap(api, "step_time_s", columns=10)
    assert found["rows"][1]["score"][4] > 100
    assert found["rows"][2]["score"][4] == 0


def test_a_count_of_values_that_are_not_finite_has_a_mark_and_the_greatest_is_the_worst(api: Kept) -> None:
    counts_TR = np.zeros((10, 4))
    counts_TR[4:, 1], counts_TR[6, 2] = 7.0, 51_200.0
    write(api.folder, block({"nonfinite_act": counts_TR}))
    found = heatmap(api, "nonfinite_act", columns=10)
    assert marks(found) == ["." * 10, "....cccccc", "......c...", "." * 10]
    assert heatmap(api, "nonfinite_act", rows=1, columns=1)["rows"][0]["value"] == [51_200.0]


def test_peers_are_those_of_the_layout(api: Kept) -> None:
    values_TR = calm(20)
    values_TR[:, 1::2] += 5.0  # the other tensor-parallel half
    write(api.folder, placed(block({"local_grad_norm": values_TR})))
    scores = [row["score"] for row in heatmap(api, "local_grad_norm", columns=20)["rows"]]
    assert max(max(one) for one in scores) < 20


@pytest.mark.parametrize(
    ("by", "groups", "ranks"),
    [
        ("rank", [""] * 8, ["0", "1", "2", "3", "4", "5", "6", "7"]),
        ("host", ["node-0"] * 4 + ["node-1"] * 4, ["0", "1", "2", "3", "4", "5", "6", "7"]),
        ("tp", ["tp 0"] * 4 + ["tp 1"] * 4, ["0", "2", "4", "6", "1", "3", "5", "7"]),
    ],
)
def test_rows_lie_by_their_group(api: Kept, by: str, groups: list[str], ranks: list[str]) -> None:
    write(api.folder, placed(block({"loss": calm()})))
    found = heatmap(api, by=by)
    assert found["ways"] == ["rank", "host", "dp", "tp"]
    assert [row["group"] for row in found["rows"]] == groups
    assert [row["ranks"] for row in found["rows"]] == ranks
    assert found["rows"][0]["host"] == "node-0"


def test_groups_that_are_too_many_are_joined_and_keep_the_worst(api: Kept) -> None:
    values_TR = calm()
    values_TR[5, 7] = np.inf
    write(api.folder, placed(block({"loss": values_TR})))
    by_host = heatmap(api, by="host", rows=2, columns=4)
    assert [row["ranks"] for row in by_host["rows"]] == ["0-3", "4-7"]
    by_dp = heatmap(api, by="dp", rows=2, columns=4)
    assert [row["group"] for row in by_dp["rows"]] == ["dp 0 … dp 1", "dp 2 … dp 3"]
    assert marks(by_dp)[1][0] == "+"


def test_an_axis_that_the_layout_lacks_is_refused_by_name(api: Kept) -> None:
    write(api.folder, placed(block({"loss": calm()})))
    answer = api.client().get(f"/v1/runs/{api.run_id}/heatmap", params={"metric": "loss", "by": "pp"})
    assert answer.status_code == 404
    assert "must be one of rank, host, dp, tp, got 'pp'" in answer.text


def test_of_more_cells_than_the_settings_allow_there_are_fewer_rows(api: Kept) -> None:
    write(api.folder, block({"loss": calm(900, 64)}))
    found = heatmap(api, rows=60, columns=900)
    assert len(found["columns"]["iteration"]) == 900
    assert [row["rank_count"] for row in found["rows"]] == [3] * 21 + [1]


def test_where_nothing_of_the_metric_is_kept_there_are_no_cells(api: Kept) -> None:
    write(api.folder, block({"loss": calm()}))
    found = heatmap(api, "lss")
    assert (found["rows"], found["columns"]["iteration"]) == ([], [])


def test_ranks_and_iterations_can_be_looked_at_closer(api: Kept) -> None:
    write(api.folder, block({"loss": calm(100, 64)}))
    found = heatmap(api, ranks="8-10,40", to=29, columns=10, start=20)
    assert [row["first_rank"] for row in found["rows"]] == [8, 9, 10, 40]
    assert found["columns"]["iteration"] == list(range(20, 30))


def test_checks_that_are_rare_leave_no_empty_columns_and_a_long_gap_leaves_one(api: Kept) -> None:
    iterations = np.concatenate([np.arange(0, 200, 10), np.arange(900, 1000, 10)])
    write(api.folder, block(param_checksum=np.ones((30, 4), int), iterations=iterations))
    found = heatmap(api, "param_checksum", columns=1000, rows=4)
    assert marks(found) == ["." * 20 + " " + "." * 10] * 4
    assert found["columns"]["iteration"][19:22] == [190, 191, 900]
    assert found["columns"]["last_iteration"][19:22] == [190, 899, 909]


def test_beyond_what_is_kept_of_single_ranks_the_extremes_of_all_are_shown_as_such(api: Kept) -> None:
    from service.history_config import HistoryConfig

    config = HistoryConfig(keep_free_bytes=0, recorder_iterations=100, recorder_bytes=0)
    old = calm(900)
    old[400:420, 6] = 3.0
    old[600, 2] = np.nan
    write(
        api.folder,
        block({"loss": old}),
        block({"loss": calm(100, start=900)}, iterations=900 + np.arange(100)),
        config=config,
    )
    found = heatmap(api, columns=10, start=0)
    assert found["kept"] == [[900, 999]]
    assert {row["marks"][9] for row in found["rows"]} == {"."}
    assert found["rows"][6]["marks"][4] == "e"
    assert found["rows"][6]["score"][4] > 20
    assert found["any"]["marks"] == "......n..."
    assert heatmap(api, columns=10)["columns"]["iteration"][0] == 900


def test_of_100_000_ranks_less_than_a_megabyte_is_sent_and_no_fault_is_lost(api: Kept) -> None:
    size = 100_000
    hosts = {rank: f"host-{rank // 8}" for rank in range(size)}
    layout = Layout(axes=("dp",), coordinates={rank: (rank,) for rank in range(size)}, hosts=hosts)
    values_TR = np.tile(np.linspace(2.0, 2.1, size), (4, 1))
    values_TR[2, 70_123] = np.nan
    write(api.folder, placed(block({"loss": values_TR}, iterations=999_996 + np.arange(4)), layout))
    answer = api.client().get(f"/v1/runs/{api.run_id}/heatmap", params={"metric": "loss"})
    found = answer.json()
    assert len(answer.content) < 1_000_000
    assert found["by"] == "host"
    ((row, at),) = [(row, row["marks"].index("n")) for row in found["rows"] if "n" in row["marks"]]
    assert (row["rank"][at], found["columns"]["iteration"][at]) == (70_123, 999_998)


def test_the_largest_answer_is_less_than_a_megabyte(api: Kept) -> None:
    rng = np.random.default_rng(5)
    write(api.folder, block({"loss": rng.normal(size=(600, 400)) * 1e-7}, iterations=10**12 + np.arange(600)))
    answer = api.client().get(f"/v1/runs/{api.run_id}/heatmap", params={"metric": "loss"})
    assert len(answer.json()["rows"]) == 100
    assert len(answer.content) < 1_000_000

"""How an incident spread: columns in causal order, lanes of ranks, and what the order does not tell.

Axes: T iterations, R ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detectors.rank_groups import groups_of
from firstfault.mesh import Layout
from firstfault.telemetry import Phase
from service.history_matrix import Matrix
from service.propagation import Observations, Propagation, carried_by, propagation

from .api_builders import an_odd_incident
from .page_builders import Shown, shown

NAN = float("nan")


def numbers(metric: str, rows: dict[int, list[float | None]]) -> Matrix:
    """A metric of ranks 0, 1, … at some iterations; None was not reported."""
    values_TR = np.array([[NAN if value is None else value for value in row] for row in rows.values()])
    return Matrix(
        metric=metric,
        iteration_T=np.array(list(rows), np.int64),
        microbatch_T=np.zeros(len(rows), np.int32),
        ranks_R=np.arange(values_TR.shape[1], dtype=np.int32),
        present_TR=np.array([[value is not None for value in row] for row in rows.values()]),
        values_TR=values_TR,
    )


def spread(matrices: list[Matrix], layout: Layout | None = None, **first: Any) -> Propagation:
    seen = Observations(matrices[0].ranks_R, layout)
    for one in matrices:
        seen.take(one)
    begun = {"iteration": 10, "interval": [9, 10], "ranks": [], "victims": [], **first}
    return propagation(seen, {"first": begun})


PLAIN = Layout(axes=("dp",), coordinates={rank: (rank,) for rank in range(4)}, hosts={1: "node-1"})


def test_a_nan_goes_from_its_rank_to_all_through_the_reduction() -> None:
    found = spread(
        [
            numbers("loss", {9: [1, 1, 1, 1], 10: [1, NAN, 1, 1], 11: [NAN] * 4}),
            numbers("grad_norm", {9: [1, 1, 1, 1], 10: [NAN] * 4, 11: [NAN] * 4}),
        ],
        PLAIN,
        ranks=[1],
        victims=[0, 2, 3],
    )
    places = [(one.iteration, one.phase.label, one.new_ranks) for one in found.columns]
    assert places == [(10, "forward", 1), (10, "reduce_out", 3), (11, "forward", 0), (11, "reduce_out", 0)]
    assert found.columns[1].via == "the reduction of the gradient over the data parallel ranks"
    assert [(lane.role, list(lane.ranks), list(lane.hosts)) for lane in found.lanes] == [
        ("suspect", [1], ["node-1"]),
        ("victim", [0, 2, 3], []),
    ]
    assert found.notes == []


def test_ranks_that_turn_bad_together_are_said_to_have_no_order() -> None:
    found = spread([numbers("loss", {10: [NAN, 1, NAN, 1]})], PLAIN, ranks=[0, 2], tie=True)
    assert "2 ranks were bad first in the same phase, forward of iteration 10" in found.notes[0]
    assert "cannot be ordered within one iteration" in found.notes[0]
    assert "cannot be told apart" in found.notes[1]


def test_all_at_once_behind_the_reduction_says_that_nothing_before_it_was_bad() -> None:
    found = spread([numbers("grad_norm", {10: [NAN] * 4})], PLAIN)
    assert "all ranks at once behind the reduction" in found.notes[1]
    assert [lane.role for lane in found.lanes] == ["affected"]


def test_an_interval_that_nobody_looked_into_is_named() -> None:
    found = spread([numbers("loss", {10: [NAN, 1, 1, 1]})], PLAIN, ranks=[0], interval=[2, 10])
    assert found.notes == [
        "nothing was looked at between iterations 2 and 10: it can have begun at any of them"
    ]


def test_the_same_value_everywhere_puts_nobody_first() -> None:
    found = spread([numbers("loss", {10: [1, 1, 1, 1]})], PLAIN)
    assert (found.columns, found.lanes) == ([], [])
    assert "nobody can be put first" in found.notes[0]


@pytest.mark.parametrize(
    ("bad", "new", "phase", "words"),
    [
        ([0], [1], Phase.FORWARD, "the tensor parallel collectives"),
        ([0], [2], Phase.FORWARD, "the pipeline, from stage to stage"),
        ([0], [4], Phase.FORWARD, "cannot be ordered within one iteration"),
        ([0], [4], Phase.REDUCE_OUT, "the reduction of the gradient over the data parallel ranks"),
        ([0], [7], Phase.REDUCE_OUT, "the reduction of the gradient and the collectives inside"),
    ],
)
def test_what_carried_it_follows_from_the_layout(
    bad: list[int], new: list[int], phase: Phase, words: str
) -> None:
    places = {4 * dp + 2 * pp + tp: (dp, pp, tp) for dp in range(2) for pp in range(2) for tp in range(2)}
    layout = Layout(axes=("dp", "pp", "tp"), coordinates=places)
    ranks_R = np.arange(8, dtype=np.int32)
    bad_R, new_R = np.isin(ranks_R, bad), np.isin(ranks_R, new)
    assert words in carried_by(groups_of(layout, ranks_R), bad_R, new_R, phase, is_same_iteration=True)


def test_a_hundred_thousand_ranks_are_a_handful_of_lanes() -> None:
    ranks = 100_000
    low: list[float | None] = [1.0] * ranks
    low[77_777] = NAN
    places = {rank: divmod(rank, 8) for rank in range(ranks)}
    layout = Layout(axes=("dp", "tp"), coordinates=places)
    found = spread(
        [numbers("loss", {10: low}), numbers("grad_norm", {10: [NAN] * ranks})], layout, ranks=[77_777]
    )
    assert [(lane.role, lane.rank_count, len(lane.ranks)) for lane in found.lanes] == [
        ("suspect", 1, 1),
        ("victim", ranks - 1, 64),
    ]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Shown]:
    with shown(tmp_path) as one:
        yield one


def asked(api: Shown, run: str) -> Any:
    return api.client().get(f"/v1/runs/{run}/propagation").json()


def test_a_judged_nan_is_told_phase_by_phase(api: Shown) -> None:
    told = asked(api, api.judge("nan_activation"))
    assert told["told_by"] == "ranks"
    first, second, third, *_ = told["columns"]
    assert (first["iteration"], first["phase"], first["new_ranks"]) == (484, "forward", 1)
    assert "nonfinite_act" in first["metrics"]
    assert (second["phase"], third["phase"], third["new_ranks"]) == ("reduce_in", "reduce_out", 7)
    suspect, victims = told["lanes"]
    assert (suspect["role"], suspect["ranks"], suspect["hosts"]) == ("suspect", [1], ["node-00"])
    assert victims["cells"][:3] == ["fine", "fine", "bad"]


def test_a_replica_that_differs_leaves_the_others_clean(api: Shown) -> None:
    told = asked(api, api.judge("drift_param"))
    assert [(one["iteration"], one["phase"]) for one in told["columns"]][:2] == [
        (390, "state"),
        (400, "backward"),
    ]
    assert [(lane["role"], lane["rank_count"]) for lane in told["lanes"]] == [("suspect", 1), ("clean", 7)]
    assert "between iterations 380 and 390" in told["notes"][0]


def test_ranks_that_wait_for_a_hanging_one_are_shown_where_they_wait(api: Shown) -> None:
    told = asked(api, api.judge("hang"))
    assert [lane["cells"] for lane in told["lanes"]] == [["bad", "none"], ["none", "waits"]]


def test_without_history_the_evidence_alone_is_told(api: Shown) -> None:
    told = asked(api, api.put("odd", an_odd_incident("o1")))
    assert told["told_by"] == "evidence"
    assert told["lanes"][0]["ranks"] == [3]
    healthy = api.put("healthy")
    assert api.client().get(f"/v1/runs/{healthy}/propagation").status_code == 404

"""What must not wait is told from what comes all the time, and only how soon it is judged depends on it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from detectors.verdict import Verdict
from service.pipeline import Pipeline
from service.urgency import Urgency

from .service_builders import batches_of
from .test_worker import EAGER, work

Record = dict[str, object]


@dataclass(frozen=True)
class Front:
    """An attempt of which every rank has reached an iteration."""

    attempt: int
    reached: int | None

    def frontier(self) -> int | None:
        return self.reached


def records(iteration: int, sums: Sequence[str], loss: object = 1.0, run: str = "job") -> list[Record]:
    return [
        {"run": run, "rank": rank, "iteration": iteration, "loss": loss, "param_checksum": one}
        for rank, one in enumerate(sums)
    ]


def heard(*iterations: list[Record]) -> Urgency:
    """After these, each in batches of three records, so that iterations are cut."""
    urgency = Urgency()
    lines = [json.dumps(one).encode() for iteration in iterations for one in iteration]
    for batch in batches_of(lines, size=3):
        urgency.hear(batch)
    return urgency


SAME, ODD = ("aa", "aa", "aa", "aa"), ("aa", "bb", "aa", "aa")


def test_the_first_value_that_is_no_number_is_urgent_once() -> None:
    urgency = heard(records(0, SAME), records(1, SAME, "NaN"), records(2, SAME, "NaN"))
    assert list(urgency.runs) == ["job"]
    assert urgency.is_ripe(lambda _: [Front(0, 1)])
    urgency.judged("job")
    for batch in batches_of([json.dumps(one).encode() for one in records(3, SAME, "Infinity")]):
        urgency.hear(batch)
    assert list(urgency.runs) == []


def test_it_waits_for_the_ranks_that_have_not_reached_the_iteration() -> None:
    urgency = heard(records(0, SAME), records(5, SAME, "NaN"))
    assert not urgency.is_ripe(lambda _: [Front(0, 4)])
    urgency.judged("job")  # in its turn, which came first: the iteration was not in it
    assert not urgency.is_ripe(lambda _: [Front(0, None), Front(1, 9)])
    assert urgency.is_ripe(lambda _: [Front(0, 5)])


def test_a_count_of_such_values_is_as_urgent_and_a_count_of_none_is_not() -> None:
    def counted(count: int) -> list[Record]:
        return [{"run": "job", "rank": 0, "iteration": 1, "nonfinite_grad": count}]

    assert list(heard(counted(0)).runs) == []
    assert list(heard(counted(3)).runs) == ["job"]


def test_sums_that_differ_are_urgent_where_those_before_were_the_same() -> None:
    assert list(heard(records(0, SAME), records(1, SAME)).runs) == []
    assert list(heard(records(0, SAME), records(1, ODD)).runs) == ["job"]
    late_odd = heard(records(0, SAME), records(1, ("aa", "aa", "aa", "bb")))  # in a batch of its own
    assert list(late_odd.runs) == ["job"]


def test_sums_of_shards_which_never_are_the_same_are_not_urgent() -> None:
    shards = [records(t, ("aa", "aa", "bb", "bb")) for t in range(9)]
    assert list(heard(*shards).runs) == []


def test_a_run_that_was_let_go_is_forgotten() -> None:
    def aligners(run: str) -> list[Front]:
        raise KeyError(run)

    urgency = heard(records(1, SAME, "NaN"))
    assert not urgency.is_ripe(aligners)
    assert list(urgency.runs) == []


def test_a_worker_judges_an_urgent_run_before_its_turn_has_come(tmp_path: Path) -> None:
    lines = [
        json.dumps(one).encode() for t in range(20) for one in records(t, SAME, "NaN" if t == 9 else 1.0)
    ]
    never = replace(EAGER, judge_every_s=3600.0, settle_after_s=3600.0)
    judged_to: list[int | None] = []
    real = Pipeline.verdict

    def verdict(pipeline: Pipeline, name: str, *, ended: bool = True) -> Verdict:
        found = real(pipeline, name, ended=ended)
        judged_to.append(found.judged_to_iteration)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pipeline, "verdict", verdict)
        said, _ = work(tmp_path, batches_of(lines, size=8), config=never, idle_polls=1)
    assert judged_to == [9, 19]  # the second one as it stopped
    assert "NaN" in said[0]

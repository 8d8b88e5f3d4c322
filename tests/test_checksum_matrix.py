"""Who differs from the group, at which check, from made matrices and over the API.

Axes: T checks, R ranks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firstfault.mesh import Layout
from firstfault.telemetry import contract_of
from ingest.blocks import Flags
from service.checksum_matrix import ChecksumMatrix, checksum_matrix
from service.history_matrix import Matrix

from .block_builders import block
from .history_builders import named, write
from .page_builders import Shown, shown


def matrix_of(rows: list[str], *, step: int = 10) -> Matrix:
    """Checks of ranks, a letter a value, a dot where nothing was reported."""
    low_TR = np.array([[0 if cell == "." else ord(cell) for cell in row] for row in rows], np.uint64)
    present_TR: Flags = low_TR > 0
    return Matrix(
        metric="param_checksum",
        iteration_T=np.arange(len(rows), dtype=np.int64) * step,
        microbatch_T=np.zeros(len(rows), np.int32),
        ranks_R=np.arange(len(rows[0]), dtype=np.int32),
        present_TR=present_TR,
        high_TR=np.full_like(low_TR, 1 << 63),
        low_TR=low_TR,
    )


def layout(dp: int, tp: int = 1) -> Layout:
    """Ranks numbered with tp the fastest."""
    return Layout(axes=("dp", "tp"), coordinates={rank: divmod(rank, tp) for rank in range(dp * tp)})


def matrix(rows: list[str], places: Layout | None, at: int | None = None) -> ChecksumMatrix:
    return checksum_matrix(matrix_of(rows), contract_of("param_checksum"), places, at)


def test_the_first_check_that_differs_is_chosen_and_the_minority_is_not_the_majority() -> None:
    found = matrix(["aaaa", "bbbb", "ccxc", "ddyd"], layout(4))
    (group,) = found.groups
    assert found.chosen == 2
    assert found.iteration_T[2] == 20
    assert group.votes[2].majority == f"{1 << 63 << 64 | ord('c'):x}"
    assert group.votes[2].others == [(f"{1 << 63 << 64 | ord('x'):x}", 1)]
    assert [list(row) for row in group.codes_NM] == [[0] * 4, [0] * 4, [0, 0, 1, 0], [0, 0, 1, 0]]


def test_a_tie_has_no_majority() -> None:
    (group,) = matrix(["aaaa", "xxyy"], layout(4), 10).groups
    assert group.votes[1].is_tie
    assert not group.votes[0].is_tie
    assert sorted(count for _, count in group.votes[1].others) == [2, 2]
    assert sorted(set(group.codes_NM[1])) == [1, 2]


def test_what_was_not_reported_is_no_other_value() -> None:
    found = matrix(["aaaa", "b.bb"], layout(4))
    (group,) = found.groups
    assert list(found.differing_T) == [0, 0]
    assert list(group.codes_NM[1]) == [0, -1, 0, 0]
    assert group.votes[1].reported == 3


def test_groups_are_those_of_the_layout_and_shards_are_not_held_against_each_other() -> None:
    found = matrix(["abab", "cdcx"], layout(2, 2))
    assert found.source == "layout"
    assert [group.lead for group in found.groups] == [0, 1]
    assert list(found.differing_T) == [0, 1]
    alone = checksum_matrix(
        matrix_of(["abcd"]),
        contract_of("param_checksum"),
        dataclasses.replace(layout(4), sharding="zero3"),
        None,
    )
    assert (alone.groups, alone.ranks_alone) == ([], 4)


def test_without_a_layout_groups_are_learned_from_the_first_two_checks() -> None:
    found = matrix(["aabb", "ccdd", "ccdx"], None)
    assert found.source == "learned"
    assert [group.lead for group in found.groups] == [0, 2]
    assert found.chosen == 2
    assert matrix(["abcd", "efgh"], None).source == "none"


def test_every_cell_is_what_plain_counting_says() -> None:
    rng = np.random.default_rng(7)
    rows = ["".join(rng.choice(list("aaaaaabc."), 12)) for _ in range(9)]
    found = matrix(rows, layout(6, 2), 40)
    for group in found.groups:
        ranks = [rank for rank in range(12) if rank % 2 == group.lead]
        for at, place in enumerate(found.shown):
            held = [rows[place][rank] for rank in ranks]
            counts = {value: held.count(value) for value in set(held) - {"."}}
            most = max(counts.values(), default=0)
            top = [value for value, count in counts.items() if count == most]
            vote = group.votes[at]
            assert vote.reported == sum(counts.values())
            assert vote.is_tie == (len(top) > 1)
            for cell, code in zip(held, group.codes_NM[at], strict=True):
                expected = -1 if cell == "." else 0 if top == [cell] else None
                assert (code == expected) if expected is not None else code > 0


def test_a_hundred_thousand_ranks_are_a_few_groups_and_the_members_that_differ() -> None:
    ranks = 100_000
    low_TR = np.repeat(np.arange(1, 5, dtype=np.uint64)[:, None], ranks, axis=1)
    low_TR[2:, 77_777] = 99
    given = Matrix(
        metric="param_checksum",
        iteration_T=np.arange(4, dtype=np.int64),
        microbatch_T=np.zeros(4, np.int32),
        ranks_R=np.arange(ranks, dtype=np.int32),
        present_TR=np.ones_like(low_TR, np.bool_),
        high_TR=np.zeros_like(low_TR),
        low_TR=low_TR,
    )
    found = checksum_matrix(given, contract_of("param_checksum"), layout(12_500, 8), None)
    (group,) = found.groups
    assert (found.groups_in_all, found.chosen, group.lead, group.size) == (8, 2, 1, 12_500)
    assert group.members == [77_777]
    assert [list(row) for row in group.codes_NM] == [[0], [0], [1], [1]]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Shown]:
    with shown(tmp_path) as one:
        yield one


def asked(api: Shown, run: str, query: str = "") -> Any:
    return api.client().get(f"/v1/runs/{run}/checksums{query}")


def test_a_judged_run_shows_where_its_incident_saw_a_replica_differ(api: Shown) -> None:
    run = api.judge("drift_param")
    told = asked(api, run).json()
    (group,) = told["groups"]
    here = told["chosen"]
    assert (told["metric"], told["at"], told["first_differing"]) == ("param_checksum", 390, 390)
    assert (told["previous"], told["next"], told["groups_from"]) == (380, 400, "layout")
    assert group["votes"][here]["majority"] == "c1d63f8649b37321"
    assert group["votes"][here]["others"] == [["50ca324f7a9c6b49", 1]]
    assert [rank for rank, cell in zip(group["ranks"], group["cells"][here], strict=True) if cell] == [3]
    assert group["hosts"][3] == "node-00"
    before = asked(api, run, "?at=380").json()
    assert before["differing"][before["chosen"]] == 0
    canary = asked(api, run, "?metric=canary_loss&at=400").json()
    assert canary["groups"][0]["votes"][canary["chosen"]]["others"][0][1] == 1
    assert float(canary["groups"][0]["votes"][canary["chosen"]]["majority"]) > 0


def test_what_is_not_kept_or_not_compared_is_named(api: Shown) -> None:
    run = api.judge("drift_param")
    assert "'loss' is not compared bit by bit" in asked(api, run, "?metric=loss").json()["detail"]
    assert asked(api, run, "?incident=nothing").status_code == 404
    assert asked(api, "0123456789abcdef").status_code == 404
    assert asked(api, api.put("bare")).json()["detail"] == "no history of this run is kept"


def test_many_groups_are_less_than_a_megabyte(api: Shown, tmp_path: Path) -> None:
    ranks = 20_000
    rng = np.random.default_rng(3)
    checks_TR = np.repeat(rng.integers(1, 1 << 62, (9, 1)), ranks, axis=1)
    checks_TR[4:] = rng.integers(1, 1 << 62, (5, ranks))  # every rank another: the worst there can be
    places = Layout(axes=("dp", "tp"), coordinates={rank: divmod(rank, 200) for rank in range(ranks)})
    one = dataclasses.replace(named(block(param_checksum=checks_TR), "wide"), layout=places)
    write(tmp_path / "history", one)
    run = api.put(
        "wide",
        coverage={"ranks": ranks, "metrics": ["param_checksum"], "checks": [], "rejected": 0, "blind_to": []},
    )
    told = asked(api, run)
    assert told.status_code == 200
    assert len(told.content) < 1_000_000
    assert told.json()["groups_in_all"] == 200

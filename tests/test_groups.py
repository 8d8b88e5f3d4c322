"""Equality groups, from the layout or learned; ranks in tables."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.groups import (
    NO_CLASS,
    FirstCheck,
    equality_classes,
    fingerprint,
    learned_classes,
    model_parallel_group,
)
from detectors.rank_table import UNKNOWN, RankTable
from firstfault.mesh import Layout, LayoutError, layout_from_event
from firstfault.telemetry import Event, EventKind, contract_of

from .block_builders import data_parallel, mesh


def classes(metric: str, layout: Layout, ranks: int | None = None) -> list[int]:
    ranks_R = np.arange(len(layout.coordinates) if ranks is None else ranks, dtype=np.int32)
    class_R = equality_classes(contract_of(metric), ranks_R, layout)
    assert class_R is not None
    return [int(each) for each in class_R]


def check(*values: int) -> FirstCheck:
    ranks_R = np.arange(len(values), dtype=np.int32)
    low_R = np.array(values, np.uint64)
    return FirstCheck(0, ranks_R, np.zeros(len(values), np.int64), np.zeros_like(low_R), low_R)


def learned(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[list[int], int | None]:
    class_R, odd = learned_classes(check(*first), check(*second))
    return [int(each) for each in class_R], odd


def test_the_class_is_the_least_rank_of_the_group() -> None:
    layout = mesh([("pp", 2), ("dp", 2), ("tp", 2)])
    assert classes("param_checksum", layout) == [0, 1, 0, 1, 4, 5, 4, 5]
    assert classes("param_checksum/tp_replicated", layout) == [0, 0, 0, 0, 4, 4, 4, 4]
    assert classes("data_checksum", layout) == [0, 0, 2, 2, 0, 0, 2, 2]
    assert classes("grad_norm", layout) == [0] * 8


def test_a_rank_outside_the_mesh_has_no_class() -> None:
    assert classes("param_checksum", data_parallel(2), ranks=4) == [0, 0, NO_CLASS, NO_CLASS]


@pytest.mark.parametrize(
    ("sharding", "sharded"),
    [
        ("none", set()),
        ("zero1", {"optim_checksum"}),
        ("zero2", {"optim_checksum", "grad_checksum"}),
        ("zero3", {"optim_checksum", "grad_checksum", "param_checksum"}),
    ],
)
def test_sharding_takes_state_out_of_its_groups(sharding: str, sharded: set[str]) -> None:
    layout = data_parallel(2, sharding=sharding)
    for metric in ("optim_checksum", "grad_checksum", "param_checksum"):
        assert classes(metric, layout) == ([0, 1] if metric in sharded else [0, 0])


def test_hybrid_sharding_replicates_along_dp_beside_a_shard_axis() -> None:
    layout = mesh([("dp", 2), ("fsdp", 2)], sharding="hsdp")
    assert classes("param_checksum", layout) == [0, 1, 0, 1]


def test_without_a_layout_classes_must_be_learned() -> None:
    assert equality_classes(contract_of("param_checksum"), np.arange(2, dtype=np.int32), None) is None


def test_a_canary_of_unknown_devices_must_be_learned() -> None:
    layout = mesh([("dp", 2)], device="")
    assert equality_classes(contract_of("canary_checksum"), np.arange(2, dtype=np.int32), layout) is None
    assert classes("canary_checksum", data_parallel(2)) == [0, 0]


def test_the_ranks_of_one_replica_are_a_model_parallel_group() -> None:
    layout = mesh([("pp", 2), ("dp", 2), ("tp", 2)])
    assert model_parallel_group(layout, 3) == (2, 3, 6, 7)
    assert model_parallel_group(layout, 3, "canary_checksum/stage") == (2, 3)


def test_equal_in_both_checks_is_a_class() -> None:
    assert learned((1, 2, 1, 2), (3, 4, 3, 4)) == ([0, 1, 0, 1], None)


def test_all_different_is_no_class() -> None:
    assert learned((1, 2, 3, 4), (5, 6, 7, 8)) == ([NO_CLASS] * 4, None)


def test_one_odd_rank_beside_equal_ones_is_told() -> None:
    assert learned((1, 1, 9, 1), (2, 2, 8, 2)) == ([0, 0, NO_CLASS, 0], 2)


def test_a_rank_that_leaves_its_class_at_the_second_check_is_still_its_member() -> None:
    assert learned((1, 1, 1, 1), (2, 2, 8, 2)) == ([0, 0, 0, 0], None)


def test_a_class_that_falls_in_equal_parts_was_two_classes() -> None:
    assert learned((1, 1, 1, 1), (2, 3, 2, 3)) == ([0, 1, 0, 1], None)


def test_the_fingerprint_differs_with_the_layout_and_only_then() -> None:
    assert fingerprint(data_parallel(4)) == fingerprint(data_parallel(4))
    others = [
        data_parallel(8),
        mesh([("tp", 4)]),
        data_parallel(4, sharding="zero1"),
        data_parallel(4, device="A100"),
    ]
    assert len({fingerprint(layout) for layout in [None, data_parallel(4), *others]}) == 6


def test_a_table_keeps_its_columns_when_ranks_join() -> None:
    table = RankTable()
    at_R = table.rows(np.array([5], np.int32))
    table.column("x")[at_R] = 3
    at_R = table.rows(np.array([2, 5, 9], np.int32))
    assert list(table.column("x")[at_R]) == [UNKNOWN, 3, UNKNOWN]
    restored = RankTable.restored(table.snapshot())
    at_R = restored.rows(np.array([1, 5], np.int32))
    assert list(restored.column("x")[at_R]) == [UNKNOWN, 3]


def test_a_canary_is_compared_within_one_device_model_and_one_software_only() -> None:
    fields = {
        "mesh": [["dp", 4]],
        "device_models": ["h100", "h100", "h100", "a100"],
        "software": ["v1", "v1", "v2", "v1"],
    }
    layout = layout_from_event(Event(kind=EventKind.RUN_START, run="r", rank=0, iteration=0, fields=fields))
    assert layout is not None
    first, second, *others = classes("canary_checksum", layout)
    assert first == second and len({first, *others}) == 3
    assert len(set(classes("param_checksum", layout))) == 1


@pytest.mark.parametrize("given", [0, -1, 2.5, True, "ten"])
def test_a_run_cannot_train_alone_for_no_iterations(given: object) -> None:
    fields = {"mesh": [["dp", 4]], "local_iterations": given}
    with pytest.raises(LayoutError, match="local_iterations must be an integer >= 1"):
        layout_from_event(Event(kind=EventKind.RUN_START, run="r", rank=0, iteration=0, fields=fields))

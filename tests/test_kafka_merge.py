"""Partitions are handed out in step, and none of them can hold the others up for ever."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from ingest.kafka_merge import PartitionMerge


@dataclass(frozen=True)
class Message:
    timestamp: int
    offset: int = 0


def stamps(*values: int) -> list[Message]:
    return [Message(value, offset) for offset, value in enumerate(values)]


def taken(merge: PartitionMerge, partitions: str, drained: str = "") -> list[tuple[str, int]]:
    return [(name, one.timestamp) for name, one in merge.take(partitions, drained.__contains__)]


def test_a_partition_that_is_ahead_waits_for_the_others() -> None:
    merge = PartitionMerge(most_held=10, longest_hold_s=60)
    merge.add("a", stamps(1, 2, 3, 9))
    assert taken(merge, "ab") == []
    merge.add("b", stamps(1, 3))
    assert taken(merge, "ab") == [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("b", 3)]
    assert merge.held == 1
    assert taken(merge, "ab", drained="b") == [("a", 9)]


def test_one_that_never_answers_is_left_out_until_something_comes() -> None:
    merge = PartitionMerge(most_held=10, longest_hold_s=0.0)
    merge.add("a", stamps(1))
    assert taken(merge, "ab") == []
    assert taken(merge, "ab") == [("a", 1)]
    merge.add("a", stamps(2))
    assert taken(merge, "ab") == [("a", 2)], "the silent partition holds nobody up again"


def test_a_partition_that_was_taken_away_is_forgotten() -> None:
    merge = PartitionMerge(most_held=1, longest_hold_s=60)
    merge.add("a", stamps(1))
    merge.add("b", stamps(2))
    assert merge.is_ahead("a")
    merge.keep("b")
    assert not merge.is_ahead("a")
    assert [name for name, _ in merge.take_all()] == ["b"]


@given(
    parts=st.lists(st.lists(st.integers(0, 20), max_size=12), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 5), min_size=1, max_size=40),
)
def test_everything_comes_once_and_in_its_partitions_order(parts: list[list[int]], cuts: list[int]) -> None:
    merge = PartitionMerge(most_held=3, longest_hold_s=60)
    left = {name: stamps(*part) for name, part in enumerate(parts)}
    got: dict[int, list[int]] = {name: [] for name in left}
    for turn, cut in enumerate([*cuts, *[12] * len(parts)]):
        name = turn % len(parts)
        if not merge.is_ahead(name) or turn >= len(cuts):
            merge.add(name, left[name][:cut])
            left[name] = left[name][cut:]
        for one, message in merge.take(left, lambda part: not left[part]):
            got[one].append(message.offset)
    for name, rest in left.items():
        merge.add(name, rest)
    for one, message in merge.take_all():
        got[one].append(message.offset)
    assert got == {name: list(range(len(part))) for name, part in enumerate(parts)}

"""The store: checkpoints are whole or not at all, incidents are there once, a zombie cannot write."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from service.errors import StoreError
from service.migrations import MIGRATIONS
from service.store import DATABASE, Checkpoint, Store, StoreConfig

from .service_builders import a_verdict, an_incident, bytes_of


def a_checkpoint(offset: int, snapshot: bytes = b"state") -> Checkpoint:
    return Checkpoint(version="1", offsets={"t:0": offset, "t:1": offset + 1}, snapshot=snapshot)


def test_a_checkpoint_comes_back_as_it_was_saved_after_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save_checkpoint("kafka:t", a_checkpoint(5))
    store.save_checkpoint("kafka:t", a_checkpoint(9, b"later"))
    store.close()
    assert Store(tmp_path).load_checkpoint("kafka:t") == a_checkpoint(9, b"later")


def test_sources_have_checkpoints_of_their_own(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save_checkpoint("kafka:a", a_checkpoint(5))
    assert store.load_checkpoint("kafka:b") is None
    store.forget_checkpoint("kafka:a")
    assert store.load_checkpoint("kafka:a") is None


def test_offsets_and_snapshot_are_saved_both_or_neither(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save_checkpoint("kafka:t", a_checkpoint(5))
    unstorable = Checkpoint(version="1", offsets={"t:0": 7, "t:1": 2**63}, snapshot=b"new")
    with pytest.raises(OverflowError):
        store.save_checkpoint("kafka:t", unstorable)
    assert store.load_checkpoint("kafka:t") == a_checkpoint(5)


def test_a_worker_that_was_replaced_can_write_nothing_more(tmp_path: Path) -> None:
    zombie = Store(tmp_path)
    zombie.save_checkpoint("kafka:t", a_checkpoint(5))
    new = Store(tmp_path)
    with pytest.raises(StoreError, match="another worker has taken over"):
        zombie.save_checkpoint("kafka:t", a_checkpoint(9))
    with pytest.raises(StoreError, match="another worker has taken over"):
        zombie.save_verdict(a_verdict("r"), b"{}")
    assert new.load_checkpoint("kafka:t") == a_checkpoint(5)
    assert new.verdicts() == []


def test_the_same_verdict_again_changes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    verdict = a_verdict("r", an_incident())
    assert [change.kind for change in store.save_verdict(verdict, bytes_of(verdict))] == ["new"]
    assert store.save_verdict(verdict, bytes_of(verdict)) == ()
    assert [(one.revision, one.canonical) for one in store.verdicts()] == [(1, bytes_of(verdict))]
    assert len(store.incidents()) == 1


def test_an_incident_keeps_its_place_while_it_worsens_moves_and_goes(tmp_path: Path) -> None:
    store = Store(tmp_path)
    stages = [
        a_verdict("r", an_incident(certainty="suspected")),
        a_verdict("r", an_incident()),
        a_verdict("r", an_incident(first={"iteration": 1100})),
        a_verdict("r"),
        a_verdict("r", an_incident()),
    ]
    kinds = [[change.kind for change in store.save_verdict(one, bytes_of(one))] for one in stages]
    assert kinds == [["new"], ["worsened"], ["changed"], ["withdrawn"], ["new"]]
    assert [one.revision for one in store.verdicts()] == [5]
    assert [incident["id"] for incident in store.incidents("r")] == ["a1"]
    assert store.incidents("other") == []


def test_a_change_tells_what_was_stored_before(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for verdict in (a_verdict("r", an_incident(certainty="suspected")), a_verdict("r", an_incident())):
        changes = store.save_verdict(verdict, bytes_of(verdict))
    assert changes[0].before is not None
    assert changes[0].before["certainty"] == "suspected"


def test_the_state_a_person_gave_survives_new_evidence(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = a_verdict("r", an_incident(certainty="suspected"))
    store.save_verdict(first, bytes_of(first))
    with sqlite3.connect(tmp_path / DATABASE) as db:
        db.execute("UPDATE incidents SET state = 'acknowledged'")
    db.close()
    second = a_verdict("r", an_incident())
    store.save_verdict(second, bytes_of(second))
    assert [(one["state"], one["certainty"]) for one in store.incidents()] == [("acknowledged", "confirmed")]


def test_rejects_are_counted_by_reason_with_the_checkpoint(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save_checkpoint("kafka:t", a_checkpoint(5), {"line: must be JSON": (3, b"x" * 9999)})
    store.save_checkpoint(
        "kafka:t", a_checkpoint(6), {"line: must be JSON": (2, b"y"), "rank: >= 0": (1, b"z")}
    )
    assert store.rejected() == {"line: must be JSON": 5, "rank: >= 0": 1}


def test_a_reader_sees_the_store_while_the_worker_writes(tmp_path: Path) -> None:
    store = Store(tmp_path)
    reader = Store(tmp_path, read_only=True)
    verdict = a_verdict("r")
    store.save_verdict(verdict, bytes_of(verdict))
    assert [one.run for one in reader.verdicts()] == ["r"]
    store.save_checkpoint("kafka:t", a_checkpoint(5))  # the reader did not take the store over


def test_a_store_of_a_newer_release_is_refused_by_name(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / DATABASE) as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    with pytest.raises(StoreError, match="update firstfault"):
        Store(tmp_path)


def test_a_file_that_is_no_database_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreError, match=DATABASE):
        Store(tmp_path)


def test_a_missing_store_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        Store(tmp_path, read_only=True)


@pytest.mark.parametrize("change", [{"busy_timeout_s": 0.0}, {"cache_megabytes": 0}])
def test_settings_out_of_range_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        StoreConfig(**change)  # type: ignore[arg-type]  # one name and one number

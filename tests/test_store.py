"""The store, on SQLite and on PostgreSQL: checkpoints are whole or not at all, a zombie cannot write."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from service import checkpoints, incident_rows, tables
from service.checkpoints import Checkpoint, RunState, Tenure
from service.errors import OwnershipLost, SplitRun, StoreBusy, StoreError, StoreFull
from service.store import DATABASE, Store, StoreConfig
from service.triage import Decision, decide

from .service_builders import a_verdict, an_incident, bytes_of

Open = Callable[[], Store]
SOURCE, PARTS = "kafka:t", ("t:0", "t:1")


@pytest.fixture
def opened(tmp_path: Path, store_config: StoreConfig) -> Iterator[Open]:
    """Opens the same store as often as asked for."""
    stores: list[Store] = []

    def open_store() -> Store:
        stores.append(Store(tmp_path, store_config))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


def a_checkpoint(start: int | None, end: int, state: bytes = b"state", run: str = "job") -> Checkpoint:
    held = RunState(run=run, parts=PARTS, version="1", is_settled=False, snapshot=state)
    return Checkpoint(offsets=dict.fromkeys(PARTS, (start, end)), states=[held])


def claimed(store: Store, parts: tuple[str, ...] = PARTS) -> Tenure:
    return store.claim(SOURCE, parts).tenure


def test_a_checkpoint_comes_back_as_it_was_saved_after_a_restart(opened: Open) -> None:
    store = opened()
    tenure = claimed(store)
    store.save_checkpoint(tenure, a_checkpoint(None, 5))
    store.save_checkpoint(tenure, a_checkpoint(5, 9, b"later"))
    store.close()
    again = opened()
    assert again.claim(SOURCE, PARTS).offsets == {"t:0": 9, "t:1": 9}
    assert [(one.run, one.parts, one.snapshot) for one in again.states(SOURCE, PARTS)] == [
        ("job", PARTS, b"later")
    ]


def test_sources_have_checkpoints_of_their_own(opened: Open) -> None:
    store = opened()
    tenure = claimed(store)
    store.save_checkpoint(tenure, a_checkpoint(None, 5))
    assert store.claim("kafka:other", PARTS).offsets == {}
    assert store.states("kafka:other", PARTS) == []
    store.forget(tenure)
    assert store.claim(SOURCE, PARTS).offsets == {}
    assert store.states(SOURCE, PARTS) == []


def test_offsets_and_states_are_saved_both_or_neither(opened: Open) -> None:
    store = opened()
    tenure = claimed(store)
    store.save_checkpoint(tenure, a_checkpoint(None, 5))
    with pytest.raises((OverflowError, StoreError)):
        store.save_checkpoint(tenure, a_checkpoint(5, 2**63, b"new"))
    assert store.claim(SOURCE, PARTS).offsets == {"t:0": 5, "t:1": 5}
    assert store.states(SOURCE, PARTS)[0].snapshot == b"state"


def test_a_worker_that_was_replaced_can_write_nothing_more(opened: Open) -> None:
    store, new = opened(), opened()
    zombie = claimed(store)
    store.save_checkpoint(zombie, a_checkpoint(None, 5))
    claimed(new)
    with pytest.raises(OwnershipLost, match="another worker has taken over"):
        store.save_checkpoint(zombie, a_checkpoint(5, 9))
    with pytest.raises(OwnershipLost, match="another worker has taken over"):
        store.save_verdict(zombie, PARTS, a_verdict("r"), b"{}")
    with pytest.raises(OwnershipLost):
        store.forget(zombie)
    assert new.claim(SOURCE, PARTS).offsets == {"t:0": 5, "t:1": 5}
    assert new.verdicts() == []


def test_one_lost_partition_of_two_refuses_the_whole_checkpoint(opened: Open) -> None:
    store, new = opened(), opened()
    zombie = claimed(store)
    claimed(new, PARTS[1:])
    with pytest.raises(OwnershipLost, match="1 of t:0, t:1"):
        store.save_checkpoint(zombie, a_checkpoint(None, 9))
    assert store.claim(SOURCE, PARTS).offsets == {}


def test_a_checkpoint_that_does_not_go_on_from_the_last_one_is_refused(opened: Open) -> None:
    store = opened()
    tenure = claimed(store)
    store.save_checkpoint(tenure, a_checkpoint(None, 5))
    with pytest.raises(OwnershipLost, match="no longer stands at offset 4"):
        store.save_checkpoint(tenure, a_checkpoint(4, 9))


def test_claiming_what_one_holds_keeps_it_and_what_was_lost_meanwhile_does_not(opened: Open) -> None:
    store, other = opened(), opened()
    tenure = claimed(store)
    assert store.claim(SOURCE, PARTS, tenure).is_kept
    claimed(other, PARTS[:1])
    again = store.claim(SOURCE, PARTS, tenure)
    assert not again.is_kept
    assert not store.claim(SOURCE, PARTS[:1], again.tenure).is_kept


def test_a_run_that_a_living_worker_judges_from_another_partition_is_refused_by_name(opened: Open) -> None:
    store = opened()
    first, second = claimed(store, PARTS[:1]), claimed(store, PARTS[1:])
    store.save_verdict(first, PARTS[:1], a_verdict("r"), b"{}")
    with pytest.raises(SplitRun, match="'r' is judged by the worker of t:0: key its messages by run"):
        store.save_verdict(second, PARTS[1:], a_verdict("r"), b"[]")
    store.release(first)
    store.save_verdict(second, PARTS[1:], a_verdict("r"), b"[]")
    assert store.verdicts()[0].canonical == b"[]"


def test_the_same_verdict_again_changes_nothing(opened: Open) -> None:
    store = opened()
    tenure = claimed(store)
    verdict = a_verdict("r", an_incident())
    assert [one.kind for one in store.save_verdict(tenure, PARTS, verdict, bytes_of(verdict))] == ["new"]
    assert store.save_verdict(tenure, PARTS, verdict, bytes_of(verdict)) == ()
    assert [(one.revision, one.canonical) for one in store.verdicts()] == [(1, bytes_of(verdict))]
    assert len(store.incidents()) == len(store.unsent()) == 1


def test_an_incident_keeps_its_place_while_it_worsens_moves_and_goes(opened: Open) -> None:
    store = opened()
    tenure = claimed(store)
    stages = [
        a_verdict("r", an_incident(certainty="suspected")),
        a_verdict("r", an_incident()),
        a_verdict("r", an_incident(first={"iteration": 1100})),
        a_verdict("r"),
        a_verdict("r", an_incident()),
    ]
    kinds = [
        [change.kind for change in store.save_verdict(tenure, PARTS, one, bytes_of(one))] for one in stages
    ]
    assert kinds == [["new"], ["worsened"], ["changed"], ["withdrawn"], ["new"]]
    assert [one.revision for one in store.verdicts()] == [5]
    assert [incident["id"] for incident in store.incidents("r")] == ["a1"]
    assert store.incidents("other") == []


def test_a_change_tells_what_was_stored_before(opened: Open) -> None:
    store = opened()
    tenure = claimed(store)
    for verdict in (a_verdict("r", an_incident(certainty="suspected")), a_verdict("r", an_incident())):
        changes = store.save_verdict(tenure, PARTS, verdict, bytes_of(verdict))
    assert changes[0].before is not None
    assert changes[0].before["certainty"] == "suspected"


def test_the_outbox_holds_the_newest_verdict_of_each_incident_until_it_arrived(opened: Open) -> None:
    store = opened()
    tenure = claimed(store)
    verdicts = [a_verdict("r", an_incident(certainty=one)) for one in ("suspected", "confirmed")]
    for verdict in verdicts:
        store.save_verdict(tenure, PARTS, verdict, bytes_of(verdict))
    (message,) = store.unsent()
    assert (message.key, message.payload) == ("a1", bytes_of(verdicts[-1]))
    store.mark_sent([message.seq])
    assert store.unsent() == []


def test_the_event_stream_is_numbered_in_the_order_of_commits_and_pruned(
    tmp_path: Path, store_config: StoreConfig
) -> None:
    store = Store(tmp_path, StoreConfig(url=store_config.url, keep_changes=3))
    tenure = claimed(store)
    for at in range(4):
        verdict = a_verdict("r", an_incident(first={"iteration": at}))
        store.save_verdict(tenure, PARTS, verdict, bytes_of(verdict))
    store.save_checkpoint(tenure, a_checkpoint(None, 1))
    with store.database.read() as db:
        rows = db.execute(select(tables.changes).order_by(tables.changes.c.seq)).all()
    store.close()
    assert [(row.seq, row.kind) for row in rows] == [
        (6, "run_changed"),
        (7, "incident_changed"),
        (8, "run_changed"),
    ]
    assert json.loads(rows[1].body)["iteration"] == 3


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 0.1 + 0.2, -1e308, None])
def test_numbers_that_are_no_numbers_survive_as_kind_and_value(opened: Open, number: float | None) -> None:
    words = {math.inf: "Infinity", -math.inf: "-Infinity"}
    said = "NaN" if number is not None and math.isnan(number) else words.get(number or 0.0, number)
    store = opened()
    item = {**an_incident()["evidence"][0], "statistic": said}
    verdict = a_verdict("r", an_incident(evidence=[item]))
    store.save_verdict(claimed(store), PARTS, verdict, bytes_of(verdict))
    with store.database.read() as db:
        row = db.execute(select(tables.evidence)).one()
    kept = tables.from_columns(row.statistic_value, row.statistic_kind)
    assert repr(kept) == repr(number)
    assert store.incidents()[0]["evidence"][0]["statistic"] == said


def test_the_suspects_of_an_incident_can_be_looked_up_by_rank_and_host(opened: Open) -> None:
    store = opened()
    verdict = a_verdict("r", an_incident())
    store.save_verdict(claimed(store), PARTS, verdict, bytes_of(verdict))
    with store.database.read() as db:
        row = db.execute(select(tables.incident_ranks)).one()
    assert (row.incident_id, row.rank, row.host) == ("a1", 3, "node-07")


def test_the_state_a_person_gave_survives_new_evidence(opened: Open) -> None:
    store = opened()
    tenure = claimed(store)
    first = a_verdict("r", an_incident(certainty="suspected"))
    store.save_verdict(tenure, PARTS, first, bytes_of(first))
    with store.database.write() as db:
        db.execute(tables.incidents.update().values(state="acknowledged"))
    second = a_verdict("r", an_incident())
    store.save_verdict(tenure, PARTS, second, bytes_of(second))
    assert [(one["state"], one["certainty"]) for one in store.incidents()] == [("acknowledged", "confirmed")]


@pytest.mark.postgres
def test_what_a_person_decides_while_a_verdict_is_written_is_neither_lost_nor_a_deadlock(
    tmp_path: Path, new_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict is held between its look at the incident and its write until the person has tried."""
    config = StoreConfig(url=new_database)
    store, other = Store(tmp_path, config), Store(tmp_path, config)
    tenure = claimed(store)
    first, second = a_verdict("r", an_incident(certainty="suspected")), a_verdict("r", an_incident())
    store.save_verdict(tenure, PARTS, first, bytes_of(first))
    decision = Decision(state="acknowledged", note="", muted_until=None, who="me")
    done: list[bool] = []

    def acknowledge() -> None:
        with other.database.write() as db:
            done.append(decide(db, "a1", decision, 1.0))

    person = threading.Thread(target=acknowledge)
    real = incident_rows._write_incident

    def slow_write(*given: Any) -> None:
        person.start()
        person.join(0.5)  # without a lock the person is done by then, and the write undoes it
        real(*given)

    monkeypatch.setattr(incident_rows, "_write_incident", slow_write)
    store.save_verdict(tenure, PARTS, second, bytes_of(second))
    person.join()
    assert done == [True]
    assert [(one["state"], one["certainty"]) for one in store.incidents()] == [("acknowledged", "confirmed")]
    store.close()
    other.close()


def test_a_reason_that_has_a_row_is_counted_there_even_when_there_may_be_no_further_one(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_MAX_REASONS", 1)
    store = opened()
    tenure = claimed(store)
    for at in range(2):
        offsets = dict.fromkeys(PARTS, (at or None, at + 1))
        counted = {"line: must be JSON": (1, b"x"), "rank: >= 0": (1, b"z")}
        store.save_checkpoint(tenure, Checkpoint(offsets=offsets, counted=counted))
    assert store.rejected() == {"further reasons": 2, "line: must be JSON": 2}


def test_rejects_are_counted_by_reason_with_the_checkpoint(opened: Open) -> None:
    store = opened()
    tenure = claimed(store)
    counts = [
        {"line: must be JSON": (3, b"x" * 9999)},
        {"line: must be JSON": (2, b"y"), "rank: >= 0": (1, b"z")},
    ]
    for at, counted in enumerate(counts):
        offsets = dict.fromkeys(PARTS, (at or None, at + 1))
        store.save_checkpoint(tenure, Checkpoint(offsets=offsets, counted=counted))
    assert store.rejected() == {"line: must be JSON": 5, "rank: >= 0": 1}


def test_what_nobody_claimed_in_a_partition_comes_back_with_its_claim(opened: Open) -> None:
    store = opened()
    offsets = dict.fromkeys(PARTS, (None, 1))
    store.save_checkpoint(claimed(store), Checkpoint(offsets=offsets, rejected={"t:1": {"line: JSON": 7}}))
    assert store.claim(SOURCE, PARTS).rejected == {"t:0": {}, "t:1": {"line: JSON": 7}}


def test_a_reader_sees_the_store_while_the_worker_writes(tmp_path: Path, store_config: StoreConfig) -> None:
    store = Store(tmp_path, store_config)
    tenure = claimed(store)
    reader = Store(tmp_path, store_config, read_only=True)
    verdict = a_verdict("r")
    store.save_verdict(tenure, PARTS, verdict, bytes_of(verdict))
    assert [one.run for one in reader.verdicts()] == ["r"]
    store.save_checkpoint(tenure, a_checkpoint(None, 5))  # the reader did not take anything over
    reader.close()
    store.close()


def test_a_full_store_takes_nothing_keeps_everything_and_works_again_once_there_is_room(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path, StoreConfig(max_megabytes=1))
    tenure = claimed(store)
    store.save_checkpoint(tenure, a_checkpoint(None, 5))
    with pytest.raises(StoreFull, match="disk is full"):
        store.save_checkpoint(tenure, a_checkpoint(5, 9, b"x" * (2 << 20)))
    assert store.states(SOURCE, PARTS)[0].snapshot == b"state"
    store.save_checkpoint(tenure, a_checkpoint(5, 9, b"smaller"))
    assert store.states(SOURCE, PARTS)[0].snapshot == b"smaller"
    store.close()


def test_a_locked_store_is_busy_and_may_be_tried_again(tmp_path: Path) -> None:
    config = StoreConfig(busy_timeout_s=0.05)
    store, other = Store(tmp_path, config), Store(tmp_path, config)
    with other.database.write(), pytest.raises(StoreBusy, match="locked"):
        store.claim(SOURCE, PARTS)
    assert store.claim(SOURCE, PARTS).offsets == {}
    store.close()
    other.close()


def test_a_file_that_is_no_database_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreError, match=DATABASE):
        Store(tmp_path)


def test_a_missing_store_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        Store(tmp_path, read_only=True)


@pytest.mark.parametrize(
    "change",
    [
        {"busy_timeout_s": 0.0},
        {"cache_megabytes": 0},
        {"max_megabytes": 0},
        {"keep_changes": 0},
        {"url": "mysql://x"},
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, float | str]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        StoreConfig(**change)  # type: ignore[arg-type]  # one name and one value


def test_a_server_that_is_away_is_told_without_the_password(tmp_path: Path) -> None:
    url = "postgresql://me:hidden@127.0.0.1:1/db"
    with pytest.raises(StoreBusy, match=r"me:\*\*\*@127.0.0.1:1/db") as caught:
        Store(tmp_path, StoreConfig(url=url, busy_timeout_s=1.0))
    assert "hidden" not in str(caught.value)


def test_what_a_worker_said_long_ago_is_forgotten(opened: Open) -> None:
    store = opened()
    for component in ("worker:a:1", "worker:b:2"):
        store.say_health(component, {"runs": 1})
    with store.database.write() as db:
        db.execute(tables.health.update().where(tables.health.c.component == "worker:a:1").values(at=1.0))
    store.prune_health()
    with store.database.read() as db:
        assert [row.component for row in db.execute(select(tables.health))] == ["worker:b:2"]

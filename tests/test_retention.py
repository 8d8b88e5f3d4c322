"""What is old goes, with all that hangs on it; what somebody may still look at, or works on, stays."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select, update
from typer.testing import CliRunner

from service.checkpoints import Checkpoint, RunState
from service.cli import app
from service.retention import Pruner, prune
from service.retention_config import RetentionConfig
from service.store_config import StoreConfig
from service.store_figures import store_bytes, unsent_by_channel
from service.tables import (
    changes,
    evidence,
    health,
    incident_log,
    incident_ranks,
    incidents,
    metadata,
    outbox,
    run_states,
    runs,
)
from service.triage_tables import mutes

from .api_builders import Seeded, seeded, wait_until
from .history_builders import named, noise, write
from .service_builders import an_incident

DAY_S = 86_400.0
CONFIG = RetentionConfig(prune_every_s=0.05, prune_rows=3)


@pytest.fixture
def api(tmp_path: Path, store_config: StoreConfig) -> Iterator[Seeded]:
    with seeded(tmp_path, store_config=store_config) as one:
        yield one


def age(api: Seeded, run: str, days: float) -> None:
    """Let the newest verdict of a run be so old."""
    with api.store.database.write() as db:
        db.execute(update(runs).where(runs.c.run == run).values(updated_at=time.time() - days * DAY_S))


def names(api: Seeded) -> set[str]:
    with api.store.database.read() as db:
        return set(db.execute(select(runs.c.run)).scalars())


def count(api: Seeded, table: object) -> int:
    with api.store.database.read() as db:
        return int(db.execute(select(func.count()).select_from(table)).scalar_one())  # type: ignore[arg-type]


def test_a_run_without_news_for_long_goes_with_all_that_hangs_on_it(api: Seeded) -> None:
    api.put("old", an_incident(id="a1", certainty="recovered"))
    api.put("new", an_incident(id="b1"))
    api.client().post("/v1/incidents/a1/state", json={"state": "resolved", "note": "done"})
    age(api, "old", 181)
    gone = prune(api.store.database, CONFIG, None, time.time())
    assert (gone["runs"], gone["incidents"], names(api)) == (1, 1, {"new"})
    with api.store.database.read() as db:
        for table in (incidents, incident_ranks, evidence, incident_log, changes, outbox):
            key = next(table.c[name] for name in ("incident_id", "id", "key") if name in table.c)
            assert "a1" not in set(db.execute(select(key)).scalars()), table.name
    assert api.client().get("/v1/incidents/b1").status_code == 200


def test_every_table_that_names_a_run_or_an_incident_is_emptied_of_those_that_go(api: Seeded) -> None:
    about = {
        name: table
        for name, table in metadata.tables.items()
        if {"run_id", "incident_id"} & {*table.c.keys()}
    }
    assert {"runs", "incidents", "changes", "evidence"} <= about.keys()
    api.put("old", an_incident(id="a1", certainty="recovered"))
    age(api, "old", 181)
    prune(api.store.database, CONFIG, None, time.time())
    assert {name: count(api, table) for name, table in about.items()} == dict.fromkeys(about, 0)


def test_what_nobody_has_decided_about_and_what_was_called_a_false_alarm_stays_longer(api: Seeded) -> None:
    api.put("open", an_incident(id="a1"))
    api.put("false", an_incident(id="b1", certainty="recovered"))
    api.put("fine")
    api.client().post("/v1/incidents/b1/state", json={"state": "false_alarm", "note": "data"})
    for run in ("open", "false", "fine"):
        age(api, run, 400)
    prune(api.store.database, CONFIG, None, time.time())
    assert names(api) == {"open", "false"}
    for run in ("open", "false"):
        age(api, run, 731)
    prune(api.store.database, CONFIG, None, time.time())
    assert names(api) == set()


def test_a_run_that_a_worker_holds_stays_until_it_is_retired(api: Seeded) -> None:
    api.put("held")
    state = RunState(run="held", parts=("0",), version="1", is_settled=True, snapshot=b"")
    api.store.save_checkpoint(api.tenure, Checkpoint(offsets={"0": (None, 5)}, states=[state]))
    age(api, "held", 400)
    prune(api.store.database, CONFIG, None, time.time())
    assert names(api) == {"held"}
    api.store.retire(api.tenure, ["held"])
    prune(api.store.database, CONFIG, None, time.time())
    assert (names(api), count(api, run_states)) == (set(), 0)


def test_old_changes_and_messages_that_nobody_took_go_in_small_steps(api: Seeded) -> None:
    for n in range(10):
        api.put(f"run-{n}", an_incident(id=f"a{n}"))
    with api.store.database.write() as db:
        db.execute(update(changes).where(changes.c.seq <= 14).values(at=time.time() - 31 * DAY_S))
        db.execute(update(outbox).where(outbox.c.key != "a9").values(created_at=time.time() - 8 * DAY_S))
    gone = prune(api.store.database, CONFIG, None, time.time())
    assert (gone["changes"], gone["outbox"], gone["runs"]) == (14, 9, 0)
    assert (count(api, changes), count(api, outbox)) == (6, 1)


def test_rules_that_mute_go_long_after_their_end_and_no_sooner(api: Seeded) -> None:
    now = time.time()
    ends = {"by itself": (now - 366 * DAY_S, None), "by somebody": (now - DAY_S, now - 366 * DAY_S)}
    ends |= {"lately": (now - 300 * DAY_S, None), "holds": (now + DAY_S, None)}
    with api.store.database.write() as db:
        for name, (until, ended_at) in ends.items():
            row = {"id": name, "run": "*", "comment": name, "who": "local", "created_at": now - 700 * DAY_S}
            db.execute(insert(mutes).values(**row, until=until, ended_at=ended_at))
    assert prune(api.store.database, CONFIG, None, now, dry=True)["mutes"] == 2
    assert prune(api.store.database, CONFIG, None, now)["mutes"] == 2
    with api.store.database.read() as db:
        assert set(db.execute(select(mutes.c.id)).scalars()) == {"lately", "holds"}


def test_history_of_runs_that_are_gone_goes_too_once_it_is_old(api: Seeded, tmp_path: Path) -> None:
    folder = tmp_path / "history"
    run_id = api.put("kept")
    writer = write(folder, named(noise(200), "kept"), named(noise(200), "gone"))
    writer.freeze("b1", "gone", 0, (50, 60))
    writer.close()
    assert prune(api.store.database, CONFIG, folder, time.time())["history"] == 0
    for path in folder.rglob("*"):
        os.utime(path, (0, 0))
    assert prune(api.store.database, CONFIG, folder, time.time())["history"] == 2
    assert [path.name for path in folder.iterdir() if path.name != "windows"] == [run_id]


def test_a_dry_run_counts_the_same_and_changes_nothing(tmp_path: Path) -> None:
    with seeded(tmp_path) as api:
        check_dry_run(api, tmp_path)


def check_dry_run(api: Seeded, tmp_path: Path) -> None:
    folder = tmp_path / "history"
    write(folder, named(noise(200), "old")).close()
    for path in folder.rglob("*"):
        os.utime(path, (0, 0))
    api.put("old", an_incident(certainty="recovered"))
    age(api, "old", 181)
    told = CliRunner().invoke(app, ["prune", "--dry-run", "--json", "--data", str(tmp_path)])
    assert told.exit_code == 0, told.output
    expected = json.loads(told.stdout)["removed"]
    assert names(api) == {"old"}
    done = prune(api.store.database, RetentionConfig(), folder, time.time())
    assert {kind: n for kind, n in expected.items() if n} == {kind: n for kind, n in done.items() if n}
    assert (expected["runs"], expected["history"]) == (1, 1)
    said = CliRunner().invoke(app, ["prune", "--data", str(tmp_path)])
    assert said.stdout == "nothing is old enough to be removed\n"


def test_both_databases_say_how_large_they_are_and_what_waits(api: Seeded) -> None:
    api.put("one", an_incident())
    with api.store.database.read() as db:
        assert store_bytes(db) > 8192
        waiting, since = unsent_by_channel(db, time.time())["kafka"]
    assert (waiting, time.time() - since < 60.0) == (1, True)


def test_the_worker_prunes_beside_its_work(api: Seeded) -> None:
    api.put("old")
    age(api, "old", 181)
    with api.store.database.write() as db:
        db.execute(insert(health).values(component="worker:x", at=0.0, body=b"{}"))
    pruner = Pruner(api.store.database, CONFIG, None)
    wait_until(lambda: names(api) == set())
    pruner.close()
    pruner.close()

"""A worker killed at any point of an alert loses none, and what it sends twice has the same id and bytes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from sqlalchemy import select

from service import tables
from service.config import Settings
from service.crash_points import CrashPoint

from .alert_builders import SECRET, Receiver, a_webhook, is_signed, quick
from .crash_harness import (
    EAGER,
    Setup,
    Tally,
    append_to_spool,
    is_done,
    kill_over_and_over,
    mixed_lines,
    reading,
    start,
    wait_until,
)
from .test_crashes import end_of

LINES = mixed_lines(60)


def alerting(folder: Path, receiver: Receiver) -> Setup:
    (folder / "keys").write_text(SECRET)
    hook = a_webhook(receiver.url, secret_env="", secret_file=str(folder / "keys"), min_certainty="suspected")
    alerts = quick({"ops": hook}, timeout_s=0.5)
    return Setup(data=folder / "data", settings=Settings(worker=EAGER, alerts=alerts))


def sent(setup: Setup) -> dict[str, str]:
    """The state of each delivery."""
    table = tables.alert_deliveries
    with reading(setup) as db:
        return {row.id: row.state for row in db.execute(select(table)).all()}


def finish(setup: Setup) -> dict[str, str]:
    """Let a worker live until all is judged and sent."""
    process, ends = start(setup), end_of(setup)
    wait_until(lambda: is_done(setup, ends) and set(sent(setup).values()) <= {"sent", "dropped"})
    process.terminate()
    process.join(20)
    assert process.exitcode == 0
    return sent(setup)


def check(setup: Setup, receiver: Receiver, deliveries: dict[str, str]) -> None:
    """Every delivery came, doubles are the same, and every incident that stands was told of."""
    bodies: dict[str, set[bytes]] = {}
    for got in receiver.got:
        assert is_signed(got, SECRET)
        bodies.setdefault(got.headers["webhook-id"], set()).add(got.body)
    assert bodies.keys() == {name for name, state in deliveries.items() if state == "sent"}
    assert all(len(different) == 1 for different in bodies.values())
    with reading(setup) as db:
        table = tables.incidents
        wanted = select(table.c.id).where(table.c.is_withdrawn.is_(False), table.c.severity != "info")
        standing = set(db.execute(wanted).scalars())
    told = {name for got in receiver.got for name, event in got.firing if event == "opened"}
    assert standing and standing <= told


@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.IN_VERDICT,
        CrashPoint.AFTER_VERDICT,
        CrashPoint.ALERT_CLAIMED,
        CrashPoint.ALERT_SENT,
    ],
)
def test_an_alert_survives_a_kill_at(tmp_path: Path, point: CrashPoint) -> None:
    with Receiver() as receiver:
        setup = alerting(tmp_path, receiver)
        append_to_spool(setup, LINES)
        process = start(setup, f"{point.value}:1")
        process.join(30)
        assert process.exitcode == -9
        before = len(receiver.got)
        deliveries = finish(setup)
        check(setup, receiver, deliveries)
    ids = [got.headers["webhook-id"] for got in receiver.got]
    assert (len(ids) > len(set(ids))) == (point is CrashPoint.ALERT_SENT)
    assert before == (point is CrashPoint.ALERT_SENT)


def test_alerts_survive_kills_at_random(tmp_path: Path) -> None:
    with Receiver() as receiver:
        setup, tally = alerting(tmp_path, receiver), Tally()
        parts = [LINES[at : at + 280] for at in range(0, len(LINES), 280)]

        def feed() -> bool:
            if parts:
                append_to_spool(setup, parts.pop(0))
                return True
            return False

        points = [CrashPoint.IN_VERDICT, CrashPoint.ALERT_CLAIMED, CrashPoint.ALERT_SENT]
        kill_over_and_over(setup, feed, random.Random(5), tally, points)
        deliveries = finish(setup)
        check(setup, receiver, deliveries)
    assert tally.kills >= 4

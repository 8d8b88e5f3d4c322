"""`/v1/hosts`: what each host was accused of over all runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from sqlalchemy import Connection

from service import reading
from service.host_chance import Chance, chances
from service.host_history import (
    DeviceRow,
    HostRow,
    devices_of,
    find_host,
    incidents_of,
    list_hosts,
    newest_of,
    place_of_host,
    runs_seen,
)

from .answers import answer
from .context import context_of
from .host_models import (
    ChanceAnswer,
    ChanceState,
    DeviceSummary,
    HostAnswer,
    HostIncident,
    HostPage,
    HostSummary,
    NewestIncident,
)
from .incident_summary import Telling
from .pages import from_cursor, to_cursor
from .parameters import Cursor, LabelText, Limit
from .problems import not_found

router = APIRouter(prefix="/v1/hosts", tags=["hosts"])

_MAX_DEVICES = 16
"""Devices of a host in a list: two machines' worth."""
_MAX_HISTORY = 200
"""Incidents of one host that are shown: it is drained long before."""
Host = Annotated[LabelText, Path(description="As telemetry names it; percent-encoded.")]


@router.get("", response_model=HostPage, summary="Hosts that were accused, repeat offenders first")
def get_hosts(request: Request, cursor: Cursor = None, limit: Limit = None) -> Response:
    """How often each host's ranks were suspects, over all runs, and whether that is more than chance."""
    context = context_of(request)
    size = context.page_size(limit)
    after = from_cursor("hosts", cursor, (int, int, float, str))
    with context.database.read() as db:
        rows = list_hosts(db, after=after, limit=size + 1)
        items = [HostSummary(**one) for one in _summaries(db, rows[:size], Telling(db, context.clock()))]
    place = to_cursor("hosts", place_of_host(rows[size - 1])) if len(rows) > size else None
    return answer(HostPage(items=items, next=place))


@router.get("/{host:text}", response_model=HostAnswer, summary="One host with all that accuses it")
def get_host(request: Request, host: Host) -> Response:
    """Its devices and incidents; a host that runs named and nothing accuses has none of either."""
    context = context_of(request)
    now = context.clock()
    with context.database.read() as db:
        row = find_host(db, host)
        if row is None:
            raise not_found("host", host)
        told = Telling(db, now)
        (summary,) = _summaries(db, [row], told)
        accused = incidents_of(db, host, _MAX_HISTORY + 1)
        found = [(reading.find_incident(db, name, now), alone) for name, alone in accused[:_MAX_HISTORY]]
        history = [
            HostIncident(**told.summary(one), is_sole_suspect=alone)
            for one, alone in found
            if one is not None
        ]
        devices = devices_of(db, [host]).get(host, [])
    more = len(accused) > _MAX_HISTORY
    shown = [_device(one) for one in devices]
    return answer(HostAnswer(**summary, device_history=shown, history=history, more=more))


def _summaries(db: Connection, rows: Sequence[HostRow], told: Telling) -> list[dict[str, Any]]:
    """The fields of a `HostSummary` of each host."""
    names = [row.host for row in rows]
    seen, devices = runs_seen(db, names), devices_of(db, names)
    newest, chance = newest_of(db, names), chances(db, names)
    return [
        {
            "host": row.host,
            "incidents": row.incidents,
            "as_sole_suspect": row.as_sole_suspect,
            "as_one_of_several": row.incidents - row.as_sole_suspect,
            "false_alarms": row.false_alarms,
            "runs": row.runs,
            "runs_seen": seen.get(row.host),
            "devices": [one.device for one in devices.get(row.host, [])[:_MAX_DEVICES]],
            "newest": _newest(db, newest.get(row.host), told),
            "chance": _chance(row, chance.get(row.host)),
        }
        for row in rows
    ]


def _newest(db: Connection, incident_id: str | None, told: Telling) -> NewestIncident | None:
    row = None if incident_id is None else reading.find_incident(db, incident_id, told.now)
    if row is None:
        return None
    one: Mapping[str, Any] = told.summary(row)
    copied = {name: one[name] for name in ("id", "run_id", "run", "label", "severity", "opened_at")}
    return NewestIncident(**copied, iteration=one["first"].iteration)


def _chance(row: HostRow, chance: Chance | None) -> ChanceAnswer:
    if chance is None:
        why = (
            "no run that accuses a host alone named this one among its hosts"
            if row.as_sole_suspect
            else "it was never accused alone"
        )
        return ChanceAnswer(
            state=ChanceState.UNKNOWN, p_value=None, expected_runs=None, hosts_compared=0, why=why
        )
    expected = float(f"{chance.expected:.2g}")
    why = (
        f"accused alone in {chance.accused} of the {chance.runs} runs it was seen in that accuse one host;"
        f" {expected:g} would be chance, were all hosts alike"
    )
    return ChanceAnswer(
        state=ChanceState.MORE if chance.is_more else ChanceState.MAY_BE,
        p_value=float(f"{chance.p_value:.6g}"),
        expected_runs=float(f"{chance.expected:.6g}"),
        hosts_compared=chance.hosts_compared,
        why=why,
    )


def _device(one: DeviceRow) -> DeviceSummary:
    return DeviceSummary(
        device=one.device,
        incidents=one.incidents,
        as_sole_suspect=one.as_sole_suspect,
        other_hosts=list(one.other_hosts),
    )

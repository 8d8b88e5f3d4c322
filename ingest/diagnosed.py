"""Reports about hardware joined to the runs of a job: they become its ``hardware`` events.

A report says a host and a device, a run says where its ranks sit (labels ``host`` and ``device``, the lists
of ``run_start``). Where a run says nothing, and reports speak of one host that has a device for each rank,
rank r is taken to run on device r, as launchers place them. A finding with a time gets the iteration at
that time; any other counts for the run as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from firstfault.device_names import is_index, is_same_device, is_same_host
from firstfault.telemetry import UNNAMED_RANK, Event, EventKind

from .blocks import RecordBatch
from .diagnostics.report import MAX_TEXT, DiagnosticReport, Finding, Place

MAX_RUNS = 1000
"""Runs that events are made for; more runs in one job are none of one job."""
MAX_RANKS = 1 << 17
"""Ranks whose place is kept: twice the greatest job the service is sized for."""
MAX_TIMES = 4096
"""Times of a run that are kept, thinned evenly: what lies between two of them is found by the earlier."""

DURING, BEFORE, AFTER, UNKNOWN = "during", "before", "after", "unknown"
"""When a finding was made, seen from the run; the field ``moment`` of its event."""


@dataclass(slots=True)
class _Run:
    """What is kept of one run to join reports to it."""

    attempt: int = 0
    iteration: int = 0
    ranks: set[int] = field(default_factory=set)
    labels: dict[int, dict[str, str]] = field(default_factory=dict)
    hosts: object = None
    devices: object = None
    times: list[tuple[float, int, int]] = field(default_factory=list)
    """(time, attempt, iteration), ascending by arrival."""
    stride: int = 1
    seen: int = 0

    def place_of(self, rank: int) -> tuple[str | None, str | None]:
        """Host and device of a rank, as far as they are known."""
        said = self.labels.get(rank, {})
        return (
            said.get("host") or _of_rank(self.hosts, rank),
            said.get("device") or _of_rank(self.devices, rank),
        )

    def note_time(self, time: float, attempt: int, iteration: int) -> None:
        """Keep one time in ``stride``; when there are too many, every second is let go."""
        if self.seen % self.stride == 0:
            self.times.append((time, attempt, iteration))
            if len(self.times) > MAX_TIMES:
                del self.times[1::2]
                self.stride *= 2
        self.seen += 1


class Diagnosed:
    """Watches the records of a job, then gives the events of ``reports`` for each of its runs."""

    def __init__(self, reports: Sequence[DiagnosticReport]) -> None:
        self._reports = [_with_all_names(report, reports) for report in reports]
        self._runs: dict[str, _Run] = {}

    def watch(self, batch: RecordBatch) -> None:
        """Take note of where ranks sit, and of what time it was at which iteration."""
        if not self._reports:
            return
        for code in np.unique(batch.run_N).tolist():
            run = self._of(batch.runs[code])
            if run is not None:
                self._note(run, batch, np.flatnonzero(batch.run_N == code))
        for at, name, text in batch.labels:
            run = self._of(batch.runs[batch.run_N[at]])
            if run is not None and name in ("host", "device") and len(run.labels) < MAX_RANKS:
                run.labels.setdefault(int(batch.rank_N[at]), {})[name] = text
        for _, event in batch.events:
            run = self._of(event.run)
            if run is not None and event.kind is EventKind.RUN_START:
                run.hosts = event.fields.get("hosts", run.hosts)
                run.devices = event.fields.get("device_ids", run.devices)

    def events(self) -> list[Event]:
        """The events of all runs, once all records were watched."""
        return [event for name, run in self._runs.items() for event in self._of_run(name, run)]

    def _of(self, name: str) -> _Run | None:
        if name not in self._runs and len(self._runs) >= MAX_RUNS:
            return None
        return self._runs.setdefault(name, _Run())

    def _note(self, run: _Run, batch: RecordBatch, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> None:
        if not len(rows):
            return
        newest = int(batch.attempt_N[rows].max())
        last = int(batch.iteration_N[rows][batch.attempt_N[rows] == newest].max())
        run.attempt, run.iteration = max((run.attempt, run.iteration), (newest, last))
        if len(run.ranks) < MAX_RANKS:
            run.ranks.update(np.unique(batch.rank_N[rows]).tolist())
        timed = rows[np.isfinite(batch.time_N[rows])]
        for at in timed[:: max(1, len(timed) // MAX_TIMES)].tolist():
            place = int(batch.attempt_N[at]), int(batch.iteration_N[at])
            run.note_time(float(batch.time_N[at]), *place)

    def _of_run(self, name: str, run: _Run) -> Iterator[Event]:
        for report in self._reports:
            for finding in report.findings:
                yield _event(name, run, finding, source=report.format, rank=self._rank(run, finding.place))
            for place, tests in report.passed:
                said = Finding(kind="diag", text=f"passed {tests}"[:MAX_TEXT], place=place)
                rank = self._rank(run, place)
                yield _event(name, run, said, source=report.format, rank=rank, result="pass")

    def _rank(self, run: _Run, place: Place) -> tuple[int, bool]:
        """The rank at a place, and whether it is only assumed; `UNNAMED_RANK` where none is known."""
        known = {rank: run.place_of(rank) for rank in run.ranks if rank >= 0}
        if any(host or device for host, device in known.values()):
            return _rank_among(known, place)
        hosts = {each.host for report in self._reports for each in report.places if each.host is not None}
        count = max((len(report.places) for report in self._reports), default=0)
        rank = _number_of(place)
        if len(hosts) > 1 or rank is None:
            return UNNAMED_RANK, False
        is_possible = rank in known and len(known) > 1 and max(known) < max(count, 1)
        return (rank, True) if is_possible else (UNNAMED_RANK, False)


def _with_all_names(report: DiagnosticReport, reports: Sequence[DiagnosticReport]) -> DiagnosticReport:
    """The report with the names that others have for the same devices: a kernel knows addresses alone."""
    known = [place for other in reports for place in other.devices if place.names]
    if not known:
        return report
    return replace(
        report,
        findings=tuple(replace(each, place=_named(each.place, known)) for each in report.findings),
        passed=tuple((_named(place, known), tests) for place, tests in report.passed),
    )


def _named(place: Place, known: Sequence[Place]) -> Place:
    own = [name for name in (place.device, *place.names) if name is not None]
    for other in known:
        others = [name for name in (other.device, *other.names) if name is not None]
        if is_same_host(place.host, other.host) and any(
            is_same_device(one, name) for one in own for name in others
        ):
            extra = [name for name in others if name not in own]
            return replace(place, names=(*place.names, *extra), host=place.host or other.host)
    return place


def _rank_among(known: Mapping[int, tuple[str | None, str | None]], place: Place) -> tuple[int, bool]:
    """The one rank at a place; of a host whose devices are not said, the rank that stands where it does."""
    found = [rank for rank, (host, device) in known.items() if _is_at(place, host, device)]
    if len(found) == 1:
        return found[0], False
    on_host = [rank for rank, (host, _) in sorted(known.items()) if host and is_same_host(place.host, host)]
    is_one_host = place.host is not None or len({host for host, _ in known.values()}) == 1
    # A device known by an identifier that the report does not have cannot be told to be another one.
    is_open = is_one_host and not any(is_index(known[rank][1]) for rank in on_host)
    number = _number_of(place)
    if is_open and number is not None and number < len(on_host):
        return on_host[number], True
    return UNNAMED_RANK, False


def _number_of(place: Place) -> int | None:
    """The number of a device on its host, if one of its names is one."""
    return next((int(name) for name in (place.device, *place.names) if name and name.isdecimal()), None)


def _is_at(place: Place, host: str | None, device: str | None) -> bool:
    if place.device is None or device is None or not is_same_host(place.host, host):
        return False
    return any(is_same_device(name, device) for name in (place.device, *place.names))


def _event(
    name: str, run: _Run, finding: Finding, *, source: str, rank: tuple[int, bool], result: str | None = None
) -> Event:
    moment, attempt, iteration = _moment(run, finding)
    fields: dict[str, object] = {
        "kind": finding.kind,
        "text": finding.text,
        "code": finding.code,
        "device": finding.place.device,
        "host": finding.place.host,
        "names": list(finding.place.names) or None,
        "result": "fail" if finding.is_failure else result,
        "count": finding.count if finding.count > 1 else None,
        "source": source,
        "moment": moment,
        "at_attempt": attempt,
        "at_iteration": iteration,
        "rank_is_assumed": rank[1] or None,
    }
    return Event(
        kind=EventKind.HARDWARE,
        run=name,
        rank=rank[0],
        iteration=run.iteration,
        attempt=run.attempt,
        time=finding.time,
        fields={key: value for key, value in fields.items() if value is not None},
    )


def _moment(run: _Run, finding: Finding) -> tuple[str, int, int]:
    """When a finding was made, and the attempt and the iteration it is told at."""
    end = run.attempt, run.iteration
    if not run.times:
        return UNKNOWN, *end
    first, last = min(run.times)[0], max(run.times)[0]
    time = finding.time if finding.time is not None else _with_year(finding.day_time, first, last)
    if time is None:
        return UNKNOWN, *end
    if time < first:
        return BEFORE, *end
    if time > last:
        return AFTER, *end
    before = max(each for each in run.times if each[0] <= time)
    return DURING, before[1], before[2]


def _with_year(day_time: tuple[int, int, float] | None, first: float, last: float) -> float | None:
    """The time of a day without a year, in the year that brings it nearest to the run."""
    if day_time is None:
        return None
    month, day, second = day_time
    best: float | None = None
    middle = (first + last) / 2
    year = datetime.fromtimestamp(middle, UTC).year
    for candidate in (year - 1, year, year + 1):
        try:
            time = datetime(candidate, month, day, tzinfo=UTC).timestamp() + second
        except ValueError:  # the 29th of February of another year
            continue
        if best is None or abs(time - middle) < abs(best - middle):
            best = time
    return best


def _of_rank(given: object, rank: int) -> str | None:
    """An entry of a list or a mapping by rank, as ``run_start`` gives hosts and devices."""
    if isinstance(given, Mapping):
        found = given.get(str(rank))
    elif isinstance(given, Sequence) and not isinstance(given, str) and 0 <= rank < len(given):
        found = given[rank]
    else:
        found = None
    return None if found is None else str(found)

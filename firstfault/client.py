"""The service asked from a notebook or a script.

Lists are read to their end and come as polars frames, single things as the JSON objects of the API. Only
what makes a frame needs polars; everything else is the standard library.
"""

from __future__ import annotations

import json
import math
import numbers
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .client_errors import Conflict, NotFound, Unavailable
from .client_frames import RUNS, frame_of_curve, frame_of_items, frame_of_matrix
from .client_http import Connection
from .client_triage import TriageCalls
from .pieces import pieces

if TYPE_CHECKING:
    import polars as pl

_RUN_ID = re.compile("[0-9a-f]{16}")
_BODY_BYTES, _BODY_LINES = 4 << 20, 50_000
"""What one request of `Client.send` carries: a quarter of what the service takes by default."""
_ASK_AGAIN_S = 0.5
"""Between two looks whether a question has been answered."""


# Any: answers are JSON objects, whose shape the service's /openapi.json fixes.
class Client(TriageCalls):
    """Asks one service; ``token`` is one of `firstfault token create`, needed where the service wants it.

    Runs are named by their name or their id. Every method raises an `ApiError` for what the service refuses,
    with its status, title and detail (`client_errors` has the tree), `Unreachable` where nobody answers. What
    is refused for now (429, 503) is asked again, when the service says, for up to ``patience_s``.

    Raises:
        ValueError: ``url`` is not that of an HTTP service.
    """

    def __init__(
        self, url: str, token: str | None = None, *, timeout_s: float = 60.0, patience_s: float = 30.0
    ) -> None:
        self._connection = Connection(url, token, timeout_s, patience_s)
        self._ids: dict[str, str] = {}

    def runs(self, **filters: Any) -> pl.DataFrame:
        """The runs, newest first; filters as `/v1/runs` has them: ``label="nan"``, ``order="severity"``."""
        return frame_of_items(list(self._items("/v1/runs", filters)), RUNS)

    def run(self, run: str) -> dict[str, Any]:
        """One run: its label, what happened in a sentence, how fresh that is."""
        return dict(self._connection.get(f"/v1/runs/{self._id(run)}"))

    def verdict(self, run: str) -> dict[str, Any]:
        """The canonical verdict of a run, as `firstfault.replay` gives it of a log."""
        return dict(self._connection.get(f"/v1/runs/{self._id(run)}/verdict")["verdict"])

    def events(self, run: str, kind: str | None = None) -> list[dict[str, Any]]:
        """The history of a run: incidents and annotations by position, then what changed since."""
        return list(self._items(f"/v1/runs/{self._id(run)}/events", {"kind": kind}))

    def curves(
        self,
        run: str,
        metric: str,
        *,
        attempt: int | None = None,
        start: int = 0,
        stop: int | None = None,
        points: int | None = None,
    ) -> pl.DataFrame:
        """A metric over its ranks in the iterations ``[start, stop)``, in at most ``points`` rows."""
        answer = self._connection.get(
            f"/v1/runs/{self._id(run)}/curves",
            **{"metric": metric, "attempt": attempt, "points": points, **_range(start, stop)},
        )
        return frame_of_curve(answer)

    def matrix(
        self,
        run: str,
        metric: str,
        *,
        incident: str | None = None,
        attempt: int | None = None,
        start: int = 0,
        stop: int | None = None,
        ranks: Sequence[int] | None = None,
    ) -> pl.DataFrame:
        """A metric of every rank, a column each: of the latest iterations, or as frozen for ``incident``."""
        wanted = None if ranks is None else ",".join(map(str, ranks))
        answer = self._connection.get(
            f"/v1/runs/{self._id(run)}/matrix",
            **{"metric": metric, "incident": incident, "attempt": attempt, "ranks": wanted},
            **(_range(start, stop) if incident is None else {}),
        )
        return frame_of_matrix(answer)

    def heatmap(self, run: str, metric: str, **parameters: Any) -> dict[str, Any]:
        """The worst of ranks × iterations in cells; parameters as `/v1/runs/{run_id}/heatmap` has them."""
        return dict(self._of_run(run, "heatmap", {"metric": metric, **parameters}))

    def checksums(self, run: str, **parameters: Any) -> dict[str, Any]:
        """Replica groups around one check; parameters as `/v1/runs/{run_id}/checksums` has them."""
        return dict(self._of_run(run, "checksums", parameters))

    def propagation(self, run: str, incident: str | None = None) -> dict[str, Any]:
        """How an incident spread over ranks and phases; the run's root incident without one."""
        return dict(self._of_run(run, "propagation", {"incident": incident}))

    def what_if(self, run: str, settings: Mapping[str, Any], *, patience_s: float = 300.0) -> dict[str, Any]:
        """What other settings of the detectors would have said of a run; nothing that is stored changes.

        `Conflict` where what history keeps cannot tell; `Unavailable` while another question is answered.
        """
        path = f"/v1/runs/{self._id(run)}/what-if"
        asked = {"settings": _plain(settings)}
        told = self._connection.post(path, json.dumps(asked).encode(), "application/json")
        give_up_s = time.monotonic() + patience_s
        while told["state"] == "running" and time.monotonic() < give_up_s:
            time.sleep(_ASK_AGAIN_S)
            told = self._connection.get(f"{path}/{told['id']}")
        if told["state"] == "done":
            return dict(told)
        if told["state"] == "refused":
            raise Conflict(409, "Conflict", told["refusal"])
        raise Unavailable(503, "Service Unavailable", f"not answered within {patience_s:g} s")

    def send(self, records: Iterable[Mapping[str, Any]] | pl.DataFrame) -> dict[str, Any]:
        """Send records or events, or the rows of a frame; the counts of what was taken, and why not the rest.

        Many go in several requests. After an error some may have been taken already; to send all again does
        no harm.
        """
        rows = records if isinstance(records, Iterable) and not hasattr(records, "iter_rows") else None
        given = rows if rows is not None else records.iter_rows(named=True)  # type: ignore[union-attr]
        total: dict[str, Any] = {
            "accepted": 0,
            "rejected": 0,
            "rejected_values": 0,
            "rejected_by": {},
            "reasons": [],
        }
        before = 0
        encoded = (json.dumps(_plain(row), separators=(",", ":")).encode() for row in given)
        for lines in pieces(encoded, most_lines=_BODY_LINES, most_bytes=_BODY_BYTES):
            reply = self._connection.post("/v1/telemetry", b"\n".join(lines), "application/x-ndjson")
            _add(total, reply, before)
            before += len(lines)
        return total

    def stream(self, after: int | None = None, *, patience_s: float = 60.0) -> Iterator[dict[str, Any]]:
        """What changes, as it changes: ``id``, ``event`` and ``data`` of each; a lost connection is resumed.

        ``after`` is the id of the last one you saw: what was missed comes first, or a ``gap`` if it is gone.
        `Unreachable` once the service is away for ``patience_s``.
        """
        for event in self._connection.events("/v1/stream", after, patience_s):
            if event["event"] != "hello":
                yield event

    def _of_run(self, run: str, part: str, parameters: Mapping[str, Any]) -> Any:
        return self._connection.get(f"/v1/runs/{self._id(run)}/{part}", **parameters)

    def _id(self, run: str) -> str:
        """The id of a run; a name comes first, since one may look like an id."""
        if run not in self._ids:
            found = self._connection.get("/v1/runs", run=run)["items"]
            if not found and not _RUN_ID.fullmatch(run):
                raise NotFound(404, "Not Found", f"there is no run {run!r}")
            if not found:
                return run
            self._ids[run] = str(found[0]["run_id"])
        return self._ids[run]


def _range(start: int, stop: int | None) -> dict[str, int | None]:
    """``[start, stop)`` as the API asks for it: the last iteration inside."""
    return {"from": start, "to": None if stop is None else stop - 1}


def _add(total: dict[str, Any], reply: Mapping[str, Any], before: int) -> None:
    """Count a reply in; its lines are numbered from the first of all records."""
    for name in ("accepted", "rejected", "rejected_values"):
        total[name] += reply[name]
    for reason, count in reply["rejected_by"].items():
        total["rejected_by"][reason] = total["rejected_by"].get(reason, 0) + count
    for one in reply["reasons"]:
        line = one["line"]
        total["reasons"].append({**one, "line": None if line is None else line + before})


def _plain(value: Any) -> Any:
    """A value as JSON has it: NaN and infinity are text, numbers of numpy are numbers.

    >>> _plain({"loss": float("nan"), "rank": 3, "hosts": ["a"]})
    {'loss': 'NaN', 'rank': 3, 'hosts': ['a']}
    """
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a value must be a number, text or None, got {value!r}") from error
    if math.isnan(number):
        return "NaN"
    return number if math.isfinite(number) else ("Infinity" if number > 0 else "-Infinity")

"""The service asked about incidents, rules that mute, hosts and detectors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .client_frames import DETECTORS, HOSTS, INCIDENTS, MUTES, REVISIONS, frame_of_items

if TYPE_CHECKING:
    import polars as pl

    from .client_http import Connection


# Any: answers are JSON objects, whose shape the service's /openapi.json fixes.
class TriageCalls:
    """What `firstfault.Client` asks beside runs and their curves."""

    _connection: Connection

    def incidents(self, **filters: Any) -> pl.DataFrame:
        """The incidents of all runs, newest first; filters as `/v1/incidents` has them."""
        return frame_of_items(list(self._items("/v1/incidents", filters)), INCIDENTS)

    def incident(self, incident_id: str) -> dict[str, Any]:
        """One incident: its canonical part with the evidence, and what people made of it."""
        return dict(self._connection.get(f"/v1/incidents/{quote(incident_id, safe='')}"))

    def set_state(
        self,
        incident_id: str,
        state: str,
        note: str = "",
        *,
        muted_until: str | datetime | None = None,
        etag: str | None = None,
    ) -> dict[str, Any]:
        """Say what you make of an incident; ``muted_until`` belongs to the state ``muted``.

        With ``etag``, of the incident as you saw it, `Conflict` where it has changed since.
        """
        change: dict[str, Any] = {"state": state, "note": note}
        if muted_until is not None:
            change["muted_until"] = _moment(muted_until)
        path = f"/v1/incidents/{quote(incident_id, safe='')}/state"
        return self._send_json(path, change, {} if etag is None else {"If-Match": etag})

    def revisions(self, incident_id: str) -> pl.DataFrame:
        """What an incident was before, oldest first; ``changed`` tells field, before and after as JSON."""
        answer = self._connection.get(f"/v1/incidents/{quote(incident_id, safe='')}/revisions")
        items = [{**one, "changed": json.dumps(one["changed"])} for one in answer["items"]]
        return frame_of_items(items, REVISIONS)

    def mutes(self) -> pl.DataFrame:
        """The rules that mute, newest first, also those that are over."""
        return frame_of_items(list(self._items("/v1/mutes", {})), MUTES)

    def mute(self, *, until: str | datetime, comment: str, **matchers: str) -> dict[str, Any]:
        """Make a rule of ``run`` and ``host`` (shell patterns), ``label``, ``pattern``, ``detector``."""
        return self._send_json("/v1/mutes", {**matchers, "until": _moment(until), "comment": comment}, {})

    def end_mute(self, mute_id: str) -> dict[str, Any]:
        """End a rule before its time."""
        return dict(self._connection.delete(f"/v1/mutes/{quote(mute_id, safe='')}"))

    def hosts(self) -> pl.DataFrame:
        """The hosts whose ranks were suspects, over all runs, repeat offenders first."""
        items = [
            {**one, **{f"chance_{key}": value for key, value in one["chance"].items()}}
            for one in self._items("/v1/hosts", {})
        ]
        return frame_of_items(items, HOSTS)

    def host(self, host: str) -> dict[str, Any]:
        """One host: its devices and the incidents that accuse it."""
        return dict(self._connection.get(f"/v1/hosts/{quote(host, safe='')}"))

    def detectors(self) -> pl.DataFrame:
        """What each detector fired by pattern, and what people said of it."""
        items = [
            {"detector": one["detector"], **part, **part["precision"]}
            for one in self._connection.get("/v1/detectors")["items"]
            for part in one["patterns"]
        ]
        return frame_of_items(items, DETECTORS)

    def _send_json(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        return dict(self._connection.post(path, json.dumps(body).encode(), "application/json", headers))

    def _items(self, path: str, filters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        cursor: str | None = None
        while True:
            page = self._connection.get(path, **{**filters, "cursor": cursor})
            yield from page["items"]
            cursor = page["next"]
            if cursor is None:
                return


def _moment(time: str | datetime) -> str:
    """A time as the API takes it: RFC 3339 with a zone."""
    return time if isinstance(time, str) else time.isoformat()

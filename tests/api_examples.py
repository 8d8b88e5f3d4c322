"""The examples of the OpenAPI document, as the real application answers: `python -m tests.api_examples`.

The store holds the verdict of a sample log, the history a few made iterations; times are fixed.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import update

import firstfault
from firstfault.mesh import Layout
from service.access import create_token, forget_tokens
from service.alerts.config import AlertsConfig, ChannelConfig, ChannelKind
from service.alerts.dispatch import count
from service.tables import alert_deliveries, changes, health, incidents, runs
from service.triage_tables import incident_revisions, mutes
from service.what_if_desk import LIMIT_S, Desk, Inquiry
from service.what_if_history import Question

from .api_builders import Json, Seeded, served
from .block_builders import block
from .history_builders import named, write

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "service" / "api" / "examples.json"
AT = 1_764_470_000.25
"""When everything happened: 2025-11-30T02:33:20.250Z."""
_HEADERS = {"X-Request-ID": "0f6a5c"}
_MESSAGE = "msg_5d1c0b7f2a9e4c3d8e6f1a2b3c4d5e6f"


def make_examples(data_dir: Path, verdict: Json) -> dict[str, dict[str, Any]]:
    """Answers by operation and status, of a store that holds ``verdict``."""
    with _example_store(data_dir) as api:
        run_id, incident_id = _fill(api, verdict, data_dir / "history")
        found = _answers(api, run_id, incident_id)
        found["GET /v1/stream"] = {"200": _begin_of_stream(api)}
    return found


class _Still(Seeded):
    """A store whose clock stands still."""

    def now(self) -> float:
        """The clock of the API."""
        return AT + 1.0


@contextmanager
def _example_store(data_dir: Path) -> Iterator[Seeded]:
    url = "https://hooks.example/firstfault"
    oncall = ChannelConfig(kind=ChannelKind.WEBHOOK, url=url, secret_env="ONCALL_SECRET")
    alerts = AlertsConfig(channels={"oncall": oncall})
    api = _Still(data_dir, history_folder=data_dir / "history", alerts=alerts)
    try:
        yield api
    finally:
        api.store.close()


def _fill(api: Seeded, verdict: Json, folder: Path) -> tuple[str, str]:
    run_id = api.put_verdict(verdict, newest_record_at=AT - 2.0)
    nan = float("nan")
    loss_TR = np.array([[2.31, 2.3, 2.29], [nan, 2.3, 2.28], [nan, nan, nan]])
    checksum_TR = [
        [0x5D1, 0x5D1, 0x5D1],
        [0xC1D63F8649B37321, 0xC1D63F8649B37321, 0x50CA324F7A9C6B49],
        [7, 7, 9],
    ]
    metrics = {"loss": loss_TR, "param_checksum": np.array(checksum_TR, np.uint64)}
    layout = Layout(axes=("dp",), coordinates={rank: (rank,) for rank in range(4)}, hosts={3: "node-00"})
    one = block(metrics, iterations=np.array([389, 390, 391]), ranks=np.array([0, 1, 3]), layout=layout)
    write(folder, named(one, verdict["run"]))
    api.say_healthy(source="firstfault.telemetry", parts=["firstfault.telemetry:0"], lag_messages=0)
    _stop_clocks(api)
    return run_id, str(verdict["incidents"][0]["id"])


def _stop_clocks(api: Seeded) -> None:
    with api.store.database.write() as db:
        db.execute(update(runs).values(first_seen_at=AT - 60.0, updated_at=AT))
        db.execute(update(incidents).values(opened_at=AT, updated_at=AT))
        for table in (changes, health, incident_revisions):
            db.execute(update(table).values(at=AT))
        due = update(alert_deliveries).values(id=_MESSAGE, created_at=AT, due_at=AT, attempts=1)
        db.execute(due.values(state="sent", finished_at=AT + 0.125, detail="answered 204"))
        count(db, "oncall", "sent", AT + 0.125, "answered 204")


def _answers(api: Seeded, run_id: str, incident_id: str) -> dict[str, dict[str, Any]]:
    client = api.client()
    run, incident = f"/v1/runs/{run_id}", f"/v1/incidents/{incident_id}"
    asked: dict[str, list[str]] = {
        "GET /v1/runs": ["/v1/runs", "/v1/runs?lable=nan"],
        "GET /v1/runs/{run_id}": [run, "/v1/runs/0123456789abcdef"],
        "GET /v1/runs/{run_id}/verdict": [f"{run}/verdict"],
        "GET /v1/runs/{run_id}/events": [f"{run}/events"],
        "GET /v1/runs/{run_id}/curves": [f"{run}/curves?metric=loss", f"{run}/curves?metric=lss"],
        "GET /v1/runs/{run_id}/heatmap": [f"{run}/heatmap?metric=loss&columns=4&rows=4"],
        "GET /v1/runs/{run_id}/matrix": [f"{run}/matrix?metric=loss"],
        "GET /v1/runs/{run_id}/checksums": [f"{run}/checksums?metric=param_checksum"],
        "GET /v1/runs/{run_id}/propagation": [f"{run}/propagation"],
        "GET /v1/incidents": ["/v1/incidents?rank=3"],
        "GET /v1/incidents/{incident_id}": [incident],
        "GET /v1/incidents/{incident_id}/revisions": [f"{incident}/revisions"],
        "GET /v1/hosts": ["/v1/hosts"],
        "GET /v1/hosts/{host}": ["/v1/hosts/node-00"],
        "GET /v1/detectors": ["/v1/detectors"],
        "GET /v1/detectors/settings": ["/v1/detectors/settings"],
        "GET /v1/alerts/channels": ["/v1/alerts/channels"],
        "GET /v1/alerts/deliveries": ["/v1/alerts/deliveries"],
        "GET /healthz": ["/healthz"],
        "GET /readyz": ["/readyz"],
    }
    found = {
        name: dict(_shown(client.get(path, headers=_HEADERS)) for path in paths)
        for name, paths in asked.items()
    }
    found["POST /v1/incidents/{incident_id}/state"] = _decisions(api, incident)
    found |= _mutes(api) | _trials(api, run)
    tried = client.post("/v1/alerts/channels/oncall/test", headers=_HEADERS)
    found["POST /v1/alerts/channels/{name}/test"] = {str(tried.status_code): {"id": _MESSAGE}}
    found["GET /v1/runs"] |= _refusals(api)
    found["GET /v1/tokens"] = _tokens(api)
    return found


def _decisions(api: Seeded, incident: str) -> dict[str, Any]:
    client = api.client()
    change = {"state": "acknowledged", "note": "node-00 is being drained"}
    seen = {"If-Match": client.get(incident).headers["etag"], **_HEADERS}
    answers = [
        client.post(f"{incident}/state", json=change, headers=seen),
        client.post(f"{incident}/state", json=change, headers=seen),
        client.post(f"{incident}/state", json={"state": "gone"}, headers=_HEADERS),
    ]
    return dict(_shown(answer) for answer in answers)


def _mutes(api: Seeded) -> dict[str, Any]:
    client = api.client()
    rule = {"host": "node-0?", "comment": "rack 7 is being rewired", "until": "2025-12-01T00:00:00Z"}
    answers = [client.post("/v1/mutes", json=one, headers=_HEADERS) for one in (rule, {**rule, "host": None})]
    with api.store.database.write() as db:
        db.execute(update(mutes).values(id="5f0c3b1d9a7e"))
    one = "/v1/mutes/5f0c3b1d9a7e"
    found = {
        "POST /v1/mutes": dict(_shown(answer) for answer in answers),
        "GET /v1/mutes": dict([_shown(client.get("/v1/mutes"))]),
        "GET /v1/mutes/{mute_id}": dict([_shown(client.get(one))]),
        "DELETE /v1/mutes/{mute_id}": dict([_shown(client.delete(one))]),
    }
    found["POST /v1/mutes"]["201"]["id"] = "5f0c3b1d9a7e"
    return found


class _PatientDesk(Desk):
    """Waits for the whole answer, however slow the machine."""

    def wait(self, inquiry: Inquiry, seconds: float) -> None:
        super().wait(inquiry, LIMIT_S)


class _QuickDesk(Desk):
    """Answers at once that the first incident would be a suspicion."""

    def _in_a_process(self, question: Question) -> tuple[Mapping[str, Any] | None, str]:
        first, *others = question.verdict["incidents"]
        doubted = {**first, "certainty": "suspected", "severity": "warning"}
        return {**question.verdict, "label": "healthy", "incidents": [doubted, *others]}, ""


def _trials(api: Seeded, run: str) -> dict[str, Any]:
    path = f"{run}/what-if"
    body = {"settings": {"detectors.explosion.norm_hold": 100.0}}
    api.app.state.desk = _PatientDesk()
    refused = api.client().post(path, json=body, headers=_HEADERS)
    api.app.state.desk = _QuickDesk()
    told = api.client().post(path, json=body, headers=_HEADERS)
    shown = {**told.json(), "id": "9b1d0c6f2a7e4853"}
    again = "GET /v1/runs/{run_id}/what-if/{inquiry_id}"
    return {
        "POST /v1/runs/{run_id}/what-if": {"200": shown, **dict([_shown(refused)])},
        again: {"200": shown},
    }


def _refusals(api: Seeded) -> dict[str, Any]:
    with api.store.database.write() as db:
        token = create_token(db, "trainer", ("ingest",), time.time())
    answers = [
        api.client().get("/v1/runs", headers=_HEADERS),
        api.client(token=token).get("/v1/runs", headers=_HEADERS),
    ]
    with api.store.database.write() as db:
        forget_tokens(db)
    return dict(_shown(answer) for answer in answers)


def _tokens(api: Seeded) -> dict[str, Any]:
    with api.store.database.write() as db:
        token = create_token(db, "oncall", ("read", "write"), AT, lifetime_s=86_400.0)
    status, body = _shown(api.client(token=token).get("/v1/tokens", headers=_HEADERS))
    body["items"][0]["prefix"] = "ff_0f6a5c3b"  # random
    with api.store.database.write() as db:
        forget_tokens(db)
    return {status: body}


def _shown(answer: Any) -> tuple[str, Any]:
    return str(answer.status_code), answer.json()


def _begin_of_stream(api: Seeded) -> str:
    from .test_api_stream import listening

    with served(api.app) as (port, _), listening(port, "/v1/stream?after=0") as listener:
        listener.head()
        lines = listener.lines()
        return "\n".join(next(lines) for _ in range(10))


def as_text(examples: Json) -> str:
    """The file's text."""
    return json.dumps(examples, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def main() -> None:
    """Write the file anew."""
    (verdict,) = firstfault.replay(ROOT / "sample_logs" / "drift_param.jsonl.gz")
    with tempfile.TemporaryDirectory() as folder:
        EXAMPLES.write_text(as_text(make_examples(Path(folder), verdict)), encoding="utf-8")


if __name__ == "__main__":
    main()

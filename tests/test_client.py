"""The client of notebooks, against a real server: lists to their end, NaN as NaN, refusals in words."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from firstfault import ApiError, Client
from firstfault.client_errors import Conflict, InvalidRequest, NotFound, Unavailable, Unreachable
from service.access import create_token
from service.api.app import make_app
from service.api.settings import ApiConfig
from service.intake import make_intake_router
from service.intake_config import IntakeConfig

from .api_builders import Seeded, seeded, served
from .block_builders import block, masked
from .history_builders import named, write
from .intake_builders import ListSink
from .service_builders import a_verdict, an_incident

CONFIG = ApiConfig(change_poll_s=0.02, max_page_items=100)


@dataclass
class Service:
    """A served store, and a client of it."""

    api: Seeded
    port: int
    sink: ListSink
    folder: Path

    def client(self, token: str | None = None) -> Client:
        return Client(f"http://127.0.0.1:{self.port}/", token)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    folder, sink = tmp_path / "history", ListSink()
    with seeded(tmp_path, CONFIG, history_folder=folder) as api:
        telemetry = make_intake_router(sink, IntakeConfig())
        app = make_app(api.store.database, CONFIG, routers=[telemetry], history_folder=folder, clock=api.now)
        with served(app) as (port, _):
            yield Service(api, port, sink, folder)


def test_lists_are_read_to_their_end_as_frames(service: Service) -> None:
    for at in range(7):
        service.api.put(f"run/{at}", *([an_incident(id=f"a{at}")] if at % 2 else []))
    runs = service.client().runs(limit=3)
    assert sorted(runs["run"]) == [f"run/{at}" for at in range(7)]
    assert runs.schema["updated_at"] == pl.Datetime("ms", "UTC")
    assert runs["updated_at"].null_count() == 0
    assert runs.filter(pl.col("run") == "run/3")["first_ranks"].to_list() == [[3]]
    assert runs.filter(pl.col("run") == "run/2")["first_iteration"].to_list() == [None]
    incidents = service.client().incidents(run="run/5", rank=3)
    assert incidents.select("id", "state", "first_iteration").rows() == [("a5", "open", 1200)]


def test_an_empty_list_is_a_frame_of_the_same_columns(service: Service) -> None:
    client = service.client()
    none = client.incidents()
    service.api.put("run", an_incident())
    some = client.incidents()
    assert (len(none), len(some), none.schema) == (0, 1, some.schema)


def test_a_run_goes_by_its_name_before_its_id(service: Service) -> None:
    run_id = service.api.put("llama/7b?x=1&y", an_incident())
    other_id = service.api.put(run_id)  # its name looks like the id of the first
    client = service.client()
    assert client.run("llama/7b?x=1&y")["run_id"] == run_id
    assert client.run(run_id)["run_id"] == other_id
    assert client.verdict("llama/7b?x=1&y") == a_verdict("llama/7b?x=1&y", an_incident())
    assert [one["kind"] for one in client.events("llama/7b?x=1&y", kind="incident")] == ["incident"]
    with pytest.raises(ApiError, match="there is no run 'nobody'"):
        client.run("nobody")


def test_nan_and_infinity_are_floats_and_what_was_not_reported_is_null(service: Service) -> None:
    service.api.put("run")
    values_TR = np.array([[1.0, 2.0], [np.nan, np.nan], [np.inf, 4.0], [0.0, -np.inf]])
    missing_TR = np.zeros((4, 2), np.bool_)
    missing_TR[3, 0] = True
    sums = np.array([[1, 2], [3, 4], [5, 6], [7, (1 << 63) + 1]], np.uint64)
    write(
        service.folder, named(block({"loss": masked(values_TR, missing_TR)}, param_checksum=sums), "run")
    ).close()
    client = service.client()
    cells = client.matrix("run", "loss", start=1, stop=4)
    assert cells.columns == ["iteration", "microbatch", "0", "1"]
    assert math.isnan(cells["0"][0])
    assert cells["0"].to_list()[1:] == [math.inf, None]
    assert cells["1"].to_list()[1:] == [4.0, -math.inf]
    curve = client.curves("run", "loss")
    assert curve["iteration"].to_list() == [0, 1, 2, 3]
    assert (math.isnan(curve["median"][1]), curve["nan"][1], curve["max"][2]) == (True, 2, 4.0)
    assert client.curves("run", "loss", start=2, stop=3)["iteration"].to_list() == [2]
    assert client.matrix("run", "param_checksum", ranks=[1])["1"].to_list()[-1] == "8000000000000001"


def test_a_state_is_set_with_a_note_and_a_refusal_says_why(service: Service) -> None:
    service.api.put("run", an_incident())
    client = service.client()
    told = client.set_state("a1", "acknowledged", "looking at node-07")
    assert (told["state"], client.incident("a1")["log"][0]["note"]) == ("acknowledged", "looking at node-07")
    with pytest.raises(ApiError) as refused:
        client.set_state("a1", "gone")
    assert (refused.value.status, refused.value.title) == (422, "Unprocessable Content")
    assert refused.value.errors[0]["pointer"] == "#/state"
    with pytest.raises(ApiError, match="404 Not Found: there is no incident 'b2'"):
        client.incident("b2")


def test_records_are_sent_with_nan_and_their_rejections_come_back_by_place(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firstfault.client._BODY_LINES", 2)
    records = [{"run": "job", "rank": 0, "iteration": t, "loss": np.float64(t)} for t in range(4)]
    records += [{"run": "job", "rank": 0, "iteration": 4, "loss": math.nan}, {"run": "job", "iteration": 5}]
    told = service.client().send(records)
    assert (told["accepted"], told["rejected"], [one["line"] for one in told["reasons"]]) == (5, 1, [6])
    frame = pl.DataFrame({"run": ["job"], "rank": [1], "iteration": [9], "loss": [math.inf], "lr": [None]})
    assert service.client().send(frame)["accepted"] == 1
    assert service.client().send([])["accepted"] == 0


def test_the_stream_begins_after_what_was_seen_and_shows_what_comes(service: Service) -> None:
    service.api.put("one", an_incident(id="a1"))
    events = service.client().stream(after=0)
    first = next(one for one in events if one["data"]["incident_id"] == "a1")
    service.api.put("two", an_incident(id="a2"))
    second = next(one for one in events if one["data"]["incident_id"] == "a2")
    assert first["id"] < second["id"]
    events.close()  # type: ignore[attr-defined]  # a generator


def test_a_token_is_sent_and_a_wrong_one_is_refused_in_words(service: Service) -> None:
    with service.api.store.database.write() as db:
        token = create_token(db, "notebook", ("read",), service.api.now())
    service.api.put("run")
    assert len(service.client(token).runs()) == 1
    with pytest.raises(ApiError) as refused:
        service.client("ff_wrong").runs()
    assert refused.value.status == 401
    with pytest.raises(ApiError, match="403"):
        service.client(token).set_state("a1", "resolved")


def test_what_is_no_service_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectionError, match=f"http://127.0.0.1:{port}: "):
        Client(f"http://127.0.0.1:{port}").runs()
    with pytest.raises(ValueError, match="url must be http://host:port"):
        Client("127.0.0.1:8000")


class Elsewhere(BaseHTTPRequestHandler):
    """Sends everybody away, as a login page does."""

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", "http://127.0.0.1:9/login")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


def test_a_redirect_is_not_followed_with_the_token() -> None:
    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(ApiError) as refused:
            Client(f"http://127.0.0.1:{server.server_port}", "secret").runs()
        thread.join()
    assert refused.value.status == 302


def test_triage_is_asked_for_as_frames(service: Service) -> None:
    suspect = [{"rank": 3, "host": "node/07", "device": None, "why": ""}]
    service.api.put("run", an_incident(certainty="suspected", first={"suspects": suspect}))
    service.api.put("run", an_incident(first={"suspects": suspect}))
    client = service.client()
    assert client.revisions("a1")["kind"].to_list() == ["new", "worsened"]
    assert client.hosts().select("host", "incidents", "runs_seen", "chance_p_value").rows() == [
        ("node/07", 1, None, None)
    ]
    assert client.host("node/07")["history"][0]["id"] == "a1"
    until = datetime.now(UTC) + timedelta(hours=1)
    made = client.mute(run="r*", until=until, comment="known")
    assert client.mutes().select("id", "active").rows() == [(made["id"], True)]
    assert client.end_mute(made["id"])["active"] is False
    client.set_state("a1", "false_alarm", "a test")
    (told,) = client.detectors().to_dicts()
    assert (told["detector"], told["false_alarms"], told["estimate"]) == ("checksum_vote", 1, 0.0)


def test_every_refusal_is_of_one_tree(service: Service) -> None:
    service.api.put("run", an_incident())
    client = service.client()
    with pytest.raises(NotFound):
        client.incident("b2")
    client.set_state("a1", "resolved")
    with pytest.raises(Conflict, match="can become open, false_alarm, not acknowledged"):
        client.set_state("a1", "acknowledged")
    with pytest.raises(Conflict, match="has changed since"):
        client.set_state("a1", "open", etag='"old"')
    with pytest.raises(InvalidRequest, match="order"):
        client.runs(order="random")
    with pytest.raises(Unreachable) as away:
        Client("http://127.0.0.1:9").runs()
    assert isinstance(away.value, ConnectionError)
    assert all(issubclass(one, ApiError) for one in (NotFound, Conflict, InvalidRequest, Unreachable))


def test_what_is_refused_for_now_is_asked_again_when_the_service_says() -> None:
    asked: list[str] = []

    class Busy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            is_ready = len(asked) > 2
            self.send_response(200 if is_ready else 503)
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(b'{"items":[],"next":null}' if is_ready else b"")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert len(Client(url).runs()) == 0
        assert asked == ["/v1/runs"] * 3
        asked.clear()
        with pytest.raises(Unavailable):
            Client(url, patience_s=-1.0).runs()
        assert asked == ["/v1/runs"]
        server.shutdown()

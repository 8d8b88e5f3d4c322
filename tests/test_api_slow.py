"""Slow clients, busy writers and many askers do not hold each other up."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from fastapi import APIRouter

from service.api.serving import make_server
from service.store_config import StoreConfig

from .api_builders import seeded, served, wait_until
from .service_builders import an_incident


def test_a_client_that_does_not_read_its_answer_holds_up_neither_worker_nor_others(tmp_path: Path) -> None:
    # 20 MB: more than what the kernel holds between two ends of a connection
    large = an_incident(advice=[{"action": "x", "target": "y" * 20_000_000, "command": None}])
    with seeded(tmp_path, store_config=StoreConfig(busy_timeout_s=0.5)) as api:
        run_id = api.put("large", large)
        with served(api.app) as (port, _), socket.create_connection(("127.0.0.1", port)) as stalled:
            stalled.sendall(f"GET /v1/runs/{run_id}/verdict HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert stalled.recv(15) == b"HTTP/1.1 200 OK"
            api.put("other")
            answer = httpx2.get(f"http://127.0.0.1:{port}/v1/runs", timeout=30)
            api.store.database.engine.dispose()
            with api.store.database.engine.connect() as db:
                # a reader that still held its state of the database would keep the log from being emptied
                is_busy = db.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]
    assert [one["run"] for one in answer.json()["items"]] == ["other", "large"]
    assert is_busy == 0


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_head(tmp_path: Path) -> None:
    with seeded(tmp_path) as api, socket.create_server(("127.0.0.1", 0)) as listener:
        server = make_server(api.app, host="127.0.0.1", port=0)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        wait_until(lambda: server.started)
        # what is accepted inherits it
        is_undelayed = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        server.should_exit = True
        thread.join(30)
    assert is_undelayed


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_answer_that_takes_too_long_is_cut_off_in_words_when_the_service_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("service.api.serving._GRACE_S", 0.2)
    asked, ends = threading.Event(), threading.Event()
    router = APIRouter()

    @router.get("/v1/sync")
    def wait_sync() -> None:
        asked.set()
        ends.wait(60)

    @router.get("/v1/async")
    async def wait_async() -> None:
        asked.set()
        await asyncio.sleep(60)

    with seeded(tmp_path) as api, ThreadPoolExecutor(1) as pool, caplog.at_level("INFO"):
        for route in router.routes:
            api.app.router.routes.insert(0, route)
        with served(api.app) as (port, server):
            answer = pool.submit(httpx2.get, f"http://127.0.0.1:{port}/v1/{kind}", timeout=60)
            assert asked.wait(30)
            server.should_exit = True
            cut = answer.result(60)
        ends.set()
    assert (cut.status_code, cut.json()["type"]) == (503, "urn:firstfault:problem:stopping")
    assert [one.getMessage() for one in caplog.records if one.exc_info] == []
    assert "a request was cut off, the service stops" in caplog.messages


def test_a_decision_while_a_writer_holds_the_store_is_a_problem_that_passes(tmp_path: Path) -> None:
    with seeded(tmp_path, store_config=StoreConfig(busy_timeout_s=0.1)) as api:
        api.put("llama", an_incident())
        with api.store.database.write():
            answers = [
                api.client().get("/v1/incidents/a1"),
                api.client().post("/v1/incidents/a1/state", json={"state": "resolved"}),
            ]
        again = api.client().post("/v1/incidents/a1/state", json={"state": "resolved"})
    assert [one.status_code for one in answers] == [200, 503]
    assert answers[1].json()["type"] == "urn:firstfault:problem:store-unavailable"
    assert again.status_code == 200


def test_of_many_who_decide_at_once_on_the_same_view_one_wins(
    tmp_path: Path, store_config: StoreConfig
) -> None:
    with seeded(tmp_path, store_config=store_config) as api:
        api.put("llama", an_incident())
        with served(api.app) as (port, _):
            url = f"http://127.0.0.1:{port}/v1/incidents/a1"
            headers = {"If-Match": httpx2.get(url, timeout=30).headers["etag"]}
            together = threading.Barrier(8)

            def decide(number: int) -> int:
                change = {"state": "acknowledged", "note": str(number)}
                together.wait(30)
                return httpx2.post(f"{url}/state", json=change, headers=headers, timeout=60).status_code

            with ThreadPoolExecutor(8) as pool:
                statuses = sorted(pool.map(decide, range(8)))
            log = httpx2.get(url, timeout=30).json()["log"]
    assert statuses == [200] + [412] * 7
    assert len(log) == 1

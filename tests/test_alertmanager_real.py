"""An Alertmanager of the Prometheus project itself, where one is installed, takes what we send."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from .alert_builders import Alerting, an_alertmanager, quick, wait_until
from .service_builders import Json, an_incident

CONFIG = """
route: {receiver: nobody, group_by: [alertname]}
receivers: [{name: nobody}]
"""
HOSTILE = '<b>"}{{ .Labels }}\u202e\n, é'


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[str]:
    """Its address."""
    program = shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")  # as Debian calls it
    if program is None:
        pytest.skip("alertmanager is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "alertmanager.yml").write_text(CONFIG)
    process = subprocess.Popen(
        [
            program,
            f"--config.file={tmp_path / 'alertmanager.yml'}",
            f"--storage.path={tmp_path / 'kept'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ],
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: is_ready(url))
        yield url
    finally:
        process.terminate()
        process.wait(30)


def test_it_holds_what_stands_under_our_labels_and_lets_go_of_what_is_over(
    tmp_path: Path, manager: str
) -> None:
    settings = quick({"am": an_alertmanager(manager)}, resend_every_s=2.0)
    suspect = {"rank": 3, "host": HOSTILE, "device": HOSTILE, "why": HOSTILE}
    with Alerting(tmp_path / "store", settings) as alerts:
        alerts.send()
        alerts.judged(an_incident(first={"suspects": [suspect], "metric": HOSTILE}), run='run "<b>" é')
        wait_until(lambda: len(standing(manager)) == 1)
        (alert,) = standing(manager)
        assert alert["labels"]["alertname"] == "FirstfaultIncident"
        assert alert["labels"]["run"] == 'run "<b>" é'
        assert alert["generatorURL"] == "https://ff.example/?incident=a1"
        assert alert["status"]["state"] in ("active", "unprocessed")
        alerts.judged(run='run "<b>" é')
        wait_until(lambda: standing(manager) == [])


def is_ready(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/-/ready").status_code == 200
    except httpx2.TransportError:
        return False


def standing(url: str) -> list[Json]:
    found: list[Json] = httpx2.get(f"{url}/api/v2/alerts").raise_for_status().json()
    return found

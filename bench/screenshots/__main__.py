"""Draws each view at the width of a desk and of a phone: `python -m bench.screenshots [NAME …]`.

A store is filled with judged sample logs, served on loopback and looked at by a headless Chromium. Pictures
are WebP; one that grows over `MAX_BYTES` is an error, since they lie in the repository.
"""

from __future__ import annotations

import base64
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from service.alerts.sender import Sender
from tests.alert_builders import SECRET, Receiver, a_webhook, quick
from tests.api_builders import wait_until
from tests.local_chromium import Chromium
from tests.page_builders import LASTING, Shown, serving, shown

FOLDER = Path(__file__).parent.parent.parent / "docs" / "dashboard"
WIDTHS = {"wide": 1280, "narrow": 390}
MAX_BYTES = 150_000
_MOST_TALL = 1700
"""Pixels of a picture: what is further down repeats itself."""
_QUALITY = 62
_RUNS = {
    "slow_rank": "team-b/vit-l-finetune",
    "healthy": "team-a/llama-7b-baseline",
    "hang": "team-a/llama-7b-long-context",
    "explosion": "team-b/moe-16x2b-warmup",
    "nan_activation": "team-a/llama-7b-fp8",
    "reduce_dropped": "team-b/moe-16x2b-pretrain",
    "drift_param": "team-a/llama-7b-pretrain",
}

_TRIED = {"detectors.slowdown.peer_factor": 3.0}
"""Settings that are tried on a run."""


@dataclass(frozen=True, slots=True)
class Shot:
    """One view: its address with names of logs in braces, and what is there once it is drawn."""

    name: str
    address: str
    ready: str


SHOTS = (
    Shot("fleet", "/", ".spark .line"),
    Shot("incidents", "/?view=incidents&state=open", "tbody tr"),
    Shot("incident", "/?incident={drift_param:incident}", ".js-plotly-plot .scatterlayer .trace"),
    Shot("run", "/?run={healthy}", ".js-plotly-plot .scatterlayer .trace"),
    Shot("ranks", "/?run={drift_param}&view=ranks", "canvas, .js-plotly-plot .heatmaplayer image"),
    Shot("checksums", "/?run={drift_param}&view=checksums", ".cells .odd"),
    Shot("propagation", "/?run={nan_activation}&view=propagation", ".lanes tbody tr"),
    Shot("hosts", "/?view=hosts", "tbody tr"),
    Shot("host", "/?host=node-00", "#host tbody tr"),
    Shot("what-if", "/?run={slow_rank}&view=what-if&trial={slow_rank:trial}", ".differences li"),
    Shot("alerts", "/?view=alerts", "#alerts-deliveries tbody tr"),
)


def main(wanted: list[str]) -> int:
    """Write the pictures; 1 if one is too large."""
    shots = [one for one in SHOTS if not wanted or one.name in wanted]
    os.environ["HOOK"] = SECRET
    with tempfile.TemporaryDirectory() as place, Receiver() as receiver:
        alerts = quick({"oncall": a_webhook(receiver.url)})
        with shown(Path(place) / "store", LASTING, alerts) as store:
            names = _fill(store)
            sender = Sender(store.store.database, alerts, "")
            sender.start()
            receiver.wait_for(1)
            browser = Chromium(Path(place) / "profile")
            try:
                with serving(store.app, browser):
                    sizes = {
                        f"{shot.name}-{width}": _shoot(browser, shot, names, width)
                        for shot in shots
                        for width in WIDTHS
                    }
            finally:
                browser.close()
                sender.close()
    for name, size in sizes.items():
        print(f"{name:24} {size / 1000:6.1f} kB")
    return int(any(size > MAX_BYTES for size in sizes.values()))


def _fill(store: Shown) -> dict[str, str]:
    """Judge the logs, and decide about some of their incidents; the ids of runs and incidents by log."""
    names: dict[str, str] = {}
    for log, run in _RUNS.items():
        names[log] = store.judge(log, run)
    client = store.client()
    for one in client.get("/v1/incidents").json()["items"]:
        log = next(log for log, run in names.items() if run == one["run_id"])
        names[f"{log}:incident"] = one["id"]
    said: Mapping[str, Mapping[str, str]] = {
        "hang": {"state": "acknowledged", "note": "node-00 is being drained"},
        "explosion": {"state": "false_alarm", "note": "a test of the learning rate"},
    }
    for log, change in said.items():
        answer = client.post(f"/v1/incidents/{names[f'{log}:incident']}/state", json=change)
        answer.raise_for_status()
    until = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    rule = {"host": "node-1*", "comment": "rack 7 is being rewired", "until": until}
    client.post("/v1/mutes", json=rule).raise_for_status()
    asked = client.post(f"/v1/runs/{names['slow_rank']}/what-if", json={"settings": _TRIED})
    names["slow_rank:trial"] = asked.raise_for_status().json()["id"]
    wait_until(lambda: client.get(asked.headers["location"]).json()["state"] != "running")
    return names


def _shoot(browser: Chromium, shot: Shot, names: Mapping[str, str], width: str) -> int:
    browser.resize(WIDTHS[width])
    browser.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    address = shot.address
    for name, id_ in names.items():
        address = address.replace(f"{{{name}}}", id_)
    browser.visit(address)
    browser.until(lambda: browser.look(shot.ready))
    _settle(browser)
    tall = min(_MOST_TALL, int(browser.run("return document.documentElement.scrollHeight")))
    browser.resize(WIDTHS[width], tall)
    _settle(browser)
    given = {"format": "webp", "quality": _QUALITY}
    picture = browser.driver.execute_cdp_cmd("Page.captureScreenshot", given)
    path = FOLDER / f"{shot.name}-{width}.webp"
    return path.write_bytes(base64.b64decode(picture["data"]))


def _settle(browser: Chromium) -> None:
    """Wait until nothing on the page changes any more."""
    script = "return document.body.outerHTML.length"
    before, same = browser.run(script), 0
    while same < 4:
        browser.driver.execute_async_script("setTimeout(arguments[0], 150)")
        now = browser.run(script)
        before, same = now, same + 1 if now == before else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

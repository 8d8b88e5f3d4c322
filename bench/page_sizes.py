"""What each view of the page sends at the largest sizes: `python -m bench.page_sizes`.

A store of 10 000 runs with an incident each, and a job of 100 000 ranks at its millionth iteration in which
a rank turns to NaN and all others follow. Every view is opened in a headless Chromium, which counts the bytes
of what came, packed as they were sent: the document, and all that was asked of the API until the view was
quiet. Files of the page and plotly.js, which a browser keeps, stand in a line of their own. Exits with 1 if
a view asked for more than a megabyte. Needs `chromium` and `chromedriver`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import event

from detectors.verdict import canonical_bytes
from ingest.decode import Decoder, RawMessage
from service.pipeline import Pipeline
from tests.block_builders import block
from tests.history_builders import named, pending_of
from tests.local_chromium import Chromium
from tests.page_builders import Shown, serving, shown
from tests.service_builders import an_incident

from .alert_latency import messages

MOST_BYTES = 1_000_000
RUNS, RANKS, MILLION = 10_000, 100_000, 1_000_000
ITERATIONS, FAULT = 16, 10
"""Iterations of the job whose single ranks are kept, and the one of them in which the fault is."""
_AT_ONCE = 20_000
_ROWS = 4000
"""Rows of a message."""
_QUIET_S, _LIMIT_S = 1.5, 90.0
_COUNTING = """
window.asked = 0;
const real = window.fetch;
window.fetch = async (path, given) => {
  if (String(path).includes("/v1/stream")) return real(path, given);
  window.asked += 1;
  try {
    const answer = await real(path, given);
    await answer.clone().arrayBuffer();
    return answer;
  } finally {
    window.asked -= 1;
  }
};
"""
"""Knows how many answers are on their way, which a browser tells of only once they are there."""
_SENT = """
const timed = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
return [window.asked, timed.map((one) => [new URL(one.name).pathname, one.encodedBodySize])];
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each view; 1 if one asked for too much."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder, shown(Path(folder) / "data") as page:
        job = _a_wide_job(page)
        _many_runs(page)
        browser = Chromium(Path(folder) / "profile")
        try:
            with serving(page.app, browser):
                browser.resize(1280)
                source = {"source": _COUNTING}
                browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
                figures = _measure(browser, job)
        finally:
            browser.close()
    for name, (asked, seconds) in figures.items():
        print(f"{name:<40} {asked / 1000:8.1f} kB of data, quiet after {seconds:5.1f} s")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return int(any(asked > MOST_BYTES for asked, _ in figures.values()))


def _measure(browser: Chromium, job: str) -> dict[str, tuple[int, float]]:
    """Bytes of data and seconds by view."""
    incident = browser_json(browser, f"/v1/runs/{job}")["incident_id"]
    host = browser_json(browser, "/v1/hosts")["items"][0]["host"]
    views = {
        f"fleet of {RUNS} runs": "/",
        "fleet, filtered by a part of the name": "/?text=run-0999",
        f"incidents of {RUNS} runs": "/?view=incidents",
        f"hosts of {RUNS} runs": "/?view=hosts",
        "one host": f"/?host={host}",
        f"incident of {RANKS} ranks": f"/?incident={incident}",
        f"run of {MILLION} iterations": f"/?run={job}",
        "the same around its onset": f"/?run={job}&from={MILLION - ITERATIONS}&to={MILLION}",
        f"heat map of {RANKS} ranks": f"/?run={job}&view=ranks&metric=loss",
        f"heat map of {MILLION} iterations": f"/?run={job}&view=ranks&metric=loss&from=0",
        "checksums": f"/?run={job}&view=checksums",
        "propagation": f"/?run={job}&view=propagation",
        "what-if": f"/?run={job}&view=what-if",
        "alerts": "/?view=alerts",
    }
    found = {}
    for name, address in views.items():
        found[name] = _opened(browser, address)
        seen = " ".join(browser.text("#view").split())[:160]
        print(f"{name}: {seen}", file=sys.stderr, flush=True)
    return found


def browser_json(browser: Chromium, path: str) -> Any:
    import httpx2

    return httpx2.get(browser.base + path, timeout=_LIMIT_S).raise_for_status().json()


def _opened(browser: Chromium, address: str) -> tuple[int, float]:
    """Bytes of data that a view was sent until nothing came any more, and how long that took."""
    browser.visit(address)
    began_s = changed_s = time.monotonic()
    before: list[tuple[str, int]] = []
    while time.monotonic() - changed_s < _QUIET_S:
        if time.monotonic() - began_s > _LIMIT_S:
            raise TimeoutError(f"{address} was not quiet within {_LIMIT_S} s")
        time.sleep(0.1)
        browser.run("window.scrollBy(0, 500)")  # what is drawn once it is in sight is asked for, too
        asked, now = browser.run(_SENT)
        if asked or now != before:
            before, changed_s = now, time.monotonic()
    data = sum(size for path, size in before if not path.startswith("/page/"))
    return data, changed_s - began_s


def _many_runs(page: Shown) -> None:
    # the disk is asked to be sure of nothing: it is a store for a minute
    event.listen(page.store.database.engine, "connect", lambda one, _: one.execute("PRAGMA synchronous=OFF"))
    page.store.database.engine.dispose()
    for number in range(RUNS):
        suspect = {"rank": number % 8, "host": f"node-{number:05}", "device": f"GPU-{number}", "why": ""}
        first = {"suspects": [suspect], "ranks": [number % 8]}
        page.put(f"team-{number % 30}/run-{number:05}", an_incident(id=f"i{number:05}", first=first))
        if number < 100:  # the first page shows curves
            page.history.update(named(block({"loss": _falling(200)}), f"team-{number % 30}/run-{number:05}"))
    page.history.flush()


def _falling(iterations: int, ranks: int = 2) -> np.ndarray:
    curve_T = 2.0 + 2.5 * np.exp(-np.arange(iterations) / (iterations / 5))
    noise_TR: np.ndarray = np.random.default_rng(7).normal(1.0, 0.02, (iterations, ranks))
    return noise_TR * curve_T[:, np.newaxis]


def _a_wide_job(page: Shown) -> str:
    """A job that ran on two ranks for a million iterations, then on 100 000; its id."""
    first = MILLION - ITERATIONS
    losses_TR = _falling(first)
    for start in range(0, first, _AT_ONCE):
        part_TR = losses_TR[start : start + _AT_ONCE]
        page.history.update(
            named(block({"loss": part_TR}, iterations=start + np.arange(len(part_TR))), "job")
        )
    pipeline, decoder, offset = Pipeline(on_block=page.history.update), Decoder(), 0
    odd = RANKS * 7 // 10 + 123
    for t in range(ITERATIONS):
        fault = (odd, "nan") if t >= FAULT else None
        raws = [
            RawMessage("0", offset + at, one)
            for at, one in enumerate(messages("job", first + t, RANKS, _ROWS, fault))
        ]
        offset += len(raws)
        pipeline.feed(decoder.decode(raws))
    verdict = pipeline.verdict("job")
    page.history.show_pending(pending_of(pipeline, "job"), is_quiet=True)
    page.history.flush()
    return page.put_verdict(json.loads(canonical_bytes(verdict)), pipeline.newest_time("job"))


if __name__ == "__main__":
    raise SystemExit(main())

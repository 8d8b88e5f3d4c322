"""What streams that idle hold, and how soon a page is read before any script of it has run.

    python -m bench.streams [--streams 1000] [--iterations 100000] [--without-browser]

The page is that of a run of 8 ranks, in a headless Chromium on loopback; times are from the start of the
navigation, the best of three, since whatever else runs here only adds to them; nothing is in the cache.
Streams are those of a real `firstfault serve`, whose memory is read before and with them; then it is told
to end.
"""

from __future__ import annotations

import argparse
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import psutil

from tests.history_builders import named, noise
from tests.local_chromium import Chromium, ChromiumUnavailable
from tests.page_builders import Shown, shown
from tests.page_builders import serving as page_serving
from tests.test_serve import QUICK
from tests.test_serve import serving as service_serving

ROUNDS = 3
_BLOCK = 5_000
_PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"


def main() -> int:
    """Print the figures, a line each."""
    given = _arguments()
    with tempfile.TemporaryDirectory() as place:
        streams(Path(place), given.streams)
        if not given.without_browser:
            page(Path(place), given.iterations)
    return 0


def streams(place: Path, count: int) -> None:
    """The memory of idle streams, and how soon a service with all of them open ends."""
    settings = QUICK + f"[api]\nmax_streams = {count + 10}\nrequest_burst = 100000\n"
    folder = place / "service"
    folder.mkdir()
    with service_serving(folder, settings=settings) as service:
        process = psutil.Process(service.process.pid)
        address = service.client.base_url
        service.client.get("/v1/runs")
        before = process.memory_info().rss
        open_ = [_listen(str(address.host), int(address.port or 0)) for _ in range(count)]
        time.sleep(2.0)  # what they cost while they idle, first heartbeats apart
        grown = (process.memory_info().rss - before) / 1e6
        print(f"page         {count} idle streams: {grown:.0f} MB more ({1e3 * grown / count:.0f} kB each)")
        begun_s = time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        service.process.wait(60)
        print(f"page         SIGTERM with {count} open streams: ended in {time.monotonic() - begun_s:.1f} s")
        for one in open_:
            one.close()


def page(place: Path, iterations: int) -> None:
    """How soon a long run is read and can be used."""
    with shown(place / "store") as store:
        run = _long_run(store, iterations)
        try:
            browser = Chromium(place / "profile")
        except ChromiumUnavailable as error:
            print(f"page         not measured: {error}")
            return
        try:
            with page_serving(store.start_again(), browser):
                _measure(browser, run, iterations)
        finally:
            browser.close()


def _measure(browser: Chromium, run: str, iterations: int) -> None:
    address = f"/?run={run}"
    served = _best(lambda: _timed(lambda: httpx2.get(browser.base + address).raise_for_status()))
    print(f"page         8 x {iterations}: document with its curve sent in {1e3 * served:.0f} ms")
    cold = _best(lambda: _visit(browser, address))
    print(f"page         8 x {iterations}: first text and curve, cold, after {cold:.0f} ms")


def _visit(browser: Chromium, address: str) -> float:
    browser.driver.get("about:blank")
    browser.driver.execute_cdp_cmd("Network.clearBrowserCache", {})
    browser.visit(address)
    browser.until(lambda: browser.run(_PAINT))
    return float(browser.run(_PAINT))


def _long_run(store: Shown, iterations: int) -> str:
    for start in range(0, iterations, _BLOCK):
        store.history.update(named(noise(min(_BLOCK, iterations - start), 8, start=start), "long"))
        store.history.flush()
    covered: dict[str, Any] = {"ranks": 8, "metrics": ["loss", "param_checksum"], "checks": [], "rejected": 0}
    return store.put("long", coverage={**covered, "blind_to": [], "notes": []})


def _listen(host: str, port: int) -> socket.socket:
    """A stream whose answer has begun, and that then only waits."""
    one = socket.create_connection((host, port), timeout=30)
    one.sendall(f"GET /v1/stream HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    head = one.recv(1024)
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"a stream was refused: {head[:200]!r}")
    return one


def _timed(work: Callable[[], object]) -> float:
    begun_s = time.perf_counter()
    work()
    return time.perf_counter() - begun_s


def _best(work: Callable[[], float]) -> float:
    return min(work() for _ in range(ROUNDS))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=100_000)
    parser.add_argument("--without-browser", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())

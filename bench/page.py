"""How soon a run's page can be used: `python -m bench.page`.

Serves a run of 8 ranks × 100 000 iterations on loopback, opens its page in a headless Chromium, and says
after how long its words stand and its first curve, cold and with what a browser keeps; then a zoom, and the
heat maps of 8 and of 100 000 ranks. Needs `chromium` and `chromedriver`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from firstfault.mesh import Layout
from tests.block_builders import block
from tests.history_builders import named
from tests.local_chromium import Chromium
from tests.page_builders import Shown, serving, shown
from tests.service_builders import an_incident

RANKS, ITERATIONS = 8, 100_000
MANY_RANKS, FEW_ITERATIONS = 100_000, 80
ONSET = 77_000
_AT_ONCE = 2_000
"""Iterations of a block: as a worker settles them while it catches up."""
_WORDS = "return document.querySelector('h2.sentence') !== null"
_CURVES = "return document.querySelectorAll('.js-plotly-plot .scatterlayer .trace').length"
_LINES = (
    "return document.querySelector('.js-plotly-plot')?.data?.some((one) => one.name === 'rank 3') ?? false"
)
_CELLS = "return document.querySelector('#heat-legend li') !== null"
_WATCH = """(function look() {
  if ((() => { HOLDS })()) window.heldAt = performance.now();
  else requestAnimationFrame(look);
})();"""
_LIMIT_S = 60.0
_LOOK_EVERY_S = 0.1


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print a line each, and write them as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="loads of a page; their median is told")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder, shown(Path(folder) / "data") as page:
        run, many = _a_long_run(page), _a_wide_run(page)
        browser = Chromium(Path(folder) / "profile")
        try:
            with serving(page.app, browser):
                browser.resize(1280)
                figures = _measure(browser, run, many, options.repeats)
        finally:
            browser.close()
    load = os.getloadavg()[0]
    for name, value in figures.items():
        print(f"{name:<52} {value:8.3f}")
    print(f"load of the machine {load:.1f} on {os.cpu_count()} cores")
    if options.json:
        options.json.write_text(json.dumps({**figures, "load": load}, indent=1) + "\n")


def _measure(browser: Chromium, run: str, many: str, repeats: int) -> dict[str, float]:
    """Seconds and kilobytes by what they are of; the seconds are medians, from when a page begins to load."""
    address = f"/?run={run}"
    figures: dict[str, float] = {}
    for name, path, script, times in (
        ("cold: words, s", address, _WORDS, 1),
        ("warm: words, s", address, _WORDS, repeats),
        ("warm: first curve, s", address, f"{_CURVES} > 0", repeats),
        ("warm: zoomed to the onset, s", f"{address}&from=76936&to=77064", _LINES, repeats),
        ("heat map of all iterations, s", f"{address}&view=ranks&from=0", _CELLS, repeats),
        ("heat map of 100 000 ranks, s", f"/?run={many}&view=ranks", _CELLS, 2),
    ):
        figures[name] = median([_load(browser, path, script) for _ in range(times)])
    for name, path in (
        ("all iterations", f"/v1/runs/{run}/heatmap?metric=loss&from=0"),
        ("100 000 ranks", f"/v1/runs/{many}/heatmap?metric=loss"),
    ):
        figures[f"sent for the heat map of {name}, kB"] = _size(browser, path) / 1000
    return figures


def _load(browser: Chromium, path: str, holds: str) -> float:
    """Seconds from when a page begins to load to the first frame in which ``holds``, a script, returns true.

    The page looks itself: a driver that asks again and again would take a processor from what is measured.
    """
    driver = browser.driver
    added = driver.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH.replace("HOLDS", holds)}
    )
    try:
        driver.get("about:blank")
        driver.execute_script("location.href = arguments[0]", browser.base + path)
        end_s = time.monotonic() + _LIMIT_S
        while (held_ms := _held_ms(browser)) is None:
            if time.monotonic() > end_s:
                raise TimeoutError(f"{path} took more than {_LIMIT_S} s")
            time.sleep(_LOOK_EVERY_S)
    finally:
        driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
    return held_ms / 1000


def _held_ms(browser: Chromium) -> float | None:
    from selenium.common.exceptions import WebDriverException

    try:
        found = browser.run("return location.protocol === 'http:' ? window.heldAt ?? null : null")
    except WebDriverException:  # between two documents
        return None
    return None if found is None else float(found)


def _size(browser: Chromium, path: str) -> int:
    import httpx2

    return len(httpx2.get(browser.base + path, timeout=_LIMIT_S).content)


def _a_long_run(page: Shown) -> str:
    rng = np.random.default_rng(7)
    falling_T = 2.0 + 2.5 * np.exp(-np.arange(ITERATIONS) / 20_000)
    for start in range(0, ITERATIONS, _AT_ONCE):
        part_T = falling_T[start : start + _AT_ONCE, np.newaxis]
        curves = {
            name: part_T * rng.normal(1.0, spread, (_AT_ONCE, RANKS))
            for name, spread in (
                ("loss", 0.02),
                ("grad_norm", 0.1),
                ("local_grad_norm", 0.1),
                ("step_time_s", 0.02),
            )
        }
        curves["loss"][max(0, 80_000 - start) :, 3] *= 1.2 if start <= 80_000 else 1.0
        page.history.update(named(block(curves, iterations=start + np.arange(_AT_ONCE)), "long"))
    page.history.flush()
    first = {"iteration": ONSET, "interval": [ONSET - 10, ONSET], "metric": "loss"}
    return page.put("long", an_incident(first=first, detected_at_iteration=ONSET), **_coverage(RANKS))


def _a_wide_run(page: Shown) -> str:
    rng = np.random.default_rng(8)
    ranks = range(MANY_RANKS)
    layout = Layout(
        axes=("dp", "tp"),
        coordinates={rank: divmod(rank, 8) for rank in ranks},
        hosts={rank: f"host-{rank // 8:05d}" for rank in ranks},
    )
    losses_TR = rng.normal(2.3, 0.01, (FEW_ITERATIONS, MANY_RANKS))
    losses_TR[40, 70_123] = np.nan
    wide = named(block({"loss": losses_TR}, iterations=999_920 + np.arange(FEW_ITERATIONS)), "wide")
    page.history.update(dataclasses.replace(wide, layout=layout))
    page.history.flush()
    return page.put("wide", **_coverage(MANY_RANKS))


def _coverage(ranks: int) -> dict[str, Any]:
    lists: dict[str, Any] = {"notes": [], "blind_to": [], "checks": []}
    metrics = ["grad_norm", "local_grad_norm", "loss", "step_time_s"] if ranks == RANKS else ["loss"]
    return {"coverage": {"ranks": ranks, "metrics": metrics, "records": 0, "rejected": 0, **lists}}


if __name__ == "__main__":
    main()

"""Every view of the page with names that attack it: out of telemetry they come as text, and all fits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from firstfault.telemetry import MAX_LABEL_BYTES, MAX_METRIC_NAME_BYTES, MAX_RUN_BYTES

from .api_builders import an_odd_incident
from .local_chromium import Chromium
from .page_builders import Shown, serving, shown
from .test_page_browser import seen, visible

pytestmark = pytest.mark.browser

EVIL = (
    '"><img src=x onerror=alert(1)><svg/onload=alert(2)></title><script>alert(3)</script>'
    "'{{7*7}}%{y}&lt;b&gt;<br>\u202egnp.exe\u2066/../?a=1#b,c d"
)
"""Markup, an attribute's end, templates, direction marks and what an address is made of, in one name."""
WIDE = "W" * 65_536
"""64 kB without a place to break a line at; telemetry may name runs, metrics and hosts far less long."""
NAMES = {"evil": EVIL, "wide": WIDE}
RANKS, ITERATIONS, ODD_FROM, NAN_FROM = 8, 120, 60, 90


@dataclass(frozen=True, slots=True)
class Hostile:
    """A judged run whose names attack, and what it is to be found by."""

    page: Shown
    run_id: str
    run: str
    host: str
    site: str
    """Last part of the names of its metrics."""
    incidents: tuple[str, ...]

    def addresses(self) -> dict[str, tuple[str, str]]:
        """Each view with the name that it shows; of a metric, whose prefix is ours, a part."""
        of_run = f"/?run={self.run_id}"
        counts = quote(f"nonfinite_act/{self.site}", safe="")
        sums = quote(f"param_checksum/{self.site}", safe="")
        curves = quote(counts, safe="")
        return {
            "fleet": ("/", self.run),
            "incidents": ("/?view=incidents", self.host),
            **{f"incident {at}": (f"/?incident={one}", self.host) for at, one in enumerate(self.incidents)},
            "run": (f"{of_run}&curves={curves}", self.site),
            "ranks": (f"{of_run}&view=ranks&metric={counts}&by=host", self.host),
            "checksums": (f"{of_run}&view=checksums&metric={sums}", self.host),
            "propagation": (f"{of_run}&view=propagation", self.site),
            "hosts": ("/?view=hosts", self.host),
            "host": (f"/?host={quote(self.host, safe='')}", self.host),
            "what-if": (f"{of_run}&view=what-if", self.run),
            "alerts": ("/?view=alerts", self.run),
        }


@pytest.fixture(scope="module", params=list(NAMES))
def hostile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    """Names as long as telemetry may have them, everywhere where telemetry can put one."""
    name: str = NAMES[request.param]
    run, host = cut(name, MAX_RUN_BYTES), cut(name, MAX_LABEL_BYTES)
    site = cut(name, MAX_METRIC_NAME_BYTES - len("param_checksum/"))
    with shown(tmp_path_factory.mktemp("hostile")) as page:
        run_id = page.judge_lines(list(lines(run, host, site)))
        client = page.client()
        until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        rule = {"comment": "because", "run": run, "until": until}
        assert client.post("/v1/mutes", json=rule).status_code == 201
        incidents = tuple(one["id"] for one in client.get("/v1/incidents").json()["items"])
        assert incidents
        yield Hostile(page, run_id, run, host, site, incidents)


@pytest.mark.parametrize("width", [390, 1280])
def test_no_view_takes_a_name_for_more_than_text(hostile: Hostile, browser: Chromium, width: int) -> None:
    with serving(hostile.page.start_again(), browser):
        browser.resize(width)
        for view, (address, name) in hostile.addresses().items():
            browser.visit(address)
            wait_for(browser, name)
            check_text(browser, view)
            assert browser.run("return document.documentElement.scrollWidth") <= width, view


def test_tips_and_tables_of_curves_and_cells_show_names_as_text(hostile: Hostile, browser: Chromium) -> None:
    from selenium.webdriver.common.keys import Keys

    places = hostile.addresses()
    with serving(hostile.page.start_again(), browser):
        browser.visit(places["ranks"][0])
        browser.until(lambda: browser.look("#heat-legend li"))
        browser.find("canvas").send_keys(Keys.ARROW_DOWN * 2, Keys.ARROW_RIGHT * 4)
        browser.until(lambda: seen(hostile.host) in browser.run(TIP))
        check_text(browser, "ranks")
        browser.visit(f"{places['run'][0]},loss")
        browser.until(lambda: len(browser.look(".js-plotly-plot")) == 2)
        browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        browser.visit(f"/?run={hostile.run_id}&curves=loss")
        browser.until(lambda: browser.look(".js-plotly-plot .xy2 .points path"))
        browser.run(HOVER)
        browser.until(lambda: browser.look(".hoverlayer .hovertext"))
        assert "NaN (1 of 8 values)" in browser.run(
            "return document.querySelector('.hoverlayer .hovertext').textContent"
        )
        check_text(browser, "run")


def test_names_longer_than_any_telemetry_can_have_break_nothing(page: Shown, browser: Chromium) -> None:
    suspect = {"rank": 3, "host": WIDE, "device": WIDE, "why": WIDE}
    one = an_odd_incident("w1", first={"suspects": [suspect], "metric": WIDE})
    one["evidence"][0] |= {"metric": WIDE, "detail": {WIDE: WIDE}}
    one["advice"] = [{"action": "drain_host", "target": WIDE, "command": f"echo {WIDE}"}]
    page.put("wide", one)
    browser.expected = ("status of 414",)  # no address can ask for a curve of that name
    with serving(page.app, browser):
        for width in (390, 1280):
            browser.resize(width)
            for address in ("/", "/?view=incidents", "/?incident=w1", "/?view=hosts"):
                browser.visit(address)
                wait_for(browser, WIDE)
                check_text(browser, address)
                assert browser.run("return document.documentElement.scrollWidth") <= width, address


TIP = "return document.querySelector('.tip')?.textContent ?? ''"
HOVER = """
const plot = document.querySelector('.js-plotly-plot');
const at = plot.data.findIndex((one) => one.name === 'NaN');
Plotly.Fx.hover(plot, [{curveNumber: at, pointNumber: 0}], 'xy2');
"""


def wait_for(browser: Chromium, name: str) -> None:
    """Until a name is shown, whole where the page is about what bears it, else its beginning and end."""
    shown_as = seen(name), visible(name)
    browser.until(lambda: any(one in browser.run("return document.body.textContent") for one in shown_as))


def check_text(browser: Chromium, view: str) -> None:
    """Nothing that a name holds became an element, a link elsewhere, or a script that ran."""
    found = browser.run(
        "return {elements: document.querySelectorAll("
        "  'img, iframe, object, embed, main script, main style, main b img, svg[onload], [onerror]').length,"
        " protocols: [...new Set([...document.querySelectorAll('a')].map((one) => one.protocol))],"
        " hosts: [...new Set([...document.querySelectorAll('a')].map((one) => one.host))]}"
    )
    assert found["elements"] == 0, view
    assert found["protocols"] == ["http:"], view
    assert found["hosts"] == [browser.base.removeprefix("http://")], view


def lines(run: str, host: str, site: str) -> Iterator[bytes]:
    """A run that diverges on rank 3 and turns to NaN on rank 1, with hostile names wherever one may stand."""
    hosts = [host if rank < 4 else "node-1" for rank in range(RANKS)]
    facts = {"world_size": RANKS, "mesh": [["dp", RANKS]], "hosts": hosts, "device_ids": hosts}
    yield record(run, 0, 0, event="run_start", software=host, checkpoint_directory=host, **facts)
    for t in range(ITERATIONS):
        for rank in range(RANKS):
            is_odd, is_bad = rank == 3 and t >= ODD_FROM, rank == 1 and t >= NAN_FROM
            wobble = ((t * 7919 + rank * 104729) % 1000) / 10_000
            values = {
                "loss": "NaN" if is_bad else 2.0 + 3.0 / (1 + t / 20) + wobble,
                f"nonfinite_act/{site}": 7 * is_bad,
                f"param_checksum/{site}": f"{(t + 1) * 1_000_003 + is_odd:016x}",
                site: 1.0 + wobble,
            }
            yield record(run, rank, t, host=hosts[rank], device=hosts[rank], **values)
    yield record(run, 0, 50, event="checkpoint", path=host, complete=True)
    yield record(run, 3, 55, event="hardware", host=host, device=host, kind="xid", code=79, text=host)
    yield record(run, 0, 56, event="data_change", text=host)


def record(run: str, rank: int, iteration: int, **further: Any) -> bytes:
    time = 1_764_500_000.0 + iteration
    return json.dumps({"run": run, "rank": rank, "iteration": iteration, "time": time, **further}).encode()


def cut(text: str, most_bytes: int) -> str:
    """As much of a name as may be that long."""
    return text.encode()[:most_bytes].decode(errors="ignore")

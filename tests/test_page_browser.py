"""The page in a real browser: what its reader sees, and what a hostile name cannot do to them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from fastapi import FastAPI

from service.access import create_token
from service.api.serving import make_server
from service.api.settings import ApiConfig

from .api_builders import an_odd_incident, wait_until
from .local_chromium import Chromium, ChromiumUnavailable
from .page_builders import LASTING, Shown, shown
from .service_builders import an_incident

pytestmark = pytest.mark.browser

HOSTILE = {
    "image": "<img src=x onerror=alert(1)>",
    "svg": '"><svg/onload=alert(2)>',
    "address": "javascript:alert(3)",
    "path": "../../etc/passwd",
    "template": "{{7*7}}${7*7}<%= 7*7 %>",
    "sql": "'; DROP TABLE runs; --",
    "long": "x" * 256,
    "entity": "&lt;b&gt;&amp;%{y}<br>",
    "right_to_left": "a\u202egnp.exe\u2066",
}
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """The browser of all tests here; each gets a service at a port of its own, hence an origin."""
    try:
        one = Chromium(tmp_path_factory.mktemp("chromium"))
    except ChromiumUnavailable as error:
        pytest.skip(f"no Chromium: {error}")
    yield one
    one.close()


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """Sample logs, judged once; nothing is written to this store afterwards."""
    with shown(tmp_path_factory.mktemp("judged")) as one:
        for log in ("healthy", "drift_param", "nan_activation", "explosion"):
            one.judge(log)
        yield one


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Shown]:
    with shown(tmp_path) as one:
        yield one


@pytest.fixture
def browser(chromium: Chromium) -> Iterator[Chromium]:
    """The browser, held to account after each test."""
    chromium.console()
    chromium.resize(1440)
    yield chromium
    complaints = [line for line in chromium.console() if "Failed to load resource" not in line]
    elsewhere = chromium.run(
        "return performance.getEntriesByType('resource').map((one) => one.name)"
        ".filter((name) => new URL(name).origin !== location.origin)"
    )
    chromium.driver.get("about:blank")
    assert complaints == []  # among them what the content-security policy refuses
    assert elsewhere == []


@contextmanager
def serving(app: FastAPI, browser: Chromium, port: int = 0) -> Iterator[int]:
    """The application at a port; ends like a service that is stopped."""
    server = make_server(app, host="127.0.0.1", port=port)
    listener = socket.create_server(("127.0.0.1", port))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_until(lambda: server.started)
        used = int(listener.getsockname()[1])
        browser.base = f"http://127.0.0.1:{used}"
        yield used
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
    assert not thread.is_alive()


def badge(browser: Chromium) -> str:
    return browser.text("#badge")


def test_an_empty_store_says_how_to_begin(api: Shown, browser: Chromium) -> None:
    with serving(api.app, browser):
        browser.visit("/")
        browser.until_text("#view", "No run yet")
        assert "firstfault demo" in browser.text("#view")
        assert f"{browser.base}/v1/telemetry" in browser.text("#view")


def test_the_worst_run_comes_first_with_what_happened(judged: Shown, browser: Chromium) -> None:
    with serving(judged.start_again(), browser):
        browser.visit("/")
        browser.until(lambda: len(browser.look("tbody tr")) == 4)
        rows = browser.look("tbody tr")
        assert ["critical" in row for row in rows] == [True, True, True, False]
        assert "No fault visible" in rows[3]
        (drift,) = [row for row in rows if row.startswith("drift_param")]
        assert "Rank 3 (host node-00" in drift
        assert "rank 3 on node-00" in drift
        browser.until(lambda: browser.run("return document.querySelectorAll('.spark .line').length") == 4)
        assert browser.run("return document.querySelectorAll('.spark .ticks:not([d=\"\"])').length") == 1


@pytest.mark.parametrize("width", [390, 1440])
def test_an_incident_is_a_sentence_with_its_reasons_and_what_to_do(
    judged: Shown, browser: Chromium, width: int
) -> None:
    with serving(judged.start_again(), browser):
        browser.resize(width)
        browser.visit("/")
        browser.until(lambda: len(browser.look("tbody tr")) == 4)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        browser.run("[...document.querySelectorAll('a')].find((a) => a.innerText === 'drift_param').click()")
        browser.until(lambda: browser.look(".js-plotly-plot .scatterlayer .trace"))
        assert browser.text("h2.sentence").startswith(
            "Rank 3 (host node-00, device dev-38f19687) holds other"
        )
        assert "scontrol update nodename=node-00" in browser.text("#part-steps")
        assert "checkpoints/iter_000299" in browser.text("#part-facts")
        assert "hardware, after reduce" in browser.text("#part-causes")
        assert "param_checksum" in browser.text("#part-evidence")
        assert "a reduction that goes wrong alike on all ranks" in browser.text("#part-coverage")
        drawn = browser.run("return document.querySelector('.js-plotly-plot .infolayer').textContent")
        assert "last good 380 ┆ onset 390" in drawn
        assert browser.run("return document.documentElement.scrollWidth") <= width


def test_values_that_are_not_numbers_are_said_to_be_what_they_are(api: Shown, browser: Chromium) -> None:
    api.put("odd", an_odd_incident("o1"))
    with serving(api.app, browser):
        browser.visit("/?incident=o1")
        browser.until(lambda: browser.look("#part-evidence tbody tr"))
        assert [text for text in browser.look(".nonfinite") if text] == ["NaN", "-Infinity"]


def test_a_loss_that_is_nan_has_a_lane_and_its_name_and_the_gradient_a_log_axis(
    judged: Shown, browser: Chromium
) -> None:
    nan = "return [...document.querySelectorAll('.js-plotly-plot')].map((plot) =>"
    with serving(judged.start_again(), browser):
        browser.visit(f"/?run={run_id(browser, 'nan_activation')}")
        browser.until(lambda: len(browser.run(nan + " plot.data.length)")) == 3)
        named = browser.run(nan + " plot.data.filter((one) => one.name === 'NaN')[0].text[0] ?? '')")
        assert named[0].startswith("NaN (")
        assert browser.run(nan + " plot._fullLayout.yaxis.type)") == ["linear", "linear", "log"]
        assert browser.run("return document.querySelectorAll('.xy2 .points path, .x2y2 .points path').length")
        assert "NaN first at iteration 484" in (browser.find(".plot").get_attribute("aria-label") or "")


def test_names_out_of_telemetry_are_text_and_nothing_else(api: Shown, browser: Chromium) -> None:
    for at, (_, text) in enumerate(HOSTILE.items()):
        api.put(text, hostile_incident(f"h{at}", text), coverage=hostile_coverage(text))
    with serving(api.app, browser):
        browser.visit("/")
        browser.until(lambda: len(browser.look("tbody tr")) == len(HOSTILE))
        shown_names = set(
            browser.run("return [...document.querySelectorAll('td.run bdi')].map((b) => b.textContent)")
        )
        assert shown_names == {seen(text) for text in HOSTILE.values()}
        for at, (_, text) in enumerate(HOSTILE.items()):
            browser.visit(f"/?incident=h{at}")
            browser.until(lambda: browser.look("#part-evidence tbody tr"))
            assert browser.text("h1") == seen(text)
            for part in ("#part-facts", "#part-steps", "#part-causes", "#part-evidence", "#part-coverage"):
                assert seen(text) in browser.run(f"return document.querySelector('{part}').textContent"), part
            assert browser.run("return document.querySelectorAll('img, iframe, object, form').length") == 0
            hrefs = browser.run("return [...document.querySelectorAll('a')].map((a) => a.protocol)")
            assert set(hrefs) == {"http:"}


def test_a_hostile_name_in_a_judged_log_is_drawn_as_any_other(api: Shown, browser: Chromium) -> None:
    run = api.judge("nan_activation", HOSTILE["image"])
    with serving(api.app, browser):
        browser.visit(f"/?run={run}")
        browser.until(lambda: browser.look(".js-plotly-plot .scatterlayer .trace"))
        assert browser.text("h1") == HOSTILE["image"]


def test_a_new_incident_appears_by_itself(api: Shown, browser: Chromium) -> None:
    run = api.put("llama")
    with serving(api.app, browser):
        browser.visit("/")
        browser.until(lambda: badge(browser).endswith("live"))
        browser.until_text("tbody tr", "No fault visible")
        api.put("llama", an_incident())
        browser.until_text("tbody tr", "Rank 3 (host node-07) holds other parameters")
        browser.visit(f"/?run={run}")
        browser.until_text("h2.sentence", "since iteration 1200")
        api.put("llama", an_incident(first={"iteration": 1100, "interval": [1090, 1100]}))
        browser.until_text("h2.sentence", "since iteration 1100")


def test_what_is_open_and_focused_stays_so_when_news_come(api: Shown, browser: Chromium) -> None:
    odd = an_odd_incident("o1")
    run = api.put("llama", odd)
    with serving(api.app, browser):
        browser.visit(f"/?run={run}")
        browser.until(lambda: browser.look("#part-evidence details"))
        browser.click("#part-evidence summary")
        browser.run("document.querySelector('[data-key=step-0]').focus()")
        api.put("llama", {**odd, "severity": "warning", "detected_at_iteration": 1201})
        browser.until_text("#part-head", "first alarm at iteration 1201")
        assert browser.run("return document.querySelector('#part-evidence details').open")
        assert browser.run("return document.activeElement.dataset.key") == "step-0"


def test_the_badge_tells_of_a_service_that_is_gone_and_that_it_came_back(
    api: Shown, browser: Chromium
) -> None:
    api.put("llama")
    with serving(api.app, browser) as port:
        browser.visit("/")
        browser.until(lambda: badge(browser).endswith("live"))
    browser.until(lambda: "reconnecting" in badge(browser) or "stale" in badge(browser))
    browser.until(lambda: "stale since" in badge(browser))
    assert "llama" in browser.text("tbody tr")
    api.put("mistral")
    with serving(api.start_again(), browser, port):
        browser.until(lambda: badge(browser).endswith("live"))
        browser.until(lambda: len(browser.look("tbody tr")) == 2)


def test_the_badge_is_stale_while_no_worker_judges(tmp_path: Path, browser: Chromium) -> None:
    with shown(tmp_path) as api, serving(api.app, browser):
        api.shift_s = 2 * LASTING.worker_silent_after_s
        browser.visit("/")
        browser.until(lambda: badge(browser).endswith("stale"))
        browser.until_text("#notice", "no worker has said anything since")


def test_where_no_stream_is_to_be_had_the_page_asks_now_and_then(tmp_path: Path, browser: Chromium) -> None:
    config = ApiConfig(worker_silent_after_s=LASTING.worker_silent_after_s, max_streams=1)
    with shown(tmp_path, config) as api, serving(api.app, browser):
        api.put("llama")
        with httpx2.stream("GET", f"{browser.base}/v1/stream", timeout=60.0):
            browser.visit("/")
            browser.until(lambda: "polling" in badge(browser))
            api.put("mistral")
            browser.until(lambda: len(browser.look("tbody tr")) == 2)


def test_a_page_that_nobody_sees_lets_go_of_its_stream_and_catches_up(api: Shown, browser: Chromium) -> None:
    with serving(api.app, browser):
        browser.visit("/")
        browser.until(lambda: badge(browser).endswith("live"))
        mine = browser.driver.current_window_handle
        browser.driver.switch_to.new_window("tab")
        wait_until(lambda: api.app.state.hub.open_streams == 0)
        api.put("llama")
        browser.driver.close()
        browser.driver.switch_to.window(mine)
        browser.until_text("tbody tr", "llama")
        browser.until(lambda: badge(browser).endswith("live"))


def test_a_command_is_copied_as_it_is_shown(judged: Shown, browser: Chromium) -> None:
    with serving(judged.start_again(), browser):
        permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
        browser.driver.execute_cdp_cmd(
            "Browser.grantPermissions", {"origin": browser.base, "permissions": permissions}
        )
        browser.visit(f"/?run={run_id(browser, 'drift_param')}")
        browser.until(lambda: browser.look("#part-steps .copy"))
        browser.click("#part-steps .copy")
        browser.until_text("#part-steps .copy", "Copied")
        copied = browser.driver.execute_async_script(
            "navigator.clipboard.readText().then(arguments[0], (error) => arguments[0](String(error)))"
        )
        assert copied == browser.text("#part-steps code")
        assert copied.startswith("scontrol update nodename=node-00")


def test_the_keyboard_goes_from_the_list_to_an_incident_and_back(judged: Shown, browser: Chromium) -> None:
    from selenium.webdriver.common.keys import Keys

    with serving(judged.start_again(), browser):
        browser.visit("/")
        browser.until(lambda: len(browser.look("tbody tr")) == 4)
        for _ in range(3):  # the skip link, the name of the page, the first run
            browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        focused = browser.driver.switch_to.active_element
        assert (focused.get_attribute("data-key") or "").startswith("run-")
        focused.send_keys(Keys.ENTER)
        browser.until(lambda: browser.look("h2.sentence"))
        browser.driver.back()
        browser.until(lambda: len(browser.look("tbody tr")) == 4)


def test_a_zoom_is_part_of_the_address_and_outlives_a_reload(judged: Shown, browser: Chromium) -> None:
    first = "return document.querySelector('.js-plotly-plot')?.data[4].x[0] ?? null"
    with serving(judged.start_again(), browser):
        browser.visit(f"/?run={run_id(browser, 'drift_param')}")
        browser.until(lambda: browser.run(first) == 0)
        browser.run(
            "[...document.querySelectorAll('button')].find((b) => b.innerText === 'Around the onset').click()"
        )
        browser.until(lambda: browser.run(first) == 316)
        assert "from=316&to=454" in browser.driver.current_url
        browser.driver.refresh()
        browser.until(lambda: browser.run(first) == 316)
        browser.run(
            "[...document.querySelectorAll('button')].find((b) => b.innerText === 'Whole run').click()"
        )
        browser.until(lambda: browser.run(first) == 0)


def test_with_tokens_the_page_asks_for_one_and_keeps_it_for_the_tab(api: Shown, browser: Chromium) -> None:
    api.put("llama")
    with api.store.database.write() as db:
        token = create_token(db, "oncall", ("read",), api.now())
    with serving(api.app, browser):
        browser.visit("/")
        browser.until_text("#view", "needs a token")
        browser.find("#token").send_keys("ff_wrong")
        browser.click("form button")
        browser.until_text("#view", "unknown, expired or revoked")
        browser.find("#token").send_keys(token)
        browser.click("form button")
        browser.until_text("tbody tr", "llama")
        browser.until(lambda: badge(browser).endswith("live"))
        browser.driver.refresh()
        browser.until_text("tbody tr", "llama")
        assert token not in browser.driver.current_url
        browser.click("#forget")
        browser.until_text("#view", "needs a token")


def test_an_address_of_nothing_says_so(api: Shown, browser: Chromium) -> None:
    with serving(api.app, browser):
        browser.visit("/?run=0123456789abcdef")
        browser.until_text("#view", "there is no run '0123456789abcdef'")
        browser.visit(f"/?run={quote('<b>none')}")
        browser.until_text("#view", "run_id: String should match")


def run_id(browser: Chromium, name: str) -> str:
    return str(httpx2.get(f"{browser.base}/v1/runs", params={"run": name}).json()["items"][0]["run_id"])


def hostile_incident(incident_id: str, text: str) -> dict[str, Any]:
    """An incident with ``text`` wherever telemetry can put one."""
    suspect = {"rank": 3, "host": text, "device": text, "why": text}
    one = an_odd_incident(incident_id, first={"suspects": [suspect], "note": text, "metric": text})
    one["evidence"][0] |= {"metric": text, "detail": {text: text}}
    one["causes"][0]["because"] = [text]
    one["advice"] = [{"action": "drain_host", "target": text, "command": f"echo {text}"}]
    one["last_good"]["checkpoint"] = text
    return one


def hostile_coverage(text: str) -> dict[str, Any]:
    """A coverage with ``text`` wherever telemetry can put one."""
    check = {"name": "repeat", "state": "not_run", "why": text}
    lists = {"metrics": ["loss", text], "notes": [text], "blind_to": [text], "checks": [check]}
    return {"ranks": 8, "rejected": 1, "rejected_by": {text: 1}, **lists}


def seen(text: str) -> str:
    """A name as the page shows it: direction marks as their code."""
    return text.replace("\u202e", "\\u202e").replace("\u2066", "\\u2066")

"""The page as time goes by: news, a service that goes and comes back, and who may look."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from sqlalchemy import update

from service.access import create_token
from service.api.settings import ApiConfig
from service.tables import runs

from .api_builders import an_odd_incident, wait_until
from .local_chromium import Chromium
from .page_builders import LASTING, Shown, serving, shown
from .service_builders import an_incident

pytestmark = pytest.mark.browser

REFUSED, CUT_OFF = "net::ERR_CONNECTION_REFUSED", "net::ERR_INCOMPLETE_CHUNKED_ENCODING"
"""What the console says of a service that has ended."""


def test_a_new_incident_appears_by_itself(page: Shown, browser: Chromium) -> None:
    run = page.put("llama")
    with serving(page.app, browser):
        browser.visit("/")
        browser.until(lambda: badge(browser).endswith("live"))
        browser.until_text("tbody tr", "No fault visible")
        page.put("llama", an_incident())
        browser.until_text("tbody tr", "Rank 3 (host node-07) holds other parameters")
        browser.visit(f"/?run={run}")
        browser.until_text("h2.sentence", "since iteration 1200")
        page.put("llama", an_incident(first={"iteration": 1100, "interval": [1090, 1100]}))
        browser.until_text("h2.sentence", "since iteration 1100")


def test_what_is_open_and_focused_stays_so_when_news_come(page: Shown, browser: Chromium) -> None:
    odd = an_odd_incident("o1")
    run = page.put("llama", odd)
    with serving(page.app, browser):
        browser.visit(f"/?run={run}")
        browser.until(lambda: browser.look("#part-evidence details"))
        browser.click("#part-evidence summary")
        browser.run("document.querySelector('[data-key=step-0]').focus()")
        page.put("llama", {**odd, "severity": "warning", "detected_at_iteration": 1201})
        browser.until_text("#part-head", "first alarm at iteration 1201")
        assert browser.run("return document.querySelector('#part-evidence details').open")
        assert browser.run("return document.activeElement.dataset.key") == "step-0"


def test_the_badge_tells_of_a_service_that_is_gone_and_that_it_came_back(
    page: Shown, browser: Chromium
) -> None:
    page.put("llama")
    browser.expected = (REFUSED, CUT_OFF)
    with serving(page.app, browser, is_left=False) as port:
        browser.visit("/")
        browser.until(lambda: badge(browser).endswith("live"))
    browser.until(lambda: "reconnecting" in badge(browser) or "stale" in badge(browser))
    browser.until(lambda: "stale since" in badge(browser))
    assert "llama" in browser.text("tbody tr")
    page.put("mistral")
    with serving(page.start_again(), browser, port):
        browser.until(lambda: badge(browser).endswith("live"))
        browser.until(lambda: len(browser.look("tbody tr")) == 2)


def test_the_badge_is_stale_while_no_worker_judges(tmp_path: Path, browser: Chromium) -> None:
    with shown(tmp_path) as page, serving(page.app, browser):
        page.shift_s = 2 * LASTING.worker_silent_after_s
        browser.visit("/")
        browser.until(lambda: badge(browser).endswith("stale"))
        browser.until_text("#notice", "no worker has said anything since")


def test_where_no_stream_is_to_be_had_the_page_asks_now_and_then(tmp_path: Path, browser: Chromium) -> None:
    config = ApiConfig(worker_silent_after_s=LASTING.worker_silent_after_s, max_streams=1)
    browser.expected = ("/v1/stream - Failed to load resource: the server responded with a status of 503",)
    with shown(tmp_path, config) as page, serving(page.app, browser):
        page.put("llama")
        with httpx2.stream("GET", f"{browser.base}/v1/stream", timeout=60.0):
            browser.visit("/")
            browser.until(lambda: "polling" in badge(browser))
            page.put("mistral")
            browser.until(lambda: len(browser.look("tbody tr")) == 2)


def test_a_page_that_nobody_sees_lets_go_of_its_stream_and_catches_up(page: Shown, browser: Chromium) -> None:
    with serving(page.app, browser):
        browser.visit("/")
        browser.until(lambda: badge(browser).endswith("live"))
        mine = browser.driver.current_window_handle
        browser.driver.switch_to.new_window("tab")
        wait_until(lambda: page.app.state.hub.open_streams == 0)
        page.put("llama")
        browser.driver.close()
        browser.driver.switch_to.window(mine)
        browser.until_text("tbody tr", "llama")
        browser.until(lambda: badge(browser).endswith("live"))


def test_with_tokens_the_page_asks_for_one_and_keeps_it_for_the_tab(page: Shown, browser: Chromium) -> None:
    page.put("llama")
    with page.store.database.write() as db:
        token = create_token(db, "oncall", ("read",), page.now())
    browser.expected = ("the server responded with a status of 401",)
    with serving(page.app, browser):
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


def test_a_run_that_has_gone_quiet_says_since_when(page: Shown, browser: Chromium) -> None:
    run = page.put("llama")
    with page.store.database.write() as db:
        db.execute(update(runs).values(quiet_since=1_764_470_000.25))
    with serving(page.app, browser):
        browser.visit("/")
        browser.until_text("tbody tr", "quiet since")
        assert browser.find("tbody time").get_attribute("datetime") == "2025-11-30T02:33:20.250Z"
        browser.visit(f"/?run={run}")
        browser.until_text("#part-title", "quiet since")


def badge(browser: Chromium) -> str:
    return browser.text("#badge")

"""The heat map in a real browser: told in words, walked by keys, and left for the run at that place."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import httpx2
import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from firstfault.mesh import Layout

from .block_builders import block
from .history_builders import named
from .local_chromium import Chromium
from .page_builders import Shown, serving, shown
from .service_builders import an_incident

pytestmark = pytest.mark.browser
HOSTILE = '<img src=x onerror="alert(1)">'


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A sample log with NaN, judged once."""
    with shown(tmp_path_factory.mktemp("judged")) as one:
        one.judge("nan_activation")
        yield one


def test_the_worst_cells_are_told_in_words_and_lead_to_the_run(judged: Shown, browser: Chromium) -> None:
    with serving(judged.start_again(), browser):
        browser.visit(f"/?run={run_id(browser, 'nan_activation')}&view=ranks&metric=loss")
        browser.until(lambda: browser.look("#heat-worst tbody tr"))
        rows = [row.split("\t") for row in browser.look("#heat-worst tbody tr")]
        assert rows[0][:5] == ["1", "node-00", "484", "NaN", "NaN"]
        assert "NaN: 233 cells" in browser.text("#heat-legend")
        assert "233 NaN" in (browser.find("canvas").get_attribute("aria-label") or "")
        browser.click("#heat-worst tbody a")
        browser.until(lambda: browser.look(".js-plotly-plot"))
        assert "from=420&to=548" in browser.driver.current_url


@pytest.mark.parametrize("width", [390, 1280])
def test_keys_walk_the_cells_and_enter_goes_to_the_run_there(
    judged: Shown, browser: Chromium, width: int
) -> None:
    with serving(judged.start_again(), browser):
        browser.resize(width)
        browser.visit(f"/?run={run_id(browser, 'nan_activation')}&view=ranks&from=480&to=489")
        browser.until(lambda: browser.look("#heat-legend li"))
        assert browser.run("return document.documentElement.scrollWidth") <= width
        canvas = browser.find("canvas")
        canvas.send_keys(Keys.ARROW_DOWN * 2, Keys.ARROW_RIGHT * 4)
        browser.until_text(".tip", "rank 1")
        assert "rank 1, iteration 484" in browser.text(".tip")
        assert "node-00" in browser.text(".tip")
        assert "6657 values were not finite" in browser.text(".tip")
        canvas.send_keys(Keys.ENTER)
        browser.until(lambda: "from=420&to=548" in browser.driver.current_url)


def test_a_drag_looks_closer_and_the_address_keeps_it(judged: Shown, browser: Chromium) -> None:
    with serving(judged.start_again(), browser):
        browser.visit(f"/?run={run_id(browser, 'nan_activation')}&view=ranks&metric=loss&from=400&to=499")
        browser.until(lambda: browser.look("#heat-legend li"))
        canvas = browser.find("canvas")
        middle, half = canvas.size["width"] // 2, canvas.size["height"] // 2
        drag = ActionChains(browser.driver).move_to_element_with_offset(canvas, 200 - middle, 40 - half)
        drag.click_and_hold().move_by_offset(300, 70).release().perform()
        browser.until(lambda: "ranks=" in browser.driver.current_url)
        at = browser.driver.current_url
        browser.until(lambda: "8 ranks" not in browser.text("#heat-told"))
        told = browser.text("#heat-told")
        browser.driver.refresh()
        browser.until_text("#heat-told", told)
        assert browser.driver.current_url == at


def test_rows_can_be_grouped_and_names_of_hosts_are_text(page: Shown, browser: Chromium) -> None:
    hosts = {rank: HOSTILE if rank < 2 else "node-1" for rank in range(4)}
    layout = Layout(axes=("dp",), coordinates={rank: (rank,) for rank in range(4)}, hosts=hosts)
    losses_TR = np.full((20, 4), 2.0) + 0.01 * np.arange(4)
    losses_TR[7, 1] = np.inf
    page.history.update(dataclasses.replace(named(block({"loss": losses_TR}), "llama"), layout=layout))
    page.history.flush()
    run = page.put("llama")
    with serving(page.app, browser):
        browser.visit(f"/?run={run}&view=ranks")
        browser.until(lambda: browser.look("#heat-worst tbody tr"))
        browser.run(
            "const one = document.querySelector('[data-key=heat-by]'); one.value = 'host';"
            "one.dispatchEvent(new Event('change'))"
        )
        browser.until(lambda: "by=host" in browser.driver.current_url)
        assert browser.look("#heat-worst tbody tr")[0].split("\t")[:5] == [
            "1",
            HOSTILE,
            "7",
            "Infinity",
            "Infinity",
        ]
        browser.find("canvas").send_keys(Keys.ARROW_DOWN * 2, Keys.ARROW_RIGHT * 7)
        browser.until_text(".tip", HOSTILE)
        assert browser.run("return document.querySelectorAll('img').length") == 0


def test_an_earlier_attempt_can_be_looked_at(page: Shown, browser: Chromium) -> None:
    for attempt, value in ((0, np.nan), (1, 2.0)):
        losses_TR = np.full((20, 4), 2.0)
        losses_TR[5, 3] = value
        page.history.update(named(block({"loss": losses_TR}, attempt=attempt), "llama"))
    page.history.flush()
    run = page.put("llama")
    with serving(page.app, browser):
        browser.visit(f"/?run={run}&view=ranks")
        browser.until_text("#heat-told", "attempt 1")
        assert "NaN" not in browser.text("#heat-legend")
        browser.run(
            "const one = document.querySelector('[data-key=attempt]'); one.value = '0';"
            "one.dispatchEvent(new Event('change'))"
        )
        browser.until_text("#heat-legend", "NaN: 1 cell")
        assert "attempt=0" in browser.driver.current_url


def test_what_comes_while_it_is_looked_at_appears(page: Shown, browser: Chromium) -> None:
    run = page.put("llama", an_incident(id="i1"))
    with serving(page.app, browser):
        browser.visit(f"/?run={run}&view=ranks&metric=loss")
        browser.until_text("#heat-told", "Nothing of single ranks is kept")
        losses_TR = np.full((20, 4), 2.0)
        losses_TR[7, 1] = np.nan
        page.history.update(named(block({"loss": losses_TR}, iterations=1190 + np.arange(20)), "llama"))
        page.history.flush()
        page.put("llama", an_incident(id="i1", detected_at_iteration=1201))
        browser.until_text("#heat-legend", "NaN: 1 cell")


def run_id(browser: Chromium, name: str) -> str:
    return str(httpx2.get(f"{browser.base}/v1/runs", params={"run": name}).json()["items"][0]["run_id"])

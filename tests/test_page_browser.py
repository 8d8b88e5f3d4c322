"""The page in a real browser: what its reader sees, and what a hostile name cannot do to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from .api_builders import an_odd_incident
from .local_chromium import Chromium
from .page_builders import Shown, serving, shown

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


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """Sample logs, judged once; nothing is written to this store afterwards."""
    with shown(tmp_path_factory.mktemp("judged")) as one:
        for log in ("healthy", "drift_param", "nan_activation", "explosion"):
            one.judge(log)
        yield one


def test_an_empty_store_says_how_to_begin(page: Shown, browser: Chromium) -> None:
    with serving(page.app, browser):
        browser.visit("/")
        browser.until_text("#view", f"{browser.base}/v1/telemetry")
        assert "No run yet" in browser.text("#view")
        assert "firstfault demo" in browser.text("#view")


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


def test_values_that_are_not_numbers_are_said_to_be_what_they_are(page: Shown, browser: Chromium) -> None:
    page.put("odd", an_odd_incident("o1"))
    with serving(page.app, browser):
        browser.visit("/?incident=o1")
        browser.until(lambda: browser.look("#part-evidence .proof"))
        assert [text for text in browser.look(".nonfinite") if text] == ["NaN", "-Infinity"]


def test_a_loss_that_is_nan_has_a_lane_and_its_name_and_the_gradient_a_log_axis(
    judged: Shown, browser: Chromium
) -> None:
    nan = "return [...document.querySelectorAll('.js-plotly-plot')].map((plot) =>"
    with serving(judged.start_again(), browser):
        browser.visit(f"/?run={run_id(browser, 'nan_activation')}")
        browser.until(lambda: len(browser.run(nan + " plot.data.length)")) == 4)
        named = browser.run(nan + " plot.data.filter((one) => one.name === 'NaN')[0]?.text[0] ?? '')")
        assert named[0].startswith("NaN (")
        assert browser.run(nan + " plot._fullLayout.yaxis.type)") == ["linear", "linear", "log", "log"]
        assert browser.run("return document.querySelectorAll('.xy2 .points path, .x2y2 .points path').length")
        assert "NaN first at iteration 484" in (browser.find(".plot").get_attribute("aria-label") or "")


def test_names_out_of_telemetry_are_text_and_nothing_else(page: Shown, browser: Chromium) -> None:
    for at, (_, text) in enumerate(HOSTILE.items()):
        page.put(text, hostile_incident(f"h{at}", text), coverage=hostile_coverage(text))
    with serving(page.app, browser):
        browser.visit("/")
        browser.until(lambda: len(browser.look("tbody tr")) == len(HOSTILE))
        shown_names = set(
            browser.run("return [...document.querySelectorAll('td.run bdi')].map((b) => b.textContent)")
        )
        assert shown_names == {seen(text) for text in HOSTILE.values()}
        for at, (_, text) in enumerate(HOSTILE.items()):
            browser.visit(f"/?incident=h{at}")
            browser.until(lambda: browser.look("#part-evidence .proof"))
            assert browser.text("h1").replace("\n", "") in (seen(text), text)
            for part in ("#part-facts", "#part-steps", "#part-causes", "#part-evidence", "#part-coverage"):
                told = browser.run(f"return document.querySelector('{part}').textContent")
                assert seen(text) in told or visible(text) in told, part
            assert browser.run("return document.querySelectorAll('img, iframe, object, form').length") == 0
            hrefs = browser.run("return [...document.querySelectorAll('a')].map((a) => a.protocol)")
            assert set(hrefs) == {"http:"}


def test_a_hostile_name_in_a_judged_log_is_drawn_as_any_other(page: Shown, browser: Chromium) -> None:
    run = page.judge("nan_activation", HOSTILE["image"])
    with serving(page.app, browser):
        browser.visit(f"/?run={run}")
        browser.until(lambda: browser.look(".js-plotly-plot .scatterlayer .trace"))
        assert browser.text("h1") == HOSTILE["image"]


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
        for _ in range(11):  # the skip link, the name of the page, four links, four filters, the first run
            browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        focused = browser.driver.switch_to.active_element
        assert (focused.get_attribute("data-key") or "").startswith("run-")
        focused.send_keys(Keys.ENTER)
        browser.until(lambda: browser.look("h2.sentence"))
        browser.driver.back()
        browser.until(lambda: len(browser.look("tbody tr")) == 4)


def test_a_zoom_is_part_of_the_address_and_outlives_a_reload(judged: Shown, browser: Chromium) -> None:
    median = "data.find((one) => one.name === 'median')"
    first = f"return document.querySelector('.js-plotly-plot')?.{median}.x[0] ?? null"
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


def test_an_address_of_nothing_says_so(page: Shown, browser: Chromium) -> None:
    browser.expected = ("responded with a status of 404", "responded with a status of 422")
    with serving(page.app, browser):
        browser.visit("/?run=0123456789abcdef")
        browser.until_text("#view", "there is no run '0123456789abcdef'")
        browser.visit(f"/?run={quote('<b>none')}")
        browser.until_text("#view", "run_id: String should match")


def test_colours_follow_the_readers_and_curves_with_them(judged: Shown, browser: Chromium) -> None:
    ink = "return document.querySelector('.js-plotly-plot')?._fullLayout?.font.color ?? ''"
    with serving(judged.start_again(), browser):
        set_scheme(browser, "light")
        browser.visit(f"/?run={run_id(browser, 'explosion')}")
        browser.until(lambda: browser.run(ink))
        by_day = browser.run(ink), browser.run("return getComputedStyle(document.body).backgroundColor")
        set_scheme(browser, "dark")
        browser.until(lambda: browser.run(ink) != by_day[0])
        assert browser.run("return getComputedStyle(document.body).backgroundColor") != by_day[1]
        set_scheme(browser, "light")


def test_without_scripts_the_page_says_where_the_same_is_to_be_had(page: Shown, browser: Chromium) -> None:
    with serving(page.app, browser):
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        browser.visit("/")
        said = browser.find("main noscript").text
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        assert "the runs, worst first" in said


def set_scheme(browser: Chromium, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


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


def visible(text: str) -> str:
    """A text as the page shows it: direction marks as their code."""
    return text.replace("\u202e", "\\u202e").replace("\u2066", "\\u2066")


def seen(name: str) -> str:
    """A name as the page shows it beside others: a long one cut in its middle."""
    shown = visible(name)
    return shown if len(shown) <= 100 else f"{shown[:75]}…{shown[-24:]}"

"""An incident on the page: what it is believed on, what a person decides, and what a curve shows of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from .local_chromium import Chromium
from .page_builders import Shown, serving, shown
from .service_builders import an_incident

pytestmark = pytest.mark.browser
HOSTILE_NOTE = '<img src=x onerror="alert(1)">\u202e; see {{7*7}}'


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """Sample logs with a fault, judged once; nothing is written to this store afterwards."""
    with shown(tmp_path_factory.mktemp("judged")) as one:
        for log in ("drift_param", "nan_activation", "slow_rank"):
            one.judge(log)
        yield one


def test_a_key_a_note_and_enter_acknowledge_and_say_who_and_when(page: Shown, browser: Chromium) -> None:
    page.put("llama", an_incident(id="i1"))
    with serving(page.app, browser):
        opened(browser, "i1")
        press(browser, "a")
        browser.find("#note").send_keys(HOSTILE_NOTE, Keys.CONTROL, Keys.ENTER)
        browser.until_text("#part-act", "acknowledged by")
        assert incident(browser, "i1")["log"][0]["note"] == HOSTILE_NOTE
        browser.until_text("#part-timeline", "acknowledged by")
        for part in ("#part-act", "#part-timeline"):
            assert HOSTILE_NOTE.replace("\u202e", "\\u202e") in browser.text(part)
        assert browser.run("return document.querySelectorAll('img, form').length") == 0
        press(browser, "r")
        browser.find("form").submit()
        browser.until_text("#part-act .stated", "resolved by")
        assert [one["state"] for one in incident(browser, "i1")["log"]] == ["acknowledged", "resolved"]


def test_a_mute_needs_a_note_and_ends_by_itself(page: Shown, browser: Chromium) -> None:
    page.put("llama", an_incident(id="i1"))
    with serving(page.app, browser):
        opened(browser, "i1")
        press(browser, "m")
        browser.click("form .primary")
        assert incident(browser, "i1")["state"] == "open"
        browser.find("#note").send_keys("the rack is serviced")
        browser.run("document.querySelector('#until').value = '14400'")
        browser.click("form .primary")
        browser.until_text("#part-act .stated", "muted until")
        until = datetime.fromisoformat(incident(browser, "i1")["muted_until"])
        assert timedelta(hours=3) < until - datetime.now(UTC) <= timedelta(hours=4)


def test_a_decision_about_what_has_changed_meanwhile_shows_that_first(page: Shown, browser: Chromium) -> None:
    page.put("llama", an_incident(id="i1"))
    browser.expected = ("/state - Failed to load resource: the server responded with a status of 412",)
    with serving(page.app, browser):
        opened(browser, "i1")
        press(browser, "r")
        decided(browser, "i1", state="acknowledged", note="I have it")
        browser.until_text("#part-act .stated", "acknowledged by")  # live, and the form is still open
        browser.click("form .primary")
        browser.until_text("form [role=alert]", "It has changed since you opened this")
        assert "open → acknowledged" in browser.text("form [role=alert]")
        assert "I have it" in browser.text("form [role=alert]")
        assert incident(browser, "i1")["state"] == "acknowledged"
        browser.until_text("form .primary", "Resolve all the same")
        browser.click("form .primary")
        browser.until_text("#part-act .stated", "resolved by")


def test_escape_lets_a_decision_be_and_keys_in_a_field_are_text(page: Shown, browser: Chromium) -> None:
    page.put("llama", an_incident(id="i1"))
    with serving(page.app, browser):
        opened(browser, "i1")
        press(browser, "f")
        browser.find("#note").send_keys("amr")
        assert browser.text("form b") == "False alarm"
        browser.find("#note").send_keys(Keys.ESCAPE)
        assert browser.look("form") == []
        assert browser.run("return document.activeElement.dataset.key") == "do-false_alarm"
        press(browser, "?")
        assert "Acknowledge" in browser.text("dialog")


def test_several_incidents_of_a_run_are_stepped_through_in_their_order(
    page: Shown, browser: Chromium
) -> None:
    places = {"late": 1700, "early": 900, "middle": 1200}
    ones = [
        an_incident(id=name, detected_at_iteration=at, first={"iteration": at, "interval": [at - 1, at]})
        for name, at in places.items()
    ]
    page.put("llama", *sorted(ones, key=lambda one: int(one["detected_at_iteration"])))
    with serving(page.app, browser):
        opened(browser, "early")
        assert browser.text(".pager").startswith("incident 1 of 3")
        press(browser, "j")
        browser.until_text(".pager", "incident 2 of 3")
        assert "first alarm at iteration 1200" in browser.text("#part-head")
        assert "incident=middle" in browser.driver.current_url
        press(browser, "k")
        browser.until_text(".pager", "incident 1 of 3")
        press(browser, "k")
        browser.until_text("#part-head", "first alarm at iteration 1700")


def test_a_revision_says_on_the_timeline_what_changed(page: Shown, browser: Chromium) -> None:
    page.put("llama", an_incident(id="i1", certainty="suspected"))
    with serving(page.app, browser):
        opened(browser, "i1")
        page.put("llama", an_incident(id="i1"))
        browser.until_text("#part-timeline", "became worse: confirmed")
        assert "certainty: suspected → confirmed" in browser.text("#part-timeline")


def test_a_vote_is_redrawn_with_who_differed(judged: Shown, browser: Chromium) -> None:
    with serving(judged.start_again(), browser):
        browser.visit(f"/?run={run_id(browser, 'drift_param')}")
        browser.until(lambda: browser.look(".proof:first-child .vote"))
        rows = [row.split("\t") for row in browser.look(".proof:first-child .vote tr")]
        assert rows[0][1:] == ["370", "380", "390", "400"]
        assert ["✕" in row[3] and "✕" in row[4] for row in rows[1:]] == [rank == 3 for rank in range(8)]
        assert not any("✕" in row[1] + row[2] for row in rows[1:])
        assert "1 of 8 ranks differs in param_checksum, where none may" in browser.text("#part-facts")


def test_a_slow_rank_is_redrawn_beside_its_peers_with_the_threshold(judged: Shown, browser: Chromium) -> None:
    with serving(judged.start_again(), browser):
        browser.visit(f"/?run={run_id(browser, 'slow_rank')}")
        browser.until(lambda: browser.look(".proof .mini"))
        drawn = browser.run("return document.querySelector('.proof .mini').textContent")
        assert "step_time_s: rank 6 relative to the median of all ranks" in drawn
        assert "shift 0.402" in drawn
        assert "as its peers 0" in drawn
        assert "17.7194 measured ≥ 16.1331 threshold" in browser.text(".proof .gauge")
        browser.click(".proof .evidence-chart summary")
        browser.until(lambda: browser.look(".proof .plain tbody tr"))
        assert browser.look(".proof .plain tbody th")[20] == "210"


def test_a_curve_that_ends_in_nan_shows_its_last_finite_value_its_ranks_and_its_numbers(
    judged: Shown, browser: Chromium
) -> None:
    trace = "return document.querySelector('.js-plotly-plot')?.data.filter((one) => one.name === {})[0]?.{}"
    with serving(judged.start_again(), browser):
        browser.visit(f"/?run={run_id(browser, 'nan_activation')}&from=440&to=513&curves=loss")
        browser.until(lambda: browser.run(trace.format("'rank 1'", "x?.length")) == 74)
        assert browser.run(trace.format("'last finite value'", "x")) == [484]
        assert browser.run(trace.format("'rank 1'", "line.dash")) == "dot"
        assert browser.run(trace.format("'rank 2'", "line.dash")) == "solid"
        browser.click(".chart .table summary")
        browser.until(lambda: browser.look(".chart .table tbody tr"))
        (row,) = [one for one in browser.look(".chart .table tbody tr") if one.startswith("485")]
        assert row.split("\t")[1:3] == ["NaN", "NaN"]


def test_the_curves_that_are_shown_are_part_of_the_address(judged: Shown, browser: Chromium) -> None:
    named = (
        "return [...document.querySelectorAll('.chart:not([hidden]) figcaption')].map((c) => c.textContent)"
    )
    with serving(judged.start_again(), browser):
        browser.visit(f"/?run={run_id(browser, 'drift_param')}&curves=loss")
        browser.until(lambda: browser.run(named) == ["loss"])
        browser.run(
            "const one = document.querySelector('[data-key=add-curve]'); one.value = 'canary_loss';"
            "one.dispatchEvent(new Event('change'))"
        )
        browser.until(lambda: "canary_loss" in browser.run(named))
        browser.click("[data-key='without-loss']")
        browser.until(lambda: browser.run(named) == ["canary_loss"])
        browser.driver.refresh()
        browser.until(lambda: browser.run(named) == ["canary_loss"])


def opened(browser: Chromium, incident_id: str) -> None:
    browser.visit(f"/?incident={incident_id}")
    browser.until_text("#part-act", "Acknowledge")


def press(browser: Chromium, key: str) -> None:
    ActionChains(browser.driver).send_keys(key).perform()


def incident(browser: Chromium, incident_id: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx2.get(f"{browser.base}/v1/incidents/{incident_id}").json()
    return found


def decided(browser: Chromium, incident_id: str, **change: str) -> None:
    answer = httpx2.post(f"{browser.base}/v1/incidents/{incident_id}/state", json=change)
    assert answer.status_code == 200, answer.text


def run_id(browser: Chromium, name: str) -> str:
    return str(httpx2.get(f"{browser.base}/v1/runs", params={"run": name}).json()["items"][0]["run_id"])

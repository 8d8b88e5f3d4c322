"""Fleet, incidents, hosts, checksums and propagation in a real browser, with judged sample logs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest

from service.alerts.sender import Sender

from .alert_builders import SECRET, Receiver, a_webhook, quick
from .api_builders import an_odd_incident
from .local_chromium import Chromium
from .page_builders import Shown, serving, shown

pytestmark = pytest.mark.browser

WIDTHS = (390, 1280)
HOSTILE = ("<img src=x onerror=alert(1)>", '"><svg/onload=alert(2)>', "a\u202egnp.exe\u2066", "&lt;b&gt;<br>")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """Sample logs, judged once; nothing is written to this store afterwards."""
    with shown(tmp_path_factory.mktemp("judged")) as one:
        for log in ("healthy", "drift_param", "nan_activation"):
            one.judge(log)
        yield one


def run_id(browser: Chromium, name: str) -> str:
    return str(httpx2.get(f"{browser.base}/v1/runs", params={"run": name}).json()["items"][0]["run_id"])


def fits(browser: Chromium) -> bool:
    """Whether nothing stands out of the page at any width."""
    for width in WIDTHS:
        browser.resize(width)
        if browser.run("return document.documentElement.scrollWidth") > width:
            return False
    return True


def test_the_replica_that_differs_is_outlined_and_checks_are_stepped_through(
    judged: Shown, browser: Chromium
) -> None:
    with serving(judged.start_again(), browser):
        browser.visit(f"/?run={run_id(browser, 'drift_param')}&view=checksums")
        browser.until_text("#checksums", "1 of 1 replica group differs")
        assert browser.look(".cells .odd") == ["≠ 3"]
        assert len(browser.look(".cells .same")) == 7
        assert "50ca324f7a9c6b49 rank 3 on node-00" in browser.text(".values")
        assert browser.look(".course tbody td")[5:8] == ["=", "≠", "≠"]
        assert fits(browser)
        browser.click("[data-key=previous]")
        browser.until_text("#checksums", "all of 1 replica group agree")
        assert "at=380" in browser.driver.current_url
        browser.driver.refresh()
        browser.until_text("#checksums .steps-line", "iteration 380")
        browser.driver.back()
        browser.until_text("#checksums", "1 of 1 replica group differs")
        browser.run("document.querySelector('[data-key=\"metric-optim_checksum\"]').click()")
        browser.until_text(".choice [aria-current]", "optim_checksum")


def test_a_tie_reads_no_majority(page: Shown, browser: Chromium) -> None:
    from firstfault.mesh import Layout

    from .block_builders import block
    from .history_builders import named, write

    layout = Layout(axes=("dp",), coordinates={rank: (rank,) for rank in range(4)})
    one = block(param_checksum=[[1, 1, 1, 1], [2, 2, 3, 3]], layout=layout)
    write(page.history_folder, named(one, "tied"))
    coverage = {"ranks": 4, "metrics": ["param_checksum"], "checks": [], "rejected": 0}
    run = page.put("tied", coverage={**coverage, "blind_to": [], "notes": []})
    with serving(page.app, browser):
        browser.visit(f"/?run={run}&view=checksums")
        browser.until_text("#checksums .group h3", "no majority")
        assert browser.look(".cells .tie") == ["? 0", "? 1", "? 2", "? 3"]


def test_how_a_nan_spread_is_told_in_order_and_drawn_in_lanes(judged: Shown, browser: Chromium) -> None:
    with serving(judged.start_again(), browser):
        browser.visit(f"/?run={run_id(browser, 'nan_activation')}&view=propagation")
        browser.until(lambda: browser.look(".lanes tbody tr"))
        first, second = browser.look(".steps li")
        assert first.startswith("iteration 484, forward: suspect rank 1, seen in nonfinite_act")
        assert "iteration 484, reduce out: victim ranks 0, 2-7" in second
        assert "through the reduction of the gradient over the data parallel ranks" in second
        assert browser.look(".lanes tr.suspect td")[0].startswith("✖")
        assert browser.look(".lanes tr.victim td")[0].startswith("·")
        assert fits(browser)
        browser.visit(f"/?run={run_id(browser, 'healthy')}&view=propagation")
        browser.until_text("#propagation", "no incident that could have spread")


def test_runs_are_narrowed_by_the_address_and_paged(page: Shown, browser: Chromium) -> None:
    for number in range(130):
        page.put(f"run-{number:03}")
    page.put("odd one", an_odd_incident("o1"))
    with serving(page.app, browser):
        browser.visit("/")
        browser.until(lambda: len(browser.look("tbody tr")) == 100)
        assert "odd one" in browser.text("tbody tr")
        browser.click("[data-key=page-next]")
        browser.until(lambda: len(browser.look("tbody tr")) == 31)
        assert "page=" in browser.driver.current_url
        browser.driver.refresh()
        browser.until(lambda: len(browser.look("tbody tr")) == 31)
        browser.find("[name=text]").send_keys("RUN-01\n")
        browser.until(lambda: len(browser.look("tbody tr")) == 10)
        assert browser.driver.current_url.endswith("/?text=RUN-01")
        browser.visit("/?label=silent_drift")
        browser.until_text("#fleet", "No run matches")
        assert fits(browser)


def test_what_people_made_of_incidents_is_seen_in_both_lists(page: Shown, browser: Chromium) -> None:
    page.put("seen", an_odd_incident("a1", first={"suspects": [{"rank": 3, "host": "node-7", "why": "…"}]}))
    change = {"state": "acknowledged", "note": "being drained"}
    assert page.client().post("/v1/incidents/a1/state", json=change).status_code == 200
    with serving(page.app, browser):
        browser.visit("/")
        browser.until_text("tbody tr", "1 acknowledged")
        browser.visit("/?view=incidents&state=acknowledged&host=node-7")
        browser.until_text("tbody tr", "acknowledged")
        assert browser.text("nav.main [aria-current]") == "Incidents"
        browser.visit("/?view=incidents&state=open")
        browser.until_text("#incidents", "No incident matches")
        page.put("new", an_odd_incident("a2"))  # seen without a reload: the stream tells
        browser.until_text("tbody tr", "new")
        assert fits(browser)


def test_a_host_shows_what_accuses_it_over_all_runs(judged: Shown, browser: Chromium) -> None:
    browser.expected = ("/v1/hosts/%3Cb%3Enobody - Failed to load resource",)
    with serving(judged.start_again(), browser):
        browser.visit("/?view=hosts")
        browser.until_text("tbody tr", "node-00")
        assert fits(browser)
        browser.click("tbody a")
        browser.until_text("h1", "Host node-00")
        assert "host=node-00" in browser.driver.current_url
        assert len(browser.look("#host tbody tr")) == 2
        assert "dev-38f19687: 1 incident, 1 alone" in browser.text("#host .card")
        assert fits(browser)
        browser.visit(f"/?host={quote('<b>nobody')}")
        browser.until_text("#host", "<b>nobody")


def test_hostile_names_are_text_in_every_view(page: Shown, browser: Chromium) -> None:
    for at, text in enumerate(HOSTILE):
        suspect = {"rank": 3, "host": text, "device": text, "why": text}
        one = an_odd_incident(f"h{at}", first={"suspects": [suspect], "metric": text})
        one["evidence"][0] |= {"metric": text}
        page.put(text, one)
    with serving(page.app, browser):
        for address in ("/", "/?view=incidents", "/?view=hosts"):
            browser.visit(address)
            browser.until(lambda: len(browser.look("tbody tr")) == len(HOSTILE))
            shown_text = browser.text("#view")
            for text in HOSTILE:
                assert text.replace("\u202e", "\\u202e").replace("\u2066", "\\u2066") in shown_text
        for at, text in enumerate(HOSTILE):
            browser.visit(f"/?incident=h{at}&view=propagation")
            browser.until(lambda: browser.look(".lanes tbody tr"))
            browser.visit(f"/?host={quote(text)}")
            browser.until(lambda: browser.look("#host tbody tr"))
            assert browser.run("return document.querySelectorAll('#view img, #view iframe').length") == 0


def test_with_scripts_off_fleet_and_incident_are_read_and_linked(judged: Shown, browser: Chromium) -> None:
    with serving(judged.start_again(), browser):
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        try:
            browser.visit("/")
            browser.find(".runs-list a").click()
            said = browser.find("main").text
            drawn = browser.driver.find_elements("css selector", "main svg path")
            badge = browser.find("#badge").is_displayed()
            browser.resize(390)
            wide = browser.find("main").size["width"], browser.find(".served").size["width"]
            overflow = browser.find("section.evidence").size["width"]
        finally:
            browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        assert "Rank 1 (host node-00" in said
        assert "What to do" in said
        assert "Evidence" in said
        assert drawn
        assert not badge  # nothing is live
        assert overflow <= wide[1] <= wide[0] <= 390


def test_other_settings_are_tried_and_what_they_change_is_an_address(page: Shown, browser: Chromium) -> None:
    run = page.judge("spike_recovered")
    browser.expected = ("/what-if - Failed to load resource: the server responded with a status of 422",)
    with serving(page.app, browser):
        browser.visit(f"/?run={run}&view=what-if")
        browser.until(lambda: browser.look(".trial-row"))
        assert "What is stored stays as it is" in browser.text("#whatif-form")
        browser.find("[name=setting]").send_keys("detectors.explosion.norm_hold")
        browser.until_text(".trial-row", "now ")
        browser.find("[name=value]").send_keys("1.01\n")
        browser.until(lambda: "trial=" in browser.driver.current_url)
        browser.until_text("#whatif", "With these")
        assert "detectors.explosion.norm_hold = 1.01" in browser.text("#whatif")
        assert fits(browser)
        browser.driver.refresh()
        browser.until_text("#whatif", "With these")
        assert browser.run("return document.querySelector('[name=value]').value") == "1.01"
        browser.run("document.querySelector('[name=setting]').value = 'detectors.no.such'")
        browser.click("[data-key=trial-go]")
        browser.until_text("#whatif-form [role=status]", "detectors.no")


def test_alerts_show_what_became_of_messages_and_send_a_test(
    tmp_path: Path, browser: Chromium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", SECRET)
    with Receiver() as receiver:
        alerts = quick({"oncall": a_webhook(receiver.url)})
        with shown(tmp_path, alerts=alerts) as page:
            rule = {"host": "node-9*", "comment": "<b>rewired</b>", "until": _in_an_hour()}
            assert page.client().post("/v1/mutes", json=rule).status_code == 201
            page.put("bad", an_odd_incident("a1"))
            sender = Sender(page.store.database, alerts, "https://ff.example")
            sender.start()
            try:
                receiver.wait_for(1)
                with serving(page.app, browser):
                    browser.visit("/?view=alerts")
                    browser.until_text("#alerts-deliveries", "✓ sent")
                    browser.until_text("#alerts-channels", "http://127.0.0.1")
                    browser.until_text("#alerts-mutes", "<b>rewired</b>")
                    browser.until_text("#alerts-detectors", "nonfinite")
                    browser.until_text("#alerts-tokens", "There are none")
                    assert fits(browser)
                    browser.click("#alerts-channels button")
                    receiver.wait_for(2)
                    browser.until_text("#alerts-deliveries tbody tr", "test")
                    assert SECRET not in browser.run("return document.body.innerHTML")
            finally:
                sender.close()


def _in_an_hour() -> str:
    return (datetime.now(UTC) + timedelta(hours=1)).isoformat()

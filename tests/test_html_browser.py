"""The page of `firstfault replay --html` in a real browser: readable on a phone, on a desk and on paper."""

from __future__ import annotations

import base64

import pytest

from .html_builders import page_for
from .local_chromium import Chromium
from .sample_builders import SAMPLE_LOGS

pytestmark = pytest.mark.browser

OVERFLOWING = """
return [...document.querySelectorAll('main *')].filter((one) => {
  if (one.closest('.scroll') || one.closest('svg')) return false;
  return one.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
}).map((one) => one.tagName + '.' + one.className);
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of two sample logs, as an address."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(
        page_for(SAMPLE_LOGS / "nan_input.jsonl.gz", SAMPLE_LOGS / "healthy.jsonl.gz"), encoding="utf-8"
    )
    return path.as_uri()


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out_of_the_page(report: str, browser: Chromium, width: int) -> None:
    browser.resize(width)
    browser.visit(report)
    assert browser.run(OVERFLOWING) == []
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.text("article h2").startswith("Rank 5 (host node-01")


def test_the_curve_and_its_lane_are_drawn_and_described(report: str, browser: Chromium) -> None:
    browser.visit(report)
    box = browser.run(
        "const box = document.querySelector('svg.chart .line').getBoundingClientRect();"
        "return [box.width, box.height]"
    )
    plot = browser.run("return document.querySelector('svg.chart').getBoundingClientRect().width")
    assert box[0] > 0.9 * plot
    assert box[1] > 100
    lane = browser.run("return document.querySelector('svg.chart .bad-lane').getBoundingClientRect().width")
    assert lane > 0.02 * plot
    ids = browser.run("return document.querySelector('svg.chart').getAttribute('aria-labelledby')").split()
    described = [browser.run("return document.getElementById(arguments[0])?.textContent", one) for one in ids]
    assert described[0] == "loss over iterations"
    assert "Fault at iteration 510." in described[1]


def test_the_page_follows_the_reader_to_dark_and_to_paper(report: str, browser: Chromium) -> None:
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    ground = "return getComputedStyle(document.body).backgroundColor"
    browser.visit(report)
    light = browser.run(ground)
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    dark = browser.run(ground)
    printed = browser.driver.execute_cdp_cmd(
        "Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True}
    )
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(18, 23, 29)")
    paper = base64.b64decode(printed["data"])
    assert paper.startswith(b"%PDF")
    assert 2 <= paper.count(b"/Type /Page\n") <= 6


def test_the_index_leads_to_the_run(report: str, browser: Chromium) -> None:
    browser.visit(report)
    browser.click("nav a")
    assert browser.run("return location.hash") == "#run1"
    top = browser.run("return document.querySelector('#run1').getBoundingClientRect().top")
    assert abs(top) < 60

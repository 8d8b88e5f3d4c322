"""A real headless Chromium, driven by selenium: a page as its reader sees it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from .api_builders import wait_until

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class ChromiumUnavailable(Exception):
    """No Chromium can be started here; says why."""


class Chromium:
    """One browser with one tab."""

    def __init__(self, folder: Path) -> None:
        """Start it, its profile in ``folder``.

        Raises:
            ChromiumUnavailable: it or its driver is not installed, or does not start.
        """
        browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
        if browser is None or driver is None:
            raise ChromiumUnavailable("chromium or chromedriver is not installed")
        options = Options()
        options.binary_location = browser
        for flag in (*_FLAGS, f"--user-data-dir={folder}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        options.unhandled_prompt_behavior = "ignore"
        try:
            self.driver = Chrome(options=options, service=Service(driver))
        except WebDriverException as error:
            raise ChromiumUnavailable(str(error.msg)) from error
        self.begin()

    def close(self) -> None:
        """End the browser."""
        self.driver.quit()

    def begin(self) -> None:
        """Forget what was seen for another test, and its service."""
        self.base = ""
        self.expected: tuple[str, ...] = ()
        """Parts of what the console may say: of requests that a test means to fail."""
        self.complaints: list[str] = []
        """What else it said, on pages that were left."""
        self.elsewhere: list[str] = []
        """What pages that were left asked of other hosts."""
        self.console()

    def visit(self, path: str) -> None:
        """Load an address of the service at ``base``."""
        self._note_requests()
        self.driver.get(self.base + path)

    def leave(self) -> None:
        """Go away from the page, as before its service ends, and note what it complained of."""
        self._note_requests()
        self.driver.get("about:blank")
        self.complaints += [
            line for line in self.console() if not any(part in line for part in self.expected)
        ]

    def look(self, selector: str) -> list[str]:
        """The texts of what a selector finds, as they are shown."""
        script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText)"
        found: list[str] = self.run(script, selector)
        return found

    def text(self, selector: str = "body") -> str:
        """The text of the first that a selector finds; empty if there is none."""
        return next(iter(self.look(selector)), "")

    def run(self, script: str, *arguments: object) -> Any:
        """The value of a script in the page."""
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> WebElement:
        """The first element of a selector."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def click(self, selector: str) -> None:
        """Click the first element of a selector."""
        self.find(selector).click()

    def until(self, holds: Callable[[], object]) -> None:
        """Poll until ``holds``; an element that is just being replaced does not count."""

        def look() -> bool:
            try:
                return bool(holds())
            except StaleElementReferenceException:
                return False

        wait_until(look)

    def until_text(self, selector: str, part: str) -> None:
        """Wait until ``part`` is shown in what a selector finds."""
        self.until(lambda: part in self.text(selector))

    def resize(self, width: int, height: int = 900) -> None:
        """The size of the page in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def console(self) -> Sequence[str]:
        """What was written to the console since it was last asked."""
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]  # selenium leaves it so
        return [str(entry["message"]) for entry in entries]

    def _note_requests(self) -> None:
        self.elsewhere += self.run(
            "return performance.getEntriesByType('resource').map((one) => one.name)"
            ".filter((name) => new URL(name).origin !== location.origin)"
        )

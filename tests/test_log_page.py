"""The page on text logs says what the scanner knows."""

from __future__ import annotations

from .log_page import PAGE, page_with, tables


def test_the_page_on_logs_lists_what_is_known() -> None:
    assert PAGE.read_text("utf-8") == page_with(tables()), "run: python -m tests.log_page"

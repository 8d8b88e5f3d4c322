"""Pages for the tests of `firstfault replay --html`, from logs as lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from service.html_file import page_of
from service.inputs import find_inputs
from service.offline import JudgedJob, ReplayOptions, judge_jobs

HOSTILE_NAMES = (
    "<img src=x onerror=alert(1)>",
    '"><svg/onload=alert(2)>',
    "</style><script>alert(3)</script>",
    "&lt;b&gt;&amp;",
    "a\u202egnp.exe\u2066",
    "esc\x1b[31m",
    "'); alert(4); ('",
)


def judged_jobs(*paths: Path) -> list[JudgedJob]:
    """Files judged with what a page is drawn from."""
    with find_inputs(paths) as found:
        return [*found.missing, *judge_jobs(found.jobs, ReplayOptions(is_drawn=True))]


def page_for(*paths: Path) -> str:
    """The page of files."""
    return page_of(judged_jobs(*paths), "firstfault replay FILES")


def csv_lines(losses: Iterable[object], *, first: int = 0, column: str = "loss") -> Iterator[bytes]:
    """A table of iterations and one more column."""
    yield f"iteration,{column}".encode()
    for at, loss in enumerate(losses, first):
        yield f"{at},{loss}".encode()

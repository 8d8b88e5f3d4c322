"""`docs/client.md`: its blocks run against a real service; and what a notebook shows of verdicts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import firstfault
from service.api.app import make_app
from service.api.settings import ApiConfig
from service.intake import make_intake_router
from service.intake_config import IntakeConfig

from .api_builders import seeded, served
from .intake_builders import ListSink
from .service_builders import log_lines, write_log
from .test_what_if import recorded

PAGE = Path(__file__).parent.parent / "docs" / "client.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A service that has judged a run with one odd rank, and takes records."""
    folder, config = tmp_path / "history", ApiConfig(change_poll_s=0.02)
    lines = log_lines("llama-7b", iterations=200, odd_rank=3, odd_from=120)
    verdict = recorded(folder, lines)
    write_log(tmp_path / "train.jsonl", lines)
    with seeded(tmp_path / "store") as api:
        api.put_verdict(verdict)
        router = make_intake_router(ListSink(), IntakeConfig())
        app = make_app(api.store.database, config, routers=[router], history_folder=folder)
        with served(app) as (port, _):
            yield f"http://127.0.0.1:{port}"


def test_every_block_of_the_page_runs(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = _BLOCK.findall(PAGE.read_text("utf-8"))
    assert len(blocks) >= 9
    known: dict[str, Any] = {}
    for block in blocks:
        exec(block.replace("http://127.0.0.1:8000", address), known)  # noqa: S102  # our own page
    said = capsys.readouterr().out
    assert "[3] 120 param_checksum" in said
    assert "stays Rank 3 holds other parameters than the other replicas since iteration 120." in said
    assert "404 there is no incident 'nobody'" in said
    assert "an incident that is resolved can become open, false_alarm, not muted" in said
    assert "nobody answers" in said


def test_a_notebook_shows_verdicts_as_a_page_that_runs_nothing(tmp_path: Path) -> None:
    hostile = "</iframe><script>alert(1)</script>\" onload='x'"
    log = write_log(tmp_path / "job.jsonl", log_lines(hostile, odd_rank=3))
    verdicts = firstfault.replay(log)
    shown = verdicts._repr_html_()  # type: ignore[attr-defined]  # of the list that a notebook is given
    assert verdicts == list(verdicts)
    assert shown.startswith('<iframe sandbox title="firstfault" srcdoc="')
    inside = re.fullmatch(
        r'<iframe sandbox title="firstfault" srcdoc="([^"<>]*)" style="[^"]*"></iframe>', shown
    )
    assert inside is not None  # no quote and no mark of the page's leaves the attribute
    page = html.unescape(inside[1])
    assert "<script" not in page
    assert "Rank 3" in page
    assert 'http-equiv="Content-Security-Policy"' in page

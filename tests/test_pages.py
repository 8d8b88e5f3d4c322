"""Each detector has a page that explains it, and what is generated on it is what the command makes."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from bench.figures import rates
from bench.figures.catalogue import FIGURES
from bench.figures.pages import INDEX, NAMES, PAGES, PICTURES, config_of, with_parts
from detectors.registry import make_detectors

MAX_PICTURE_BYTES = 60_000
CHEAP = ("stall-silent",)
"""Pictures that are drawn anew here; `--check` of the command draws all, which takes half a minute."""


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def test_every_detector_has_its_page() -> None:
    written = {path.stem for path in PAGES.glob("*.md")}
    assert {detector.name for detector in make_detectors()} < set(NAMES)
    assert written == {*NAMES, INDEX}


@pytest.mark.parametrize("name", NAMES)
def test_every_page_shows_its_detector_firing_and_staying_quiet(name: str) -> None:
    shown = set(re.findall(r"\(figures/([a-z_-]+)\.svg\)", page(name)))
    assert {f"{name}-fires", f"{name}-quiet"} <= shown <= set(FIGURES)


def test_every_picture_is_there_and_shown_and_small() -> None:
    sizes = {path.stem: path.stat().st_size for path in PICTURES.iterdir()}
    shown = {stem for name in NAMES for stem in re.findall(r"figures/([a-z_-]+)\.svg", page(name))}
    assert set(sizes) == set(FIGURES) == shown
    assert max(sizes.values()) < MAX_PICTURE_BYTES


@pytest.mark.parametrize("name", [name for name in NAMES if config_of(name) is not None])
def test_every_setting_is_explained_with_what_it_costs(name: str) -> None:
    by_hand = page(name).partition("<!-- /settings -->")[2].partition("\n## ")[0]
    fields = [one.name for one in dataclasses.fields(config_of(name))]  # type: ignore[arg-type]  # a dataclass
    assert [field for field in fields if f"`{field}`" not in by_hand] == []


@pytest.mark.parametrize("name", [*NAMES, INDEX])
def test_what_is_generated_on_a_page_is_what_the_command_writes(name: str) -> None:
    assert with_parts(name, page(name)) == page(name)


def test_what_the_benchmark_demands_stands_on_the_page_of_the_detector_that_has_to_meet_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = {"is_ceiling": False, "holds": "holds", "note": "", "value": 0.96, "low": 0.91, "high": 0.99}
    names = ("explosion: confirmed", "level shift: found", "… in time")
    floors = [{"name": name, "bound": 0.95, "cases": 40, **figure} for name in names]
    (tmp_path / rates.QUALITY).write_text(json.dumps({"mode": "quick", "floors": floors}))
    monkeypatch.setattr(rates, "RESULTS", tmp_path)
    told = rates.rates_of("curve_drift")
    assert "| level shift: found | ≥ 0.95 | 0.96 [0.91, 0.99] | 40 | holds |" in told
    assert "… in time" in told
    assert "explosion" not in told


@pytest.mark.parametrize("name", NAMES)
def test_formulas_are_written_so_that_github_shows_them(name: str) -> None:
    inline = re.sub(r"```math.*?```|\$`.*?`\$", "", page(name), flags=re.DOTALL)
    assert "$" not in inline, (
        "an inline formula stands between $` and `$: of others Markdown eats backslashes"
    )
    assert r"\operatorname" not in page(name), "GitHub refuses it"


@pytest.mark.parametrize("stem", CHEAP)
def test_a_picture_is_drawn_from_the_detectors_own_numbers_to_the_same_bytes(stem: str) -> None:
    assert FIGURES[stem]().bytes == (PICTURES / f"{stem}.svg").read_bytes()

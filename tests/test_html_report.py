"""`firstfault replay --html`: one page that stands alone, whatever is in the log."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from service.html_page import html_report
from service.html_run import ShownRun

from .html_builders import HOSTILE_NAMES, csv_lines, judged_jobs, page_for
from .sample_builders import SAMPLE_LOGS
from .service_builders import a_verdict, an_incident, log_lines, write_log
from .test_cli_replay import Run, firstfault

__all__ = ["firstfault"]
VOID = {"meta", "br", "path", "line", "rect"}


class Outline(HTMLParser):
    """Tags with attributes, ids and text of a page; complains about tags that do not match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_the_page_begins_with_the_sentence_and_holds_what_the_report_says(tmp_path: Path) -> None:
    log = write_log(tmp_path / "bad.jsonl", log_lines("bad", odd_rank=3))
    outline = Outline(page_for(log))
    said = "Rank 3 holds other parameters than the other replicas since iteration 80."
    assert re.match(rf"bad: silent drift\. {said} bad {said} ◆ silent drift confirmed", outline.text)
    for words in (
        "hardware, after reduce",
        "Last good iteration 79",
        "checksum vote param_checksum 3",
        "Not checked",
    ):
        assert words in outline.text
    assert ": rank 3 differs from its replicas first, at iteration 80." in outline.text


def test_the_page_runs_no_script_and_loads_nothing(tmp_path: Path) -> None:
    log = write_log(tmp_path / "bad.jsonl", log_lines("bad", odd_rank=3, nan_rank=5))
    outline = Outline(page_for(log))
    names = {name for name, _ in outline.tags}
    assert names.isdisjoint(
        {"script", "img", "iframe", "object", "embed", "link", "form", "base", "use", "image"}
    )
    attributes = {key for _, given in outline.tags for key in given}
    assert {
        key for key in attributes if key.startswith("on") or key in {"style", "src", "xlink:href"}
    } == set()
    assert all(str(given["href"]).startswith("#") for _, given in outline.tags if given.get("href"))
    policies = [g["content"] for _, g in outline.tags if g.get("http-equiv") == "Content-Security-Policy"]
    assert str(policies[0]).startswith("default-src 'none'; style-src 'sha256-")
    assert "url(" not in page_for(log)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_is_text_wherever_it_stands(name: str) -> None:
    first = {
        "metric": name,
        "suspects": [{"rank": 3, "host": name, "device": name, "why": name}],
        "note": name,
    }
    advice = [{"action": name, "target": name, "command": name}]
    evidence = [{"detector": name, "metric": name, "ranks": [3], "iteration": 1, "detail": {name: [name]}}]
    causes = [{"kind": name, "stage": name, "confidence": 0.5, "because": [name]}]
    incident = an_incident(first=first, advice=advice, evidence=evidence, causes=causes)
    coverage = {"ranks": 8, "checks": [{"name": name, "state": "not_run", "why": name}], "notes": [name]}
    harmless = an_incident()
    told = html_report(
        [ShownRun(verdict=a_verdict(name, incident, coverage=coverage), recognised=[name])],
        command=name,
        unread=[name],
    )
    plain = html_report(
        [ShownRun(verdict=a_verdict("x", harmless), recognised=["x"])], command="x", unread=["x"]
    )
    outline = Outline(told)
    assert {tag for tag, _ in outline.tags} <= {tag for tag, _ in Outline(plain).tags}
    assert {key for _, given in outline.tags for key in given} <= {
        key for _, given in Outline(plain).tags for key in given
    }
    for character in "\x1b\u202e\u2066":
        assert character not in told


def test_equal_logs_give_equal_bytes(tmp_path: Path) -> None:
    log = write_log(tmp_path / "bad.jsonl", log_lines("bad", odd_rank=3))
    assert page_for(log) == page_for(log)


def test_a_nan_is_a_lane_and_no_gap(tmp_path: Path) -> None:
    losses = [3.0 - at / 100 for at in range(60)] + ["nan"] * 5 + ["inf"]
    page = page_for(write_log(tmp_path / "run.csv", csv_lines(losses)))
    assert 'class="bad-lane"' in page
    assert "NaN 5, Infinity 1" in page
    assert "6 values are NaN or infinite. Fault at iteration 60." in page


def test_one_extreme_value_in_many_rows_is_drawn(tmp_path: Path) -> None:
    losses = ["2.5"] * 20_000
    losses[13_456] = "3.75"
    (job,) = judged_jobs(write_log(tmp_path / "run.csv", csv_lines(losses)))
    buckets = job.runs[0].pictures[0].curves["loss"]
    assert len(buckets) <= 960
    assert max(bucket.greatest or 0.0 for bucket in buckets) == 3.75
    assert sum(bucket.last - bucket.first + 1 for bucket in buckets) == 20_000


def test_a_folder_of_runs_has_an_index_with_the_worst_first(tmp_path: Path) -> None:
    for at in range(40):
        write_log(tmp_path / f"run-{at}.csv", csv_lines([3.0 - i / 100 for i in range(80)]))
    write_log(tmp_path / "bad.csv", csv_lines([3.0 - i / 100 for i in range(80)] + ["nan"] * 20))
    outline = Outline(page_for(tmp_path))
    assert "41 runs: 1 faulty, 40 healthy" in outline.text
    links = [given["href"] for name, given in outline.tags if name == "a"]
    assert links == [f"#run{number}" for number in range(1, len(links) + 1)]
    assert len(links) == 24
    assert {given.get("id") for name, given in outline.tags if name == "article"} == {
        link[1:] for link in links if link
    }


def test_what_could_not_be_read_is_on_the_page(tmp_path: Path) -> None:
    good = write_log(tmp_path / "good.jsonl", log_lines("good"))
    empty = write_log(tmp_path / "empty.jsonl", [])
    assert "What could not be read" in page_for(good, empty)
    assert "empty.jsonl" in Outline(page_for(good, empty)).text


def test_thousands_of_ranks_fit_on_a_page(tmp_path: Path) -> None:
    lines = log_lines("wide", ranks=3000, iterations=3, odd_rank=1234, odd_from=2)
    page = page_for(write_log(tmp_path / "wide.jsonl", lines))
    assert len(page) < 200_000
    assert "▸ rank 1234" in page
    assert "3000 ranks, iterations 0 to 2: rank 1234 differs from its replicas first, at iteration 2." in page


def test_the_command_writes_the_page_beside_the_report(firstfault: Run, tmp_path: Path) -> None:
    log = write_log(tmp_path / "bad.jsonl", log_lines("bad", odd_rank=3))
    target = tmp_path / "report.html"
    status, out, _ = firstfault("replay", log, "--html", target)
    assert status == 1
    assert "silent drift. Rank 3 holds" in " ".join(out.split())
    assert target.read_text(encoding="utf-8").startswith('<!DOCTYPE html>\n<html lang="en">')
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_page_goes_to_standard_output_alone(firstfault: Run, tmp_path: Path) -> None:
    log = write_log(tmp_path / "good.jsonl", log_lines("good"))
    status, out, err = firstfault("replay", log, "--html", "-")
    assert status == 0
    assert out.startswith("<!DOCTYPE html>")
    assert out.endswith("</html>\n")
    assert err == ""


def test_a_page_never_takes_the_place_of_a_log(firstfault: Run, tmp_path: Path) -> None:
    log = write_log(tmp_path / "good.jsonl", log_lines("good"))
    before = log.read_bytes()
    status, _, err = firstfault("replay", log, "--html", tmp_path / "." / "good.jsonl")
    assert status == 2
    assert "would replace a log that is read" in err
    assert log.read_bytes() == before


def test_the_page_and_verdicts_cannot_both_go_to_standard_output(firstfault: Run, tmp_path: Path) -> None:
    log = write_log(tmp_path / "good.jsonl", log_lines("good"))
    status, out, err = firstfault("replay", log, "--html", "-", "--json")
    assert (status, out) == (2, "")
    assert "cannot both write to standard output" in err


def test_a_folder_is_no_place_for_a_page_and_nothing_is_left_behind(firstfault: Run, tmp_path: Path) -> None:
    log = write_log(tmp_path / "good.jsonl", log_lines("good"))
    (tmp_path / "out").mkdir()
    status, _, err = firstfault("replay", log, "--html", tmp_path / "out")
    assert status == 2
    assert "--html" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.jsonl", "out"]


def test_a_page_that_cannot_be_written_is_told_with_the_path(firstfault: Run, tmp_path: Path) -> None:
    log = write_log(tmp_path / "good.jsonl", log_lines("good"))
    status, _, err = firstfault("replay", log, "--html", tmp_path / "no" / "report.html")
    assert status == 2
    assert "--html" in err
    assert "No such file" in err


@pytest.mark.parametrize("log", ["restart"])
def test_a_sample_log_gives_a_page_of_moderate_size(log: str) -> None:
    page = page_for(SAMPLE_LOGS / f"{log}.jsonl.gz")
    Outline(page)
    assert 10_000 < len(page) < 120_000

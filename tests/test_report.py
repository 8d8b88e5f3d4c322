"""The plain report says what happened first, in 80 columns, and nothing in a name can act on a terminal."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.ink import WIDTH, Ink, clean, columns_of, cut, ink_for, wrap
from service.plot import Marks, draw, sparkline
from service.rank_words import rank_words
from service.report import Judged, report
from service.sentence import change_sentence, headline

from .service_builders import a_curve, a_verdict, an_incident

PLAIN = Ink(has_color=False, has_unicode=True)
ASCII = Ink(has_color=False, has_unicode=False)


def test_the_first_sentence_names_label_rank_host_and_interval() -> None:
    assert headline(a_verdict("llama-7b", an_incident())) == (
        "llama-7b: silent drift. Rank 3 (host node-07) holds other parameters than the other replicas since"
        " iteration 1200 (between 1190 and 1200)."
    )


@pytest.mark.parametrize(
    ("first", "who"),
    [
        (
            {"ranks": [2, 6], "rank_count": 2, "tie": True, "suspects": []},
            "One of ranks 2 and 6 (",
        ),
        ({"ranks": [0, 1, 2, 7], "rank_count": 4, "suspects": []}, "Ranks 0-2 and 7 hold other"),
        ({"ranks": [], "rank_count": 8, "scope": "all", "suspects": []}, "All 8 ranks hold other"),
        ({"ranks": [], "rank_count": 0, "scope": "unknown", "suspects": []}, "The run holds other"),
        ({"interval": [None, 1200]}, "since iteration 1200 (it was never seen clean before)."),
        ({"attempt": 2}, "since iteration 1200 of attempt 2 (between"),
    ],
)
def test_the_sentence_follows_what_is_known_of_ranks_and_interval(first: dict[str, object], who: str) -> None:
    assert who in headline(a_verdict("r", an_incident(first=first)))


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ({"ranks": [], "scope": "unknown"}, "The gradient norm grows without end since iteration 1200 ("),
        ({"ranks": [], "scope": "all"}, "The gradient norm of all 8 ranks grows without end since"),
        ({}, "The gradient norm of rank 3 (host node-07) grows without end since iteration 1200"),
    ],
)
def test_a_curve_that_goes_wrong_is_the_subject_of_its_sentence(first: dict[str, object], said: str) -> None:
    incident = an_incident(
        label="gradient_explosion", pattern="runaway", first={**first, "metric": "grad_norm"}
    )
    assert headline(a_verdict("r", incident)).startswith(f"r: gradient explosion. {said}")


def test_a_healthy_run_is_one_sentence_and_what_was_checked() -> None:
    text = report([Judged("a", a_verdict("gpt"), "loss", a_curve())], PLAIN)
    assert text.startswith("gpt: healthy. No fault visible up to iteration 1840.\n")
    assert "Checked      up to iteration 1840: nonfinite" in text
    assert "Not checked  repeat: no rank repeats a computation" in text
    assert "Blind to     compute faults before the reduction: no canary" in text


def test_a_suspicion_is_told_but_not_as_the_verdict() -> None:
    text = headline(a_verdict("gpt", an_incident(certainty="suspected")))
    assert text.startswith("gpt: healthy. No fault visible up to iteration 1840. Not confirmed: Rank 3")


def test_a_spike_that_recovered_is_told_without_causes_or_advice() -> None:
    spike = an_incident(pattern="sharp_degrade", certainty="recovered", first={"metric": "loss"})
    text = report([Judged("a", a_verdict("gpt", spike), "loss", a_curve(1841))], PLAIN)
    told = "The loss of rank 3 (host node-07) left its course at iteration 1200 and recovered."
    assert told in " ".join(text.split())
    assert "spike that recovered after 1190, by 1200" in text
    assert "Cause" not in text
    assert "What to do" not in text
    assert "last good" not in text


def test_a_curve_of_a_later_attempt_says_which() -> None:
    text = report([Judged("a", a_verdict("gpt"), "loss", a_curve(), attempt=2)], PLAIN)
    assert "loss, median of 8 ranks, attempt 2" in text


def test_an_undetermined_run_says_why() -> None:
    checks = [{"name": "explosion", "state": "not_run", "why": "3 iterations are too few"}]
    verdict = a_verdict("x", label="undetermined", coverage={"checks": checks, "ranks": 1})
    assert headline(verdict) == "x: undetermined. No check could run: 3 iterations are too few."


def test_the_report_gives_cause_last_good_checkpoint_cost_and_advice() -> None:
    text = report([Judged("a", a_verdict("llama-7b", an_incident()), "loss", a_curve(1841))], PLAIN)
    unwrapped = " ".join(text.split())
    assert "Cause        hardware, after reduce (confidence 60%): one rank" in text
    assert "Last good iteration 1190 (proved); restore /ckpt/iter_1000 (of iteration 1000)" in unwrapped
    assert "640 to 650 iterations since the onset, 840 to redo, 42.5 device hours" in unwrapped
    assert "$ cordon node-07" in text
    assert "checksum_vote" in text


def test_several_runs_begin_with_a_table_worst_first_and_only_faulty_ones_are_told_in_full() -> None:
    judged = [Judged("a", a_verdict("good")), Judged("b", a_verdict("bad", an_incident()))]
    lines = report(judged, PLAIN).splitlines()
    assert lines[0] == "2 runs: 1 faulty, 1 healthy"
    assert [line.split()[0] for line in lines[4:6]] == ["bad", "good"]
    assert not any(line.startswith("good: healthy") for line in lines)


@pytest.mark.parametrize("ink", [PLAIN, ASCII])
def test_every_line_fits_80_columns(ink: Ink) -> None:
    first = {"ranks": list(range(0, 400, 3)), "rank_count": 134, "suspects": [], "metric": "m" * 200}
    incident = an_incident(
        first=first,
        causes=[
            {"kind": "hardware", "stage": "unknown", "confidence": 1, "because": ["word " * 60, "x" * 99]}
        ],
        last_good={"iteration": 1, "checkpoint": "/a" * 150, "basis": "assumed"},
    )
    verdict = a_verdict("長い名前" * 40, incident)
    text = report([Judged("a", verdict, "loss", a_curve(500, nan_from=300))] * 2, ink)
    assert [line for line in text.splitlines() if columns_of(line) > WIDTH] == []


def test_without_unicode_the_report_is_pure_ascii() -> None:
    text = report([Judged("a", a_verdict("r", an_incident()), "loss", a_curve(2000, nan_from=1500))], ASCII)
    assert text.isascii()


def test_without_color_no_escape_is_written_and_with_it_some_are() -> None:
    judged = [Judged("a", a_verdict("r", an_incident()), "loss", a_curve())]
    assert "\x1b" not in report(judged, PLAIN)
    assert "\x1b[" in report(judged, Ink(has_color=True))


@pytest.mark.parametrize("name", ["\x1b]0;owned\x07", "a\nb: healthy.", "\u202eevil", "\x9b31m", "\ud800"])
def test_control_characters_in_names_never_reach_the_terminal(name: str) -> None:
    first = {"suspects": [{"rank": 3, "host": name, "device": name, "why": name}], "metric": name}
    incident = an_incident(first=first, advice=[{"action": name, "target": name, "command": name}])
    verdict = a_verdict(name, incident, annotations=[{"kind": name, "iteration": 3, "detail": {name: name}}])
    text = report([Judged(name, verdict, name, a_curve())] * 2, PLAIN)
    assert all(character.isprintable() or character == "\n" for character in text)


def test_a_nan_stretch_is_marked_in_its_own_lane_and_the_curve_stops_before_it() -> None:
    lines = draw(a_curve(400, nan_from=200), Marks(onset=200), PLAIN, title="loss")
    lane = next(line for line in lines if line.startswith("NaN, Inf"))
    assert lane.count("✗") == 34  # the right half of 68 columns
    curve_ends = max(len(line) for line in lines[1:9])
    assert curve_ends <= 10 + 35


def test_the_onset_arrow_stands_under_its_iteration() -> None:
    lines = draw(a_curve(400), Marks(onset=200, last_clean=100, last_good=100), PLAIN, title="loss")
    mark = next(line for line in lines if "▲" in line and "fault" not in line)
    assert mark.index("▲") == 10 + 200 * 68 // 400
    assert mark.index("◆") == 10 + 100 * 68 // 400
    assert "fault after 100, by 200" in "\n".join(lines)


def test_an_exploding_curve_is_drawn_on_a_log_axis() -> None:
    assert "log scale" in draw(a_curve(400, grows_from=300), Marks(), PLAIN, title="loss")[0]
    assert "log scale" not in draw(a_curve(400), Marks(), PLAIN, title="loss")[0]


def test_a_curve_without_one_finite_value_still_shows_its_nan_lane() -> None:
    lines = draw(a_curve(50, nan_from=0), Marks(onset=0), PLAIN, title="loss")
    assert any(line.startswith("NaN, Inf") and "✗" in line for line in lines)


def test_a_sparkline_marks_a_bucket_with_nan() -> None:
    assert sparkline([1.0, 2.0, float("nan"), 3.0], PLAIN, 4) == "▁▅✗█"


@pytest.mark.parametrize(
    ("kind", "before", "said"),
    [
        ("new", None, "r: silent drift. Rank 3"),
        ("withdrawn", an_incident(), "r: silent drift withdrawn."),
        ("changed", an_incident(first={"iteration": 1100}), "r: silent drift. Rank 3"),
        ("changed", an_incident(severity="warning"), ""),
    ],
)
def test_the_worker_repeats_itself_only_when_something_essential_changed(
    kind: str, before: dict[str, object] | None, said: str
) -> None:
    sentence = change_sentence(kind, an_incident(), before, a_verdict("r", an_incident()))
    assert sentence.startswith(said)
    assert bool(sentence) == bool(said)


def test_many_ranks_are_ranges_and_a_count() -> None:
    assert rank_words([1, 3, 5, 7, 9, 11, 13, 15], 1000) == "1, 3, 5, 7, 9, 11 and 994 more"


def test_color_needs_a_terminal_and_no_color_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert ink_for(Terminal()) == Ink(has_color=True, has_unicode=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not ink_for(Terminal()).has_color
    assert not ink_for(io.StringIO()).has_color


@given(st.text(max_size=120), st.integers(2, 100))
def test_clean_text_is_printable_and_fits(text: str, columns: int) -> None:
    shown = clean(text, columns)
    assert shown.isprintable()
    assert columns_of(shown) <= columns


@given(st.text(max_size=300), st.integers(20, 100))
def test_wrapping_loses_no_word_and_keeps_the_width(text: str, width: int) -> None:
    lines = wrap(text, "* ", "  ", width)
    assert all(columns_of(line) <= width for line in lines)
    assert "".join("".join(line[2:] for line in lines).split()) == "".join(text.split())


def test_cutting_says_that_something_is_gone() -> None:
    assert cut("abcdefgh", 5) == "abc.."


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("result_differs", "Rank 3 (host node-07) gets another reduced gradient of bucket 7 than the others"),
        ("contribution_missing", "counts for nothing in the reduced gradient of bucket 7 since"),
        ("contribution_doubled", "counts twice in the reduced gradient of bucket 7 since"),
    ],
)
def test_a_wrong_reduction_is_told_by_what_is_wrong_with_it(fault: str, said: str) -> None:
    evidence = [{"ranks": [3], "detail": {"reduction": fault}}]
    incident = an_incident(
        pattern="collective_mismatch", first={"metric": "grad_sketch_out/7"}, evidence=evidence
    )
    assert said in headline(a_verdict("r", incident))


def test_a_reduction_that_is_wrong_for_everybody_is_itself_the_subject() -> None:
    first = {"ranks": [], "rank_count": 8, "scope": "all", "tie": True, "metric": "grad_sketch_out"}
    incident = an_incident(
        pattern="collective_mismatch", first=first, evidence=[{"detail": {"reduction": "sum_differs"}}]
    )
    assert (
        "The reduction over 8 ranks gives another gradient than the sum of what goes in since iteration 1200"
        in headline(a_verdict("r", incident))
    )

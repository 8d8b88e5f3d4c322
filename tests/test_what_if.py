"""What other settings would have said of a stored run: told where history holds it whole, else refused."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from detectors.verdict import canonical_bytes
from service.config import Settings, setting_keys, with_changes
from service.errors import ConfigError
from service.history_config import HistoryConfig
from service.history_writer import HistoryWriter
from service.pipeline import Pipeline
from service.verdict_difference import Kind, difference
from service.what_if_desk import Desk, DeskBusy
from service.what_if_history import CannotRejudge, Question, rejudged

from .api_builders import Seeded, seeded, wait_until
from .service_builders import a_verdict, an_incident, batches_of, log_lines

Json = dict[str, Any]
LATENESS = 64


@dataclass
class Watched:
    """A service whose worker has judged one run and keeps its history."""

    api: Seeded
    run_id: str
    verdict: Json
    folder: Path

    def ask(self, **settings: Any) -> Any:
        named = {f"detectors.{name.replace('__', '.')}": value for name, value in settings.items()}
        return self.api.client().post(f"/v1/runs/{self.run_id}/what-if", json={"settings": named})


def growing(iterations: int = 400, grows_from: int = 250, factor: float = 20.0) -> list[bytes]:
    """A log whose gradient norm grows by ``factor`` in all, and stays finite."""
    lines = []
    for t in range(iterations):
        for rank in range(2):
            wobble = 1.0 + 0.05 * math.sin(7919 * t + rank)
            norm = wobble * (1.0 if t < grows_from else min(factor, 1.05 ** (t - grows_from)))
            record = {"run": "job", "rank": rank, "iteration": t, "loss": 2.0 + wobble, "grad_norm": norm}
            lines.append(json.dumps(record).encode())
    return lines


def recorded(folder: Path, lines: list[bytes], config: HistoryConfig | None = None) -> Json:
    """Judge the lines and keep their history; the verdict."""
    history = HistoryWriter(folder, config)
    pipeline = Pipeline(on_block=history.update)
    for batch in batches_of(lines):
        pipeline.feed(batch)
    (run,) = pipeline.runs
    for aligner in pipeline.aligners(run):
        history.show_pending(aligner.pending(), is_quiet=True)
    history.close()
    verdict: Json = json.loads(canonical_bytes(pipeline.verdict(run)))
    return verdict


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    folder = tmp_path / "history"
    verdict = recorded(folder, log_lines("job", iterations=200, odd_rank=3, odd_from=120))
    with seeded(tmp_path, history_folder=folder) as api:
        yield Watched(api, api.put_verdict(verdict), verdict, folder)


def question(folder: Path, verdict: Json, **changes: Any) -> Question:
    from service.run_id import run_id_of

    before = Settings()
    return Question(
        folder=folder,
        run_id=run_id_of(verdict["run"]),
        verdict=verdict,
        before=before.detectors,
        after=with_changes(before, changes).detectors,
        lateness_iterations=LATENESS,
    )


def test_the_same_settings_say_the_same_of_what_history_holds(watched: Watched) -> None:
    again = rejudged(question(watched.folder, watched.verdict))
    assert [one.kind for one in difference(watched.verdict, again)] == [Kind.STAYS]
    assert again["incidents"][0]["first"]["iteration"] == 120


def test_other_settings_make_an_incident_vanish_or_less_certain(tmp_path: Path) -> None:
    small, large = (recorded(tmp_path / str(factor), growing(factor=factor)) for factor in (6.0, 20.0))
    deaf = {"detectors.explosion.norm_rise": 30.0, "detectors.explosion.norm_slow_rise": 60.0}
    calm = {"detectors.explosion.ten_fold": 50.0, "detectors.explosion.norm_hold": 100.0}
    (gone,) = difference(small, rejudged(question(tmp_path / "6.0", small, **deaf, **calm)))
    assert (gone.kind, gone.after) == (Kind.VANISHES, None)
    (doubted,) = difference(large, rejudged(question(tmp_path / "20.0", large, **calm)))
    assert doubted.kind is Kind.CHANGES
    assert ("certainty", "confirmed", "suspected") in doubted.changed


def test_over_the_api_a_run_is_judged_again_in_a_process_of_its_own(watched: Watched) -> None:
    asked = watched.ask(stall__silent_iterations=Settings().detectors.stall.silent_iterations)
    assert asked.status_code in (200, 202), asked.text
    place = asked.headers["location"]
    wait_until(lambda: watched.api.client().get(place).json()["state"] != "running", 120.0)
    told = watched.api.client().get(place).json()
    assert (told["state"], told["refusal"]) == ("done", "")
    assert [one["kind"] for one in told["differences"]] == ["stays"]
    assert told["before"] == told["after"]
    assert watched.api.client().get(f"/v1/runs/0123456789abcdef/what-if/{told['id']}").status_code == 404


def test_a_run_of_which_history_lost_the_beginning_is_refused(tmp_path: Path) -> None:
    few = HistoryConfig(recorder_iterations=16, recorder_bytes=0, flush_every_s=0.0)
    history, pipeline = HistoryWriter(tmp_path, few), Pipeline()
    pipeline.on_block = history.update
    for at, batch in enumerate(batches_of(log_lines("job", iterations=400))):
        pipeline.feed(batch)
        history.maybe_flush(float(at))
    history.close()
    verdict = json.loads(canonical_bytes(pipeline.verdict("job")))
    with pytest.raises(CannotRejudge, match=r"of attempt 0 \(iterations 0 to 399\) values of single ranks"):
        rejudged(question(tmp_path, verdict))


def test_a_verdict_that_history_does_not_give_again_is_refused(watched: Watched) -> None:
    other = a_verdict("job", an_incident(), attempts=watched.verdict["attempts"])
    with pytest.raises(CannotRejudge, match="the stored history gives another verdict"):
        rejudged(question(watched.folder, other))


def test_more_values_than_may_be_judged_at_once_are_refused(watched: Watched) -> None:
    from dataclasses import replace

    with pytest.raises(CannotRejudge, match="more than 100 values are kept"):
        rejudged(replace(question(watched.folder, watched.verdict), max_values=100))


def test_without_history_the_api_says_so(tmp_path: Path) -> None:
    with seeded(tmp_path) as api:
        run_id = api.put("job", an_incident())
        body = {"settings": {"detectors.explosion.loss_hold": 2.0}}
        refused = api.client().post(f"/v1/runs/{run_id}/what-if", json=body)
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:firstfault:problem:cannot-rejudge")
        assert api.client().post("/v1/runs/0123456789abcdef/what-if", json=body).status_code == 404


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"detectors.explosion.los_hold": 2.0}, "unknown key"),
        ({"detectors.explosion.loss_hold": "much"}, "must be a number"),
        ({"store.url": "postgresql://x"}, "only settings of detectors can be tried"),
        ({}, "at least 1 item"),
    ],
)
def test_settings_are_checked_as_those_of_the_file(watched: Watched, settings: Json, words: str) -> None:
    refused = watched.api.client().post(f"/v1/runs/{watched.run_id}/what-if", json={"settings": settings})
    assert refused.status_code == 422
    assert words in refused.json()["detail"]


def test_one_question_at_a_time(watched: Watched) -> None:
    desk: Desk = watched.api.app.state.desk
    first = desk.ask(question(watched.folder, watched.verdict), {})
    with pytest.raises(DeskBusy):
        desk.ask(question(watched.folder, watched.verdict), {})
    assert watched.ask(explosion__loss_hold=Settings().detectors.explosion.loss_hold).status_code == 503
    desk.wait(first, 120.0)
    assert first.state == "done"


def test_a_question_that_takes_too_long_ends_in_a_refusal(watched: Watched) -> None:
    desk = Desk(limit_s=0.01)
    asked = desk.ask(question(watched.folder, watched.verdict), {})
    desk.wait(asked, 60.0)
    assert (asked.state, asked.after) == ("refused", None)
    assert "took longer than 0.01 s" in asked.refusal


def test_a_desk_that_is_closed_ends_what_it_is_asked(watched: Watched) -> None:
    desk = Desk()
    asked = desk.ask(question(watched.folder, watched.verdict), {})
    desk.close()
    desk.wait(asked, 60.0)
    assert (asked.state, asked.after, asked.refusal) == ("refused", None, "the service is ending")


def test_a_question_whose_process_cannot_be_started_is_refused_and_holds_up_no_other(
    watched: Watched,
) -> None:
    class Broken(Desk):
        def _in_a_process(self, _: Question) -> Any:
            raise OSError("no process is left")

    desk = Broken()
    for _ in range(2):
        asked = desk.ask(question(watched.folder, watched.verdict), {})
        desk.wait(asked, 10.0)
        assert (asked.state, asked.refusal) == (
            "refused",
            "it could not be judged again here: no process is left",
        )


def test_what_can_be_tried_is_listed_with_what_it_is_now(watched: Watched) -> None:
    listed = watched.api.client().get("/v1/detectors/settings").json()["items"]
    values = {one["name"]: one["value"] for one in listed}
    assert values["detectors.explosion.loss_hold"] == Settings().detectors.explosion.loss_hold
    assert sorted(values) == sorted(name for name in setting_keys() if name.startswith("detectors."))


def test_a_change_keeps_what_is_set_beside_it() -> None:
    base = with_changes(Settings(), {"detectors.explosion.loss_hold": 0.25})
    both = with_changes(base, {"detectors.stall.silent_iterations": 77})
    assert (both.detectors.explosion.loss_hold, both.detectors.stall.silent_iterations) == (0.25, 77)
    with pytest.raises(ConfigError, match="unknown key"):
        with_changes(base, {"detectors.nothing.at_all": 1})


def place(iteration: int, metric: str = "loss", attempt: int = 0) -> Json:
    return {
        "iteration": iteration,
        "interval": [iteration - 1, iteration],
        "metric": metric,
        "attempt": attempt,
    }


def test_incidents_are_paired_by_what_they_are_and_not_by_their_ids() -> None:
    before = a_verdict(
        "job",
        an_incident(id="1", first=place(100)),
        an_incident(id="2", first=place(900), pattern="stuck"),
    )
    after = a_verdict(
        "job",
        an_incident(id="1", first=place(20, "grad_norm"), pattern="runaway", label="gradient_explosion"),
        an_incident(id="2", first=place(110), certainty="suspected"),
    )
    told = difference(before, after)
    assert [one.kind for one in told] == [Kind.APPEARS, Kind.MOVES, Kind.VANISHES]
    assert ("first.iteration", 100, 110) in told[1].changed
    assert ("certainty", "confirmed", "suspected") in told[1].changed
    same = difference(before, before)
    assert [(one.kind, one.changed) for one in same] == [(Kind.STAYS, ()), (Kind.STAYS, ())]


def test_an_incident_seen_as_something_else_at_the_same_place_changes() -> None:
    before = a_verdict("job", an_incident(first=place(100), detected_at_iteration=150))
    after = a_verdict("job", an_incident(first=place(100), detected_at_iteration=190))
    (told,) = difference(before, after)
    assert (told.kind, told.changed) == (Kind.CHANGES, (("detected_at_iteration", 150, 190),))
    elsewhere = a_verdict("job", an_incident(first=place(100, attempt=1)))
    assert [one.kind for one in difference(before, elsewhere)] == [Kind.VANISHES, Kind.APPEARS]

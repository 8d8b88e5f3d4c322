"""Curves and matrices over HTTP: extremes and what is no number survive, and what was left out is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from service.api.settings import ApiConfig

from .api_builders import Json, Seeded, seeded
from .block_builders import block
from .history_builders import named, noise, write
from .service_builders import an_incident


@dataclass
class Kept:
    """A run in the store, and the folder of its history."""

    api: Seeded
    folder: Path
    run_id: str

    def client(self) -> TestClient:
        """A client of the API."""
        return self.api.client()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Kept]:
    folder = tmp_path / "history"
    config = ApiConfig(max_curve_points=500, max_matrix_cells=400)
    with seeded(tmp_path, config, history_folder=folder) as one:
        yield Kept(one, folder, one.put("run", an_incident()))


def curve(api: Kept, **asked: Any) -> Json:
    answer = api.client().get(f"/v1/runs/{api.run_id}/curves", params={"metric": "loss", **asked})
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def matrix(api: Kept, **asked: Any) -> Json:
    answer = api.client().get(f"/v1/runs/{api.run_id}/matrix", params={"metric": "loss", **asked})
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def odd(value: float, other: float = 1.0) -> Any:
    """Four iterations of two ranks, the second of which rank 0 reports ``value`` at."""
    values_TR = np.array([[1.0, 2.0], [value, other], [3.0, 4.0], [5.0, 6.0]])
    return block({"loss": values_TR})


def test_a_curve_says_per_iteration_what_the_ranks_reported(api: Kept) -> None:
    write(api.folder, odd(9.0))
    found = curve(api)
    columns = found["columns"]
    assert (found["attempt"], found["attempts"], found["is_downsampled"]) == (0, [0], False)
    assert columns["iteration"] == [0, 1, 2, 3]
    assert columns["max"] == [2.0, 9.0, 4.0, 6.0]
    assert columns["max_rank"] == [1, 0, 1, 1]
    assert columns["median"] == [1.5, 5.0, 3.5, 5.5]
    assert columns["microbatch"] == [None] * 4
    assert {len(column) for column in columns.values()} == {4}


@pytest.mark.parametrize(
    ("value", "text", "count"),
    [(np.nan, "NaN", "nan"), (np.inf, "Infinity", "posinf"), (-np.inf, "-Infinity", "neginf")],
)
def test_what_is_not_finite_is_counted_and_where_nothing_is_finite_it_is_text(
    api: Kept, value: float, text: str, count: str
) -> None:
    write(api.folder, odd(value), odd_at(4, value))
    columns = curve(api)["columns"]
    assert columns[count] == [0, 1, 0, 0, 2]
    assert columns["max"] == [2.0, 1.0, 4.0, 6.0, text]
    assert columns["median"][4] == columns["min"][4] == text
    assert columns["max_rank"][4] is None


def odd_at(iteration: int, value: float) -> Any:
    """One iteration at which both ranks report ``value``."""
    return block({"loss": np.array([[value, value]])}, iterations=np.array([iteration]))


def test_infinities_of_both_signs_are_told_apart(api: Kept) -> None:
    write(api.folder, block({"loss": np.array([[np.inf, -np.inf]])}))
    columns = curve(api)["columns"]
    assert (columns["min"], columns["median"], columns["max"]) == (["-Infinity"], ["NaN"], ["Infinity"])


def test_a_spike_survives_downsampling_which_is_said(api: Kept) -> None:
    values_TR = np.ones((10_000, 2))
    values_TR[7_321, 1] = 99.0
    values_TR[1_234, 0] = np.nan
    write(api.folder, block({"loss": values_TR}))
    found = curve(api, points=50)
    columns = found["columns"]
    assert found["is_downsampled"] is True
    assert len(columns["iteration"]) <= 50
    assert max(columns["max"]) == 99.0
    assert columns["max_rank"][columns["max"].index(99.0)] == 1
    assert sum(columns["nan"]) == 1
    assert sum(columns["positions"]) == 10_000


def test_a_range_is_inclusive_at_both_ends(api: Kept) -> None:
    write(api.folder, noise(100))
    columns = curve(api, **{"from": 10, "to": 20})["columns"]
    assert columns["iteration"] == list(range(10, 21))
    assert curve(api, **{"from": 5000})["columns"]["iteration"] == []


def test_the_latest_attempt_is_shown_unless_another_is_asked_for(api: Kept) -> None:
    write(api.folder, noise(5), noise(7, attempt=2))
    assert (curve(api)["attempt"], curve(api)["attempts"]) == (2, [0, 2])
    assert len(curve(api, attempt=0)["columns"]["iteration"]) == 5


def test_what_is_not_kept_is_said_with_what_is(api: Kept) -> None:
    client, path = api.client(), f"/v1/runs/{api.run_id}/curves"
    assert "no history" in client.get(path, params={"metric": "loss"}).json()["detail"]
    write(api.folder, noise(5))
    missing = client.get(path, params={"metric": "lss"})
    assert (missing.status_code, missing.json()["type"]) == (404, "urn:firstfault:problem:not-kept")
    assert missing.json()["detail"] == "no curve of 'lss' is kept; there are: loss"
    assert client.get(path, params={"metric": "loss", "attempt": 1}).status_code == 404


def test_who_asks_what_may_be_gone_is_told_so_without_an_error(api: Kept) -> None:
    write(api.folder, noise(5))
    client, lenient = api.client(), {"Prefer": "respond-async, Handling=lenient"}
    for path, asked in (("curves", {"metric": "lss"}), ("matrix", {"metric": "lss"}), ("checksums", {})):
        strict = client.get(f"/v1/runs/{api.run_id}/{path}", params=asked)
        told = client.get(f"/v1/runs/{api.run_id}/{path}", params=asked, headers=lenient)
        assert (strict.status_code, told.status_code) == (404, 200)
        assert told.headers["preference-applied"] == "handling=lenient"
        assert told.headers["content-type"] == "application/problem+json"
        assert "etag" not in told.headers
        assert {**told.json(), "instance": ""} == {**strict.json(), "instance": ""}
    assert client.get("/v1/runs/0123456789abcdef", headers=lenient).status_code == 404


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"metric": ""},
        {"metric": "loss", "points": 501},
        {"metric": "loss", "from": -1},
        {"metric": "loss", "from": 2**63},
    ],
)
def test_a_question_that_makes_no_sense_is_refused(api: Kept, asked: Json) -> None:
    assert api.client().get(f"/v1/runs/{api.run_id}/curves", params=asked).status_code == 422


def test_a_matrix_holds_every_cell_and_keeps_missing_and_nan_apart(api: Kept) -> None:
    settled = noise(40)
    write(api.folder, settled)
    found = matrix(api)
    assert (found["iteration"], found["ranks"], found["is_cut"]) == (list(range(40)), [0, 1, 2, 3], False)
    loss = settled.numbers["loss"]
    wanted = [
        [_cell(value, present) for value, present in zip(values, presents, strict=True)]
        for values, presents in zip(loss.values_TR.tolist(), loss.present_TR.tolist(), strict=True)
    ]
    assert found["values"] == wanted
    assert {"NaN", "Infinity", "-Infinity", None} <= {cell for row in wanted for cell in row}


def test_checksums_are_text(api: Kept) -> None:
    write(api.folder, noise(3))
    rows = matrix(api, metric="param_checksum")["values"]
    assert all(isinstance(cell, str) and int(cell, 16) >= 0 for row in rows for cell in row)


def test_a_matrix_that_is_too_large_is_cut_at_its_front_and_says_so(api: Kept) -> None:
    write(api.folder, noise(500))
    found = matrix(api)
    assert found["is_cut"] is True
    assert found["iteration"][-1] == 499
    assert len(found["iteration"]) * len(found["ranks"]) <= 400


def test_some_ranks_can_be_asked_for(api: Kept) -> None:
    write(api.folder, noise(10, ranks=6))
    assert matrix(api, ranks="0,3-4")["ranks"] == [0, 3, 4]
    for ranks in ("", "a", "1-", "3,,4", "0-9999999999"):
        answer = api.client().get(f"/v1/runs/{api.run_id}/matrix", params={"metric": "loss", "ranks": ranks})
        assert answer.status_code == 422


def test_the_window_of_an_incident_is_shown_and_that_of_another_run_is_not(api: Kept) -> None:
    other = api.api.put("other", an_incident(id="b1"))
    path = "matrix?metric=loss&incident=a1"
    writer = write(api.folder, noise(500), named(noise(5), "other"))
    assert api.client().get(f"/v1/runs/{api.run_id}/{path}").status_code == 404
    assert writer.freeze("a1", "run", 0, (200, 210))
    found = matrix(api, incident="a1", ranks="2")
    assert (found["incident_id"], found["ranks"]) == ("a1", [2])
    first, last = found["iteration"][0], found["iteration"][-1]
    assert 0 < first < 200
    assert 210 < last < 499
    assert api.client().get(f"/v1/runs/{other}/{path}").status_code == 404


def _cell(value: float, present: bool) -> float | str | None:
    if not present:
        return None
    if np.isfinite(value):
        return value
    return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"

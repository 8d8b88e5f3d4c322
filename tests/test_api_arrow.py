"""Curves and matrices as Arrow streams say what they say as JSON, number by number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from .api_builders import Json, seeded
from .block_builders import block
from .history_builders import noise, write
from .service_builders import an_incident

ARROW = "application/vnd.apache.arrow.stream"
_TEXTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class Kept:
    """A run with a history, asked both ways."""

    def __init__(self, client: TestClient, run_id: str) -> None:
        self._client, self._path = client, f"/v1/runs/{run_id}"

    def json(self, what: str, **asked: Any) -> Json:
        answer = self._client.get(f"{self._path}/{what}", params=asked)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    def arrow(self, what: str, **asked: Any) -> pa.Table:
        answer = self._client.get(f"{self._path}/{what}", params=asked, headers={"Accept": ARROW})
        assert (answer.status_code, answer.headers["content-type"]) == (200, ARROW)
        with pa.ipc.open_stream(answer.content) as reader:
            table = reader.read_all()
        table.validate(full=True)
        return table


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    folder = tmp_path / "history"
    with seeded(tmp_path, history_folder=folder) as api:
        run_id = api.put("run", an_incident())
        odd_TR = np.array([[np.nan, np.inf, 1.0, 2.0], [np.nan] * 4, [-np.inf] * 4, [2.0**70, 0.0, 1.0, 1.0]])
        write(folder, noise(40), block({"loss": odd_TR}, iterations=np.arange(2**53 + 40, 2**53 + 44)))
        yield Kept(api.client(), run_id)


def number(cell: Any) -> Any:
    """A cell of JSON as Arrow has it."""
    return _TEXTS[cell] if isinstance(cell, str) and cell in _TEXTS else cell


def test_a_curve_is_the_same_in_both_forms(kept: Kept) -> None:
    told, table = kept.json("curves", metric="loss"), kept.arrow("curves", metric="loss")
    assert set(table.column_names) == set(told["columns"])
    for name, cells in told["columns"].items():
        column = table[name].to_pylist()
        if name == "time":
            assert [None if at is None else datetime.fromisoformat(at) for at in cells] == column
        elif name in ("iteration", "last_iteration"):
            assert [int(cell) for cell in cells] == column
        else:
            np.testing.assert_array_equal([number(cell) for cell in cells], column)
    assert table["iteration"].to_pylist()[-1] == 2**53 + 43
    assert told["columns"]["iteration"][-1] == str(2**53 + 43)


def test_what_is_beside_the_columns_is_in_the_schema(kept: Kept) -> None:
    told, table = kept.json("curves", metric="loss", points=7), kept.arrow("curves", metric="loss", points=7)
    head = json.loads(table.schema.metadata[b"firstfault"])
    assert head == {name: value for name, value in told.items() if name != "columns"}
    assert head["is_downsampled"] is True
    matrix = json.loads(kept.arrow("matrix", metric="loss").schema.metadata[b"firstfault"])
    assert (matrix["ranks"], matrix["is_cut"]) == ([0, 1, 2, 3], False)


@pytest.mark.parametrize("metric", ["loss", "param_checksum"])
def test_a_matrix_is_the_same_in_both_forms(kept: Kept, metric: str) -> None:
    told, table = kept.json("matrix", metric=metric), kept.arrow("matrix", metric=metric)
    assert table["iteration"].to_pylist() == [int(one) for one in told["iteration"]]
    for cells, listed in zip(told["values"], table["values"].to_pylist(), strict=True):
        for cell, value in zip(cells, listed, strict=True):
            assert (cell is None) == (value is None)
            if cell is not None:
                np.testing.assert_equal(value, number(cell))


def test_a_client_that_prefers_json_or_names_nothing_gets_json(kept: Kept) -> None:
    client, path = kept._client, f"{kept._path}/curves?metric=loss"
    for accepted, media_type in (
        ("*/*", "application/json"),
        ("text/html", "application/json"),
        (f"{ARROW};q=0", "application/json"),
        (f"{ARROW};q=0.2, application/json", "application/json"),
        (f"application/json;q=0.9, {ARROW}", ARROW),
    ):
        assert client.get(path, headers={"Accept": accepted}).headers["content-type"] == media_type


def test_a_curve_of_some_ranks_is_made_of_them_alone(kept: Kept) -> None:
    matrix = kept.json("matrix", metric="loss", ranks="1,3")
    found = kept.json("curves", metric="loss", ranks="1,3")
    assert (found["ranks"], kept.json("curves", metric="loss")["ranks"]) == ([1, 3], None)
    cells = [[number(cell) for cell in row if cell is not None] for row in matrix["values"]]
    finite = [[cell for cell in row if np.isfinite(cell)] for row in cells]
    maxima = [number(one) for one in found["columns"]["max"]]
    assert [max(row) for row in finite if row] == [
        one for one, row in zip(maxima, finite, strict=True) if row
    ]
    assert found["columns"]["nan"] == [sum(np.isnan(cell) for cell in row) for row in cells]


def test_a_curve_of_some_ranks_keeps_extremes_when_it_is_thinned(kept: Kept) -> None:
    whole = kept.json("curves", metric="loss", ranks="0-1")
    thin = kept.json("curves", metric="loss", ranks="0-1", points=5)
    assert (thin["is_downsampled"], len(thin["columns"]["max"])) == (True, 5)
    finite = [
        [one for one in map(number, found["columns"]["max"]) if np.isfinite(one)] for found in (thin, whole)
    ]
    assert max(finite[0]) == max(finite[1]) == 2.0**70
    for kind in ("nan", "posinf", "neginf", "reported"):
        assert sum(thin["columns"][kind]) == sum(whole["columns"][kind])


def test_ranks_of_which_nothing_is_kept_are_told(kept: Kept) -> None:
    path = f"{kept._path}/curves"
    for asked in ({"metric": "loss", "ranks": "99"}, {"metric": "param_checksum", "ranks": "0"}):
        answer = kept._client.get(path, params=asked)
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:firstfault:problem:not-kept")

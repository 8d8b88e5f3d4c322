"""Whatever JSON or cells a file holds, it is read or refused with a reason: nothing else is raised."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.blocks import RecordBatch
from ingest.errors import UnreadableInput
from ingest.roles import assign_roles, meaning_of

from .file_builders import read_all, source_of

WORDS = "step iter epoch loss train/loss val_loss lr grad_norm mode rank run time log_history values"
KEYS = st.sampled_from([*WORDS.split(), "start_step", "step_interval", "1", "", "name", "é\n", "event"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 2**70)
    | st.floats(allow_nan=True)
    | st.sampled_from(["nan", "train", "val", "3/7", "1,5", "x", "", "1e400", "NaN", "7%"])
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=25,
)
CELLS = st.sampled_from(["1", "2", "2.5", "nan", "x", "1,5", "-", "step", "loss", "|", '"a\nb"', "", "# c"])


def read(name: str, text: str) -> RecordBatch | None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            batch = read_all(source_of(path))
        except UnreadableInput as error:
            assert name in str(error)
            return None
        assert (batch.iteration_N >= 0).all()
        return batch


@given(VALUES)
@settings(max_examples=10, deadline=None)
def test_any_document_is_read_or_refused(value: Any) -> None:
    read("x.json", json.dumps(value, indent=1))


LABELS = st.dictionaries(
    st.sampled_from(["__name__", "rank", "instance", "pod", "split", "run", "layer"]),
    st.sampled_from(["0", "1", "99999999999", "train_loss", "steps_total", "a:1", "", "é"]) | st.integers(),
)
PAIRS = st.lists(SCALARS | st.floats(0, 2e9), min_size=2, max_size=2) | SCALARS
SERIES = st.fixed_dictionaries({"metric": LABELS}, optional={"values": st.lists(PAIRS), "value": PAIRS})
ENTRIES = st.fixed_dictionaries({"stream": LABELS, "values": st.lists(st.lists(st.text(max_size=9)))})


@given(st.lists(SERIES | ENTRIES, max_size=6))
@settings(max_examples=40, deadline=None)
def test_any_answer_of_prometheus_or_loki_is_read_or_refused(series: list[Any]) -> None:
    read("x.json", json.dumps({"status": "success", "data": {"result": series}}))


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=6), min_size=1, max_size=12))
@settings(max_examples=10, deadline=None)
def test_any_lines_of_objects_are_read_or_refused(records: list[dict[str, Any]]) -> None:
    read("x.jsonl", "".join(json.dumps(record) + "\n" for record in records))


@given(st.lists(st.lists(CELLS, min_size=1, max_size=4), min_size=1, max_size=10), st.sampled_from(",;\t| "))
@settings(max_examples=10, deadline=None)
def test_any_cells_are_read_or_refused(rows: list[list[str]], separator: str) -> None:
    read("x.csv", "\n".join(separator.join(row) for row in rows))


@given(st.text(max_size=60))
@settings(max_examples=40, deadline=None)
def test_any_name_means_something_and_the_same_again(name: str) -> None:
    assert meaning_of(name) == meaning_of(name)
    assert len(assign_roles([name, name], [[1.0], ["2"]]).columns) <= 2

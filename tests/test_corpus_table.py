"""The table over a folder of labelled logs counts right and wrong ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import corpus
from bench.corpus_items import judge_item, read_index


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two logs with a NaN at iteration 3; the index has the first bad iteration of one of them wrong."""
    for name in ("right", "wrong"):
        (tmp_path / "files" / name).mkdir(parents=True)
        text = "".join(f"step {at} loss {'nan' if at >= 3 else 2.5 - at / 10}\n" for at in range(6))
        (tmp_path / "files" / name / "train.log").write_text(text)
    known = {"right": 3, "wrong": 0}
    lines = [
        json.dumps(
            {
                "id": name,
                "format": "short-text",
                "file": f"files/{name}/train.log",
                "label": "nan",
                "first_bad_iteration": first_bad,
            }
        )
        for name, first_bad in known.items()
    ]
    (tmp_path / "index.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_labels_and_first_bad_iterations_are_counted_apart(folder: Path) -> None:
    sums = corpus.Sums([corpus.Row(item, judge_item(item)) for item in read_index(folder)])

    assert sums.label_share == 1
    assert [row.is_first_bad_right for row in sums.rows] == [True, False]
    assert not sums.holds


def test_the_sums_go_between_the_marks_of_the_readme() -> None:
    readme = f"before\n{corpus.BEGIN}\nold\n{corpus.END}\nafter\n"

    written = corpus.with_sums(readme, corpus.Sums([]))

    assert written.startswith("before\n") and written.endswith("\nafter\n") and "old" not in written
    assert "crashes          0 of 0" in written


def test_a_readme_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="must hold"):
        corpus.with_sums("no marks", corpus.Sums([]))

"""What the paths of a command hold: which files of a folder are judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.replay_command import ReplayRequest, run_replay

ROWS = "step,loss\n" + "".join(f"{step},{2 - step / 100 + step % 3 / 50}\n" for step in range(100))


def judged(capsys: pytest.CaptureFixture[str], *paths: Path) -> tuple[int, str, str]:
    """The exit status, and what was said on both outputs."""
    status = run_replay(ReplayRequest(paths=tuple(str(path) for path in paths)))
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hostfile", "node-1 slots=8\nnode-2 slots=8\n"),
        ("eval_summary.txt", "eval_loss: 2.5\n"),
        ("scores.json", '{"train_loss": 1.5, "epoch": 3}'),
    ],
)
def test_a_file_of_a_folder_that_is_no_log_is_passed_over_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    (tmp_path / "train.csv").write_text(ROWS)
    (tmp_path / name).write_text(text)

    status, out, err = judged(capsys, tmp_path)

    assert status == 0 and "train: healthy" in out
    assert f"1 file was passed over: not recognised as a log of training ({name})" in err


def test_a_file_that_is_named_is_not_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.csv").write_text(ROWS)
    (tmp_path / "hostfile").write_text("node-1 slots=8\n")

    status, _, err = judged(capsys, tmp_path / "train.csv", tmp_path / "hostfile")

    assert status == 2 and "hostfile" in err and "passed over" not in err


def test_a_short_log_with_an_incident_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.csv").write_text(ROWS)
    (tmp_path / "other.csv").write_text("step,loss\n1,2.5\n2,nan\n")

    status, out, _ = judged(capsys, tmp_path)

    assert status == 1 and "other" in out


def test_a_suspicion_in_a_file_of_a_folder_is_not_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.csv").write_text(ROWS)
    printed = "".join(
        f"TP rank {rank} has value:\ntensor([{0.25 + rank / 1e4}, 0.5, -0.125])\n" for rank in range(4)
    )
    (tmp_path / "fingerprints.txt").write_text(printed)

    _, out, err = judged(capsys, tmp_path)

    assert "fingerprints" in out and "passed over" not in err

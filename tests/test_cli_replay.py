"""`firstfault replay`: the sentence first, JSON alone on standard output, exit statuses to rely on."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firstfault import replay
from ingest.errors import UnreadableInput
from service.cli import main

from .service_builders import log_lines, write_log

Run = Callable[..., tuple[int, str, str]]
TOOL = [sys.executable, "-m", "service.cli"]


@pytest.fixture
def firstfault(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in this process; gives exit status, standard output, standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["firstfault", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    return write_log(tmp_path / "bad.jsonl", log_lines("bad", odd_rank=3))


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    return write_log(tmp_path / "good.jsonl", log_lines("good"))


def told(out: str) -> str:
    """A report without what it begins with: what was recognised."""
    read, _, rest = out.partition("\n\n")
    assert read.startswith("  Read         ")
    return rest


def test_a_faulty_log_begins_with_what_was_read_and_the_sentence_and_exits_1(
    firstfault: Run, faulty: Path
) -> None:
    status, out, err = firstfault("replay", faulty)
    assert status == 1
    assert "bad.jsonl: JSON lines; counts by iteration" in " ".join(out.split())
    assert "8 ranks, iterations 0 to 119" in out
    assert told(out).startswith(
        "bad: silent drift. Rank 3 holds other parameters than the other replicas since"
    )
    assert err == ""


def test_a_healthy_log_exits_0(firstfault: Run, healthy: Path) -> None:
    status, out, _ = firstfault("replay", healthy)
    assert status == 0
    assert told(out).startswith("good: healthy. No fault visible up to iteration 119.")


def test_several_runs_are_judged_one_by_one_and_any_fault_gives_1(
    firstfault: Run, faulty: Path, healthy: Path
) -> None:
    status, out, _ = firstfault("replay", healthy.parent)
    assert status == 1
    assert out.startswith("2 runs: 1 faulty, 1 healthy")


def test_json_is_one_verdict_a_line_and_nothing_else_on_standard_output(
    firstfault: Run, faulty: Path, healthy: Path
) -> None:
    with faulty.open("ab") as file:
        file.write(b"garbage\n")
    status, out, err = firstfault("replay", "--json", faulty, healthy)
    verdicts = [json.loads(line) for line in out.splitlines()]
    assert status == 1
    assert [(verdict["run"], verdict["label"]) for verdict in verdicts] == [
        ("bad", "silent_drift"),
        ("good", "healthy"),
    ]
    assert "1 record rejected" in err


def test_rejected_lines_are_told_by_reason_with_examples_on_standard_error(
    firstfault: Run, tmp_path: Path
) -> None:
    bad = [b"[[[[" * 50, b"not json", b'{"rank":-1,"iteration":3,"loss":1}', b'{"rank":0,"iteration":1e300}']
    path = write_log(tmp_path / "mixed.jsonl", [*log_lines("mixed"), *bad])
    status, out, err = firstfault("replay", path)
    assert status == 0
    assert "mixed: healthy" in out
    assert "4 records rejected:" in err
    assert "not json" in err
    assert "rank" in err
    assert "mixed.jsonl:" in err


def test_quarantine_keeps_what_was_rejected_as_it_came(
    firstfault: Run, healthy: Path, tmp_path: Path
) -> None:
    with healthy.open("ab") as file:
        file.write(b'{"broken"\n\xff\xfe\n')
    kept = tmp_path / "kept.out"
    firstfault("replay", healthy, "--quarantine", kept)
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [line.get("raw") for line in lines] == ['{"broken"', None]
    assert lines[1]["raw_base64"] == "//4="
    assert all(line["source"].endswith("good.jsonl") and line["rule"] for line in lines)


@pytest.mark.parametrize(
    ("name", "content"),
    [("empty.jsonl", b""), ("random.bin", bytes(range(256)) * 40), ("words.jsonl", b"hello\nworld\n")],
)
def test_a_file_without_one_usable_record_exits_2_with_one_line(
    firstfault: Run, tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    status, out, err = firstfault("replay", path)
    assert status == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert name in err


def test_an_unreadable_input_beside_a_healthy_one_is_named_and_exits_2(
    firstfault: Run, healthy: Path, tmp_path: Path
) -> None:
    status, out, err = firstfault("replay", tmp_path / "nowhere.jsonl", healthy)
    assert status == 2
    assert told(out).startswith("good: healthy")
    assert "nowhere.jsonl" in err


def test_an_unreadable_input_beside_a_faulty_one_exits_1(
    firstfault: Run, faulty: Path, tmp_path: Path
) -> None:
    assert firstfault("replay", tmp_path / "nowhere.jsonl", faulty)[0] == 1


def test_the_files_of_one_job_are_joined(firstfault: Run, tmp_path: Path) -> None:
    lines = log_lines("joined", odd_rank=3)
    for rank in range(8):
        mine = [line for line in lines if json.loads(line)["rank"] == rank]
        write_log(tmp_path / f"rank{rank}.jsonl", mine)
    status, out, _ = firstfault("replay", "--json", tmp_path)
    (verdict,) = [json.loads(line) for line in out.splitlines()]
    assert status == 1
    assert verdict["incidents"][0]["first"]["ranks"] == [3]


def test_standard_input_is_read_as_a_file(firstfault: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"step,loss,grad_norm\n" + b"".join(b"%d,%f,1.0\n" % (t, 3 - t / 200) for t in range(200))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    status, out, _ = firstfault("replay", "-", "--format", "csv")
    assert status == 0
    assert told(out).startswith("stdin: healthy. No fault visible up to iteration 199.")


def test_column_says_which_column_is_the_loss(firstfault: Run, tmp_path: Path) -> None:
    rows = [f"{t},{2 + t % 3 / 10},{'nan' if t >= 30 else 1.5}\n" for t in range(40)]
    path = tmp_path / "x.csv"
    path.write_text("step,loss,score\n" + "".join(rows))
    assert firstfault("replay", path)[0] == 0
    status, out, _ = firstfault("replay", path, "--column", "loss=score", "--json")
    assert (status, json.loads(out)["incidents"][0]["first"]["iteration"]) == (1, 30)


def test_a_column_that_is_not_there_is_an_error_that_lists_those_that_are(
    firstfault: Run, tmp_path: Path
) -> None:
    path = tmp_path / "x.csv"
    path.write_text("step,loss\n1,2\n2,2\n")
    status, out, err = firstfault("replay", path, "--column", "loss=lm")
    assert (status, out) == (2, "")
    assert "--column loss=lm: no such column; there is 'step', 'loss'" in err
    assert "NAME=COLUMN" in firstfault("replay", path, "--column", "lm")[2]


def test_run_selects_one_run_and_an_unknown_one_is_named_with_those_there(
    firstfault: Run, tmp_path: Path
) -> None:
    path = write_log(tmp_path / "both.jsonl", log_lines("a") + log_lines("b", odd_rank=1))
    assert firstfault("replay", path, "--run", "a")[0] == 0
    status, out, err = firstfault("replay", path, "--run", "c")
    assert (status, out) == (2, "")
    assert "no run named c; there is a, b" in err


def test_a_run_that_is_too_short_to_judge_exits_2(
    firstfault: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_log(tmp_path / "events.jsonl", [b'{"run":"r","rank":0,"iteration":0,"event":"run_start"}'])
    status, _, _ = firstfault("replay", path)
    assert status == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["replay"],
        ["replay", "--nonsense", "x"],
        ["nonsense"],
        ["replay", ".", "--format", "xml"],
        ["replay", ".", "--config", "/nowhere.toml"],
    ],
)
def test_wrong_usage_exits_2_and_leaves_standard_output_alone(firstfault: Run, arguments: list[str]) -> None:
    status, out, err = firstfault(*arguments)
    assert (status, out) == (2, "")
    assert err


def test_a_bug_exits_3_and_not_as_an_incident(
    firstfault: Run, healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("service.pipeline.Pipeline.feed", broken)
    status, out, err = firstfault("replay", healthy)
    assert (status, out) == (3, "")
    assert "RuntimeError: boom" in err
    assert "bug" in err


def test_ctrl_c_exits_130(firstfault: Run, healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("service.pipeline.Pipeline.feed", interrupted)
    assert firstfault("replay", healthy)[0] == 130


def test_a_hostile_run_name_is_printed_as_text(firstfault: Run, tmp_path: Path) -> None:
    name = "a\u202e\u200b[31mb"
    path = write_log(tmp_path / "x.jsonl", log_lines(name, odd_rank=2))
    _, out, err = firstfault("replay", path)
    assert told(out).startswith("a\\u202e\\u200b[31mb: silent drift.")
    assert name not in out + err


def test_replay_from_python_gives_the_verdicts_of_the_command(firstfault: Run, faulty: Path) -> None:
    _, out, _ = firstfault("replay", "--json", faulty)
    assert replay(faulty) == [json.loads(line) for line in out.splitlines()]
    assert replay([str(faulty)]) == replay(faulty)


def test_replay_from_python_raises_for_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="nowhere"):
        replay(tmp_path / "nowhere")


def test_judging_a_small_log_loads_no_heavy_library(tmp_path: Path) -> None:
    small = write_log(tmp_path / "small.jsonl", log_lines(iterations=15))
    heavy = ("polars", "numba", "pyarrow", "ruptures", "scipy", "kafka", "torch", "rich")
    code = (
        "import sys; from service.cli import main\n"
        "try: main()\n"
        f"finally: sys.stderr.write(' '.join(m for m in {heavy!r} if m in sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, "replay", "--json", str(small)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0
    assert ended.stderr.endswith("120 records\n")


def test_a_reader_that_goes_away_gives_no_traceback(tmp_path: Path) -> None:
    for number in range(3):
        write_log(tmp_path / f"run-{number}-x.jsonl", log_lines(f"r{number}", iterations=30))
    process = subprocess.Popen(
        [*TOOL, "replay", "--json", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    told = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 141
    assert told == b""


def test_following_tells_the_fault_while_the_file_grows_and_the_end_at_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    lines = log_lines("live", odd_rank=3, iterations=200)
    write_log(path, lines[:400])
    process = subprocess.Popen(
        [*TOOL, "replay", "--follow", "--json", str(path)], stdout=subprocess.PIPE, env={**os.environ}
    )
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    with path.open("ab") as file:
        file.write(b"".join(line + b"\n" for line in lines[400:]))
    second = json.loads(process.stdout.readline())
    while second["label"] != "silent_drift":
        second = json.loads(process.stdout.readline())
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    last = json.loads(process.stdout.read().splitlines()[-1])
    process.stdout.close()
    assert first["label"] == "healthy"
    assert second["incidents"][0]["first"]["ranks"] == [3]
    assert last["judged_to_iteration"] == 199
    assert process.wait(10) == 1


def test_a_program_is_no_log_whatever_it_would_print_unless_it_is_said_to_be_one(
    firstfault: Run, tmp_path: Path
) -> None:
    program = tmp_path / "train.py"
    program.write_text("step = 1\nif torch.isnan(loss):\n    print('Loss is nan, stopping training')\n")
    status, out, err = firstfault("replay", program)
    assert (status, out) == (2, "")
    assert "train.py: must be a log, but its name is that of a program" in err
    assert firstfault("replay", program, "--format", "text")[0] == 1


def test_evidence_of_a_loss_that_is_no_number_shows_the_value_and_not_a_count(
    firstfault: Run, tmp_path: Path
) -> None:
    log = tmp_path / "train.csv"
    rows = [f"{at},{2 + 3 / (1 + at):.4f}" if at < 40 else f"{at},nan" for at in range(50)]
    log.write_text("\n".join(["step,loss", *rows, ""]))
    status, out, _ = firstfault("replay", log)
    row = next(line.split() for line in out.splitlines() if line.startswith("  nonfinite"))
    assert (status, row) == (1, ["nonfinite", "loss", "-", "40", "NaN", "finite"])

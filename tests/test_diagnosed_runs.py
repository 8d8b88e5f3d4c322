"""Reports about hardware joined to runs: causes, annotations, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from service.inputs import find_inputs
from service.offline import ReplayOptions, judge_jobs

from .diagnostic_builders import dcgm, write_run

PLACES = [("node-1", str(device)) for device in range(8)]


def judged(log: Path, report: Path | None = None) -> dict[str, Any]:
    inputs = find_inputs([log], [report] if report is not None else [])
    (job,) = judge_jobs(inputs.jobs, ReplayOptions(reports=inputs.reports))
    return dict(job.runs[0].body)


def hardware(verdict: dict[str, Any]) -> dict[str, Any]:
    """The cause "hardware" of the only incident."""
    (incident,) = verdict["incidents"]
    return next(cause for cause in incident["causes"] if cause["kind"] == "hardware")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_failing_device_under_the_suspect_confirms_the_cause(tmp_path: Path) -> None:
    log = write_run(tmp_path / "r.jsonl", bad_rank=3, places=PLACES)
    report = write(tmp_path / "dcgmi.json", dcgm({0: "Pass", 3: "Fail"}))

    before, after = hardware(judged(log)), hardware(judged(log, report))

    assert before["confidence"] <= 0.6
    assert after["confidence"] >= 0.85
    assert any("memory: fail" in reason and "rank 3" in reason for reason in after["because"])


def test_a_device_that_passed_weakens_the_cause_a_little(tmp_path: Path) -> None:
    log = write_run(tmp_path / "r.jsonl", bad_rank=3, places=PLACES)
    report = write(tmp_path / "dcgmi.json", dcgm({0: "Pass", 3: "Pass"}))

    before, after = hardware(judged(log)), hardware(judged(log, report))

    assert 0.7 * before["confidence"] < after["confidence"] < before["confidence"]


def test_a_failing_device_of_another_rank_changes_no_cause(tmp_path: Path) -> None:
    log = write_run(tmp_path / "r.jsonl", bad_rank=3, places=PLACES)
    report = write(tmp_path / "dcgmi.json", dcgm({0: "Pass", 5: "Fail"}))

    verdict = judged(log, report)

    assert hardware(verdict) == hardware(judged(log))
    assert [note["detail"]["rank"] for note in verdict["annotations"] if note["kind"] == "hardware"] == [5]


def test_devices_are_matched_by_any_of_their_names(tmp_path: Path) -> None:
    places = [("node-1", f"GPU-{device}{device}") for device in range(8)]
    log = write_run(tmp_path / "r.jsonl", bad_rank=3, places=places)
    smi = "".join(f"{at}, GPU-{at}{at}, {2 if at == 3 else 0}\n" for at in range(8))
    report = write(tmp_path / "smi.csv", "index, uuid, ecc.errors.uncorrected.volatile.total\n" + smi)

    assert any("rank 3" in reason for reason in hardware(judged(log, report))["because"] if "ecc" in reason)


def test_a_rank_whose_device_is_not_said_is_taken_by_its_place_and_said_to_be(tmp_path: Path) -> None:
    log = write_run(tmp_path / "r.jsonl", bad_rank=3)
    report = write(
        tmp_path / "dcgmi.json", dcgm({rank: "Fail" if rank == 3 else "Pass" for rank in range(8)})
    )

    cause = hardware(judged(log, report))

    assert 0.6 < cause["confidence"] < 0.85
    assert any("taken to be its place" in reason for reason in cause["because"])


@pytest.mark.parametrize(("clock", "iteration"), [("02:39:30", 37), ("01:00:00", 99)])
def test_a_line_of_the_kernel_is_put_at_the_iteration_of_its_time(
    tmp_path: Path, clock: str, iteration: int
) -> None:
    log = write_run(
        tmp_path / "r.jsonl", bad_rank=3, places=[("node-1", f"0000:{at}0:1c") for at in range(8)]
    )
    line = f"Nov 30 {clock} node-1 kernel: NVRM: Xid (PCI:0000:30:1c): 48, pid=1, DBE\n"
    verdict = judged(log, write(tmp_path / "messages", line))

    (note,) = [note for note in verdict["annotations"] if note["kind"] == "hardware"]
    assert note["iteration"] == iteration
    assert ("at iteration 37" in str(hardware(verdict)["because"])) is (iteration == 37)


def test_a_failing_device_on_a_healthy_run_is_an_annotation(tmp_path: Path) -> None:
    log = write_run(tmp_path / "r.jsonl", places=PLACES)
    verdict = judged(log, write(tmp_path / "dcgmi.json", dcgm({3: "Fail"})))

    assert (verdict["label"], verdict["incidents"]) == ("healthy", [])
    (note,) = verdict["annotations"]
    assert (note["kind"], note["detail"]["device"], note["detail"]["rank"]) == ("hardware", "3", 3)


def test_a_report_among_the_paths_is_recognised(tmp_path: Path) -> None:
    write_run(tmp_path / "r.jsonl", places=PLACES)
    write(tmp_path / "dcgmi.json", dcgm({3: "Fail"}))

    inputs = find_inputs([tmp_path])

    assert [job.run for job in inputs.jobs] == ["r"]
    assert [report.format for report in inputs.reports] == ["dcgmi diag"]


def test_a_report_without_a_run_says_what_it_found_and_is_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from service.replay_command import ReplayRequest, run_replay

    path = write(tmp_path / "dcgmi.json", dcgm({3: "Fail"}))

    status = run_replay(ReplayRequest(paths=(str(path),), as_json=True))

    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert "device 3: memory: fail" in err and "no run to judge" in err


def test_a_verdict_with_reports_is_the_same_every_time(tmp_path: Path) -> None:
    log = write_run(tmp_path / "r.jsonl", bad_rank=3, places=PLACES)
    report = write(tmp_path / "dcgmi.json", dcgm({0: "Pass", 3: "Fail"}))

    assert json.dumps(judged(log, report)) == json.dumps(judged(log, report))


def test_a_line_of_the_kernel_counts_in_the_attempt_in_which_it_was_written(tmp_path: Path) -> None:
    places = [("node-1", f"0000:{device}0:1c") for device in range(8)]
    log = write_run(tmp_path / "r.jsonl", bad_rank=3, places=places, iterations=400)
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    again = [
        {**row, "attempt": 1, "time": row["time"] + 10_000, "param_checksum": f"{row['iteration'] + 7:x}"}
        for row in rows
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows + again))
    line = "Nov 30 02:40:00 node-1 kernel: NVRM: Xid (PCI:0000:30:1c): 48, pid=1, DBE\n"

    verdict = judged(log, write(tmp_path / "messages", line))

    (note,) = [note for note in verdict["annotations"] if note["kind"] == "hardware"]
    assert (note["attempt"], note["iteration"]) == (0, 40)
    assert any("Xid 48" in reason and "iteration 40" in reason for reason in hardware(verdict)["because"])


def test_a_list_of_devices_tells_which_address_has_which_number(tmp_path: Path) -> None:
    log = write_run(tmp_path / "r.jsonl", bad_rank=3, places=PLACES)
    rows = "".join(f"{at}, 00000000:{at}0:1C.0, 0\n" for at in range(8))
    smi = write(tmp_path / "smi.csv", "index, pci.bus_id, ecc.errors.uncorrected.volatile.total\n" + rows)
    line = "Nov 30 02:39:30 node-1 kernel: NVRM: Xid (PCI:0000:30:1c): 48, pid=1, DBE\n"
    inputs = find_inputs([log], [smi, write(tmp_path / "messages", line)])

    (job,) = judge_jobs(inputs.jobs, ReplayOptions(reports=inputs.reports))

    cause = hardware(dict(job.runs[0].body))
    assert cause["confidence"] >= 0.85
    assert any("Xid 48" in reason and "rank 3" in reason for reason in cause["because"])


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
        "RuntimeError: NCCL Error 2: unhandled system error (run with NCCL_DEBUG=INFO for details)",
    ],
)
def test_a_healthy_run_that_died_is_told_with_the_line_that_says_why(tmp_path: Path, line: str) -> None:
    log = tmp_path / "train.log"
    steps = [f"step {at}: loss {2 + 3 / (1 + at):.4f} | lr 3e-4" for at in range(60)]
    log.write_text("\n".join([*steps, "Traceback (most recent call last):", line, ""]))
    verdict = judged(log)
    assert verdict["label"] == "healthy"
    (note,) = [note for note in verdict["coverage"]["notes"] if "at iteration 59" in note]
    assert line.partition("Error: ")[2][:30] in note


def test_a_line_of_the_kernel_finds_its_iteration_by_the_times_of_a_text_log(tmp_path: Path) -> None:
    lines = [
        f"2026-06-28 16:0{at // 60}:{at % 60:02d},250 - INFO - step {at} loss {3 - at / 99}"
        for at in range(120)
    ]
    log = write(tmp_path / "train.log", "\n".join(lines) + "\n")
    xid = "2026-06-28T16:01:30+00:00 node-3 kernel: NVRM: Xid (PCI:0000:10:1c): 79, fallen off the bus.\n"

    verdict = judged(log, write(tmp_path / "kern.log", xid))

    (note,) = (one for one in verdict["annotations"] if one["kind"] == "hardware")
    assert note["iteration"] == 89

"""`firstfault canary`: a preflight names the host that computes something else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from firstfault.launch import launch_from
from firstfault.preflight import PreflightConfig, PreflightError
from service.canary_command import CanaryRequest

torch: Any = pytest.importorskip("torch", reason="a preflight computes with torch")

pytestmark = pytest.mark.torch

from firstfault.preflight.meeting import Meeting, meeting_place  # noqa: E402  # needs torch
from firstfault.preflight.workload import PARTS, Workload  # noqa: E402
from service.cli import app  # noqa: E402

ROOT = Path(__file__).parent.parent
ROUNDS = 9


def launch(ranks: int, faulty: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.preflight_ranks", str(ranks), str(faulty), *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("RANK", "WORLD_SIZE", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """A launch of three ranks of which rank 1 gets products wrong from round 3 on."""
    out = tmp_path_factory.mktemp("preflight") / "faulty.jsonl"
    return launch(3, 1, "--rounds", str(ROUNDS), "--size", "tiny", "--out", str(out)), out


def test_the_host_that_computes_something_else_is_named(
    faulty: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, _ = faulty
    assert done.returncode == 1, done.stderr
    rows = done.stdout.splitlines()
    assert rows[2].split()[:2] == ["node-1", "1"]
    assert "rank 1: products, round 3, confirmed" in rows[2]
    assert [row.split()[-1] for row in rows[3:5]] == ["peers", "peers"]
    assert "Rank 1 (host node-1)" in rows[-1]


def test_it_is_named_while_the_others_still_compute(
    faulty: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    lines = faulty[0].stderr.splitlines()
    told = next(at for at, line in enumerate(lines) if "node-1" in line)
    assert told < lines.index(f"round {ROUNDS - 1}")


def test_what_it_found_is_telemetry_that_replay_judges_alike(
    faulty: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    from firstfault import replay

    (verdict,) = replay(faulty[1])
    first = verdict["incidents"][0]["first"]
    assert (first["ranks"], first["interval"]) == ([1], [2, 3])
    assert first["suspects"][0]["host"] == "node-1"
    assert verdict["incidents"][0]["pattern"] == "compute_mismatch"


def test_ranks_that_agree_end_with_status_0(tmp_path: Path) -> None:
    done = launch(2, -1, "--rounds", "3", "--size", "tiny", "--json")
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["label"], verdict["coverage"]["ranks"]) == (0, "healthy", 2)


def test_a_rank_alone_is_compared_with_itself_and_with_a_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "healthy.jsonl"
    arguments = ["canary", "--rounds", "8", "--size", "tiny"]
    healthy = CliRunner().invoke(app, [*arguments, "--out", str(out)])
    assert healthy.exit_code == 0, healthy.output
    assert "the same each time" in healthy.output and "peers" not in healthy.output
    same = CliRunner().invoke(app, [*arguments, "--reference", str(out)])
    assert same.exit_code == 0, same.output

    real = PARTS["copies"]
    monkeypatch.setitem(PARTS, "copies", lambda work, number: real(work, number) + (number >= 5))
    unseen = CliRunner().invoke(app, arguments)
    assert unseen.exit_code == 0  # always wrong in the same way: only a reference shows it
    seen = CliRunner().invoke(app, [*arguments, "--reference", str(out)])
    assert seen.exit_code == 1, seen.output
    assert "rank 0: copies, round 5, confirmed" in seen.output


def test_a_rank_alone_that_disagrees_with_itself_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = PARTS["training"], [0]

    def wrong(work: Workload, number: int) -> Any:
        calls[0] += 1
        return real(work, number) + (calls[0] == 2 * 9 + 1)

    monkeypatch.setitem(PARTS, "training", wrong)
    done = CliRunner().invoke(app, ["canary", "--rounds", "11", "--size", "tiny"])
    assert done.exit_code == 1, done.output
    assert "rank 0: training, round 9, confirmed" in done.output


def test_a_workload_that_is_not_deterministic_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [0]

    def random(work: Workload, number: int) -> Any:
        calls[0] += 1
        return torch.tensor(calls[0])

    monkeypatch.setitem(PARTS, "copies", random)
    done = CliRunner().invoke(app, ["canary", "--rounds", "3", "--size", "tiny"])
    assert done.exit_code == 2, done.output
    assert "Not deterministic" in done.output


def test_a_round_computes_the_same_again_and_each_round_something_else() -> None:
    work = Workload(torch.device("cpu"), "tiny")
    first, again, other = work.round(4), work.round(4), work.round(5)
    assert first == again
    assert all(first[f"canary_checksum/{name}"] == first[f"repeat_checksum/canary/{name}"] for name in PARTS)
    assert all(first[name] != other[name] for name in first)


def test_a_single_flipped_bit_in_a_product_changes_its_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Workload(torch.device("cpu"), "tiny")
    before = work.round(0)
    real = work.values

    def flipped(shape: tuple[int, ...], seed: int, dtype: Any) -> Any:
        values = real(shape, seed, dtype)
        if dtype is torch.float64 and seed % 64 == 6:
            values.view(torch.int64).view(-1)[0] ^= 1 << 20
        return values

    monkeypatch.setattr(Workload, "values", lambda self, shape, seed, dtype: flipped(shape, seed, dtype))
    after = work.round(0)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"canary_checksum/products", "repeat_checksum/canary/products"}


def test_a_reference_of_another_workload_is_refused_with_the_cure(tmp_path: Path) -> None:
    out = tmp_path / "healthy.jsonl"
    assert (
        CliRunner().invoke(app, ["canary", "--rounds", "1", "--size", "tiny", "--out", str(out)]).exit_code
        == 0
    )
    done = CliRunner().invoke(app, ["canary", "--rounds", "1", "--size", "small", "--reference", str(out)])
    assert done.exit_code == 2
    assert "must be of the same workload" in done.output
    assert "make a new one with --out" in done.output


def test_without_torch_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firstfault.preflight.config.find_spec", lambda name: None)
    done = CliRunner().invoke(app, ["canary", "--quick"])
    assert done.exit_code == 2
    assert "pip install 'firstfault[torch]'" in done.output


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--sink", "ftp://host"), "--sink: sink must be a file"),
        (("--out", "/dev/full"), "--out /dev/full must be a file that can be written: No space left"),
    ],
)
def test_a_sink_or_a_disk_that_takes_nothing_ends_it_at_once_by_name(
    given: tuple[str, str], words: str
) -> None:
    done = CliRunner().invoke(app, ["canary", "--rounds", "2", "--size", "tiny", *given])
    assert done.exit_code == 2, done.output
    assert words in " ".join(done.output.split())
    assert "bug" not in done.output


def test_budgets_that_cannot_be_are_refused() -> None:
    with pytest.raises(PreflightError, match="one of --rounds, --seconds and --quick"):
        CanaryRequest(rounds=3, is_quick=True).config()
    with pytest.raises(PreflightError, match="rounds must be from 1 to 16777216, got 0"):
        PreflightConfig(rounds=0)
    with pytest.raises(PreflightError, match="size must be large, small or tiny, got 'huge'"):
        PreflightConfig(size="huge")


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({"MASTER_ADDR": "a", "MASTER_PORT": "1"}, None),
        ({"SLURM_JOB_NODELIST": "n[01-03]", "SLURM_JOB_ID": "7"}, "n01"),
        ({"SLURM_STEP_NODELIST": "b,c"}, "b"),
        ({}, "127.0.0.1"),
    ],
)
def test_ranks_meet_where_their_launcher_says(environ: dict[str, str], address: str | None) -> None:
    assert meeting_place(environ).get("MASTER_ADDR") == address


def test_rank_0_leaves_once_all_others_have_asked_for_the_last_time(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: left.append(1))
    launches = (replace(launch_from({}, "canary"), rank=rank, world_size=2) for rank in (0, 1))
    store = torch.distributed.HashStore()
    monkeypatch.setattr(Meeting, "_join", lambda meeting, _: setattr(meeting, "_store", store))
    first, second = (Meeting(launch, torch.device("cpu"), 0.2) for launch in launches)
    with pytest.raises(PreflightError, match=r"rank 1 said nothing within 0\.2 s \(over\)"):
        first.leave()
    second.leave()
    first.leave()
    assert len(left) == 3

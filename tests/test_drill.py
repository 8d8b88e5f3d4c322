"""The drill is a real job: deterministic, replicated, and wrong exactly where the plan says."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from firstfault.drill import SCENARIOS, DrillConfig, DrillError, drill_lines, plan, run_drill
from firstfault.telemetry import EventKind
from firstfault.wire import Defaults, interpret

from .drill_builders import odd_ones, short_plan, told

pytestmark = pytest.mark.torch


def test_the_same_command_writes_the_same_bytes(tmp_path: Path) -> None:
    first, second = (
        run_drill("nan_input", seed=5, ranks=2, iterations=20, out=tmp_path / name)
        for name in ("one.jsonl.gz", "two.jsonl.gz")
    )
    assert first.read_bytes() == second.read_bytes()
    assert not list(tmp_path.glob("*.part"))


def test_one_process_and_one_process_a_rank_write_the_same_lines() -> None:
    virtual, processes = (
        list(drill_lines(DrillConfig(scenario="drift_param", ranks=2, iterations=20, engine=engine)))
        for engine in ("virtual", "processes")
    )
    assert virtual == processes


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_writes_only_lines_that_the_wire_understands(scenario: str) -> None:
    lines = list(drill_lines(DrillConfig(scenario=scenario, ranks=1, iterations=20)))
    assert json.loads(lines[0])["event"] == "run_start"
    assert json.loads(lines[-1])["event"] == ("heartbeat" if scenario == "hang" else "run_end")
    assert [interpret(json.loads(line), Defaults()).rejections for line in lines] == [()] * len(lines)


def test_healthy_replicas_stay_bit_equal_and_still_see_their_own_data() -> None:
    job = told(short_plan("healthy"))
    for iteration in range(job.plan.stop):
        for metric in ("param_checksum", "optim_checksum", "grad_norm"):
            assert len(set(job.of(iteration, metric))) == 1, (iteration, metric)
        assert len(set(job.of(iteration, "loss"))) == job.plan.ranks
    assert len({job.of(at, "param_checksum")[0] for at in range(job.plan.stop)}) == job.plan.stop


def test_a_repeated_canary_gives_the_bits_of_the_first() -> None:
    job = told(short_plan("drift_compute", canary=1))
    for record in job.records:
        assert record.metrics["repeat_checksum/canary"] == record.metrics["canary_checksum"]


def test_a_flipped_parameter_makes_its_rank_differ_from_that_iteration_on() -> None:
    job = told(short_plan("drift_param", canary=1))
    at, rank = job.plan.fault_iteration, job.plan.fault_rank
    assert at is not None
    for iteration in range(job.plan.stop):
        assert odd_ones(job.of(iteration, "param_checksum")) == ([rank] if iteration >= at else [])
        # the canary reads the parameters of the iteration before: it is a consequence
        assert odd_ones(job.of(iteration, "canary_checksum")) == ([rank] if iteration > at else [])


def test_a_flipped_moment_makes_optimizer_and_parameters_of_its_rank_differ() -> None:
    job = told(short_plan("drift_optimizer"))
    at, rank = job.plan.fault_iteration, job.plan.fault_rank
    assert at is not None
    for metric in ("optim_checksum", "param_checksum"):
        differing = [odd_ones(job.of(iteration, metric)) for iteration in range(job.plan.stop)]
        assert differing == [[]] * at + [[rank]] * (job.plan.stop - at)


def test_a_wrong_matmul_leaves_the_replicas_equal_and_only_the_canary_sees_it() -> None:
    job = told(short_plan("drift_compute", canary=1))
    at, rank = job.plan.fault_iteration, job.plan.fault_rank
    assert at is not None
    for iteration in range(job.plan.stop):
        assert odd_ones(job.of(iteration, "param_checksum")) == []
        assert odd_ones(job.of(iteration, "canary_checksum")) == ([rank] if iteration >= at else [])


@pytest.mark.parametrize("scenario", ["nan_activation", "nan_input"])
def test_a_non_finite_value_is_on_one_rank_before_the_reduction_and_everywhere_after(scenario: str) -> None:
    job = told(short_plan(scenario))
    at, rank = job.plan.fault_iteration, job.plan.fault_rank
    assert at is not None
    everyone = list(range(job.plan.ranks))
    assert job.ranks_where(at, lambda r: not math.isfinite(r.metrics["loss"])) == [rank]
    assert job.ranks_where(at, lambda r: r.metrics["nonfinite_grad"] > 0) == [rank]
    assert job.ranks_where(at, lambda r: not math.isfinite(r.metrics["grad_norm"])) == everyone
    assert job.ranks_where(at + 1, lambda r: not math.isfinite(r.metrics["loss"])) == everyone
    bad_input = job.ranks_where(at, lambda r: r.metrics["nonfinite_input"] > 0)
    assert bad_input == ([rank] if scenario == "nan_input" else [])
    assert all(math.isfinite(r.metrics["grad_norm"]) for r in job.records if r.iteration < at)


def test_a_resumed_attempt_repeats_the_same_bits() -> None:
    job = told(short_plan("restart", ranks=2))
    resume = next(event for event in job.events if event.kind is EventKind.RESUME)
    crash = job.plan.fault_iteration
    assert crash is not None
    assert (resume.iteration, crash) == (8, 13)  # checkpoints come every 8 iterations
    for iteration in range(resume.iteration, crash):
        for metric in ("loss", "grad_norm", "param_checksum", "optim_checksum"):
            assert job.of(iteration, metric, attempt=0) == job.of(iteration, metric, attempt=1)
    assert job.kinds().count(EventKind.RUN_START) == 2


def test_an_overflowed_iteration_is_skipped_and_leaves_the_parameters_alone() -> None:
    job = told(short_plan("overflow_skips", ranks=2))
    skipped = [at for at in range(1, job.plan.stop) if job.of(at, "skipped") == [1, 1]]
    assert skipped
    for at in range(1, job.plan.stop):
        is_same = job.of(at, "param_checksum") == job.of(at - 1, "param_checksum")
        assert is_same == (at in skipped)
        assert (at in skipped) == (not math.isfinite(job.of(at, "grad_norm")[0]))
    assert job.of(skipped[0] + 1, "loss_scale")[0] == job.of(skipped[0], "loss_scale")[0] / 2


def test_the_seed_moves_the_fault_and_the_log_keeps_to_the_plan() -> None:
    plans = [plan(DrillConfig(scenario="drift_param", seed=seed)) for seed in range(40)]
    assert {planned.fault_rank for planned in plans} == set(range(8))
    assert len({planned.fault_iteration for planned in plans}) > 20
    assert plans[3] == plan(DrillConfig(scenario="drift_param", seed=3))


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (DrillConfig(scenario="nan"), "scenario"),
        (DrillConfig(ranks=0), "ranks"),
        (DrillConfig(iterations=3), "iterations"),
        (DrillConfig(engine="cluster"), "engine"),
        (DrillConfig(seed=-1), "seed"),
        (DrillConfig(seed=1 << 70), "seed"),
    ],
)
def test_a_drill_that_cannot_be_is_refused_by_name(config: DrillConfig, named: str) -> None:
    with pytest.raises(DrillError, match=f"^{named} must be"):
        plan(config)


def test_without_torch_the_drill_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(DrillError, match="needs torch: pip install torch"):
        next(drill_lines(DrillConfig()))


def test_listing_scenarios_loads_the_standard_library_alone() -> None:
    code = "import sys, firstfault.drill as d; d.plan(d.DrillConfig())"
    code += "; print({'torch', 'numpy'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_progress_ends_at_the_last_iteration() -> None:
    seen: list[tuple[int, int]] = []
    list(drill_lines(DrillConfig(ranks=1, iterations=20), lambda done, total: seen.append((done, total))))
    assert seen == [(done, 20) for done in range(1, 21)]

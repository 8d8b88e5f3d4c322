"""Healthy jobs of great variety, drawn from seeds."""

from __future__ import annotations

import pytest

from firstfault.drill.rig.catalogue import check
from firstfault.drill.rig.spec import LayoutName
from firstfault.drill.rig.variety import Variety, faulty_job, healthy_job, variety_of


def test_a_hundred_seeds_hold_every_variety_and_jobs_that_differ() -> None:
    jobs = [healthy_job(seed) for seed in range(100)]
    assert {variety_of(seed) for seed in range(100)} == set(Variety)
    assert len({(job.model, job.training, job.watch, job.layout) for job in jobs}) > 80
    assert {job.training.optimizer for job in jobs} == {"adamw", "sgd"}
    assert len({job.training.schedule for job in jobs}) == 5


@pytest.mark.parametrize("variety", Variety)
def test_a_variety_asked_for_is_in_the_job(variety: Variety) -> None:
    job = healthy_job(3, variety)
    training = job.training
    shown = {
        Variety.PLAIN: True,
        Variety.BATCH_RAMP: training.batch_ramp != (),
        Variety.ACCUMULATION: training.accumulation > 1,
        Variety.DATA_SWITCH: training.data_switch is not None,
        Variety.EPOCHS: training.epoch_iterations is not None,
        Variety.RESTART: training.restarts != (),
        Variety.RESUME_SPIKE: any(one.is_spiking for one in training.restarts),
        Variety.ELASTIC: any(one.ranks is not None for one in training.restarts),
        Variety.UNEVEN_RANKS: training.rank_spread > 0,
        Variety.FP16: training.precision == "fp16",
        Variety.BF16: training.precision == "bf16",
        Variety.LOG_INTERVAL: training.log_every > 1,
        Variety.EVALUATION: training.evaluation_every > 0,
        Variety.RECOVERED_SPIKE: training.bad_batch is not None,
        Variety.SPARSE_CHECKS: job.watch.param_checksum > 1,
        Variety.FEW_RANKS: job.layout.ranks <= 3,
        Variety.LONG_WARMUP: training.warmup_iterations >= 0.2 * job.iterations,
        Variety.STEP_SCHEDULE: training.schedule == "step",
        Variety.UNCLIPPED: training.clip_norm is None,
        Variety.PIPELINE: job.layout.size("pp") == 4,
        Variety.EXPERTS: job.layout.size("ep") == 4,
        Variety.ZERO1: job.layout.sharding == "zero1",
        Variety.FULL_SHARD: job.layout.sharding == "zero3",
        Variety.LOCAL_SGD: job.layout.name is LayoutName.LOCAL_SGD,
    }
    assert shown[variety]
    assert job.run == f"{variety}-3"


def test_a_fault_drawn_for_a_seed_fits_its_job() -> None:
    drawn = [faulty_job(seed) for seed in range(150)]
    for job, fault in drawn:
        check(job, fault)
    assert len({fault.kind for _, fault in drawn}) > 20


def test_jobs_whose_ranks_hold_parts_ask_for_nothing_that_only_whole_replicas_do() -> None:
    jobs = [healthy_job(seed) for seed in range(480)]
    of_parts = [job for job in jobs if job.layout.name in (LayoutName.PP4_TP2_DP2, LayoutName.EXPERT)]
    assert len(of_parts) > 40
    for job in of_parts:
        assert job.training.precision == "fp32"
        assert job.training.evaluation_every == 0
        assert not any(one.is_spiking for one in job.training.restarts)


def test_no_restart_of_another_layout_changes_its_world() -> None:
    jobs = [healthy_job(seed) for seed in range(240)]
    resized = [job for job in jobs if any(one.ranks is not None for one in job.training.restarts)]
    assert resized
    assert {job.layout.name for job in resized} == {LayoutName.DP}

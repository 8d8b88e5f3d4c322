"""The rig's engine: replicas agree, forks are runs, and one process a rank writes the same bytes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from firstfault.drill.rig import LAYOUTS, DrillError, Fault, Job, Kind, Layout, LayoutName, Restart, Site
from firstfault.telemetry import Event, EventKind, Record
from firstfault.wire import encode_event, encode_record

from .rig_builders import RANKS, STRUCK, by_place, small_job

pytestmark = pytest.mark.torch
FLIP = Fault(kind=Kind.BIT_FLIP, site=Site.PARAMETER, iteration=4, rank=STRUCK, bit=25)


def test_healthy_replicas_agree_and_read_their_own_data() -> None:
    placed = by_place(_said(small_job()))
    for iteration in range(6):
        metrics = [placed[0, iteration, rank] for rank in range(RANKS)]
        for name in ("param_checksum", "optim_checksum", "grad_checksum", "canary_checksum", "grad_norm"):
            assert len({one[name] for one in metrics}) == 1, name
        assert (
            len({one["data_checksum"] for one in metrics}) == len({one["loss"] for one in metrics}) == RANKS
        )
        for one in metrics:
            assert one["repeat_checksum/canary"] == one["canary_checksum"]
            assert one["repeat_checksum/recompute"] == one["recompute_checksum"]


def test_a_branch_is_the_run_with_its_fault_and_shares_the_prefix_of_the_twin() -> None:
    from firstfault.drill.rig.engine import fork

    job = small_job(restarts=(Restart(iteration=4),))
    later = replace(FLIP, iteration=5)
    golden, *branches = fork(job, [FLIP, later])
    assert list(golden.said) == _said(job)
    for branch, fault in zip(branches, (FLIP, later), strict=True):
        assert list(branch.said) == _said(job, fault)
        shared = zip(golden.said[: branch.shared], branch.said, strict=False)
        assert all(one is other for one, other in shared)
        differing = [one for one, other in zip(golden.said, branch.said, strict=True) if one != other]
        assert differing[0].iteration == fault.iteration


def test_a_tail_ends_when_it_is_told_to() -> None:
    from firstfault.drill.rig.engine import fork

    _, branch = fork(small_job(iterations=9), [FLIP], tail_iterations=2)
    assert max(iteration for _, iteration, _ in by_place(branch.said)) == 5


def test_a_run_that_is_lost_ends_soon_unless_a_restart_brings_it_back() -> None:
    from firstfault.drill.rig.engine import LOST_RECORDS, fork

    struck = replace(FLIP, kind=Kind.NAN, site=Site.REDUCE_ALL, rank=None, bit=None)
    ends = {}
    for restarts in ((), (Restart(iteration=60),)):
        job = small_job(iterations=80, restarts=restarts)
        _, branch = fork(job, [struck], tail_iterations=80)
        ends[restarts] = max(iteration for _, iteration, _ in by_place(branch.said))
    assert ends[()] < FLIP.iteration + 10 + LOST_RECORDS
    assert ends[Restart(iteration=60),] == 79


def test_rows_are_looked_at_once_only_where_all_their_bits_agree() -> None:
    import torch

    from firstfault.drill.rig.observing import distinct, for_each

    alike = torch.tensor([[1.0, float("nan")]]).repeat(3, 1)
    assert len(distinct(alike)) == 1
    assert for_each(["hash"], 3) == ["hash"] * 3
    signed = torch.zeros(3, 2)
    signed[2, 1] = -0.0
    assert len(distinct(signed)) == 3


@pytest.mark.parametrize(
    "training",
    [
        {"optimizer": "sgd", "peak_lr": 0.2},
        {"precision": "bf16"},
        {"precision": "fp16", "initial_scale": 1024.0},
        {"accumulation": 2, "rank_spread": 0.5},
        {"data_switch": 2, "batch_ramp": ((3, 2),), "epoch_iterations": 4},
    ],
)
def test_one_rank_among_others_has_the_bits_that_it_has_alone(training: dict[str, Any]) -> None:
    from firstfault.drill.rig.data_parallel import DataParallel
    from firstfault.drill.rig.faults import Faults
    from firstfault.drill.rig.links import OneProcess
    from firstfault.drill.rig.observing import Columns
    from firstfault.drill.rig.processes import OneRank

    job = small_job(**training)
    together = DataParallel(job, OneProcess(RANKS), Faults(job, range(RANKS)))
    alone = DataParallel(job, OneRank(STRUCK, RANKS), Faults(job, [STRUCK]))
    for iteration in range(4):
        seen: Columns = {}
        seen_alone: Columns = {}
        local_HP = together.compute(iteration, seen)
        assert (alone.compute(iteration, seen_alone) == local_HP[STRUCK]).all()
        assert {name: values[0] for name, values in seen_alone.items()} == {
            name: values[STRUCK] for name, values in seen.items()
        }


def test_a_restart_repeats_its_iterations_exactly_and_an_elastic_one_changes_the_world() -> None:
    restarts = (Restart(iteration=2), Restart(iteration=4), Restart(iteration=5, ranks=2))
    job = small_job(iterations=8, restarts=(*restarts, Restart(iteration=6)))
    said = _said(replace(job, watch=replace(job.watch, checkpoint=4)))
    placed = by_place(said)
    # nothing was saved before the first restart, and iteration 3 before the others
    assert placed[1, 0, 0] == {**placed[0, 0, 0], "step_time_s": placed[1, 0, 0]["step_time_s"]}
    assert sorted(iteration for attempt, iteration, rank in placed if attempt == 3 and not rank) == [4, 5]
    starts = [thing for thing in said if isinstance(thing, Event) and thing.kind is EventKind.RUN_START]
    assert [one.fields["world_size"] for one in starts] == [3, 3, 3, 2, 2]
    for attempt, world in enumerate([3, 3, 3, 2, 2]):
        assert {rank for at, _, rank in placed if at == attempt} == set(range(world))


def test_a_loss_scale_is_searched_from_above_and_skipped_iterations_change_nothing() -> None:
    placed = by_place(_said(small_job(precision="fp16", initial_scale=2.0**40)))
    first, second = placed[0, 0, 0], placed[0, 1, 0]
    assert (first["skipped"], second["loss_scale"]) == (1, 2.0**39)
    assert first["param_checksum"] == second["param_checksum"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (replace(FLIP, site=Site.SCHEDULE), "fault.site of bit_flip"),
        (replace(FLIP, rank=3), "fault.rank must be below 3, got 3"),
        (replace(FLIP, iteration=6), "fault.iteration must be below 6, got 6"),
        (replace(FLIP, site=Site.LOSS_SCALE), "one that this job has, got loss_scale"),
        (replace(FLIP, place="layer7.up"), "fault.place must be one of layer0.qkv"),
    ],
)
def test_a_fault_that_cannot_act_in_a_job_is_refused(fault: Fault, words: str) -> None:
    with pytest.raises(DrillError, match=words):
        _said(small_job(), fault)


def test_one_process_a_rank_writes_the_same_bytes_in_each_layout_that_can_be_split() -> None:
    from firstfault.drill.processes import launch

    # local SGD: an outer step, and one more
    iterations = {"dp": 4, "zero1": 4, "full_shard": 4, "local_sgd": 11}
    jobs = [
        small_job(iterations=count, layout=_two_ranks(LayoutName(name))) for name, count in iterations.items()
    ]
    fault = replace(FLIP, iteration=2)
    apart = _lines(list(launch(2, _run_each, jobs, fault)))
    assert apart == [line for job in jobs for line in _lines(_said(job, fault))]


def test_a_layout_that_cannot_be_split_is_refused() -> None:
    from firstfault.drill.rig.processes import run_in_processes

    job = replace(small_job(), layout=LAYOUTS[LayoutName.EXPERT])
    with pytest.raises(DrillError, match="must be one of dp, zero1, full_shard, local_sgd, got expert"):
        run_in_processes(job)
    with pytest.raises(DrillError, match="must keep the world size"):
        run_in_processes(small_job(restarts=(Restart(iteration=3, ranks=2),)))


def _two_ranks(name: LayoutName) -> Layout:
    return replace(LAYOUTS[name], ranks=2, mesh=(("dp", 2),))


def _run_each(rank: int, jobs: list[Job], fault: Fault) -> Iterator[Record | Event]:
    """What one process of a rank does: one job after the other."""
    from firstfault.drill.rig.processes import run_rank

    for job in jobs:
        yield from run_rank(rank, job, fault)


def test_saying_what_a_job_is_loads_the_standard_library_alone() -> None:
    program = (
        "import sys; import firstfault.drill.rig, firstfault.drill.rig.catalogue\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'numpy'}))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"


def _said(job: Job, fault: Fault | None = None) -> list[Record | Event]:
    from firstfault.drill.rig.engine import run

    return list(run(job, fault))


def _lines(said: list[Record | Event]) -> list[str]:
    return [encode_record(one) if isinstance(one, Record) else encode_event(one) for one in said]

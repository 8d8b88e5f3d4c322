"""An attempt that repeats iterations of an earlier one is held against it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from detectors.trail import MAX_VALUES, Trail
from detectors.verdict import to_json
from ingest.decode import Decoder
from service.pipeline import Pipeline
from service.sentence import headline

from .block_builders import block, canonical, masked, one_at_a_time, random_cuts
from .run_builders import SyntheticRun, digest, judged

Json = dict[str, Any]
SAME = {"deterministic": True, "software": "torch 2.9"}


def attempts(first_stop: int = 150, start: int = 100, **fields: Any) -> tuple[SyntheticRun, SyntheticRun]:
    """Two launches of one job; the second repeats the iterations from ``start`` to ``first_stop``."""
    launch = {**SAME, **fields}
    return (
        SyntheticRun(iterations=first_stop, **launch),
        SyntheticRun(iterations=100, start=start, attempt=1, **launch),
    )


def check(verdict: Json) -> Json:
    (found,) = [one for one in verdict["coverage"]["checks"] if one["name"] == "reference"]
    return dict(found)


def test_a_job_that_repeats_itself_exactly_is_healthy() -> None:
    verdict = judged(*attempts())
    assert verdict["label"] == "healthy"
    assert check(verdict)["state"] == "ran"
    assert check(verdict)["metrics"] == ["param_checksum"]


def test_an_update_that_all_replicas_share_and_the_repetition_does_not_is_found() -> None:
    first, second = attempts()
    second.check("param_checksum", lambda t, rank: digest(t, 0, 0) if t < 130 else digest(t, "other"))
    verdict = judged(first, second)
    assert verdict["label"] == "silent_drift"
    (incident,) = verdict["incidents"]
    assert (incident["pattern"], incident["certainty"]) == ("compute_mismatch", "confirmed")
    found = incident["first"]
    assert (found["attempt"], found["iteration"], found["interval"]) == (1, 130, [120, 130])
    assert (found["ranks"], found["scope"], found["phase"]) == ([], "unknown", "state")
    assert headline(verdict) == (
        "job: silent drift. The run gets another param_checksum than attempt 0 got at the same iteration,"
        " since iteration 130 of attempt 1 (between 120 and 130)."
    )


def test_the_one_rank_that_does_not_repeat_itself_is_named() -> None:
    first, second = attempts()
    for run in (first, second):
        run.check("canary_checksum", lambda t, rank: digest(t, "canary"))
    # in both attempts no peer can be compared: every rank has a canary of its own
    for run in (first, second):
        run.check("canary_checksum", lambda t, rank: digest(t, "canary", rank))
    second.differ("canary_checksum", 120, [5])
    verdict = judged(first, second)
    (incident,) = verdict["incidents"]
    assert (incident["first"]["ranks"], incident["first"]["iteration"]) == ([5], 120)
    assert incident["first"]["metric"] == "canary_checksum"
    assert "attempt 0 got another result on this rank" in incident["first"]["suspects"][0]["why"]


@pytest.mark.torch
def test_a_flipped_bit_that_all_replicas_apply_alike_is_found_by_the_attempt_that_repeats_it() -> None:
    from firstfault.drill.rig.engine import run
    from firstfault.drill.rig.spec import Fault, Job, Kind, Site, data_parallel
    from firstfault.drill.rig.training import Restart, RigTraining, Watch
    from firstfault.telemetry import Record
    from firstfault.wire import encode_event, encode_record

    job = Job(
        iterations=60,
        layout=data_parallel(2),
        training=RigTraining(restarts=(Restart(iteration=50),)),
        watch=Watch(checkpoint=30, param_checksum=5, canary=0, grad_sketch=0),
    )
    flip = Fault(kind=Kind.BIT_FLIP, site=Site.WEIGHT_GRAD, iteration=42, rank=1, bit=27)
    said = [encode_record(one) if isinstance(one, Record) else encode_event(one) for one in run(job, flip)]
    pipeline = Pipeline()
    pipeline.feed(Decoder().decode_lines(("\n".join(said) + "\n").encode(), "rig", 0))
    incidents: Any = to_json(pipeline.verdict("rig"))["incidents"]
    (incident,) = incidents
    assert (incident["pattern"], incident["certainty"]) == ("compute_mismatch", "confirmed")
    assert (incident["first"]["interval"], incident["first"]["scope"]) == ([41, 42], "unknown")
    assert [(cause["kind"], cause["stage"]) for cause in incident["causes"]] == [
        ("hardware", "before_reduce"),
        ("collective", "reduce"),
    ]


def test_a_state_that_was_not_restored_is_no_wrong_computation() -> None:
    first, second = attempts()
    for run in (first, second):
        run.check("data_checksum", lambda t, rank: digest(t, rank, "data"), every=1)
    second.check("param_checksum", lambda t, rank: digest(t, "moments lost"))
    verdict = judged(first, second)
    assert verdict["label"] == "healthy"
    (note,) = [one for one in verdict["annotations"] if one["kind"] == "not_reproduced"]
    assert "another state was loaded" in note["detail"]["why"]


def test_a_majority_that_loaded_a_corrupted_state_is_outvoted_by_the_earlier_attempt() -> None:
    first, second = attempts()
    second.check("param_checksum", lambda t, rank: digest(t, 0, 0) if rank in (0, 1) else digest(t, "bad"))
    (incident,) = judged(first, second)["incidents"]
    found = incident["first"]
    assert (found["ranks"], found["iteration"], found["tie"]) == ([2, 3, 4, 5, 6, 7], 100, False)
    assert found["victims"] == [] and "the majority is the corrupted side" in found["note"]


@pytest.mark.parametrize(
    ("declared", "from_iteration", "is_found"),
    [(True, 130, True), (False, 130, False), (False, 190, True), (True, 100, False)],
)
def test_only_a_job_that_proved_deterministic_is_accused(
    declared: bool, from_iteration: int, is_found: bool
) -> None:
    first, second = attempts(first_stop=200, deterministic=declared)
    second.check("param_checksum", lambda t, rank: digest(t, 0, 0) if t < from_iteration else digest(t, 1))
    verdict = judged(first, second)
    assert bool(verdict["incidents"]) is is_found
    notes = [note["kind"] for note in verdict["annotations"]]
    assert ("not_reproduced" in notes) is not is_found


def test_after_a_fault_of_the_earlier_attempt_a_better_repetition_is_no_fault() -> None:
    first, second = attempts()
    first.differ("param_checksum", 120, [3])
    verdict = judged(first, second)
    assert [one["first"]["attempt"] for one in verdict["incidents"]] == [0]
    (note,) = [one for one in verdict["annotations"] if one["kind"] == "not_reproduced"]
    assert note["detail"]["why"] == "the earlier attempt had gone wrong by then"


@pytest.mark.parametrize("kind", ["data_change", "lr_change", "batch_size"])
def test_a_repetition_on_other_data_or_another_schedule_is_another_computation(kind: str) -> None:
    first, second = attempts()
    second.tell(kind, 115)
    second.check("param_checksum", lambda t, rank: digest(t, 0, 0) if t < 120 else digest(t, 1))
    assert judged(first, second)["label"] == "healthy"


def test_other_software_or_another_layout_is_another_job() -> None:
    first, _ = attempts()
    for ranks, software in ((8, "torch 3.0"), (4, "torch 2.9")):
        second = SyntheticRun(ranks, 100, start=100, attempt=1, deterministic=True, software=software)
        second.check("param_checksum", lambda t, rank: digest(t, 1))
        verdict = judged(first, second)
        assert verdict["label"] == "healthy"
        assert check(verdict)["why"] == "attempts differ in layout, software or world size"


def test_one_attempt_or_two_that_share_no_iteration_cannot_be_compared() -> None:
    for runs in (attempts()[:1], attempts(first_stop=100)):
        assert check(judged(*runs))["why"].startswith("no checksum was reported of an iteration that a later")


def test_a_restart_of_the_service_changes_nothing() -> None:
    first, second = attempts()
    second.check("param_checksum", lambda t, rank: digest(t, 0, 0) if t < 130 else digest(t, "other"))
    from detectors.verdict import canonical_bytes
    from ingest.decode import Decoder

    lines = [*first.lines(), *second.lines()]
    whole, pieces, decoder = Pipeline(), Pipeline(), Decoder()
    whole.feed(decoder.decode_lines(b"\n".join(lines) + b"\n", "test", 0))
    for at in range(0, len(lines), 331):
        pieces.feed(decoder.decode_lines(b"\n".join(lines[at : at + 331]) + b"\n", "test", at))
        restored = Pipeline()
        restored.restore(pieces.snapshot())
        pieces = restored
    assert canonical_bytes(pieces.verdict("job")) == canonical_bytes(whole.verdict("job"))


def trail_of(blocks: Any) -> Trail:
    trail = Trail()
    for each in blocks:
        trail.update(each)
    return trail


def test_a_trail_is_bounded_and_the_same_however_it_is_cut() -> None:
    iterations, ranks = 3 * MAX_VALUES // 16, 16
    sums_TR = np.arange(iterations)[:, None] * np.ones(ranks, np.int64)
    absent_TR = np.random.default_rng(0).random(sums_TR.shape) < 0.1
    whole = block({"param_checksum": masked(sums_TR, absent_TR), "optim_checksum": sums_TR})
    trail = trail_of([whole])
    for cutting in (
        random_cuts(whole, np.random.default_rng(1)),
        random_cuts(whole, np.random.default_rng(2), 90),
    ):
        assert canonical(trail_of(cutting).snapshot()) == canonical(trail.snapshot())
    assert trail.head_values <= MAX_VALUES
    assert MAX_VALUES - 2 * ranks < trail.tail_values <= MAX_VALUES
    rows = list(trail.rows_from(0))
    assert len({(row.iteration, row.metric) for row in rows}) == len(rows)
    assert (rows[0].iteration, rows[-1].iteration) == (0, iterations - 1)
    assert [row.iteration for row in trail.rows_from(iterations - 2)] == [iterations - 2] * 2 + [
        iterations - 1
    ] * 2


def test_a_trail_of_few_checks_holds_each_once_and_survives_a_snapshot() -> None:
    whole = block({"param_checksum": np.arange(20)[:, None] * np.ones(4, np.int64)})
    trail = trail_of(one_at_a_time(whole))
    assert [row.iteration for row in trail.rows_from(5)] == list(range(5, 20))
    restored = Trail.restored(copy.deepcopy(trail.snapshot()))
    assert canonical(restored.snapshot()) == canonical(trail.snapshot())
    assert canonical(Trail.restored(Trail().snapshot()).snapshot()) == canonical(Trail().snapshot())


def test_a_copy_of_a_trail_goes_on_alone() -> None:
    whole = block({"param_checksum": np.arange(20)[:, None] * np.ones(4, np.int64)})
    trail = trail_of([whole])
    twin = copy.deepcopy(trail)
    twin.update(block({"param_checksum": np.ones((1, 4), np.int64)}, iterations=[50]))
    assert (len(list(trail.rows_from(0))), len(list(twin.rows_from(0)))) == (20, 21)


def test_a_checksum_differs_in_the_trail_where_any_of_its_bits_does() -> None:
    for bit in (0, 1, 31, 32, 63, 64, 100, 127):
        whole = block({"param_checksum": [[hex(0x9F3A)[2:], hex(0x9F3A ^ (1 << bit))[2:]]]})
        (row,) = trail_of([whole]).rows_from(0)
        assert row.words_R[0] != row.words_R[1], bit


def test_of_two_replicas_that_part_at_a_resume_and_agreed_before_it_one_is_confirmed() -> None:
    first, second = attempts(ranks=2, mesh=[["dp", 2]])
    second.check("param_checksum", lambda t, rank: digest(t, "lost", rank))
    (incident,) = judged(first, second)["incidents"]
    assert (incident["certainty"], incident["first"]["tie"]) == ("confirmed", True)
    assert incident["first"]["rank_count"] == 2
    never_agreed = judged(second)["incidents"]
    assert [one["certainty"] for one in never_agreed] == ["suspected"]


def test_replicas_that_agreed_now_and_then_alone_are_only_suspected_after_a_resume() -> None:
    first, second = attempts(ranks=2, mesh=[["dp", 2]])
    first.check("param_checksum", lambda t, rank: digest(t, rank if t % 50 else 0))
    second.check("param_checksum", lambda t, rank: digest(t, "apart", rank))
    confirmed = [
        one
        for one in judged(first, second)["incidents"]
        if one["certainty"] == "confirmed" and one["first"]["attempt"] == 1
    ]
    assert confirmed == []

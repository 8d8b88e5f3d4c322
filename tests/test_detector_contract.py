"""What every detector holds: quiet before the fault, exact under cutting and restart, bounded, plain."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from detectors.evidence import Certainty, CheckState, Evidence
from detectors.registry import make_detectors
from ingest.blocks import ChecksumBlock, IterationBlock, NumberBlock

from .block_builders import (
    Findings,
    block,
    canonical,
    cut,
    evidence_in,
    keep,
    one_at_a_time,
    random_cuts,
    run,
)
from .registry import CASES, Case

each_detector = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def test_the_two_registries_list_the_same_detectors() -> None:
    assert [case.make for case in CASES] == [type(detector) for detector in make_detectors()]
    names = [detector.name for detector in make_detectors()]
    assert len(set(names)) == len(names)


@each_detector
def test_it_is_quiet_on_a_healthy_run(case: Case) -> None:
    assert _accusing(run(case.make(), [case.healthy])) == []


@each_detector
def test_it_fires_after_the_onset_and_not_before(case: Case) -> None:
    assert _accusing(run(case.make(), [_rows(case.faulty, 0, case.onset)])) == []

    found = _accusing(run(case.make(), [case.faulty]))

    assert found
    first = found[0]
    assert first.certainty is Certainty.CONFIRMED
    assert first.ranks == case.ranks
    assert first.alarm_iteration >= case.onset
    assert first.first_bad >= case.onset
    assert first.last_clean is not None
    assert first.last_clean < case.onset


@each_detector
def test_evidence_holds_together(case: Case) -> None:
    for evidence in evidence_in(run(case.make(), [case.faulty])):
        assert evidence.detector == case.name
        assert evidence.ranks == tuple(sorted(evidence.ranks))
        assert evidence.last_clean is None or evidence.last_clean < evidence.first_bad
        assert evidence.iteration <= evidence.first_bad <= evidence.alarm_iteration
        for sight in evidence.sights:
            assert not (sight.bad_R & sight.clean_R).any()
            assert list(sight.ranks_R) == sorted(sight.ranks_R)


@each_detector
def test_the_same_blocks_give_the_same_findings(case: Case) -> None:
    assert canonical(run(case.make(), [case.faulty])) == canonical(run(case.make(), [case.faulty]))


@each_detector
@pytest.mark.parametrize("is_worn", [False, True], ids=["whole", "worn"])
def test_cutting_does_not_matter(case: Case, is_worn: bool) -> None:
    stream = _worn(case.faulty) if is_worn else case.faulty
    whole = canonical(run(case.make(), [stream]))
    assert canonical(run(case.make(), one_at_a_time(stream))) == whole
    for seed in range(4):
        assert canonical(run(case.make(), random_cuts(stream, np.random.default_rng(seed)))) == whole


@each_detector
def test_it_survives_gaps_and_ranks_that_come_and_go(case: Case) -> None:
    assert _accusing(run(case.make(), [_worn(case.healthy, falls_silent=not case.is_of_silence)])) == []


@each_detector
def test_it_survives_values_that_are_no_numbers(case: Case) -> None:
    rng = np.random.default_rng(3)
    numbers = {}
    for metric, column in case.faulty.numbers.items():
        values_TR = column.values_TR.copy()
        for value in (np.nan, np.inf, -np.inf):
            values_TR[rng.random(values_TR.shape) < 0.02] = value
        numbers[metric] = NumberBlock(values_TR, column.present_TR)
    stream = dataclasses.replace(case.faulty, numbers=numbers)
    assert canonical(run(case.make(), [stream])) == canonical(run(case.make(), random_cuts(stream, rng)))


@each_detector
def test_it_does_not_write_to_its_input(case: Case) -> None:
    before = canonical(case.faulty)
    frozen = _frozen(case.faulty)
    run(case.make(), [frozen])
    assert canonical(case.faulty) == before


@each_detector
def test_it_goes_on_exactly_from_a_snapshot(case: Case) -> None:
    pieces = random_cuts(case.faulty, np.random.default_rng(5), pieces=9)
    for stop in (0, 1, len(pieces) // 2, len(pieces) - 1):
        detector = case.make()
        findings = _until(detector, pieces[:stop])
        restored = case.make()
        state = detector.snapshot()
        _assert_plain(state)
        restored.restore(copy.deepcopy(state))
        assert canonical(restored.snapshot()) == canonical(state)
        for each, seen in ((detector, dict(findings)), (restored, dict(findings))):
            for piece in pieces[stop:]:
                keep(seen, each.update(piece))
            keep(seen, each.finish())
            assert canonical(seen) == canonical(run(case.make(), pieces))


@each_detector
def test_a_copy_goes_on_exactly_and_leaves_the_original_alone(case: Case) -> None:
    pieces = random_cuts(case.faulty, np.random.default_rng(6))
    detector = case.make()
    findings = _until(detector, pieces[:3])
    before = canonical(detector.snapshot())
    twin = copy.deepcopy(detector)
    seen = dict(findings)
    for piece in pieces[3:]:
        keep(seen, twin.update(piece))
    keep(seen, twin.finish())
    assert canonical(seen) == canonical(run(case.make(), pieces))
    assert canonical(detector.snapshot()) == before


@each_detector
def test_its_state_does_not_grow_with_the_run(case: Case) -> None:
    for stream in (case.healthy, case.faulty):
        detector = case.make()
        detector.update(stream)
        once = _size(detector.snapshot())
        going_on = _rows(stream, (case.onset + len(stream)) // 2, len(stream))
        for turn in range(1, 10 * len(stream) // len(going_on)):
            later_T = going_on.iteration_T + turn * len(going_on)
            detector.update(dataclasses.replace(going_on, iteration_T=later_T))
        assert _size(detector.snapshot()) <= 1.5 * once + 4096  # 4 kB: counters, and a few skips more


@each_detector
def test_it_says_whether_it_ran_and_why_not(case: Case) -> None:
    idle = case.make()
    idle.update(block({"weather": np.ones((3, 2))}))
    assert idle.check().state is CheckState.NOT_RUN
    assert idle.check().why

    busy = case.make()
    busy.update(case.healthy)
    assert busy.check().state is CheckState.RAN
    assert busy.check().metrics


def _accusing(findings: Findings) -> list[Evidence]:
    """Evidence that opens an incident by itself."""
    return [e for e in evidence_in(findings) if not e.supporting and e.certainty is not Certainty.RECOVERED]


def _until(detector: object, pieces: list[IterationBlock]) -> Findings:
    return run(detector, pieces, finish=False)  # type: ignore[arg-type]  # a Detector of any kind


def _rows(whole: IterationBlock, start: int, stop: int) -> IterationBlock:
    pieces = cut(whole, [start, stop])
    return pieces[0] if start == 0 else pieces[1]


def _worn(whole: IterationBlock, *, falls_silent: bool = True) -> IterationBlock:
    """The same job with lost values and iterations, a rank that joins late, one that falls silent (or is
    away for a while)."""
    rng = np.random.default_rng(11)
    shape = (len(whole), len(whole.ranks_R))
    lost_TR = rng.random(shape) < 0.1
    if shape[1] > 2:
        lost_TR[: shape[0] // 3, 2] = True
        lost_TR[shape[0] // 2 : shape[0] if falls_silent else shape[0] // 2 + 50, 0] = True
    kept_T = rng.random(shape[0]) < 0.95
    return dataclasses.replace(
        whole,
        iteration_T=whole.iteration_T[kept_T],
        microbatch_T=whole.microbatch_T[kept_T],
        time_T=whole.time_T[kept_T],
        numbers={
            metric: NumberBlock(
                np.where(lost_TR, np.nan, column.values_TR)[kept_T], (column.present_TR & ~lost_TR)[kept_T]
            )
            for metric, column in whole.numbers.items()
        },
        checksums={
            metric: ChecksumBlock(
                column.high_TR[kept_T], column.low_TR[kept_T], (column.present_TR & ~lost_TR)[kept_T]
            )
            for metric, column in whole.checksums.items()
        },
    )


def _frozen(whole: IterationBlock) -> IterationBlock:
    """A copy whose arrays raise when they are written to."""
    frozen = copy.deepcopy(whole)
    for array in _arrays(frozen):
        array.setflags(write=False)
    return frozen


def _arrays(value: object) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _arrays(each)
    elif dataclasses.is_dataclass(value):
        for each_field in dataclasses.fields(value):
            yield from _arrays(getattr(value, each_field.name))


def _assert_plain(value: object) -> None:
    if isinstance(value, Mapping):
        for key, each in value.items():
            assert type(key) is str
            _assert_plain(each)
    elif isinstance(value, list):
        for each in value:
            _assert_plain(each)
    elif isinstance(value, np.ndarray):
        assert value.dtype != object
    else:
        assert value is None or isinstance(value, bool | int | float | str), type(value)


def _size(value: object) -> int:
    """Bytes and elements of a state."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(len(str(key)) + _size(each) for key, each in value.items())
    if isinstance(value, list | tuple):
        return 8 + sum(_size(each) for each in value)
    return len(value) if isinstance(value, str) else 8

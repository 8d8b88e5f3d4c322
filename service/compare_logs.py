"""The logs that `firstfault compare` holds against each other, each read into one block of iterations.

Axes: T positions, R ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firstfault.telemetry import EventKind
from ingest.alignment import RunAligner
from ingest.blocks import ChecksumBlock, IterationBlock, NumberBlock, Ranks, RecordBatch
from ingest.errors import UnreadableInput
from ingest.file_source import FileConfig, FileSource, StreamConfig
from ingest.jobs import Job

from .config import Settings
from .errors import ConfigError
from .inputs import find_inputs

_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One run of one job: its attempts in order, each as one block."""

    name: str
    run: str
    attempts: tuple[IterationBlock, ...]

    def attempt(self, number: int) -> IterationBlock:
        """The attempt of that number.

        Raises:
            ConfigError: there is none.
        """
        for block in self.attempts:
            if block.attempt == number:
                return block
        known = ", ".join(str(block.attempt) for block in self.attempts)
        raise ConfigError(f"--attempts must name attempts of {self.run} ({known}), got {number}")

    def as_it_went_on(self) -> IterationBlock:
        """All attempts as one: an iteration that was repeated counts as it was repeated."""
        kept = []
        for at, block in enumerate(self.attempts):
            later = [int(one.iteration_T[0]) for one in self.attempts[at + 1 :] if len(one)]
            stop = int(np.searchsorted(block.iteration_T, min(later))) if later else len(block)
            kept.append(_rows(block, stop))
        return joined(kept)

    @property
    def is_deterministic(self) -> bool:
        """Whether every launch said so, and there was one."""
        launches = [
            event for block in self.attempts for event in block.events if event.kind is EventKind.RUN_START
        ]
        return bool(launches) and all(event.fields.get("deterministic") is True for event in launches)


def read_log(path: str, *, run: str | None, config: FileConfig, settings: Settings) -> Log:
    """The one run in a file or folder.

    Raises:
        UnreadableInput: nothing that could be read, several runs without ``run``, or none of that name.
    """
    blocks: dict[str, dict[int, list[IterationBlock]]] = {}
    with find_inputs([path], config=config) as inputs:
        if inputs.missing:
            raise UnreadableInput(inputs.missing[0].unreadable)
        for job in inputs.jobs:
            for name, attempt, block in _blocks(job, config, settings):
                blocks.setdefault(name, {}).setdefault(attempt, []).append(block)
    if run is not None and run not in blocks:
        raise UnreadableInput(f"{path}: no run named {run}; there is {', '.join(sorted(blocks)[:5])}")
    if run is None and len(blocks) != 1:
        raise UnreadableInput(
            f"{path}: must hold one run, but holds {len(blocks)} ({', '.join(sorted(blocks)[:5])});"
            " choose one with --run"
        )
    name = run if run is not None else next(iter(blocks))
    attempts = [joined(each) for _, each in sorted(blocks[name].items())]
    return Log(name=path, run=name, attempts=tuple(block for block in attempts if len(block)))


def joined(blocks: Sequence[IterationBlock]) -> IterationBlock:
    """Blocks that follow each other as one: positions end to end, ranks and metrics of all of them."""
    ranks_R = np.array(sorted({int(rank) for block in blocks for rank in block.ranks_R}), np.int32)
    numbers = {
        metric: _numbers([block.numbers.get(metric) for block in blocks], blocks, ranks_R)
        for metric in sorted({name for block in blocks for name in block.numbers})
    }
    checksums = {
        metric: _checksums([block.checksums.get(metric) for block in blocks], blocks, ranks_R)
        for metric in sorted({name for block in blocks for name in block.checksums})
    }
    return replace(
        blocks[-1],
        iteration_T=np.concatenate([block.iteration_T for block in blocks]),
        microbatch_T=np.concatenate([block.microbatch_T for block in blocks]),
        ranks_R=ranks_R,
        numbers=numbers,
        checksums=checksums,
        events=tuple(event for block in blocks for event in block.events),
        time_T=np.empty(0),
    )


def _blocks(job: Job, config: FileConfig, settings: Settings) -> Iterable[tuple[str, int, IterationBlock]]:
    """The settled blocks of a job, with run and attempt."""
    lateness = settings.pipeline.alignment.lateness_iterations
    source = FileSource(
        job,
        config=config,
        stream=StreamConfig(lateness_iterations=lateness),
    )
    aligners: dict[str, RunAligner] = {}
    try:
        while not source.is_exhausted:
            for batch in source.poll(_POLL_S):
                for name, block in _aligned(batch, aligners, settings):
                    yield name, block.attempt, block
    finally:
        source.close()
    for name, aligner in aligners.items():
        for attempt in aligner.attempts.values():
            for block in attempt.pending():
                yield name, block.attempt, block


def _aligned(
    batch: RecordBatch, aligners: dict[str, RunAligner], settings: Settings
) -> Iterable[tuple[str, IterationBlock]]:
    names = list(dict.fromkeys([*batch.runs, *(event.run for _, event in batch.events)]))
    for index, name in enumerate(names):
        rows = np.flatnonzero(batch.run_N == index) if index < len(batch.runs) else np.empty(0, np.int64)
        events = [(int(np.searchsorted(rows, at)), event) for at, event in batch.events if event.run == name]
        if len(rows) or events:
            aligner = aligners.setdefault(name, RunAligner(name, settings.pipeline.alignment))
            for block in aligner.push(batch, rows, events):
                yield name, block


def _rows(block: IterationBlock, stop: int) -> IterationBlock:
    part = slice(0, stop)
    return replace(
        block,
        iteration_T=block.iteration_T[part],
        microbatch_T=block.microbatch_T[part],
        numbers={metric: each.rows(part) for metric, each in block.numbers.items()},
        checksums={metric: each.rows(part) for metric, each in block.checksums.items()},
    )


def _numbers(
    parts: Sequence[NumberBlock | None], blocks: Sequence[IterationBlock], ranks_R: Ranks
) -> NumberBlock:
    shape = (sum(len(block) for block in blocks), len(ranks_R))
    values_TR, present_TR = np.full(shape, np.nan), np.zeros(shape, np.bool_)
    start = 0
    for part, block in zip(parts, blocks, strict=True):
        stop = start + len(block)
        if part is not None:
            columns = np.searchsorted(ranks_R, block.ranks_R)
            values_TR[start:stop, columns] = part.values_TR
            present_TR[start:stop, columns] = part.present_TR
        start = stop
    return NumberBlock(values_TR, present_TR)


def _checksums(
    parts: Sequence[ChecksumBlock | None], blocks: Sequence[IterationBlock], ranks_R: Ranks
) -> ChecksumBlock:
    shape = (sum(len(block) for block in blocks), len(ranks_R))
    high_TR, low_TR = np.zeros(shape, np.uint64), np.zeros(shape, np.uint64)
    present_TR = np.zeros(shape, np.bool_)
    start = 0
    for part, block in zip(parts, blocks, strict=True):
        stop = start + len(block)
        if part is not None:
            columns = np.searchsorted(ranks_R, block.ranks_R)
            high_TR[start:stop, columns] = part.high_TR
            low_TR[start:stop, columns] = part.low_TR
            present_TR[start:stop, columns] = part.present_TR
        start = stop
    return ChecksumBlock(high_TR, low_TR, present_TR)

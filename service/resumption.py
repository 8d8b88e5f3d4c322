"""The pipeline as of the last checkpoint of the parts that a worker has claimed."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

from .checkpoints import Claim, RunState, Tenure
from .pipeline import Pipeline
from .snapshot import SnapshotError
from .store import Store

log = logging.getLogger(__name__)

NOWHERE = (-1, -1)
"""Before the first iteration of the first attempt."""

_UNUSABLE = (SnapshotError, ValueError, KeyError, TypeError, IndexError, AttributeError)
"""What restoring a state of another layout may raise."""


def resume(
    store: Store, claim: Claim, new_pipeline: Callable[[], Pipeline]
) -> tuple[Pipeline, Mapping[str, int]]:
    """The pipeline and the offsets to go on from; a fresh one and no offsets where that is not usable.

    A checkpoint of another release or of other settings, or a damaged one, is put aside and the parts are
    read again from their start: verdicts are a function of records and settings, so that costs time only.
    """
    pipeline = new_pipeline()
    try:
        for state in store.states(claim.tenure.source, claim.tenure.parts):
            if state.version != pipeline.version:
                raise SnapshotError(f"it is of {state.version}, this is {pipeline.version}")
            name = pipeline.restore_run(state.snapshot)
            if not state.is_settled:
                pipeline.mark_dirty(name)
    except _UNUSABLE as error:
        log.warning("checkpoint not usable; reading from the start", extra={"reason": str(error)})
        store.forget(claim.tenure)
        return new_pipeline(), {}
    for name, parts in store.parts_of_runs(claim.tenure.source, claim.tenure.parts):
        pipeline.note_parts(name, parts)
    pipeline.fetch = partial(_fetch, store, claim.tenure, pipeline.version)
    pipeline.rejected = {part: Counter(counts) for part, counts in claim.rejected.items()}
    return pipeline, claim.offsets


def states_of(pipeline: Pipeline, waiting: AbstractSet[str]) -> list[RunState]:
    """What a checkpoint must hold of the runs that changed; ``waiting`` are those to be judged yet."""
    return [
        RunState(
            run=run,
            parts=pipeline.parts_of(run),
            version=pipeline.version,
            is_settled=run not in waiting,
            snapshot=pipeline.snapshot_run(run),
        )
        for run in pipeline.unsaved_runs()
    ]


def _fetch(store: Store, tenure: Tenure, version: str, run: str) -> bytes | None:
    """The state of a run that was retired; None where there is none that can be used."""
    state = store.state_of(tenure, run)
    return state.snapshot if state is not None and state.version == version else None


def known_reaches(store: Store) -> dict[str, tuple[int, int]]:
    """How far the store has every run judged."""
    return {one.run: reach_of(json.loads(one.canonical)) for one in store.verdicts()}


def reach_of(verdict: Mapping[str, Any]) -> tuple[int, int]:
    """How far a run was judged: its last attempt and the iteration in it."""
    attempts = [
        (int(one["attempt"]), -1 if one["to"] is None else int(one["to"])) for one in verdict["attempts"]
    ]
    return max(attempts, default=NOWHERE)

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
from .outlet import Outlet
from .pipeline import Pipeline
from .snapshot import SnapshotError, is_whole
from .store import Store

log = logging.getLogger(__name__)

_NOWHERE = (-1, -1)
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
        # Retired ones too: a run that came back without its past would take back what was found in it.
        for version in store.versions(claim.tenure.source, claim.tenure.parts) - {pipeline.version}:
            raise SnapshotError(f"it is of {version}, this is {pipeline.version}")
        for state in store.states(claim.tenure.source, claim.tenure.parts):
            name = pipeline.restore_run(state.snapshot)
            if not state.is_settled:
                pipeline.mark_dirty(name)
    except _UNUSABLE as error:
        log.warning("checkpoint not usable; reading from the start", extra={"reason": str(error)})
        store.forget(claim.tenure)
        return new_pipeline(), {}
    for name, parts in store.parts_of_runs(claim.tenure.source, claim.tenure.parts):
        pipeline.note_parts(name, parts)
    pipeline.fetch = partial(_fetch, store, claim.tenure)
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


def publish_unsent(store: Store, outlet: Outlet) -> None:
    """Tell the outside what no broker has acknowledged yet, whoever found it."""
    after = 0
    while messages := store.unsent(after):
        for message in messages:
            outlet.publish_verdict(message.seq, message.key, message.payload)
        after = messages[-1].seq


class Reaches:
    """How far the store had each run judged before this worker told it anything of the run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[int, int]] = {}

    def is_behind(self, run: str, verdict: Mapping[str, Any]) -> bool:
        """Whether the store knows more than ``verdict``: the run is read again after a restart."""
        if run not in self._known:
            canonical = self._store.canonical_of(run)
            self._known[run] = _NOWHERE if canonical is None else _reach_of(json.loads(canonical))
        return _reach_of(verdict) < self._known[run]

    def told(self, run: str) -> None:
        """The store has a verdict of ours."""
        self._known[run] = _NOWHERE

    def forget(self, run: str) -> None:
        """The run is held no longer."""
        self._known.pop(run, None)


def _fetch(store: Store, tenure: Tenure, run: str) -> bytes | None:
    """The state of a run that was retired; None where it was never saved, or is damaged."""
    state = store.state_of(tenure, run)
    if state is None:
        return None
    if not is_whole(state.snapshot):
        log.warning("state of a retired run is damaged; it begins anew", extra={"run": run})
        return None
    return state.snapshot


def _reach_of(verdict: Mapping[str, Any]) -> tuple[int, int]:
    """How far a run was judged: its last attempt and the iteration in it."""
    attempts = [
        (int(one["attempt"]), -1 if one["to"] is None else int(one["to"])) for one in verdict["attempts"]
    ]
    return max(attempts, default=_NOWHERE)

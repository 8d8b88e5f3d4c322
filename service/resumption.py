"""The pipeline as of the last checkpoint of the parts that a worker has claimed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping

from .checkpoints import Claim
from .pipeline import Pipeline
from .snapshot import SnapshotError
from .store import Store

log = logging.getLogger(__name__)

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
    pipeline.rejected = {part: Counter(counts) for part, counts in claim.rejected.items()}
    return pipeline, claim.offsets

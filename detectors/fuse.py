"""Evidence becomes incidents, incidents become the verdict of a run."""

from __future__ import annotations

from collections.abc import Sequence

from .facts import AttemptFindings, InputFacts
from .verdict import Verdict


def fuse(run: str, attempts: Sequence[AttemptFindings], inputs: InputFacts) -> Verdict:
    """The verdict of ``run``: a pure function of what was found, in whatever order it came."""
    raise NotImplementedError

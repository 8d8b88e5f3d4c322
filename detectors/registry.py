"""Which detectors judge an attempt, one line each, in the order in which findings are listed.

A new detector is one file, one line here and one line in ``tests/registry.py``. Peer outlier,
linear checksum, reference, stall and joint detectors take their place below the ones that are here.
"""

from __future__ import annotations

from collections.abc import Callable

from .agreement import Agreement
from .base import Detector
from .checksum_vote import ChecksumVote
from .curve_drift import CurveDrift
from .explosion import Explosion
from .nonfinite import Nonfinite
from .repeat import Repeat

DETECTORS: tuple[Callable[[], Detector], ...] = (
    Nonfinite,
    Explosion,
    ChecksumVote,
    Agreement,
    Repeat,
    CurveDrift,
)


def make_detectors() -> list[Detector]:
    """A fresh detector of each kind, for one attempt of one run."""
    return [make() for make in DETECTORS]

"""What every detector is: a left fold over settled iterations of one attempt of one run.

The contract, held by ``tests/test_detector_contract.py`` for each one in the registry:

* *Deterministic*: no clock, no environment, no global random state. The same blocks, the same findings.
* *Cut-invariant*: any cutting of the same iterations into blocks leaves the same findings, byte for
  byte (a finding is identified by its key; the last one counts).
* *Bounded*: state does not grow with the number of iterations; cost per value is constant.
* *Plain*: `snapshot` gives numbers, text, lists, dictionaries and numpy arrays; `restore` of it into
  a new detector continues exactly. Never pickle.
* *Quiet before the fault* and through gaps, NaN, restarts. The block is never written to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from ingest.blocks import IterationBlock

from .evidence import Check, Finding

# Any: a state is a tree of plain values and arrays, whose shape only its own detector knows.
State = Mapping[str, Any]


class Detector(Protocol):
    """Folds blocks of one attempt into findings."""

    name: ClassVar[str]
    """The name in coverage, evidence and the README."""

    def update(self, block: IterationBlock) -> list[Finding]:
        """Take the next settled positions and return what is new or changed."""
        ...

    def finish(self) -> list[Finding]:
        """Return what can be said now that no more will come; called at most once, after `update`.

        A live verdict calls it on a copy, so it must not depend on being the real end.
        """
        ...

    def check(self) -> Check:
        """Whether this detector could run so far, and if not, what telemetry was missing."""
        ...

    def snapshot(self) -> State:
        """The whole state as plain data."""
        ...

    def restore(self, state: State) -> None:
        """Continue from ``state``, which `snapshot` of the same detector gave."""
        ...

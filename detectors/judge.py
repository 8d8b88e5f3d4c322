"""One attempt judged: every detector of the registry, the roles of metrics, and the facts.

`AttemptJudge.update` takes settled blocks. `AttemptJudge.findings` answers what would be concluded
if the input ended after some more, not yet settled blocks, and leaves the judge as it was: so a live
verdict and the verdict of a finished log are the same function of the same records.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ingest.blocks import IterationBlock

from .evidence import Annotation, Evidence, Finding
from .facts import AttemptFindings
from .facts_fold import FactsFold
from .findings_state import findings_from_plain, findings_to_plain
from .registry import DetectorsConfig, make_detectors
from .roles import Roles
from .side_by_side import FROM_POSITIONS, side_by_side
from .trail import Trail

MAX_FINDINGS = 2000
"""Evidence kept of one attempt, and annotations likewise. A detector names an episode once, so more
than this is a flood (a metric that alternates for a million iterations); the first ones tell what
happened."""


class AttemptJudge:
    """Folds the settled blocks of one attempt into findings."""

    def __init__(
        self, attempt: int, lateness_iterations: int, detectors: DetectorsConfig | None = None
    ) -> None:
        self.attempt = attempt
        self.detectors = make_detectors(detectors)
        self.roles = Roles()
        self.fold = FactsFold(attempt, lateness_iterations)
        self.trail = Trail()
        self.found: dict[tuple[str, str, str], Finding] = {}
        self.counts: Counter[str] = Counter()

    def update(self, block: IterationBlock) -> None:
        """Take the next settled positions."""
        if len(block) >= FROM_POSITIONS:
            self._update_side_by_side(block)
            return
        for fold in (self.roles, self.fold, self.trail):
            fold.update(block)
        for detector in self.detectors:
            self._keep(detector.update(block))

    def _update_side_by_side(self, block: IterationBlock) -> None:
        """The same in threads: neither a fold nor a detector knows the others."""
        work: list[Callable[[], Sequence[Finding] | None]] = [
            *(partial(detector.update, block) for detector in self.detectors),
            *(partial(fold.update, block) for fold in (self.roles, self.fold, self.trail)),
        ]
        for found in side_by_side(work):
            self._keep(found or ())

    def findings(
        self,
        pending: Sequence[IterationBlock],
        labels: Mapping[int, Mapping[str, str]],
    ) -> AttemptFindings:
        """What is concluded if the input ends after ``pending``."""
        end = copy.deepcopy(self)
        for block in pending:
            end.update(block)
        for detector in end.detectors:
            end._keep(detector.finish())
        found = list(end.found.values())
        roles = {metric: end.roles.role_of(metric) for metric in sorted(end.fold.metrics)}
        return AttemptFindings(
            facts=end.fold.facts(roles, labels),
            evidence=tuple(one for one in found if isinstance(one, Evidence)),
            annotations=tuple(one for one in found if isinstance(one, Annotation)),
            checks=tuple(detector.check() for detector in end.detectors),
            trail=end.trail,
        )

    def snapshot(self) -> Mapping[str, Any]:
        """The whole state as plain data."""
        return {
            "attempt": self.attempt,
            "detectors": {detector.name: detector.snapshot() for detector in self.detectors},
            "roles": self.roles.snapshot(),
            "facts": self.fold.snapshot(),
            "trail": self.trail.snapshot(),
            "found": findings_to_plain(self.found.values()),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        for detector in self.detectors:
            detector.restore(state["detectors"][detector.name])
        self.roles.restore(state["roles"])
        self.fold.restore(state["facts"])
        self.trail = Trail.restored(state["trail"])
        self.found, self.counts = {}, Counter()
        self._keep(findings_from_plain(state["found"]))

    def _keep(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            sort = finding.detector if isinstance(finding, Evidence) else "annotation " + finding.kind
            key = (type(finding).__name__, sort, finding.key)
            if key not in self.found:
                if self.counts[key[0]] >= MAX_FINDINGS:
                    continue
                self.counts[key[0]] += 1
            self.found[key] = finding

"""One incident in the making, as the rules for causes and advice see it."""

from __future__ import annotations

from dataclasses import dataclass

from firstfault.telemetry import UNNAMED_RANK

from .drafts import Draft
from .evidence import Certainty, Pattern
from .facts import AttemptFacts, AttemptFindings
from .incident import First, Incident, Scope
from .locate import place_of
from .origin import Origin
from .precedence import Family, family


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An incident in the making, with all that its causes may rest on."""

    draft: Draft
    origin: Origin
    first: First
    findings: AttemptFindings
    earlier: tuple[AttemptFacts, ...] = ()
    before: tuple[Incident, ...] = ()

    @property
    def facts(self) -> AttemptFacts:
        """Facts of the incident's attempt."""
        return self.findings.facts

    @property
    def family(self) -> Family:
        """Family of the root."""
        return family(self.draft.root)

    @property
    def is_of_evaluation(self) -> bool:
        """Whether an evaluation fell, and not what training itself reports."""
        return self.draft.root.pattern is Pattern.LOW_TEST_ACCURACY

    @property
    def is_of_loss(self) -> bool:
        """Whether the loss of a rank was the first to go wrong."""
        return self.origin.metric.partition("/")[0] in ("loss", "nonfinite_loss")

    @property
    def names_ranks(self) -> bool:
        """Whether the fault is pinned to some of the ranks."""
        return self.first.scope is Scope.RANKS

    @property
    def has_repeat_mismatch(self) -> bool:
        """Whether a suspect disagrees with itself, in a job that has proved deterministic otherwise."""
        own = set(self.origin.ranks)
        every = (*self.draft.members, *self.draft.attached)
        return any(
            one.metric.startswith("repeat_")
            and one.certainty is Certainty.CONFIRMED
            and (self.is_one_rank_log or (self.names_ranks and not own.isdisjoint(one.ranks)))
            for one in every
        )

    @property
    def is_one_rank_log(self) -> bool:
        """Whether all that is known comes from one rank, which a verdict does not name."""
        return len(self.facts.ranks) <= 1

    @property
    def is_on_one_host(self) -> bool:
        """Whether the suspects have one host, and ranks beside them have others."""
        hosts = {one.host for one in self.first.suspects}
        peers = set(self.facts.ranks) - {one.rank for one in self.first.suspects}
        others = {place_of(rank, self.facts)[0] for rank in peers}
        return len(hosts) == 1 and None not in hosts and bool(others) and hosts.isdisjoint(others)

    def is_clean(self, metric: str) -> bool:
        """Whether ``metric`` was seen clean on every suspect, at the iteration of the fault."""
        return self._seen(metric, bad=False) >= self._own

    def is_bad(self, metric: str) -> bool:
        """Whether ``metric`` was seen bad on a suspect, at the iteration of the fault."""
        return not self._seen(metric, bad=True).isdisjoint(self._own)

    @property
    def _own(self) -> set[int]:
        return set(self.origin.ranks) or {UNNAMED_RANK}

    def _seen(self, metric: str, *, bad: bool) -> set[int]:
        ranks: set[int] = set()
        for member in self.draft.members:
            for sight in member.sights:
                if sight.metric.partition("/")[0] == metric and sight.iteration == self.first.iteration:
                    ranks.update(sight.ranks_R[sight.bad_R if bad else sight.clean_R].tolist())
        return ranks

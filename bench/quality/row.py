"""One case in one tier, judged: what all scores are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .case import Spec, Tier, Truth
from .judging import Found, Judgement
from .naive import Alarm

HEALTHY = "healthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is true of a case in a tier, and what was said."""

    spec: Spec
    tier: Tier
    truth: Truth
    judgement: Judgement
    logged: int
    log_interval: int
    healthy_points: int
    others: Mapping[str, Sequence[Alarm] | None] = field(default_factory=dict)
    """Alarms of naive rules and of peers, of the averaged curve alone; None where no answer was readable."""
    of_twin: Mapping[str, Sequence[Alarm] | None] = field(default_factory=dict)
    """The same of the run without the fault: an alarm that is there too was not of the fault."""

    @property
    def is_faulty(self) -> bool:
        """Whether something is wrong that the tier can show."""
        return self.truth.label != HEALTHY

    @property
    def is_right(self) -> bool:
        """Whether the label is right."""
        return self.judgement.label == self.truth.label

    @property
    def root(self) -> Found | None:
        """The incident that the label is of."""
        return next(iter(self.judgement.confirmed), None)

    @property
    def points_late(self) -> int | None:
        """Logged points from the onset to the first suspicion of it; None where it was never suspected."""
        return self._late(min(self._since_onset("suspected_at"), default=None))

    @property
    def points_to_sure(self) -> int | None:
        """Logged points from the onset to the confirmation; None where it was never confirmed."""
        sure = [at for one, at in self._timed("confirmed_at") if one in self.judgement.confirmed]
        return self._late(min(sure, default=None))

    @property
    def false_alarms(self) -> int:
        """Confirmed incidents that were sure before anything was wrong."""
        # a restore that comes back wrong shows at the checkpoint's iteration, before the one of the restart
        starts = [at for at in (self.truth.injected_at, self.truth.onset) if at is not None]
        if not starts:
            return len(self.judgement.confirmed)
        late = [one.attempt for one in self.judgement.confirmed if one.confirmed_at >= min(starts)]
        # a fault that is there in one attempt is there when the next one repeats the iterations before it
        return sum(
            one.confirmed_at < min(starts) and one.attempt <= min(late, default=one.attempt)
            for one in self.judgement.confirmed
        )

    def _since_onset(self, name: str) -> list[int]:
        return [at for _, at in self._timed(name)]

    def _timed(self, name: str) -> list[tuple[Found, int]]:
        onset = self.truth.onset
        if onset is None:
            return []
        found = [*self.judgement.confirmed, *self.judgement.suspected]
        return [(one, at) for one in found if (at := int(getattr(one, name))) >= onset]

    def _late(self, at: int | None) -> int | None:
        onset = self.truth.onset
        return None if at is None or onset is None else (at - onset) // self.log_interval

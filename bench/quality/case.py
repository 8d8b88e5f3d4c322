"""One case: what to make, what was logged, and what is true of it as each tier of telemetry shows it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from firstfault.drill.rig import tiers

FIRST_BENCHMARK_SEED = 1_000_000
"""Seeds from here on are drawn by this benchmark alone: no threshold is ever tuned on them."""
NEXT_SEED = 1_700_000
"""The first seed of the next measurement. Raised whenever somebody has looked at what the last one showed."""


Tier = tiers.Tier
"""How much telemetry the job gave; each holds all of the one before."""
TIERS = tuple(Tier)


class Origin(StrEnum):
    """Who made the telemetry of a case."""

    CURVE = "curve"
    """A synthetic curve with a truth that is exact."""
    RIG = "rig"
    """A job of the fault-injection rig; its golden twin tells what became of the fault."""
    SMALL = "small"
    """A small job of the rig, for one floor that asks for many cases; it counts for nothing else."""
    SURROGATE = "surrogate"
    """A healthy curve drawn from a model fitted to recorded curves of real jobs."""
    RECORDED = "recorded"
    """A recorded healthy curve of a real job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What makes one case, and everything that does; as plain data it names the case in the cache."""

    origin: Origin
    family: str
    """Kind of case: ``level_shift``, ``bit_flip@weight_grad``, ``healthy``."""
    seed: int
    detail: Mapping[str, Any] = field(default_factory=dict)
    tiers: tuple[Tier, ...] = (Tier.CURVE,)

    @property
    def key(self) -> str:
        """The name in the cache: equal for equal specs alone."""
        text = json.dumps(asdict(self), sort_keys=True, default=str)
        return f"{self.family}-{self.seed}-{blake2b(text.encode(), digest_size=6).hexdigest()}".replace(
            "/", "_"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is right about a case in one tier.

    ``onset`` is the first iteration whose telemetry in the tier shows the fault. ``ranks`` are the ranks
    that did it, empty where it is no rank's. Of a NaN ``suspects`` is the smallest set that the tier's
    telemetry and the layout allow.
    """

    label: str
    onset: int | None = None
    injected_at: int | None = None
    is_observable: bool = True
    mattered: bool = True
    ranks: tuple[int, ...] = ()
    suspects: tuple[int, ...] | None = None
    causes: tuple[str, ...] = ()
    stage: str | None = None
    interval: int = 1
    """Iterations from one observation of what shows the fault to the next."""
    replicas: int = 0
    """Members of the group that must agree, 3 for three and more; 0 where the fault breaks no agreement."""
    facts: Mapping[str, float] = field(default_factory=dict)
    """What a floor asks for: size in sigmas, the doubling time, the rate of a canary fault."""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Truth:
        """The truth that `dataclasses.asdict` and JSON made plain."""
        lists = {"ranks": tuple(plain["ranks"]), "causes": tuple(plain["causes"])}
        suspects = plain["suspects"]
        return cls(**{**plain, **lists, "suspects": None if suspects is None else tuple(suspects)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What a case logged, as lines of JSON, and the truth of each tier.

    ``logged`` are the iterations at which anything was logged: delays count these, not iterations.
    """

    lines: Sequence[bytes]
    truths: Mapping[Tier, Truth]
    logged: int
    log_interval: int = 1
    healthy_points: int = 0
    """Logged iterations before the fault: all of them where there is none."""

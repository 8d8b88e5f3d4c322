"""A scenario made concrete: which rank the fault strikes, and when.

Standard library only. Both follow from scenario and seed alone, so that the same command gives the same log
and another seed gives another rank and iteration.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from importlib.util import find_spec

from .scenarios import SCENARIOS, FaultKind, Scenario

MAX_SEED = 2**32 - 1
"""Greatest seed: every generator that a drill draws from takes it, with room to count on from it."""


class DrillError(ValueError):
    """A drill cannot be run as asked: names the setting, the rule and the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillConfig:
    """One drill. ``None`` takes the scenario's own value."""

    scenario: str = "healthy"
    seed: int | None = None
    ranks: int = 8
    """Data-parallel replicas; below 3 a checksum vote has no majority."""
    iterations: int | None = None
    engine: str = "virtual"
    """``virtual`` holds all replicas in one process; ``processes`` gives each its own, over gloo."""
    run: str | None = None
    """Name of the run in the log; the scenario's name if not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A scenario made concrete: the truth of the log that it will write."""

    scenario: Scenario
    run: str
    seed: int
    ranks: int
    iterations: int
    stop: int
    """First iteration that is not executed."""
    fault_rank: int | None = None
    """The faulty rank; None for a fault of all ranks or none."""
    fault_iteration: int | None = None
    """First iteration in which the fault acts."""
    engine: str = "virtual"

    @property
    def fault(self) -> FaultKind:
        """What goes wrong."""
        return self.scenario.fault

    def is_struck(self, iteration: int, rank: int | None = None) -> bool:
        """Whether a lasting fault acts in this iteration (on this rank, if one is given)."""
        if self.fault_iteration is None or iteration < self.fault_iteration:
            return False
        lasts = self.scenario.lasts_iterations
        is_over = lasts is not None and iteration >= self.fault_iteration + lasts
        return not is_over and (rank is None or self.fault_rank is None or rank == self.fault_rank)


def plan(config: DrillConfig) -> Plan:
    """Decide where and when the fault strikes, from the scenario and the seed alone.

    >>> plan(DrillConfig(scenario="healthy")).fault_iteration is None
    True

    Raises:
        DrillError: an unknown scenario or engine, too few ranks or iterations.
    """
    scenario = SCENARIOS.get(config.scenario)
    if scenario is None:
        raise DrillError(f"scenario must be one of {', '.join(SCENARIOS)}, got {config.scenario!r}")
    iterations = scenario.iterations if config.iterations is None else config.iterations
    if not 1 <= config.ranks <= 64:  # 64: one process holds all replicas; more only costs time
        raise DrillError(f"ranks must be from 1 to 64, got {config.ranks}")
    if not 20 <= iterations <= 100_000:  # 20: a fault needs iterations before and after it
        raise DrillError(f"iterations must be from 20 to 100000, got {iterations}")
    if config.engine not in ("virtual", "processes"):
        raise DrillError(f"engine must be virtual or processes, got {config.engine!r}")
    seed = scenario.seed if config.seed is None else config.seed
    if not 0 <= seed <= MAX_SEED:
        raise DrillError(f"seed must be from 0 to {MAX_SEED}, got {seed}")
    rng = random.Random(f"{scenario.name}/{seed}/{config.ranks}/{iterations}")
    rank, at = rng.randrange(config.ranks), _strike(scenario, iterations, rng)
    stop = iterations
    if at is not None and scenario.runs_on_iterations is not None:
        stop = min(iterations, at + scenario.runs_on_iterations)
    return Plan(
        scenario=scenario,
        run=config.run or scenario.name,
        seed=seed,
        ranks=config.ranks,
        iterations=iterations,
        stop=stop,
        fault_rank=rank if scenario.is_of_one_rank else None,
        fault_iteration=at,
        engine=config.engine,
    )


def require_torch() -> None:
    """Say so before anything is written where a drill cannot run.

    Raises:
        DrillError: torch is not installed.
    """
    if find_spec("torch") is None:
        raise DrillError("a drill trains a real model and needs torch: pip install torch")


def _strike(scenario: Scenario, iterations: int, rng: random.Random) -> int | None:
    if scenario.fault is FaultKind.NONE:
        return None
    low, high = (round(share * iterations) for share in scenario.strikes_between)
    return rng.randint(low, high)


# Nothing holds the growth back: no clipping, no norm layers, no decay of the weights. With them AdamW
# at any learning rate ends on a plateau, not in an explosion.

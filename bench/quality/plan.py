"""Which cases are made: how many of each family, quick or full, from seeds that nothing was tuned on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from .case import Origin, Spec, Tier
from .curve_faults import FAULTS

CURVES: Mapping[str, tuple[int, int]] = {
    "level_shift": (200, 1000),
    "rise": (240, 1000),
    "stuck": (12, 100),
    "fast_explosion": (80, 400),
    "slow_explosion": (120, 400),
    "norm_explosion": (80, 400),
    "explosion_to_nan": (20, 200),
    "clean_nan": (40, 400),
    "slower": (20, 200),
    "slower_with_canary": (140, 400),
    "plain": (40, 400),
    "spikes": (20, 200),
    "data_mix": (12, 100),
    "fp16_skips": (12, 100),
    "warm_restart": (12, 100),
    "decay_step": (12, 100),
    "noisier": (12, 100),
}
"""Synthetic curves of each family: quick, full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Cases that are made together, and which peers are asked about their curves."""

    specs: tuple[Spec, ...]
    peers: tuple[str, ...] = ()


GROUPS = (24, 1000)
"""Jobs of the rig, each healthy once and struck by four faults: quick, full."""
SMALL = (60, 300)
"""Small jobs of the rig, each struck by six faults: quick, full."""
SURROGATES = (150, 2000)
"""Surrogates of recorded healthy curves: quick, full."""
PEER_SURROGATES = (14, 210)
"""Surrogates that peers are asked about: one of each recorded curve, or fifteen."""
PEER_CURVES = (5, 40)
"""Curves of each family that peers are asked about: a second a curve for all, another for its twin."""
PEER_GROUPS = (6, 60)
"""Jobs of the rig of which they are."""


def tasks(
    first_seed: int, *, is_full: bool, peers: tuple[str, ...], recorded: Path | None, only: str = ""
) -> list[Task]:
    """All cases of one measurement, kinds in turn, so that a part of them is a fair sample."""
    groups = list(rig_tasks(first_seed, is_full=is_full, peers=peers))
    small = list(small_tasks(first_seed, is_full=is_full))
    curves = [
        *curve_tasks(first_seed, is_full=is_full, peers=peers),
        *healthy_tasks(first_seed, recorded, is_full=is_full, peers=peers),
    ]
    # a group takes as long as some fifty curves: spread, the time left can be told from the time taken
    shares = [_shares(tasks, len(groups)) for tasks in (small, curves)]
    every = [task for part in zip(groups, *shares, strict=True) for task in _flat(*part)]
    return [task for task in every if task.specs[0].family.startswith(only)]


def rig_tasks(first_seed: int, *, is_full: bool, peers: tuple[str, ...]) -> Iterator[Task]:
    """Groups of the rig."""
    from .rig_cases import rig_specs

    for number in range(GROUPS[is_full]):
        is_asked = number < PEER_GROUPS[is_full]
        yield Task(specs=tuple(rig_specs(first_seed + number)), peers=peers if is_asked else ())


def small_tasks(first_seed: int, *, is_full: bool) -> Iterator[Task]:
    """Small jobs of the rig."""
    from .small_cases import small_specs

    for number in range(SMALL[is_full]):
        yield Task(specs=tuple(small_specs(first_seed + number)))


def healthy_tasks(
    first_seed: int, recorded: Path | None, *, is_full: bool, peers: tuple[str, ...]
) -> Iterator[Task]:
    """Surrogates, and the recorded curves of a folder if there is one."""
    from .healthy_cases import recorded_specs, surrogate_spec

    for number in range(SURROGATES[is_full]):
        is_asked = number < PEER_SURROGATES[is_full]
        yield Task(specs=(surrogate_spec(first_seed + number),), peers=peers if is_asked else ())
    for spec in recorded_specs(recorded) if recorded is not None else ():
        yield Task(specs=(spec,))


def curve_tasks(first_seed: int, *, is_full: bool, peers: tuple[str, ...]) -> Iterator[Task]:
    """The synthetic curves."""
    for number in range(max(sizes[is_full] for sizes in CURVES.values())):
        for family, sizes in CURVES.items():
            if number < sizes[is_full]:
                is_asked = family != _CANARY and number < PEER_CURVES[is_full]
                yield Task(specs=(curve_spec(family, first_seed + number),), peers=peers if is_asked else ())


def curve_spec(family: str, seed: int) -> Spec:
    """One synthetic curve."""
    tier = Tier.CANARY if family == _CANARY else Tier.CURVE
    return Spec(origin=Origin.CURVE, family=family, seed=seed, tiers=(tier,))


def find_spec(origin: Origin, family: str, seed: int) -> Spec:
    """The case of that name.

    Raises:
        ValueError: the seed makes no such case.
    """
    from .healthy_cases import surrogate_spec
    from .rig_cases import rig_specs
    from .small_cases import small_specs

    known = [curve_spec(family, seed)] if origin is Origin.CURVE and family in CURVES else []
    known += rig_specs(seed) if origin is Origin.RIG else []
    known += small_specs(seed) if origin is Origin.SMALL else []
    known += [surrogate_spec(seed)] if origin is Origin.SURROGATE else []
    for spec in known:
        if spec.family == family:
            return spec
    raise ValueError(
        f"family of seed {seed} must be one of {[spec.family for spec in known]}, got {family!r}"
    )


def twin_of(spec: Spec) -> Spec | None:
    """The same run with the same noise and without the fault, where there is one."""
    if spec.origin is Origin.CURVE and spec.family in FAULTS:
        return replace(spec, detail={"twin": True})
    if spec.origin is Origin.RIG and not spec.family.startswith("healthy"):
        from .rig_cases import rig_specs

        return rig_specs(spec.seed)[0]
    return None


_CANARY = "slower_with_canary"


def _shares(tasks: Sequence[Task], parts: int) -> list[list[Task]]:
    """The tasks in so many parts, each as long as the next."""
    edges = [round(at * len(tasks) / max(parts, 1)) for at in range(max(parts, 1) + 1)]
    return [list(tasks[start:stop]) for start, stop in pairwise(edges)]


def _flat(group: Task, *others: Sequence[Task]) -> list[Task]:
    return [group, *(task for tasks in others for task in tasks)]

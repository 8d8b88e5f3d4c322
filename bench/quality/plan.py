"""Which cases are made: how many of each family, quick or full, from seeds that nothing was tuned on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .case import TIERS, Origin, Spec, Tier

CURVES: Mapping[str, tuple[int, int]] = {
    "level_shift": (40, 400),
    "rise": (40, 400),
    "stuck": (12, 100),
    "fast_explosion": (40, 400),
    "slow_explosion": (40, 400),
    "norm_explosion": (20, 200),
    "explosion_to_nan": (20, 200),
    "clean_nan": (40, 400),
    "slower": (20, 200),
    "slower_with_canary": (20, 200),
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
    """One case to be done, and which peers are asked about its curve."""

    spec: Spec
    peers: tuple[str, ...] = ()


PEER_CURVES = 6
"""Curves of each family that peers are asked about in a quick run: a second a curve for all of them."""


def tasks(
    first_seed: int, *, is_full: bool, peers: tuple[str, ...], recorded: Path | None, only: str = ""
) -> list[Task]:
    """All cases of one measurement, families in turn, so that a part of them is a fair sample."""
    specs = [*curve_specs(first_seed, is_full=is_full)]
    asked: dict[str, int] = {}
    planned = []
    for spec in specs:
        if not spec.family.startswith(only):
            continue
        count = asked[spec.family] = asked.get(spec.family, 0) + 1
        is_asked = Tier.CURVE in spec.tiers and (is_full or count <= PEER_CURVES)
        planned.append(Task(spec=spec, peers=peers if is_asked else ()))
    return planned


def curve_specs(first_seed: int, *, is_full: bool) -> Iterator[Spec]:
    """The synthetic curves."""
    for number in range(max(sizes[is_full] for sizes in CURVES.values())):
        for family, sizes in CURVES.items():
            if number < sizes[is_full]:
                yield curve_spec(family, first_seed + number)


def curve_spec(family: str, seed: int) -> Spec:
    """One synthetic curve."""
    tier = Tier.CANARY if family == "slower_with_canary" else Tier.CURVE
    return Spec(origin=Origin.CURVE, family=family, seed=seed, tiers=(tier,))


def find_spec(origin: Origin, family: str, seed: int) -> Spec:
    """The case of that name."""
    if origin is Origin.CURVE:
        return curve_spec(family, seed)
    return Spec(origin=origin, family=family, seed=seed, tiers=TIERS)

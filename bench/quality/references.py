"""A run held against a reference, as ``firstfault compare`` does: slower declines that no curve shows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from service.compare_command import CompareRequest, compare

from .cache import JUDGES, cache_folder, load_plain, save_plain, source_digest
from .curve_bases import correlated
from .curve_cases import draw, lines_of
from .curve_faults import Curve

SOURCES = ("curve_bases", "curve_faults", "curve_cases", "references")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A run and its reference: the same configuration with other noise, and a slower decline or none."""

    seed: int
    is_slower: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was said of a pair: ``same``, ``differs`` or ``unknown``."""

    pair: Pair
    outcome: str
    gap_sigmas: float
    """How far the two levels are apart in the end."""


def pairs(first_seed: int, *, is_full: bool) -> Iterator[Pair]:
    """All pairs of one measurement."""
    for number in range(400 if is_full else 130):
        yield Pair(seed=first_seed + number, is_slower=True)
        yield Pair(seed=first_seed + number, is_slower=False)


def told(pair: Pair) -> Told:
    """What `compare` says of a pair, kept as long as nothing that made it changes."""
    sources = tuple(f"bench/quality/{name}.py" for name in SOURCES)
    place = cache_folder() / "references" / source_digest((*JUDGES, *sources))
    path = place / "-".join(str(value) for value in asdict(pair).values())
    kept = load_plain(path)
    if kept is None:
        kept = _compared(pair)
        save_plain(path, kept)
    return Told(pair=pair, outcome=str(kept["outcome"]), gap_sigmas=float(kept["gap_sigmas"]))


def _compared(pair: Pair) -> dict[str, float | str]:
    rng = np.random.default_rng([pair.seed, 23])
    curve = draw("slower", rng, is_twin=not pair.is_slower)
    other_T = curve.base.sigma * correlated(len(curve.base), 0.3, rng)
    reference = Curve(
        base=curve.base,
        at=curve.at,
        loss_T=curve.base.level_T * np.exp(other_T),
        norm_T=curve.norm_T * np.exp(rng.normal(0.0, 0.1, len(curve.base))),
        lr_T=curve.lr_T,
    )
    logs = [list(lines_of(one, run="run")) for one in (curve, reference)]
    return {"outcome": _outcome(logs), "gap_sigmas": curve.facts.get("gap_sigmas", 0.0)}


def _outcome(logs: Sequence[Sequence[bytes]]) -> str:
    with tempfile.TemporaryDirectory(prefix="firstfault-quality-") as name:
        paths = [Path(name) / f"{at}.jsonl" for at in range(len(logs))]
        for path, lines in zip(paths, logs, strict=True):
            path.write_bytes(b"\n".join([*lines, b""]))
        compared = compare(CompareRequest(first=str(paths[0]), second=str(paths[1])))
    return compared.answer.outcome.value

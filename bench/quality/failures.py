"""The cases that went wrong, by what was asked of them, each with the command that makes its log again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from .case import Origin, Tier
from .floors import FAST_SUSPECTED_POINTS, SHIFT_POINTS
from .row import Row
from .scores import covers, rank_class

TWO = 2
"""Replicas between whom no vote decides."""
_MOST = 400
"""Lines of one list: more of the same teach nothing."""


def write_failures(rows: Sequence[Row], folder: Path) -> list[Path]:
    """One Markdown file for each kind of evidence that should have decided; the files written."""
    lists: dict[str, list[str]] = {}
    for row in rows:
        for what in wrong(row):
            lists.setdefault(_owner(row), []).append(f"* {what}: {described(row)}\n  `{command(row)}`")
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for owner, lines in lists.items():
        path = folder / f"{owner}.md"
        path.write_text(f"# {len(lines)} failures\n\n" + "\n".join(lines[:_MOST]) + "\n", encoding="utf-8")
        paths.append(path)
    return paths


def wrong(row: Row) -> Iterator[str]:
    """What is wrong with a judgement, if anything."""
    if row.false_alarms:
        yield "false alarm"
    if not row.is_faulty or not row.truth.is_observable:
        return
    if not row.is_right:
        yield "missed" if not row.judgement.confirmed else "wrong label"
        return
    named = rank_class(row)
    is_best = row.root is not None and row.root.ranks == row.truth.suspects
    is_of_two = row.truth.replicas == TWO and named == "tie"
    if row.truth.ranks and row.tier is not Tier.CURVE and named != "exact" and not (is_best or is_of_two):
        yield f"rank {named}"
    if not covers(row):
        yield "onset outside the interval"
    late = row.points_late
    is_slow = late is None or late > (FAST_SUSPECTED_POINTS if row.truth.facts.get("fast") else SHIFT_POINTS)
    if is_slow and (row.truth.facts.get("fast") or row.spec.family == "level_shift"):
        yield "late"


def described(row: Row) -> str:
    """A case in one line: the truth, and what was said."""
    truth = row.truth
    facts = " ".join(f"{name}={value:.3g}" for name, value in truth.facts.items())
    said = [
        f"{one.label} {one.pattern} at {one.iteration} in ({one.last_clean}, {one.first_bad}] "
        f"ranks {list(one.ranks)}{' tie' if one.is_tie else ''} {one.cause} by {','.join(one.detectors)} "
        f"alarm {one.suspected_at} sure {one.confirmed_at}"
        for one in (*row.judgement.confirmed, *row.judgement.suspected)
    ]
    return (
        f"{row.spec.family} seed {row.spec.seed} tier {row.tier.value}: is {truth.label} from {truth.onset} "
        f"(fault at {truth.injected_at}) ranks {list(truth.ranks)} {'/'.join(truth.causes)} {facts} every "
        f"{row.log_interval}; said {row.judgement.label}: {'; '.join(said[:3]) or 'nothing'}"
    )


def command(row: Row) -> str:
    """What makes the log of a case again and judges it."""
    case = f"{row.spec.origin.value} {row.spec.family} {row.spec.seed} {row.tier.value}"
    return f"python -m bench.quality show {case} | firstfault replay -"


def _owner(row: Row) -> str:
    if row.spec.origin is not Origin.RIG:
        return "curves"
    if row.tier is Tier.CURVE:
        return "rig-curve"
    if row.truth.label == "nan":
        return "rig-nonfinite"
    return "rig-ranks" if row.tier is Tier.RANKS else "rig-checksums"

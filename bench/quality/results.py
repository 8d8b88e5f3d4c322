"""Rows become what is kept: figures as strict JSON, which all tables are made from.

Tables and the README are written from the JSON alone, so that what is read is what was measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .case import Origin, Tier
from .comparison import Contender, compare, lost_columns
from .floor import Floor
from .floors import floors
from .outlier_floors import outlier_floors
from .outliers import Outcome
from .rank_comparison import compare_ranks
from .reference_floors import reference_floors
from .references import Told
from .row import Row
from .scores import (
    LABELS,
    cause_confusion,
    confusion,
    covers,
    delays,
    false_alarms,
    found,
    label_f1,
    macro_f1,
    onset_errors,
    precision,
    quantile,
    rank_class,
    recall,
    scored,
    share,
    share_of,
    stage_share,
)

RANK_CLASSES = ("exact", "tie", "none", "wrong")


def figures(
    rows: Sequence[Row],
    outcomes: Sequence[Outcome],
    references: Sequence[Told],
    missing: Sequence[str],
    *,
    is_full: bool,
) -> dict[str, Any]:
    """Everything that is published, as plain data."""
    plain = [row for row in rows if row.spec.origin is not Origin.SMALL]
    contenders = compare(plain)
    return {
        "mode": "full" if is_full else "quick",
        "cases": len({row.spec.key for row in rows}),
        "labels": _labels(scored(plain)),
        "floors": [
            _floor(one) for one in [*floors(rows), *reference_floors(references), *outlier_floors(outcomes)]
        ],
        "tiers": {tier.value: _tier([row for row in plain if row.tier is tier]) for tier in Tier},
        "mattered": _by_matter(plain),
        "causes": _pairs(cause_confusion(plain)),
        "families": _families(plain),
        "outliers": _outliers(outcomes),
        "contenders": [_contender(one) for one in contenders],
        "rank_contenders": _rank_contenders(plain),
        "lost": lost_columns(contenders),
        "missing_peers": list(missing),
    }


def _floor(floor: Floor) -> dict[str, Any]:
    return {
        "name": floor.name,
        "bound": floor.bound,
        "is_ceiling": floor.is_ceiling,
        "holds": floor.holds.value,
        "note": floor.note,
        **floor.figure.to_plain(),
    }


def _contender(one: Contender) -> dict[str, Any]:
    return {
        "name": one.name,
        "found": {label: figure.to_plain() for label, figure in one.found.items()},
        "near": one.near.to_plain(),
        "near_ours": None if one.near_ours is None else one.near_ours.to_plain(),
        "alarmed": one.alarmed.to_plain(),
        "rate": one.rate.to_plain(),
    }


def _rank_contenders(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Faults of one rank that mattered and show, by us and by the rule, on the per-rank telemetry alone."""
    table = []
    for one in compare_ranks(rows):
        numbers = {"found": one.found, "harmless": one.harmless, "alarmed": one.alarmed, "rate": one.rate}
        table.append({"name": one.name, **{name: figure.to_plain() for name, figure in numbers.items()}})
    return table


def _outliers(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Recall by noise and size, ours beside the published rule's."""
    kinds = dict.fromkeys((one.trial.noise, one.trial.is_lasting, one.trial.sigmas) for one in outcomes)
    table = []
    for noise, is_lasting, sigmas in kinds:
        here = [
            one
            for one in outcomes
            if (one.trial.noise, one.trial.is_lasting, one.trial.sigmas) == (noise, is_lasting, sigmas)
        ]
        cases = sum(one.cases for one in here)
        table.append(
            {
                "noise": noise,
                "is_lasting": is_lasting,
                "sigmas": sigmas,
                "ours": share(sum(one.ours for one in here), cases).to_plain(),
                "rule": share(sum(one.rule for one in here), cases).to_plain(),
            }
        )
    return table


def _labels(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "confusion": _pairs(confusion(rows)),
        "macro_f1": macro_f1(rows).to_plain(),
        "each": {
            label: {
                "precision": precision(rows, label).to_plain(),
                "recall": recall(rows, label).to_plain(),
                "f1": label_f1(rows, label).to_plain(),
            }
            for label in LABELS
        },
    }


def _tier(rows: Sequence[Row]) -> dict[str, Any]:
    """All that is asked of one tier, over rows of the rig and of curves alike."""
    asked = scored(rows)
    faulty = [row for row in asked if row.is_faulty]
    caught = found(asked)
    errors = onset_errors(asked)
    ranked = [row for row in caught if row.truth.ranks]
    return {
        "confusion": _pairs(confusion(asked)),
        "macro_f1": macro_f1(asked).to_plain(),
        "recall": share_of(faulty, lambda row: row.is_right).to_plain(),
        "ranks": {kind: share(_count(ranked, kind), len(ranked)).to_plain() for kind in RANK_CLASSES},
        "onset_median": quantile(errors, 0.5).to_plain(),
        "onset_90": quantile(errors, 0.9).to_plain(),
        "covered": share_of(caught, covers).to_plain(),
        "suspected": share_of(faulty, lambda row: row.points_late is not None).to_plain(),
        "confirmed": share_of(faulty, lambda row: row.points_to_sure is not None).to_plain(),
        "suspected_delay": quantile(delays(faulty, is_sure=False), 0.5).to_plain(),
        "suspected_delay_90": quantile(delays(faulty, is_sure=False), 0.9).to_plain(),
        "confirmed_delay": quantile(delays(faulty, is_sure=True), 0.5).to_plain(),
        "confirmed_delay_90": quantile(delays(faulty, is_sure=True), 0.9).to_plain(),
        "false_alarms": false_alarms(rows).to_plain(),
        "stage": stage_share(asked).to_plain(),
    }


def _by_matter(rows: Sequence[Row]) -> dict[str, Any]:
    """Faults of the rig by whether they mattered and whether the tier shows them: how many were found."""
    kinds: Mapping[str, Callable[[Row], bool]] = {
        "mattered and shows": lambda row: row.truth.mattered and row.truth.is_observable,
        "mattered and does not show": lambda row: row.truth.mattered and not row.truth.is_observable,
        "harmless and shows": lambda row: not row.truth.mattered and row.truth.is_observable,
        "harmless and does not show": lambda row: not row.truth.mattered and not row.truth.is_observable,
    }
    faults = [row for row in rows if row.spec.origin is Origin.RIG and row.truth.injected_at is not None]
    return {
        tier.value: {
            name: {
                "right": share_of(here, lambda row: row.is_right).to_plain(),
                "confirmed": share_of(here, lambda row: bool(row.judgement.confirmed)).to_plain(),
            }
            for name, is_it in kinds.items()
            if (here := [row for row in faults if row.tier is tier and is_it(row)])
        }
        for tier in Tier
    }


def _families(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Of each kind of case and tier, how many labels are right."""
    table: dict[str, dict[str, Any]] = {}
    here: dict[tuple[str, str], list[Row]] = {}
    for row in scored(rows):
        here.setdefault((_kind(row), row.tier.value), []).append(row)
    for (kind, tier), of_kind in sorted(here.items()):
        table.setdefault(kind, {})[tier] = share_of(of_kind, lambda row: row.is_right).to_plain()
    return table


def _kind(row: Row) -> str:
    """What a case is listed under: curves of real jobs, and those drawn from them, are one kind each."""
    origin = row.spec.origin
    is_healthy = origin in (Origin.RECORDED, Origin.SURROGATE)
    return f"{origin.value} curves" if is_healthy else f"{origin.value} {row.spec.family}"


def _count(rows: Sequence[Row], kind: str) -> int:
    return sum(rank_class(row) == kind for row in rows)


def _pairs(counts: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for (true, said), count in sorted(counts.items()):
        table.setdefault(true, {})[said] = count
    return table


def as_text(plain: Mapping[str, Any]) -> str:
    """Strict JSON, the same for the same figures."""
    return json.dumps(plain, indent=1, allow_nan=False) + "\n"

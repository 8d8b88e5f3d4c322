"""What must hold, beside what was measured: each floor with its interval and whether the cases decide it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from .case import Origin, Tier
from .curve_faults import LEAST_GAP
from .floor import Floor
from .row import Row
from .scores import (
    Figure,
    covers,
    false_alarms,
    found,
    macro_f1,
    onset_errors,
    rank_class,
    scored,
    share,
    share_of,
)

FAST_SUSPECTED_POINTS, SURE_POINTS, SHIFT_POINTS = 4, 50, 50
FAST_ONSET, SLOW_ONSET = 2, 5


def floors(rows: Sequence[Row]) -> list[Floor]:
    """Every floor, in the order in which they are asked for; small jobs count for those made for them."""
    plain = [row for row in rows if row.spec.origin is not Origin.SMALL]
    return [
        *_labels(plain),
        *_checksums(rows),
        *_canary(rows),
        *_nan(rows),
        *_explosions(plain),
        *_drifts(plain),
        *_slower_declines(plain),
        *_quiet(plain),
    ]


def _labels(rows: Sequence[Row]) -> Iterator[Floor]:
    asked = scored(rows)
    yield Floor(name="label macro-F1, faults that mattered and show", bound=0.98, figure=macro_f1(asked))
    for tier in Tier:
        here = [row for row in asked if row.tier is tier and row.spec.origin is Origin.RIG]
        yield Floor(
            name=f"label macro-F1, jobs of the rig alone, {tier.value}", bound=0.98, figure=macro_f1(here)
        )


def _checksums(rows: Sequence[Row]) -> Iterator[Floor]:
    """Faults that break the agreement of replicated state, where checksums are reported."""
    asked = [row for row in rows if row.truth.replicas and row.tier is Tier.CHECKSUMS]
    yield Floor(
        name="checksum faults of replicated state found", bound=1.0, figure=share_of(asked, _is_found_drift)
    )
    caught = [row for row in asked if _is_found_drift(row)]
    yield Floor(
        name="checksum faults: within one checking interval",
        bound=1.0,
        figure=share_of(caught, lambda row: (row.points_late or 0) * row.log_interval <= row.truth.interval),
    )
    many = [row for row in caught if row.truth.replicas >= 3]
    yield Floor(
        name="checksum faults: rank exact, 3 replicas or more",
        bound=1.0,
        figure=share_of(many, lambda row: rank_class(row) == "exact"),
    )
    two = [row for row in caught if row.truth.replicas == 2]
    yield Floor(
        name="checksum faults: one of two named, 2 replicas",
        bound=1.0,
        # no vote decides between two; an earlier attempt that knew the value may, and has to be right
        figure=share_of(two, lambda row: rank_class(row) in ("tie", "exact")),
    )


def _canary(rows: Sequence[Row]) -> Iterator[Floor]:
    """Bad units of a rank: caught in the passes of a canary as often as chance lets them err there."""
    asked = [row for row in rows if row.tier is Tier.CANARY and "passes" in row.truth.facts]
    shown = [row for row in asked if row.truth.is_observable]
    chance = [1 - (1 - row.truth.facts["rate"]) ** row.truth.facts["passes"] for row in asked]
    caught = share_of(asked, lambda row: row.judgement.label == "silent_drift")
    yield Floor(
        name="bad units with a canary: caught",
        bound=None,
        figure=caught,
        note=f"their rates allow {_mean(chance):.3f} where an error changes a bit of the result",
    )
    yield Floor(
        name="bad units with a canary: caught where any metric shows them",
        bound=1.0,
        figure=share_of(shown, lambda row: row.judgement.label == "silent_drift"),
    )


def _nan(rows: Sequence[Row]) -> Iterator[Floor]:
    asked = [row for row in rows if row.truth.label == "nan" and row.is_right]
    named = [row for row in asked if row.truth.suspects]
    yield Floor(
        name="NaN: suspects equal the oracle's minimal set",
        bound=1.0,
        figure=share_of(named, _is_minimal),
        note=f"mean tie size {_mean([len(row.truth.suspects or ()) for row in named]):.2f}",
    )
    yield Floor(
        name="NaN: iteration exact where each is logged, else in the interval",
        bound=1.0,
        figure=share_of(asked, lambda row: covers(row) if row.log_interval > 1 else _error(row) == 0),
    )


def _is_minimal(row: Row) -> bool:
    """The named set is the oracle's; of what struck all ranks alike nobody need be named."""
    root = row.root
    is_nobodys = not row.truth.ranks and root is not None and not root.ranks
    return root is not None and (root.ranks == row.truth.suspects or is_nobodys)


def _explosions(rows: Sequence[Row]) -> Iterator[Floor]:
    asked = [
        row for row in rows if row.truth.label == "gradient_explosion" and row.spec.origin is Origin.CURVE
    ]
    fast = [row for row in asked if row.truth.facts.get("fast")]
    slow = [row for row in asked if "doubles" in row.truth.facts]
    yield _within(
        "explosion, fast: suspected within 4 points", 0.95, fast, FAST_SUSPECTED_POINTS, is_sure=False
    )
    yield _within("explosion: confirmed within 50 points", 0.95, fast, SURE_POINTS, is_sure=True)
    yield Floor(
        name="explosion, fast: onset within 2 points",
        bound=0.9,
        figure=_near(fast, FAST_ONSET),
    )
    near, covered = _near(slow, SLOW_ONSET), share_of(found(slow), covers)
    is_near = near.value >= 0.8
    yield Floor(
        name="explosion, slow: onset within 5 points in 80 %, or covered in 90 %",
        bound=0.8 if is_near else 0.9,
        figure=near if is_near else covered,
        note=f"within 5: {near.value:.3f}; covered: {covered.value:.3f}",
    )
    yield Floor(
        name="explosion, slow: confirmed before the loss has doubled",
        bound=0.95,
        figure=share_of(slow, lambda row: _is_before(row, row.truth.facts.get("doubles", 0.0))),
    )


def _drifts(rows: Sequence[Row]) -> Iterator[Floor]:
    shifts = [row for row in rows if row.spec.family == "level_shift"]
    yield Floor(
        name="level shift of 3 sigma and more: found", bound=0.95, figure=share_of(shifts, _is_found_drift)
    )
    sure = _within("", 0.95, shifts, SHIFT_POINTS, is_sure=True)
    yield replace(
        _within("level shift: alarm within 50 points", 0.95, shifts, SHIFT_POINTS, is_sure=False),
        note=f"confirmed by then: {sure.figure.value:.3f}",
    )
    rises = [row for row in rows if row.spec.family == "rise"]
    caught = [row for row in rises if _is_found_drift(row)]
    yield Floor(name="loss that rises 5 sigma: found", bound=0.9, figure=share_of(rises, _is_found_drift))
    yield Floor(name="loss that rises: interval covers the onset", bound=0.9, figure=share_of(caught, covers))
    yield Floor(
        name="loss that rises: interval not wider than max(50, delay/2)",
        bound=0.9,
        figure=share_of(caught, _is_narrow),
    )


def _slower_declines(rows: Sequence[Row]) -> Iterator[Floor]:
    slower = _slower(rows, "slower")
    yield Floor(
        name="slower decline on one curve: suspected or found",
        bound=None,
        figure=share_of(slower, lambda row: row.points_late is not None),
        note="not identifiable",
    )
    guesses = [one for row in slower for one in (*row.judgement.confirmed, *row.judgement.suspected)]
    yield Floor(
        name="slower decline on one curve: confidence 0.5 at most",
        bound=1.0,
        figure=share(sum(one.confidence <= 0.5 for one in guesses), len(guesses)),
    )
    unseen = [row for row in rows if row.spec.origin is Origin.RIG and _is_slower(row)]
    yield Floor(
        name="jobs of the rig whose loss only falls more slowly: drift found",
        bound=None,
        figure=share_of(unseen, lambda row: row.is_right),
        note="in no other figure: learning itself may take that course",
    )
    canary = _slower(rows, "slower_with_canary")
    yield Floor(
        name="slower decline with canary_loss: found", bound=0.95, figure=share_of(canary, _is_found_drift)
    )


def _slower(rows: Sequence[Row], family: str) -> list[Row]:
    here = [row for row in rows if row.spec.family == family]
    return [row for row in here if row.truth.facts.get("gap_sigmas", 0.0) >= LEAST_GAP]


def _is_slower(row: Row) -> bool:
    """Whether the fault mattered, and all that shows of it is a slower decline than the twin's."""
    return row.truth.mattered and row.is_faulty and not row.truth.is_observable


def _quiet(rows: Sequence[Row]) -> Iterator[Floor]:
    # the same run in several tiers is no more than one run
    fullest = [row for row in rows if row.tier is row.spec.tiers[-1]]
    yield Floor(
        name="confirmed incidents per 100 000 healthy iterations",
        bound=1.0,
        figure=false_alarms(fullest),
        is_ceiling=True,
    )
    surrogate = [row for row in rows if row.spec.origin is Origin.SURROGATE]
    yield Floor(
        name="confirmed incidents per 100 000 points of surrogates of recorded curves",
        bound=1.0,
        figure=false_alarms(surrogate),
        is_ceiling=True,
    )
    recorded = [row for row in rows if row.spec.origin is Origin.RECORDED]
    quiet = share_of(recorded, lambda row: not row.judgement.confirmed)
    yield Floor(name="recorded healthy curves without a confirmed incident", bound=1.0, figure=quiet)


def _within(name: str, bound: float, rows: Sequence[Row], points: int, *, is_sure: bool) -> Floor:
    def is_soon(row: Row) -> bool:
        late = row.points_to_sure if is_sure else row.points_late
        return late is not None and late <= points

    return Floor(name=name, bound=bound, figure=share_of(rows, is_soon))


def _near(rows: Sequence[Row], points: int) -> Figure:
    errors = onset_errors(rows)
    return share(sum(error <= points for error in errors), len(errors))


def _is_found_drift(row: Row) -> bool:
    return (
        any(one.label == "silent_drift" for one in row.judgement.confirmed) and row.points_to_sure is not None
    )


def _is_narrow(row: Row) -> bool:
    root, late = row.root, row.points_late
    if root is None or late is None:
        return False
    width = (root.first_bad - max(root.last_clean, 0)) / row.log_interval
    return width <= max(50.0, late / 2)


def _is_before(row: Row, points: float) -> bool:
    return row.points_to_sure is not None and row.points_to_sure <= points


def _error(row: Row) -> int:
    assert row.root is not None and row.truth.onset is not None, "only rows that were found are asked"
    return abs(row.root.iteration - row.truth.onset)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan

"""Ranks that stopped reporting while the others went on: a pure function of who reported when.

Axes: N known ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firstfault.mesh import Layout
from ingest.blocks import Flags, Ints, Ranks

from .evidence import Certainty
from .report_table import LEAST_REPORTS, Standing


@dataclass(frozen=True, slots=True)
class Silence:
    """Ranks whose last report was at the same iteration."""

    ranks: tuple[int, ...]
    last_iteration: int
    first_missing: int
    """The iteration at which their next report was due."""
    turns: int
    allowed: int
    certainty: Certainty


def silent(standing: Standing, least_turns: int) -> Flags:
    """Which ranks are further behind than ``least_turns`` and than their own cadence allows."""
    return standing.behind_N > np.maximum(standing.allowed_N, least_turns)


def present(ranks_N: Ranks, layout: Layout | None) -> Flags:
    """Which ranks have a place in the layout: who left an elastic job is not silent."""
    if layout is None or not layout.coordinates:
        return np.ones(len(ranks_N), np.bool_)
    placed = np.fromiter(layout.coordinates, np.int64, len(layout.coordinates))
    return np.isin(ranks_N, placed)


def silences(standing: Standing, judged_N: Flags, *, least_turns: int, least_s: float) -> list[Silence]:
    """The silences of the ranks ``judged_N``, by the iteration of their last report.

    Silence is suspected beyond the bound and confirmed at twice that. Where half of the ranks or more
    fell silent at one iteration the reporting may have been switched off (many jobs log all ranks for the
    first steps only), so it stays suspected.
    """
    is_judged_N = judged_N & (standing.reports_N >= LEAST_REPORTS) & silent(standing, least_turns)
    # Where records have no time there is none to hold against the silence.
    is_judged_N &= ~(standing.silence_s_N <= least_s)
    allowed_N = np.maximum(standing.allowed_N, least_turns)
    found = []
    for last in np.unique(standing.last_iteration_N[is_judged_N]).tolist():
        group_N = is_judged_N & (standing.last_iteration_N == last)
        behind, allowed = int(standing.behind_N[group_N][0]), int(allowed_N[group_N].max())
        is_long = behind > 2 * allowed and not bool((standing.silence_s_N[group_N] <= 2 * least_s).any())
        is_most = 2 * int(group_N.sum()) >= int((standing.reports_N > 0).sum())
        found.append(
            Silence(
                ranks=tuple(standing.ranks_N[group_N].tolist()),
                last_iteration=last,
                first_missing=last + _step(standing.step_N[group_N]),
                turns=behind,
                allowed=allowed,
                certainty=Certainty.CONFIRMED if is_long and not is_most else Certainty.SUSPECTED,
            )
        )
    return found


def _step(step_G: Ints | Sequence[int]) -> int:
    return int(np.min(step_G))

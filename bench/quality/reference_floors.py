"""What must hold of a run that is held against a reference."""

from __future__ import annotations

from collections.abc import Sequence

from .curve_faults import LEAST_GAP
from .floor import Floor
from .references import Told
from .scores import share


def reference_floors(outcomes: Sequence[Told]) -> list[Floor]:
    """Slower declines told apart from the reference, and equal runs that are called different."""
    slower = [one for one in outcomes if one.pair.is_slower and one.gap_sigmas >= LEAST_GAP]
    alike = [one for one in outcomes if not one.pair.is_slower]
    return [
        Floor(
            name="slower decline with a reference: differs",
            bound=0.95,
            figure=share(sum(one.outcome == "differs" for one in slower), len(slower)),
            note=f"no answer: {sum(one.outcome == 'unknown' for one in slower)}",
        ),
        Floor(
            name="equal runs with other noise: called different",
            bound=0.05,
            figure=share(sum(one.outcome == "differs" for one in alike), len(alike)),
            is_ceiling=True,
            note=f"no answer: {sum(one.outcome == 'unknown' for one in alike)}",
        ),
    ]

"""Which pictures there are: for each detector one of it firing and one of it staying quiet, or more."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import again, curves, liveness, ranks, sites, values
from .drawing import Drawn

FIGURES: Mapping[str, Callable[[], Drawn]] = {
    "nonfinite-fires": sites.fires,
    "nonfinite-quiet": sites.quiet,
    "explosion-fires": curves.explosion_fires,
    "explosion-quiet": curves.explosion_quiet,
    "checksum_vote-fires": values.checksum_vote_fires,
    "checksum_vote-quiet": values.checksum_vote_quiet,
    "agreement-fires": values.agreement_fires,
    "agreement-quiet": values.agreement_quiet,
    "repeat-fires": values.repeat_fires,
    "repeat-quiet": values.repeat_quiet,
    "linear_checksum-fires": values.linear_checksum_fires,
    "linear_checksum-quiet": values.linear_checksum_quiet,
    "curve_drift-fires": curves.curve_drift_fires,
    "curve_drift-quiet": curves.curve_drift_quiet,
    "evaluation-fires": curves.evaluation_fires,
    "evaluation-quiet": curves.evaluation_quiet,
    "stall-fires": liveness.fires,
    "stall-silent": liveness.falls_silent,
    "stall-quiet": liveness.quiet,
    "peer_outlier-fires": ranks.peer_outlier_fires,
    "peer_outlier-quiet": ranks.peer_outlier_quiet,
    "joint-fires": ranks.joint_fires,
    "joint-quiet": ranks.joint_quiet,
    "slowdown-fires": ranks.slowdown_fires,
    "slowdown-quiet": ranks.slowdown_quiet,
    "reference-fires": again.fires,
    "reference-quiet": again.quiet,
    "reference-windows": again.by_windows,
}
"""File name without its ending: a detector's name and what it does in the picture."""

"""What two logs are to each other: the same, different, or not to be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from firstfault.telemetry import is_checksum

from .reference_exact import PROVING_CHECKS, PROVING_POSITIONS, ExactComparison
from .reference_nulls import FLOOR
from .reference_windows import WindowComparison


class Outcome(StrEnum):
    """The answer of a comparison."""

    SAME = "same"
    DIFFERS = "differs"
    UNKNOWN = "unknown"


class Basis(StrEnum):
    """What the answer rests on."""

    BITS = "bits"
    WINDOWS = "windows"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Answer:
    """An outcome, what it rests on, and why there is none."""

    outcome: Outcome
    basis: Basis
    why: str = ""


def decide(
    exact: ExactComparison,
    windows: Sequence[WindowComparison],
    *,
    is_deterministic: bool,
    is_exact_asked: bool = False,
) -> Answer:
    """By bits where the two must be bit-equal, else by windows.

    They must be where both say that they are deterministic and something was equal before the first
    difference, where checksums or curves agreed often enough to prove it, or where the caller says so. What
    was never equal is another job, or the same one with other rounding: only windows can tell.
    """
    if exact.values and exact.difference is None:
        return Answer(Outcome.SAME, Basis.BITS)
    is_proved = exact.equal_checks >= PROVING_CHECKS or exact.equal_moves >= PROVING_POSITIONS
    is_declared = is_deterministic and exact.equal_positions > 0
    if exact.difference is not None and (is_exact_asked or is_proved or is_declared):
        return Answer(Outcome.DIFFERS, Basis.BITS)
    told = [one for one in windows if one.verdict != "no_null"]
    if told and all(one.null == FLOOR for one in told) and any(map(is_checksum, exact.metrics)):
        # checksums see every bit: that they never agreed is not outweighed by curves that are close
        return Answer(Outcome.UNKNOWN, Basis.NOTHING, _why_checksums(told))
    if any(one.verdict == "differs" for one in told):
        return Answer(Outcome.DIFFERS, Basis.WINDOWS)
    if told:
        return Answer(Outcome.SAME, Basis.WINDOWS)
    return Answer(Outcome.UNKNOWN, Basis.NOTHING, _why(exact, windows))


def _why_checksums(windows: Sequence[WindowComparison]) -> str:
    points = max(one.points for one in windows)
    why = f"{points} common points are too few to learn how such runs differ"
    return f"no calibrated null: checksums differ, and {why}"


def _why(exact: ExactComparison, windows: Sequence[WindowComparison]) -> str:
    if windows:
        return windows[0].why
    if not exact.values:
        return "no value of a metric with a contract is in both at the same iteration and rank"
    return "they are not bit-equal, and neither loss nor gradient norm is in both"

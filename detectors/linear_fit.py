"""How what comes out of a reduction relates to what went in, learned from its first checks.

A linear checksum of a gradient g is s(g) = sum_i w_i g_i with weights that all ranks share. A reduction
is linear, so the sketch of its result is factor × the sum of the sketches that went in, whatever the
weights: factor 1 for a sum, 1/N for a mean over N ranks. An all-reduce gives every rank that result, a
reduce-scatter a shard each, whose sketches add up to it.

Source: checksums for linear operations as in Huang and Abraham, Algorithm-Based Fault Tolerance for
Matrix Operations, IEEE Trans. Computers C-33 (1984), section III, with a tolerance that is learned where
theirs is exact. Axes: K learned checks, N members of the group.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from .base import State
from .linear_rates import MEDIAN_OF_ABSOLUTE, LinearChecksumConfig

LEARNED_CHECKS = 32
"""Checks before a decision. The noise is 1.48 times their median residual, which up to fifteen wrong
ones among them cannot move far."""
FLOOR = 1e-6
"""Least tolerance, relative to the sketches: sums of numbers that were printed with seven digits err by
half of this."""
FIT = 3e-3
"""Greatest median residual of a relation that holds: bfloat16 keeps eight bits, and its reductions over a
thousand ranks err by a thousandth. What scatters by more is no linear sketch, or a member is missing."""
NORM_DIGITS = 1e-3
"""Relative error of a reported norm: logs print it with four digits, and it may be of bfloat16."""
_NEAR = 1e-3
"""Relative difference up to which results of one all-reduce are the same result; shards differ by as
much as they are large."""
_EXACT_PREFERENCE = 4.0
"""A sum or a mean is taken for one when it fits up to so many times as badly as the best factor, which
is the best partly by chance."""


class Collective(StrEnum):
    """What every rank gets of the result."""

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"


@dataclass(frozen=True, slots=True)
class Given:
    """What the ``run_start`` says of the reduction; None where it is to be learned.

    ``"grad_reduction"`` is ``"sum"``, ``"mean"`` or a positive number, ``"grad_collective"``
    ``"all_reduce"`` or ``"reduce_scatter"``; anything else says nothing.
    """

    reduction: str | float | None = None
    collective: Collective | None = None

    @classmethod
    def of(cls, fields: Any) -> Given:
        """What the fields of the event say.

        >>> Given.of({"grad_reduction": "mean"}).factor(8)
        0.125
        """
        said, collective = fields.get("grad_reduction"), fields.get("grad_collective")
        is_number = isinstance(said, int | float) and not isinstance(said, bool) and math.isfinite(said)
        is_known = said in ("sum", "mean") if isinstance(said, str) else is_number and said > 0
        return cls(
            reduction=said if is_known else None,
            collective=Collective(collective) if collective in tuple(Collective) else None,
        )

    def factor(self, members: int) -> float | None:
        """The factor in a group of so many members; None where it is to be learned."""
        if isinstance(self.reduction, str):
            return 1.0 if self.reduction == "sum" else 1.0 / members
        return None if self.reduction is None else float(self.reduction)


@dataclass(frozen=True, slots=True)
class Sums:
    """One check in short. All sums are exactly rounded (`math.fsum`): no order of ranks has a say."""

    iteration: int
    sum_in: float
    size_in: float
    """Sum of magnitudes."""
    sum_out: float
    size_out: float
    middle_out: float
    """The lower median: an out that a rank holds."""
    has_one_result: bool
    """Whether more than half of the outs are the middle one but for rounding."""
    spread: float
    """Greatest difference of those from the middle one."""
    norm: float = math.nan
    """The gradient norm before clipping, as the members agreed on it; NaN where none was reported."""
    loss_scale: float = math.nan

    @classmethod
    def of(
        cls,
        iteration: int,
        in_N: Sequence[float],
        out_N: Sequence[float],
        norm: float = math.nan,
        loss_scale: float = math.nan,
    ) -> Sums:
        """The sums of what the members reported."""
        middle = statistics.median_low(out_N)
        near = [abs(out - middle) for out in out_N if abs(out - middle) <= _NEAR * max(abs(out), abs(middle))]
        return cls(
            iteration=iteration,
            sum_in=math.fsum(in_N),
            size_in=math.fsum(map(abs, in_N)),
            sum_out=math.fsum(out_N),
            size_out=math.fsum(map(abs, out_N)),
            middle_out=middle,
            has_one_result=2 * len(near) > len(out_N),
            spread=max(near),
            norm=norm,
            loss_scale=loss_scale,
        )


@dataclass(frozen=True, slots=True)
class Fit:
    """The relation that holds, and how exactly."""

    collective: Collective
    factor: float
    tolerance: float
    """Greatest residual that is noise, relative to the scale of the check."""
    agreement: float
    """The same for results that differ between ranks: 0 where they were always bit-equal."""
    clip_norm: float | None = None
    """The norm to which the gradient is clipped between the two sketches; None where it is not."""
    is_unscaled: bool = False
    """Whether the loss scale is divided out between the two sketches."""

    def factor_at(self, sums: Sums) -> float:
        """The factor of one check: clipping and a loss scale change it from step to step; NaN if unknown."""
        factor = self.factor
        if self.clip_norm is not None:
            factor *= min(1.0, self.clip_norm / sums.norm) if sums.norm > 0 else math.nan
        return factor / sums.loss_scale if self.is_unscaled else factor

    def tolerance_at(self, sums: Sums) -> float:
        """The tolerance of one check: a clipped one errs by as much as the norm that is reported."""
        is_clipped = self.clip_norm is not None and sums.norm > self.clip_norm * (1.0 - NORM_DIGITS)
        return max(self.tolerance, NORM_DIGITS) if is_clipped else self.tolerance

    def expected(self, sums: Sums) -> float:
        """The sketch of the result that what went in should give."""
        return self.factor_at(sums) * sums.sum_in

    def result(self, sums: Sums) -> float:
        """The sketch of the whole result."""
        return sums.middle_out if self.collective is Collective.ALL_REDUCE else sums.sum_out

    def scale(self, sums: Sums) -> float:
        """What residuals of this check are relative to."""
        out = abs(sums.middle_out) if self.collective is Collective.ALL_REDUCE else sums.size_out
        return out + abs(self.factor_at(sums)) * sums.size_in

    def residual(self, sums: Sums) -> float:
        """How far the result is from what it should be."""
        return self.result(sums) - self.expected(sums)

    def to_plain(self) -> State:
        """As plain data."""
        return {**asdict(self), "collective": self.collective.value}

    @classmethod
    def from_plain(cls, plain: State) -> Fit:
        """The fit that `to_plain` gave."""
        return cls(**{**plain, "collective": Collective(plain["collective"])})


def learn(
    checks_K: Sequence[Sums], members: int, given: Given, config: LinearChecksumConfig | None = None
) -> Fit | None:
    """The relation in the first checks; None where there is none.

    >>> checks = [Sums.of(t, [1.0 + t, 2.0], [(3.0 + t) / 2] * 2) for t in range(LEARNED_CHECKS)]
    >>> fit = learn(checks, 2, Given())
    >>> fit.collective.value, fit.factor
    ('all_reduce', 0.5)
    """
    sigmas = (config or LinearChecksumConfig()).sigmas
    shared = sum(check.has_one_result for check in checks_K)
    is_shared = 2 * shared > len(checks_K)
    collective = given.collective or (Collective.ALL_REDUCE if is_shared else Collective.REDUCE_SCATTER)
    factor = given.factor(members)
    exact = [Fit(collective, one, 0.0, 0.0) for one in ([1.0, 1.0 / members] if factor is None else [factor])]
    # in the order in which they are believed: what changes nothing between the sketches first
    candidates = [*exact, *(replace(one, is_unscaled=True) for one in exact)]
    if factor is None:
        candidates += [Fit(collective, one, 0.0, 0.0) for one in _free_factor(checks_K, collective)]
    # of a sum and a mean that were clipped throughout the mean needs the milder clipping
    candidates += [clipped for one in reversed(exact) for clipped in clipped_fits(checks_K, one)]
    noise = [(_noise(checks_K, one), one) for one in candidates]
    least = min(size for size, _ in noise)
    if least > FIT:
        return None
    size, chosen = next(one for one in noise if one[0] <= max(_EXACT_PREFERENCE * least, FLOOR))
    spreads = [check.spread / scale for check in checks_K if 0.0 < (scale := chosen.scale(check)) < math.inf]
    tolerance = max(FLOOR, sigmas * size / MEDIAN_OF_ABSOLUTE)
    return replace(chosen, tolerance=tolerance, agreement=_agreement(spreads, sigmas))


def clipped_fits(checks_K: Sequence[Sums], exact: Fit) -> list[Fit]:
    """``exact`` with the norm to which most of the checks that came out too small were clipped, if any did.

    The result over what it should be, times the gradient norm, is that norm at every clipped check.
    """
    norms = [norm for one in checks_K if math.isfinite(norm := clip_norm_of(one, exact))]
    if not norms:
        return []
    middle = statistics.median_low(norms)
    return [replace(exact, clip_norm=middle)]


def clip_norm_of(sums: Sums, fit: Fit) -> float:
    """The norm to which the gradient would have been clipped at a check; NaN where it is not smaller."""
    expected = fit.factor * sums.sum_in
    share = fit.result(sums) / expected if expected else math.nan
    return share * sums.norm if 0.0 < share < 1.0 - _NEAR else math.nan


def _agreement(spreads: Sequence[float], sigmas: float) -> float:
    """Tolerance between results: as for residuals, from the median spread of those that differed at all."""
    differing = [spread for spread in spreads if spread > 0.0]
    if 2 * len(differing) <= len(spreads):
        return 0.0
    return max(FLOOR, sigmas * statistics.median(differing) / MEDIAN_OF_ABSOLUTE)


def _noise(checks_K: Sequence[Sums], fit: Fit) -> float:
    """The median residual; infinite where nothing was ever reduced but zeros."""
    residuals = [
        abs(fit.residual(one)) / scale for one in checks_K if 0.0 < (scale := fit.scale(one)) < math.inf
    ]
    return statistics.median(residuals) if 2 * len(residuals) > len(checks_K) else math.inf


def _free_factor(checks_K: Sequence[Sums], collective: Collective) -> list[float]:
    """The median of result / sum, weighted by the size of the sum; nothing where every sum is 0."""
    fit = Fit(collective, 1.0, 0.0, 0.0)
    ratios = sorted((fit.result(one) / one.sum_in, abs(one.sum_in)) for one in checks_K if one.sum_in != 0.0)
    half = math.fsum(weight for _, weight in ratios) / 2
    reached = 0.0
    for ratio, weight in ratios:
        reached += weight
        if reached >= half:
            return [ratio] if math.isfinite(ratio) and ratio != 0.0 else []
    return []

"""Where non-finite numbers were seen in a block: cells, then one level per iteration.

Axes: T positions of a block, R ranks, I iterations of a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from firstfault.telemetry import WHOLE_ITERATION, Kind, MetricContract, Phase
from ingest.blocks import Flags, Floats, Ints, IterationBlock, NumberBlock


class Level(IntEnum):
    """How much a non-finite value says: the worst one of an iteration decides what it is taken for."""

    QUIET = 0
    ACTIVATION = 1
    """Inputs, activations, logits: masks and dead experts make them without harm."""
    GRADIENT = 2
    """Gradients, or a skipped step: what loss scaling meets all the time."""
    LOSS = 3
    """A loss, a parameter, or what a check stopped at: nothing benign makes it, but a rank without tokens."""


_LEVEL_OF_COUNT = {
    "nonfinite_input": Level.ACTIVATION,
    "nonfinite_act": Level.ACTIVATION,
    "nonfinite_send": Level.ACTIVATION,
    "nonfinite_logits": Level.ACTIVATION,
    "nonfinite_grad": Level.GRADIENT,
    "nonfinite_reduced": Level.GRADIENT,
    "nonfinite_loss": Level.LOSS,
    "nonfinite_param": Level.LOSS,
}
CHECKED = "/checked"
"""Ends the name of a count that a check of the trainer stopped at (`nonfinite_grad/checked`): it names its
rank before any reduction, and is made where no loss scaling explains it."""
_LOSSES = frozenset({"loss", "global_loss", "canary_loss"})
_WITHOUT_TOKENS = frozenset({"loss", "nonfinite_loss"})
"""A mean over no tokens is 0/0."""


def level_of(contract: MetricContract) -> Level | None:
    """The level of a bad value of the metric; None for what is not watched or only supporting."""
    base = contract.name.partition("/")[0]
    match contract.kind:
        case Kind.NONFINITE_COUNT:
            if contract.name.endswith(CHECKED):
                return Level.LOSS
            return _LEVEL_OF_COUNT.get(base, Level.ACTIVATION)
        case Kind.CURVE | Kind.AGREED:
            return Level.LOSS if base in _LOSSES or contract.phase <= Phase.FORWARD else Level.GRADIENT
        case Kind.SKETCH:
            return Level.GRADIENT
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Site:
    """One watched metric of a block. ``bad_TR`` is None where all is well."""

    contract: MetricContract
    level: Level
    numbers: NumberBlock
    bad_TR: Flags | None
    excused_TR: Flags | None = None
    """Cells that are non-finite because the rank had no tokens: neither bad nor clean."""

    @property
    def metric(self) -> str:
        """The name of the metric."""
        return self.contract.name

    def clean(self, start: int, stop: int) -> Flags:
        """Which cells of the rows ``[start, stop)`` were seen good."""
        clean_TR = self.numbers.present_TR[start:stop]
        if self.bad_TR is not None:
            clean_TR = clean_TR & ~self.bad_TR[start:stop]
        if self.excused_TR is not None:
            clean_TR = clean_TR & ~self.excused_TR[start:stop]
        return clean_TR


@dataclass(frozen=True, slots=True)
class Scene:
    """A block as the non-finite detector sees it: sites, and per iteration what matters.

    ``start_I`` is the first row of each iteration, with the length of the block appended. ``scale_I``
    is the loss scale, NaN where it was not reported.
    """

    block: IterationBlock
    sites: tuple[Site, ...]
    start_I: Ints
    level_I: Ints
    loss_seen_I: Flags
    gradient_clean_I: Flags
    gradient_bad_I: Flags
    skipped_I: Flags
    scale_I: Floats

    def __len__(self) -> int:
        return len(self.level_I)

    def iteration(self, i: int) -> int:
        """The iteration's number in the log's own counter."""
        return int(self.block.iteration_T[self.start_I[i]])

    def rows(self, i: int, j: int | None = None) -> tuple[int, int]:
        """Rows ``[start, stop)`` of the iterations ``[i, j)``; of iteration ``i`` alone by default."""
        return int(self.start_I[i]), int(self.start_I[i + 1 if j is None else j])


def scene_of(block: IterationBlock) -> Scene:
    """Look at every watched metric of ``block`` once."""
    iteration_T = block.iteration_T
    is_start_T = np.ones(len(block), bool)
    is_start_T[1:] = iteration_T[1:] != iteration_T[:-1]
    begins = np.flatnonzero(is_start_T)
    start_I = np.append(begins, len(block))
    sites = tuple(
        site for site in (_site(block, metric, start_I) for metric in sorted(block.numbers)) if site
    )
    level_I = np.zeros(len(begins), np.int64)
    seen = {level: np.zeros(len(begins), bool) for level in Level}
    gradient_bad_I = np.zeros(len(begins), bool)
    for site in sites:
        seen[site.level] |= _per_iteration(site.numbers.present_TR, begins)
        if site.bad_TR is not None:
            bad_I = _per_iteration(site.bad_TR, begins)
            level_I = np.maximum(level_I, np.where(bad_I, int(site.level), 0))
            gradient_bad_I |= bad_I & (site.level is Level.GRADIENT)
    skipped_I, skip_seen_I = _skipped(block, begins)
    level_I = np.maximum(level_I, np.where(skipped_I, int(Level.GRADIENT), 0))
    return Scene(
        block=block,
        sites=sites,
        start_I=start_I,
        level_I=level_I,
        loss_seen_I=seen[Level.LOSS],
        gradient_clean_I=(seen[Level.GRADIENT] | skip_seen_I) & ~gradient_bad_I & ~skipped_I,
        gradient_bad_I=gradient_bad_I,
        skipped_I=skipped_I,
        scale_I=_scale(block, begins),
    )


def bad_cells(contract: MetricContract, numbers: NumberBlock) -> Flags | None:
    """Reported cells that are non-finite, or counts above zero; None when there are none.

    >>> numbers = NumberBlock(np.array([[0.0, 2.0]]), np.array([[True, True]]))
    >>> from firstfault.telemetry import contract_of
    >>> bad_cells(contract_of("nonfinite_grad"), numbers)
    array([[False,  True]])
    """
    if contract.kind is Kind.NONFINITE_COUNT:
        good_TR = numbers.values_TR <= 0
    else:
        good_TR = np.isfinite(numbers.values_TR)
    if good_TR.all():
        return None
    bad_TR: Flags = numbers.present_TR & ~good_TR
    return bad_TR if bad_TR.any() else None


def _site(block: IterationBlock, metric: str, start_I: Ints) -> Site | None:
    contract, numbers = block.contracts.of(metric), block.numbers[metric]
    level = level_of(contract)
    if level is None:
        return None
    bad_TR = bad_cells(contract, numbers)
    excused_TR = None
    if bad_TR is not None and metric in _WITHOUT_TOKENS:
        no_tokens_TR = _without_tokens(block, start_I)
        if no_tokens_TR is not None and (bad_TR & no_tokens_TR).any():
            excused_TR, bad_TR = bad_TR & no_tokens_TR, bad_TR & ~no_tokens_TR
    return Site(contract, level, numbers, bad_TR, excused_TR)


def _without_tokens(block: IterationBlock, start_I: Ints) -> Flags | None:
    """Cells of ranks that say they had no tokens, at that position or over its whole iteration."""
    tokens = block.numbers.get("tokens")
    if tokens is None:
        return None
    none_TR: Flags = tokens.present_TR & (tokens.values_TR == 0)
    is_whole_T = block.microbatch_T == WHOLE_ITERATION
    if len(start_I) - 1 < len(block):
        whole_TR = none_TR & is_whole_T[:, None]
        whole_IR = np.logical_or.reduceat(whole_TR, start_I[:-1], axis=0)
        none_TR = none_TR | np.repeat(whole_IR, np.diff(start_I), axis=0)
    return none_TR


def _per_iteration(flag_TR: Flags, begins: Ints) -> Flags:
    """Whether any rank has the flag in any row of each iteration."""
    flag_T: Flags = np.logical_or.reduce(flag_TR, axis=1)
    return flag_T if len(begins) == len(flag_T) else np.logical_or.reduceat(flag_T, begins)


def _skipped(block: IterationBlock, begins: Ints) -> tuple[Flags, Flags]:
    numbers = block.numbers.get("skipped")
    if numbers is None:
        nothing = np.zeros(len(begins), bool)
        return nothing, nothing
    skipped_TR: Flags = numbers.present_TR & (numbers.values_TR > 0)
    return _per_iteration(skipped_TR, begins), _per_iteration(numbers.present_TR, begins)


def _scale(block: IterationBlock, begins: Ints) -> Floats:
    """The least loss scale that a rank reported in each iteration: all should report the same."""
    numbers = block.numbers.get("loss_scale")
    if numbers is None:
        return np.full(len(begins), np.nan)
    usable_TR = numbers.present_TR & np.isfinite(numbers.values_TR)
    least_T = np.where(usable_TR, numbers.values_TR, np.inf).min(axis=1, initial=np.inf)
    least_I = least_T if len(begins) == len(least_T) else np.minimum.reduceat(least_T, begins)
    return np.where(np.isinf(least_I), np.nan, least_I)

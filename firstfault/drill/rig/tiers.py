"""How much telemetry there is: four tiers, each with all of the one before. Cut from one recording.

`curve` is what most jobs log: one averaged loss without ranks. Axes: R ranks.
"""

from __future__ import annotations

from enum import StrEnum

from .recording import Recording


class Tier(StrEnum):
    """How much a job reports."""

    CURVE = "curve"
    """One unnamed rank: mean loss, gradient norm, learning rate, loss scale, skipped steps."""
    RANKS = "ranks"
    """Per rank, with local norms, non-finite counts, evaluations, tokens and step times."""
    CHECKSUMS = "checksums"
    """With checksums of parameters, optimizer state, reduced gradients and data."""
    CANARY = "canary"
    """With the canary, repeated computations and linear checksums of the reduction."""


_ON_A_CURVE = ("loss", "grad_norm", "lr", "loss_scale", "skipped")
_CHECKSUMS = ("param_checksum", "optim_checksum", "grad_checksum", "data_checksum")
_DEAR = ("canary_checksum", "canary_loss", "repeat_checksum", "grad_sketch_in", "grad_sketch_out")


def tier_of(metric: str) -> Tier:
    """The first tier that has ``metric``.

    >>> tier_of("local_grad_norm"), tier_of("param_checksum/expert"), tier_of("repeat_checksum/canary")
    (<Tier.RANKS: 'ranks'>, <Tier.CHECKSUMS: 'checksums'>, <Tier.CANARY: 'canary'>)
    """
    base = metric.partition("/")[0]
    if metric in _ON_A_CURVE:
        return Tier.CURVE
    if base in _CHECKSUMS:
        return Tier.CHECKSUMS
    return Tier.CANARY if base in _DEAR or base.endswith("_checksum") else Tier.RANKS


def has(tier: Tier, metric: str) -> bool:
    """Whether a job of this tier reports ``metric``."""
    order = list(Tier)
    return order.index(tier_of(metric)) <= order.index(tier)


def cut(run: Recording, tier: Tier) -> Recording:
    """What a job of this tier would have reported of the run."""
    metrics = [metric for metric in run.present if has(tier, metric)]
    return run.cut(metrics, is_one_curve=tier is Tier.CURVE)

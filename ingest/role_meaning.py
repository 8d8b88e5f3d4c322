"""What a name can say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .role_names import Role


class Part(StrEnum):
    """Of which part of a loop a metric is."""

    TRAIN = "train"
    EVAL = "eval"


class Loss(StrEnum):
    """What a metric has to do with the loss of training."""

    NONE = "none"
    WHOLE = "whole"
    COMPONENT = "component"
    """One of several terms whose sum is the whole."""
    PLAYER = "player"
    """That of one of several players (policy and value, generator and discriminator): a sum means nothing."""
    AUXILIARY = "auxiliary"
    """A small term beside the whole, which never stands for it."""
    WEAK = "weak"
    """An error that is the loss of some loops (``rmse``, ``nll``) and a metric in others."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a name says.

    ``metric`` is the canonical name of a metric, or the name itself. Where several names of one log say
    the same, the one of lowest ``order`` is it. Values times ``scale`` are in the unit of the metric.
    ``loss`` says how a metric that is not called the loss may still stand for it.
    """

    role: Role
    metric: str = ""
    order: int = 0
    scale: float = 1.0
    part: Part = Part.TRAIN
    loss: Loss = Loss.NONE

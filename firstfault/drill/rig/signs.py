"""What a fault at each site changes first in a plain data parallel job, and what it leaves alone by then.

This is what makes a site recognisable, and a test holds every kind of fault to it. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .spec import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What differs from the golden twin in the first iteration that differs at all."""

    where: str
    """The site in words."""
    own: tuple[str, ...] = ()
    """Metrics that differ on the struck rank alone."""
    everywhere: tuple[str, ...] = ()
    """Metrics that differ on all ranks."""
    clean: tuple[str, ...] = ()
    """Metrics that differ nowhere yet."""


_UPDATED = ("param_checksum", "optim_checksum", "grad_checksum")
_OPTIMIZED = ("param_checksum", "optim_checksum")
SIGNS: Mapping[Site, Signs] = {
    Site.DATA: Signs(
        where="what a rank reads",
        own=("data_checksum",),
        everywhere=_UPDATED,
        clean=("canary_checksum",),
    ),
    Site.FORWARD: Signs(
        where="the output of a matrix product",
        own=("grad_sketch_in",),
        everywhere=_UPDATED,
        clean=("data_checksum",),
    ),
    Site.RECOMPUTE: Signs(
        where="the same output, computed a second time for the backward pass",
        own=("repeat_checksum/recompute",),
        everywhere=_UPDATED,
        clean=("loss", "recompute_checksum"),
    ),
    Site.ACT_GRAD: Signs(
        where="the gradient of an activation, on its way back",
        own=("grad_sketch_in",),
        everywhere=_UPDATED,
        clean=("loss", "recompute_checksum"),
    ),
    Site.WEIGHT_GRAD: Signs(
        where="the gradient of a rank's parameters",
        own=("grad_sketch_in",),
        everywhere=_UPDATED,
        clean=("loss", "act_grad_norm/layer0"),
    ),
    Site.REDUCE_IN: Signs(
        where="what a rank hands to the reduction, after it looked at its gradient",
        everywhere=_UPDATED,
        clean=("loss", "local_grad_norm", "grad_absmax", "grad_sketch_in"),
    ),
    Site.REDUCE_OUT: Signs(
        where="the copy of the result that one rank gets",
        own=_UPDATED,
        clean=("loss", "local_grad_norm"),
    ),
    Site.REDUCE_ALL: Signs(
        where="the result that all ranks get",
        everywhere=_UPDATED,
        clean=("loss", "local_grad_norm", "grad_sketch_in"),
    ),
    Site.PARAMETER: Signs(
        where="a rank's parameters, after the update",
        own=("param_checksum",),
        clean=("loss", "grad_norm", "grad_checksum", "optim_checksum"),
    ),
    Site.FIRST_MOMENT: Signs(
        where="the first moment, before the optimizer reads it",
        own=_OPTIMIZED,
        clean=("loss", "grad_norm", "grad_checksum"),
    ),
    Site.SECOND_MOMENT: Signs(
        where="the second moment, before the optimizer reads it",
        own=_OPTIMIZED,
        clean=("loss", "grad_norm", "grad_checksum"),
    ),
    Site.LOSS_FUNCTION: Signs(
        where="the loss, made of logits that are right",
        own=("loss",),
        everywhere=_UPDATED,
        clean=("data_checksum", "recompute_checksum", "nonfinite_logits"),
    ),
    Site.LOSS_SCALE: Signs(
        where="the number by which a rank unscales the reduced gradient",
        own=("loss_scale", *_OPTIMIZED),
        clean=("loss", "local_grad_norm", "grad_checksum"),
    ),
    Site.SCHEDULE: Signs(
        where="the learning rate",
        own=("lr", "param_checksum"),
        clean=("loss", "grad_norm", "optim_checksum"),
    ),
    Site.CHECKPOINT: Signs(
        where="what a rank reads of the checkpoint from which it resumes",
        own=("loss", "canary_checksum"),
        everywhere=("param_checksum",),
        clean=("data_checksum",),
    ),
}
"""By site. Faults that strike all ranks alike show their own signs on all of them."""
ELSEWHERE: Mapping[Site, str] = {
    Site.MESSAGE: "what a rank sends to the next pipeline stage, or to an expert and back",
    Site.GATHER: "the parameters that a rank gathers from their owners",
}
"""Sites that plain data parallel jobs do not have."""

"""How a drilled job trains and how often it looks at itself. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How the job trains. The defaults are those of a healthy run."""

    peak_lr: float = 3e-3
    """Learning rate after the warm-up; AdamW on a model this small is stable up to about 2e-2."""
    warmup_iterations: int = 40
    final_lr_share: float = 0.1
    """The cosine ends at this share of the peak, as usual in language-model training."""
    weight_decay: float = 0.1
    beta2: float = 0.95
    is_normalised: bool = True
    """Whether the model has layer norms."""
    clip_norm: float | None = 1.0
    """Global gradient norm is clipped to this; None trains unclipped."""
    is_fp16: bool = False
    """Gradients are stored in half precision under a dynamic loss scale."""
    initial_scale: float = 2.0**24
    """Too high on purpose, as scalers start: the first iterations are skipped until it fits."""
    scale_growth_iterations: int = 150
    """Finite iterations after which the scale doubles; trainers use 1000 to 2000 for longer runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """How often, in iterations, each dear value is reported; cheap ones come every iteration."""

    param_checksum: int = 1
    optim_checksum: int = 10
    canary: int = 25
    """Of these three 0 leaves the value out: a job that looks at its curves alone."""
    checkpoint: int = 100
    grad_sketch: int = 0
    """Linear checksums of the gradient before and behind its reduction; 0 leaves them out."""
    heartbeat: int = 0
    """Heartbeats of every rank; 0 leaves them out."""
    evaluation: int = 0
    """Evaluations of the averaged parameters on held-out text, by the first rank; 0 leaves them out."""
    bucket_norm: int = 0
    """Norm of the first half of the local gradient, as it enters the reduction; 0 leaves it out."""

    @staticmethod
    def is_due(every: int, iteration: int) -> bool:
        """Whether a value that is reported ``every`` so many iterations is reported now."""
        return every > 0 and iteration % every == 0

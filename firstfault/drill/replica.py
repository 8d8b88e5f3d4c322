"""One rank of the training job: its own parameters, gradients and optimizer state.

An iteration has two halves with the reduction between them: `compute` (data, forward, backward) and
`update` (clip, optimizer, state). Each adds what it saw to the metrics of the record.

Axes: B samples, L positions, S = L + 1 tokens, F features, P parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from ..telemetry import Value
from .averages import SAMPLES, AveragedModel
from .checksum import tensor_checksum
from .corpus import Batch, Corpus
from .faults import Faults
from .model import FlatModel, ModelConfig
from .plans import Plan
from .sketch import gradient_sketch
from .training import Cadence, Training

Metrics = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a resumed attempt needs of one replica."""

    iteration: int
    """Last update contained."""
    flat_P: torch.Tensor
    optimizer: dict[str, torch.Tensor]
    scale: float
    finite_iterations: int


@dataclass(slots=True)
class LossScale:
    """A dynamic loss scale: halved when a gradient overflows, doubled after a finite stretch."""

    value: float
    growth_iterations: int
    finite_iterations: int = 0

    def after(self, is_finite: bool) -> None:
        """Adapt to one iteration."""
        self.finite_iterations = self.finite_iterations + 1 if is_finite else 0
        if not is_finite:
            self.value /= 2
        elif self.finite_iterations % self.growth_iterations == 0:
            self.value *= 2


@dataclass(slots=True)
class Replica:
    """The state of one rank."""

    plan: Plan
    rank: int
    corpus: Corpus
    config: ModelConfig = field(init=False)
    model: FlatModel = field(init=False)
    optimizer: torch.optim.AdamW = field(init=False)
    scale: LossScale | None = field(init=False)
    faults: Faults = field(init=False)
    average: AveragedModel | None = field(init=False)
    _activation_nonfinite: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        training = self.plan.scenario.training
        self.config = ModelConfig(is_normalised=training.is_normalised)
        self.model = FlatModel(self.config, self.plan.seed)
        self.optimizer = torch.optim.AdamW(
            [self.model.flat],
            lr=training.peak_lr,
            betas=(0.9, training.beta2),
            weight_decay=training.weight_decay,
            foreach=False,
        )
        self.scale = None
        if training.is_fp16:
            self.scale = LossScale(training.initial_scale, training.scale_growth_iterations)
        self.faults = Faults(self.plan, self.rank)
        self.average = None
        if self.plan.scenario.cadence.evaluation and self.rank == 0:
            held_out = self.corpus.held_out(SAMPLES, self.config.length)
            self.average = AveragedModel(self.model, held_out)

    def compute(self, iteration: int) -> tuple[torch.Tensor, Metrics]:
        """Data, forward and backward: the scaled local gradient (P) and what was seen on the way."""
        metrics: Metrics = {}
        if Cadence.is_due(self.plan.scenario.cadence.canary, iteration):
            metrics |= self._canary(iteration)
        batch = self.corpus.batch(iteration, self.rank, self.config.samples, self.config.length)
        batch = self.faults.on_batch(iteration, batch)
        loss, grad_P = self._gradient(iteration, batch, 1.0 if self.scale is None else self.scale.value)
        grad_P = self.faults.on_gradient(iteration, grad_P)
        if self.scale is not None:
            grad_P = grad_P.half().float()  # what does not fit into half precision becomes infinite
        norm = _norm(grad_P) / (1.0 if self.scale is None else self.scale.value)
        metrics |= {
            "loss": _digits(loss, 7),
            "local_grad_norm": _digits(norm, 7),
            "nonfinite_input": _nonfinite(torch.from_numpy(batch.features_BSF)),
            "nonfinite_act": self._activation_nonfinite,
            "nonfinite_loss": int(not math.isfinite(loss)),
            "nonfinite_grad": _nonfinite(grad_P),
            "tokens": self.config.samples * self.config.length,
        }
        metrics |= self._sketch(iteration, "grad_sketch_in", grad_P)
        grad_P = self.faults.on_contribution(iteration, grad_P)
        if Cadence.is_due(self.plan.scenario.cadence.bucket_norm, iteration):
            metrics["local_grad_norm/bucket0"] = _digits(_norm(grad_P[: len(grad_P) // 2]), 7)
        return grad_P, metrics

    def update(self, iteration: int, reduced_P: torch.Tensor) -> Metrics:
        """Clip the reduced gradient, step the optimizer, look at the state: what was seen."""
        training = self.plan.scenario.training
        reduced_P = self.faults.on_result(iteration, reduced_P)
        sketch = self._sketch(iteration, "grad_sketch_out", reduced_P)
        lr = self.lr(iteration)
        grad_P = reduced_P if self.scale is None else reduced_P / self.scale.value
        norm = _norm(grad_P)
        metrics: Metrics = {"grad_norm": _digits(norm, 9), "lr": _digits(lr, 7)}
        is_skipped = self.scale is not None and not math.isfinite(norm)
        if self.scale is not None:
            metrics |= {"loss_scale": self.scale.value, "skipped": int(is_skipped)}
            self.scale.after(not is_skipped)
        if not is_skipped:
            if training.clip_norm is not None and not norm <= training.clip_norm:
                grad_P = grad_P * (training.clip_norm / norm)
            self._step(iteration, grad_P, lr)
        self.faults.after_update(iteration, self.model.flat)
        return metrics | sketch | self._state(iteration) | self._evaluation(iteration)

    def lr(self, iteration: int) -> float:
        """Linear warm-up, then a cosine to a share of the peak; times what a fault makes of it."""
        return scheduled_lr(self.plan, iteration) * self.faults.lr_factor(iteration)

    def save(self, iteration: int) -> Snapshot:
        """A copy of everything that a resumed attempt needs."""
        state = self.optimizer.state.get(self.model.flat, {})
        return Snapshot(
            iteration=iteration,
            flat_P=self.model.flat.clone(),
            optimizer={name: value.clone() for name, value in state.items()},
            scale=0.0 if self.scale is None else self.scale.value,
            finite_iterations=0 if self.scale is None else self.scale.finite_iterations,
        )

    def load(self, snapshot: Snapshot) -> None:
        """Become the replica that `save` saw."""
        self.model.flat.copy_(snapshot.flat_P)
        state = {name: value.clone() for name, value in snapshot.optimizer.items()}
        self.optimizer.state[self.model.flat] = state
        if self.scale is not None:
            self.scale.value = snapshot.scale
            self.scale.finite_iterations = snapshot.finite_iterations

    def _step(self, iteration: int, grad_P: torch.Tensor, lr: float) -> None:
        self.optimizer.param_groups[0]["lr"] = lr
        moment = self.optimizer.state.get(self.model.flat, {}).get("exp_avg")
        if moment is not None:
            self.faults.before_update(iteration, moment)
        self.model.flat.grad = grad_P
        self.optimizer.step()

    def _state(self, iteration: int) -> Metrics:
        cadence = self.plan.scenario.cadence
        metrics: Metrics = {"nonfinite_param": _nonfinite(self.model.flat)}
        if Cadence.is_due(cadence.param_checksum, iteration):
            metrics["param_checksum"] = tensor_checksum(self.model.flat)
        state = self.optimizer.state.get(self.model.flat)
        if state and Cadence.is_due(cadence.optim_checksum, iteration):
            metrics["optim_checksum"] = tensor_checksum(torch.cat([state["exp_avg"], state["exp_avg_sq"]]))
        return metrics

    def _evaluation(self, iteration: int) -> Metrics:
        """What the averaged parameters make of held-out text."""
        if self.average is None:
            return {}
        self.average.follow()
        self.faults.on_average(iteration, self.average.flat_P)
        if iteration % self.plan.scenario.cadence.evaluation:
            return {}
        accuracy, loss = self.average.evaluate()
        return {"eval_accuracy": _digits(accuracy, 7), "eval_loss": _digits(loss, 7)}

    def _sketch(self, iteration: int, name: str, grad_P: torch.Tensor) -> Metrics:
        if not Cadence.is_due(self.plan.scenario.cadence.grad_sketch, iteration):
            return {}
        return {name: _digits(gradient_sketch(grad_P), 9)}

    def _canary(self, iteration: int) -> Metrics:
        """Forward and backward of the fixed batch, twice; its gradient is hashed and thrown away."""
        batch = self.corpus.canary(self.config.samples, self.config.length)
        seen = [self._gradient(iteration, batch, 1.0) for _ in range(2)]
        sums = [tensor_checksum(torch.cat([torch.tensor([loss]), grad_P])) for loss, grad_P in seen]
        return {
            "canary_loss": _digits(seen[0][0], 9),
            "canary_checksum": sums[0],
            "repeat_checksum/canary": sums[1],
        }

    def _gradient(self, iteration: int, batch: Batch, scale: float) -> tuple[float, torch.Tensor]:
        self._activation_nonfinite = 0
        self.model.flat_grad.zero_()
        loss = self.model.loss(
            torch.from_numpy(batch.tokens_BS),
            torch.from_numpy(batch.features_BSF),
            lambda site, value: self._watch(iteration, site, value),
        )
        torch.autograd.backward([loss * scale])
        return float(loss.detach()), self.model.flat_grad.clone()

    def _watch(self, iteration: int, site: str, value: torch.Tensor) -> torch.Tensor:
        value = self.faults.on_activation(iteration, site, value)
        self._activation_nonfinite += _nonfinite(value)
        return value


def scheduled_lr(plan: Plan, iteration: int) -> float:
    """The learning rate of the schedule: linear warm-up, then a cosine."""
    training: Training = plan.scenario.training
    if iteration < training.warmup_iterations:
        return training.peak_lr * (iteration + 1) / training.warmup_iterations
    share = (iteration - training.warmup_iterations) / max(1, plan.iterations - training.warmup_iterations)
    low = training.final_lr_share
    return training.peak_lr * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, share))))


def _norm(grad_P: torch.Tensor) -> float:
    """L2 norm, summed in double precision so that a large gradient does not overflow on the way."""
    return float(torch.linalg.vector_norm(grad_P, dtype=torch.float64))


def _nonfinite(value: torch.Tensor) -> int:
    return int(value.numel() - torch.isfinite(value.detach()).sum())


def _digits(value: float, digits: int) -> float:
    """``value`` at float32 precision or a little less, so that a log line stays short."""
    return float(f"{value:.{digits}g}")

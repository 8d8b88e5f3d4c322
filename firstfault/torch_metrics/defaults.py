"""The signals that a watch has unless told otherwise."""

from __future__ import annotations

from .activations import Activations
from .canary import Canary, CanaryConfig
from .config import WatchConfig
from .gradients import Gradients
from .inputs import Inputs
from .recompute import RecomputeChecksums, RecomputeConfig
from .signal import Signal
from .state import State
from .step_scalars import Loss, Schedule


def default_signals(config: WatchConfig) -> list[Signal]:
    """One of each, less those that are switched off.

    >>> [type(signal).__name__ for signal in default_signals(WatchConfig(schedule=0))]
    ['Loss', 'Gradients', 'Activations', 'Inputs', 'State', 'RecomputeChecksums', 'Canary']
    """
    signals: list[Signal] = []
    if config.schedule:
        signals.append(Schedule())
    if config.loss:
        signals.append(Loss())
    if config.local_grad or config.global_grad or config.grad_sketch:
        signals.append(Gradients())
    if config.activations or config.logits:
        signals.append(Activations())
    if config.inputs:
        signals.append(Inputs())
    if config.parameters or config.optimizer_state:
        signals.append(State())
    if config.recompute:
        signals.append(RecomputeChecksums(RecomputeConfig(every_iterations=config.recompute)))
    if config.canary_budget:
        canary = CanaryConfig(budget_share=config.canary_budget, every_iterations=config.canary_every or None)
        signals.append(Canary(canary))
    return signals

"""Which signals are measured, and how often."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchConfig:
    """Each signal has a cadence in iterations; 0 switches it off. All ranks must have the same ones."""

    loss: int = 1
    """Iterations between reports of the loss and of whether it is finite. One scalar: free."""
    schedule: int = 1
    """Iterations between reports of learning rate, loss scale, skipped steps and step time: free."""
    local_grad: int = 1
    """Iterations between local gradient norms and non-finite counts, taken before the reduction. One pass
    over the gradients; the one signal that shows a compute fault of plain data parallelism at once."""
    global_grad: int = 1
    """Iterations between norms and non-finite counts after the reduction, where the trainer gives no
    ``grad_norm`` itself. One more pass; none in a single process, where it is the local one."""
    grad_sketch: int = 10
    """Iterations between sketches of what enters and leaves the gradient reduction. Two passes over the
    gradients; 33 checks are learned from, so the collective is watched from iteration 330 on."""
    sketch_groups: int = 8
    """Most sketches of one reduction: buckets beyond share one. Each is a metric on the wire, and the finer
    they are the smaller the fault that shows."""
    activations: int = 1
    """Iterations between norms of activation gradients and non-finite counts of activations, at the layers
    chosen. A few passes over single activations."""
    activation_layers: tuple[str, ...] = ()
    """Names of modules whose outputs are looked at; none = ``activation_count`` evenly spaced ones of the
    longest list of layers."""
    activation_count: int = 4
    """Layers chosen where none are named: a fault travels backwards, so a few places tell where it began."""
    logits: int = 1
    """Iterations between non-finite counts of the logits: one pass over a tensor that may be large."""
    inputs: int = 1
    """Iterations between checks of the inputs: non-finite values, and a checksum of what was read."""
    parameters: int = 100
    """Iterations between checksums and non-finite counts of the parameters. At 100 their
    cost is below 0.1 % of a step, and a fault is dated to 100 iterations."""
    optimizer_state: int = 200
    """Iterations between checksums of the optimizer's state, twice as large: twice as rare."""
    canary_budget: float = 0.001
    """Share of the time that canaries may take; 0 switches them off. A thousandth is less than the noise of a
    step, and looks at each rank every 2000 to 4000 iterations of a model that fills its device."""
    canary_every: int = 0
    """Iterations between canaries; 0 = as often as the budget allows, by their measured cost."""
    recompute: int = 64
    """Iterations between comparisons of recomputed activations with the first ones; without recomputation
    there are none. It reads a few outputs twice."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "canary_budget":
                if not isinstance(value, int | float) or not (value == 0 or 1e-6 <= value <= 1):
                    raise ValueError(f"canary_budget must be 0 or from 1e-6 to 1, got {value!r}")
                continue
            if field.name == "activation_layers":
                if not isinstance(value, tuple) or not all(isinstance(name, str) for name in value):
                    raise ValueError(f"{field.name} must be a tuple of module names, got {value!r}")
                continue
            least = 1 if field.name in ("sketch_groups", "activation_count") else 0
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST:
                raise ValueError(f"{field.name} must be an integer from {least} to {_MOST}, got {value!r}")


_MOST = 10**9


def is_due(cadence: int, iteration: int) -> bool:
    """Whether a signal of this cadence is reported at an iteration.

    >>> [iteration for iteration in range(7) if is_due(3, iteration)]
    [0, 3, 6]
    """
    return cadence > 0 and iteration % cadence == 0

"""Lightning: ``Trainer(callbacks=[firstfault.lightning_callback(sink="http://host:8080")])``.

Iterations are Lightning's own, as in its logs: the first is 0. With several optimizers each of their steps
counts, as it does for Lightning.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from .following import Follower, harmless, missing

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""The two names under which Lightning is installed; their classes are not the same."""
_EVALUATIONS = ("val_", "val/", "test_", "test/", "eval_")


def lightning_callback(
    run: str | None = None,
    sink: str | None = None,
    *,
    watch: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """A callback for Lightning's Trainer; ``options`` are those of `Probe`, ``watch`` of `Probe.watch`.

    Raises:
        ImportError: Lightning is not installed.
    """
    base = _callback_class()
    made = type("FirstfaultCallback", (_Hooks, base), {"__doc__": lightning_callback.__doc__})
    return made(Follower({"run": run, "sink": sink, **options}, watch))


def _callback_class() -> type:
    """The class of callbacks of the package that the script has loaded, else of one that is there."""
    loaded = [name for name in _PACKAGES if name in sys.modules]
    for name in loaded or _PACKAGES:
        try:
            found: type = import_module(name).Callback
        except ImportError:
            continue
        return found
    raise missing("lightning_callback", "lightning")


class _Hooks:
    """The events of the trainer that matter; the class of Lightning's callbacks has the others."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self._steps = 0

    @harmless
    def on_train_start(self, trainer: Any, _module: Any) -> None:
        """Watch the model as the strategy wrapped it."""
        optimizers = trainer.optimizers
        probe = self.follower.begin(
            trainer.strategy.model,
            optimizers if len(optimizers) > 1 else next(iter(optimizers), None),
            scaler=getattr(trainer.strategy.precision_plugin, "scaler", None),
            mesh=getattr(trainer.strategy, "device_mesh", None),
            iteration=trainer.global_step,
        )
        self._steps = trainer.global_step
        if self._steps:
            probe.event("resume", iteration=self._steps)

    @harmless
    def on_train_batch_end(self, trainer: Any, _module: Any, outputs: Any, _batch: Any, _index: int) -> None:
        """A microbatch is done; an iteration is where Lightning counted a step."""
        probe = self.follower.probe
        if probe is None:
            return
        self.follower.losses.add(outputs.get("loss") if isinstance(outputs, Mapping) else outputs)
        if trainer.global_step > self._steps:
            self._steps = trainer.global_step
            # Lightning divides each loss by the number of microbatches
            probe.step(self.follower.losses.sum(), iteration=self._steps - 1)

    @harmless
    def on_validation_end(self, trainer: Any, _module: Any) -> None:
        """An evaluation on data held out; the check before training is none."""
        if self.follower.probe is None or trainer.sanity_checking or not trainer.is_global_zero:
            return
        found: dict[str, Any] = {
            f"eval_{name.removeprefix('val_').removeprefix('val/')}": float(value)
            for name, value in trainer.callback_metrics.items()
            if name.startswith(_EVALUATIONS)
        }
        if found:
            self.follower.probe.log(iteration=max(trainer.global_step - 1, 0), **found)

    @harmless
    def on_save_checkpoint(self, trainer: Any, _module: Any, _checkpoint: Any) -> None:
        """A checkpoint is about to be written."""
        if self.follower.probe is not None and trainer.is_global_zero and trainer.global_step:
            folder = getattr(trainer.checkpoint_callback, "dirpath", None)
            where = {} if folder is None else {"path": str(folder)}
            self.follower.probe.event("checkpoint", iteration=trainer.global_step - 1, **where)

    @harmless
    def on_train_end(self, _trainer: Any, _module: Any) -> None:
        """Training is over."""
        self.follower.end()

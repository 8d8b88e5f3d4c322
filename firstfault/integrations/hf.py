"""The Trainer of Hugging Face: ``Trainer(…, callbacks=[firstfault.hf_callback(sink="http://host:8080")])``.

Iterations are the trainer's own steps, as in its log and in the names of its checkpoints: the first is 1.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

from .following import Follower, Losses, harmless, missing


def hf_callback(
    run: str | None = None,
    sink: str | None = None,
    *,
    watch: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """A callback for `transformers.Trainer`; ``options`` are those of `Probe`, ``watch`` of `Probe.watch`.

    Raises:
        ImportError: transformers is not installed.
    """
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise missing("hf_callback", "transformers") from error
    made = type("FirstfaultCallback", (_Hooks, TrainerCallback), {"__doc__": hf_callback.__doc__})
    return made(Follower({"run": run, "sink": sink, **options}, watch))


class _Hooks:
    """The events of the trainer that matter; the class of the trainer's callbacks has the others."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self._forward: Any = None
        self._is_summed = False

    @harmless
    def on_train_begin(self, _args: Any, state: Any, _control: Any, **kwargs: Any) -> None:
        """Watch the model as it was wrapped for training."""
        model, optimizer = kwargs["model"], kwargs.get("optimizer")
        probe = self.follower.begin(
            _wrapper_of(model),
            optimizer,
            scaler=getattr(optimizer, "scaler", None),
            iteration=state.global_step + 1,
        )
        if not probe.is_on:
            return
        self._forward = model.register_forward_hook(self._take_loss, with_kwargs=True)
        if state.global_step:
            probe.event("resume", iteration=state.global_step + 1)

    @harmless
    def on_optimizer_step(self, _args: Any, state: Any, _control: Any, **_kwargs: Any) -> None:
        """An update is done, and gradients are still there."""
        if self.follower.probe is not None:
            losses: Losses = self.follower.losses
            # a loss that was divided by the tokens of the whole batch is a part of its loss
            loss = losses.sum() if self._is_summed else losses.mean()
            self.follower.probe.step(loss, iteration=state.global_step + 1)

    @harmless
    def on_evaluate(self, _args: Any, state: Any, _control: Any, **kwargs: Any) -> None:
        """An evaluation, of which all ranks have the same result."""
        metrics = kwargs.get("metrics") or {}
        found = {
            name: value
            for name, value in metrics.items()
            if name.startswith("eval_") and not name.endswith(("_runtime", "_per_second"))
        }
        if self.follower.probe is not None and found and state.is_world_process_zero:
            self.follower.probe.log(iteration=state.global_step, **found)

    @harmless
    def on_save(self, args: Any, state: Any, _control: Any, **_kwargs: Any) -> None:
        """A checkpoint is written."""
        if self.follower.probe is not None and state.is_world_process_zero:
            path = f"{args.output_dir}/checkpoint-{state.global_step}"
            self.follower.probe.event("checkpoint", iteration=state.global_step, path=path, complete=True)

    @harmless
    def on_train_end(self, _args: Any, _state: Any, _control: Any, **_kwargs: Any) -> None:
        """Training is over; an evaluation may still follow, and is not followed."""
        if self._forward is not None:
            self._forward.remove()
        self._forward = None
        self.follower.end()

    @harmless
    def _take_loss(self, module: Any, _args: Any, kwargs: Mapping[str, Any], output: Any) -> None:
        """The loss of one microbatch, where the model computes it."""
        if not module.training or self.follower.is_muted:
            return
        self._is_summed = kwargs.get("num_items_in_batch") is not None
        loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if loss is None and isinstance(output, tuple) and output and kwargs.get("labels") is not None:
            loss = output[0]
        self.follower.losses.add(loss)


def _wrapper_of(model: Any) -> Any:
    """The DDP or FSDP module around ``model``, which callbacks are not given; else ``model`` itself."""
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return model
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.nn.parallel import DistributedDataParallel

    kinds = (DistributedDataParallel, FullyShardedDataParallel)
    for one in gc.get_objects():
        if type(one) in kinds and model in (one.module, getattr(one.module, "_orig_mod", None)):
            return one
    return model

"""Loops in the manner of Megatron: a function ``train_step`` that does one iteration.

    import megatron.training.training as training
    training.train_step = firstfault.megatron_hook(training.train_step, sink="http://host:8080")

Iterations are those of its log: the first is 1. Groups come from ``megatron.core.parallel_state``.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .following import Follower, harmless

_GRAD_NORM = 5
"""Where ``train_step`` returns the norm: losses, skipped, and three values about checkpoints come before."""


def megatron_hook(
    train_step: Callable[..., Any],
    run: str | None = None,
    sink: str | None = None,
    *,
    watch: Mapping[str, Any] | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """``train_step`` followed by a probe; ``options`` are those of `Probe`, ``watch`` of `Probe.watch`.

    It takes ``model`` (a list of chunks) and ``optimizer`` by these names, ``iteration`` (the updates done
    before) where there is one, and returns the losses, whether the update was skipped, …, the norm of the
    gradient, ….
    """
    follower = Follower({"run": run, "sink": sink, **options}, watch)
    hooks = _Hooks(follower, inspect.signature(train_step))

    @functools.wraps(train_step)
    def followed(*args: Any, **kwargs: Any) -> Any:
        hooks.enter(args, kwargs)
        result = train_step(*args, **kwargs)
        hooks.leave(result)
        return result

    return followed


class _Hooks:
    """Before and behind one iteration."""

    def __init__(self, follower: Follower, signature: inspect.Signature) -> None:
        self.follower = follower
        self._signature = signature
        self._optimizer: Any = None
        self._iteration: int | None = None
        self._is_begun = False

    @harmless
    def enter(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Begin at the first iteration, when model and optimizer are as they will be trained."""
        given = self._signature.bind_partial(*args, **kwargs).arguments
        self._iteration = _updates_before(given)
        if self._is_begun:
            return
        self._is_begun = True
        self._optimizer = given.get("optimizer")
        from torch.nn import ModuleList

        layout = megatron_layout(self._optimizer)
        self.follower.declare(**layout)
        model = given.get("model")
        chunks: list[Any] = list(model) if isinstance(model, list | tuple) else [model]
        whole = chunks[0] if len(chunks) == 1 else ModuleList(chunks)
        probe = self.follower.begin(whole, self._optimizer, iteration=(self._iteration or 0) + 1)
        if self._iteration:
            probe.event("resume", iteration=self._iteration + 1)
        if probe.watching is not None:
            self._put_around_reduction(given.get("config"), chunks, probe.watching)

    def _put_around_reduction(self, config: Any, chunks: Sequence[Any], watch: Any) -> None:
        """Look at the accumulated gradients before and behind the function that reduces them."""
        finalize = getattr(config, "finalize_model_grads_func", None)
        settings = [getattr(chunk, "ddp_config", None) for chunk in chunks]
        if finalize is None:
            return
        if any(getattr(one, "overlap_grad_reduce", False) for one in settings):
            # what is on its way while the backward pass runs is not there to be looked at before
            watch.leave_out("gradients before the reduction", "overlap_grad_reduce is on")
            return

        @functools.wraps(finalize)
        def finalize_with_probe(*args: Any, **kwargs: Any) -> Any:
            watch.before_reduction(_accumulated(chunks))
            result = finalize(*args, **kwargs)
            watch.after_reduction(_accumulated(chunks))
            return result

        config.finalize_model_grads_func = finalize_with_probe

    @harmless
    def leave(self, result: Any) -> None:
        """The iteration is done."""
        probe = self.follower.probe
        if probe is None or not probe.is_on:
            return
        iteration = None if self._iteration is None else self._iteration + 1
        parts = result if isinstance(result, Sequence) else (result,)
        losses = parts[0] if parts and isinstance(parts[0], Mapping) else {}
        metrics: dict[str, Any] = {}
        if len(parts) > 1:
            metrics["skipped"] = int(bool(parts[1]))
        if len(parts) > _GRAD_NORM and isinstance(parts[_GRAD_NORM], float):
            metrics["grad_norm"] = parts[_GRAD_NORM]
        probe.step(next(iter(losses.values()), None), iteration=iteration, **metrics)


def _accumulated(chunks: Sequence[Any]) -> list[Any]:
    """The gradients of all microbatches, where Megatron's wrapper adds them up."""
    parameters = (one for chunk in chunks for one in chunk.parameters())
    held = (getattr(one, "main_grad", None) for one in parameters)
    return [one for one in held if one is not None]


def megatron_layout(optimizer: Any) -> dict[str, object]:
    """``mesh`` and ``sharding`` from the groups of ``megatron.core.parallel_state``; empty without them."""
    state = sys.modules.get("megatron.core.parallel_state")
    if state is None:
        return {}
    from torch import distributed

    from .layouts import mesh_of_groups

    ranks_of = distributed.get_process_group_ranks
    groups = {
        "tp": ranks_of(state.get_tensor_model_parallel_group()),
        "cp": ranks_of(state.get_context_parallel_group()),
        "dp": ranks_of(state.get_data_parallel_group()),
        "pp": ranks_of(state.get_pipeline_model_parallel_group()),
    }
    mesh = mesh_of_groups(groups, distributed.get_world_size())
    experts = ranks_of(state.get_expert_model_parallel_group())
    if mesh is not None and len(experts) > 1:
        mesh = with_experts(mesh, groups["dp"], experts)
    if mesh is None:
        return {}
    chained = getattr(optimizer, "chained_optimizers", None) or [optimizer]
    is_sharded = any("DistributedOptimizer" in [c.__name__ for c in type(one).__mro__] for one in chained)
    return {"mesh": mesh, "sharding": "zero1" if is_sharded else "none"}


def with_experts(
    mesh: list[list[object]], data: Sequence[int], experts: Sequence[int]
) -> list[list[object]] | None:
    """``mesh`` with the axis of experts, which are spread over neighbours of a data-parallel group.

    None where they are not: then nothing may be compared, since experts of one name differ.

    >>> with_experts([["dp", 4], ["tp", 2]], [0, 2, 4, 6], [0, 2])
    [['dp', 2], ['ep', 2], ['tp', 2]]
    """
    if list(experts) not in [list(data[at : at + len(experts)]) for at in range(0, len(data), len(experts))]:
        return None
    at = [axis for axis, _ in mesh].index("dp")
    split: list[list[object]] = [["dp", len(data) // len(experts)], ["ep", len(experts)]]
    return [*mesh[:at], *split, *mesh[at + 1 :]]


def _updates_before(given: Mapping[str, Any]) -> int | None:
    """How many updates came before this one: as the function is told, else as Megatron's arguments say."""
    iteration = given.get("iteration")
    if iteration is None and "megatron.training" in sys.modules:
        iteration = getattr(sys.modules["megatron.training"].get_args(), "curr_iteration", None)
    return None if iteration is None else int(iteration)

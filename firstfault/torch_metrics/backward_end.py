"""Gradients at the end of a backward pass: before data parallelism reduces them, and after.

A hook on each parameter queues a callback to the end of the pass. It runs before the callback of
`DistributedDataParallel` that waits for its reductions, while these are still on their way: nothing waits
for the look at the local gradients, and no communication hook is needed, so that the reduction is what it
would be without a watch, bit by bit. A second callback, queued behind that of the wrapper, sees the
result. Where gradients are views of the buckets, which are reduced in place, the graph is static, or whoever
reduces is not known, each is looked at in the hook of its parameter instead. (Everywhere, that would gain
nothing: norms of gradients that are still in the cache take as long, at the bandwidth of memory.)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from .arrivals import Arrivals
from .sharding import local, values_of

if TYPE_CHECKING:
    from .gradients import Gradients, Places
    from .watch import Watch

_BEHIND = 2
"""Callbacks between the first look and the second: a wrapper queues its own while the pass runs, or from a
callback that it queued then."""


class BackwardEnd:
    """Looks at all gradients when a backward pass ends; also where nothing is reduced."""

    def __init__(self) -> None:
        self._watch: Watch | None = None
        self._gradients: Gradients | None = None
        self._handles: list[Any] = []
        self._parameters: list[weakref.ref[nn.Parameter]] = []
        self._places: Places | None = None
        self._task = -1
        self._arrivals: Arrivals | None = None
        """None where the gradients are looked at when the pass is over."""
        self._is_reduced = self.has_whole_result = False

    def attach(self, watch: Watch, gradients: Gradients) -> None:
        self._watch, self._gradients = watch, gradients
        model = getattr(watch.model, "_orig_mod", watch.model)  # within torch.compile
        is_parallel = isinstance(model, nn.parallel.DistributedDataParallel)
        self._is_reduced = is_parallel and watch.world_size > 1
        # a static graph reduces everything before any callback of ours in its first pass, and of a reduction
        # that is not torch's own nobody knows when it begins
        is_known = is_parallel and not model.gradient_as_bucket_view and not model.static_graph
        self._arrivals = None if is_known or watch.world_size == 1 else Arrivals()
        self.has_whole_result = is_parallel or watch.world_size == 1
        if not self.has_whole_result:
            watch.leave_out(
                "grad_norm", "the trainer reduces by itself: give it to step() or after_reduction()"
            )
        self._hook_parameters()

    def refresh(self) -> None:
        """The step is over. Hook parameters that a model got since."""
        assert self._watch is not None, "asked for while attached only"
        if self._arrivals is not None:
            self._arrivals.clear()
        now = [id(one) for one in _trainable(self._watch.module)]
        if now != [id(ref()) for ref in self._parameters]:
            self._unhook()
            self._hook_parameters()

    def detach(self) -> None:
        self._unhook()
        self._watch = self._gradients = self._arrivals = None

    def _hook_parameters(self) -> None:
        from .gradients import Places

        assert self._watch is not None and self._gradients is not None, "attached before"
        parameters = _trainable(self._watch.module)
        self._parameters = [weakref.ref(one) for one in parameters]
        self._places = Places.of([local(one).numel() for one in parameters], self._watch.config.sketch_groups)
        for at, parameter in enumerate(parameters):
            hook = self._watch.guarded(self._gradients, self._arrived(at))
            handle = parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
            self._handles.append(handle)

    def _unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles, self._parameters = [], []

    def _arrived(self, at: int) -> Callable[[torch.Tensor], None]:
        def arrived(parameter: torch.Tensor) -> None:
            task = torch._C._current_graph_task_id()
            if task != self._task:
                self._task = task
                self._begin()
            if self._arrivals is not None and parameter.grad is not None:
                self._see_one(self._arrivals, at, parameter.grad)

        return arrived

    def _begin(self) -> None:
        """The first gradient of a pass has arrived."""
        assert self._watch is not None and self._gradients is not None, "hooks are removed first"
        self._watch.probe.at("backward", self._watch.iteration)
        self._watch.loss_scale = self._gradients.scale()
        if self._arrivals is not None:  # gradients that were thrown away since do not count
            grads = self._grads()
            self._arrivals.forget({at for at in self._arrivals.places if grads[at] is None})
        _queue(self._watch.guarded(self._gradients, self._local))

    def _see_one(self, arrivals: Arrivals, at: int, grad: torch.Tensor) -> None:
        assert self._gradients is not None and self._places is not None, "hooks are removed first"
        if self._gradients.wants(self._gradients.before):
            arrivals.add(at, values_of(grad))
        if self._gradients.wants_sketch() and grad.layout == torch.strided:
            arrivals.add_sketch(at, local(grad), self._places.rows_P[at])

    def _local(self) -> None:
        """The pass is over, and nothing that it reduces has been waited for."""
        if self._gradients is None or self._watch is None or self._places is None:
            return
        before = self._gradients.before
        if self._arrivals is None:
            self._gradients.see(before, self._grads(), self._places)
        else:
            before.clear()
            before.take(self._arrivals, self._gradients.scale(), self._places)
        self._watch.probe.at("reduce_in", self._watch.iteration)
        self._later(_BEHIND)

    def _later(self, count: int) -> None:
        if self._gradients is None or self._watch is None:
            return
        if count:
            _queue(self._watch.guarded(self._gradients, lambda: self._later(count - 1)))
        else:
            self._reduced()

    def _reduced(self) -> None:
        """The gradients are what the optimizer, or whoever clips, gets."""
        assert self._gradients is not None and self._places is not None, "looked at while attached only"
        if self._is_reduced:
            self._gradients.see(self._gradients.after, self._grads(), self._places)
        elif self.has_whole_result:
            self._gradients.before.copy_to(self._gradients.after)

    def _grads(self) -> list[torch.Tensor | None]:
        held = [ref() for ref in self._parameters]
        return [None if one is None or one.grad is None else one.grad for one in held]


def _trainable(module: nn.Module) -> list[nn.Parameter]:
    """Parameters that get a gradient, each once, in the order of the module; not those of an unknown size."""
    return [one for one in module.parameters() if one.requires_grad and not is_lazy(one)]


def _queue(callback: Callable[[], None]) -> None:
    """Call at the end of the backward pass that is running."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)

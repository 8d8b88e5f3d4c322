"""Activations at a few layers: values that are not finite, and norms of the gradients that arrive there."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .config import is_due
from .counting import nonfinite, squared_norm
from .passes import is_backward_running, is_training_pass, logits_of, output_of
from .step_scalars import scale_of

if TYPE_CHECKING:
    from .readback import Readback
    from .watch import Watch


class Activations:
    """Looks at the outputs of chosen layers, at the logits, and at the gradients of the layers' outputs.

    The gradient is met by a hook on the output itself, which leaves the graph as it is. Inside compiled
    code there is no output to look at: what was never seen is left out, and the coverage says so.
    """

    name = "activations"

    def __init__(self) -> None:
        self._watch: Watch | None = None
        self._handles: list[Any] = []
        self._squares: dict[str, torch.Tensor] = {}
        self._bad: dict[str, torch.Tensor] = {}
        self._seen: set[str] = set()
        """Layers seen since the model was last called."""
        self._names: list[str] = []
        self._has_said = False

    def attach(self, watch: Watch) -> None:
        self._watch = watch
        layers = chosen_layers(watch.module, watch.config.activation_layers, watch.config.activation_count)
        self._names = list(layers)
        for name, layer in layers.items():
            hook = watch.guarded(self, functools.partial(self._layer, name))
            self._handles.append(layer.register_forward_hook(hook))
        self._handles.append(watch.model.register_forward_pre_hook(watch.guarded(self, self._begin)))
        self._handles.append(watch.model.register_forward_hook(watch.guarded(self, self._model)))

    def at_step(self, _: int, out: Readback) -> None:
        for name, squares in self._squares.items():
            out.put(f"act_grad_norm/{name}", squares.sqrt())
        for metric, count in self._bad.items():
            out.put(metric, count)
        self._tell_unseen()
        self._squares, self._bad = {}, {}

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles, self._watch = [], None
        self._squares, self._bad = {}, {}

    def _layer(self, name: str, layer: nn.Module, _: object, output: object) -> None:
        if not self._is_due() or not is_training_pass(layer):
            return
        if is_backward_running() and name in self._seen:
            return  # computed a second time, for its own gradient
        value = output_of(output)
        if value is None:
            return
        self._seen.add(name)
        self._count("nonfinite_act", value)
        if value.requires_grad and self._watch is not None:
            hook = self._watch.guarded(self, functools.partial(self._gradient, name))
            value.register_hook(hook)  # type: ignore[no-untyped-call]  # torch does not say its type

    def _gradient(self, name: str, grad: torch.Tensor) -> None:
        if self._watch is None:
            return
        scale = scale_of(self._watch.scaler)
        squares = squared_norm([grad])
        squares = squares if scale is None else squares / scale**2
        self._squares[name] = self._squares[name] + squares if name in self._squares else squares

    def _begin(self, *_: object) -> None:
        self._seen = set()

    def _model(self, model: nn.Module, _: object, output: object) -> None:
        if self._watch is None or not is_training_pass(model):
            return
        if is_due(self._watch.config.logits, self._watch.iteration):
            value = logits_of(output)
            if value is not None:
                self._count("nonfinite_logits", value)

    def _count(self, metric: str, value: torch.Tensor) -> None:
        found = nonfinite([value])
        self._bad[metric] = self._bad[metric] + found if metric in self._bad else found

    def _is_due(self) -> bool:
        return self._watch is not None and is_due(self._watch.config.activations, self._watch.iteration)

    def _tell_unseen(self) -> None:
        """Once, after the first step that should have seen something."""
        if self._has_said or self._watch is None or not self._is_due():
            return
        self._has_said = True
        unseen = [name for name in self._names if name not in self._squares]
        if unseen:
            why = "no gradient was seen there: compiled, frozen or not used"
            self._watch.leave_out("act_grad_norm", f"{', '.join(unseen)}: {why}")
        if not self._names:
            self._watch.leave_out("act_grad_norm", "the model has no list of layers; name some")


def chosen_layers(module: nn.Module, names: tuple[str, ...], count: int) -> Mapping[str, nn.Module]:
    """The layers of these names, or else so many evenly spaced ones of the longest list of layers.

    The first and the last one are among them where there are two or more.

    >>> list(chosen_layers(nn.Sequential(*(nn.Linear(1, 1) for _ in range(9))), (), 3))
    ['0', '4', '8']
    """
    if names:
        return {name: module.get_submodule(name) for name in names}
    lists = [
        (prefix, one)
        for prefix, one in module.named_modules()
        if isinstance(one, nn.ModuleList | nn.Sequential)
    ]
    if not lists:
        return {}
    prefix, longest = max(lists, key=lambda pair: len(pair[1]))
    layers = [(f"{prefix}.{at}" if prefix else at, layer) for at, layer in longest.named_children()]
    count = min(count, len(layers))
    if not count:
        return {}
    places = {round(at * (len(layers) - 1) / max(1, count - 1)) for at in range(count)}
    return dict(layers[at] for at in sorted(places))

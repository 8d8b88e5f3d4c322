"""Everything that a forward and a backward may change, saved before and put back after.

Parameters are not saved: the canary runs on *aliases*, which share their memory and have no hooks, so that
neither ``.grad`` nor a reducer ever hears of it. What is saved: random states, buffers (the statistics of
BatchNorm), and what modules keep in attributes: counters, caches, the router state of a mixture of experts,
the amax histories of fp8. Tensors are put back in place, since others may hold them, and without a trace in
their version counters.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

MAX_STATE_BYTES = 1 << 30
"""Buffers and cached tensors that are copied for a canary: more may not fit beside the model."""
MAX_DEPTH = 4
"""How far objects in attributes are followed: fp8 histories lie three objects down."""
_LEAVES = (str, bytes, int, float, complex, Enum, type(None), type, torch.dtype, torch.device, torch.Size)
_OPAQUE = (FunctionType, BuiltinFunctionType, MethodType, ModuleType, nn.Parameter, torch.optim.Optimizer)


class CanaryError(RuntimeError):
    """A model that a canary cannot run on: names what stands in the way."""


@contextmanager
def untouched(module: nn.Module) -> Iterator[ModuleState]:
    """Restore the random state and the state of ``module`` at the end, whatever happens between."""
    randomness, state = RandomState(), ModuleState.of(module)
    kept = tuple(one for one, _ in state.tensors)
    with _unsafe_preserve_version_counter(kept):
        try:
            yield state
        finally:
            state.restore()
            randomness.restore()


class FirstBuffers:
    """Buffers as they were when the canary was attached, for the canary alone.

    What ranks gather of their own data (running statistics, the load of a router) is different on each and
    would make their canaries differ. At the start all ranks hold the same.
    """

    def __init__(self, module: nn.Module) -> None:
        self._held = [
            (part, name, buffer.detach().clone())
            for part in module.modules()
            for name, buffer in part._buffers.items()
            if buffer is not None
        ]

    def put_in(self) -> None:
        """Write them into the module, in place where the shape is still the same."""
        with torch.no_grad():
            for part, name, saved in self._held:
                buffer = part._buffers.get(name)
                if buffer is not None and buffer.shape == saved.shape and buffer.dtype == saved.dtype:
                    buffer.copy_(saved)


class RandomState:
    """The states of all generators that a forward may draw from."""

    def __init__(self) -> None:
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy: Any = None if numpy is None else numpy.random.get_state()
        self._cpu = torch.default_generator.get_state()
        self._cuda = [(one, one.get_state()) for one in _cuda_generators()]
        self._trackers = [(one, dict(one.get_states())) for one in _trackers()]

    def restore(self) -> None:
        """Put them back."""
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        torch.default_generator.set_state(self._cpu)
        for generator, state in self._cuda:
            generator.set_state(state)
        for tracker, states in self._trackers:
            tracker.set_states(states)


def seed_all(seed: int) -> None:
    """Seed every generator alike on all ranks; those of a device only where it is in use already."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % (1 << 32))
    torch.default_generator.manual_seed(seed)
    generators = _cuda_generators()
    for tracker in _trackers():
        states = {}
        for at, name in enumerate(sorted(tracker.get_states())):
            generators[0].manual_seed(seed + 1 + at)
            states[name] = generators[0].get_state()
        tracker.set_states(states)
    for generator in generators:
        generator.manual_seed(seed)


def _cuda_generators() -> list[torch.Generator]:
    """The generator of the current device; touching another would initialize that device."""
    if not torch.cuda.is_available() or not bool(torch.cuda.is_initialized()):  # type: ignore[no-untyped-call]  # untyped in torch
        return []
    return [torch.cuda.default_generators[torch.cuda.current_device()]]


def _trackers() -> list[Any]:
    """Megatron's named random states, where it is in use."""
    held = sys.modules.get("megatron.core.tensor_parallel.random")
    if held is None or not _cuda_generators():
        return []
    return [held.get_cuda_rng_tracker()]


@dataclass(slots=True)
class ModuleState:
    """Attributes, containers and tensors of a module and of all below it."""

    attributes: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    containers: list[tuple[Any, Any]] = field(default_factory=list)
    tensors: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    generators: list[tuple[torch.Generator, torch.Tensor]] = field(default_factory=list)
    bytes: int = 0
    _seen: dict[int, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, module: nn.Module) -> ModuleState:
        """Save ``module``.

        Raises:
            CanaryError: its buffers are too large to be copied.
        """
        state = cls()
        for part in module.modules():
            state._save(part, 0)
        fp8 = sys.modules.get("transformer_engine.pytorch.fp8")
        if fp8 is not None:
            # Its histories of all modules are kept in the class, and are reduced when autocast ends.
            state._save_values(list(vars(fp8.FP8GlobalStateManager).values()), 1)
        return state

    def restore(self) -> None:
        """Put everything back in place."""
        for held, saved in self.attributes:
            if held.keys() != saved.keys() or any(held[name] is not saved[name] for name in saved):
                held.clear()
                held.update(saved)
        for container, saved in self.containers:
            _refill(container, saved)
        with torch.no_grad():
            for tensor, values in self.tensors:
                tensor.copy_(values)
        for generator, position in self.generators:
            generator.set_state(position)

    def _save(self, value: Any, depth: int) -> None:
        if isinstance(value, (*_LEAVES, *_OPAQUE)) or id(value) in self._seen or depth > MAX_DEPTH:
            return
        # Kept, so that no other object gets the same id while this lasts.
        self._seen[id(value)] = value
        if isinstance(value, torch.Tensor):
            self._save_tensor(value)
        elif isinstance(value, torch.Generator):
            self.generators.append((value, value.get_state()))
        elif isinstance(value, dict):
            self.containers.append((value, dict(value)))
            self._save_values(list(value.values()), depth + 1)
        elif isinstance(value, (list, set, deque)):
            self.containers.append((value, value.copy()))
            self._save_values(list(value), depth + 1)
        elif isinstance(value, tuple):
            self._save_values(value, depth + 1)
        elif isinstance(value, nn.Module) or _is_plain_state(value):
            self.attributes.append((value.__dict__, dict(value.__dict__)))
            # What a module holds is as deep as the module: only what is no module is followed less far.
            self._save_values(list(value.__dict__.values()), 0 if isinstance(value, nn.Module) else depth + 1)

    def _save_values(self, values: list[Any] | tuple[Any, ...], depth: int) -> None:
        for value in values:
            self._save(value, depth)

    def _save_tensor(self, tensor: torch.Tensor) -> None:
        if tensor.requires_grad or tensor.is_inference():
            return  # nobody may write to these in place
        self.bytes += tensor.nbytes
        if self.bytes > MAX_STATE_BYTES:
            raise CanaryError(
                f"buffers of a model with a canary must be at most {MAX_STATE_BYTES} bytes, got {self.bytes}"
            )
        self.tensors.append((tensor, tensor.detach().clone()))


@contextmanager
def aliased(module: nn.Module) -> Iterator[dict[str, nn.Parameter]]:
    """Put aliases in the place of the parameters: the same memory, no ``.grad`` and no hook.

    Inside `untouched`: its end puts the parameters back where a module keeps them elsewhere too.
    """
    aliases: dict[int, nn.Parameter] = {}
    named: dict[str, nn.Parameter] = {}
    places: list[tuple[dict[str, nn.Parameter | None], str, nn.Parameter]] = []
    for path, part in module.named_modules():
        for name, parameter in part._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in aliases:
                aliases[id(parameter)] = _alias(parameter)
                named[f"{path}.{name}"] = aliases[id(parameter)]
            places.append((part._parameters, name, parameter))
    try:
        for held, name, parameter in places:
            held[name] = aliases[id(parameter)]
        for part in module.modules():
            if isinstance(part, nn.RNNBase):  # keeps its weights in a list too
                part._flat_weights = [getattr(part, name, None) for name in part._flat_weights_names]
        yield named
    finally:
        for held, name, parameter in places:
            held[name] = parameter


def _alias(parameter: nn.Parameter) -> nn.Parameter:
    alias = nn.Parameter(parameter.detach(), requires_grad=parameter.requires_grad)
    # Marks that frameworks set on a parameter decide how it is used: tensor_model_parallel and the like.
    alias.__dict__.update(parameter.__dict__)
    main_grad = getattr(parameter, "main_grad", None)
    if isinstance(main_grad, torch.Tensor):
        # Fused kernels add to it in the backward itself.
        alias.main_grad = torch.zeros_like(main_grad)  # type: ignore[attr-defined]
    return alias


def _is_plain_state(value: Any) -> bool:
    """Whether an object holds nothing but values: one that holds services (a trainer) has a life of its
    own."""
    held = getattr(value, "__dict__", None)
    kinds = (*_LEAVES, *_OPAQUE, torch.Tensor, torch.Generator, dict, list, set, deque, tuple)
    return isinstance(held, dict) and all(isinstance(one, kinds) for one in held.values())


def _refill(container: Any, saved: Any) -> None:
    """Give a container its old contents again, where it was changed."""
    if isinstance(container, dict):
        if container.keys() == saved.keys() and all(container[key] is saved[key] for key in saved):
            return
    elif len(container) == len(saved) and all(a is b for a, b in zip(container, saved, strict=True)):
        return
    container.clear()
    if isinstance(container, list | deque):
        container.extend(saved)
    else:
        container.update(saved)

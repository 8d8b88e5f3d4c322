"""One forward and backward of a canary, and the checksum of what it computed.

Four shapes of a job:

* parameters whole on each rank (plain, DDP, ZeRO-1): the bare module on aliases of its parameters. Each
  gradient is hashed as it is accumulated and let go.
* joined by tp, cp or ep: the same, and everything that a rank sends into a collective is hashed before it is
  sent, in the order in which it is sent. What comes back mixes the work of others, so that from then on all
  of the group may differ: a verdict names the group.
* a stage of a pipeline: the same as the first, with what it is handed drawn or remembered, what it hands on
  weighed as a loss, and the gradient of what it was handed hashed as well: no other stage takes part.
* sharded (FSDP): the module as it is, since only its own hooks gather the parameters. The gradients are
  hashed where they are handed to the reduce-scatter; the ``.grad`` of the shards is put aside and put back.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from .canary_state import aliased
from .hashing import checksum
from .passes import tensors_in
from .sharding import local, parts_of

FP16_SCALE = 4096.0
"""Factor of the loss under fp16: small gradients would else round to zero, and what is zero hides faults."""
_COLLECTIVES = ("c10d", "_c10d_functional")
_SENDING = ("all", "reduce", "gather", "send")
"""How the names of operators begin that send what a rank computed. The others read what is only being
received (a wait, a wrapper around it), where there is whatever was there before, or move no data."""
_SENT = ("input", "tensor")
"""How the operators begin the names of what they read; outputs come under names of their own."""

_WARN = 1
"""Of torch's modes of determinism the one in which a kernel that has no other form runs as it is."""

LossOf = Callable[[nn.Module, "Batch"], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Batch:
    """The arguments of one call of the model."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Precision:
    """The autocast of training, as it was at its first forward."""

    device_type: str
    dtype: torch.dtype | None
    """None without autocast."""

    @classmethod
    def current(cls, device_type: str) -> Precision:
        """What is in force now."""
        is_on = torch.is_autocast_enabled(device_type)
        return cls(device_type, torch.get_autocast_dtype(device_type) if is_on else None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one pass computed."""

    checksum: torch.Tensor
    loss: torch.Tensor | None
    """None where the model gives no loss by itself."""
    collectives: int
    """Collectives that were called on the way."""


@dataclass(slots=True)
class CanaryPass:
    """How the canary of one model is run."""

    module: nn.Module
    precision: Precision
    loss_of: LossOf | None = None
    is_sharded: bool = False
    is_deterministic: bool = True
    """Ask for deterministic kernels: where a job has none itself, a repetition would tell nothing."""

    def run(self, batch: Batch, *, is_watching_sends: bool) -> Outcome:
        """Compute once. Parameters and their ``.grad`` are as before; the rest is the caller's to restore."""
        sends = _Sends(self.is_sharded)
        with ExitStack() as stack:
            stack.enter_context(_kernels(self.is_deterministic))
            stack.enter_context(torch.enable_grad())
            if is_watching_sends:
                stack.enter_context(sends)
            if self.is_sharded:
                stack.enter_context(_grads_put_aside(self.module))
                loss, is_real = self._backward(batch)
                hashes: list[torch.Tensor] = []
            else:
                named = stack.enter_context(aliased(self.module))
                taken = _take_gradients(named)
                loss, is_real = self._backward(batch)
                hashes = [one for name in named for one in taken.get(name, ())]
        given_back = [
            checksum([one.grad]) for one in tensors_in((batch.args, batch.kwargs)) if one.grad is not None
        ]
        loss = local(loss)
        hashes = [checksum([loss]), *hashes, *given_back, *sends.collected(loss.device)]
        whole = checksum([torch.stack([one.to(loss.device) for one in hashes])])
        return Outcome(whole, loss if is_real else None, sends.count)

    def _backward(self, batch: Batch) -> tuple[torch.Tensor, bool]:
        cast = self.precision.dtype
        with torch.autocast(
            self.precision.device_type, dtype=cast, enabled=cast is not None, cache_enabled=False
        ):
            if self.loss_of is not None:
                loss, is_real = self.loss_of(self.module, batch), True
            else:
                loss, is_real = _scalar_of(self.module(*batch.args, **batch.kwargs))
        scale = FP16_SCALE if cast is torch.float16 else 1.0
        (loss * scale).backward()  # type: ignore[no-untyped-call]  # untyped in torch
        return loss.detach(), is_real


def _take_gradients(named: Mapping[str, nn.Parameter]) -> dict[str, list[torch.Tensor]]:
    """Hash each gradient of the aliases as soon as it is there, and let it go."""
    taken: dict[str, list[torch.Tensor]] = {}

    def take(name: str, parameter: torch.Tensor) -> None:
        held = [parameter.grad, getattr(parameter, "main_grad", None)]
        parts = [part for one in held if one is not None for part in parts_of(local(one))]
        taken.setdefault(name, []).append(checksum(parts))
        parameter.grad = None

    for name, parameter in named.items():
        if parameter.requires_grad:
            hook = partial(take, name)
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]  # untyped in torch
    return taken


def _scalar_of(output: Any) -> tuple[torch.Tensor, bool]:
    """The loss that a model gives itself, or else a fixed weighing of all that it gives.

    Raises:
        TypeError: nothing in the output has a gradient.
    """
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is None and isinstance(output, torch.Tensor) and output.dim() == 0:
        loss = output
    if isinstance(loss, torch.Tensor) and loss.dim() == 0 and loss.requires_grad:
        return loss, True
    parts = [one for one in tensors_in(output) if one.requires_grad]
    if not parts:
        raise TypeError("the output of a model with a canary must hold a tensor with a gradient, has none")
    weighed = [
        # Weights that differ: a plain sum would hide what a normalization at the end makes sum to nothing.
        (one.float() * torch.linspace(-1.0, 1.5, one.numel(), device=one.device).view(one.shape)).mean()
        for one in parts
    ]
    return torch.stack(weighed).sum(), False


@contextmanager
def _kernels(is_deterministic: bool) -> Iterator[None]:
    """Deterministic kernels where they exist, and none chosen by a race of the clock."""
    if not is_deterministic:
        yield
        return
    before = torch.get_deterministic_debug_mode()
    memory: Any = torch.utils.deterministic  # a module that stands in for itself, with a property
    benchmark, filling = torch.backends.cudnn.benchmark, memory.fill_uninitialized_memory
    try:
        # Its other name, `use_deterministic_algorithms`, would load the compiler (seconds, in the midst of
        # training) and take over what the trainer told that.
        torch.set_deterministic_debug_mode(before or _WARN)
        torch.backends.cudnn.benchmark = False
        memory.fill_uninitialized_memory = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_deterministic_debug_mode(before)
        torch.backends.cudnn.benchmark = benchmark
        memory.fill_uninitialized_memory = filling


@contextmanager
def _grads_put_aside(module: nn.Module) -> Iterator[None]:
    """Under full sharding gradients end in the shards' ``.grad``: give those back afterwards, with their
    hooks."""
    # FullyShardedDataParallel that shows the original parameters keeps the flat ones to itself
    handles = (getattr(part, "_handle", None) for part in module.modules())
    flat = {id(own): own for one in handles if (own := getattr(one, "flat_param", None)) is not None}
    parameters: list[Any] = list({**flat, **{id(one): one for one in module.parameters()}}.values())
    held = [(one, one.grad, one._post_accumulate_grad_hooks) for one in parameters]
    for parameter, _, _ in held:
        parameter.grad = None
        parameter._post_accumulate_grad_hooks = None
    try:
        yield
    finally:
        for parameter, grad, hooks in held:
            parameter.grad = grad
            parameter._post_accumulate_grad_hooks = hooks


class _Sends(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Hashes what is sent into each collective, before it is sent."""

    def __init__(self, is_sharded: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.is_sharded = is_sharded
        self.count = 0
        self._hashes: list[tuple[torch.Tensor, torch.cuda.Event | None]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in _COLLECTIVES:
            self._watch(func, args)
        return func(*args, **(kwargs or {}))

    def collected(self, device: torch.device) -> list[torch.Tensor]:
        """The hashes, in the order of the collectives, for use on the current stream."""
        for one, event in self._hashes:
            if event is not None:
                torch.cuda.current_stream(device).wait_event(event)
                one.record_stream(torch.cuda.current_stream(device))
        return [one for one, _ in self._hashes]

    def _watch(self, func: Any, args: Any) -> None:
        name = func.__name__
        is_reduce_scatter = "reduce_scatter" in name
        if not name.lstrip("_").startswith(_SENDING):
            return
        self.count += 1
        if self.is_sharded and func.namespace == "c10d" and not is_reduce_scatter:
            return  # the gathering of parameters, which are hashed as such
        arguments = zip(func._schema.arguments, args, strict=False)
        read = next((value for one, value in arguments if one.name.startswith(_SENT)), None)
        sent = [one for one in tensors_in(read) if one.numel()]
        if not sent:
            return
        one = checksum(sent)
        event = None
        if one.is_cuda:  # sharded training reduces on a stream of its own
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # untyped in torch
            event.record()
        self._hashes.append((one, event))

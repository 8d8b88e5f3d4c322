"""A watch on a model in training: signals with their hooks, and what they report at every step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from .config import WatchConfig
from .defaults import default_signals
from .gradients import Gradients
from .readback import Readback, Reported
from .several_optimizers import Optimizers, as_one
from .signal import Outlet, Signal


class Watch:
    """Attaches signals to a model and collects what they say at the boundary of each step.

    Nothing here raises into training: what goes wrong in a signal is told to the probe, the signal is
    detached, and ``coverage`` says so.
    """

    def __init__(
        self,
        probe: Outlet,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
        *,
        scaler: Any = None,
        mesh: Any = None,
        example_batch: Any = None,
        config: WatchConfig | None = None,
        iteration: int = 0,
        signals: Iterable[Signal] | None = None,
    ) -> None:
        self.probe = probe
        self.model = model
        """The model as it was given, wrapped or not."""
        self.module = bare(model)
        """The user's own module, without data parallel or compiled wrappers."""
        self.optimizer: torch.optim.Optimizer | Optimizers | None = as_one(optimizer)
        self.scaler = scaler
        self.mesh = mesh
        self.example_batch = example_batch
        self.config = config or WatchConfig()
        self.rank = probe.launch.rank
        self.world_size = probe.launch.world_size or _world_size()
        self.iteration = iteration
        """The iteration that is being computed, for hooks: one more than the last boundary."""
        self.loss_scale: torch.Tensor | float | None = None
        """The scale of the gradients of this iteration, once the first of them has arrived."""
        self.muted = False
        """While True no hook looks: passes that are no training (a canary) go by unseen."""
        self.coverage: dict[str, str] = {}
        """What is not measured, and why."""
        self._signals: list[Signal] = []
        self._waiting: list[Signal] | None = [] if _is_lazy(self.module) else None
        """Signals that wait for the first step, before which parameters of lazy modules have no size."""
        self._readback = Readback(probe.log)
        for signal in default_signals(self.config) if signals is None else signals:
            self.add(signal)

    def add(self, signal: Signal) -> None:
        """Attach one more signal."""
        if self._waiting is not None:
            self._waiting.append(signal)
            return
        self._signals.append(signal)
        self._attempt(signal, functools.partial(signal.attach, self))

    def leave_out(self, what: str, why: str) -> None:
        """Say in the coverage that something is not measured."""
        self.coverage[what] = why

    def at_step(
        self, iteration: int, loss: Reported | None = None, metrics: Mapping[str, Reported] | None = None
    ) -> None:
        """The boundary after the update of ``iteration``: report it, and log what earlier ones reported.

        ``metrics`` are the trainer's own; a scalar on a device is read without waiting for it.
        """
        out = self._readback
        out.begin(iteration)
        given = dict(metrics or {}) if loss is None else {"loss": loss, **(metrics or {})}
        for name, value in given.items():
            self._outside(f"step({name}=…)", functools.partial(out.give, name, value))
        for signal in tuple(self._signals):
            self._attempt(signal, functools.partial(signal.at_step, iteration, out))
        self._outside("read-back", out.flush)
        self._outside("read-back", out.drain)
        self.iteration = iteration + 1
        waiting, self._waiting = self._waiting, None
        for signal in waiting or ():
            self.add(signal)

    def put_param_checksums(self, out: Readback) -> None:
        """Report checksums of the parameters as they are now."""
        from .state import put_param_checksums

        put_param_checksums(self, out)

    @contextmanager
    def mute(self) -> Iterator[None]:
        """A stretch in which no hook looks."""
        before, self.muted = self.muted, True
        try:
            yield
        finally:
            self.muted = before

    def guarded(self, signal: Signal, hook: Callable[..., object]) -> Guarded:
        """``hook`` as training may call it: never raises, does nothing while muted, and gives None."""
        return Guarded(self, signal, hook)

    def before_reduction(self, tensors: Sequence[torch.Tensor]) -> None:
        """Look at local gradients, where the trainer reduces them itself: call this right before."""
        self._by_hand("before", tensors)

    def after_reduction(self, tensors: Sequence[torch.Tensor]) -> None:
        """Look at what the trainer's own reduction made of the same tensors, in the same order."""
        self._by_hand("after", tensors)

    def owns(self, signal: Signal) -> bool:
        """Whether the signal is attached, and did not fail."""
        return any(one is signal for one in self._signals)

    def fail(self, signal: Signal, error: Exception) -> None:
        """Go on without a signal that raised."""
        self._signals = [one for one in self._signals if one is not signal]
        self.leave_out(_name(signal), f"{type(error).__name__}: {error}")
        self.probe.note_error(_name(signal), error)
        self._outside(_name(signal), signal.detach)

    def detach(self) -> None:
        """Remove every hook and let go of every tensor."""
        for signal in tuple(self._signals):
            self._outside(_name(signal), signal.detach)
        self._signals.clear()
        self._waiting = None
        self.model = self.module = nn.Identity()
        self.optimizer = self.scaler = self.mesh = self.example_batch = None

    def close(self, timeout_s: float = 1.0) -> None:
        """Detach, and log what is still on its way, for so many seconds at most."""
        self.detach()
        self._outside("read-back", functools.partial(self._wait_for_last, timeout_s))

    def _wait_for_last(self, timeout_s: float) -> None:
        lost = self._readback.close(timeout_s)
        if lost:
            raise TimeoutError(f"the device did not hand over {lost} steps within {timeout_s:g} s")

    def _attempt(self, signal: Signal, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            self.fail(signal, error)

    def _by_hand(self, side: str, tensors: Sequence[torch.Tensor]) -> None:
        for signal in tuple(self._signals):
            if isinstance(signal, Gradients):
                look = functools.partial(signal.by_hand, getattr(signal, side), list(tensors))
                self._attempt(signal, look)

    def _outside(self, where: str, action: Callable[[], object]) -> None:
        """What belongs to no signal, or undoes one: its errors are told and go no further."""
        try:
            action()
        except Exception as error:
            self.probe.note_error(where, error)


class Guarded:
    """A hook that cannot hurt training.

    Copies of a hooked module (an averaged model, a saved one) get a hook that does nothing: a watch and
    what it reports to belong to one model in one process.
    """

    def __init__(self, watch: Watch, signal: Signal, hook: Callable[..., object]) -> None:
        self._watch, self._signal, self._hook = watch, signal, hook

    def __call__(self, *args: object, **kwargs: object) -> None:
        if torch.compiler.is_compiling() or self._watch.muted or not self._watch.owns(self._signal):
            return
        try:
            self._hook(*args, **kwargs)
        except Exception as error:  # the outer edge of a watch: training goes on
            self._watch.fail(self._signal, error)

    def __deepcopy__(self, memo: object) -> Callable[..., None]:
        return nothing

    def __reduce__(self) -> tuple[Any, ...]:
        # of the standard library: a saved model is loaded where nobody knows of us
        return getattr, (nullcontext(), "__exit__")


def nothing(*_: object, **__: object) -> None:
    """The hook of a copy."""


def bare(model: nn.Module) -> nn.Module:
    """The module inside wrappers of data parallelism and compilation.

    >>> layer = nn.Linear(2, 2)
    >>> bare(nn.DataParallel(layer)) is layer
    True
    """
    while True:
        inner = getattr(model, "_orig_mod", None)
        if not isinstance(inner, nn.Module) and isinstance(model, _WRAPPERS):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def _is_lazy(module: nn.Module) -> bool:
    """Whether parts of a module take their size from the first batch."""
    return any(is_lazy(one) for one in (*module.parameters(), *module.buffers()))


def _world_size() -> int:
    """What the process group says, where no launcher does."""
    groups = torch.distributed
    return groups.get_world_size() if groups.is_available() and groups.is_initialized() else 1


def _name(signal: Signal) -> str:
    return str(getattr(signal, "name", type(signal).__name__))


_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)

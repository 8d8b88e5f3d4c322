"""The canary: a known computation at the step boundary, with the parameters of the moment.

A rank that computes wrong is seen where everything else hides it: after the reduction all replicas take the
same wrong step, and their parameters stay equal. All ranks compute the same batch, so the checksums of loss
and gradients must be the same (``canary_checksum``), and the same once more when it is repeated
(``repeat_checksum/canary``). A canary between the updates of iterations t and t + 1 is reported as of t + 1:
it ran on the state that t left, before t + 1 began.

Training is the same to the bit with and without it: `canary_state.py` and `canary_pass.py` say how.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch import nn

from .canary_batch import SharedBatch, seeded, with_gradients
from .canary_cadence import SECOND, Cadence, is_fixed_batch
from .canary_pass import Batch, CanaryPass, LossOf, Outcome, Precision
from .canary_state import FirstBuffers, seed_all, untouched
from .passes import is_training_pass, tensors_in
from .sharding import axes_of, stage_of

if TYPE_CHECKING:
    from .readback import Readback
    from .watch import Watch

_SEED = 0x5EED
_CLOCKS = 4
"""Canaries whose time on the device may still be unknown; more are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryConfig:
    """How often a canary runs, and how."""

    budget_share: float = 0.001
    """Share of the time that canaries may take, from 1e-6 to 1. A thousandth costs less than the noise of a
    step and still looks at a rank every 2000 to 4000 iterations of a model that fills its device."""
    every_iterations: int | None = None
    """Every how many iterations one runs, instead of what the budget allows; from 1."""
    is_repeated: bool = True
    """Run each twice: a rank that disagrees with itself needs no peers to be accused."""
    is_deterministic: bool = True
    """Ask for deterministic kernels while it runs. Without them most models disagree with themselves."""

    def __post_init__(self) -> None:
        if not 1e-6 <= self.budget_share <= 1:
            raise ValueError(f"canary.budget_share must be from 1e-6 to 1, got {self.budget_share}")
        if self.every_iterations is not None and self.every_iterations < 1:
            raise ValueError(f"canary.every_iterations must be at least 1, got {self.every_iterations}")


@dataclass(slots=True)
class _Clock:
    """What one canary cost: on the host, and on the device once that is known."""

    host_s: float
    events: tuple[torch.cuda.Event, torch.cuda.Event] | None

    def seconds(self) -> float | None:
        """None while the device has not come so far."""
        if self.events is None:
            return self.host_s
        start, stop = self.events
        if not bool(stop.query()):  # type: ignore[no-untyped-call]  # untyped in torch
            return None
        return max(self.host_s, float(start.elapsed_time(stop)) / 1000)


class Canary:
    """The signal that runs canaries."""

    name = "canary"

    def __init__(self, config: CanaryConfig | None = None, loss_of: LossOf | None = None) -> None:
        self.config = config or CanaryConfig()
        self.why_off = ""
        """Why there is none, where there cannot be one."""
        self._loss_of = loss_of
        self._cadence = Cadence(self.config.budget_share, self.config.every_iterations)
        self._pending: tuple[int, dict[str, torch.Tensor]] | None = None
        self._clocks: list[_Clock] = []
        self._boundary: float | None = None
        self._handle: Any = None
        self._has_collectives = False
        self._modes: list[tuple[nn.Module, bool]] = []

    def attach(self, watch: Watch) -> None:
        """Prepare for the model of ``watch``; the batch is its example, or the first one that is trained
        on."""
        self._watch, self._module = watch, watch.module
        self._refuse(_obstacle(self._module, axes_of(watch.mesh)))
        if self.why_off:
            return
        self._has_collectives = is_joined(self._module, axes_of(watch.mesh))
        self._device = next((one.device for one in self._module.parameters()), torch.device("cpu"))
        self._first_buffers = FirstBuffers(self._module)
        self._stage = stage_of(watch.mesh, watch.rank)
        self._shared = SharedBatch(_store(), self._device, self._stage)
        self._pass = CanaryPass(
            self._module,
            Precision(self._device.type, None),
            self._loss_of,
            is_sharded(self._module),
            self.config.is_deterministic,
        )
        if watch.example_batch is not None:
            self._shared.offer(*_arguments(watch.example_batch))
        # On the outermost module: a hook inside of a compiled one would have it compiled once more.
        see = watch.guarded(self, self._see)
        self._handle = watch.model.register_forward_pre_hook(see, with_kwargs=True)

    def at_step(self, iteration: int, out: Readback) -> None:
        """Report the canary of the boundary before, and run one if the next iteration is due."""
        if self.why_off:
            return
        self._report(iteration, out)
        self._read_clocks()
        now = time.perf_counter()
        if self._boundary is not None:
            self._cadence.step_took(now - self._boundary)
        self._boundary = now
        if self._cadence.is_due(iteration + 1):
            self._run(iteration + 1, out)
            self._boundary = None  # the next step has the canary's time in it

    @property
    def every(self) -> int:
        """Iterations between canaries; 0 until their cost is known."""
        return self._cadence.fixed or self._cadence.every

    def detach(self) -> None:
        """Take the hook away."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _refuse(self, why: str) -> None:
        if why:
            self.why_off = why
            self._watch.leave_out(self.name, why)

    def _see(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Look at the first training call: its precision and modes, its batch where no example was given."""
        # a pipeline first asks for shapes, with tensors that hold nothing
        if is_training_pass(module) and not any(one.is_meta for one in tensors_in((args, kwargs))):
            self._modes = [(part, part.training) for part in self._module.modules()]
            self._pass.precision = Precision.current(self._device.type)
            self._shared.offer(args, kwargs)
            self.detach()

    def _report(self, iteration: int, out: Readback) -> None:
        if self._pending is None:
            return
        due, values = self._pending
        self._pending = None
        if due == iteration:  # a trainer that went back reports nothing of what it left
            for metric, value in values.items():
                out.put(metric, value)

    def _run(self, iteration: int, out: Readback) -> None:
        batch = self._shared.wanted()
        if batch is None:
            self._refuse(self._shared.why_none)
            return
        # The parameters it starts from: where those differ, a canary that differs is a consequence.
        self._watch.put_param_checksums(out)
        is_fixed = is_fixed_batch(iteration)
        if not is_fixed:
            batch = seeded(batch, _SEED + iteration)
        start = time.perf_counter()
        events = _mark(self._device)
        with self._watch.mute():
            first, again = self._compute(batch, iteration)
        stop = _mark(self._device)
        scope = "/stage" if self._stage else ""  # no other stage took part
        values = {f"canary_checksum{scope}": first.checksum}
        if first.loss is not None and is_fixed and not scope:
            values["canary_loss"] = first.loss
        if again is not None:
            values[f"repeat_checksum/canary{scope}"] = again.checksum
        self._pending = (iteration, values)
        both = (events, stop) if events is not None and stop is not None else None
        self._clocks = [*self._clocks[1 - _CLOCKS :], _Clock(time.perf_counter() - start, both)]
        self._agree(iteration, first.collectives)

    def _compute(self, batch: Batch, iteration: int) -> tuple[Outcome, Outcome | None]:
        """Both passes, from the same random state."""
        # The first two look for collectives that nobody told of: those need one cadence on all ranks.
        is_watching = self._has_collectives or (_store() is not None and iteration <= SECOND)
        outcomes = []
        with untouched(self._module) as state:
            for _ in range(2 if self.config.is_repeated else 1):
                seed_all(_SEED + iteration)
                self._first_buffers.put_in()
                for part, is_training in self._modes:
                    part.training = is_training  # an evaluation on one rank may have ended just now
                own = with_gradients(batch) if self._stage else batch
                outcomes.append(self._pass.run(own, is_watching_sends=is_watching))
                state.restore()
        return outcomes[0], outcomes[1] if len(outcomes) > 1 else None

    def _agree(self, iteration: int, collectives: int) -> None:
        """Take the cadence of the slowest rank, where the canary itself is made of collectives.

        All ranks have just gone through the same collectives, so that one more cannot wait for anybody.
        """
        if self._stage and collectives and not self._has_collectives:
            # of the other stages nobody knows whether they would come to agree on anything
            self._refuse("a pipeline stage with collectives of its own, along no axis of the mesh")
            return
        self._has_collectives = self._has_collectives or collectives > 0
        if not self._has_collectives or self.config.every_iterations is not None or iteration != SECOND:
            return
        self._read_clocks(is_waiting=True)
        every = torch.tensor([self._cadence.every], dtype=torch.int64, device=self._device)
        torch.distributed.all_reduce(every, torch.distributed.ReduceOp.MAX)
        self._cadence.fixed = max(int(every.item()), 1)

    def _read_clocks(self, *, is_waiting: bool = False) -> None:
        while self._clocks:
            if is_waiting and self._clocks[0].events is not None:
                self._clocks[0].events[1].synchronize()
            seconds = self._clocks[0].seconds()
            if seconds is None:
                return
            self._cadence.canary_took(seconds)
            del self._clocks[0]


def is_sharded(module: nn.Module) -> bool:
    """Whether FSDP, of either kind, holds the parameters of ``module`` in shards."""
    named = ("FSDPModule", "FullyShardedDataParallel")
    kinds = tuple(kind for name in named if (kind := _imported("torch.distributed.fsdp", name)) is not None)
    return any(isinstance(part, kinds) for part in module.modules())


def is_joined(module: nn.Module, axes: Mapping[str, int]) -> bool:
    """Whether a forward or a backward of ``module`` is known to exchange data with other ranks."""
    kind = _imported("torch.distributed.tensor", "DTensor")
    return (
        is_sharded(module)
        or (kind is not None and any(isinstance(one, kind) for one in module.parameters()))
        or any(isinstance(part, nn.SyncBatchNorm) for part in module.modules())
        or any(axes.get(axis, 1) > 1 for axis in ("tp", "cp", "ep"))
    )


def _imported(module: str, name: str) -> Any:
    """A class of a module that takes seconds to import: where nobody has, no model is of it."""
    return getattr(sys.modules.get(module), name, None)


def _obstacle(module: nn.Module, axes: Mapping[str, int]) -> str:
    """Why no canary can run on a model; empty if one can."""
    kind = _imported("torch.distributed.fsdp", "FullyShardedDataParallel")
    for part in module.modules() if kind is not None else ():
        if isinstance(part, kind) and part.sharding_strategy.name == "NO_SHARD":
            return "FullyShardedDataParallel with NO_SHARD reduces nothing that is its own: use DDP"
    if any(hasattr(one, "ds_id") for one in module.parameters()):
        return "the canary cannot gather the parameters of DeepSpeed ZeRO-3"
    if axes.get("pp", 1) > 1 and any(hasattr(part, "set_input_tensor") for part in module.modules()):
        return "a pipeline stage that is given its input beside its arguments (set_input_tensor)"
    if not any(one.requires_grad for one in module.parameters()):
        return "no parameter is trained"
    return ""


def _arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """How an example batch is passed to a model: a mapping by name, a tuple in order, else as it is."""
    if hasattr(example, "keys"):
        return (), {name: example[name] for name in list(example.keys())}
    return (tuple(example), {}) if isinstance(example, tuple) else ((example,), {})


def _store() -> Any:
    """The store at which the ranks met; None where there is one rank."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    if torch.distributed.get_world_size() < 2:
        return None
    return torch.distributed.distributed_c10d._get_default_store()


def _mark(device: torch.device) -> torch.cuda.Event | None:
    if device.type != "cuda":
        return None
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # untyped in torch
    event.record()
    return event

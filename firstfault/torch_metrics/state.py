"""Checksums and non-finite counts of what an update leaves behind: parameters and optimizer state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from .config import is_due
from .counting import nonfinite
from .hashing import checksum, prepare
from .sharding import local, scopes_of

if TYPE_CHECKING:
    from .readback import Readback
    from .watch import Watch


class State:
    """Checksums of the parameters and of the optimizer's state, each at its own cadence."""

    name = "state"

    def __init__(self) -> None:
        self._watch: Watch | None = None

    def attach(self, watch: Watch) -> None:
        self._watch = watch
        for device in {local(one).device for one in watch.module.parameters()}:
            prepare(device)

    def at_step(self, iteration: int, out: Readback) -> None:
        assert self._watch is not None, "attached before the first step"
        config = self._watch.config
        if is_due(config.parameters, iteration):
            put_param_checksums(self._watch, out)
            values = [local(one) for one in self._watch.module.parameters()]
            out.put("nonfinite_param", nonfinite(values))
        if is_due(config.optimizer_state, iteration) and self._watch.optimizer is not None:
            for scope, tensors in _by_scope(self._watch, _moments(self._watch)).items():
                out.put("optim_checksum" + scope, checksum(tensors))

    def detach(self) -> None:
        self._watch = None


def put_param_checksums(watch: Watch, out: Readback) -> None:
    """Report checksums of the parameters as they are now, one for each way of being replicated."""
    for scope, tensors in _by_scope(watch, ((one, one) for one in watch.module.parameters())).items():
        out.put("param_checksum" + scope, checksum(tensors))


def _by_scope(
    watch: Watch, pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]
) -> dict[str, list[torch.Tensor]]:
    """Local values by scope: only what is equal on the same ranks may go into one checksum."""
    scopes = scopes_of(watch.module)
    found: dict[str, list[torch.Tensor]] = {}
    for parameter, value in pairs:
        found.setdefault(scopes.get(id(parameter), ""), []).append(local(value))
    return found


def _moments(watch: Watch) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(parameter, tensor of its state) in an order that all ranks share: that of the parameter groups."""
    assert watch.optimizer is not None, "asked for with an optimizer only"
    state: Mapping[Any, Any] = watch.optimizer.state
    for group in watch.optimizer.param_groups:
        for parameter in group["params"]:
            held = state.get(parameter)
            if not isinstance(held, dict):
                continue
            for key in sorted(held, key=str):
                # scalars count steps, often on the host of a device: moments show what they do
                if isinstance(held[key], torch.Tensor) and held[key].dim() > 0:
                    yield parameter, held[key]

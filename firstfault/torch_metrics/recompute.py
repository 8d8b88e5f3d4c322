"""Activations that are computed twice anyway: under recomputation each rank can be compared with itself.

Where a trainer checkpoints activations (`torch.utils.checkpoint`, either kind), a module runs in the forward
and again in the backward. Its outputs must be equal to the bit. The modules that do run twice are found in
the first iterations; of a few of them, evenly spread, the outputs are hashed every so many iterations:
``act_checksum/<module>`` in the forward, ``repeat_checksum/act/<module>`` in the backward. Hashes of the
microbatches are added up, so that the order in which a pipeline goes back does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .hashing import checksum
from .passes import is_backward_running

if TYPE_CHECKING:
    from .readback import Readback
    from .watch import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeConfig:
    """How much of the recomputation is looked at."""

    every_iterations: int = 64
    """Every how many iterations, from 1. Hashing reads an output twice where its computation read it
    often."""
    modules: int = 8
    """Modules that are looked at, from 1, evenly spread over those that are recomputed."""
    looking_iterations: int = 2
    """Iterations in which it is found out which modules are recomputed, from 1; the first may still
    compile."""

    def __post_init__(self) -> None:
        for name in ("every_iterations", "modules", "looking_iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"recompute.{name} must be at least 1, got {getattr(self, name)}")


@dataclass(slots=True)
class _Site:
    """One module, and what it gave in this iteration."""

    name: str
    first: list[torch.Tensor] = field(default_factory=list)
    again: list[torch.Tensor] = field(default_factory=list)


class RecomputeChecksums:
    """The signal that compares recomputed activations with the first ones."""

    name = "recompute"

    def __init__(self, config: RecomputeConfig | None = None) -> None:
        self.config = config or RecomputeConfig()
        self.modules: list[str] = []
        """Names of the modules that are looked at, once they are known."""
        self._handles: list[Any] = []
        self._recomputed: dict[str, nn.Module] = {}
        self._sites: list[_Site] = []
        self._steps = 0
        self._is_due = False

    def attach(self, watch: Watch) -> None:
        """Find out which modules run again in the backward; not inside of what is compiled."""
        self._watch = watch
        if any(getattr(part, "_orig_mod", None) is not None for part in watch.model.modules()):
            return
        for name, part in watch.module.named_modules():
            if next(part.children(), None) is None and next(part.parameters(), None) is not None:
                self._handles.append(part.register_forward_hook(watch.guarded(self, self._looker(name))))

    def at_step(self, iteration: int, out: Readback) -> None:
        """Report the iteration that ends, and say whether the next is looked at."""
        self._steps += 1
        if self._steps == self.config.looking_iterations:
            self._choose()
        for site in self._sites:
            if site.first and len(site.first) == len(site.again):
                out.put(f"act_checksum/{site.name}", torch.stack(site.first).sum())
                out.put(f"repeat_checksum/act/{site.name}", torch.stack(site.again).sum())
            site.first, site.again = [], []
        self._is_due = (iteration + 1) % self.config.every_iterations == 0

    def detach(self) -> None:
        """Take all hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _looker(self, name: str) -> Any:
        def look(module: nn.Module, _args: Any, _output: Any) -> None:
            if is_backward_running():
                self._recomputed[name] = module

        return look

    def _choose(self) -> None:
        self.detach()
        names = list(self._recomputed)
        count = min(self.config.modules, len(names))
        chosen = sorted({at * len(names) // count for at in range(count)}) if count else []
        for name in (names[at] for at in chosen):
            site = _Site(name)
            self._sites.append(site)
            hash_it = self._watch.guarded(self, self._hasher(site))
            self._handles.append(self._recomputed[name].register_forward_hook(hash_it))
        self.modules = [site.name for site in self._sites]
        self._recomputed = {}

    def _hasher(self, site: _Site) -> Any:
        def look(_module: nn.Module, _args: Any, output: Any) -> None:
            if self._is_due and isinstance(output, torch.Tensor):
                (site.again if is_backward_running() else site.first).append(checksum([output]))

        return look

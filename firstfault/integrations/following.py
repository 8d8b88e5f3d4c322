"""What the integrations share: a probe that is opened when training begins, and the loss of an iteration."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..probe import Probe

if TYPE_CHECKING:
    import torch


class Follower:
    """Follows one training after the other with a probe of its own for each.

    ``options`` are those of `Probe`, ``watch`` those of `Probe.watch`.
    """

    def __init__(self, options: Mapping[str, Any], watch: Mapping[str, Any] | None = None) -> None:
        self._options, self._watch_options = dict(options), dict(watch or {})
        self.probe: Probe | None = None
        self.losses = Losses()

    def begin(self, model: Any, optimizer: Any, **found: Any) -> Probe:
        """Open a probe and watch; ``found`` is what the framework tells, and what the user gave wins.

        ``iteration`` among it is the number of the first iteration to come.
        """
        self.end()
        self.probe = Probe(**self._options)
        self.losses = Losses()
        known = {name: value for name, value in found.items() if value is not None}
        self.probe.watch(model, bare_optimizer(optimizer), **{**known, **self._watch_options})
        return self.probe

    def end(self) -> None:
        """The training is over."""
        if self.probe is not None:
            self.probe.close()
        self.probe = None

    def declare(self, **fields: Any) -> None:
        """Let the ``run_start`` of the next probe say ``fields``; what the user gave wins."""
        self._options = {**fields, **{name: it for name, it in self._options.items() if it is not None}}

    @property
    def is_muted(self) -> bool:
        """Whether the probe itself runs the model, for its canary: what hooks see then is not training's."""
        return bool(getattr(getattr(self.probe, "watching", None), "muted", False))

    @property
    def is_on(self) -> bool:
        """Whether a training is followed now."""
        return self.probe is not None and self.probe.is_on


def harmless(hook: Callable[..., None]) -> Callable[..., None]:
    """``hook`` of an object with a `follower`, so that nothing it raises reaches the training."""

    @functools.wraps(hook)
    def run(self: Any, /, *args: Any, **kwargs: Any) -> None:
        try:
            hook(self, *args, **kwargs)
        except Exception as error:  # the outer edge: frameworks differ between releases, and training goes on
            probe = self.follower.probe
            if probe is not None:
                probe.note_error(hook.__name__, error)

    return run


class Losses:
    """The losses of the microbatches of one iteration, kept where they are: nothing waits for the device."""

    def __init__(self) -> None:
        self._parts: list[torch.Tensor] = []

    def add(self, loss: Any) -> None:
        """Take the loss of a microbatch; what is no scalar tensor is passed over."""
        if getattr(loss, "numel", lambda: 0)() == 1:
            self._parts.append(loss.detach().reshape(()))

    def mean(self) -> torch.Tensor | None:
        """Their mean, and begin anew; None where there was none."""
        count = len(self._parts)
        total = self.sum()
        return None if total is None else total / count

    def sum(self) -> torch.Tensor | None:
        """Their sum, and begin anew; None where there was none."""
        parts, self._parts = self._parts, []
        if not parts:
            return None
        return functools.reduce(lambda one, other: one + other, parts)


def bare_optimizer(optimizer: Any) -> Any:
    """The optimizer of torch inside the wrappers that frameworks put around it; of several, of each."""
    if isinstance(optimizer, list | tuple):
        return [bare_optimizer(one) for one in optimizer]
    for _ in range(8):  # nobody wraps deeper, and cycles end
        inner = getattr(optimizer, "optimizer", None)
        if inner is None or not hasattr(inner, "param_groups"):
            break
        optimizer = inner
    return optimizer


def missing(what: str, package: str) -> ImportError:
    """The error where a framework is not installed."""
    return ImportError(f"firstfault.{what} needs {package}, which is not installed: pip install {package}")

"""Gradients as ``fully_shard`` reduces them: the input of each reduce-scatter, and the shard that comes out.

The class of the object that makes the reduce-scatters is replaced by one that looks at the buffers and
otherwise does the same, so that what is reduced, and how, stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .sketching import rows_of, sketch

if TYPE_CHECKING:
    from .gradients import Gradients
    from .watch import Watch


class ReduceScatters:
    """Looks at what every group of sharded parameters reduces."""

    has_whole_result = False

    def __init__(self) -> None:
        self._watched: list[tuple[Any, type]] = []
        self._watch: Watch | None = None
        self._gradients: Gradients | None = None
        self._groups = 1
        self._rows: dict[int, int] = {}
        """First row of signs of each group of parameters, by its number."""

    @staticmethod
    def fits(model: nn.Module) -> bool:
        """Whether parameters of the model are sharded by ``fully_shard``."""
        return any(True for _ in _param_groups(model))

    def attach(self, watch: Watch, gradients: Gradients) -> None:
        self._watch, self._gradients = watch, gradients
        groups = list(_param_groups(watch.model))
        row = 0
        for at, group in enumerate(groups):
            self._rows[at] = row
            row += _rows_of_group(group)
            self._wrap(group, at, at * watch.config.sketch_groups // len(groups))

    def refresh(self) -> None:
        """Nothing: shards are made once, before training."""

    def detach(self) -> None:
        for comm, kind in self._watched:
            comm.__class__ = kind
        self._watched = []
        self._watch = self._gradients = None

    def _wrap(self, group: Any, at: int, sketch_group: int) -> None:
        assert self._watch is not None and self._gradients is not None, "attached before"
        comm = group._reduce_scatter_comm
        before = self._watch.guarded(self._gradients, self._before)
        after = self._watch.guarded(self._gradients, self._after)
        kind = type(comm)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            source = kwargs.get("input_tensor", args[1] if len(args) > 1 else None)
            result = kwargs.get("output_tensor", args[0] if args else None)
            where = kwargs.get("group", args[2] if len(args) > 2 else None)
            before(at, sketch_group, source)
            work = kind.__call__(self, *args, **kwargs)
            if work is None:  # else the result is not there yet, and nobody may wait for it here
                after(at, sketch_group, result, where)
            return work

        # the same object of a subclass: whoever asks for its type gets the answer as before
        comm.__class__ = type(kind.__name__, (kind,), {"__call__": call})
        self._watched.append((comm, kind))

    def _before(self, at: int, group: int, source: torch.Tensor) -> None:
        assert self._gradients is not None and self._watch is not None, "hooks are removed first"
        seen = self._gradients
        self._watch.probe.at("reduce_in", self._watch.iteration)
        if self._watch.loss_scale is None:
            self._watch.loss_scale = seen.scale()
        if seen.wants(seen.before):
            seen.before.add([source], seen.scale())
        if seen.wants_sketch():
            seen.before.add_sketch(group, sketch(source, self._rows[at]))

    def _after(self, at: int, group: int, result: torch.Tensor, where: Any) -> None:
        assert self._gradients is not None, "hooks are removed first"
        seen = self._gradients
        if seen.wants(seen.after):
            seen.after.add([result], seen.scale())
        if seen.wants_sketch():
            offset = where.rank() * result.numel()
            seen.after.add_sketch(group, sketch(result, self._rows[at], offset))


def _param_groups(model: nn.Module) -> list[Any]:
    """The groups of parameters that are reduced together, in the order of their modules."""
    found = []
    for module in model.modules():
        ask = getattr(module, "_get_fsdp_state", None)
        if ask is None:
            continue
        state = ask()
        groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
        found += [one for one in groups if one is not None and hasattr(one, "_reduce_scatter_comm")]
    return found


def _rows_of_group(group: Any) -> int:
    """Rows of signs for the input of its reduce-scatter, and one for the padding of its shards."""
    return rows_of(sum(one._orig_size.numel() for one in group.fsdp_params)) + 1

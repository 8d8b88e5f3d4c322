"""What the user of a probe gives it, checked: an error names the thing, the rule and the value."""

from __future__ import annotations

import operator
import os
import re
from dataclasses import replace
from typing import Any

from .emitters.sink import bare
from .launch import Launch, launch_from
from .telemetry import MAX_ATTEMPT, MAX_ITERATION, MAX_RANK, MAX_RUN_BYTES
from .wire_values import is_run_name

_PLACE = re.compile(r"[\w.-]+:\d{2,5}(/\S*)?")
"""A host and a port without a word on how to speak to it: as the name of a file it would be a mistake."""


def checked_launch(**given: Any) -> Launch:
    """What the launcher says, less what is given.

    Raises:
        ValueError: a run, rank, world size or attempt that telemetry cannot have.
    """
    launch = replace(launch_from(os.environ), **{name: it for name, it in given.items() if it is not None})
    if not isinstance(launch.run, str) or not is_run_name(launch.run):
        raise ValueError(
            f"run must be text of 1 to {MAX_RUN_BYTES} bytes on one line, got {launch.run!r:.80}"
        )
    size = launch.world_size
    bounds = {"rank": (launch.rank, 0, MAX_RANK), "attempt": (launch.attempt, 0, MAX_ATTEMPT)}
    if size is not None:
        bounds |= {"world_size": (size, 1, MAX_RANK + 1)}
    for name, (value, low, high) in bounds.items():
        if not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{name} must be an integer from {low} to {high}, got {value!r:.80}")
    if size is not None and launch.rank >= size:
        raise ValueError(f"rank must be below world_size, got rank {launch.rank} of {size}")
    return launch


def checked_sink(sink: str) -> str:
    """An address, as far as it can be told from a mistake without asking anybody.

    Raises:
        ValueError: none is given, or it is a place on the network without a word on how to speak to it.
    """
    if not sink:
        raise ValueError("sink must be a file, http://… or kafka://…, or FIRSTFAULT_SINK must say it")
    if _PLACE.fullmatch(sink):
        raise ValueError(
            f"sink must begin with http:// or kafka:// for a place on the network, got {bare(sink)!r}"
        )
    return sink


def checked_iteration(iteration: Any) -> int:
    """An iteration as a plain integer.

    Raises:
        ValueError: it is negative, or too large for telemetry.
        TypeError: it is no integer.
    """
    plain = operator.index(iteration)
    if not 0 <= plain <= MAX_ITERATION:
        raise ValueError(f"iteration must be from 0 to {MAX_ITERATION}, got {plain}")
    return plain


def checked_model(model: Any) -> Any:
    """What is trained: a module, or several in a list.

    Raises:
        TypeError: it is none.
    """
    parts = model if isinstance(model, list | tuple) else [model]
    if not parts or not all(hasattr(one, "named_modules") for one in parts):
        raise TypeError(f"watch needs a torch.nn.Module, or a list of them, got {type(model).__name__}")
    return model

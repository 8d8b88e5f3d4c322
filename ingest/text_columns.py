"""What a person says of the keys of a text log (``--column loss=lm_loss``), applied to its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .blocks import RecordBatch
from .errors import UnreadableInput
from .log_reader import Understood
from .role_values import place_of
from .roles import OVERRIDABLE


def with_wanted(batch: RecordBatch, wanted: Mapping[str, str], understood: Understood) -> RecordBatch:
    """The batch with the metrics that ``wanted`` names; what had such a name gets another."""
    read_as = dict(understood.columns)
    renamed = {read_as.get(key, key): metric for metric, key in wanted.items() if metric not in OVERRIDABLE}
    moved = {metric: f"{metric}.2" for metric in wanted if metric not in renamed}
    names = {name: renamed.get(name, moved.get(name, name)) for name in batch.numbers}
    return replace(batch, numbers={names[name]: column for name, column in batch.numbers.items()})


def require_wanted(wanted: Mapping[str, str], understood: Understood) -> None:
    """Check that every key is in the log.

    Raises:
        UnreadableInput: one is not, or is to be what lines say by their form.
    """
    names = [name for name, _ in understood.columns]
    for metric, key in wanted.items():
        if metric in OVERRIDABLE:
            raise UnreadableInput(f"--column {metric}={key}: of a text log only metrics can be given")
        place_of(names, key, metric)

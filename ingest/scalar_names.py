"""What the names of scalars in trackers mean: which of them is the loss, which the learning rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from firstfault.wire_values import is_metric_name

from .table_header import METRIC_NAMES, canonical_metric


def metrics_of(names: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """The metric of each name that can be one; ``columns`` says it where the names shall not decide.

    >>> metrics_of(["train/loss", "val/loss", "lr-Adam"], {})
    {'train/loss': 'loss', 'val/loss': 'val/loss', 'lr-Adam': 'lr-Adam'}
    """
    given = {name: metric for metric, name in columns.items() if name in names}
    taken = set(given.values())
    chosen = dict(given)
    for metric, spellings in METRIC_NAMES.items():
        spelled = {_spelling(name): name for name in reversed(names) if name not in given}
        found = next((spelled[each] for each in spellings if each in spelled), None)
        if found is not None and metric not in taken:
            chosen[found] = metric
            taken.add(metric)
    result: dict[str, str] = {}
    for name in names:
        metric = chosen.get(name) or canonical_metric(name)
        if name not in chosen and metric in taken:
            metric = name
        if is_metric_name(metric):
            result[name] = metric
    return result


def _spelling(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")

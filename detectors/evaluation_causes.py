"""What may lie behind an evaluation that falls alone, and how to look: rules of `causes` and `advice`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .case import Case
from .incident import Advice, CauseKind, LastGood

Judged = tuple[float, list[str]]


def of_software(case: Case) -> Judged:
    """Training is well, so what is wrong is used by evaluation alone."""
    own = "averaged weights, normalisation statistics, its own code"
    return (
        0.4,
        [f"{case.origin.metric} fell and the training loss goes on: what evaluation alone uses ({own})"],
    )


def of_data(_: Case) -> Judged:
    """Another evaluation set, or training data that no longer resembles it."""
    return (
        0.35,
        ["evaluation on other data, or training on data that no longer resembles it, looks the same"],
    )


EVALUATION_RULES: Mapping[CauseKind, Callable[[Case], Judged]] = {
    CauseKind.SOFTWARE: of_software,
    CauseKind.DATA: of_data,
}
"""In the place of what `causes` asks of the curve of the loss."""


def evaluate_again(good: LastGood) -> list[Advice]:
    """An evaluation repeated elsewhere tells a corrupted state from a host that evaluates wrong."""
    where = "the newest checkpoint, and one from before the fall"
    if good.checkpoint is not None:
        where = f"the newest checkpoint, and {good.checkpoint} from before the fall"
    return [Advice(action="evaluate_again", target=f"{where}, on another host")]

"""What may lie behind an evaluation that gets worse alone, and how to look: for `causes` and `advice`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .case import Case
from .evidence import Certainty
from .incident import Advice, CauseKind, LastGood

Judged = tuple[float, list[str]]


def of_software(case: Case) -> Judged:
    """Training is well, so what is wrong is used by evaluation alone."""
    own = "averaged weights, normalisation statistics, its own code"
    return (
        0.4,
        [f"{case.origin.metric} got worse and the training loss did not: what evaluation alone uses ({own})"],
    )


def of_data(case: Case) -> Judged:
    """Another evaluation set, or training data that no longer resembles it, or too little of them."""
    other = "evaluation on other data, or training on data that no longer resembles it, looks the same"
    if case.origin.metric.endswith("loss") and case.draft.certainty is Certainty.SUSPECTED:
        # An accuracy seldom falls for it: a loss rises, by and by, when a model gets surer of its mistakes.
        return (
            0.45,
            ["a model that overfits, with too little data for so many passes, looks the same", other],
        )
    return (0.35, [other])


EVALUATION_RULES: Mapping[CauseKind, Callable[[Case], Judged]] = {
    CauseKind.SOFTWARE: of_software,
    CauseKind.DATA: of_data,
}
"""In the place of what `causes` asks of the curve of the loss."""


def evaluate_again(good: LastGood) -> list[Advice]:
    """An evaluation repeated elsewhere tells a corrupted state from a host that evaluates wrong."""
    where = "the newest checkpoint, and one from before"
    if good.checkpoint is not None:
        where = f"the newest checkpoint, and {good.checkpoint} from before"
    return [Advice(action="evaluate_again", target=f"{where}, on another host")]

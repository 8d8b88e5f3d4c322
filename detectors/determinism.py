"""What a job that is not deterministic cannot be accused of: ranks whose canaries differ.

Where most ranks disagree with themselves (`repeat.py`), two ranks that compute the same differ for the same
reason. A vote on their checksums or their losses then says nothing of any rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .evidence import Annotation, Certainty, Evidence
from .repeat import NOT_DETERMINISTIC, reference_of

_WHY = "most ranks disagree with themselves: that they differ from each other says nothing of one of them"


def unsure_computations(annotations: Iterable[Annotation]) -> frozenset[str]:
    """Metrics of computations that were repeated with other results on most ranks.

    >>> note = Annotation(kind=NOT_DETERMINISTIC, key="", attempt=0, iteration=5,
    ...                   detail={"metric": "repeat_checksum/canary"})
    >>> sorted(unsure_computations([note]))
    ['canary_checksum', 'canary_loss']
    """
    found = {reference_of(str(one.detail["metric"])) for one in annotations if one.kind == NOT_DETERMINISTIC}
    return frozenset(found | {one.replace("canary_checksum", "canary_loss", 1) for one in found})


def doubt_computations(evidence: Iterable[Evidence], annotations: Iterable[Annotation]) -> list[Evidence]:
    """``evidence`` with votes on such computations as support for other evidence only."""
    unsure = unsure_computations(annotations)
    return [
        replace(one, certainty=Certainty.SUSPECTED, supporting=True, detail={**one.detail, "note": _WHY})
        if one.detector == "checksum_vote" and one.metric in unsure
        else one
        for one in evidence
    ]

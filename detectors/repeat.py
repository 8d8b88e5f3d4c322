"""A rank that disagrees with itself: a computation done twice, with two results.

``repeat_checksum/<site>`` is the checksum of a computation that was done before on the same rank at
the same position, and reported as ``<site>_checksum``: ``repeat_checksum/canary`` repeats
``canary_checksum``, ``repeat_checksum/act/3`` repeats ``act_checksum/3``. Axes: T positions, R ranks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from firstfault.mesh import Layout
from firstfault.telemetry import UNNAMED_RANK, EventKind, Kind, contract_of
from ingest.blocks import IterationBlock

from .base import State
from .evidence import Annotation, Certainty, Check, CheckState, Direction, Evidence, Finding, Pattern, Sight
from .groups import model_parallel_group
from .repeat_fold import Departure, RepeatConfig, SiteFold
from .vote_suspects import MODEL_GROUP, WIDENED

NOT_DETERMINISTIC = "nondeterministic_job"
"""Kind of the annotation that says that most ranks disagree with themselves."""


class Repeat:
    """Names a rank whose repeated computation gives another checksum than the first time.

    It needs no peers. On one rank alone nothing but the rank explains it; when most ranks have
    disagreed with themselves the job is not deterministic: that is an annotation, what was said
    before only supports other evidence from then on, and the site is not used any more.
    """

    name: ClassVar[str] = "repeat"

    def __init__(self, config: RepeatConfig | None = None) -> None:
        self._config = config or RepeatConfig()
        self._sites: dict[str, SiteFold] = {}
        self._is_declared = False

    def update(self, block: IterationBlock) -> list[Finding]:
        """Take the next settled positions."""
        findings: list[Finding] = []
        self._is_declared |= any(
            event.kind is EventKind.RUN_START and event.fields.get("deterministic") is True
            for event in block.events
        )
        for metric, repeat in sorted(block.checksums.items()):
            if contract_of(metric).kind is not Kind.REPEAT:
                continue
            fold = self._sites.setdefault(metric, SiteFold(self._config))
            fold.is_declared |= self._is_declared
            reference = block.checksums.get(reference_of(metric))
            if reference is not None and len(block):
                fold.feed(block, repeat, reference)
                findings += self._news(block, metric, fold)
        return findings

    def finish(self) -> list[Finding]:
        """Nothing waits for what comes next."""
        return []

    def check(self) -> Check:
        """Ran where repetitions could be compared in a deterministic job."""
        ran = [metric for metric, fold in sorted(self._sites.items()) if _is_usable(fold)]
        if ran:
            return Check(name=self.name, state=CheckState.RAN, metrics=tuple(ran))
        why = "no repeated computation was reported"
        if any(fold.not_deterministic_at is not None for fold in self._sites.values()):
            why = "most ranks disagree with themselves: the job is not deterministic"
        elif self._sites:
            metric = min(self._sites)
            why = f"{metric} came without {reference_of(metric)} of the same rank and position"
        return Check(name=self.name, state=CheckState.NOT_RUN, why=why, metrics=tuple(sorted(self._sites)))

    def snapshot(self) -> State:
        """The whole state as plain data."""
        sites = {metric: fold.snapshot() for metric, fold in self._sites.items()}
        return {"sites": sites, "is_declared": self._is_declared}

    def restore(self, state: State) -> None:
        """Continue from ``state``."""
        sites = state["sites"]
        self._sites = {metric: SiteFold.restored(held, self._config) for metric, held in sites.items()}
        self._is_declared = state["is_declared"]

    def _news(self, block: IterationBlock, metric: str, fold: SiteFold) -> list[Finding]:
        findings: list[Finding] = []
        certainty, is_withdrawn = fold.certainty(), fold.not_deterministic_at is not None
        state = "withdrawn" if is_withdrawn else certainty.value
        for departure in fold.departures:
            if departure.told != state:
                departure.told = state
                one = _evidence(block, metric, departure)
                findings.append(replace(one, certainty=certainty, supporting=is_withdrawn))
        if fold.not_deterministic_at is not None and not fold.is_note_told:
            fold.is_note_told = True
            findings.append(
                Annotation(
                    kind=NOT_DETERMINISTIC,
                    key=metric,
                    attempt=block.attempt,
                    iteration=fold.not_deterministic_at,
                    detail={"metric": metric, "ranks_that_disagreed": fold.departed},
                )
            )
        return findings


def reference_of(metric: str) -> str:
    """The checksum that ``repeat_checksum/<site>`` repeats.

    >>> reference_of("repeat_checksum/canary"), reference_of("repeat_checksum/act/3")
    ('canary_checksum', 'act_checksum/3')
    """
    site, slash, scope = metric.partition("/")[2].partition("/")
    return f"{site}_checksum{slash}{scope}"


def _who_computes(metric: str, rank: int, layout: Layout | None) -> tuple[int, ...]:
    """Who takes part in the repeated computation: a canary runs through all that hold the model together."""
    if rank == UNNAMED_RANK:
        return ()
    is_canary = reference_of(metric).startswith("canary_")
    return model_parallel_group(layout, rank, metric) if is_canary and layout is not None else (rank,)


def _is_usable(fold: SiteFold) -> bool:
    return not fold.lacks_reference and fold.not_deterministic_at is None


def _evidence(block: IterationBlock, metric: str, departure: Departure) -> Evidence:
    ranks = _who_computes(metric, departure.rank, block.layout)
    sight = Sight(
        metric=metric,
        iteration=departure.iteration,
        microbatch=departure.microbatch,
        ranks_R=departure.seen_ranks,
        bad_R=departure.seen_bad,
        clean_R=~departure.seen_bad,
    )
    return Evidence(
        detector=Repeat.name,
        key=f"{metric}:{departure.rank}",
        pattern=Pattern.COMPUTE_MISMATCH,
        certainty=Certainty.SUSPECTED,
        metric=metric,
        attempt=block.attempt,
        iteration=departure.iteration,
        first_bad=departure.iteration,
        last_clean=departure.last_clean,
        alarm_iteration=departure.iteration,
        microbatch=departure.microbatch,
        ranks=ranks,
        is_tie=len(ranks) > 1,
        statistic=1.0,
        threshold=0.0,
        direction=Direction.DIFFERS,
        detail={"first": departure.first, "second": departure.second}
        | ({WIDENED: MODEL_GROUP} if len(ranks) > 1 else {}),
        sights=(sight,),
    )

"""A log replayed on the product's own path, the code of ``firstfault replay``, and what it concluded."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ingest.jobs import find_jobs
from service.offline import ReplayOptions, judge_jobs

_NO_CAUSE = {"kind": "undetermined", "stage": "unknown", "confidence": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One incident of a verdict, as far as it is scored."""

    label: str
    pattern: str
    ranks: tuple[int, ...]
    """Empty also where it is all of them."""
    rank_count: int
    is_tie: bool
    iteration: int
    last_clean: int
    """-1 where nothing clean came before."""
    first_bad: int
    suspected_at: int
    confirmed_at: int
    cause: str
    stage: str
    confidence: float
    metric: str
    detectors: tuple[str, ...]
    attempt: int = 0

    def holds(self, iteration: int) -> bool:
        """Whether the interval of the onset covers ``iteration``."""
        return self.last_clean < iteration <= self.first_bad


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a verdict says: ``confirmed`` incidents by first position, the first of them the root."""

    label: str
    confirmed: tuple[Found, ...] = ()
    suspected: tuple[Found, ...] = ()
    recovered: int = 0

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Judgement:
        """What `to_plain` gave, read back."""
        return cls(
            label=plain["label"],
            confirmed=tuple(_found_from(one) for one in plain["confirmed"]),
            suspected=tuple(_found_from(one) for one in plain["suspected"]),
            recovered=plain["recovered"],
        )


def judge(lines: Sequence[bytes]) -> Judgement:
    """The judgement of one log of one run.

    Raises:
        ValueError: the log could not be read, or holds more than one run.
    """
    with tempfile.TemporaryDirectory(prefix="firstfault-quality-") as folder:
        path = Path(folder) / "log.jsonl"
        path.write_bytes(b"\n".join([*lines, b""]))
        (job,) = judge_jobs(find_jobs([path]), ReplayOptions())
    if job.unreadable or len(job.runs) != 1:
        raise ValueError(f"a log must be of one run, got {len(job.runs)}: {job.unreadable}")
    return judgement_of(job.runs[0].body)


def judgement_of(verdict: Mapping[str, Any]) -> Judgement:
    """The part of a verdict (as JSON) that is scored."""
    incidents = verdict["incidents"]
    return Judgement(
        label=verdict["label"],
        confirmed=tuple(_found(one) for one in incidents if one["certainty"] == "confirmed"),
        suspected=tuple(_found(one) for one in incidents if one["certainty"] == "suspected"),
        recovered=sum(one["certainty"] == "recovered" for one in incidents),
    )


def _found(incident: Mapping[str, Any]) -> Found:
    first, causes = incident["first"], incident["causes"]
    cause: Mapping[str, Any] = causes[0] if causes else _NO_CAUSE
    last_clean, first_bad = first["interval"]
    return Found(
        label=incident["label"],
        pattern=incident["pattern"],
        ranks=tuple(first["ranks"]),
        rank_count=first["rank_count"],
        is_tie=first["tie"],
        iteration=first["iteration"],
        last_clean=-1 if last_clean is None else last_clean,
        first_bad=first_bad,
        suspected_at=incident["detected_at_iteration"],
        confirmed_at=_confirmed_at(incident),
        cause=cause["kind"],
        stage=cause["stage"],
        confidence=float(cause["confidence"]),
        metric=first["metric"],
        detectors=tuple(sorted({item["detector"] for item in incident["evidence"]})),
        attempt=first["attempt"],
    )


def _confirmed_at(incident: Mapping[str, Any]) -> int:
    """When the first piece of evidence was sure: one that waited says so, another is sure where seen."""
    sure = [
        int(item["detail"].get("judged_at", item["interval"][1]))
        for item in incident["evidence"]
        if item["certainty"] == "confirmed"
    ]
    seen = int(incident["detected_at_iteration"])
    return max(min(sure, default=seen), seen)


def _found_from(plain: Mapping[str, Any]) -> Found:
    return Found(**{**plain, "ranks": tuple(plain["ranks"]), "detectors": tuple(plain["detectors"])})

"""Answers of Prometheus to queries over a range of time, and of what speaks as it does (Thanos, Mimir).

A series has labels and pairs of time and text. ``__name__`` names the metric, labels that are called so the
rank, the run and the host. Samples are those of a clock: where no series counts steps, times do, in order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from .json_trees import STEP, Record
from .roles import Role, meaning_of
from .written_numbers import number_of

NAME = "__name__"
_RANKS = ("global_rank", "rank", "process_index", "worker_rank", "replica_rank", "dp_rank")
"""Labels that name the rank, the best first."""
_HOSTS = ("instance", "pod", "host", "hostname", "node", "node_name", "kubernetes_node")
"""Labels that tell one process or machine from another; of two that do, the first."""
_MACHINES = ("host", "hostname", "node", "node_name", "kubernetes_node", "instance", "pod")
"""The same, those that name machines first."""
_RUNS = ("run", "run_id", "run_name", "experiment")
_SPLITS = ("split", "phase", "stage", "mode", "dataset_split")
_DIGITS = re.compile(r"(\d+)")
_LEAST_NAMED = 0.5
"""Share of a list that must be series."""
_ODD_TIMES = 1.5
"""Times as many distinct times as the longest series has: each is then scraped at times of its own."""
MAX_RANK = 1 << 20


@dataclass(slots=True)
class Scraped:
    """Records in order, the host of each rank, and what was made of labels and times."""

    records: list[Record] = field(default_factory=list)
    host_of: dict[int, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Series:
    """One curve, as it was scraped."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]
    """Time and value."""


def series_of(value: object) -> list[Series] | None:
    """The series of an answer, as it comes or only what is inside it; None where there are none.

    >>> answer = {"data": {"result": [{"metric": {"__name__": "loss"}, "values": [[7.5, "NaN"]]}]}}
    >>> len(series_of(answer) or ())
    1
    """
    for key in ("data", "result"):
        if isinstance(value, dict) and key in value:
            value = value[key]
    if not isinstance(value, list):
        return None
    found = [series for each in value if (series := _series(each)) is not None]
    return found if found and len(found) > _LEAST_NAMED * len(value) else None


def records_of(series: Iterable[Series], name: str) -> Scraped:
    """The records that series make together; one without a name is called ``name``."""
    kept = [each for each in series if each.points]
    scraped = Scraped()
    if not kept:
        return scraped
    ranks = _Ranks.of(kept)
    names = _names(kept, ranks.label, name)
    counting = {
        at for at, each in enumerate(names) if meaning_of(_without_total(each)).role is Role.ITERATION
    }
    place, counter = _places(kept, [kept[at] for at in counting])
    rows: dict[tuple[str, int, int], Record] = {}
    for at, each in enumerate(kept):
        rank = ranks.rank(each)
        run = _label(each, _RUNS)
        if rank is not None and (host := _label(each, _MACHINES)):
            scraped.host_of.setdefault(rank, host.rpartition(":")[0] or host)
        for time, number in each.points if at not in counting else ():
            key = (run, place[time], -1 if rank is None else rank)
            row = rows.setdefault(key, _row(key, time))
            if math.isfinite(float(str(row.get(names[at], 0.0)))):  # of two at one place what is broken stays
                row[names[at]] = number
    scraped.records = [rows[key] for key in sorted(rows)]
    scraped.remarks = [f"{len(kept)} series of a clock: {counter}; {ranks.words}"]
    return scraped


@dataclass(frozen=True, slots=True)
class _Ranks:
    """The label that tells ranks apart, and the rank of each of its values."""

    label: str | None
    rank_of: Mapping[str, int]
    words: str

    @staticmethod
    def of(series: Sequence[Series]) -> _Ranks:
        """By a label that names ranks; else places that are scraped at one time are ranks, in their order."""
        for label in _RANKS:
            told = {each.labels[label] for each in series if label in each.labels}
            if told and all(map(_is_rank, told)):
                return _Ranks(
                    label, {text: int(text) for text in told}, f"the label {label!r} names the rank"
                )
        spans = {label: _spans(series, label) for label in _HOSTS}
        label = max(_HOSTS, key=lambda each: len(spans[each]))
        if not _overlap(spans[label].values()):  # one after the other: a job that moved
            return _Ranks(None, {}, "no label names a rank")
        ordered = {text: at for at, text in enumerate(sorted(spans[label], key=_natural))}
        words = f"no label names a rank: the {len(ordered)} of the label {label!r} are counted in their order"
        return _Ranks(label, ordered, words)

    def rank(self, series: Series) -> int | None:
        """The rank of whoever reported the series; None where that is not told."""
        return None if self.label is None else self.rank_of.get(series.labels.get(self.label, ""))


def _spans(series: Sequence[Series], label: str) -> dict[str, tuple[float, float]]:
    """First and last time of each value of a label."""
    spans: dict[str, tuple[float, float]] = {}
    for each in series:
        if label in each.labels:
            first, last = spans.get(each.labels[label], (math.inf, -math.inf))
            times = [time for time, _ in each.points]
            spans[each.labels[label]] = (min(first, *times), max(last, *times))
    return spans


def _overlap(spans: Iterable[tuple[float, float]]) -> bool:
    """Whether two of the spans share more than a moment."""
    return any(after[0] < before[1] for before, after in pairwise(sorted(spans)))


def _row(key: tuple[str, int, int], time: float) -> Record:
    run, step, rank = key
    who = {"run": run} if run else {}
    return {STEP: step, "time": time, **who, **({"rank": rank} if rank >= 0 else {})}


def _series(value: object) -> Series | None:
    if not isinstance(value, dict) or not isinstance(labels := value.get("metric"), dict):
        return None
    pairs = value.get("values", [value["value"]] if "value" in value else None)
    if not isinstance(pairs, list):
        return None
    points: list[tuple[float, float]] = []
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == len(("time", "value"))):
            return None
        time, number = number_of(pair[0]), number_of(pair[1])
        if time is None or not math.isfinite(time):
            return None
        if number is not None:
            points.append((time, number))
    return Series({str(key): str(text) for key, text in labels.items()}, points)


def _places(series: Sequence[Series], counters: Sequence[Series]) -> tuple[dict[float, int], str]:
    """The iteration at each time, and in words what counts."""
    times = sorted({time for each in series for time, _ in each.points})
    counted: dict[float, int] = {}
    for each in counters:
        for time, number in each.points:
            if math.isfinite(number) and number >= 0:
                counted[time] = max(counted.get(time, 0), int(number))
    if counted:
        place: dict[float, int] = {}
        newest = min(counted.values())
        for time in times:
            newest = place[time] = counted.get(time, newest)
        return place, "the series that counts steps counts here"
    longest = max((each.points for each in series), key=len)
    gaps = [after - before for (before, _), (after, _) in pairwise(longest) if after > before]
    every = median(gaps) if gaps else 1.0
    if len(times) > _ODD_TIMES * len(longest):
        return {time: round((time - times[0]) / every) for time in times}, f"intervals of {every:g} s count"
    return {time: at for at, time in enumerate(times)}, f"its times, every {every:g} s, count from 0"


def _names(series: Sequence[Series], rank_label: str | None, name: str) -> list[str]:
    """What each series is called, with the labels in which those of one name differ beside rank and host."""
    bare = [each.labels.get(NAME, "") or name for each in series]
    apart = {NAME, *_RANKS, *_RUNS, *_HOSTS, "job", rank_label}
    differing: dict[str, set[str]] = {}
    for metric in set(bare):
        same = [each.labels for each, own in zip(series, bare, strict=True) if own == metric]
        keys = {key for labels in same for key in labels} - apart
        differing[metric] = {key for key in keys if len({labels.get(key) for labels in same}) > 1}
    return [_full_name(own, each.labels, differing[own]) for own, each in zip(bare, series, strict=True)]


def _full_name(metric: str, labels: Mapping[str, str], differing: set[str]) -> str:
    split = [labels[key] for key in _SPLITS if key in labels]  # of validation even where it stands alone
    others = [labels[key] for key in sorted(differing.difference(_SPLITS)) if key in labels]
    return "/".join([*split[:1], metric, *others])


def _without_total(name: str) -> str:
    return name.removesuffix("_total")


def _is_rank(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text[:8]) < MAX_RANK


def _natural(text: str) -> list[tuple[int, str]]:
    """What orders ``worker-2`` before ``worker-10``."""
    return [(int(part[:18]), "") if part.isdigit() else (0, part) for part in _DIGITS.split(text)]


def _label(series: Series, names: Sequence[str]) -> str:
    return next((series.labels[name] for name in names if name in series.labels), "")

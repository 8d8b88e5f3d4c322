"""Cases made, replayed and set beside the truth, some at once, each of them kept as soon as it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from .cache import (
    JUDGES,
    RIG_SOURCES,
    cache_folder,
    load_plain,
    load_recording,
    save_plain,
    save_recording,
    source_digest,
)
from .case import Origin, Recording, Spec, Tier
from .judging import Judgement, judge
from .naive import Alarm, alarms_of_rules
from .peers import PEERS, ask
from .plan import Task, twin_of
from .rank_rule import RANK_RULE, rank_alarms
from .row import Row
from .tiers import curve_columns, cut

_TELL_EVERY_S = 15.0
Answers = dict[str, Any]
T = TypeVar("T")
R = TypeVar("R")
_MAKERS: Mapping[Origin, tuple[str, ...]] = {
    Origin.CURVE: (
        "bench/quality/curve_bases.py",
        "bench/quality/curve_faults.py",
        "bench/quality/curve_cases.py",
    ),
    Origin.SURROGATE: ("bench/surrogate.py", "bench/quality/healthy_cases.py"),
    Origin.RECORDED: ("bench/quality/healthy_cases.py",),
    Origin.RIG: (*RIG_SOURCES, "bench/quality/rig_cases.py"),
    Origin.SMALL: (*RIG_SOURCES, "bench/quality/rig_cases.py", "bench/quality/small_cases.py"),
}
"""The source that decides what a recording of each origin is."""


def run_all(
    work: Callable[[T], R], items: Sequence[T], *, processes: int, say: Callable[[str], None]
) -> list[R]:
    """``work`` done on all items, its results in order of the items; ``say`` is told how far it is."""
    done: dict[int, R] = {}
    began_s = told_s = time.monotonic()
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
    try:
        waiting = {pool.submit(work, item): number for number, item in enumerate(items)}
        for one in as_completed(waiting):
            done[waiting[one]] = one.result()
            now_s = time.monotonic()
            if now_s - told_s >= _TELL_EVERY_S or len(done) == len(items):
                told_s = now_s
                say(progress(len(done), len(items), now_s - began_s))
    finally:
        # what was not begun is left: what is done is in the cache
        pool.shutdown(cancel_futures=True)
    return [done[number] for number in sorted(done)]


def progress(done: int, total: int, elapsed_s: float) -> str:
    """How far it is, and how long it may still take.

    >>> progress(50, 100, 60.0)
    '50 of 100, 60 s, about 60 s left'
    """
    left_s = elapsed_s / max(done, 1) * (total - done)
    return f"{done} of {total}, {elapsed_s:.0f} s, about {left_s:.0f} s left"


def rows_of(task: Task) -> list[Row]:
    """The cases of one task, from the cache where they are there."""
    return [row for spec in task.specs for row in _rows_of_case(spec, task.peers)]


def kept_of(task: Task) -> int:
    """Make and keep what does not depend on the judges, recordings and what others say; how many cases."""
    for spec in task.specs:
        _others(spec, recorded(spec), task.peers)
    return len(task.specs)


def _rows_of_case(spec: Spec, peers: Sequence[str]) -> Iterator[Row]:
    recording = recorded(spec)
    others, of_twin = _others(spec, recording, peers)
    for tier in spec.tiers:
        yield Row(
            spec=spec,
            tier=tier,
            truth=recording.truths[tier],
            judgement=judged(spec, tier, _shown(recording, tier)),
            logged=recording.logged,
            log_interval=recording.log_interval,
            healthy_points=recording.healthy_points,
            others=others.get(tier, {}),
            of_twin=of_twin if tier is Tier.CURVE else {},
        )


def _others(spec: Spec, recording: Recording, peers: Sequence[str]) -> tuple[dict[Tier, Answers], Answers]:
    """What rules and peers fire on, by tier, and what they do of the averaged curve without the fault."""
    twin = twin_of(spec)
    others: dict[Tier, Answers] = {}
    of_twin: Answers = {}
    if Tier.CURVE in recording.truths:
        others[Tier.CURVE] = _asked(spec, peers, _shown(recording, Tier.CURVE))
        if twin is not None:
            of_twin = _asked(twin, peers, partial(_curve_of, twin))
    if Tier.RANKS in recording.truths:
        shown = _shown(recording, Tier.RANKS)
        others[Tier.RANKS] = {RANK_RULE: _by_rank_rule(spec, twin or spec, shown)}
    return others, of_twin


def _shown(recording: Recording, tier: Tier) -> Callable[[], Sequence[bytes]]:
    """Makes the lines of a tier: a case of one tier alone is logged as that tier shows it."""
    is_cut = len(recording.truths) > 1
    return partial(cut, recording.lines, tier) if is_cut else partial(list, recording.lines)


def _curve_of(spec: Spec) -> Sequence[bytes]:
    """The averaged curve of a case."""
    return _shown(recorded(spec), Tier.CURVE)()


def _by_rank_rule(spec: Spec, clean: Spec, shown: Callable[[], Sequence[bytes]]) -> list[Alarm]:
    """What the rule for single ranks fires on."""
    sources = ("bench/peer_rules.py", "bench/quality/rank_rule.py", "bench/quality/naive.py")
    path = _place("answers", spec, source_digest((*_MAKERS[spec.origin], *sources)), "rank-rule")
    plain = load_plain(path)
    if plain is None:
        plain = {"alarms": _plain_alarms(rank_alarms(shown(), recorded(clean).lines))}
        save_plain(path, plain)
    return _alarms_from(plain["alarms"]) or []


def recorded(spec: Spec) -> Recording:
    """The recording of a case, made where it is not kept yet."""
    path = _recording_place(spec)
    kept = load_recording(path)
    if kept is not None:
        return kept
    for made, recording in _make(spec):
        save_recording(_recording_place(made), recording)
        if made == spec:
            kept = recording
    assert kept is not None, "what is made for a case holds it"
    return kept


def judged(spec: Spec, tier: Tier, shown: Callable[[], Sequence[bytes]]) -> Judgement:
    """What the product says of a case, kept as long as no line of its source changes."""
    digest = f"{source_digest(_MAKERS[spec.origin])}-{source_digest((*JUDGES, *_OWN))}"
    path = _place("judgements", spec, digest, tier.value)
    plain = load_plain(path)
    if plain is None:
        plain = judge(shown()).to_plain()
        save_plain(path, plain)
    return Judgement.from_plain(plain)


_OWN = ("bench/quality/judging.py", "bench/quality/tiers.py")


def _asked(spec: Spec, peers: Sequence[str], shown: Callable[[], Sequence[bytes]]) -> Answers:
    columns: dict[str, list[float]] = {}
    answers: dict[str, Any] = {}
    for peer in PEERS:
        if peer.name not in peers:
            continue
        digest = source_digest((*_MAKERS[spec.origin], "bench/quality/peers.py", "bench/quality/naive.py"))
        path = _place("answers", spec, digest, f"{peer.name}-{peer.version}")
        plain = load_plain(path)
        if plain is None:
            columns = columns or curve_columns(shown())
            plain = {"alarms": _plain_alarms(ask(peer, columns))}
            save_plain(path, plain)
        answers[peer.name] = _alarms_from(plain["alarms"])
    columns = columns or curve_columns(shown())
    return {**alarms_of_rules(columns), **answers}


def _make(spec: Spec) -> Iterator[tuple[Spec, Recording]]:
    """The case, and those that are made with it."""
    from .curve_cases import make_curve
    from .healthy_cases import make_recorded, make_surrogate
    from .rig_cases import make_group
    from .small_cases import make_small

    alone = {Origin.CURVE: make_curve, Origin.SURROGATE: make_surrogate, Origin.RECORDED: make_recorded}
    if spec.origin in alone:
        yield spec, alone[spec.origin](spec)
    else:
        yield from (make_small if spec.origin is Origin.SMALL else make_group)(spec.seed)


def _recording_place(spec: Spec) -> Path:
    return _place("recordings", spec, source_digest(_MAKERS[spec.origin])).with_suffix(".zst")


def _place(kind: str, spec: Spec, digest: str, name: str = "") -> Path:
    end = f"-{name}" if name else ""
    return cache_folder() / kind / digest / f"{spec.key}{end}.json"


def _plain_alarms(alarms: Sequence[Alarm] | None) -> list[dict[str, Any]] | None:
    return None if alarms is None else [{**asdict(one), "labels": sorted(one.labels)} for one in alarms]


def _alarms_from(plain: Sequence[Mapping[str, Any]] | None) -> list[Alarm] | None:
    return (
        None
        if plain is None
        else [Alarm(one["iteration"], frozenset(one["labels"]), one["rank"]) for one in plain]
    )

"""Cases made, replayed and set beside the truth, some at once, each of them kept as soon as it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from .cache import (
    JUDGES,
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
from .plan import Task
from .row import Row
from .tiers import curve_columns, cut

_MAKERS: Mapping[Origin, tuple[str, ...]] = {
    Origin.CURVE: ("bench/quality/curve_bases.py", "bench/quality/curve_faults.py", "bench/quality/curve_cases.py"),
}
"""The source that decides what a recording of each origin is."""


def run_all(
    tasks: Sequence[Task], *, processes: int, say: Callable[[str], None]
) -> list[Row]:
    """The rows of all tasks, in order of the tasks; ``say`` is told how far it is."""
    done: dict[int, list[Row]] = {}
    began_s = time.monotonic()
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
    try:
        waiting = {pool.submit(rows_of, task): number for number, task in enumerate(tasks)}
        for one in as_completed(waiting):
            done[waiting[one]] = one.result()
            if len(done) % 20 == 0 or len(done) == len(tasks):
                say(progress(len(done), len(tasks), time.monotonic() - began_s))
    finally:
        # what was not begun is left: what is done is in the cache
        pool.shutdown(cancel_futures=True)
    return [row for number in sorted(done) for row in done[number]]


def progress(done: int, total: int, elapsed_s: float) -> str:
    """How far it is, and how long it may still take.

    >>> progress(50, 100, 60.0)
    '50 of 100 cases, 60 s, about 60 s left'
    """
    left_s = elapsed_s / max(done, 1) * (total - done)
    return f"{done} of {total} cases, {elapsed_s:.0f} s, about {left_s:.0f} s left"


def rows_of(task: Task) -> list[Row]:
    """One case, from the cache where it is there."""
    spec = task.spec
    recording = recorded(spec)
    rows = []
    for tier in spec.tiers:
        lines: list[bytes] | None = None

        def shown(tier: Tier = tier) -> list[bytes]:
            nonlocal lines
            lines = cut(recording.lines, tier) if lines is None else lines
            return lines

        rows.append(
            Row(
                spec=spec,
                tier=tier,
                truth=recording.truths[tier],
                judgement=judged(spec, tier, shown),
                logged=recording.logged,
                log_interval=recording.log_interval,
                healthy_points=recording.healthy_points,
                others=_asked(spec, task.peers, shown) if tier is Tier.CURVE else {},
            )
        )
    return rows


def recorded(spec: Spec) -> Recording:
    """The recording of a case, made where it is not kept yet."""
    path = _place("recordings", spec, source_digest(_MAKERS[spec.origin])).with_suffix(".zst")
    kept = load_recording(path)
    if kept is None:
        kept = _maker(spec.origin)(spec)
        save_recording(path, kept)
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


def _asked(spec: Spec, peers: Sequence[str], shown: Callable[[], Sequence[bytes]]) -> dict[str, Any]:
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


def _maker(origin: Origin) -> Callable[[Spec], Recording]:
    from .curve_cases import make_curve

    makers: Mapping[Origin, Callable[[Spec], Recording]] = {Origin.CURVE: make_curve}
    return makers[origin]


def _place(kind: str, spec: Spec, digest: str, name: str = "") -> Path:
    end = f"-{name}" if name else ""
    return cache_folder() / kind / digest / f"{spec.key}{end}.json"


def _plain_alarms(alarms: Sequence[Alarm] | None) -> list[dict[str, Any]] | None:
    return None if alarms is None else [{**asdict(one), "labels": sorted(one.labels)} for one in alarms]


def _alarms_from(plain: Sequence[Mapping[str, Any]] | None) -> list[Alarm] | None:
    return None if plain is None else [Alarm(one["iteration"], frozenset(one["labels"])) for one in plain]



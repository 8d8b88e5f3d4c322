"""The reductions of one bucket in one group of ranks, check by check: which are wrong, and whose.

Axes: N members of the group, ascending.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from ingest.blocks import Ranks

from .base import State
from .linear_clip import NEAR, ClipWatch
from .linear_fit import FLOOR, LEARNED_CHECKS, Collective, Fit, Given, Sums, learn
from .linear_rates import LinearChecksumConfig

CONFIRMING_CHECKS = 2
"""Wrong checks of one episode that confirm it: of independent noise that reaches the tolerance once in
9000 checks (Student's t of 4) two within eight come once in ten million."""
CLOSING_CHECKS = 8
"""Right checks in a row that end an episode."""
MAX_EPISODES = 16
"""Episodes told of per bucket and group; the last one takes in what comes after."""
MAX_LATER = 64
"""Ranks told of that turn bad later in an episode."""
_LEVEL_GAIN = 1 / 16
"""Weight of a check in the usual scale: a sketch is small by chance now and then, its noise is not."""
_ALONE = 4.0
"""Times the tolerance that a contribution must count for, so that its absence can be told from noise."""


class Fault(StrEnum):
    """What is wrong with a reduction."""

    RESULT_DIFFERS = "result_differs"
    """Some ranks got another result than the others, or than the sum."""
    CONTRIBUTION_MISSING = "contribution_missing"
    CONTRIBUTION_DOUBLED = "contribution_doubled"
    SUM_DIFFERS = "sum_differs"
    """The result is the same everywhere and no sum of what went in: nobody can be named."""


@dataclass(slots=True)
class Episode:
    """Checks that went wrong one after the other. ``told`` counts what was said of it."""

    ordinal: int
    iteration: int
    microbatch: int
    last_clean: int | None
    fault: str
    columns: list[int]
    """The members at fault, as places in the group; all of them where nobody can be named."""
    statistic: float
    threshold: float
    expected: float
    got: float
    is_confirmed: bool
    collective: str
    factor: float
    wrong_checks: int = 1
    last_bad: int = 0
    later: list[list[int]] = field(default_factory=list)
    """(iteration, place) of members that turned bad afterwards."""
    is_over: bool = False
    may_be_clipping: bool = False
    """Whether clipping between the sketches would look the same: then it waits for a second test."""
    is_clipping: bool = False
    """Whether it turned out to be just that."""


@dataclass(frozen=True, slots=True)
class _Finding:
    """What one wrong check shows."""

    fault: Fault
    columns: list[int]
    statistic: float
    threshold: float
    got: float


@dataclass(slots=True)
class LinearStream:
    """Learns the relation of a reduction, then holds every check against it."""

    ranks_N: Ranks
    learned: list[Sums] = field(default_factory=list)
    fit: Fit | None = None
    is_unfit: bool = False
    """Whether the last checks that were learned from showed no relation."""
    level: float = 0.0
    """The usual scale: an exponentially weighted mean over the right checks."""
    last_clean: int | None = None
    clean_in_a_row: int = 0
    checked: int = 0
    episodes: list[Episode] = field(default_factory=list)
    clip: ClipWatch = field(default_factory=ClipWatch)
    config: LinearChecksumConfig = field(default_factory=LinearChecksumConfig)

    def feed(
        self, sums: Sums, microbatch: int, in_N: Sequence[float], out_N: Sequence[float], given: Given
    ) -> Iterator[Episode]:
        """Take one check of finite sketches of all members; gives each episode of which there is news."""
        if self.fit is None:
            self._learn(sums, given)
            return
        if not math.isfinite(self.fit.factor_at(sums)):  # how much it was clipped or unscaled is not known
            return
        scale = max(self.fit.scale(sums), self.level)
        if scale == 0.0 or not math.isfinite(scale):  # a bucket of zeros: nothing was reduced
            return
        self.checked += 1
        found = _judge(self.fit, sums, scale, in_N, out_N)
        if found is None:
            self.level += _LEVEL_GAIN * (self.fit.scale(sums) - self.level)
            self.last_clean = sums.iteration
            self.clean_in_a_row += 1
            yield from self._refute(sums)
            yield from self._close()
        else:
            yield from self._take(found, sums, microbatch)
            self.clean_in_a_row = 0

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "ranks": self.ranks_N.copy(),
            "learned": [asdict(one) for one in self.learned],
            "fit": None if self.fit is None else self.fit.to_plain(),
            "episodes": [asdict(one) for one in self.episodes],
            "clip": asdict(self.clip),
            **{name: getattr(self, name) for name in _PLAIN},
        }

    @classmethod
    def restored(cls, state: State, config: LinearChecksumConfig) -> LinearStream:
        """The stream that gave ``state``."""
        plain: dict[str, Any] = {name: state[name] for name in _PLAIN}
        return cls(
            ranks_N=np.array(state["ranks"], np.int32),
            learned=[Sums(**one) for one in state["learned"]],
            fit=None if state["fit"] is None else Fit.from_plain(state["fit"]),
            episodes=[
                Episode(**{**one, "later": [list(p) for p in one["later"]]}) for one in state["episodes"]
            ],
            clip=ClipWatch(**state["clip"]),
            config=config,
            **plain,
        )

    def _learn(self, sums: Sums, given: Given) -> None:
        self.learned.append(sums)
        if len(self.learned) < LEARNED_CHECKS:
            return
        self.fit = learn(self.learned, len(self.ranks_N), given, self.config)
        self.is_unfit = self.fit is None
        for one in self.learned if self.fit is not None else ():
            assert self.fit is not None
            scale = self.fit.scale(one)
            if scale > 0.0 and abs(self.fit.residual(one)) <= self.fit.tolerance * scale:
                self.last_clean = one.iteration
                self.level += (self.fit.scale(one) - self.level) * (_LEVEL_GAIN if self.level else 1.0)
        self.learned = []

    def _take(self, found: _Finding, sums: Sums, microbatch: int) -> Iterator[Episode]:
        assert self.fit is not None, "nothing is wrong without a relation"
        is_alike = found.fault is Fault.SUM_DIFFERS and self.fit.clip_norm is None
        may_be_clipping = is_alike and self.clip.explains(self.fit, sums)
        clip_norm = self.clip.proved(self.fit, sums) if is_alike else None
        current = self.episodes[-1] if self.episodes else None
        is_full = len(self.episodes) >= MAX_EPISODES
        if current is None or (current.is_over and not is_full):
            current = self._open(found, sums, microbatch)
            current.may_be_clipping = may_be_clipping
            current.is_confirmed = self._is_far(found) and not may_be_clipping
            is_new = True
        else:
            current.wrong_checks += 1
            current.last_bad = sums.iteration
            is_new = self._widen(current, found, sums.iteration)
            current.may_be_clipping &= may_be_clipping
            if (not current.is_confirmed or is_new) and not current.may_be_clipping:
                is_enough = current.wrong_checks >= CONFIRMING_CHECKS and not current.is_over
                current.is_confirmed = current.is_confirmed or is_enough or self._is_far(found)
                is_new = True
        if clip_norm is not None:
            yield from self._withdraw(clip_norm)
        elif is_new:
            yield current

    def _withdraw(self, clip_norm: float) -> Iterator[Episode]:
        """What was told of clipped steps was no fault; from here on the relation knows of the clipping."""
        assert self.fit is not None, "what is no fault was first one, against a relation"
        self.fit = replace(self.fit, clip_norm=clip_norm)
        for episode in self.episodes:
            if episode is self.episodes[-1] or episode.may_be_clipping:
                episode.is_clipping, episode.is_confirmed, episode.is_over = True, False, True
                yield episode

    def _open(self, found: _Finding, sums: Sums, microbatch: int) -> Episode:
        assert self.fit is not None, "nothing is wrong without a relation"
        iteration = sums.iteration
        opened = Episode(
            ordinal=len(self.episodes),
            iteration=iteration,
            microbatch=microbatch,
            last_clean=None if self.last_clean is None else min(self.last_clean, iteration - 1),
            fault=found.fault.value,
            columns=found.columns,
            statistic=found.statistic,
            threshold=found.threshold,
            expected=self.fit.expected(sums),
            got=found.got,
            is_confirmed=False,
            collective=self.fit.collective.value,
            factor=self.fit.factor_at(sums),
            last_bad=iteration,
        )
        self.episodes.append(opened)
        return opened

    def _refute(self, sums: Sums) -> Iterator[Episode]:
        """A right sum at a norm that would have been clipped shows that the wrong one was no clipping."""
        self.clip.note_right(sums)
        current = self.episodes[-1] if self.episodes else None
        if current is None or not current.may_be_clipping or current.is_clipping:
            return
        if any(sums.norm > clip_norm * (1 + NEAR) for clip_norm, _ in self.clip.found):
            current.may_be_clipping = False
            current.is_confirmed = current.statistic > self.config.far * max(current.threshold, FLOOR)
            yield current

    def _widen(self, current: Episode, found: _Finding, iteration: int) -> bool:
        """Note members that turned bad later; whether there are any."""
        if current.fault == Fault.SUM_DIFFERS or found.fault is Fault.SUM_DIFFERS or current.is_over:
            return False
        known = {*current.columns, *(place for _, place in current.later)}
        fresh = [place for place in found.columns if place not in known][: MAX_LATER - len(current.later)]
        current.later += [[iteration, place] for place in fresh]
        return bool(fresh)

    def _is_far(self, found: _Finding) -> bool:
        return found.statistic > self.config.far * max(found.threshold, FLOOR)

    def _close(self) -> Iterator[Episode]:
        current = self.episodes[-1] if self.episodes else None
        if current is not None and not current.is_over and self.clean_in_a_row >= CLOSING_CHECKS:
            current.is_over = True
            yield current


_PLAIN = ("is_unfit", "level", "last_clean", "clean_in_a_row", "checked")


def _judge(
    fit: Fit, sums: Sums, scale: float, in_N: Sequence[float], out_N: Sequence[float]
) -> _Finding | None:
    """What is wrong with a check, None where nothing is."""
    factor = fit.factor_at(sums)
    expected = factor * sums.sum_in
    off = abs(fit.residual(sums)) / scale
    tolerance = fit.tolerance_at(sums)
    is_sum_right = off <= tolerance
    if fit.collective is Collective.ALL_REDUCE:
        found = _odd_results(fit, sums, scale, out_N, is_sum_right=is_sum_right)
        if found is not None:
            return found
    if is_sum_right:
        return None
    gap = expected - fit.result(sums)  # + factor × the contribution of whoever is missing
    for fault, sign in ((Fault.CONTRIBUTION_MISSING, 1.0), (Fault.CONTRIBUTION_DOUBLED, -1.0)):
        parts = [sign * factor * one for one in in_N]
        fitting = [at for at, part in enumerate(parts) if abs(gap - part) <= tolerance * scale]
        if len(fitting) == 1 and abs(parts[fitting[0]]) > _ALONE * tolerance * scale:
            return _Finding(fault, fitting, off, tolerance, fit.result(sums))
    return _Finding(Fault.SUM_DIFFERS, list(range(len(in_N))), off, tolerance, fit.result(sums))


def _odd_results(
    fit: Fit, sums: Sums, scale: float, out_N: Sequence[float], *, is_sum_right: bool
) -> _Finding | None:
    """The members whose result of an all-reduce is not that of the others, or not the sum."""
    right = sums.middle_out
    tolerance = fit.agreement
    if not is_sum_right:
        right, tolerance = fit.expected(sums), fit.tolerance_at(sums)
    distance = [abs(out - right) / scale for out in out_N]
    odd = [at for at, each in enumerate(distance) if each > tolerance]
    if not odd or len(odd) == len(out_N):
        return None
    worst = max(odd, key=lambda at: distance[at])
    return _Finding(Fault.RESULT_DIFFERS, odd, distance[worst], tolerance, out_N[worst])

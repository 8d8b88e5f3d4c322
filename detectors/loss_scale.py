"""Gradients that are non-finite while the loss is fine: loss scaling at work, or a fault on its way.

Dynamic loss scaling finds its scale by overflowing: the step is skipped, the scale halved. That is
benign, unless it never ends. Axes: I iterations of a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from firstfault.telemetry import Event, EventKind
from ingest.bounds import check_bounds

from .base import State
from .evidence import Finding
from .nonfinite_onset import Onset
from .nonfinite_sites import Level, Scene
from .scale_fall import ScaleFall, names_scaler
from .skip_series import SkipSeries


@dataclass(frozen=True, slots=True, kw_only=True)
class LossScaleConfig:
    """When skipped steps, or non-finite gradients that nothing explains, are a fault. In iterations."""

    unexplained: int = 5
    """Non-finite gradients in a row without skip or scale drop. A scaler that is not logged skips two
    or three in a row in mid-run; with five the gradient is lost for good."""
    unexplained_at_start: int = 20
    """The same before the first finite gradient: a scale of 65 536 needs up to 16 halvings to reach 1."""
    unexplained_without_loss: int = 3
    """The same where no loss was reported that could speak against it."""
    skips: int = 20
    """Explained skips in a row: from 65 536 to 1 takes 16 halvings."""
    skips_at_start: int = 40
    """The same before the first finite gradient: from the 2**32 of some trainers 32, and hysteresis."""
    stuck: int = 5
    """Skips in a row at which the scale did not fall: hysteresis holds it for two."""
    stuck_at_floor: int = 3
    """The same at a scale of 1 or less, the usual minimum: nothing is left to give."""
    stuck_in_series: int = 10
    """Skips in one series, steps between them or not, at which the scale did not fall: it has nothing left to
    give, and benign overflow comes once in some thousand steps. Hysteresis gives way at the second one."""
    series_gap: int = 50
    """Runs of skips closer than this are one annotation."""
    max_series: int = 64
    """Annotations of skips per attempt; later skips go on in the last one."""
    max_events: int = 64
    """Loss scale events remembered: they matter for the next iteration only."""

    def __post_init__(self) -> None:
        remembered = dict.fromkeys(("max_series", "max_events"), (1, 10_000))  # of each attempt, in memory
        check_bounds(self, {one.name: (1, 1_000_000) for one in fields(self)} | remembered)


@dataclass(slots=True, eq=False)
class _Run:
    """Non-finite gradients or skips in a row."""

    first: Onset
    at_start: bool
    length: int = 0
    unexplained: int = 0
    stuck: int = 0
    first_unexplained: Onset | None = None
    candidate: Onset | None = None
    """The last iteration, while nothing explains it yet."""
    is_awaiting: bool = False
    """Whether the last iteration still waits for the scale of the next."""
    is_explained: bool = False
    dropped: bool = False
    scale: float = math.nan
    iteration: int = 0
    loss_seen: bool = False
    gradient_bad: bool = False

    def alarm(self, onset: Onset, reason: str) -> Alarm:
        """What the run so far amounts to."""
        return Alarm(onset, reason, self.length, self.iteration)


@dataclass(frozen=True, slots=True)
class Alarm:
    """A run of non-finite gradients that is not benign: since when, and why."""

    onset: Onset
    reason: str
    iterations: int
    last_iteration: int


@dataclass(slots=True)
class GradientRuns:
    """Follows runs of non-finite gradients through the iterations of an attempt.

    An iteration is explained by a skip, by a scale that falls at it or at the next one, or by a
    scaler that ``run_start`` names. What is not explained waits: followed by a non-finite loss it is
    the beginning of it, lasting it is a fault by itself, ending alone it has recovered.
    """

    config: LossScaleConfig = field(default_factory=LossScaleConfig)
    run: _Run | None = None
    series: list[SkipSeries] = field(default_factory=list)
    previous_scale: float = math.nan
    has_clean_gradient: bool = False
    loss_was_clean: bool = False
    has_scaler: bool = False
    scale_events: list[int] = field(default_factory=list)
    stuck_onset: Onset | None = None
    """The first of the skips of the last series at which the scale did not fall."""
    fall: ScaleFall = field(default_factory=ScaleFall)

    def note(self, events: Sequence[Event]) -> None:
        """Take the events of a block: what they say of a scaler, or that the scale changed."""
        for event in events:
            if event.kind is EventKind.RUN_START:
                self.has_scaler = self.has_scaler or names_scaler(event.fields)
            elif event.kind is EventKind.LOSS_SCALE:
                self.scale_events = [*self.scale_events, event.iteration][-self.config.max_events :]
        self.fall.note(events)

    def step(self, scene: Scene, i: int, ordinal: int, take: Callable[[], Onset]) -> Alarm | None:
        """An iteration with a skip or a non-finite gradient and nothing worse."""
        dropped = self._settle(scene, i, ordinal)
        if self.run is None:
            self.run = _Run(first=take(), at_start=not self.has_clean_gradient)
        run = self.run
        run.length += 1
        run.is_awaiting, run.dropped = True, dropped
        run.scale, run.iteration = float(scene.scale_I[i]), scene.iteration(i)
        run.is_explained = bool(scene.skipped_I[i]) or dropped or self.has_scaler
        run.gradient_bad |= bool(scene.gradient_bad_I[i])
        run.loss_seen |= bool(scene.loss_seen_I[i])
        self.loss_was_clean |= run.loss_seen
        if not run.is_explained and run.first_unexplained is None:
            run.candidate = run.first if run.length == 1 else take()
        return self._alarm()

    def quiet(self, scene: Scene, i: int, ordinal: int) -> tuple[Alarm | None, Alarm | None]:
        """An iteration without; gives an alarm, or what nothing explained of a run that ended well."""
        self._settle(scene, i, ordinal)
        alarm = self._alarm()
        self.loss_was_clean |= bool(scene.loss_seen_I[i])
        if not scene.gradient_clean_I[i]:
            return alarm, None
        self.has_clean_gradient = True
        run, self.run = self.run, None
        if run is None or run.first_unexplained is None or alarm is not None:
            return alarm, None
        return None, run.alarm(run.first_unexplained, "gradients were finite again, and no loss suffered")

    def end_in_loss(self, scene: Scene, i: int, ordinal: int) -> Onset | None:
        """A non-finite loss or parameter came: the first unexplained gradient of the run, if any."""
        self._settle(scene, i, ordinal)
        run, self.run = self.run, None
        return None if run is None else run.first_unexplained

    def end(self, ordinal: int) -> Onset | None:
        """No more will come: the first gradient that nothing has explained so far."""
        if self.run is None:
            return None
        self._explain(self.run, math.nan, False, ordinal)
        if self.run.first_unexplained is None and self._is_all_skips(self.run):
            return self.run.first
        return self.run.first_unexplained

    @property
    def is_lost(self) -> bool:
        """Whether what the log ends in is too long for a search of the scale, or all that there is.

        Skips alone must be more than such a search begins with.
        """
        run = self.run
        if run is None or self.has_clean_gradient or self.loss_was_clean:
            return run is not None and self._alarm() is not None
        return run.first_unexplained is not None or run.length >= self.config.unexplained

    def skip_over(self, scene: Scene, i: int, j: int) -> None:
        """Iterations ``[i, j)`` while no run is open."""
        self.has_clean_gradient |= bool(scene.gradient_clean_I[i:j].any())
        self.loss_was_clean |= bool((scene.loss_seen_I[i:j] & (scene.level_I[i:j] < Level.LOSS)).any())
        self._note_scale(scene, i, j)

    def news(self, detector: str, attempt: int) -> list[Finding]:
        """One annotation per series of explained skips, where new or longer than last told; a lost scale."""
        changed = [series for series in self.series if series.skips > series.told]
        for series in changed:
            series.told = series.skips
        lost = self.fall.news(detector, attempt)
        return [*(series.annotation(attempt) for series in changed), *lost]

    def snapshot(self) -> State:
        """The whole state as plain data."""
        state = asdict(self)
        del state["config"]
        return state

    def restore(self, state: State) -> None:
        """Continue from ``state``."""
        for name, held in state.items():
            if name == "run":
                self.run = None if held is None else _restored_run(held)
            elif name == "fall":
                self.fall = ScaleFall.restored(held)
            elif name == "stuck_onset":
                self.stuck_onset = None if held is None else Onset.restored(held)
            elif name == "series":
                self.series = [SkipSeries(**each) for each in held]
            else:
                setattr(self, name, list(held) if isinstance(held, list) else held)

    def _settle(self, scene: Scene, i: int, ordinal: int) -> bool:
        """Decide the iteration before by the scale of this one; whether the scale fell here."""
        scale = float(scene.scale_I[i])
        dropped = scale < self.previous_scale or scene.iteration(i) in self.scale_events
        if self.run is not None:
            self._explain(self.run, scale, dropped, ordinal - 1)
        self._note_scale(scene, i, i + 1)
        return dropped

    def _explain(self, run: _Run, scale: float, dropped_next: bool, ordinal: int) -> None:
        if not run.is_awaiting:
            return
        run.is_awaiting = False
        dropped = run.dropped or dropped_next
        if run.is_explained or dropped:
            run.candidate = None
            run.stuck = 0 if dropped or math.isnan(run.scale) else run.stuck + 1
            if scale < run.scale:
                self.fall.move(run.iteration, run.scale, scale)
            self._add_skip(run, scale, dropped, ordinal)
        else:
            run.unexplained += 1
            run.first_unexplained = run.first_unexplained or run.candidate

    def _alarm(self) -> Alarm | None:
        run, config = self.run, self.config
        if run is None:
            return None
        if run.first_unexplained is not None:
            # a log of every tenth iteration has seen the whole search for the scale in a few records
            is_search = run.at_start and run.iteration - run.first.iteration < config.unexplained_at_start
            limit = config.unexplained_at_start if is_search else config.unexplained
            limit = limit if run.loss_seen else config.unexplained_without_loss
            if run.unexplained >= limit:
                return run.alarm(
                    run.first_unexplained, f"{run.unexplained} gradients in a row were not finite"
                )
        if run.stuck >= (config.stuck_at_floor if run.scale <= 1 else config.stuck):
            return run.alarm(run.first, f"skips went on at a loss scale stuck at {run.scale:g}")
        if self.series and self.series[-1].stuck >= config.stuck_in_series:
            stuck = f"{self.series[-1].stuck} skips at a loss scale stuck at {run.scale:g}"
            return run.alarm(self.stuck_onset or run.first, stuck)
        if run.length >= (config.skips_at_start if run.at_start else config.skips):
            return run.alarm(run.first, f"{run.length} steps in a row were skipped")
        return None

    def _is_all_skips(self, run: _Run) -> bool:
        """Whether nothing but skipped gradients was ever seen, and no scaler that might be searching."""
        has_scale = self.has_scaler or bool(self.scale_events) or not math.isnan(self.previous_scale)
        return run.gradient_bad and not self.has_clean_gradient and not has_scale

    def _add_skip(self, run: _Run, scale: float, dropped: bool, ordinal: int) -> None:
        is_scaling = run.gradient_bad or dropped or self.has_scaler
        kind = "loss_scale_skip" if is_scaling else "skipped_step"
        last = self.series[-1] if self.series else None
        is_near = last is not None and ordinal - last.last_ordinal <= self.config.series_gap
        if last is None or not (
            (is_near and last.kind == kind) or len(self.series) >= self.config.max_series
        ):
            last, is_near = (
                SkipSeries(kind, run.iteration, run.iteration, ordinal, scale_before=run.scale),
                True,
            )
            self.series.append(last)
        may_stick = is_near and is_scaling and not dropped and not math.isnan(run.scale)
        last.add(run.iteration, ordinal, run.scale, scale, may_stick=may_stick)
        if last.stuck <= 1:
            self.stuck_onset = run.first

    def _note_scale(self, scene: Scene, i: int, j: int) -> None:
        known = scene.scale_I[i:j]
        known = known[~np.isnan(known)]
        if len(known):
            self.previous_scale = float(known[-1])


def _restored_run(held: Mapping[str, Any]) -> _Run:
    onsets = ("first", "first_unexplained", "candidate")
    state = dict(held)
    for name in onsets:
        state[name] = None if held[name] is None else Onset.restored(held[name])
    return _Run(**state)

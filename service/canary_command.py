"""`firstfault canary`: a preflight, judged by the same engine while it runs."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from firstfault.launch import Launch, launch_from
from firstfault.preflight import PreflightConfig, PreflightError, require_torch
from firstfault.preflight.config import DEFAULT_ROUNDS, DEFAULT_TIMEOUT_S, QUICK_ROUNDS

from .canary_reference import Reference
from .edge import Exit, say, tell

if TYPE_CHECKING:
    from firstfault.preflight.running import Crew, Line

    from .announcer import Announcer
    from .pipeline import Pipeline

_STATUS = "status"
_CLEAR = "\r\x1b[K"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryRequest:
    """What was asked for on the command line."""

    rounds: int | None = None
    seconds: float | None = None
    is_quick: bool = False
    size: str = ""
    reference: Path | None = None
    out: Path | None = None
    sink: str | None = None
    run: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    as_json: bool = False

    def config(self) -> PreflightConfig:
        """The work that follows from it.

        Raises:
            PreflightError: two budgets at once, or one out of range.
        """
        given = [self.rounds is not None, self.seconds is not None, self.is_quick]
        if sum(given) > 1:
            raise PreflightError("canary: give one of --rounds, --seconds and --quick")
        rounds = self.rounds if self.rounds is not None else QUICK_ROUNDS if self.is_quick else DEFAULT_ROUNDS
        return PreflightConfig(rounds=rounds, seconds=self.seconds, size=self.size, timeout_s=self.timeout_s)


def run_canary(request: CanaryRequest) -> Exit:
    """Compute, compare and report; the exit status is that of rank 0 on all ranks.

    Raises:
        PreflightError: torch is missing, ranks cannot meet, or a setting cannot be.
    """
    config = request.config()
    require_torch()
    from firstfault.preflight.running import run_rank

    launch = launch_from(os.environ, "canary")
    launch = replace(launch, run=request.run or launch.run, world_size=launch.world_size or 1)
    reference = None if request.reference is None else Reference.read(request.reference)
    with ExitStack() as stack:
        send = stack.enter_context(_Sender(request.sink, launch))
        judge = stack.enter_context(_Judge(request, reference))
        most = None if reference is None else reference.rounds
        meeting = run_rank(launch, config, judge.take, most_rounds=most, send=send)
        try:
            if meeting.rank == 0:
                meeting.tell(_STATUS, {"status": int(judge.finish())})
            return Exit(meeting.heard(_STATUS, 0)["status"])
        finally:
            meeting.leave()


def _send_nowhere(_line: Line) -> None:
    """There is no sink."""


class _Sender:
    """Sends the records of this rank as any trainer would."""

    def __init__(self, sink: str | None, launch: Launch) -> None:
        self._sink, self._launch = sink, launch
        self._probe: Any = None

    def __enter__(self) -> Callable[[Line], None]:
        if self._sink is None:
            return _send_nowhere
        from firstfault import Probe

        launch = self._launch
        try:
            self._probe = Probe(
                run=launch.run, rank=launch.rank, sink=self._sink, world_size=launch.world_size, strict=True
            )
        except Exception as error:  # whatever the sink's client raises: nobody computes an hour for nothing
            raise PreflightError(f"--sink: {error}") from error
        return self._send

    def __exit__(self, *error: object) -> None:
        if self._probe is not None:
            self._probe.close(timeout_s=5.0)

    def _send(self, line: Line) -> None:
        keys = ("run", "rank", "iteration", "time")
        self._probe.log(
            iteration=line["iteration"], **{name: value for name, value in line.items() if name not in keys}
        )


@dataclass
class _Judge:
    """Rank 0: feeds the engine, says what it finds at once, and reports in the end."""

    request: CanaryRequest
    reference: Reference | None
    crew: Crew | None = None
    extra: int = 0
    """Ranks that stand for the reference."""
    rounds_s: Counter[int] = field(default_factory=Counter)
    """Seconds that each rank computed."""
    rounds: Counter[int] = field(default_factory=Counter)
    _out: TextIO | None = None
    _pipeline: Pipeline | None = None
    _announcer: Announcer | None = None

    def __enter__(self) -> _Judge:
        return self

    def __exit__(self, *error: object) -> None:
        if self._out is not None:
            with suppress(OSError):  # what could not be written was told when it was
                self._out.close()

    def take(self, crew: Crew, lines: list[Line]) -> None:
        """Judge the next records of all ranks."""
        if self.crew is None:
            self._begin(crew)
        for line in lines:
            self.rounds[line["rank"]] += 1
            self.rounds_s[line["rank"]] += line["step_time_s"]
        ranks = len(crew.hosts)
        if self.reference is not None and self.extra:
            numbers = sorted({line["iteration"] for line in lines})
            lines = lines + [
                {**self.reference.lines[number], "run": crew.run, "rank": ranks + at}
                for number in numbers
                for at in range(self.extra)
            ]
        self._feed(lines)
        _clear_progress()
        self._announce()
        self._show_progress()

    def finish(self) -> Exit:
        """The report, and the exit status."""
        from .canary_report import is_not_deterministic
        from .sufficiency import has_confirmed_incident

        assert self.crew is not None and self._pipeline is not None, "there is at least one round"
        _clear_progress()
        from .offline import JudgedRun

        run = JudgedRun(verdict=self._pipeline.verdict(self.crew.run, ended=True))
        if self.request.as_json:
            tell(run.line)
        else:
            self._report(run.body)
        if has_confirmed_incident(run.body):
            return Exit.INCIDENT
        return Exit.UNUSABLE if is_not_deterministic(run.body) else Exit.HEALTHY

    def _begin(self, crew: Crew) -> None:
        from .announcer import Announcer
        from .pipeline import Pipeline

        self.crew, self._pipeline = crew, Pipeline()
        start = crew.start()
        if self.reference is not None:
            start, self.extra = self.reference.joined(crew)
        if self.request.out is not None:
            with self._writing():
                self._out = self.request.out.open("w", encoding="utf-8")
        self._announcer = Announcer(say)
        hosts = len(set(crew.hosts))
        say(f"{crew.rounds} rounds of {crew.workload}; ranks: {len(crew.hosts)}, hosts: {hosts}")
        self._feed([start])

    def _feed(self, lines: Sequence[Mapping[str, Any]]) -> None:
        from ingest.decode import Decoder

        assert self._pipeline is not None, "begun"
        text = "".join(json.dumps(line) + "\n" for line in lines)
        if self._out is not None:
            with self._writing():
                self._out.write(text)
                self._out.flush()
        self._pipeline.feed(Decoder().decode_lines(text.encode(), "canary", 0))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """An error of the disk names the file."""
        try:
            yield
        except OSError as error:
            raise PreflightError(
                f"--out {self.request.out} must be a file that can be written: {error.strerror}"
            ) from error

    def _announce(self) -> None:
        from .offline import JudgedRun

        assert self.crew is not None and self._pipeline is not None and self._announcer is not None, "begun"
        verdict = self._pipeline.verdict(self.crew.run, ended=False)
        if verdict.incidents:
            self._announcer.take("canary", JudgedRun(verdict=verdict))

    def _show_progress(self) -> None:
        """Say on a terminal how far the slowest rank is, and how long it will still compute."""
        assert self.crew is not None, "begun"
        done, total = min(self.rounds.values()), self.crew.rounds
        if done < total and sys.stderr.isatty():
            left_s = max(self.rounds_s.values()) / done * (total - done)
            sys.stderr.write(f"{_CLEAR}round {done} of {total}, about {left_s:.0f} s left")
            sys.stderr.flush()

    def _report(self, body: Mapping[str, Any]) -> None:
        from .canary_report import host_table, last_words

        assert self.crew is not None, "begun"
        for row in host_table(self.crew, body, self.rounds, self.rounds_s):
            tell(row)
        tell(last_words(body))


def _clear_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write(_CLEAR)

"""The items of a labelled folder of real logs, and what the product's own path concludes of one.

The folder holds ``index.jsonl``: one JSON object per item, with ``id``, ``format``, ``file`` (a path inside
the folder, or a list of them: the files of one job), ``label`` and ``first_bad_iteration``.
"""

from __future__ import annotations

import json
import multiprocessing
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ingest.errors import UnreadableInput
from ingest.file_source import FileSource
from ingest.jobs import find_jobs
from service.offline import ReplayOptions, judge_jobs

TIME_LIMIT_S = 60.0
"""Per item, a thousand times what one takes: past it the item counts as a crash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item of the folder, as its index describes it."""

    id: str
    format: str
    label: str
    first_bad: int | None
    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One incident of a verdict, as far as it is compared with the index."""

    label: str
    certainty: str
    pattern: str
    iteration: int
    last_clean: int | None
    first_bad: int
    metric: str

    @property
    def interval(self) -> str:
        """Where the fault began, as text."""
        return f"({'start' if self.last_clean is None else self.last_clean}, {self.first_bad}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an item: a label per run and all incidents, or why there is none."""

    labels: tuple[str, ...] = ()
    told: tuple[Told, ...] = ()
    """Confirmed ones first."""
    notes: tuple[str, ...] = ()
    """Annotations: kind and iteration."""
    iterations: tuple[int, ...] = ()
    """All iterations of which there are records, ascending."""
    unreadable: str = ""
    crash: str = ""
    seconds: float = 0.0

    @property
    def confirmed(self) -> tuple[Told, ...]:
        """The incidents that make the runs unhealthy."""
        return tuple(one for one in self.told if one.certainty == "confirmed")

    @property
    def label(self) -> str:
        """That of the first confirmed incident; else healthy if a run was judged so, else undetermined."""
        if self.confirmed:
            return self.confirmed[0].label
        return "healthy" if "healthy" in self.labels else "undetermined"

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self) | {"label": self.label, "iterations": len(self.iterations)}


def read_index(folder: Path) -> list[Item]:
    """The items of the folder, in the order of the index.

    Raises:
        ValueError: a line is not of the form that the docstring of this file tells.
    """
    return [_item(folder, line) for line in (folder / "index.jsonl").read_text("utf-8").splitlines() if line]


def judge_item(item: Item, limit_s: float = TIME_LIMIT_S) -> Outcome:
    """The outcome of one item, judged in a process of its own: neither crash nor loop ends the others."""
    context = multiprocessing.get_context("fork")  # what is imported stays so: an item costs milliseconds
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_judge_in_child, args=(item.paths, theirs), daemon=True)
    begin_s = time.monotonic()
    process.start()
    theirs.close()
    try:
        if not ours.poll(limit_s):
            return Outcome(crash=f"not done after {limit_s:g} s", seconds=time.monotonic() - begin_s)
        found: Outcome = ours.recv()
    except EOFError:
        process.join()
        return Outcome(crash=f"the process ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()
        ours.close()
    return found


def _item(folder: Path, line: str) -> Item:
    plain: Mapping[str, Any] = json.loads(line)
    try:
        files: Sequence[str] = [plain["file"]] if isinstance(plain["file"], str) else plain["file"]
        return Item(
            id=plain["id"],
            format=plain["format"],
            label=plain["label"],
            first_bad=plain["first_bad_iteration"],
            paths=tuple(folder / name for name in files),
        )
    except KeyError as error:
        raise ValueError(f"an item of index.jsonl must have {error}, got {line[:80]!r}") from error


def _judge_in_child(paths: Sequence[Path], pipe: Connection) -> None:
    begin_s = time.monotonic()
    try:
        outcome = _judge(paths, begin_s)
    except Exception:
        # the outermost edge of the child: whatever it is, it is the item's outcome
        outcome = Outcome(crash=traceback.format_exc(limit=-4), seconds=time.monotonic() - begin_s)
    pipe.send(outcome)


def _judge(paths: Sequence[Path], begin_s: float) -> Outcome:
    jobs = find_jobs(paths)
    judged = list(judge_jobs(jobs, ReplayOptions()))
    seconds = time.monotonic() - begin_s
    verdicts = [run.body for job in judged for run in job.runs]
    told = [_told(incident) for verdict in verdicts for incident in verdict["incidents"]]
    return Outcome(
        labels=tuple(verdict["label"] for verdict in verdicts),
        told=tuple(sorted(told, key=lambda one: one.certainty != "confirmed")),
        notes=tuple(f"{one['kind']}@{one['iteration']}" for v in verdicts for one in v["annotations"]),
        iterations=_iterations(paths) if verdicts else (),
        unreadable="; ".join(job.unreadable for job in judged if job.unreadable),
        seconds=seconds,
    )


def _told(incident: Mapping[str, Any]) -> Told:
    first = incident["first"]
    return Told(
        label=incident["label"],
        certainty=incident["certainty"],
        pattern=incident["pattern"],
        iteration=first["iteration"],
        last_clean=first["interval"][0],
        first_bad=first["interval"][1],
        metric=first["metric"],
    )


def _iterations(paths: Sequence[Path]) -> tuple[int, ...]:
    seen: set[int] = set()
    for job in find_jobs(paths):
        source = FileSource(job)
        try:
            while not source.is_exhausted:
                for batch in source.poll(1.0):
                    seen.update(batch.iteration_N.tolist())
        except UnreadableInput:
            pass  # told by the outcome; what came before still counts
        finally:
            source.close()
    return tuple(sorted(seen))

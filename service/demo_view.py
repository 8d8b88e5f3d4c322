"""What the demo shows: a table that lives on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from .ink import Ink, clean, ink_for, pad, wrap
from .plot import sparkline
from .rank_words import rank_words
from .recordings import Recording
from .sentence import LABEL_WORDS, root_incident

if TYPE_CHECKING:
    from rich.live import Live

_SPARK = 16
_MAX_SENTENCES = 6
_PLAIN_EVERY = 0.1
"""Share of a recording after which a plain line is printed."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What there is to show: per run how many lines are sent and the newest verdict, and what was said."""

    recordings: Sequence[Recording]
    sent: Mapping[str, int]
    verdicts: Mapping[str, Mapping[str, Any]]
    sentences: Sequence[str]
    title: str
    is_streaming: bool


class View(Protocol):
    """Shows moments; a context manager, so that a terminal is left as it was."""

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, moment: Moment) -> None:
        """Show the state of things now."""
        ...


def view_for_terminal() -> View:
    """A live table where standard output is a terminal, else plain lines."""
    return LiveView(ink_for(sys.stdout)) if sys.stdout.isatty() else PlainView()


def table_lines(moment: Moment, ink: Ink) -> list[str]:
    """The live table: a row a run with its progress, its curve and what is thought of it, then sentences."""
    lines = [ink.paint("firstfault demo", "bold") + ink.paint(f"   {clean(moment.title, 60)}", "dim"), ""]
    lines.append(ink.paint("  " + _row("run", "sent", "judged", "loss", "verdict"), "dim"))
    for recording in moment.recordings:
        verdict = moment.verdicts.get(recording.run)
        words, style = _verdict_words(verdict, moment)
        sent = moment.sent[recording.run]
        width = max(1, round(_SPARK * sent / len(recording.lines)))
        curve = sparkline(recording.losses(sent), ink, width)
        judged_to = None if verdict is None else verdict["judged_to_iteration"]
        judged = "" if judged_to is None else str(judged_to)
        row = _row(clean(recording.run, 12), _place(recording, moment), judged, curve, "")
        lines.append("  " + row + ink.paint(words, style))
    lines.append("")
    for sentence in moment.sentences[-_MAX_SENTENCES:]:
        mark = ink.either("▸", ">")
        lines += [ink.paint(line, "bold", "red") for line in wrap(clean(sentence, 400), f"{mark} ", "  ")]
    if moment.is_streaming:
        doing = "streaming two recorded runs; a worker in a process of its own judges them"
    else:
        doing = "all records are sent; the worker judges what is left"
    return [*lines, ink.paint(doing, "dim")]


class LiveView:
    """Redraws the table in place."""

    def __init__(self, ink: Ink) -> None:
        self._ink = ink
        self._live: Live | None = None

    def __enter__(self) -> LiveView:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(width=None, highlight=False), auto_refresh=False, transient=True)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._live is not None
        self._live.stop()

    def show(self, moment: Moment) -> None:
        from rich.text import Text

        assert self._live is not None
        text = Text.from_ansi("\n".join(table_lines(moment, self._ink)))
        text.no_wrap = True
        self._live.update(text, refresh=True)


class PlainView:
    """A line a run for each tenth of it, and each sentence as it comes."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}
        self._sentences = 0

    def __enter__(self) -> PlainView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, moment: Moment) -> None:
        for sentence in moment.sentences[self._sentences :]:
            self._print("\n".join(wrap(clean(sentence, 400), "> ", "  ")))
        self._sentences = len(moment.sentences)
        for recording in moment.recordings:
            tenth = int(moment.sent[recording.run] / len(recording.lines) / _PLAIN_EVERY + 1e-9)
            if tenth != self._told.get(recording.run):
                self._told[recording.run] = tenth
                words, _ = _verdict_words(moment.verdicts.get(recording.run), moment)
                self._print(
                    f"{clean(recording.run, 20)}: iteration {_place(recording, moment)} sent; {words}"
                )

    def _print(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _row(run: str, iteration: str, judged: str, curve: str, verdict: str) -> str:
    return "  ".join((pad(run, 12), pad(iteration, 7), pad(judged, 6), pad(curve, _SPARK), verdict))


def _place(recording: Recording, moment: Moment) -> str:
    sent = moment.sent[recording.run]
    return f"{recording.iterations[sent - 1] if sent else 0}/{recording.last_iteration}"


def _verdict_words(verdict: Mapping[str, Any] | None, moment: Moment) -> tuple[str, str]:
    """A few words and their colour."""
    if verdict is None or verdict["label"] == "undetermined":
        return "warming up", "dim"
    root = root_incident(verdict)
    if root is None or root["certainty"] != "confirmed":
        return ("healthy so far" if moment.is_streaming else "healthy"), "green"
    ranks = [int(rank) for rank in root["first"]["ranks"]]
    who = f", rank {rank_words(ranks, len(ranks), limit=1)}" if ranks else ""
    return f"{LABEL_WORDS[str(verdict['label'])]}{who} at {root['first']['iteration']}", "red"

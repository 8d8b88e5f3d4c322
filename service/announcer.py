"""What is said of runs while their logs grow: each incident once, again when it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .ink import clean
from .offline import JudgedRun
from .sentence import LABEL_WORDS, Incident, incident_sentence, recovered_sentence, what_happened


@dataclass(slots=True)
class _Told:
    """What was said of one run."""

    incidents: dict[str, Incident] = field(default_factory=dict)
    """By id, as each was when it was last spoken of."""
    attempts: int = 0
    last: int | None = None


class Announcer:
    """Turns verdicts of growing logs into announcements.

    A run that is judged again and again says nothing until something changes that a person would act on:
    a suspicion, its confirmation, recovery or withdrawal, another label, ranks that become known, a restart.
    """

    def __init__(self, say: Callable[[str], None], *, as_json: bool = False) -> None:
        """``say`` takes one line; with ``as_json`` it is the verdict that holds the news."""
        self._say, self._as_json = say, as_json
        self._told: dict[tuple[str, str], _Told] = {}

    def take(self, job: str, run: JudgedRun) -> bool:
        """Say what is new of a run; whether anything was."""
        body = run.body
        key = job, run.verdict.run
        is_first = key not in self._told
        told = self._told.setdefault(key, _Told())
        news = list(_news(body, told))
        if is_first and not news:
            news = [what_happened(body)]
        told.attempts = len(body.get("attempts", []))
        told.last = body.get("judged_to_iteration")
        for words in [run.line] if self._as_json and news else news:
            self._say(words if self._as_json else f"{clean(run.verdict.run)}: {words}")
        return bool(news)

    def standing(self) -> str:
        """All runs in a few words, for a line that is redrawn."""
        words = [
            f"{clean(run, 30)} at iteration {'?' if told.last is None else told.last}"
            for (_, run), told in list(self._told.items())[:3]
        ]
        more = len(self._told) - len(words)
        return ", ".join(words) + (f" and {more} more" if more > 0 else "")


def _news(verdict: Mapping[str, Any], told: _Told) -> Iterator[str]:
    attempts = verdict.get("attempts", [])
    if told.attempts and len(attempts) > told.attempts:
        yield f"attempt {attempts[-1]['attempt']} began at iteration {attempts[-1]['from']}."
    present = {str(one["id"]): one for one in verdict["incidents"]}
    known = {_place(one) for one in told.incidents.values()}
    for name, one in present.items():
        before = told.incidents.get(name)
        if before is None and _place(one) in known:
            told.incidents[name] = one  # another was found before it: only its number changed
        elif before is None or _is_news(before, one):
            told.incidents[name] = one
            yield _words(one, verdict)
    for name in [name for name in told.incidents if name not in present]:
        gone = told.incidents.pop(name)
        if gone["certainty"] != "recovered" and _place(gone) not in {_place(one) for one in present.values()}:
            since = gone["first"]["iteration"]
            yield f"withdrawn: later records explain the {_label(gone)} since iteration {since}."


def _is_news(before: Incident, now: Incident) -> bool:
    """Whether an incident is something else than when it was last spoken of."""
    if before["certainty"] != now["certainty"]:
        # a suspicion that is let go and comes back is one suspicion
        return not (before["certainty"] == "confirmed" and now["certainty"] == "suspected")
    if now["certainty"] != "confirmed":
        return False
    return before["label"] != now["label"] or (not before["first"]["ranks"] and bool(now["first"]["ranks"]))


def _place(one: Incident) -> tuple[object, ...]:
    first = one["first"]
    return first.get("attempt"), one["label"], one["certainty"], first.get("metric"), tuple(first["ranks"])


def _words(one: Incident, verdict: Mapping[str, Any]) -> str:
    if one["certainty"] == "confirmed":
        return f"{_label(one)}. {incident_sentence(one, verdict)}"
    if one["certainty"] == "suspected":
        return f"not confirmed yet: {incident_sentence(one, verdict)}"
    return f"recovered: {recovered_sentence(one, verdict)}"


def _label(one: Incident) -> str:
    return LABEL_WORDS.get(str(one["label"]), str(one["label"]))

"""Why an incident is believed, what it costs and what to do: the named lines of the plain report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .ink import WIDTH, Ink, clean, pad, wrap
from .rank_words import rank_words
from .sentence import LABEL_WORDS, Incident

_FIELD = 13
"""Columns of a line's name, ``Not checked`` and a gap."""
_MAX_CAUSES = 3
_MAX_SUSPECTS = 3


def field(name: str, text: str, ink: Ink) -> list[str]:
    """A name and its text, wrapped beside it."""
    lines = wrap(text, first="  " + pad(name, _FIELD), rest=" " * (_FIELD + 2))
    lines[0] = "  " + ink.paint(pad(name, _FIELD), "dim") + lines[0][_FIELD + 2 :]
    return lines


def reasons(root: Incident, ink: Ink) -> list[str]:
    """Causes, suspects, what followed, the last good state, the cost and the advice."""
    first = root["first"]
    lines: list[str] = []
    for at, cause in enumerate(root.get("causes", [])[:_MAX_CAUSES]):
        lines += field("Cause" if at == 0 else "  or", cause_words(cause), ink)
    lines += field("Certainty", f"{root['certainty']}, first alarm at iteration {_detected(root)}", ink)
    for at, suspect in enumerate([s for s in first.get("suspects", []) if s.get("why")][:_MAX_SUSPECTS]):
        lines += field("Why" if at == 0 else "", f"rank {suspect['rank']}: {clean(suspect['why'], 400)}", ink)
    if first.get("note"):
        lines += field("Note", clean(first["note"], 400), ink)
    lines += field("Victims", victim_words(first), ink) if first.get("victims") else []
    chain = [f"{label_of(link)} at iteration {link['iteration']}" for link in root.get("chain", [])[1:]]
    lines += field("Then", ", ".join(chain), ink) if chain else []
    lines += field("Last good", last_good_words(root.get("last_good") or {}), ink)
    cost = cost_words(root.get("cost") or {})
    lines += field("Cost", cost, ink) if cost else []
    for at, advice in enumerate(root.get("advice", [])):
        lines += _advice_lines(advice, ink, is_first=at == 0)
    return lines


def _detected(root: Incident) -> object:
    return root.get("detected_at_iteration", "?")


def label_of(link: Mapping[str, Any]) -> str:
    """The label of a link of the chain, in words."""
    return LABEL_WORDS.get(str(link["label"]), str(link["label"]))


def victim_words(first: Mapping[str, Any]) -> str:
    """The ranks that turned bad after the first."""
    victims = [int(rank) for rank in first["victims"]]
    listed = rank_words(victims, int(first.get("victim_count") or 0))
    did = "waited" if first.get("metric") == "heartbeat" else "turned bad after it"
    return f"{'rank' if len(victims) == 1 else 'ranks'} {listed} {did}"


def cause_words(cause: Mapping[str, Any]) -> str:
    """Kind and stage of a cause, how sure it is, and why."""
    words = clean(str(cause["kind"]).replace("_", " "))
    if cause.get("stage") not in (None, "", "unknown"):
        words += f", {clean(str(cause['stage']).replace('_', ' '))}"
    if cause.get("confidence") is not None:
        words += f" (confidence {float(cause['confidence']):.0%})"
    because = "; ".join(clean(reason, 300) for reason in cause.get("because", []))
    return f"{words}: {because}" if because else words


def last_good_words(last_good: Mapping[str, Any]) -> str:
    """The last state that is known to be good, and what to restore."""
    if last_good.get("iteration") is None:
        return "unknown: no iteration is known to be clean"
    words = f"iteration {last_good['iteration']}"
    if last_good.get("basis"):
        words += f" ({clean(str(last_good['basis']).replace('_', ' '))})"
    if not last_good.get("checkpoint"):
        return f"{words}; no checkpoint up to it was reported"
    at = last_good.get("checkpoint_iteration")
    of = f" (of iteration {at})" if at is not None else ""
    return f"{words}; restore {clean(last_good['checkpoint'], 200)}{of}"


def cost_words(cost: Mapping[str, Any]) -> str:
    """What the fault has cost so far; empty if it is not known."""
    words = []
    if cost.get("iterations_since_onset"):
        low, high = cost["iterations_since_onset"]
        span = f"{low}" if low == high else f"at least {low}" if high is None else f"{low} to {high}"
        words.append(f"{span} iterations since the onset")
    if cost.get("iterations_to_redo") is not None:
        words.append(f"{cost['iterations_to_redo']} to redo")
    if cost.get("device_hours") is not None:
        words.append(f"{float(cost['device_hours']):.3g} device hours")
    return ", ".join(words)


def _advice_lines(advice: Mapping[str, Any], ink: Ink, *, is_first: bool) -> list[str]:
    action = clean(str(advice["action"]).replace("_", " "), 200)
    target = f": {clean(advice['target'], 120)}" if advice.get("target") else ""
    lines = field("What to do" if is_first else "", f"{ink.either('•', '-')} {action}{target}", ink)
    if advice.get("command"):
        lines += [ink.paint(line, "cyan") for line in _command_lines(clean(advice["command"], 400))]
    return lines


def _command_lines(command: str) -> list[str]:
    """A command to copy: broken with a backslash, and not at all where a break could fall into quotes."""
    start, rest = " " * (_FIELD + 4) + "$ ", " " * (_FIELD + 8)
    if "'" in command or '"' in command or "\\" in command:
        return [start + command]
    lines = wrap(command, first=start, rest=rest, width=WIDTH - 2)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]

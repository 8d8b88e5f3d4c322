"""How sentences are written down, and what a form alone cannot say of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from firstfault.telemetry import EventKind

from .hardware_lines import read_hardware_line
from .sentences import Amend, Finding, Place, Sentence, nonfinite_of

NUM = r"[-+]?(?:\d[\d,]{0,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,4})?"
"""A number; unambiguous and bounded, so that no form looks at a digit twice."""
BAD = r"(?P<value>\+?-?inf(?:inity|inite)?(?: or nan)?|nan(?: or inf(?:inite)?)?|not finite|non-?finite)"
_COUNTED = re.compile(r"(?i)(?:iter|step|epoch|batch|update)\w*[\]\[ :=#]{0,3}\d|\w[:=] ?\d")
_WORD_BEFORE = re.compile(r"[a-z_]* ?$")
_CONDITION = re.compile(
    r"\b(?:if|when|unless|whether|until|check(?:s|ing)?|case|should|where|avoid|prevent|no)\b"
)


def value(metric: str) -> Amend:
    """The group ``value`` as that metric."""

    def amend(finding: Finding, groups: Mapping[str, str]) -> Finding | None:
        value = nonfinite_of(groups.get("value", "nan"))
        return replace(finding, metrics={**finding.metrics, metric: value})

    return amend


def loss(finding: Finding, groups: Mapping[str, str]) -> Finding | None:
    """A loss said to be non-finite; of validation under its own name; conditions are no statements."""
    before = groups["before"].lower()
    if _CONDITION.search(before):
        return None
    word = _WORD_BEFORE.search(before)
    name = groups.get("of", word[0] if word else "").lower()
    is_evaluation = name.startswith(("val", "eval", "test", "dev"))
    metric = "eval_loss" if is_evaluation else "loss"
    return replace(finding, metrics={metric: nonfinite_of(groups.get("value", "nan"))})


def not_if(finding: Finding, groups: Mapping[str, str]) -> Finding | None:
    """What stands behind a condition is no statement."""
    return None if _CONDITION.search(groups["before"].lower()) else finding


def loss_of_record(finding: Finding, groups: Mapping[str, str]) -> Finding | None:
    """The same where the line counts something or has other values: it is then about its own iteration."""
    return loss(finding, groups) if _COUNTED.search(groups["line"]) else None


def next_batch(finding: Finding, groups: Mapping[str, str]) -> Finding | None:
    return replace(finding, hint=int(groups["batch"]) + 1)


def product(finding: Finding, groups: Mapping[str, str]) -> Finding | None:
    scale = float(groups["scale"]) * float(groups.get("factor", 1))
    return replace(finding, fields={**finding.fields, "scale": scale})


def held(finding: Finding, _groups: Mapping[str, str]) -> Finding | None:
    """Hysteresis holds the scale where it was."""
    if "scale" in finding.fields or "previous" not in finding.fields:
        return finding
    return replace(finding, fields={**finding.fields, "scale": finding.fields["previous"]})


def validated(finding: Finding, groups: Mapping[str, str]) -> Finding | None:
    """A result that Megatron's rerun machine refused, before any reduction: by what its message names."""
    value, message = groups.get("value", "nan"), groups.get("message", "local grad norm").lower()
    if not re.match(r"(?i)tensor\(\[?(?:nan|-?inf)|-?inf|nan", value):
        return replace(finding, event=EventKind.HARDWARE, fields={"kind": "validation", "text": message})
    metric = "nonfinite_grad/checked" if "grad" in message else "nonfinite_loss/checked"
    return replace(finding, metrics={metric: 1.0})


_OUTCOMES = {
    "transient": ("fail", "the same device gave another result the second time"),
    "persistent": ("fail", "another device gave another result"),
    "correct": ("pass", "another device gave the same result"),
}


def rerun(finding: Finding, groups: Mapping[str, str]) -> Finding | None:
    """What a rerun of the iteration said of the device."""
    word = groups["outcome"].lower()
    known = {"first_rerun_not_reproducible": "transient", "second_rerun_not_reproducible": "persistent"}
    outcome = known.get(word, "correct" if word.startswith(("correct", "second_rerun_repro")) else word)
    if outcome not in _OUTCOMES:
        return validated(finding, groups) if word in ("initial_run", "rerun_disabled") else None
    result, text = _OUTCOMES[outcome]
    fields = {
        "kind": "diag",
        "code": outcome,
        "result": result,
        "source": "rerun of the iteration",
        "text": text,
    }
    return replace(finding, event=EventKind.HARDWARE, fields={**fields, "moment": "during"})


def site(finding: Finding, groups: Mapping[str, str]) -> Finding | None:
    metric = "nonfinite_grad" if groups.get("phase", "").lower() == "backward" else "nonfinite_act"
    return replace(finding, metrics={metric: 1.0})


def hardware(line: bytes) -> Finding | None:
    """A line about hardware as an event; of the rank that printed it where it names no other."""
    told = read_hardware_line(line)
    if told is None:
        return None
    return Finding(
        sentence="hardware",
        event=EventKind.HARDWARE,
        fields=told.fields(),
        rank=told.rank,
        host=told.host,
        time=told.time,
    )


def objective(finding: Finding, groups: Mapping[str, str]) -> Finding | None:
    """What is to be maximized, as a loss."""
    text = groups["value"].replace(",", "")
    return replace(finding, metrics={"loss": -float(text)})


def ended(finding: Finding, groups: Mapping[str, str]) -> Finding | None:
    status = groups.get("status", "").lower()
    return replace(finding, fields={"status": status or "done"})


def say(  # noqa: PLR0917  # a row of the table, whose columns are the same in all
    name: str,
    tool: str,
    meaning: str,
    clue: str | tuple[str, ...] | tuple[bytes, ...],
    form: str | None,
    example: str,
    *,
    reader: Callable[[bytes], Finding | None] | None = None,
    event: EventKind | None = None,
    fields: Mapping[str, object] | None = None,
    metrics: Mapping[str, float] | None = None,
    place: Place = Place.LAST,
    takes_line: bool = True,
    amend: Amend | None = None,
) -> Sentence:
    clues = (clue,) if isinstance(clue, str) else clue
    return Sentence(
        name=name,
        tool=tool,
        meaning=meaning,
        example=example,
        clues=tuple(each if isinstance(each, bytes) else each.encode() for each in clues),
        form=None if form is None else re.compile(form.encode()),
        reader=reader,
        event=event,
        fields=fields or {},
        metrics=metrics or {},
        place=place,
        takes_line=takes_line,
        amend=amend,
    )

"""Whether a log without an incident says enough to be called healthy.

The label of a verdict says what is visible in the telemetry: one record is enough to see that it is not
finite. That all values of a few records are finite says next to nothing, though, so that reports and the
exit status do not call such a run healthy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from firstfault.telemetry import Kind, contract_of, is_checksum
from ingest.file_reader import FileNotes

from .ink import clean
from .sentence import LABEL_WORDS, Verdict, incident_sentence, root_incident, what_happened

_OF_LITTLE = frozenset({"nonfinite", "stall"})
"""Checks that run on a single record: alone they say nothing of how the run goes."""
_NAMED = ("explosion", "curve_drift", "evaluation")
"""Checks whose reason is told, the first that could not run."""
_OF_CHECKSUMS = ("checksum_vote", "repeat", "agreement")
_OF_NUMBERS = ("evaluation", "agreement", "peer_outlier", "slowdown")
"""The same for logs without a curve."""
_UNTOLD = (Kind.SUPPORTING, Kind.CONTEXT)
"""Kinds of metrics that no check looks at by itself."""
_MAX_COLUMNS = 8
TOO_LITTLE = "too little to judge"
_SEVERITY = ("silent_drift", "nan", "gradient_explosion", "stall", "undetermined", "healthy")


def has_confirmed_incident(verdict: Verdict) -> bool:
    """Whether any incident is confirmed: what makes the exit status 1."""
    return any(incident["certainty"] == "confirmed" for incident in verdict["incidents"])


def severity(verdict: Verdict, notes: Sequence[FileNotes] = ()) -> int:
    """The place of a run in a list of several, the worst first."""
    label = "undetermined" if why_too_little(verdict, notes) else str(verdict["label"])
    return _SEVERITY.index(label) if label in _SEVERITY else len(_SEVERITY)


def tally(runs: Sequence[tuple[Verdict, Sequence[FileNotes]]]) -> str:
    """How many runs are faulty, healthy, or neither."""
    bad = sum(has_confirmed_incident(verdict) for verdict, _ in runs)
    unknown = sum(bool(why_too_little(verdict, notes)) for verdict, notes in runs)
    words = f"{len(runs)} runs: {bad} faulty, {len(runs) - bad - unknown} healthy"
    return words + (f", {unknown} {TOO_LITTLE}" if unknown else "")


def why_too_little(verdict: Verdict, notes: Sequence[FileNotes] = ()) -> str:
    """Why nothing can be said of a run, as a sentence without its full stop; empty if something can.

    Of a run with an incident something can always be said.
    """
    if has_confirmed_incident(verdict):
        return ""
    if verdict["label"] == "undetermined":
        return _nothing_judged(verdict, notes)
    if lost := _mostly_lost(notes) or next((note.doubt for note in notes if note.doubt), ""):
        return lost
    ran = {str(check["name"]) for check in verdict["coverage"]["checks"] if check["state"] == "ran"}
    if ran - _OF_LITTLE:
        return ""
    is_clean = not verdict["incidents"] and not verdict.get("annotations")
    words = "all values are finite, and no check of their course" if is_clean else "no check of the course"
    return f"{words} could run{_reason(verdict['coverage'])}"


def headline(verdict: Verdict, notes: Sequence[FileNotes] = ()) -> str:
    """The sentence that says what happened, with the name of the run and its label."""
    return f"{clean(verdict['run'])}: {label_words(verdict, notes)}. {happened(verdict, notes)}"


def label_words(verdict: Verdict, notes: Sequence[FileNotes] = ()) -> str:
    """The label as reports show it."""
    if verdict["label"] == "healthy" and why_too_little(verdict, notes):
        return TOO_LITTLE
    return LABEL_WORDS.get(str(verdict["label"]), str(verdict["label"]))


def happened(verdict: Verdict, notes: Sequence[FileNotes] = ()) -> str:
    """What happened, or why that cannot be told."""
    why = why_too_little(verdict, notes)
    if not why:
        return what_happened(verdict)
    root = root_incident(verdict)
    doubt = ""
    if root is not None and root["certainty"] == "suspected":
        doubt = f" Not confirmed: {incident_sentence(root, verdict)}"
    return f"{why[0].upper()}{why[1:]}.{doubt}"


def _nothing_judged(verdict: Verdict, notes: Sequence[FileNotes]) -> str:
    """What was there instead of anything that a check could look at, and how to name it."""
    metrics = [str(name) for name in verdict["coverage"].get("metrics", [])]
    if any(contract_of(name).kind not in _UNTOLD for name in metrics):
        checks = _OF_CHECKSUMS if any(map(is_checksum, metrics)) else _OF_NUMBERS
        return f"no check could run{_reason(verdict['coverage'], checks)}"
    pairs = ((name, read, note) for note in notes for name, read in note.understood.columns)
    names = list(dict.fromkeys(name for name, read, note in pairs if read in note.metrics)) or metrics
    if not names:
        return "no check could run: no metric was recognised"
    listed = ", ".join(clean(name, 30) for name in names[:_MAX_COLUMNS])
    more = f" and {len(names) - _MAX_COLUMNS} more" if len(names) > _MAX_COLUMNS else ""
    words = f"no check could run: nothing among {listed}{more} is known as a loss, a norm or a checksum"
    return f"{words} (if one is, name it: --column loss=NAME)"


def _mostly_lost(notes: Sequence[FileNotes]) -> str:
    records, rejected = sum(note.rows for note in notes), sum(note.rejected for note in notes)
    if rejected <= records:
        return ""
    return f"most of it was not understood: {rejected} records were rejected, {records} read"


def _reason(coverage: Mapping[str, Any], checks: Sequence[str] = _NAMED) -> str:
    whys = {str(check["name"]): check.get("why") for check in coverage["checks"] if check["state"] != "ran"}
    why = next((whys[name] for name in checks if whys.get(name)), None)
    return f": {clean(why, 200)}" if why else ""

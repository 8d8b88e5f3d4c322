"""A verdict in one sentence: what happened, on which rank, since which iteration.

Works on the verdict's JSON, so that whatever reads a stored verdict says the same words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .hang_words import LAST_WORDS, hang_words, pause_words
from .ink import clean
from .metric_words import METRIC_WORDS, NONFINITE_WORDS
from .rank_words import rank_words
from .reduction_words import reduction_of, reduction_subject, reduction_what
from .reference_words import reference_what

# Any: the verdict's JSON, whose shape detectors/verdict.schema.json fixes.
Verdict = Mapping[str, Any]
Incident = Mapping[str, Any]

LABEL_WORDS: Mapping[str, str] = {
    "healthy": "healthy",
    "gradient_explosion": "gradient explosion",
    "nan": "NaN",
    "silent_drift": "silent drift",
    "stall": "stall",
    "undetermined": "undetermined",
}

_WHAT: Mapping[str, str] = {
    "replica_divergence": "{reports} another {metric} than the {other replicas}",
    "compute_mismatch": "{computes} another {metric} than {its} peers",
    "collective_mismatch": "{reports} another {metric} than the {others}",
    "utilization_drop": "{slows} down",
}
"""Predicates of faults that ranks have; a verb in braces follows the number of the subject."""
_WHAT_OF_METRIC: Mapping[tuple[str, str], str] = {
    ("replica_divergence", "param_checksum"): "{holds} other {scope}parameters than the {other replicas}",
    (
        "replica_divergence",
        "optim_checksum",
    ): "{holds} another {scope}optimizer state than the {other replicas}",
    ("collective_mismatch", "grad_checksum"): "{holds} other {scope}reduced gradients than the {others}",
    ("collective_mismatch", "data_checksum"): "{reads} other data than the ranks {it} {computes} with",
    ("compute_mismatch", "canary_checksum"): "{computes} another canary than {its} peers",
    ("compute_mismatch", "canary_loss"): "{computes} another canary than {its} peers",
    ("compute_mismatch", "repeat_checksum"): "{gets} another result when {it} {repeats} a computation",
}
_CURVE_WHAT: Mapping[str, str] = {
    "runaway": "grows without end",
    "sharp_degrade": "jumps up",
    "peer_drift": "drifts away from that of the peers",
    "slow_degrade": "gets slowly worse",
    "sharp_slow_degrade": "steps up and does not come back",
    "plateau": "stops improving",
    "stuck": "repeats one value",
    "low_test_accuracy": "got worse and stays so while training goes on",
}
"""Predicates of faults that a curve has: the metric is their subject."""
_CANARY_WHAT: Mapping[str, str] = {
    **_CURVE_WHAT,
    "slow_degrade": "no longer falls as it did",
}
"""The same of the loss of a fixed batch, of which a mere slowing can be seen."""
_NONFINITE = frozenset({"immediate_nonfinite", "short_nonfinite"})
_VERB = re.compile(r"\{(\w+?)s\}")


def headline(verdict: Verdict) -> str:
    """The sentence that says what happened: ``llama-7b: silent drift. Rank 3 holds …``."""
    label = str(verdict["label"])
    return f"{clean(verdict['run'])}: {LABEL_WORDS.get(label, label)}. {what_happened(verdict)}"


def what_happened(verdict: Verdict) -> str:
    """The headline where name and label of the run stand beside it: ``Rank 3 holds …``."""
    root = root_incident(verdict)
    if root is not None and root["certainty"] == "confirmed":
        return incident_sentence(root, verdict) + _later(root, verdict)
    if verdict["label"] == "undetermined":
        return _why_undetermined(verdict)
    tail = ""
    if root is not None and root["certainty"] == "suspected":
        tail = f" Not confirmed: {incident_sentence(root, verdict)}{_doubt(root)}"
    elif root is not None:
        tail = f" {recovered_sentence(root, verdict)}"
    return f"No fault visible up to iteration {_judged_to(verdict)}.{tail}"


def recovered_sentence(incident: Incident, verdict: Verdict) -> str:
    """What left its course, when, and that it came back."""
    if incident["pattern"] == "hang":
        return pause_words(incident)
    metric = clean(METRIC_WORDS.get(str(incident["first"]["metric"]), incident["first"]["metric"]))
    whose = f"{metric}{_of_whom(incident, verdict)}"
    return f"The {whose} left its course at iteration {incident['first']['iteration']} and recovered."


def _doubt(incident: Incident) -> str:
    """Why what was seen long enough is not confirmed, where the detector says so."""
    evidence = incident.get("evidence") or [{}]
    reason = clean((evidence[0].get("detail") or {}).get("why_not_confirmed") or "", 200)
    return f" {reason[0].upper()}{reason[1:]}." if reason else ""


def _later(root: Incident, verdict: Verdict) -> str:
    """That the last attempt went well, where the fault was in one before it."""
    last = verdict["attempts"][-1] if verdict.get("attempts") else None
    if last is None or last["label"] != "healthy" or last["attempt"] <= root["first"].get("attempt", 0):
        return ""
    return f" Attempt {last['attempt']} shows no fault up to iteration {last['to']}."


def incident_sentence(incident: Incident, verdict: Verdict) -> str:
    """Who, what, since when: ``Rank 3 (host n7) has a non-finite loss since iteration 700.``"""
    first = incident["first"]
    pattern, metric = str(incident["pattern"]), str(first.get("metric") or "")
    if metric == "joint":
        what = "no longer go together as those of the peers do"
        return f"The metrics{_of_whom(incident, verdict)} {what} {since(first, is_curve=True)}."
    if pattern in _CURVE_WHAT:
        curve = clean(METRIC_WORDS.get(metric, metric) or "curve")
        words = _CANARY_WHAT if metric == "canary_loss" else _CURVE_WHAT
        what = words[pattern] + (" and stays there" if _stayed(incident) else "")
        if metric == "loss_scale":
            what = "falls step after step, and no update is made"
        return f"The {curve}{_of_whom(incident, verdict)} {what} {since(first, is_curve=True)}."
    who, is_plural = subject(incident, verdict)
    if pattern in _NONFINITE:
        what = _nonfinite_what(incident, metric, pattern)
    elif told := reference_what(incident):
        what = told.replace("{metric}", _plain(metric))
    elif reduction_of(incident):
        what = reduction_what(incident)
    elif pattern == "hang":
        what = hang_words(incident)
    elif _is_shared_data(incident):
        what = "{reads} the same data"
    else:
        what = _what(pattern, metric)
    return f"{who} {_conjugated(what, first, is_plural=is_plural)} {since(first)}."


def change_sentence(kind: str, incident: Incident, before: Incident | None, verdict: Verdict) -> str:
    """What the worker says when a stored incident is new, worse, moved or withdrawn; empty when nothing is.

    A run whose incident only gets more evidence is not told again.
    """
    run = clean(verdict["run"])
    label = LABEL_WORDS.get(str(incident["label"]), str(incident["label"]))
    if kind == "withdrawn":
        return f"{run}: {label} withdrawn. What comes later explains it."
    if kind == "changed" and before is not None and _essence(before) == _essence(incident):
        return ""
    doubt = "" if incident["certainty"] == "confirmed" else f"{incident['certainty']} "
    return f"{run}: {doubt}{label}. {incident_sentence(incident, verdict)}"


def _essence(incident: Incident) -> tuple[object, ...]:
    first = incident["first"]
    return incident["label"], incident["certainty"], first["ranks"], first["iteration"], first["metric"]


def subject(incident: Incident, verdict: Verdict) -> tuple[str, bool]:
    """The ranks at fault in words, and whether the verb takes the plural."""
    if named := reduction_subject(incident):
        return named, False
    first = incident["first"]
    ranks = [int(rank) for rank in first.get("ranks", [])]
    count = int(first.get("rank_count", len(ranks)) or 0)
    # Of ranks that turned non-finite together each is bad, whoever began; of a difference only one side is.
    is_tie = bool(first.get("tie")) and not _is_shared_data(incident)
    if not ranks:
        known = int(verdict["coverage"].get("ranks", 0) or 0)
        if first.get("scope") == "all" and known > 1:
            if not is_tie or incident["pattern"] in _NONFINITE:
                return (
                    f"All {count} ranks that report it" if 1 < count < known else f"All {known} ranks"
                ), True
            if known == 2:
                return "One of the 2 ranks (they cannot be told apart)", False
            return f"Some of the {known} ranks (there is no majority)", True
        return "The run", False
    if len(ranks) == 1:
        return f"Rank {ranks[0]}{_host(first, ranks[0])}", False
    listed = rank_words(ranks, count)
    return (
        (f"One of ranks {listed} (they cannot be told apart)", False) if is_tie else (f"Ranks {listed}", True)
    )


def since(first: Mapping[str, Any], *, is_curve: bool = False) -> str:
    """``since iteration 1200 (between 1190 and 1200)``, with the attempt where it is not the first."""
    interval = first.get("interval") or [None, None]
    low, high = interval[0], interval[1]
    attempt = f" of attempt {first['attempt']}" if first.get("attempt") else ""
    when = "at" if first.get("metric") == LAST_WORDS else "since"
    words = f"{when} iteration {first['iteration']}{attempt}"
    if low is None:
        never = "(or earlier)" if is_curve else "(it was never seen clean before)"
        return f"{words} {never}" if high is not None else words
    return f"{words} (between {low} and {high})" if high is not None and high - low > 1 else words


def root_incident(verdict: Verdict) -> Incident | None:
    """The first confirmed incident, else the first suspected, else the first recovered, else None."""
    for certainty in ("confirmed", "suspected", "recovered"):
        for incident in verdict["incidents"]:
            if incident["certainty"] == certainty:
                found: Incident = incident
                return found
    return None


def _of_whom(incident: Incident, verdict: Verdict) -> str:
    """`` of rank 3``; nothing when the telemetry says nothing about ranks."""
    who, _ = subject(incident, verdict)
    return "" if who == "The run" else f" of {who[0].lower()}{who[1:]}"


def _what(pattern: str, metric: str) -> str:
    """The predicate of the sentence, its verbs and pronouns in braces."""
    base, _, scope = metric.partition("/")
    words = _WHAT_OF_METRIC.get((pattern, base)) or _WHAT.get(pattern, "{is} faulty in {metric}")
    name = METRIC_WORDS.get(metric, metric or "the reports")
    scope = f"{scope} " if scope and "{scope}" in words else ""
    return words.replace("{metric}", _plain(name)).replace("{scope}", _plain(scope.replace("_", " ")))


def _nonfinite_what(incident: Incident, metric: str, pattern: str) -> str:
    """Whether the ranks have the value, or must have made that of others non-finite."""
    first, evidence = incident["first"], incident.get("evidence") or [{}]
    base = metric.partition("/")[0]
    if base == "skipped":
        return "{skips} step after step"
    seen = set(evidence[0].get("ranks") or first.get("ranks", []))
    has = not first.get("ranks") or (not first.get("tie") and seen.issuperset(first["ranks"]))
    verb = "{has}" if has else "{makes}"
    if base in NONFINITE_WORDS:
        what = NONFINITE_WORDS[base]
        what = f"{verb} non-finite {what}" if has else f"{verb} {what} non-finite"
    else:
        name = _plain(METRIC_WORDS.get(metric, metric or "value"))
        what = f"{verb} a non-finite {name}" if has else f"{verb} the {name} non-finite"
    return f"{what} for a short while" if pattern == "short_nonfinite" else what


def _conjugated(words: str, first: Mapping[str, Any], *, is_plural: bool) -> str:
    """``words`` in the number of the subject."""
    count = int(first.get("rank_count") or 0)  # a tie of two is between a rank and one other
    for many in ("others", "other replicas"):
        words = words.replace(f"{{{many}}}", many[:-1] if first.get("tie") and count == 2 else many)
    if is_plural:
        words = words.replace("{it}", "they").replace("{its}", "their").replace("{has}", "have")
        return _VERB.sub(r"\1", words)
    words = words.replace("{it}", "it").replace("{its}", "its")
    return words.replace("{", "").replace("}", "")


def _plain(text: str) -> str:
    """A name from telemetry, which may hold braces, as part of a template."""
    return clean(text).replace("{", "(").replace("}", ")") if text.strip() else text


def _is_shared_data(incident: Incident) -> bool:
    """Whether ranks must differ and do not, so that all of them are concerned."""
    evidence = incident.get("evidence") or [{}]
    return "distinct" in str((evidence[0].get("detail") or {}).get("relation", ""))


def _stayed(incident: Incident) -> bool:
    """Whether a jump was waited for and did not come back."""
    evidence = incident.get("evidence") or [{}]
    detail = evidence[0].get("detail") or {}
    return incident["pattern"] == "sharp_degrade" and detail.get("confirmed_by") == "no recovery"


def _judged_to(verdict: Verdict) -> str:
    judged = verdict.get("judged_to_iteration")
    return "?" if judged is None else str(judged)


def _host(first: Mapping[str, Any], rank: int) -> str:
    for suspect in first.get("suspects", []):
        if suspect.get("rank") == rank and suspect.get("host"):
            device = f", device {clean(suspect['device'])}" if suspect.get("device") else ""
            return f" (host {clean(suspect['host'])}{device})"
    return ""


def _why_undetermined(verdict: Verdict) -> str:
    reasons = [str(check["why"]) for check in verdict["coverage"]["checks"] if check.get("why")]
    return (
        f"No check could run: {clean(reasons[0], 200)}."
        if reasons
        else "No check could run on what it reported."
    )

"""`firstfault what-if`: the same records under two settings, and what becomes of each incident."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.errors import UnreadableInput

from .config import Settings, load_settings, with_changes
from .edge import asked
from .errors import ConfigError
from .ink import clean
from .sentence import incident_sentence, what_happened
from .verdict_difference import Difference, Kind, difference

# Any: JSON objects: verdicts, and answers of the API.
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfRequest:
    """The command's arguments as they were given."""

    target: str
    changes: tuple[str, ...] = ()
    """``NAME=VALUE`` each."""
    config: Path | None = None
    """The settings to try."""
    base: Path | None = None
    """Those to compare with; the defaults without."""
    run: str | None = None
    kafka: str | None = None
    url: str
    token: str | None = None
    as_json: bool = False


def run_what_if(request: WhatIfRequest) -> int:
    """Tell what becomes of each incident; 0 if nothing does, 1 if anything, as `compare` has it.

    Raises:
        ConfigError: the settings cannot be, or the service refuses.
        UnreadableInput: the log, or the topic, does not hold the run.
    """
    changes = dict(_setting(text) for text in request.changes)
    is_log = Path(request.target).exists() and request.kafka is None
    if is_log or request.kafka is not None:
        before, after = _settings(request, changes)
        told = (_of_logs if is_log else _of_topic)(request, before, after)
    else:
        if request.config is not None or request.base is not None:
            raise ConfigError(f"{request.target}: is no file; of a run of the service give settings by --set")
        told = [_of_service(request, changes)]
    for one in told:
        sys.stdout.write((json.dumps(one) if request.as_json else _words(one)) + "\n")
    return int(any(part["kind"] != Kind.STAYS for one in told for part in one["differences"]))


def _settings(request: WhatIfRequest, changes: Mapping[str, object]) -> tuple[Settings, Settings]:
    kafka: dict[str, object] = {} if request.kafka is None else {"kafka.bootstrap": request.kafka}
    before = load_settings(request.base, overrides=kafka)
    after = before if request.config is None else load_settings(request.config, overrides=kafka)
    after = with_changes(after, changes) if changes else after
    if (after.detectors, after.pipeline) == (before.detectors, before.pipeline):
        raise ConfigError("both settings are the same: give others by --set NAME=VALUE or --config FILE")
    return before, after


def _of_logs(request: WhatIfRequest, before: Settings, after: Settings) -> list[Json]:
    first, second = (_judged(request, settings) for settings in (before, after))
    return [_answer(first[name], second[name]) for name in first if name in second]


def _judged(request: WhatIfRequest, settings: Settings) -> dict[str, Json]:
    """The verdict of every run in the log."""
    from .inputs import find_inputs, without_strangers
    from .offline import ReplayOptions, judge_jobs

    with find_inputs([request.target]) as inputs:
        options = ReplayOptions(
            settings=settings, run=request.run, reports=inputs.reports, is_plotted=False, stdin=None
        )
        judged = without_strangers([*inputs.missing, *judge_jobs(inputs.jobs, options)], inputs.passed)
    for job in judged:
        if job.unreadable:
            raise UnreadableInput(job.unreadable)
    return {run.verdict.run: run.body for job in judged for run in job.runs}


def _of_topic(request: WhatIfRequest, before: Settings, after: Settings) -> list[Json]:
    from detectors.verdict import to_json

    from .what_if_topic import judged_from_topic

    return [_answer(*(to_json(one) for one in judged_from_topic(request.target, before, after)))]


def _of_service(request: WhatIfRequest, changes: Mapping[str, object]) -> Json:
    if not changes:
        raise ConfigError(f"{request.target}: is no file; of a run of the service give --set NAME=VALUE")
    with asked(request.url, request.token) as client:
        told = client.what_if(request.target, changes)
    return {"run": request.target, **{name: told[name] for name in ("before", "after", "differences")}}


def _answer(before: Json, after: Json) -> Json:
    """The same shape as the API's."""
    return {
        "run": before["run"],
        **{
            name: {"label": one["label"], "sentence": what_happened(one)}
            for name, one in (("before", before), ("after", after))
        },
        "differences": [_part(one, before, after) for one in difference(before, after)],
    }


def _part(one: Difference, before: Json, after: Json) -> Json:
    sides = {"before": (one.before, before), "after": (one.after, after)}
    return {
        "kind": str(one.kind),
        **{
            name: None
            if incident is None
            else {
                **{key: incident[key] for key in ("id", "label", "pattern", "certainty", "severity")},
                "sentence": incident_sentence(incident, verdict),
                "first": {key: incident["first"][key] for key in ("attempt", "iteration", "ranks", "metric")},
            }
            for name, (incident, verdict) in sides.items()
        },
        "changed": [{"field": name, "before": was, "after": now} for name, was, now in one.changed],
    }


def _words(told: Json) -> str:
    now, then = (clean(told[name]["label"]) for name in ("before", "after"))
    lines = [f"{clean(told['run'])}: {now} now, {then} under the other settings"]
    lines += [f"  {line}" for one in told["differences"] for line in _part_words(one)]
    if not told["differences"]:
        lines.append("  no incident under either")
    return "\n".join(lines)


def _part_words(one: Json) -> Sequence[str]:
    side = one["before"] or one["after"]
    certainty = "" if side["certainty"] == "confirmed" else f" ({side['certainty']})"
    head = f"{one['kind']}: {clean(side['sentence'], 400)}{certainty}"
    return [
        head,
        *(
            f"  {part['field']}: {_value(part['before'])} → {_value(part['after'])}"
            for part in one["changed"]
        ),
    ]


def _value(value: Any) -> str:  # any part of an incident's JSON
    return clean(value if isinstance(value, str) else json.dumps(value), 120)


def _setting(text: str) -> tuple[str, object]:
    """``NAME=VALUE`` with the value as TOML has it; what is no TOML is text."""
    name, is_there, value = text.partition("=")
    if not is_there or not name.strip():
        raise ConfigError(f"--set must be NAME=VALUE, got {text!r}")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value

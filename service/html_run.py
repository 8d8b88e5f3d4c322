"""One run as a part of the page: what happened, in numbers, what to do, why it is believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingest.file_reader import FileNotes

from .html_cards import card, facts, sentences
from .html_evidence import coverage_card, evidence_card, others_card
from .html_markup import Markup, Part, data, join, tag
from .html_pictures import Scene, curves_section, ranks_section
from .ink import clean
from .metric_words import METRIC_WORDS
from .picture import AttemptPicture
from .reasons import cause_words, cost_words, label_of, last_good_words, victim_words
from .sentence import Incident, Verdict, root_incident, since, subject
from .sufficiency import happened, has_confirmed_incident, label_words, why_too_little

_SHAPES = {"bad": "◆", "unsure": "▲", "good": "●"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRun:
    """One judged run for the page."""

    verdict: Verdict
    recognised: Sequence[str] = ()
    pictures: Sequence[AttemptPicture] = ()
    notes: Sequence[FileNotes] = ()

    @property
    def standing(self) -> str:
        """``bad`` with a confirmed incident, ``good`` when healthy, else ``unsure``."""
        if has_confirmed_incident(self.verdict):
            return "bad"
        return "unsure" if why_too_little(self.verdict, self.notes) else "good"

    @property
    def happened(self) -> str:
        """What happened, in one sentence."""
        return happened(self.verdict, self.notes)


def run_part(run: ShownRun, number: int, *, most_charts: int, is_alone: bool) -> Markup:
    """The whole part of one run."""
    verdict, root = run.verdict, root_incident(run.verdict)
    is_open = root is not None and root["certainty"] != "recovered"
    scene = Scene(id=f"r{number}", verdict=verdict, pictures=run.pictures, most_charts=most_charts)
    left: list[Part] = [curves_section(scene), ranks_section(scene) if is_open else None]
    right: list[Part] = []
    if root is not None and is_open:
        left += [evidence_card(root), others_card(root, verdict)]
        right = [_steps(root), _facts(root, verdict), _causes(root)]
    columns = tag("div", tag("div", *left), tag("div", *right), class_="columns") if right else join(*left)
    return tag(
        "article",
        _head(run, number, is_alone=is_alone),
        columns,
        coverage_card(verdict),
        card("What was recognised", sentences(run.recognised)) if run.recognised else None,
        id=f"run{number}",
    )


def badge(run: ShownRun) -> Markup:
    """The label, with a shape of its own so that colour is never needed."""
    label = label_words(run.verdict, run.notes)
    shape = tag("span", _SHAPES[run.standing], aria_hidden="true")
    return tag("span", shape, f" {label}", class_=f"badge {run.standing}")


def _head(run: ShownRun, number: int, *, is_alone: bool) -> Markup:
    root = root_incident(run.verdict)
    tags: list[Markup] = [badge(run)]
    if root is not None and root["certainty"] != "recovered":
        tags.append(tag("span", str(root["certainty"])))
        tags.append(tag("span", str(root["pattern"]).replace("_", " ")))
    judged = run.verdict.get("judged_to_iteration")
    tags += [tag("span", f"judged to iteration {judged}")] if judged is not None else []
    return tag(
        "header",
        tag("p", data(run.verdict["run"]), class_="run"),
        tag("h1" if is_alone else "h2", run.happened, class_="sentence"),
        tag("p", *tags, class_="tags"),
        class_=f"head {_tone(run)}",
        id=f"what{number}",
    )


def _tone(run: ShownRun) -> str:
    """The colour of the head: a suspicion beside the label is a reason to look."""
    is_doubtful = any(one["certainty"] == "suspected" for one in run.verdict["incidents"])
    return "unsure" if run.standing == "good" and is_doubtful else run.standing


def _facts(root: Incident, verdict: Verdict) -> Markup:
    first = root["first"]
    metric = str(first.get("metric") or "")
    rows: list[tuple[str, Part]] = [
        ("Where", subject(root, verdict)[0]),
        ("Since", since(first).removeprefix("since ")),
        (
            "First seen in",
            join(
                data(METRIC_WORDS.get(metric, metric), 80),
                f", phase {first['phase']}" if first.get("phase") else "",
            ),
        ),
        (
            "Certainty",
            f"{root['certainty']}, first alarm at iteration {root.get('detected_at_iteration', '?')}",
        ),
        ("Last good", last_good_words(root.get("last_good") or {})),
        ("Cost", cost_words(root.get("cost") or {})),
        (
            "Then",
            ", ".join(
                f"{label_of(link)} at iteration {link['iteration']}" for link in root.get("chain", [])[1:]
            ),
        ),
        ("Victims", victim_words(first) if first.get("victims") else ""),
        *(
            ("Why", f"rank {one['rank']}: {clean(one['why'], 400)}")
            for one in first.get("suspects", [])[:3]
            if one.get("why")
        ),
        ("Note", clean(first["note"], 400) if first.get("note") else ""),
    ]
    return card("In numbers", facts(rows), kind="facts")


def _steps(root: Incident) -> Markup | None:
    steps = []
    for advice in root.get("advice", []):
        action = str(advice["action"]).replace("_", " ")
        target = [": ", data(advice["target"])] if advice.get("target") else []
        command = tag("pre", tag("code", clean(advice["command"], 600))) if advice.get("command") else None
        steps.append(tag("li", tag("b", f"{action[:1].upper()}{clean(action[1:])}"), *target, command))
    return card("What to do", tag("ol", *steps), kind="steps") if steps else None


def _causes(root: Incident) -> Markup | None:
    causes = []
    for cause in root.get("causes", [])[:4]:
        head, _, because = cause_words(cause).partition(": ")
        share = round(100 * float(cause.get("confidence") or 0.0))
        meter = tag("meter", f"{share} %", min=0, max=100, value=share, aria_label=f"confidence {share} %")
        reasons = [tag("li", reason) for reason in because.split("; ")] if because else []
        causes.append(tag("li", tag("b", head), " ", meter, tag("ul", *reasons) if reasons else None))
    return card("Likely causes", tag("ol", *causes), kind="causes") if causes else None

"""`/v1/runs/{run_id}/what-if`: what other settings of the detectors would have said of a stored run."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from detectors.evidence import Certainty, Label
from detectors.incident import Severity
from service import reading
from service.config import Settings, with_changes
from service.errors import ConfigError
from service.sentence import incident_sentence, what_happened
from service.verdict_difference import Difference, Kind, difference
from service.what_if_desk import Desk, DeskBusy, Inquiry
from service.what_if_history import Question

from .answers import answer
from .context import Context, context_of
from .models import FirstFault
from .parameters import ID, RunId
from .problems import ProblemError, ProblemItem, not_found
from .run_summary import first_fault
from .triage_models import FieldChange
from .values import Answer

router = APIRouter(prefix="/v1/runs", tags=["runs"])

_WAIT_S = 2.0
"""How long an answer is waited for before the address is given where it will be: a service that is told to
end waits for its requests, and must be gone within five seconds."""
_MAX_CHANGES = 100
InquiryId = Annotated[str, Path(pattern=ID, description="Opaque id of the question.")]
Scalar = bool | int | float | str


class WhatIf(BaseModel):
    """Settings to try."""

    model_config = ConfigDict(extra="forbid")

    settings: dict[str, Scalar | list[Scalar]] = Field(
        min_length=1,
        max_length=_MAX_CHANGES,
        description="By full name: `detectors.explosion.loss_hold`; checked as in the file of settings.",
        examples=[{"detectors.explosion.loss_hold": 3.0}],
    )


class OtherIncident(Answer):
    """An incident on one side of the comparison."""

    id: str
    label: Label
    pattern: str
    certainty: Certainty
    severity: Severity
    sentence: str
    first: FirstFault


class WhatIfDifference(Answer):
    """What becomes of one incident."""

    kind: Kind
    before: OtherIncident | None
    after: OtherIncident | None
    changed: list[FieldChange]


class OtherVerdict(Answer):
    """A verdict in a sentence."""

    label: Label
    sentence: str


class WhatIfAnswer(Answer):
    """What other settings say; the stored verdict stays as it is."""

    id: str
    state: str = Field(description="running, done or refused.")
    settings: dict[str, Any]
    refusal: str = Field(description="Why it cannot be told, in words; empty where it can.")
    before: OtherVerdict
    after: OtherVerdict | None = Field(description="Null until it is done.")
    differences: list[WhatIfDifference] = Field(description="By position in the run.")


@router.post("/{run_id}/what-if", response_model=WhatIfAnswer, summary="Try other settings on a run")
def ask_what_if(request: Request, run_id: RunId, wanted: WhatIf) -> Response:
    """Judge a stored run again, out of the values of single ranks that history keeps; changes nothing.

    202 with the address in `Location` where that takes longer than two seconds. Where history does not hold
    the run whole, or does not give the stored verdict under the settings of the service, it is refused in
    words: 409. One question at a time: 503 while another is being answered.
    """
    context = context_of(request)
    question = _question(context, run_id, wanted)
    desk: Desk = request.app.state.desk
    try:
        inquiry = desk.ask(question, wanted.settings)
    except DeskBusy as error:
        raise ProblemError(503, "busy", str(error), headers={"Retry-After": "5"}) from error
    desk.wait(inquiry, _WAIT_S)
    if inquiry.state == "refused":
        raise ProblemError(409, "cannot-rejudge", inquiry.refusal)
    place = f"/v1/runs/{run_id}/what-if/{inquiry.id}"
    shown = answer(_shown(inquiry), status=202 if inquiry.state == "running" else 200)
    shown.headers["Location"] = place
    return shown


@router.get("/{run_id}/what-if/{inquiry_id}", response_model=WhatIfAnswer, summary="What came of a trial")
def get_what_if(request: Request, run_id: RunId, inquiry_id: InquiryId) -> Response:
    """The answer, once it is there; the newest ones are kept while the service runs."""
    desk: Desk = request.app.state.desk
    inquiry = desk.find(inquiry_id)
    if inquiry is None or inquiry.question.run_id != run_id:
        raise not_found("trial", inquiry_id)
    return answer(_shown(inquiry))


def _question(context: Context, run_id: str, wanted: WhatIf) -> Question:
    with context.database.read() as db:
        verdict = reading.verdict_bytes(db, run_id)
    if verdict is None:
        raise not_found("run", run_id)
    if context.history_folder is None:
        raise ProblemError(409, "cannot-rejudge", "no history of runs is kept on this machine")
    settings = Settings(detectors=context.detectors)
    try:
        changed = with_changes(settings, wanted.settings)
    except ConfigError as error:
        item = ProblemItem(detail=str(error), pointer="#/settings")
        raise ProblemError(422, "invalid-request", f"settings: {error}", errors=[item]) from error
    return Question(
        folder=context.history_folder,
        run_id=run_id,
        verdict=json.loads(verdict),
        before=context.detectors,
        after=changed.detectors,
        lateness_iterations=context.lateness_iterations,
    )


def _shown(inquiry: Inquiry) -> WhatIfAnswer:
    before, after = inquiry.question.verdict, inquiry.after
    told = [] if after is None else difference(before, after)
    return WhatIfAnswer(
        id=inquiry.id,
        state=inquiry.state,
        settings=dict(inquiry.changes),
        refusal=inquiry.refusal,
        before=OtherVerdict(label=before["label"], sentence=what_happened(before)),
        after=None if after is None else OtherVerdict(label=after["label"], sentence=what_happened(after)),
        differences=[_difference(one, before, after) for one in told],
    )


def _difference(one: Difference, before: Any, after: Any) -> WhatIfDifference:  # verdicts, as JSON
    return WhatIfDifference(
        kind=one.kind,
        before=None if one.before is None else _incident(one.before, before),
        after=None if one.after is None else _incident(one.after, after),
        changed=[FieldChange(field=name, before=was, after=now) for name, was, now in one.changed],
    )


def _incident(incident: Any, verdict: Any) -> OtherIncident:  # JSON
    copied = {name: incident[name] for name in ("id", "label", "pattern", "certainty", "severity")}
    first = first_fault(incident["first"])
    return OtherIncident(**copied, sentence=incident_sentence(incident, verdict), first=first)

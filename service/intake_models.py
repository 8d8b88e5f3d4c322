"""What `POST /v1/telemetry` takes and answers, as models and as its OpenAPI operation."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from firstfault.telemetry import MAX_ATTEMPT, MAX_ITERATION, MAX_MICROBATCH, MAX_RANK, EventKind

from .intake_body import CODECS, Media
from .intake_problem import COMPONENT, PROBLEM_JSON


class Reason(BaseModel):
    """Why one line, or one value of a line that was kept, was rejected."""

    model_config = ConfigDict(extra="forbid")

    line: int | None = Field(
        description="Line, element or row, counted from 1; null where it is the whole body."
    )
    field: str = Field(description="The key that was wrong; `line` for all of it.")
    rule: str = Field(description="What must hold.")
    value: str = Field(description="What came, cut to be readable.")
    whole: bool = Field(description="Whether the whole line was rejected, and not this value alone.")


class IntakeReply(BaseModel):
    """What became of a body."""

    model_config = ConfigDict(extra="forbid")

    accepted: int = Field(ge=0, description="Lines that were accepted, and are durable.")
    rejected: int = Field(ge=0, description="Lines that were rejected.")
    rejected_values: int = Field(ge=0, description="Values that were rejected of lines that were accepted.")
    rejected_by: dict[str, int] = Field(
        description="Rejected lines and values by reason, most frequent first."
    )
    reasons: list[Reason] = Field(description="The first of them; their number is limited.")


class IntakeProblemDocument(BaseModel):
    """What went wrong, as RFC 9457 has it; further members tell of the lines, or what was acknowledged."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Names the kind of problem; stable.")
    title: str = Field(description="The kind of problem in words.")
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="What happened this time: the thing, the rule and the value.")
    instance: str | None = Field(default=None, description="The request id that is in the log too.")


_EXAMPLE = {
    "run": "llama-7b",
    "rank": 3,
    "iteration": 1200,
    "time": 1764470000.25,
    "loss": 2.31,
    "local_grad_norm": "NaN",
    "param_checksum": "9f3ab1c204d7e655",
}
_NAME = {
    "type": "string",
    # at most 256 bytes of UTF-8, in which a character has up to four
    "pattern": "^([ -~]{1,256}|[^\\u0000-\\u001f\\u007f-\\u009f]{1,64})$",
}
_RECORD: dict[str, Any] = {
    COMPONENT: "TelemetryRecord",
    "type": "object",
    "required": ["run", "rank", "iteration"],
    "properties": {
        "run": {**_NAME, "description": "Name of the training job: text without control characters."},
        "rank": {"type": "integer", "minimum": 0, "maximum": MAX_RANK},
        "iteration": {"type": "integer", "minimum": 0, "maximum": MAX_ITERATION},
        "attempt": {"type": "integer", "minimum": 0, "maximum": MAX_ATTEMPT},
        "microbatch": {"type": "integer", "minimum": 0, "maximum": MAX_MICROBATCH},
        "time": {"type": "number", "description": "Seconds since 1970."},
        "event": {"type": "string", "enum": [kind.value for kind in EventKind]},
        "v": {"type": "integer", "minimum": 1, "maximum": 1},  # generators stumble over `const`
    },
    "additionalProperties": {
        "description": "A metric (a number, NaN and infinities as text), a checksum as hex, or a label."
        " Anything else is rejected alone; the record is kept."
    },
    "example": _EXAMPLE,
}
_REQUEST_ID = {
    "name": "X-Request-ID",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
    "description": "What to call this request in the answer and in the log; made up where it is missing.",
}
_ANSWERS: dict[int, str] = {
    400: "The body is empty, damaged, or no JSON.",
    408: "The body did not arrive in time.",
    413: "The body, or what it unpacks to, is larger than allowed.",
    415: "A media type, charset or content encoding that is not understood.",
    422: "No line could be used; the reasons are those of a 202.",
    503: "The broker is away, the spool is full, or too many bodies wait: send it again later.",
}


def operation() -> dict[str, Any]:
    """Names, request body and error answers of the operation."""
    lines = "A record or event a line, UTF-8."
    # inline, and not as a model: FastAPI would list a second media type, which is never sent
    document = {**IntakeProblemDocument.model_json_schema(), COMPONENT: "IntakeProblem"}
    problem = {"content": {PROBLEM_JSON: {"schema": document}}}
    return {
        "summary": "Send telemetry",
        "operation_id": "post_telemetry",
        "response_description": "What was accepted is durable; what was not is listed.",
        "responses": {status: {**problem, "description": told} for status, told in _ANSWERS.items()},
        "openapi_extra": {
            "parameters": [_REQUEST_ID],
            "requestBody": {
                # not a parameter: a generated client would send the header without packing the body
                "description": "JSON may be an array of records, too. Packed or not:"
                f" `Content-Encoding` may be {', '.join(CODECS)}.",
                "required": True,
                "content": {
                    # one record, since generated clients cannot send a union; the last of those that are
                    # bytes is what they send bytes as
                    Media.JSON.value: {"schema": _RECORD, "example": _EXAMPLE},
                    Media.ARROW.value: {"schema": {"type": "string", "format": "binary"}},
                    Media.LINES.value: {
                        "schema": {"type": "string", "format": "binary", "description": lines}
                    },
                },
            },
        },
    }

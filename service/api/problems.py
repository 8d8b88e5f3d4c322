"""Errors as problem details (RFC 9457): one shape for every status, ours and the framework's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from service.errors import StoreError
from service.intake_problem import PHRASES, PROBLEM_JSON

_MAX_VALUE = 80
"""Characters of a parameter's value that are told: enough to know it again."""
NOT_KEPT = "not-kept"
_LENIENT = "handling=lenient"
"""What `Prefer` (RFC 7240) says where `NOT_KEPT` is no error: the document is the same, its status 200. A
browser writes each 404 to its console, where nobody would find a real error among those of old runs."""
_RETRY_AFTER_S = 2
"""A store that is locked is free again after a busy timeout at most."""


class ProblemItem(BaseModel):
    """One thing that is wrong with a request."""

    model_config = ConfigDict(extra="forbid")

    detail: str = Field(description="The rule that was broken.")
    pointer: str | None = Field(default=None, description="JSON pointer into the body.")
    parameter: str | None = Field(default=None, description="Name of the query, path or header parameter.")


class Problem(BaseModel):
    """What went wrong, as RFC 9457 has it."""

    model_config = ConfigDict(extra="forbid")

    type: str = Field(description="Names the kind of problem; stable.")
    title: str = Field(description="The kind of problem in words.")
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="What happened this time: the thing, the rule and the value.")
    instance: str = Field(description="Names this occurrence: the request id that is in the log too.")
    errors: list[ProblemItem] = Field(default_factory=list)


class ProblemError(Exception):
    """Raised anywhere below an endpoint; becomes a problem document."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[ProblemItem] = (),
    ) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail = status, kind, detail
        self.headers, self.errors = dict(headers or {}), list(errors)


def not_found(what: str, name: str) -> ProblemError:
    """404: there is no such thing."""
    return ProblemError(404, "not-found", f"there is no {what} {name!r}")


def not_kept(detail: str) -> ProblemError:
    """404: the run is there, and what was asked of it is not: gone, or never reported."""
    return ProblemError(404, NOT_KEPT, detail)


def bad_parameter(name: str, detail: str) -> ProblemError:
    """422: one parameter breaks a rule."""
    return ProblemError(
        422, "invalid-request", f"{name}: {detail}", errors=[ProblemItem(detail=detail, parameter=name)]
    )


def problem_response(request_id: str, error: ProblemError) -> Response:
    """The document of one problem, never cached."""
    problem = Problem(
        type="about:blank" if error.kind == "about:blank" else f"urn:firstfault:problem:{error.kind}",
        title=PHRASES.get(error.status, "Error"),
        status=error.status,
        detail=error.detail,
        instance=f"urn:firstfault:request:{request_id}",
        errors=error.errors,
    )
    # ASCII alone: what a client sent is echoed here, and may hold marks that turn a terminal around
    body = json.dumps(problem.model_dump(exclude_none=True), ensure_ascii=True).encode()
    return Response(body, status_code=error.status, media_type=PROBLEM_JSON, headers=error.headers)


def request_id_of(request: Request) -> str:
    """The id that the frame gave this request."""
    return str(request.scope.get("state", {}).get("request_id", "none"))


def add_handlers(app: FastAPI) -> None:
    """Make problem documents of all that an endpoint and the framework raise."""

    @app.exception_handler(ProblemError)
    async def ours(request: Request, error: ProblemError) -> Response:
        answer = problem_response(request_id_of(request), error)
        if error.kind == NOT_KEPT and _is_lenient(request):
            answer.status_code = 200
            answer.headers["Preference-Applied"] = _LENIENT
        return answer

    @app.exception_handler(HTTPException)
    async def of_the_framework(request: Request, error: HTTPException) -> Response:
        return problem_response(request_id_of(request), _of_http(request, error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return problem_response(request_id_of(request), _of_validation(error.errors()))

    @app.exception_handler(SQLAlchemyError)
    @app.exception_handler(StoreError)
    async def of_the_store(request: Request, error: Exception) -> Response:
        return problem_response(request_id_of(request), store_unavailable(error))


def store_unavailable(error: Exception) -> ProblemError:
    """503: the store cannot be read or written just now; says why without the statement."""
    reason = str(getattr(error, "orig", None) or error).splitlines()[0]
    return ProblemError(
        503,
        "store-unavailable",
        f"the store cannot be used just now: {reason}",
        headers={"Retry-After": str(_RETRY_AFTER_S)},
    )


def _is_lenient(request: Request) -> bool:
    wanted = ",".join(request.headers.getlist("prefer")).split(",")
    return _LENIENT in {one.strip().replace(" ", "").lower() for one in wanted}


def _of_http(request: Request, error: HTTPException) -> ProblemError:
    if error.status_code == 404:
        detail = f"there is nothing at {request.url.path}"
    elif error.status_code == 405:
        detail = f"{request.method} is not allowed at {request.url.path}"
    else:
        detail = str(error.detail)
    return ProblemError(error.status_code, "about:blank", detail, headers=error.headers)


def _of_validation(errors: Sequence[Mapping[str, Any]]) -> ProblemError:
    """422 with one item per broken rule; values of bodies and headers stay out, they may be secrets."""
    items = [_item(error) for error in errors]
    first = items[0]
    where = first.parameter or first.pointer or "request"
    more = f" (and {len(items) - 1} more)" if len(items) > 1 else ""
    return ProblemError(422, "invalid-request", f"{where}: {first.detail}{more}", errors=items)


def _item(error: Mapping[str, Any]) -> ProblemItem:
    place, *path = [str(part) for part in error["loc"]] or ["request"]
    detail = str(error["msg"]).removeprefix("Value error, ")
    if place == "body":
        parts = [] if error["type"] == "json_invalid" else path
        pointer = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
        return ProblemItem(detail=detail, pointer=f"#{pointer}")
    if place in ("query", "path") and isinstance(error.get("input"), str):
        detail += f", got {error['input'][:_MAX_VALUE]!r}"
    return ProblemItem(detail=detail, parameter=path[0] if path else place)

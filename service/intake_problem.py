"""Why a body is refused, as problem details (RFC 9457) with the reasons of its lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus

PHRASES = {int(status): status.phrase for status in HTTPStatus} | {
    413: "Content Too Large",  # as RFC 9110 has them; older Pythons have the words before it
    414: "URI Too Long",
    422: "Unprocessable Content",
}
COMPONENT = "x-component"
"""Marks a schema that is a component of the OpenAPI document, by its name there."""
PROBLEM_JSON = "application/problem+json"


class IntakeProblem(Exception):
    """A body that is refused; ``members`` are further members of the document."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail = status, kind, detail
        self.headers, self.members = dict(headers or {}), dict(members or {})

    def document(self, request_id: str | None) -> bytes:
        """The document as ASCII JSON: what a sender wrote is echoed in it."""
        head = {
            "type": f"urn:firstfault:problem:{self.kind}",
            "title": PHRASES[self.status],
            "status": self.status,
            "detail": self.detail,
        }
        if request_id is not None:
            head["instance"] = f"urn:firstfault:request:{request_id}"
        return json.dumps({**head, **self.members}, ensure_ascii=True, allow_nan=False).encode()


def unavailable(
    detail: str, retry_after_s: int, members: Mapping[str, object] | None = None
) -> IntakeProblem:
    """503: nothing can be taken just now."""
    headers = {"Retry-After": str(retry_after_s)}
    return IntakeProblem(503, "intake-unavailable", detail, headers=headers, members=members)
